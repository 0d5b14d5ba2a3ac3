"""Coalesced topics: what a dashboard is told, how often, and what it costs others."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import ApiKey
from corvo.protocol.questions import SummaryQueue
from corvo.router.api import Api
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.events import endpoints as events
from corvo.router.events import topics
from corvo.router.events.boards import Board
from corvo.router.events.topics import Changes, SummaryFrame, Tail, Topics, read_topics
from corvo.router.http.messages import Problem, Response
from corvo.router.summary import (
    SCOPES_MAX,
    SUMMARY_S,
    Summaries,
    SummaryBody,
    SummaryWorkers,
)
from corvo.scopes import Scope
from tests.router.feeds import Ear, House, house


def summary(**pending: int) -> SummaryBody:
    """With so many pending jobs in each queue."""
    queues = [
        SummaryQueue(name=name, paused=False, counts={"pending": count})
        for name, count in pending.items()
    ]
    workers = SummaryWorkers(alive=1, not_fetching=0)
    return SummaryBody(at="now", queues=queues, totals={}, workers=workers, shards=[], source="")


QUEUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(st.lists(QUEUES, min_size=1, max_size=8))
def test_whoever_adds_up_the_changes_has_the_summary(states: list[dict[str, int]]) -> None:
    changes, shown = Changes(), dict[str, int]()

    for number, state in enumerate(states):
        told = changes.next(summary(**state))
        assert told.whole == (number == 0)
        assert told.whole or all(
            shown.get(queue.name) != queue.counts["pending"] for queue in told.summary.queues
        ), "what is as it was is not told again"
        for queue in told.summary.queues:
            shown[queue.name] = queue.counts["pending"]
        for name in told.removed:
            del shown[name]
        assert shown == state


def test_a_tail_lets_so_many_through_in_a_second_and_counts_the_others() -> None:
    tail = Tail()

    through = [tail.lets(7.5) for _ in range(250)]
    early = tail.take_dropped(7.9)
    late = tail.take_dropped(8.1)

    assert through == [True] * 200 + [False] * 50
    assert early == b""
    assert late == b'{"type":"dropped","count":50}'
    assert tail.take_dropped(9.5) == b""
    assert tail.lets(8.2)


def test_the_topics_of_a_query() -> None:
    read = read_topics({"topics": "summary, tail,watch:a,watch:a,watch:b"})

    assert read == Topics(summary=True, tail=True, watched=("a", "b"))
    assert read_topics({}) is None


@pytest.mark.parametrize(
    "text", ["", ",", "watch:", "watch:\n", "weather", ",".join(f"watch:{n}" for n in range(101))]
)
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(Problem) as raised:
        read_topics({"topics": text})

    assert raised.value.field == "topics"


# The board.


class World:
    """What boards ask, and what they are answered."""

    def __init__(self) -> None:
        self.sums = 0
        self.looks: list[str] = []
        self.answer: bytes | Problem = b'{"state":"active"}\n'
        self.summary: SummaryBody | Problem = summary(mail=1)
        self.summaries = Summaries()

    async def sum_up(self, _: Caller) -> SummaryBody:
        self.sums += 1
        if isinstance(self.summary, Problem):
            raise self.summary
        return self.summary

    async def look(self, _: Caller, thing: str) -> bytes:
        self.looks.append(thing)
        if isinstance(self.answer, Problem):
            raise self.answer
        return self.answer

    def board(self, text: str, jobs: dict[str, str] | None = None) -> Board:
        found = read_topics({"topics": text})
        assert found is not None
        return Board(found, self.summaries, self.sum_up, self.look, jobs or {})


def run(scene: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene(World())

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


ADMIN = ANONYMOUS


def test_a_thing_is_looked_at_when_it_has_changed_and_four_times_a_second_at_most() -> None:
    async def scene(world: World) -> None:
        board = world.board("watch:s00_bulk_1,watch:j", {"s00_job_1": "s00_bulk_1", "j": "j"})
        first = await board.frames(ADMIN)
        for _ in range(9):
            board.note("s00_job_1")
            board.note("another")
        at_once = await board.frames(ADMIN)
        await trio.sleep(topics.WATCH_S)
        later = await board.frames(ADMIN)
        await trio.sleep(topics.WATCH_S)

        assert first == [
            b'{"type":"watch","id":"s00_bulk_1","thing":{"state":"active"}}',
            b'{"type":"watch","id":"j","thing":{"state":"active"}}',
        ]
        assert at_once == []
        assert later == first[:1]
        assert await board.frames(ADMIN) == []
        assert world.looks == ["s00_bulk_1", "j", "s00_bulk_1"]

    run(scene)


@pytest.mark.parametrize("status", [403, 404])
def test_a_thing_that_is_not_there_for_somebody_is_gone(status: int) -> None:
    async def scene(world: World) -> None:
        world.answer = Problem(status, "NO", "no")
        board = world.board("watch:j", {"j": "j"})

        assert await board.frames(ADMIN) == [b'{"type":"watch","id":"j","gone":true}']
        assert board.due() == float("inf")

    run(scene)


def test_a_thing_whose_shard_is_away_is_looked_at_again() -> None:
    async def scene(world: World) -> None:
        world.answer = Problem(503, "LEADER_UNAVAILABLE", "away")
        board = world.board("watch:j", {"j": "j"})
        assert await board.frames(ADMIN) == []
        world.answer = b"{}"
        await trio.sleep(topics.WATCH_S)

        assert len(await board.frames(ADMIN)) == 1

    run(scene)


def test_all_with_the_same_scope_share_one_summary_of_each_second() -> None:
    async def scene(world: World) -> None:
        some = [world.board("summary") for _ in range(5)]
        scoped = Caller(name="k", scope=Scope(("mail*",)))
        for _ in range(3):
            for board in some:
                await board.frames(ADMIN)
            await board.frames(scoped)
            await trio.sleep(SUMMARY_S)
        other = world.board("summary")
        await other.frames(scoped)

        assert world.sums == 4

    run(scene)


def test_summaries_of_few_scopes_are_kept() -> None:
    async def scene(world: World) -> None:
        for number in range(SCOPES_MAX + 10):
            await world.board("summary").frames(Caller(name="k", scope=Scope((f"q{number}",))))

        assert len(world.summaries._kept) <= SCOPES_MAX

    run(scene)


def test_a_summary_that_cannot_be_had_is_said_to_be_away_and_comes_back() -> None:
    async def scene(world: World) -> None:
        world.summary = Problem(503, "MIRROR_UNAVAILABLE", "away")
        board = world.board("summary")
        away = await board.frames(ADMIN)
        world.summary = summary(mail=3)
        await trio.sleep(SUMMARY_S)
        [back] = await board.frames(ADMIN)

        assert away == [b'{"type":"away","topic":"summary","error":"away"}']
        assert msgspec.json.decode(back, type=SummaryFrame).whole

    run(scene)


# Over HTTP.


def types_of(ear: Ear) -> list[str]:
    return [str(msgspec.json.decode(each.data)["type"]) for each in ear.source.events]


def test_several_topics_come_in_one_stream_as_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "TAIL_EVENTS_MAX", 5)

    async def sum_up(_: Api, __: Caller) -> SummaryBody:
        return summary(mail=1)

    async def read_job(_: Api, __: Caller, job_id: str) -> Response:
        return Response(body=b'{"id":"%b"}\n' % job_id.encode())

    monkeypatch.setattr(events, "summary", sum_up)
    monkeypatch.setattr(events, "read_job", read_job)

    async def scene(served: House) -> None:
        ear = await served.listen("topics=summary,events,watch:j0-3&types=completed")
        await ear.until(lambda: len(ear.source.events) == 2)
        served.sources[0].happen("completed", count=12)
        await ear.until(lambda: "dropped" in types_of(ear))
        await ear.until(lambda: types_of(ear).count("watch") == 2)

        assert {each.event for each in ear.source.events} == {"message"}
        assert all(each.id for each in ear.source.events)
        assert {"summary", "watch", "completed", "dropped"} == set(types_of(ear))
        assert 5 <= types_of(ear).count("completed") < 12

    run_house(scene, tmp_path)


def test_a_watched_job_needs_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_job(_: Api, caller: Caller, __: str) -> Response:
        assert caller.name == "m"
        raise Problem(404, "NOT_FOUND", "no")

    monkeypatch.setattr(events, "read_job", read_job)
    keys = {"k": ApiKey(key_hash="", name="m", role="readonly")}

    async def scene(served: House) -> None:
        ear = await served.listen("topics=watch:j0-1", key="k")
        await ear.until(lambda: len(ear.source.events) == 1)
        served.sources[0].happen()
        await ear.until(lambda: len(ear.source.events) == 2)
        served.sources[0].restore(0)
        served.sources[0].happen(count=2)
        await ear.until(lambda: len(ear.source.events) == 3)

        assert types_of(ear) == ["watch", "watch", "watch"]

    run_house(scene, tmp_path, keys)


def run_house(
    scene: Callable[[House], Awaitable[None]],
    directory: Path,
    keys: dict[str, ApiKey] | None = None,
) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with house(directory, 2, keys=keys) as served:
                await scene(served)

    trio.run(main)
