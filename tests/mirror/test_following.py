"""Followers and their writer, beside a replica that does as it is told."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest
import trio
import trio.testing

import corvo.connections
from corvo.connections import accept_link
from corvo.link import LinkLost
from corvo.measures import empty
from corvo.mirror.config import MirrorConfig
from corvo.mirror.follow import following
from corvo.mirror.follow.following import Follower, WriterTask, rest_behind
from corvo.mirror.follow.progress import Cursor, Page, Progress
from corvo.mirror.follow.writing import Stuck, Writing, open_writing
from corvo.protocol import wire
from corvo.protocol.questions import LAG_BOUNDS_MS
from corvo.telemetry import Level, Log, Style
from corvo.topology import topology_of
from tests.mirror.pages import tables_in
from tests.mirror.projection import tables_of
from tests.mirror.replica import Replica, job
from tests.support.links import Member

_PATIENCE_S: Final = 20


class Harness:
    """A mirror of one shard, without its process."""

    def __init__(self, directory: Path, **changed: int) -> None:
        self.replica = Replica(str(directory / "s"))
        self.logged: list[str] = []
        self.config = msgspec.structs.replace(
            MirrorConfig(
                cluster="rookery",
                node=1,
                shards=1,
                sockets=dict(enumerate([self.replica.socket])),
                data_dir=str(directory / "m"),
                socket="",
                pause_ms=0,
                room_bytes_min=0,
            ),
            **changed,  # type: ignore[arg-type]
        )
        self.begin()

    def begin(self) -> None:
        """As a process that is started anew."""
        log = Log(self._take, "mirror", Style(is_text=False), Level.DEBUG)
        directory = Path(self.config.data_dir)
        self.writing: Writing = open_writing(directory, "rookery", 1, boot_id="one")[0]
        self.progress = Progress(self.writing.cursors(1))
        self.writer = WriterTask(self.writing, self.progress, self.config, log)
        topology = topology_of(self.config)
        self.follower = Follower(0, self.config, topology, self.progress, self.writer, log)

    def _take(self, line: bytes) -> None:
        self.logged.append(msgspec.json.decode(line)["event"])

    async def live(self, until: Callable[[], Awaitable[None]]) -> None:
        """Follow until that is done."""
        with trio.fail_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.writer.run)
                nursery.start_soon(self.follower.run)
                await until()
                nursery.cancel_scope.cancel()

    async def catch_up(self) -> None:
        """Come to where the replica stands, with nothing missing, and without a rest."""
        self.writer._waiting += 1
        while not self.is_there:
            await self.writer._moved.wait()
        self.writer._waiting -= 1

    @property
    def is_there(self) -> bool:
        cursor = self.progress.shards[0].cursor
        index = len(self.replica.entries)
        return (
            cursor.is_whole
            and cursor.index == index
            and cursor.digest == self.replica.digest(index)
        )

    def check(self) -> None:
        """It has what the replica has."""
        assert tables_in(self.writing.path) == tables_of({0: self.replica.documents})

    def ids(self) -> list[object]:
        return [row["id"] for row in tables_in(self.writing.path)["jobs"].values()]


def run(scenario: Callable[[Harness], Awaitable[None]], **changed: int) -> None:
    """A scenario with a replica that serves."""

    async def main() -> None:
        with TemporaryDirectory(prefix="c") as directory:  # a socket's path is short
            harness = Harness(Path(directory), **changed)
            async with harness.replica.serving():
                await scenario(harness)

    trio.run(main)


def test_a_new_shard_is_followed_from_its_beginning_without_a_pass() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.put(job("a"), job("b"))
        harness.replica.remove("a")
        await harness.live(harness.catch_up)
        harness.check()
        assert set(harness.replica.kinds()) == {"Follow"}
        assert harness.progress.shards[0].passes == 0

    run(scenario)


def test_what_changes_is_taken_in_as_it_comes() -> None:
    async def scenario(harness: Harness) -> None:
        async def meanwhile() -> None:
            for number in range(20):
                harness.replica.put(job(f"j{number % 7}", f"text {number}"))
                await harness.catch_up()
            harness.replica.remove("j3")
            await harness.catch_up()

        await harness.live(meanwhile)
        harness.check()

    run(scenario)


def test_a_feed_that_was_cut_is_made_up_for_by_a_pass() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.put(*(job(f"j{number:02}") for number in range(30)))
        await harness.live(harness.catch_up)
        harness.replica.remove("j03", "j29")
        harness.replica.put(job("j07", "other"), job("k"))
        harness.replica.begin = len(harness.replica.entries)

        harness.begin()
        await harness.live(harness.catch_up)

        harness.check()
        assert harness.progress.shards[0].passes == 1
        assert harness.logged.count("mirror.reset") == 1
        assert harness.logged.count("mirror.pass_ended") == 1

    run(scenario, scan_keys_max=4)


def test_rows_stay_until_the_pass_has_come_to_them() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.put(*(job(f"j{number}") for number in range(6)))
        await harness.live(harness.catch_up)
        harness.replica.restore(0)
        harness.replica.put(*(job(f"j{number}") for number in range(3)), job("new"))
        harness.begin()
        harness.replica.asked.clear()
        harness.replica.answers_max = 3  # that it is another log, and two pages

        async def two_pages() -> None:
            while harness.progress.shards[0].cursor.pass_key != b"j|j1":
                await harness.writer._moved.wait()
            assert {"j0", "j5"} <= set(harness.ids())
            assert not harness.progress.as_of()["s0"].is_whole
            harness.replica.answers_max = None
            harness.replica.hang_up()
            await harness.catch_up()

        await harness.live(two_pages)
        harness.check()

    run(scenario, scan_keys_max=1)


def test_a_mirror_that_was_lost_in_a_pass_goes_on_with_it() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.begin = 1
        harness.replica.put(*(job(f"j{number}") for number in range(8)))

        harness.replica.answers_max = 5  # that there is no following, and four pages

        async def some_pages() -> None:
            while harness.progress.shards[0].cursor.pass_key != b"j|j3":
                await harness.writer._moved.wait()

        await harness.live(some_pages)
        harness.replica.asked.clear()
        harness.replica.answers_max = None
        harness.begin()
        await harness.live(harness.catch_up)

        harness.check()
        first = harness.replica.asked[0]
        assert isinstance(first, wire.Scan)
        assert first.after == b"j|j3"

    run(scenario, scan_keys_max=1)


def test_what_changes_during_a_pass_is_not_lost() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.begin = 1
        harness.replica.put(*(job(f"j{number:02}") for number in range(40)))

        async def meanwhile() -> None:
            number = 0
            while not harness.is_there:
                number += 1
                if number < 30:
                    harness.replica.put(
                        job(f"j{number:02}", "new"), job(f"j{40 - number:02}", "new")
                    )
                    harness.replica.remove(f"j{number // 2:02}")
                await harness.writer._moved.wait()

        await harness.live(meanwhile)
        harness.check()
        # A pass takes long, and whoever waits for something new does not wait for its end.
        assert "Scan Follow Scan" in " ".join(harness.replica.kinds())

    run(scenario, scan_keys_max=2, keys_max=3)


def test_a_log_that_was_taken_back_is_found_out_though_the_cursor_is_in_both() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.put(job("a", "old"), job("b", "old"), job("a", "new"), job("b", "new"))

        harness.replica.answers_max = 1

        async def a_page() -> None:  # of the first entry, with documents as of the last
            while harness.progress.shards[0].cursor.index < 1:
                await harness.writer._moved.wait()

        await harness.live(a_page)
        seen = harness.writing.cursors(1)[0]
        assert seen.index < seen.through
        kept = harness.replica.digest(seen.index)
        harness.replica.entries = harness.replica.entries[: seen.index]
        harness.replica.put(*(job("c", f"{number}") for number in range(6)))
        assert harness.replica.digest(seen.index) == kept

        harness.replica.answers_max = None
        harness.begin()
        await harness.live(harness.catch_up)

        harness.check()
        assert harness.logged.count("mirror.reset") == 1

    run(scenario, keys_max=1, pause_ms=0)


def test_a_rebuild_begins_at_once_and_mends_what_is_wrong() -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.put(job("a"), job("b"))

        async def harm_and_rebuild() -> None:
            await harness.catch_up()
            connection = harness.writing._connection
            connection.execute("UPDATE jobs SET state = 'lost' WHERE id = 'a'")
            connection.execute("UPDATE jobs SET id = 'x' WHERE id = 'b'")
            harness.follower.begin_pass()  # while it waits for news
            [asked] = harness.progress.standings()
            assert (asked.is_linked, asked.is_whole) == (True, False)
            seen = harness.progress.shards[0]
            while seen.changes == asked.changes or not harness.is_there:
                await harness.writer._moved.wait()

        await harness.live(harm_and_rebuild)
        harness.check()

    run(scenario)


def test_a_rebuild_of_a_shard_that_is_away_is_tried_no_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[float] = []

    async def unreachable(*_: object) -> trio.SocketStream:
        tries.append(trio.current_time())
        assert len(tries) < 100, "it spins"
        await trio.lowlevel.checkpoint()
        raise LinkLost("nobody is there", was_sent=False)

    monkeypatch.setattr(corvo.connections, "connect", unreachable)

    async def main() -> None:
        with TemporaryDirectory(prefix="c") as directory:
            harness = Harness(Path(directory))
            harness.follower.begin_pass()
            with trio.move_on_after(2):
                await harness.follower.run()
            harness.writing.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert 2 / following._RETRY.max_s <= len(tries) < 2 / (following._RETRY.max_s / 2) + 3


def test_a_link_that_is_cut_for_a_rebuild_is_made_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[float] = []

    async def main() -> None:
        with TemporaryDirectory(prefix="c") as directory:
            harness = Harness(Path(directory))
            async with trio.open_nursery() as nursery:

                async def replica(stream: trio.abc.Stream) -> None:
                    hello = wire.make_hello(Member(), wire.REPLICA, shard=0)
                    async with accept_link(stream, hello) as link:
                        while await link.receive(wire.FROM_FOLLOWER):
                            pass  # there are no news

                async def dialled(*_: object) -> trio.abc.Stream:
                    tries.append(trio.current_time())
                    ours, theirs = trio.testing.memory_stream_pair()
                    nursery.start_soon(replica, theirs)
                    return ours

                monkeypatch.setattr(corvo.connections, "connect", dialled)
                nursery.start_soon(harness.follower.run)
                await trio.testing.wait_all_tasks_blocked()
                harness.follower.begin_pass()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            harness.writing.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert len(tries) == 2
    assert tries[0] == tries[1]


def test_a_link_that_was_lost_costs_nothing() -> None:
    async def scenario(harness: Harness) -> None:
        async def meanwhile() -> None:
            for number in range(5):
                harness.replica.put(job(f"j{number}"))
                await harness.catch_up()
                harness.replica.hang_up()

        await harness.live(meanwhile)
        harness.check()
        assert set(harness.replica.kinds()) == {"Follow"}

    run(scenario)


def test_without_room_it_waits_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_RETRY_S", 0.001)

    async def scenario(harness: Harness) -> None:
        tries = 0

        def check_room(_: int) -> None:
            nonlocal tries
            tries += 1
            if tries <= 3:
                raise Stuck("no room")

        monkeypatch.setattr(harness.writing, "check_room", check_room)
        harness.replica.put(job("a"))
        await harness.live(harness.catch_up)
        harness.check()
        assert tries > 3
        assert harness.logged.count("mirror.stuck") == 1
        assert harness.logged.count("mirror.unstuck") == 1

    run(scenario)


def test_sqlite_s_log_is_emptied_when_the_last_reader_has_gone() -> None:
    async def scenario(harness: Harness) -> None:
        async def meanwhile() -> None:
            await harness.writer.enter()
            harness.replica.put(job("a"))
            await harness.catch_up()
            entered = trio.Event()

            async def another() -> None:
                await harness.writer.enter()
                entered.set()
                harness.writer.leave()

            async with trio.open_nursery() as nursery:
                while harness.writer._gate.is_set():
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(another)
                await trio.testing.wait_all_tasks_blocked()
                assert not entered.is_set()
                harness.writer.leave()
                await entered.wait()

        await harness.live(meanwhile)
        assert harness.writing.wal_bytes == 0

    run(scenario, wal_bytes_max=1)


def test_who_reads_the_file_from_outside_holds_up_nobody_for_long() -> None:
    async def scenario(harness: Harness) -> None:
        tries = 0
        shrink = harness.writing.shrink

        def count() -> bool:
            nonlocal tries
            tries += 1
            return shrink()

        vars(harness.writing)["shrink"] = count
        with closing(sqlite3.connect(harness.writing.path, isolation_level=None)) as outside:
            outside.execute("BEGIN")
            outside.execute("SELECT count(*) FROM jobs").fetchone()

            async def meanwhile() -> None:
                for number in range(60):
                    harness.replica.put(job(f"j{number}"))
                    await harness.catch_up()

            await harness.live(meanwhile)
            assert 0 < tries < 20
        harness.check()

    run(scenario, wal_bytes_max=2_000_000)


def test_rows_stay_as_far_as_they_once_were() -> None:
    cursor = Cursor(0, through=9, through_digest=90)

    assert cursor.reached(5, 50) == cursor
    assert cursor.reached(10, 100) == Cursor(0, through=10, through_digest=100)


@pytest.mark.parametrize(
    ("ran_ms", "queued_ms", "rest_s"),
    [(0, 0, 0.0), (40, 0, 0.0), (40, 10, 0.0), (40, 20, 0.16), (8, 12, 0.16), (40, 1_000, 1.0)],
)
def test_who_queued_long_for_a_processor_rests_and_who_queued_a_little_does_not(
    ran_ms: int, queued_ms: int, rest_s: float
) -> None:
    rest = rest_behind(ran_ns=ran_ms * 1_000_000, queued_ns=queued_ms * 1_000_000)

    assert rest == pytest.approx(rest_s)


def test_a_rest_ends_when_somebody_waits_for_what_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever rests for so long never comes back within a test.
    monkeypatch.setattr(following, "rest_behind", lambda **_: 1e9)

    async def scenario(harness: Harness) -> None:
        harness.replica.put(job("a"))

        async def until() -> None:
            await harness.writer.wait_for({0: 1}, harness.follower.hurry)
            harness.replica.put(job("b"))
            await harness.writer.wait_for({0: 2}, harness.follower.hurry)

        await harness.live(until)
        assert harness.ids() == ["a", "b"]

    run(scenario)


def test_lag_is_counted_by_class() -> None:
    lag = empty(LAG_BOUNDS_MS)

    for late_ms in (0, 10, 11, 1_000, 60_000, 60_001, -5):
        lag.observe(max(0, late_ms))

    by_bound = dict(zip([*LAG_BOUNDS_MS, "more"], lag.counts, strict=True))
    assert (by_bound[10], by_bound[25], by_bound[1_000]) == (3, 1, 1)
    assert (by_bound[60_000], by_bound["more"]) == (1, 1)
    assert lag.total == 121_022.0


class InPieces(Replica):
    """Its first entry is too large for one answer."""

    async def _follow(self, request: wire.Follow) -> wire.FollowerAnswer:
        answer = await super()._follow(request)
        if request.after == 0 and not request.after_key and isinstance(answer, wire.Changes):
            return msgspec.structs.replace(
                answer, index=0, digest=0, pairs=answer.pairs[:1], more=answer.pairs[0][0]
            )
        return answer


def test_an_entry_that_is_too_large_for_one_answer_is_taken_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.replica.__class__ = InPieces
        harness.replica.put(job("a"), job("b"))
        moves: list[tuple[int, int]] = []
        put = harness.writer.put

        async def noted(page: Page) -> None:
            moves.append((page.cursor.index, page.cursor.now_ns))
            await put(page)

        monkeypatch.setattr(harness.writer, "put", noted)

        await harness.live(harness.catch_up)
        harness.check()
        assert moves[0] == (0, 0)
        assert moves[1][1] > 0
        first, second, *_ = harness.replica.asked
        assert isinstance(first, wire.Follow)
        assert isinstance(second, wire.Follow)
        assert (first.after_key, second.after_key) == (b"", b"j|a")
        assert (second.after, second.through) == (0, 2)

    run(scenario)
