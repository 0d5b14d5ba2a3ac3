"""Copies for backups by the real process of a shard: what they have, and what ends with a link."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from corvo.connections import UnixAddress, dial
from corvo.kv import stopped, sums
from corvo.kv.tables import read_meta
from corvo.link import Link
from corvo.protocol import wire
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard.config import ShardConfig
from corvo.shard.recount.rows import rows
from corvo.shard.state.tables import JOBS
from tests.shard.processes import calling, config_in, put, running, status
from tests.support.links import on_sockets

JOB = NewJob(queue="mail")
A = TypeVar("A", bound=wire.BackupAnswer)


@asynccontextmanager
async def backing_up(config: ShardConfig) -> AsyncIterator[Link]:
    """A link as a router has it that makes a backup."""
    hello = wire.make_hello(config, wire.BACKUP, shard=config.shard)
    async with dial(UnixAddress(config.socket), hello) as link:
        yield link


async def ask(link: Link, request: wire.BackupRequest, kind: type[A]) -> A:
    link.send(request)
    [answer] = await link.receive(wire.TO_BACKUP)
    assert isinstance(answer, kind)
    return answer


async def read(link: Link, name: str) -> bytes:
    """A whole file of the copy."""
    data = b""
    while part := (await ask(link, wire.ReadCopy(3, name, len(data)), wire.CopyPart)).data:
        data += part
    return data


def left_behind(config: ShardConfig) -> list[Path]:
    return [*Path(config.data_dir).glob("state/*.unfinished")]


@on_sockets
async def test_a_copy_has_what_was_confirmed_and_stays_what_it_was(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    target = tmp_path / "copy"
    target.mkdir()
    async with running(config), calling(config) as client, backing_up(config) as link:
        ids = await put(client, *[JOB] * 20)
        begun = await ask(link, wire.BeginBackup(1), wire.BackupBegun)
        least = (await status(client)).applied
        copied = await ask(link, wire.CopyState(2, least), wire.StateCopied)
        ended = await ask(link, wire.EndBackup(4), wire.BackupEnded)
        await put(client, *[JOB] * 20)
        found = sums.decode(copied.sums)
        for name in found:
            (target / name).write_bytes(await read(link, name))
        other = await read(link, "LOCK")
        again = await ask(link, wire.CopyState(5, least), wire.StateCopied)
        assert left_behind(config) != []

    assert begun.term > 0
    assert ended.is_consistent
    assert copied.index >= least
    for name, expected in found.items():
        data = (target / name).read_bytes()
        assert sums.of(data) == expected
    store = stopped.open_copy(target, tmp_path / "opened")
    assert read_meta(store).applied == copied.index
    there = [JOBS.decode(data).id for _, data in rows(store, JOBS.prefix, b"j}")]
    assert there == sorted(ids)
    store.close()
    assert other == b""
    assert (again.index, again.problem) == (0, "there is a copy already")
    assert left_behind(config) == []


@on_sockets
async def test_a_shard_without_jobs_has_a_copy(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config), calling(config), backing_up(config) as link:
        await ask(link, wire.BeginBackup(1), wire.BackupBegun)

        copied = await ask(link, wire.CopyState(2, 0), wire.StateCopied)

        assert copied.problem == ""
        assert copied.index > 0, "a leader's first entry"


@on_sockets
async def test_an_end_without_a_beginning_is_not_consistent(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config), calling(config), backing_up(config) as link:
        ended = await ask(link, wire.EndBackup(1), wire.BackupEnded)

    assert not ended.is_consistent


@on_sockets
async def test_a_copy_waits_until_the_state_has_come_so_far(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config), calling(config) as client, backing_up(config) as link:
        await put(client, JOB)
        applied = (await status(client)).applied
        heard: list[wire.StateCopied] = []

        async def copy() -> None:
            heard.append(await ask(link, wire.CopyState(2, applied + 1), wire.StateCopied))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy)
            await status(client)
            assert heard == []
            await put(client, JOB)

    assert heard[0].index > applied
