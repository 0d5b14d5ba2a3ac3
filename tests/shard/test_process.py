"""The real process, on a scratch directory: how it lives, dies, and comes back."""

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import trio

from corvo import child as child_process
from corvo.connections import UnixAddress, connect
from corvo.link import LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.queues import Pause
from corvo.protocol.queries import GetQueue, QueueView
from corvo.shard.config import ShardConfig
from tests.shard.processes import (
    SHARD,
    Child,
    ack,
    ask,
    calling,
    config_in,
    fetch,
    launch,
    put,
    result,
    running,
    status,
    submit,
)
from tests.support.links import on_sockets

JOB = NewJob(queue="mail")


async def put_until_the_end(config: ShardConfig, stdin: trio.abc.SendStream) -> None:
    async with calling(config) as client:
        await put(client, JOB)
        await stdin.aclose()
        while True:
            await put(client, JOB)


async def counts(client: LinkClient) -> dict[str, int]:
    view = result(await ask(client, GetQueue(queue="mail")), QueueView)
    return {state: count for state, count in view.counts.items() if count}


# ---- One process.


@on_sockets
async def test_it_works_and_stops_cleanly_when_stdin_closes(tmp_path: Path) -> None:
    config = config_in(tmp_path)

    async with running(config) as child:
        async with calling(config) as client:
            await put(client, JOB, JOB)
            [claim] = await fetch(client)
            await ack(client, claim)
            seen = await counts(client)
        code = await child.stop()

    assert seen == {"pending": 1, "completed": 1}
    assert code == child_process.OK
    assert await child.last_words() == ""
    assert not (tmp_path / "data" / "state" / "running").exists()


