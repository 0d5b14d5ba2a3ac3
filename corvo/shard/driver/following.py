"""Followers of a replica's feed: pages of changes, as fast as a follower asks for them.

Requests of a follower are answered in their order. A page is made in short steps, between which the
replica works. A follower at the end of the feed waits until an entry is applied, without cost.
"""

from typing import assert_never

import trio

from corvo.kv.feed import Page, Walk
from corvo.link import Link
from corvo.protocol import wire
from corvo.shard.driver.one_by_one import serve_one_by_one
from corvo.shard.machine import Machine
from corvo.shard.pages import begin_page, begin_walk, end_page, end_walk, must_wait, seek
from corvo.shard.replica import Replica


class AppliedSignal:
    """Wakes the tasks that wait for an entry to be applied."""

    def __init__(self) -> None:
        self._bell: trio.Event | None = None
        self._told = 0

    def notify(self, applied: int) -> None:
        """Wake them if the state has another index than the one at which they began to wait."""
        if self._bell is not None and applied != self._told:
            self._bell.set()
            self._bell = None

    async def wait(self, applied: int) -> None:
        """Wait until the state has another index than `applied`."""
        if self._bell is None:
            self._bell = trio.Event()
            self._told = applied
        await self._bell.wait()


async def serve_follower(link: Link, replica: Replica, signal: AppliedSignal) -> None:
    """Answer a follower until its link ends. Raises `LinkLost` and `WireError`."""

    async def answer(request: wire.FollowerRequest) -> wire.FollowerAnswer:
        match request:
            case wire.Follow():
                return await _follow(replica, signal, request)
            case wire.Scan():
                return await _scan(replica, signal, request)
            case wire.Seek():
                return seek(replica.machine, request)
            case _:
                assert_never(request)

    await serve_one_by_one(link, wire.FROM_FOLLOWER, answer)


async def _follow(
    replica: Replica, signal: AppliedSignal, request: wire.Follow
) -> wire.Changes | wire.Reset:
    """The changes after a place, once there are some."""
    while True:
        machine = replica.machine
        page = begin_page(replica, request)
        if page is None:
            await signal.wait(machine.applied)
        elif isinstance(page, wire.Reset):
            return page
        # A feed that was cut meanwhile has nothing for it, and a state that was replaced is closed.
        elif await is_made(replica, machine, page) and not page.is_overtaken:
            return end_page(machine, request, page)


async def _scan(replica: Replica, signal: AppliedSignal, request: wire.Scan) -> wire.Scanned:
    """A page of all documents, once they are as new as the follower needs them."""
    while True:
        machine = replica.machine
        if must_wait(replica, request):
            await signal.wait(machine.applied)
            continue
        walk = begin_walk(machine, request)
        if await is_made(replica, machine, walk):
            return end_walk(machine, request, walk)


async def is_made(replica: Replica, machine: Machine, answer: Page | Walk) -> bool:
    """Make an answer step by step; False if another state replaced this one."""
    while not answer.advance():
        await trio.lowlevel.checkpoint()
        if replica.machine is not machine:
            return False
    return True
