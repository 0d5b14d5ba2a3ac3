"""Searches that wait for what their clients did: for which shards, how long, and what is said."""

from random import Random
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import ApiKey
from corvo.protocol.queries import GetMoment, Query
from corvo.protocol.questions import (
    FullText,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    Question,
    Search,
    Summary,
)
from corvo.router.caller import ANONYMOUS
from corvo.router.config import Limits
from corvo.router.search.endpoints import summary
from corvo.router.shards.links import Answer
from tests.router.mirrors import AS_OF, ScriptedMirror, give
from tests.router.nests import JSON, Nest, problem, queue_of, run
from tests.router.views import WalkingMirror

A, B, C = (queue_of(number) for number in range(3))
WAIT_S: Final = Limits().search_wait_ms / 1_000

# (method, path, question) of everything that waits.
WAITING: Final[list[tuple[str, str, type[Question]]]] = [
    ("POST", "/api/v1/jobs/search", Search),
    ("GET", "/api/v1/jobs", Search),
    ("GET", "/api/v1/search/fulltext", FullText),
    ("GET", "/api/v1/summary", GetSummary),
]

_QUERIES: Final[dict[type[Question], dict[str, str]]] = {FullText: {"q": "x"}}


def _nest() -> tuple[Nest, ScriptedMirror]:
    nest = Nest()
    for queue in (A, B, B, C):  # so that the shards stand at different places
        nest.put(queue)
    return nest, give(nest.api)


def _moments(nest: Nest) -> list[int]:
    """How often each shard was asked where it stands."""
    return [sum(isinstance(query, GetMoment) for query in shard.questions) for shard in nest.shards]


def _places(nest: Nest, *numbers: int) -> dict[int, int]:
    return {number: nest.shards[number].machine.machine.applied for number in numbers}


# What is waited for.


@pytest.mark.parametrize(("method", "path", "kind"), WAITING[:-1])
def test_a_read_of_the_mirror_waits_for_where_the_shards_stand(
    method: str, path: str, kind: type[Question]
) -> None:
    async def main() -> None:
        nest, mirror = _nest()

        answer = await nest.ask(method, path, query=_QUERIES.get(kind))

        freshness = mirror.last(kind).freshness
        assert answer.status == 200
        assert freshness is not None
        assert freshness.positions == _places(nest, 0, 1, 2)
        assert (freshness.unknown, freshness.wait_ms) == ((), nest.api.limits.search_wait_ms)
        assert _moments(nest) == [1, 1, 1]

    run(main)


def test_only_the_shards_are_asked_that_can_have_a_job_of_the_filter() -> None:
    async def main() -> None:
        keys = {
            "two": ApiKey(key_hash="", name="two", role="operator", queue_scope=(A, B)),
            "many": ApiKey(key_hash="", name="many", role="operator", queue_scope=(A, "x*")),
        }
        nest = Nest(keys=keys)
        give(nest.api)

        for number, (body, key) in enumerate(
            [({"queue": B}, "many"), ({}, "two"), ({"state": ["dead"]}, "many")]
        ):
            before = _moments(nest)
            answer = await nest.ask("POST", "/api/v1/jobs/search", body, x_api_key=key)
            asked = [now - then for now, then in zip(_moments(nest), before, strict=True)]
            assert answer.status == 200
            assert asked == [[0, 1, 0], [1, 1, 0], [1, 1, 1]][number]

    run(main)


def test_rates_throughput_and_workers_wait_for_nothing() -> None:
    async def main() -> None:
        nest, mirror = _nest()

        for path in (
            "/api/v1/queues",
            "/api/v1/metrics/throughput",
            "/api/v1/workers",
            "/api/v1/bulk",
        ):
            assert (await nest.ask("GET", path)).status == 200, path

        for kind in (GetRates, GetThroughput, GetBeats):
            assert mirror.last(kind).freshness is None
        assert _moments(nest) == [0, 0, 0]

    run(main)


def test_a_dashboard_on_an_event_stream_waits_for_nothing() -> None:
    async def main() -> None:
        nest, mirror = _nest()

        await summary(nest.api, ANONYMOUS)

        assert mirror.last(GetSummary).freshness is None
        assert _moments(nest) == [0, 0, 0]

    run(main)


# What clients say about it.


