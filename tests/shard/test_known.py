"""A shard's directory that has less than the node knows is refused; crashes are none of that."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.child import DAMAGED, OK
from corvo.protocol.numbers import Loss, Numbers
from corvo.protocol.ops.enqueue import NewJob
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.identity import read_identity
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.ready import Write
from corvo.shard.config import ShardConfig
from corvo.shard.driver.known import Note
from tests.shard.processes import calling, config_in, launch, put, running, status
from tests.support.links import on_sockets

JOB: Final = NewJob(queue="mail", payload=msgspec.Raw(b"{}"))
Change = Callable[[Path], None]


def config_with_note(directory: Path, **changed: object) -> ShardConfig:
    return config_in(directory, known=str(directory / "known.json"), **changed)


def note_of(config: ShardConfig) -> Note:
    return msgspec.json.decode(Path(config.known).read_bytes(), type=Note)


def damage_note(config: ShardConfig) -> None:
    Path(config.known).write_bytes(b"{")


def files_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if not path.is_socket())


async def use(config: ShardConfig, jobs: int, *, kill: bool = False) -> tuple[Loss, ...]:
    """Start it, enqueue, stop it; the losses that it tells of."""
    async with running(config) as child:
        async with calling(config) as client:
            for _ in range(jobs):
                await put(client, JOB)
            told = (await status(client)).counted.disk.losses
        if kill:
            await child.kill()
        else:
            assert await child.stop() == OK
    return told


async def refusal(config: ShardConfig) -> str:
    """What it says when it does not start."""
    child = await launch(config)
    try:
        assert not await child.wait_until_ready()
        assert child.process.returncode == DAMAGED
        return await child.last_words()
    finally:
        await child.kill()


async def damaged_by(directory: Path, change: Change) -> ShardConfig:
    """A shard with a past: an older copy, what came after it, and a change of the directory."""
    config = config_with_note(directory)
    await use(config, 3)
    shutil.copytree(config.data_dir, directory / "older")
    await use(config, 3)
    change(directory)
    return config


def remove(directory: Path) -> None:
    shutil.rmtree(directory / "data")


def empty(directory: Path) -> None:
    remove(directory)
    (directory / "data" / "log").mkdir(parents=True)
    (directory / "data" / "state").mkdir(parents=True)


def put_older_back(directory: Path) -> None:
    remove(directory)
    shutil.copytree(directory / "older", directory / "data")


CHANGES: Final = {
    "is missing or empty": remove,
    "missing or empty": empty,
    "is an older copy, which ends at entry": put_older_back,
}


@on_sockets
@pytest.mark.parametrize("why", CHANGES)
async def test_a_directory_that_lost_entries_is_refused(tmp_path: Path, why: str) -> None:
    config = await damaged_by(tmp_path, CHANGES[why])
    before = files_in(tmp_path)
    index = note_of(config).index

    said = await refusal(config)

    assert why in said
    assert f"up to {index}" in said
    assert f"--accept-loss shard-0:{index}" in said
    assert said.count("\n") == 1
    assert files_in(tmp_path) == before


@on_sockets
async def test_a_directory_that_was_created_again_is_refused(tmp_path: Path) -> None:
    config = await damaged_by(tmp_path, remove)
    await use(msgspec.structs.replace(config, known=""), 50)  # by a version without notes

    assert "was created again" in await refusal(config)


@on_sockets
async def test_a_copy_that_was_used_elsewhere_is_refused(tmp_path: Path) -> None:
    config = await damaged_by(tmp_path, put_older_back)
    await use(msgspec.structs.replace(config, known=""), 50)

    assert "was changed elsewhere" in await refusal(config)


@on_sockets
@pytest.mark.parametrize(
    ("other", "whose"),
    [
        ({"shard": 1, "shards": 2}, "shard-1 of node 1: put"),
        ({"node": 2, "shards": 2}, "shard-0 of node 2: put"),
        ({"cluster": "heronry", "shards": 3}, "of cluster heronry, which has 3 shards"),
    ],
)
async def test_the_directory_of_another_shard_is_refused(
    tmp_path: Path, other: dict[str, object], whose: str
) -> None:
    config = config_with_note(tmp_path, shards=2)
    await use(config_in(tmp_path, **other), 1)

    said = await refusal(config)

    assert f"{config.data_dir} belongs to " in said
    assert whose in said


@on_sockets
async def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    config = config_with_note(tmp_path)
    await use(config, 1)
    damage_note(config)

    assert "known.json is damaged" in await refusal(config)


# ---- What is no loss.


@on_sockets
async def test_a_directory_without_a_note_gets_one(tmp_path: Path) -> None:
    config = config_with_note(tmp_path)
    await use(msgspec.structs.replace(config, known=""), 3)

    await use(config, 0)

    assert note_of(config).index > 3


@on_sockets
@pytest.mark.parametrize("kill", [True, False])
async def test_a_shard_that_was_killed_or_moved_starts(tmp_path: Path, kill: bool) -> None:
    config = config_with_note(tmp_path / "before")
    (tmp_path / "before").mkdir()
    await use(config, 3, kill=kill)
    (tmp_path / "before").rename(tmp_path / "after")
    moved = config_with_note(tmp_path / "after")

    assert await use(moved, 3) == ()


@on_sockets
async def test_an_old_copy_of_everything_starts(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    config = config_with_note(tmp_path / "node")
    await use(config, 3)
    shutil.copytree(tmp_path / "node", tmp_path / "backup", ignore=shutil.ignore_patterns("s"))
    await use(config, 3)
    shutil.rmtree(tmp_path / "node")
    (tmp_path / "backup").rename(tmp_path / "node")

    assert await use(config, 3) == ()


@on_sockets
async def test_a_note_is_made_while_the_shard_runs(tmp_path: Path) -> None:
    config = config_with_note(tmp_path, checkpoint_entries=5, checkpoint_bytes=1 << 30)
    async with running(config) as child:
        async with calling(config) as client:
            while note_of(config).index < 5:
                await put(client, JOB)
        await child.kill()
    index = note_of(config).index
    remove(tmp_path)

    assert f"up to {index}" in await refusal(config)


# ---- Accepting it.


@on_sockets
@pytest.mark.parametrize("change", [remove, empty, put_older_back])
async def test_an_accepted_loss_is_written_down(tmp_path: Path, change: Change) -> None:
    config = await damaged_by(tmp_path, change)
    before = note_of(config)

    accepting = msgspec.structs.replace(config, accept_loss=before.index)
    [loss] = await use(accepting, 1)
    [still] = await use(config, 1)

    assert loss == still == note_of(config).losses[0]
    assert loss.known == before.index
    assert loss.found < before.index


def under_repair(config: ShardConfig) -> int:
    """Its leader has shown that it forgot what it confirmed; returns the last entry that it has."""
    found = read_identity(RealFiles(Path(config.data_dir) / "log"))
    storage = DiskStorage.open(RealFiles(Path(config.data_dir) / "log"), found)
    state = msgspec.structs.replace(storage.hard_state, term=storage.hard_state.term + 1)
    storage.put(Write(token=1, repair=True, hard_state=state))
    storage.close()
    return storage.last_index


async def standing(config: ShardConfig) -> tuple[Numbers, str]:
    """What a replica that does not lead tells of itself, and what it has logged."""
    child = await launch(config)
    try:
        assert await child.wait_until_ready()
        async with calling(config) as client:
            seen = await status(client)
        assert await child.stop() == OK
        return seen, await child.last_words()
    finally:
        await child.kill()


@on_sockets
async def test_a_repair_is_ended_by_accepting_the_loss_of_what_is_not_there(tmp_path: Path) -> None:
    config = config_with_note(tmp_path)
    await use(config, 3)
    last = under_repair(config)
    before, _ = await standing(config)

    [loss] = await use(msgspec.structs.replace(config, accept_loss=last), 1)
    [still] = await use(config, 1)

    assert before.is_repairing
    assert before.leader is None
    assert loss == still
    assert (loss.known, loss.found) == (last, last)
    assert "the repair of" in loss.why


@on_sockets
async def test_a_repair_goes_on_where_another_loss_is_accepted(tmp_path: Path) -> None:
    config = config_with_note(tmp_path)
    await use(config, 3)
    last = under_repair(config)

    seen, said = await standing(msgspec.structs.replace(config, accept_loss=last - 1))

    assert seen.is_repairing
    assert seen.counted.disk.losses == ()
    assert '"event":"replica.repairing"' in said
    assert f'"last_index":{last}' in said


@on_sockets
async def test_only_the_loss_that_is_named_is_accepted(tmp_path: Path) -> None:
    config = await damaged_by(tmp_path, remove)
    index = note_of(config).index
    accepting = msgspec.structs.replace(config, accept_loss=index)
    await use(accepting, 2)
    remove(tmp_path)

    said = await refusal(accepting)

    assert f"--accept-loss shard-0:{note_of(config).index}" in said
    assert f"shard-0:{index}" not in said
