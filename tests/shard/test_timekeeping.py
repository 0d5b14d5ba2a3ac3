"""A shard's process whose wall clock is set: in this process, with clocks of the test."""

from pathlib import Path
from typing import Final

import pytest
import trio

from corvo import child
from corvo.link import LinkClient
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.work import Claims, Fetch
from corvo.protocol.queries import GetQueue, QueueView
from corvo.shard.driver.timekeeping import ClockNote, describe
from corvo.steered_clock import Course, Notice, SteeredClock
from corvo.telemetry import Level
from tests.shard.inside import NOON, Inside, S
from tests.shard.processes import (
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

HOUR: Final = 3_600 * S
DAY: Final = 24 * HOUR
MOMENT: Final = 1_000
"""The clock of a shard rises by a nanosecond with each entry of the same time."""
JOB: Final = NewJob(queue="mail")
LEASE_S: Final = 30


async def count(client: LinkClient, state: str) -> int:
    view = result(await ask(client, GetQueue(queue="mail")), QueueView)
    return view.counts[state]


async def lease(client: LinkClient) -> None:
    """Have a worker hold a job."""
    await put(client, JOB)
    op = Fetch(queues=["mail"], count=1, lease_ms=LEASE_S * 1_000)
    assert len(result(await submit(client, op), Claims).jobs) == 1


@on_sockets
@pytest.mark.parametrize(
    "steps_s",
    [(3_600, -3_600), (-3_600, 3_600), (90_000,), (100 * 365 * 86_400,), (-20 * 365 * 86_400,)],
)
async def test_a_lease_ends_by_elapsed_time_whatever_the_wall_clock_shows(
    tmp_path: Path, steps_s: tuple[int, ...]
) -> None:
    node = Inside(config_in(tmp_path))
    async with node.running() as client:
        await lease(client)
        for step_s in steps_s:
            node.wall_ns += step_s * S
            await node.run(client, 5)
        await node.run(client, 27 - 5 * len(steps_s))
        held = await count(client, "active")
        await node.run(client, 7)
        ended = await count(client, "active")

    assert (held, ended) == (1, 0)


@on_sockets
@pytest.mark.parametrize("step_ns", [25 * HOUR, 100 * 365 * DAY])
async def test_a_wall_clock_that_leaps_purges_nothing(tmp_path: Path, step_ns: int) -> None:
    node = Inside(config_in(tmp_path))
    keyed = Enqueue(jobs=[JOB], request_key="one")
    async with node.running() as client:
        first = result(await submit(client, keyed), EnqueueResults)
        [claim] = await fetch(client)
        await ack(client, claim)
        node.wall_ns += step_ns
        await node.run(client, 5)
        again = result(await submit(client, keyed), EnqueueResults)
        completed = await count(client, "completed")

    assert [job.job_id for job in again.jobs] == [job.job_id for job in first.jobs]
    assert completed == 1


@on_sockets
async def test_a_due_time_comes_when_the_wall_clock_shows_it_once_both_agree(
    tmp_path: Path,
) -> None:
    node = Inside(config_in(tmp_path))
    async with node.running() as client:
        node.wall_ns += 6 * S
        await node.run(client, 61)
        await put(client, NewJob(queue="mail", scheduled_ns=node.wall_ns + 10 * S))
        await node.run(client, 9)
        early = await count(client, "pending")
        await node.run(client, 1)
        due = await count(client, "pending")

    assert (early, due) == (0, 1)


@on_sockets
async def test_what_is_done_about_the_wall_clock_is_logged_and_told(tmp_path: Path) -> None:
    node = Inside(config_in(tmp_path))
    async with node.running() as client:
        quiet = list(node.logged)
        node.wall_ns += HOUR
        await node.run(client, 1)
        line = await node.logs("clock.off")
        told = (await status(client)).clock
        node.wall_ns -= HOUR
        await node.run(client, 62)
        await node.logs("clock.in_step")

    assert quiet == []
    assert line["level"] == "warning"
    assert line["process"] == "shard-0"
    assert line["wall_ahead_s"] == pytest.approx(3_600, abs=1)
    assert line["pace"] == "10 % faster"
    assert told is not None
    assert (told.course, told.ahead_ns // S) == ("faster", 3_599)


@on_sockets
async def test_a_process_that_crashed_goes_on_by_elapsed_time(tmp_path: Path) -> None:
    node = Inside(config_in(tmp_path))
    keyed = Enqueue(jobs=[JOB], request_key="one")
    async with node.running() as client:
        await lease(client)
        first = result(await submit(client, keyed), EnqueueResults)
        await node.run(client, 1)
        node.wall_ns += 25 * HOUR
    node.elapsed_ns += 10 * S
    node.wall_ns += 10 * S

    async with node.running() as client:
        again = result(await submit(client, keyed), EnqueueResults)
        told = (await status(client)).clock
        line = await node.logs("clock.ignored")

    assert [job.job_id for job in again.jobs] == [job.job_id for job in first.jobs]
    assert told is not None
    assert NOON + 11 * S <= told.shown_ns < NOON + 11 * S + MOMENT
    assert line["wall_ahead_s"] == 25 * 3_600


@on_sockets
async def test_after_a_stop_the_wall_clock_is_believed(tmp_path: Path) -> None:
    node = Inside(config_in(tmp_path))
    async with node.running() as client:
        await put(client, JOB)
    (tmp_path / "data" / "clock").unlink()
    node.wall_ns += 3 * DAY

    async with node.running() as client:
        told = (await status(client)).clock
        line = await node.logs("clock.started")

    assert told is not None
    assert NOON + 3 * DAY <= told.shown_ns < NOON + 3 * DAY + MOMENT
    assert line["level"] == "warning"
    assert line["since_last_entry_s"] == 3 * 86_400


@on_sockets
async def test_a_start_finds_the_last_stamp_in_the_log_where_the_state_is_old(
    tmp_path: Path,
) -> None:
    """After a loss of power the state is a checkpoint that may be years old."""
    node = Inside(config_in(tmp_path))
    async with node.running() as client:
        await put(client, JOB)
    (tmp_path / "data" / "clock").unlink()
    for file in (tmp_path / "data" / "state").iterdir():
        await trio.to_thread.run_sync(remove, file)
    node.wall_ns += 3 * DAY

    async with node.running() as client:
        seen = await count(client, "pending")
        line = await node.logs("clock.started")

    assert seen == 1
    assert line["since_last_entry_s"] == 3 * 86_400


def remove(path: Path) -> None:
    for inside in path.iterdir() if path.is_dir() else ():
        inside.unlink()
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()


# ---- The note of a real process.


@on_sockets
async def test_a_process_that_is_asked_to_stop_leaves_no_note(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as process:
        assert process.process.stdin is not None
        await process.process.stdin.send_all(child.LEAVE)
        code = await process.stop()

    assert code == child.OK
    assert not (tmp_path / "data" / "clock").exists()


@on_sockets
async def test_a_process_whose_parent_ends_leaves_a_note(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as process:
        async with calling(config) as client:
            seen = await status(client)
            while seen.counted.lag.count == 0:  # the first tick
                seen = await status(client)
        await process.stop()

    assert (tmp_path / "data" / "clock").exists()


@on_sockets
async def test_a_note_that_cannot_be_read_ends_no_process(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "clock").write_bytes(b"\x00\xff{")

    process = await launch(config)

    assert await process.wait_until_ready()
    await process.kill()


# ---- The note itself.


def read_clock(elapsed_ns: int, wall_ns: int) -> SteeredClock:
    clock = SteeredClock(last_ns=0, ahead_max_ns=DAY)
    clock.read(elapsed_ns, wall_ns, last_ns=0)
    return clock


def test_a_note_is_of_one_boot(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    ClockNote(path, boot="a").keep(read_clock(3 * S, NOON))

    assert ClockNote(path, boot="a").read() == NOON - 3 * S
    assert ClockNote(path, boot="b").read() is None


def test_a_note_is_written_when_the_offset_moves_by_a_second(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    note = ClockNote(path, boot="a")
    clock = read_clock(0, NOON)
    note.keep(clock)
    path.unlink()

    clock.read(9 * S, NOON + 20 * S, last_ns=0)
    note.keep(clock)
    early = path.exists()
    clock.read(10 * S, NOON + 20 * S, last_ns=0)
    note.keep(clock)

    assert not early
    assert ClockNote(path, boot="a").read() == NOON + S


def test_a_clock_that_was_never_read_is_not_noted(tmp_path: Path) -> None:
    ClockNote(tmp_path / "clock", boot="a").keep(SteeredClock(last_ns=0, ahead_max_ns=DAY))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b'{"boot":"a"}', b'{"boot":"a","offset_ns":"x"}', b"\xff\xfe"],
)
def test_a_damaged_note_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clock").write_bytes(content)

    assert ClockNote(tmp_path / "clock", boot="a").read() is None


def test_a_directory_that_takes_no_file_is_not_this_tasks_concern(tmp_path: Path) -> None:
    note = ClockNote(tmp_path / "gone" / "clock", boot="a")

    note.keep(read_clock(0, NOON))
    note.remove()

    assert note.read() is None


# ---- What is logged.


@pytest.mark.parametrize(
    ("notice", "level", "event", "words"),
    [
        (Notice(Course.FASTER, HOUR, NOON), Level.WARNING, "clock.off", "restart the node"),
        (Notice(Course.SLOWER, -HOUR, NOON), Level.WARNING, "clock.off", "10 % late"),
        (Notice(Course.SLOWER, -HOUR, NOON, 0), Level.WARNING, "clock.off", "10 % late"),
        (Notice(Course.IGNORED, DAY * 9, NOON), Level.WARNING, "clock.ignored", "restart"),
        (Notice(Course.IGNORED, DAY * 999, NOON, 0), Level.WARNING, "clock.ignored", "raise"),
        (Notice(Course.IGNORED, -NOON, NOON), Level.WARNING, "clock.ignored", "never set"),
        (Notice(Course.IN_STEP, 0, NOON), Level.INFO, "clock.in_step", ""),
        (Notice(Course.IN_STEP, 0, NOON, HOUR), Level.INFO, "clock.started", "due now"),
        (Notice(Course.IN_STEP, 0, NOON, DAY), Level.WARNING, "clock.started", "due now"),
    ],
)
def test_each_notice_is_a_line_with_what_it_means(
    notice: Notice, level: Level, event: str, words: str
) -> None:
    found_level, found_event, fields = describe(notice)

    assert (found_level, found_event) == (level, event)
    assert words in f"{fields.get('means', '')} {fields.get('do', '')}"
    assert ("since_last_entry_s" in fields) == (notice.since_last_ns is not None)
