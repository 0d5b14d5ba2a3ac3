"""The mirror process: asked over its socket, killed, and told things that nobody should ask."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest
import trio

from corvo.child import FAILED, LEAVE, MISCONFIGURED, OK
from corvo.connections import UnixAddress, dial, listen_unix
from corvo.link import LinkClient, LinkLost, LinkRefused, open_client
from corvo.mirror import readers
from corvo.mirror.config import BadMirrorConfig, MirrorConfig, read_config
from corvo.mirror.follow import following
from corvo.mirror.follow.writing import NAME, Damaged, Writing, open_writing
from corvo.mirror.process import Mirror, QuestionServer
from corvo.mirror.query.reading import Reading
from corvo.mirror.readers import Task, answer
from corvo.protocol import wire
from corvo.protocol.questions import (
    LAG_BOUNDS_MS,
    NUMBERS,
    Freshness,
    GetStanding,
    MirrorAnswer,
    Question,
    RawPage,
    Rebuild,
    Rebuilding,
    Refused,
    Search,
    SearchBody,
    Standing,
)
from corvo.scopes import EVERYTHING
from corvo.telemetry import Level, Log, Style
from tests.mirror.replica import Replica, job
from tests.shard.processes import Child, launch

COMMAND: Final = ("-m", "corvo", "mirror")


def config_in(directory: Path, **changed: object) -> MirrorConfig:
    told: dict[str, object] = {
        "cluster": "rookery",
        "node": 1,
        "shards": 1,
        "sockets": {0: str(directory / "s")},
        "data_dir": str(directory / "m"),
        "socket": str(directory / "q"),
        "pause_ms": 0,
        "room_bytes_min": 0,
        "niceness": 0,
        "catch_up_ms": 60_000,
    }
    config = msgspec.convert(told, type=MirrorConfig)
    for name, value in changed.items():  # unchecked: a test may need what no operator can set
        msgspec.structs.force_setattr(config, name, value)
    return config


@asynccontextmanager
async def running(config: MirrorConfig) -> AsyncIterator[Child]:
    """The process; it is gone behind the block."""
    child = await launch(msgspec.json.encode(config), COMMAND)
    try:
        assert await child.wait_until_ready(), await child.last_words()
        yield child
    finally:
        await child.kill()


@asynccontextmanager
async def calling(config: MirrorConfig) -> AsyncIterator[LinkClient]:
    hello = wire.make_hello(config, wire.ROUTER, shard=wire.ALL_SHARDS)
    address = UnixAddress(config.socket)
    async with dial(address, hello) as link, open_client(link) as client:
        yield client


async def ask(client: LinkClient, question: Question) -> wire.Reply:
    answer = await client.ask(NUMBERS[type(question)], msgspec.json.encode(question))
    assert isinstance(answer, wire.Reply), answer
    return answer


async def standing(client: LinkClient, **least: int) -> Standing:
    """How it is, once it has come so far."""
    min_seq = {int(name[1:]): index for name, index in least.items()}
    answer = await ask(client, GetStanding(min_seq=min_seq))
    assert not answer.code, answer.body
    return msgspec.json.decode(body_of(answer), type=Standing)


def body_of(answer: wire.Reply) -> bytes:
    return msgspec.msgpack.decode(answer.body, type=MirrorAnswer).body


def in_short(scenario: Callable[[Path], Awaitable[None]]) -> None:
    """In a folder whose path is short enough for a socket."""

    async def main() -> None:
        with TemporaryDirectory(prefix="c") as directory:
            await scenario(Path(directory))

    trio.run(main)


# ---- As a process.


def test_it_answers_what_it_has_followed_and_leaves_when_asked() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory)
        replica = Replica(config.sockets[0])
        replica.put(job("a"), job("b"))
        async with replica.serving(), running(config) as child:
            async with calling(config) as client:
                seen = await standing(client, s0=2)
                found = await ask(client, Search(scope=EVERYTHING))
            assert child.process.stdin is not None
            await child.process.stdin.send_all(LEAVE)
            code = await child.stop()
            said = await child.last_words()

        assert [job_.index for job_ in seen.shards] == [2]
        assert seen.shards[0].changes == 2
        assert (sum(seen.lag_seconds), len(seen.lag_seconds)) == (1, len(LAG_BOUNDS_MS) + 1)
        assert seen.file_bytes > 0
        assert seen.rss_bytes > 0
        assert msgspec.json.decode(body_of(found), type=RawPage).total == 2
        assert code == OK
        assert said == ""
        left = sorted(path.name for path in (directory / "m").iterdir())
        assert left == [NAME, f"{NAME}-shm", f"{NAME}-wal"]

    in_short(scenario)


def test_after_a_kill_it_goes_on_where_it_was() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory)
        replica = Replica(config.sockets[0])
        replica.put(job("a"))
        async with replica.serving():
            async with running(config), calling(config) as client:
                await standing(client, s0=1)
            replica.put(job("b"))
            replica.asked.clear()
            async with running(config), calling(config) as client:
                await standing(client, s0=2)

        [first, *_] = replica.asked
        assert isinstance(first, wire.Follow)
        assert first.after == 1

    in_short(scenario)


def test_a_file_that_is_removed_under_it_ends_it_and_the_next_start_makes_it_anew() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory)
        replica = Replica(config.sockets[0])
        replica.put(job("a"))
        async with replica.serving():
            async with running(config) as child:
                async with calling(config) as client:
                    await standing(client, s0=1)
                (directory / "m" / NAME).unlink()
                code = await child.process.wait()
                said = await child.last_words()
            async with running(config), calling(config) as client:
                seen = await standing(client, s0=1)

        assert code == FAILED
        assert "mirror.damaged" in said
        assert seen.jobs == 0  # by the counts, which this replica has not
        assert seen.shards[0].changes == 1

    in_short(scenario)


def test_a_config_that_cannot_work_ends_it_with_that_code() -> None:
    async def scenario(directory: Path) -> None:
        child = await launch(b'{"cluster":"rookery"}', COMMAND)
        said = await child.last_words()

        assert await child.process.wait() == MISCONFIGURED
        assert "corvo mirror: config" in said

    in_short(scenario)


def test_it_leaves_with_whoever_started_it() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory)
        async with running(config) as child:
            assert child.process.stdin is not None
            await child.process.stdin.aclose()
            await child.process.wait()
            said = await child.last_words()
        assert said == ""

    in_short(scenario)


def group_of(pid: int) -> str:
    """How nice its session is; nothing where the kernel does not group by session."""
    place = Path(f"/proc/{pid}/autogroup")
    return " ".join(place.read_text().split()[1:]) if place.exists() else ""


def test_it_stands_back_and_its_session_with_it() -> None:
    async def scenario(directory: Path) -> None:
        line = msgspec.json.encode(config_in(directory, niceness=7))
        process = await trio.lowlevel.open_process(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        child = Child(process)
        try:
            assert process.stdin is not None
            await process.stdin.send_all(line + b"\n")
            assert await child.wait_until_ready()
            niceness = os.getpriority(os.PRIO_PROCESS, process.pid)
            of_group = group_of(process.pid)
        finally:
            await child.kill()

        assert niceness == 7
        assert of_group in {"", "nice 7"}

    in_short(scenario)


def test_as_many_sockets_as_shards() -> None:
    line = msgspec.json.encode(msgspec.structs.replace(config_in(Path("d")), shards=2))

    with pytest.raises(BadMirrorConfig, match="sockets"):
        read_config(line)


# ---- Its server, in this process.


@asynccontextmanager
async def open_server(
    directory: Path,
    logged: list[str] | None = None,
    replica: Replica | None = None,
    **changed: object,
) -> AsyncIterator[tuple[MirrorConfig, Mirror]]:
    """A mirror that follows a replica with one job, and can be asked."""
    config = config_in(directory, **changed)
    replica = replica or Replica(config.sockets[0])
    replica.put(job("a"))
    taken: list[str] = [] if logged is None else logged

    def take(line: bytes) -> None:
        taken.append(msgspec.json.decode(line)["event"])

    log = Log(take, "mirror", Style(is_text=False), Level.INFO)
    writing, _ = open_writing(Path(config.data_dir), "rookery", 1, boot_id="one")
    mirror = Mirror(config, writing, log)
    server = QuestionServer(config)
    server.open(mirror)
    listener = await listen_unix(config.socket)
    with trio.fail_after(20):
        async with replica.serving(), trio.open_nursery() as nursery:
            nursery.start_soon(mirror.run)
            nursery.start_soon(trio.serve_listeners, server.serve, [listener])
            yield config, mirror
            nursery.cancel_scope.cancel()
    server.close()


def test_who_needs_more_than_there_is_is_told_how_far_it_is() -> None:
    async def scenario(directory: Path) -> None:
        async with (
            open_server(directory, catch_up_ms=30) as (config, mirror),
            calling(config) as client,
        ):
            while not mirror.progress.has({0: 1}):
                await mirror.writer._moved.wait()
            late = await ask(client, GetStanding(min_seq={0: 99}))
            nowhere = await ask(client, GetStanding(min_seq={7: 1}))

        refused = msgspec.json.decode(late.body, type=Refused)
        assert late.code == nowhere.code == refused.code == "not_caught_up"
        assert refused.as_of["s0"].index == 1

    in_short(scenario)


LONG_MS: Final = 600_000
"""A question that waits so long never comes back within a test."""


async def search(
    client: LinkClient, index: int, wait_ms: int, *, shard: int = 0, unknown: tuple[int, ...] = ()
) -> RawPage:
    """All jobs, with those up to a position if that can be had in time."""
    freshness = Freshness(positions={shard: index}, unknown=unknown, wait_ms=wait_ms)
    answer = await ask(client, Search(scope=EVERYTHING, freshness=freshness))
    assert not answer.code, answer.body
    return msgspec.json.decode(body_of(answer), type=RawPage)


def test_a_search_waits_for_the_rows_that_it_should_have_and_ends_all_pauses() -> None:
    async def scenario(directory: Path) -> None:
        replica = Replica(str(directory / "s"))
        pages: list[RawPage] = []
        async with (
            open_server(directory, replica=replica, pause_ms=LONG_MS) as (config, _),
            calling(config) as client,
        ):
            for number in range(3):
                replica.put(job(f"b{number}"))
                pages.append(await search(client, 2 + number, LONG_MS))

        assert [len(page.jobs) for page in pages] == [2, 3, 4]
        assert [page.is_behind for page in pages] == [False] * 3

    in_short(scenario)


def test_a_search_is_answered_when_the_rows_do_not_come_in_time_and_says_so() -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, mirror), calling(config) as client:
            await standing(client, s0=1)
            late = await search(client, 99, wait_ms=1)
            missing = await search(client, 1, LONG_MS, unknown=(1,))
            known = await search(client, 1, LONG_MS)
            plain = await ask(client, Search(scope=EVERYTHING))

        assert [len(page.jobs) for page in (late, missing, known)] == [1, 1, 1]
        assert [page.is_behind for page in (late, missing, known)] == [True, True, False]
        assert b"is_behind" not in body_of(plain)
        assert mirror.writer._waiting == 0

    in_short(scenario)


def test_rows_that_cannot_come_are_not_waited_for() -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, mirror), calling(config) as client:
            await standing(client, s0=1)
            nowhere = await search(client, 1, LONG_MS, shard=7)
            mirror.writer.is_stuck = True
            full = await search(client, 99, LONG_MS)
            mirror.writer.is_stuck = False
            mirror.progress.shards[0].is_linked = False
            unlinked = await search(client, 1, LONG_MS)

        assert [page.is_behind for page in (nowhere, full, unlinked)] == [True] * 3

    in_short(scenario)


def test_a_search_right_after_a_start_waits_for_the_first_link() -> None:
    async def scenario(directory: Path) -> None:
        elsewhere = Replica(str(directory / "elsewhere"))
        pages: list[RawPage] = []
        is_answered = trio.Event()
        async with (
            open_server(directory, replica=elsewhere) as (config, mirror),
            calling(config) as client,
        ):
            early = await search(client, 1, wait_ms=1)
            late = Replica(config.sockets[0])
            late.put(job("a"))

            async def look() -> None:
                pages.append(await search(client, 1, LONG_MS))
                is_answered.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                while not mirror.writer._waiting:
                    await trio.lowlevel.checkpoint()
                async with late.serving():
                    await is_answered.wait()

        assert (early.jobs, early.is_behind) == ([], True)
        [page] = pages
        assert [len(page.jobs), page.is_behind] == [1, False]

    in_short(scenario)


def test_a_search_waits_for_a_shard_that_is_linked_and_has_told_nothing_yet() -> None:
    async def scenario(directory: Path) -> None:
        replica = Replica(str(directory / "s"))
        pages: list[RawPage] = []
        async with open_server(directory, replica=replica) as (config, mirror):
            replica.entries.clear()
            async with calling(config) as client:
                while not mirror.progress.are_linked([0]):
                    await trio.lowlevel.checkpoint()

                async def look() -> None:
                    pages.append(await search(client, 0, LONG_MS))

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(look)
                    while not mirror.writer._waiting and not pages:
                        await trio.lowlevel.checkpoint()
                    replica.put(job("a"))

        [page] = pages
        assert (page.total, page.total_is_exact, page.is_behind) == (1, True, False)

    in_short(scenario)


def test_an_answer_during_a_full_pass_says_that_it_is_behind() -> None:
    async def scenario(directory: Path) -> None:
        replica = Replica(str(directory / "s"))
        async with (
            open_server(directory, replica=replica) as (config, mirror),
            calling(config) as client,
        ):
            await standing(client, s0=1)
            replica.answers_max = len(replica.asked)  # the pass does not end
            await ask(client, Rebuild())
            while mirror.progress.as_of()["s0"].is_whole:
                await mirror.writer._moved.wait()
            page = await search(client, 1, LONG_MS)

        assert page.is_behind is True

    in_short(scenario)


def test_a_hundred_searches_whose_rows_come_at_once_are_all_answered() -> None:
    async def scenario(directory: Path) -> None:
        replica = Replica(str(directory / "s"))
        answers: list[wire.Answer] = []
        async with (
            open_server(directory, replica=replica) as (config, mirror),
            calling(config) as client,
        ):
            await standing(client, s0=1)
            freshness = Freshness(positions={0: 2}, wait_ms=LONG_MS)
            body = msgspec.json.encode(
                Search(scope=EVERYTHING, freshness=freshness, budget_ms=LONG_MS)
            )

            async def one() -> None:
                answers.append(await client.ask(NUMBERS[Search], body))

            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(one)
                while mirror.writer._waiting < 100:
                    await trio.lowlevel.checkpoint()
                replica.put(job("b"))

        assert [type(answer) for answer in answers] == [wire.Reply] * 100

    in_short(scenario)


def test_many_searches_that_wait_are_not_turned_away() -> None:
    async def scenario(directory: Path) -> None:
        replica = Replica(str(directory / "s"))
        pages: list[RawPage] = []
        async with (
            open_server(directory, replica=replica, questions_max=2) as (config, mirror),
            calling(config) as client,
        ):
            await standing(client, s0=1)

            async def one() -> None:
                while True:
                    question = Search(
                        scope=EVERYTHING,
                        freshness=Freshness(positions={0: 2}, wait_ms=LONG_MS),
                    )
                    body = msgspec.json.encode(question)
                    answer = await client.ask(NUMBERS[Search], body)
                    if isinstance(answer, wire.Reply):
                        pages.append(msgspec.json.decode(body_of(answer), type=RawPage))
                        return

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(one)
                while mirror.writer._waiting < 10:
                    await trio.lowlevel.checkpoint()
                replica.put(job("b"))

        assert [page.is_behind for page in pages] == [False] * 10

    in_short(scenario)


def test_the_disk_is_made_to_take_what_there_is_and_who_cannot_write_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = iter(range(3))

    def settle(_: Writing) -> None:
        if next(left, None) is None:
            raise Damaged("the disk is gone")

    monkeypatch.setattr(following, "_SETTLE_S", 0.0)
    monkeypatch.setattr(Writing, "settle", settle)

    async def scenario(directory: Path) -> None:
        async with open_server(directory):
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        in_short(scenario)

    assert caught.group_contains(Damaged, match="the disk is gone")


def test_a_rebuild_looks_at_everything_again() -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, mirror), calling(config) as client:
            await standing(client, s0=1)
            begun = await ask(client, Rebuild())
            while (
                mirror.progress.shards[0].passes == 0 or not mirror.progress.as_of()["s0"].is_whole
            ):
                await mirror.writer._moved.wait()
            seen = await standing(client)

        assert msgspec.json.decode(body_of(begun), type=Rebuilding) == Rebuilding(shards=1)
        assert (seen.rebuilds, seen.shards[0].passes) == (1, 1)

    in_short(scenario)


@pytest.mark.parametrize(
    ("number", "body", "code"),
    [(0, b"{}", "unknown_query"), (1, b"{", "bad_filter"), (1, b"\xff", "bad_filter")],
)
def test_what_is_no_question_is_refused(number: int, body: bytes, code: str) -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, _), calling(config) as client:
            answer = await client.ask(number, body)
            changed = await client.submit(1, b"{}")

        assert isinstance(answer, wire.Reply)
        assert answer.code == code
        assert isinstance(changed, wire.Reply)
        assert changed.code == "unknown_query"

    in_short(scenario)


class Slow:
    """An answer that takes as long as it likes, in its thread.

    As when every row takes long, SQLite may never come to asking whether its time is over.
    """

    def __init__(self, *, is_asking: bool = True) -> None:
        self._is_asking = is_asking
        self.began = 0
        self.ended = 0

    def __call__(self, reading: Reading, _: Task) -> MirrorAnswer:
        self.began += 1
        if not self._is_asking:
            reading._connection.set_progress_handler(None, 1)
        statement = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            reading.run(statement).fetchone()
        self.ended += 1
        return MirrorAnswer(b"{}")


@pytest.mark.parametrize("is_asking", [True, False])
def test_what_nobody_waits_for_any_more_is_ended(
    monkeypatch: pytest.MonkeyPatch, *, is_asking: bool
) -> None:
    slow = Slow(is_asking=is_asking)
    monkeypatch.setattr(readers, "answer", slow)

    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, mirror):
            async with calling(config) as client, trio.open_nursery() as nursery:
                nursery.start_soon(ask, client, Search(scope=EVERYTHING))
                while not slow.began:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            while mirror.writer.readers:
                await trio.lowlevel.checkpoint()
        assert slow.ended == 1

    in_short(scenario)


def test_too_many_questions_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(readers, "answer", slow)

    async def scenario(directory: Path) -> None:
        async with open_server(directory, readers=1, questions_max=3) as (config, _):
            answers: list[wire.Answer] = []
            async with calling(config) as client, trio.open_nursery() as nursery:

                async def one() -> None:
                    body = msgspec.json.encode(Search(scope=EVERYTHING, budget_ms=50))
                    answers.append(await client.ask(NUMBERS[Search], body))

                for _ in range(5):
                    nursery.start_soon(one)
                # Two find no room at all; two have waited for the one reader in vain.
                while len(answers) < 4:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

        assert slow.began == 1
        assert all(isinstance(answer, wire.Busy) for answer in answers)

    in_short(scenario)


def test_whoever_waits_for_what_will_never_be_keeps_nobody_out() -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory, questions_max=2, catch_up_ms=600_000) as (config, _):
            turned_away: list[wire.Answer] = []
            async with calling(config) as client, trio.open_nursery() as nursery:

                async def one() -> None:
                    body = msgspec.json.encode(Search(scope=EVERYTHING, min_seq={0: 1 << 40}))
                    turned_away.append(await client.ask(NUMBERS[Search], body))

                for _ in range(3):
                    nursery.start_soon(one)
                while not turned_away:  # two wait, and there is no room for a third
                    await trio.lowlevel.checkpoint()
                found = await ask(client, Search(scope=EVERYTHING))
                nursery.cancel_scope.cancel()

        assert found.code == ""
        assert [type(answer) for answer in turned_away] == [wire.Busy]

    in_short(scenario)


def test_scans_leave_a_reader_to_other_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()

    def either(reading: Reading, task: Task) -> MirrorAnswer | Refused:
        return slow(reading, task) if task.needs_scan else answer(reading, task)

    monkeypatch.setattr(readers, "answer", either)
    scan = Search(scope=EVERYTHING, search=SearchBody(payload_contains="x"), budget_ms=600_000)

    async def scenario(directory: Path) -> None:
        async with (
            open_server(directory, readers=2) as (config, _),
            calling(config) as client,
            trio.open_nursery() as nursery,
        ):
            for _ in range(3):
                nursery.start_soon(ask, client, scan)
            while not slow.began:
                await trio.lowlevel.checkpoint()
            found = await ask(client, Search(scope=EVERYTHING))
            began = slow.began
            nursery.cancel_scope.cancel()

        assert found.code == ""
        assert began == 1

    in_short(scenario)


def test_a_question_that_is_a_bug_costs_nobody_else_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []

    def faulty(reading: Reading, task: Task) -> MirrorAnswer | Refused:
        if task.question.budget_ms == 7:
            raise ZeroDivisionError
        if task.question.budget_ms == 8:
            reading.run("SELECT * FROM nowhere")
        return answer(reading, task)

    monkeypatch.setattr(readers, "answer", faulty)

    async def scenario(directory: Path) -> None:
        async with open_server(directory, logged) as (config, _), calling(config) as client:
            await standing(client, s0=1)
            bug = await ask(client, Search(scope=EVERYTHING, budget_ms=7))
            wrong = await ask(client, Search(scope=EVERYTHING, budget_ms=8))
            right = await ask(client, Search(scope=EVERYTHING))

        assert bug.code == wrong.code == "failed"
        assert right.code == ""
        assert logged.count("question.failed") == 2

    in_short(scenario)


def test_an_answer_that_is_too_large_for_a_message_costs_nobody_else_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []

    def huge(_: Reading, task: Task) -> MirrorAnswer:
        size = wire.FRAME_BYTES_MAX + 1 if task.question.budget_ms == 7 else 1
        return MirrorAnswer(b"x" * size)

    monkeypatch.setattr(readers, "answer", huge)

    async def scenario(directory: Path) -> None:
        async with open_server(directory, logged) as (config, _), calling(config) as client:
            await standing(client, s0=1)
            large = await ask(client, Search(scope=EVERYTHING, budget_ms=7))
            right = await ask(client, Search(scope=EVERYTHING))

        assert (large.code, right.code, body_of(right)) == ("too_large", "", b"x")
        assert logged.count("question.too_large") == 1

    in_short(scenario)


def test_answers_that_are_more_than_a_link_takes_at_a_time_come_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = b"x" * (8 << 20)
    monkeypatch.setattr(readers, "answer", lambda *_: MirrorAnswer(large))

    async def scenario(directory: Path) -> None:
        answers: list[wire.Reply] = []

        async def ask_once(client: LinkClient) -> None:
            answers.append(await ask(client, Search(scope=EVERYTHING)))

        async with (
            open_server(directory) as (config, _),
            calling(config) as client,
            trio.open_nursery() as nursery,
        ):
            for _ in range(10):
                nursery.start_soon(ask_once, client)
            while len(answers) < 10:
                await trio.lowlevel.checkpoint()

        assert [body_of(answer) == large for answer in answers] == [True] * 10

    in_short(scenario)


@pytest.mark.parametrize("jq", ['.a|any(.b|any(.c|any(.d|has("x"))))', ".a"])
def test_what_is_nested_too_deeply_for_sqlite_is_refused_by_its_name(jq: str) -> None:
    """How deep that is depends on how SQLite was built: here at least `.a` is not."""

    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, _), calling(config) as client:
            await standing(client, s0=1)
            answer = await ask(client, Search(scope=EVERYTHING, search=SearchBody(payload_jq=jq)))

        if answer.code:
            assert jq != ".a"
            refused = msgspec.json.decode(answer.body, type=Refused)
            assert (refused.code, refused.field) == ("bad_filter", "payload_jq")

    in_short(scenario)


def test_damage_that_a_question_finds_ends_the_process() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory, checkpoint_pages=1)
        replica = Replica(config.sockets[0])
        replica.put(*(job(f"j{number:03}", "x" * 500) for number in range(300)))
        async with replica.serving(), running(config) as child:
            async with calling(config) as client:
                await standing(client, s0=300)
            file = directory / "m" / NAME
            with file.open("r+b") as opened:
                opened.seek(8_192)
                opened.write(os.urandom(file.stat().st_size - 8_192))
            with pytest.raises(LinkLost):
                async with calling(config) as client:
                    await ask(client, Search(scope=EVERYTHING))
            code = await child.process.wait()
            said = await child.last_words()

        assert code == FAILED
        assert "mirror.damaged" in said
        assert not file.exists()

    in_short(scenario)


def test_a_mirror_that_is_held_up_holds_up_nobody() -> None:
    async def scenario(directory: Path) -> None:
        config = config_in(directory)
        replica = Replica(config.sockets[0])
        async with replica.serving(), running(config) as child:
            child.process.send_signal(signal.SIGSTOP)
            replica.put(*(job(f"j{number}") for number in range(50)))
            child.process.send_signal(signal.SIGCONT)
            async with calling(config) as client:
                seen = await standing(client, s0=50)

        assert seen.shards[0].index == 50

    in_short(scenario)


def test_a_process_that_is_no_router_of_this_cluster_is_refused() -> None:
    async def scenario(directory: Path) -> None:
        async with open_server(directory) as (config, _):
            ours = wire.make_hello(config, wire.ROUTER, shard=wire.ALL_SHARDS)
            unfit = {
                "has no links to the follower": msgspec.structs.replace(ours, role=wire.FOLLOWER),
                "for shard 0": msgspec.structs.replace(ours, shard=0),
                "the router of node 1 to 'nest'": msgspec.structs.replace(ours, cluster="nest"),
                "is older": msgspec.structs.replace(ours, wire_version=0),
            }
            for words, hello in unfit.items():
                with pytest.raises(LinkRefused, match=words):
                    async with dial(UnixAddress(config.socket), hello):
                        pytest.fail("it was accepted")
            async with calling(config) as client:
                await standing(client)

    in_short(scenario)