@on_sockets
async def test_a_stop_keeps_everything(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as child:
        async with calling(config) as client:
            await put(client, *[JOB] * 100)
            before = await status(client)
        await child.stop()

    async with running(config), calling(config) as client:
        after = await status(client)
        seen = await counts(client)

    assert seen == {"pending": 100}
    assert after.term > before.term
    assert after.applied > before.applied


@on_sockets
async def test_a_kill_keeps_everything(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    told = 0

    for _ in range(3):
        async with running(config) as child:
            async with calling(config) as client:
                for _ in range(20):
                    await put(client, JOB)
                    told += 1
            await child.kill()

    async with running(config), calling(config) as client:
        assert await counts(client) == {"pending": told}


@on_sockets
async def test_the_end_of_whoever_started_it_is_its_end(tmp_path: Path) -> None:
    config = config_in(tmp_path)

    async with running(config) as child:
        assert child.process.stdin is not None
        with pytest.raises(LinkLost):
            await put_until_the_end(config, child.process.stdin)
        code = await child.process.wait()

    assert code == child_process.OK


@on_sockets
async def test_checkpoints_are_made_and_the_log_is_cut(tmp_path: Path) -> None:
    config = config_in(tmp_path, checkpoint_entries=20, keep_entries=5, segment_bytes=2_048)

    async with running(config) as child:
        async with calling(config) as client:
            cut = 0
            while cut < 60:
                await put(client, JOB)
                cut = (await status(client)).first_index
            written = (await status(client)).last_index
        await child.kill()
    checkpoints = [path.name for path in (tmp_path / "data" / "state").glob("checkpoint-*")]
    segments = list((tmp_path / "data" / "log").glob("*.seg"))
    async with running(config), calling(config) as client:
        after = await status(client)
        for _ in range(60):
            await put(client, JOB)
        seen = await counts(client)

    assert len(checkpoints) == 1
    assert len(segments) < 20  # of some sixty entries, two or so in each
    assert after.first_index >= cut - 1
    assert written < after.last_index
    assert seen["pending"] > 100


@on_sockets
async def test_a_machine_that_lost_power_starts_from_its_checkpoint(tmp_path: Path) -> None:
    config = config_in(tmp_path, checkpoint_entries=20, keep_entries=5, segment_bytes=2_048)
    async with running(config) as child:
        async with calling(config) as client:
            for _ in range(70):
                await put(client, JOB)
        await child.kill()
    state = tmp_path / "data" / "state"
    (state / "running").write_text("another boot")
    for path in (state / "live").iterdir():
        path.unlink()  # a checkpoint has the same file, by another name
        path.write_bytes(b"rubble")

    async with running(config), calling(config) as client:
        assert await counts(client) == {"pending": 70}


@on_sockets
async def test_news_of_work_come_without_being_asked_for(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    news: list[wire.Push] = []

    async with running(config), calling(config) as producer, calling(config, news) as worker:
        empty = await fetch(worker)
        await put(producer, JOB)
        while not any(isinstance(push, wire.WorkAvailable) for push in news):
            await status(worker)
        found = await fetch(worker)

    assert empty == []
    assert len(found) == 1
    assert news[-1] == wire.WorkAvailable(("mail",))


@on_sockets
async def test_what_is_scheduled_comes_when_it_is_due(tmp_path: Path) -> None:
    config = config_in(tmp_path, tick_ms=60_000)

    async with running(config), calling(config) as client:
        now_ns = (await status(client)).now_ns
        await put(client, NewJob(queue="mail", scheduled_ns=now_ns + 3_000_000_000))
        first = await counts(client)
        while (await counts(client)) == first:
            await trio.lowlevel.checkpoint()
        [claim] = await fetch(client)
        after_ns = (await status(client)).now_ns

    assert first == {"scheduled": 1}
    assert claim.attempt == 1
    assert after_ns >= now_ns + 3_000_000_000


@on_sockets
async def test_relaxed_durability_survives_a_kill_and_a_stop(tmp_path: Path) -> None:
    config = config_in(tmp_path, relaxed=True, checkpoint_entries=20, keep_entries=5)

    for _ in range(2):
        async with running(config) as child:
            async with calling(config) as client:
                for _ in range(30):
                    await put(client, JOB)
            await child.kill()
    async with running(config) as child:
        async with calling(config) as client:
            seen = await counts(client)
        code = await child.stop()

    assert seen == {"pending": 60}
    assert code == child_process.OK


# ---- Refusals to start.


async def ended(config: ShardConfig | bytes, command: tuple[str, ...] = SHARD) -> Child:
    child = await launch(config, command)
    assert not await child.wait_until_ready()
    return child


@pytest.mark.parametrize(
    ("line", "named"), [(b"{}", "cluster"), (b"rubbish", "config"), (b"", "config")]
)
def test_a_bad_config_is_named(line: bytes, named: str) -> None:
    @on_sockets
    async def start() -> None:
        child = await ended(line)

        assert child.process.returncode == child_process.MISCONFIGURED
        assert named in await child.last_words()

    start()


@on_sockets
async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    config = config_in(tmp_path)

    async with running(config), calling(config) as client:
        second = await ended(config)
        await put(client, JOB)

    assert second.process.returncode == child_process.MISCONFIGURED
    assert "in use" in await second.last_words()


@on_sockets
async def test_the_directory_of_another_is_refused(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as child:
        await child.stop()

    others = [
        await ended(config_in(tmp_path, **changed))
        for changed in ({"cluster": "other"}, {"node": 2}, {"shards": 2}, {"shards": 2, "shard": 1})
    ]

    assert [child.process.returncode for child in others] == [child_process.DAMAGED] * 4
    for child in others:
        assert "belongs to" in await child.last_words()


@on_sockets
async def test_a_damaged_log_is_not_served(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as child:
        async with calling(config) as client:
            await put(client, *[JOB] * 100)
        await child.stop()
    [segment] = (tmp_path / "data" / "log").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(b"CB1") + 20] ^= 1
    segment.write_bytes(data)

    damaged = await ended(config)

    assert damaged.process.returncode == child_process.DAMAGED
    assert segment.name in await damaged.last_words()


async def checkpointed(directory: Path) -> tuple[ShardConfig, int]:
    """A shard that stopped some entries behind its last checkpoint; and the checkpoint's index."""
    config = config_in(directory, checkpoint_entries=20)
    async with running(config) as child:
        async with calling(config) as client:
            while not (await status(client)).counted.disk.checkpointed:
                await put(client, JOB)
        await child.stop()
    config = msgspec.structs.replace(config, checkpoint_entries=1_000)
    async with running(config) as child:
        async with calling(config) as client:
            for _ in range(5):
                await put(client, JOB)
        await child.stop()
    [checkpoint] = (directory / "data" / "state").glob("checkpoint-*")
    return config, int(checkpoint.name.removeprefix("checkpoint-"))


def damage_entry(config: ShardConfig, index: int) -> Path:
    """Flip a bit in an entry of the log."""
    [segment] = (Path(config.data_dir) / "log").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(struct.pack("<Q", index), 3 * 4096) + 25] ^= 1
    segment.write_bytes(data)
    return segment


@on_sockets
@pytest.mark.parametrize("kill", [False, True])
async def test_damage_below_the_checkpoint_is_set_aside(tmp_path: Path, kill: bool) -> None:
    config, index = await checkpointed(tmp_path)
    segment = damage_entry(config, 3)
    if kill:
        (tmp_path / "data" / "state" / "running").write_text("another boot")

    async with running(config) as child:
        async with calling(config) as client:
            jobs = await counts(client)
            first = (await status(client)).first_index
        assert await child.stop() == child_process.OK
        said = await child.last_words()

    assert jobs["pending"] >= index
    assert first == index + 1
    assert segment.with_name(f"{segment.name}.damaged").exists()
    assert f"{segment.name}.damaged" in said
    assert f'"checkpoint":{index}' in said
    async with running(config), calling(config) as client:
        assert await counts(client) == jobs


@on_sockets
async def test_damage_behind_the_checkpoint_is_refused(tmp_path: Path) -> None:
    config, index = await checkpointed(tmp_path)
    segment = damage_entry(config, index + 2)
    before = sorted((tmp_path / "data").rglob("*"))

    damaged = await ended(config)

    assert damaged.process.returncode == child_process.DAMAGED
    assert segment.name in await damaged.last_words()
    assert sorted((tmp_path / "data").rglob("*")) == before


@on_sockets
async def test_a_state_without_its_log_is_not_served(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as child:
        async with calling(config) as client:
            await put(client, JOB)
        await child.stop()
    (tmp_path / "data" / "log").rename(tmp_path / "log")

    parted = await ended(config)

    assert parted.process.returncode == child_process.DAMAGED
    assert "`log` is older than `state`" in await parted.last_words()


@on_sockets
async def test_a_log_without_its_state_makes_it_anew(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as child:
        async with calling(config) as client:
            await put(client, JOB)
        await child.stop()
    (tmp_path / "data" / "state").rename(tmp_path / "state")

    async with running(config), calling(config) as client:
        assert await counts(client) == {"pending": 1}


@on_sockets
async def test_a_cut_log_without_its_state_is_not_served(tmp_path: Path) -> None:
    config = config_in(tmp_path, checkpoint_entries=10, keep_entries=0)
    async with running(config) as child:
        async with calling(config) as client:
            while (await status(client)).first_index == 1:
                await put(client, JOB)
        await child.stop()
    (tmp_path / "data" / "state").rename(tmp_path / "state")

    parted = await ended(config)

    assert parted.process.returncode == child_process.DAMAGED
    assert "`state` is older than `log`" in await parted.last_words()


POISONED = """
import sys
from corvo.shard.driver import process
from corvo.protocol.ops.queues import Pause
from corvo.shard.ops import APPLY, NUMBERS

def die(op, tx):
    raise ZeroDivisionError("this entry is poison")

APPLY[NUMBERS[Pause]] = die
sys.exit(process.main())
"""


@on_sockets
async def test_an_entry_that_ends_it_twice_is_not_tried_again(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    command = ("-c", POISONED)
    async with running(config, command) as first:
        async with calling(config) as client:
            await put(client, JOB)
        with pytest.raises(LinkLost):
            async with calling(config) as client:
                await submit(client, Pause(queue="mail"))
        await first.process.wait()

    second = await launch(config, command)
    await second.process.wait()
    third = await ended(config, command)
    mended = await ended(config)
    (tmp_path / "data" / "poison").unlink()
    async with running(config), calling(config) as client:
        assert await counts(client) == {"pending": 1}

    assert first.process.returncode == child_process.FAILED
    assert "ZeroDivisionError: this entry is poison" in await first.last_words()
    assert [child.process.returncode for child in (second, third, mended)] == [
        child_process.DAMAGED
    ] * 3
    assert "ended this replica 2 times" in await third.last_words()


DAMAGED_STATE = """
import sys
from corvo.errors import StoreDamaged
from corvo.shard.driver import process
from corvo.protocol.ops.queues import Pause
from corvo.shard.ops import APPLY, NUMBERS

def read(self, tx):
    raise StoreDamaged("a block is not what was written")

APPLY[NUMBERS[Pause]] = read
sys.exit(process.main())
"""


@on_sockets
async def test_a_live_state_that_cannot_be_read_is_made_again_by_the_next_start(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    async with running(config, ("-c", DAMAGED_STATE)) as first:
        async with calling(config) as client:
            await put(client, JOB)
        with pytest.raises(LinkLost):
            async with calling(config) as client:
                await submit(client, Pause(queue="mail"))
        await first.process.wait()
    marker = (tmp_path / "data" / "state" / "running").read_bytes()

    async with running(config), calling(config) as client:
        seen = await counts(client)

    assert first.process.returncode == child_process.FAILED
    assert "a block is not what was written" in await first.last_words()
    assert marker == b"distrusted"
    assert seen == {"pending": 1}


# ---- A disk that is full.


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a disk of our own cannot be mounted here: a full disk is not covered")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill_up(filler: Path, left: int) -> None:
    """Take all the room there is, and give back a little."""
    with filler.open("wb", buffering=0) as opened, suppress(OSError):
        while True:
            opened.write(bytes(1 << 20))
    with filler.open("r+b") as opened:
        opened.truncate(opened.seek(0, 2) - left)


@pytest.mark.parametrize("left", [0, 4 << 20])
def test_a_full_disk_refuses_ops_and_answers_questions_until_there_is_room(
    tmp_path: Path, left: int
) -> None:
    @on_sockets
    async def fill() -> None:
        config = config_in(
            tmp_path,
            data_dir=str(tmp_path / "disk" / "data"),
            room_bytes_min=8 << 20,
            segment_bytes=1 << 20,
        )
        async with running(config) as child:
            async with calling(config) as client:
                await put(client, JOB)
                fill_up(tmp_path / "disk" / "filler", left)
                told = 1
                while True:
                    answer = await submit(client, Enqueue(jobs=[JOB]))
                    assert isinstance(answer, wire.Reply)
                    if answer.code:
                        break
                    told += 1
                seen = await counts(client)

                (tmp_path / "disk" / "filler").unlink()
                while True:
                    after = await submit(client, Enqueue(jobs=[JOB]))
                    assert isinstance(after, wire.Reply)
                    if not after.code:
                        break
                last = await counts(client)
            code = await child.stop()

        assert answer.code == "disk_full"
        assert seen == {"pending": told}
        assert last == {"pending": told + 1}
        assert code == child_process.OK

    with small_disk(tmp_path / "disk"):
        fill()


@on_sockets
async def test_a_process_that_does_not_fit_is_refused_and_others_are_served(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    ours = wire.make_hello(config, wire.ROUTER, shard=config.shard)
    unfit = {
        "is older": msgspec.structs.replace(ours, op_version=wire.OP_OLDEST - 1),
        "the replica of node 1 is older": msgspec.structs.replace(ours, wire_oldest=99),
        "cluster 'nest'": msgspec.structs.replace(ours, cluster="nest"),
        "9 shards": msgspec.structs.replace(ours, shards=9),
        "shard 7": msgspec.structs.replace(ours, shard=7),
        "has no links to": msgspec.structs.replace(ours, role="crow"),
    }
    refusals: list[str] = []

    async with running(config), calling(config) as client:
        for hello in unfit.values():
            stream = await connect(UnixAddress(config.socket))
            await stream.send_all(wire.encode(hello))
            found = wire.HelloReader().receive(await stream.receive_some())
            assert found is not None
            refusals.append(found[0].refusal)
            await stream.aclose()
        assert (await status(client)).applied

    assert len(refusals) == len(unfit)
    for refusal, words in zip(refusals, unfit, strict=True):
        assert words in refusal
