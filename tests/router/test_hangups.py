"""The watch for clients that hang up: each watch of a socket tells of it, whenever it came."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from corvo.router.http.lines import Hangups
from tests.support.links import on_sockets


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[Hangups, socket.socket, socket.socket]]:
    """A watch that runs, and the two ends of a connection."""
    hangups = Hangups()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hangups.run)
            yield hangups, ours, theirs
            hangups.leave(ours.fileno())
            nursery.cancel_scope.cancel()


@on_sockets
async def test_a_hangup_is_told_once_and_to_every_later_watch() -> None:
    async with watching() as (hangups, ours, theirs):
        told: list[int] = []
        for number in range(3):
            hung_up = trio.Event()
            hangups.watch(ours.fileno(), hung_up.set)
            theirs.shutdown(socket.SHUT_WR)
            await hung_up.wait()
            told.append(number)
            hangups.forget(ours.fileno())

        assert told == [0, 1, 2]


@on_sockets
async def test_a_hangup_between_two_watches_is_told_to_the_second() -> None:
    async with watching() as (hangups, ours, theirs):
        hung_up = trio.Event()
        hangups.watch(ours.fileno(), hung_up.set)
        hangups.forget(ours.fileno())
        theirs.shutdown(socket.SHUT_WR)
        await wait_all_tasks_blocked()
        assert not hung_up.is_set()

        hangups.watch(ours.fileno(), hung_up.set)

        await hung_up.wait()


@on_sockets
async def test_what_a_client_sends_is_no_hangup() -> None:
    async with watching() as (hangups, ours, theirs):
        hung_up = trio.Event()
        hangups.watch(ours.fileno(), hung_up.set)
        theirs.send(b"more")
        await wait_all_tasks_blocked()

        assert not hung_up.is_set()


@on_sockets
async def test_a_socket_that_has_left_is_registered_anew_under_its_number() -> None:
    async with watching() as (hangups, ours, theirs):
        hangups.watch(ours.fileno(), lambda: None)
        hangups.forget(ours.fileno())
        hangups.leave(ours.fileno())
        hung_up = trio.Event()
        hangups.watch(ours.fileno(), hung_up.set)

        theirs.shutdown(socket.SHUT_WR)

        await hung_up.wait()