@pytest.mark.parametrize(("method", "path", "kind"), WAITING)
def test_whoever_takes_stale_answers_does_not_wait(
    method: str, path: str, kind: type[Question]
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        stale = {"consistency": "stale"}
        is_search = method == "POST"

        answer = await nest.ask(
            method,
            path,
            stale if is_search else b"",
            query={} if is_search else stale | _QUERIES.get(kind, {}),
        )

        asked = mirror.last(kind)
        assert answer.status == 200
        assert asked.freshness is None
        assert not isinstance(asked, Search) or asked.search.consistency is None
        assert _moments(nest) == [0, 0, 0]

    run(main)


@pytest.mark.parametrize(("method", "path", "kind"), WAITING)
def test_an_unknown_consistency_is_refused_with_the_known_ones(
    method: str, path: str, kind: type[Question]
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        wrong = {"consistency": "eventual"}
        is_search = method == "POST"

        answer = await nest.ask(
            method,
            path,
            wrong if is_search else b"",
            query={} if is_search else wrong | _QUERIES.get(kind, {}),
        )

        assert problem(answer) == (400, "VALIDATION_ERROR", "", "consistency")
        assert all(word in answer.body for word in (b"wait", b"stale", b"eventual"))
        assert not mirror.count(kind)

    run(main)


@pytest.mark.parametrize(("consistency", "waits"), [("", False), ("stale", False), ("wait", True)])
def test_who_names_a_position_waits_for_more_only_when_asking_for_it(
    consistency: str, waits: bool
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        query = {"consistency": consistency}

        await nest.ask("GET", "/api/v1/jobs", query=query, corvo_min_seq="s1=2")

        asked = mirror.last(Search)
        assert asked.min_seq == {1: 2}
        assert (asked.freshness is not None) == waits

    run(main)


def test_a_limit_of_zero_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        never = msgspec.structs.replace(nest.api.limits, search_wait_ms=0)
        monkeypatch.setattr(nest.api, "limits", never)

        await nest.ask("GET", "/api/v1/jobs", query={"consistency": "wait"})

        assert mirror.last(Search).freshness is None
        assert _moments(nest) == [0, 0, 0]

    run(main)


# What cannot be waited for.


def test_a_shard_that_is_away_is_not_waited_for() -> None:
    async def main() -> None:
        nest, mirror = _nest()
        nest.shards[1].is_away = True
        began = trio.current_time()

        await nest.ask("GET", "/api/v1/jobs")

        freshness = mirror.last(Search).freshness
        assert freshness is not None
        assert (freshness.positions, freshness.unknown) == (_places(nest, 0, 2), (1,))
        assert trio.current_time() == began

    run(main)


def test_a_shard_that_does_not_answer_is_waited_for_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        silent = nest.shards[2]
        answer = silent.ask

        async def never(_: Query) -> Answer:
            await trio.sleep_forever()
            raise AssertionError

        async def took() -> float:
            began = trio.current_time()
            await nest.ask("GET", "/api/v1/jobs")
            return trio.current_time() - began

        monkeypatch.setattr(silent, "ask", never)
        waits = [await took() for _ in range(3)]
        freshness = mirror.last(Search).freshness
        monkeypatch.setattr(silent, "ask", answer)
        await trio.sleep(1)
        await took()
        later = mirror.last(Search).freshness

        assert waits == [pytest.approx(WAIT_S), 0, 0]
        assert freshness is not None
        assert (freshness.unknown, freshness.wait_ms) == ((2,), 250)
        assert later is not None
        assert later.positions == _places(nest, 0, 1, 2)

    run(main)


def test_many_searches_at_once_share_the_questions_to_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        [shard, *_] = nest.shards
        ask, under_way, most = shard.ask, 0, 0

        async def slowly(query: Query) -> Answer:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            answer = await ask(query)
            await trio.sleep(0.01)
            under_way -= 1
            return answer

        monkeypatch.setattr(shard, "ask", slowly)
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(nest.ask, "GET", "/api/v1/jobs")

        assert mirror.count(Search) == 100
        assert most == 1
        assert _moments(nest)[0] <= 2

    run(main)


def test_a_search_does_not_take_an_answer_that_was_asked_for_before_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        [shard, *_] = nest.shards
        ask, answered = shard.ask, trio.Event()

        async def late(query: Query) -> Answer:
            answer = await ask(query)
            answered.set()
            await trio.sleep(0.01)
            return answer

        monkeypatch.setattr(shard, "ask", late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nest.ask, "GET", "/api/v1/jobs")
            await answered.wait()
            nest.put(A)
            await nest.ask("GET", "/api/v1/jobs")

        freshness = mirror.last(Search).freshness
        assert freshness is not None
        assert freshness.positions == _places(nest, 0, 1, 2)

    run(main)


def test_a_search_whose_client_leaves_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        nest, mirror = _nest()
        [shard, *_] = nest.shards
        ask, asked = shard.ask, trio.Event()
        leaving = trio.CancelScope()

        async def first_never(query: Query) -> Answer:
            if not asked.is_set():
                asked.set()
                await trio.sleep_forever()
            return await ask(query)

        async def leave() -> None:
            with leaving:
                await nest.ask("GET", "/api/v1/jobs")

        monkeypatch.setattr(shard, "ask", first_never)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            await asked.wait()
            nursery.start_soon(nest.ask, "GET", "/api/v1/jobs")
            await trio.testing.wait_all_tasks_blocked()
            leaving.cancel()

        freshness = mirror.last(Search).freshness
        assert mirror.count(Search) == 1
        assert freshness is not None
        assert freshness.positions == _places(nest, 0, 1, 2)

    run(main)


# What is said.


def test_a_summary_says_that_it_is_behind() -> None:
    async def main() -> None:
        nest, mirror = _nest()
        mirror.answers[GetSummary] = Summary(queues=[], as_of=AS_OF, is_behind=True)

        told = await nest.read(JSON, "/api/v1/summary")

        assert told["is_behind"] is True

    run(main)


_Step = st.tuples(st.sampled_from(["put", "search", "bulks"]), st.integers(0, 5))


@given(
    shards=st.sampled_from([1, 4]),
    steps=st.lists(_Step, max_size=30),
    seed=st.integers(0, 1 << 16),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_each_search_has_all_that_was_done_before_it_or_says_that_it_may_not(
    shards: int, steps: list[tuple[str, int]], seed: int, share: float
) -> None:
    async def main() -> None:
        nest, random = Nest(shards), Random(seed)
        mirror = WalkingMirror(nest)
        mirror.look()
        mirror.follows = lambda: random.random() < share
        known: dict[str, str] = {}
        for kind, number in steps:
            queue = f"q{number}"
            if kind == "put":
                known[nest.put(queue)] = queue
                continue
            wanted = queue if kind == "search" else None
            answer = await nest.ask("POST", "/api/v1/jobs/search", {"queue": wanted, "limit": 99})
            page = msgspec.json.decode(answer.body)
            found = {job["id"] for job in page["jobs"]}
            missing = {name for name, of in known.items() if wanted in {None, of}} - found
            assert page["is_behind"] or not missing
            assert not (share == 1.0 and page["is_behind"])

    run(main)
