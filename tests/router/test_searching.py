"""Searches, the summary, rates and timelines over HTTP, with a mirror that is played by hand."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo import clock
from corvo.model import ApiKey
from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.protocol.questions import (
    AllRates,
    FullText,
    GetRates,
    GetSummary,
    GetThroughput,
    Minute,
    MirrorAnswer,
    Rates,
    Rebuild,
    Refused,
    Search,
    SearchBody,
    Summary,
    SummaryQueue,
    Throughput,
)
from corvo.router.caller import Caller
from corvo.router.search.bodies import read_query
from corvo.router.summary import Summaries, summary_cluster
from corvo.router.table import ROUTES
from corvo.router.worker_health import WorkerHealth
from corvo.scopes import Scope
from tests.router.mirrors import AS_OF, AT, give
from tests.router.nests import JSON, Nest, header, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
SCOPED: Final = ApiKey(key_hash="", name="scoped", role="operator", queue_scope=(A,))
ADMIN: Final = ApiKey(key_hash="", name="admin", role="admin")
PAGE: Final = msgspec.json.encode(
    next(row for row in ROUTES.rows if row.path == "/api/v1/jobs/search").gives_example
)


# Searches.


def test_a_search_is_passed_on_and_its_answer_comes_back_byte_for_byte() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[Search] = PAGE
        wanted = {"queue": "mail", "state": ["dead"], "tags": {"a": "b"}, "limit": 7}

        answer = await nest.ask("POST", "/api/v1/jobs/search", wanted, corvo_min_seq="s2=3")

        asked = mirror.last(Search)
        assert (answer.status, answer.body) == (200, PAGE + b"\n")
        assert header(answer, "corvo-seq") == "s2=1042"
        assert asked.search == SearchBody(queue="mail", state=["dead"], tags={"a": "b"}, limit=7)
        assert asked.min_seq == {2: 3}
        assert asked.budget_ms == nest.api.limits.search_ms_max

    run(main)


def test_an_answer_is_passed_on_unread_with_the_position_that_is_beside_it() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[Search] = mirror.answers[FullText] = MirrorAnswer(b"no JSON", {2: 9, 0: 4})

        found = await nest.ask("POST", "/api/v1/jobs/search")
        listed = await nest.ask("GET", "/api/v1/jobs")
        texts = await nest.ask("GET", "/api/v1/search/fulltext", query={"q": "x"})

        for answer in (found, listed, texts):
            assert (answer.status, answer.body) == (200, b"no JSON\n")
            assert header(answer, "corvo-seq") == "s0=4,s2=9"

    run(main)


def test_an_empty_body_is_a_search_for_all_jobs() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)

        answer = await nest.ask("POST", "/api/v1/jobs/search")

        assert answer.status == 200
        assert mirror.last(Search).search == SearchBody()

    run(main)


def test_a_key_for_some_queues_searches_in_those_alone() -> None:
    async def main() -> None:
        nest = Nest(keys={"k": SCOPED})
        mirror = give(nest.api)

        for method, path, query in (
            ("POST", "/api/v1/jobs/search", {}),
            ("GET", "/api/v1/jobs", {}),
            ("GET", "/api/v1/search/fulltext", {"q": "x"}),
            ("GET", "/api/v1/summary", {}),
            ("GET", "/api/v1/metrics/throughput", {}),
            ("GET", "/api/v1/queues", {}),
        ):
            answer = await nest.ask(method, path, query=query, x_api_key="k")
            assert answer.status == 200, path

        scopes = {type(each): each.scope for each in mirror.asked}
        for kind in (Search, FullText, GetSummary, GetThroughput, GetRates):
            assert scopes[kind] == Scope((A,))

    run(main)


def test_a_filter_may_be_written_as_a_query() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        query = {
            "queue": "mail",
            "state": "dead,held",
            "tag": "tenant:acme:inc",
            "has_errors": "true",
            "attempt_min": "2",
            "unique_key": "null",
            "limit": "10",
            "kind": "",
        }

        answer = await nest.ask("GET", "/api/v1/jobs", query=query)

        assert answer.status == 200
        assert mirror.last(Search).search == SearchBody(
            queue="mail",
            state="dead,held",
            tags={"tenant": "acme:inc"},
            has_errors=True,
            attempt_min=2,
            unique_key="null",
            limit=10,
        )

    run(main)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "many"}, "limit"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"has_errors": "maybe"}, "has_errors"),
        ({"tag": "tenant"}, "tag"),
        ({"queue": "q" * 401}, "queue"),
        ({"state": "dead," * 81}, "state"),
    ],
)
def test_a_query_that_is_none_is_refused_by_the_name_of_its_part(
    query: dict[str, str], field: str
) -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)

        answer = await nest.ask("GET", "/api/v1/jobs", query=query)

        assert problem(answer) == (400, "VALIDATION_ERROR", "", field)
        assert not mirror.asked

    run(main)


texts = st.text(min_size=1, max_size=20)


@given(
    st.dictionaries(
        st.sampled_from(
            [n for n in SearchBody.__struct_fields__ if n.endswith(("er", "id", "ns"))]
        ),
        texts,
    )
)
def test_whatever_stands_in_a_query_arrives_letter_by_letter(given_texts: dict[str, str]) -> None:
    assert read_query(given_texts) == msgspec.convert(given_texts, SearchBody)


@pytest.mark.parametrize("query", [{}, {"q": ""}, {"q": "  "}])
def test_a_full_text_search_needs_words(query: dict[str, str]) -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)

        answer = await nest.ask("GET", "/api/v1/search/fulltext", query=query)

        assert problem(answer) == (400, "VALIDATION_ERROR", "", "q")

    run(main)


def test_a_full_text_search_is_passed_on() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)

        answer = await nest.ask("GET", "/api/v1/search/fulltext", query={"q": "a b", "limit": "9"})

        asked = mirror.last(FullText)
        assert (answer.status, asked.q, asked.limit) == (200, "a b", 9)
        assert header(answer, "corvo-seq") == "s0=12,s2=7"

    run(main)


def test_what_the_mirror_refuses_is_told_with_its_field() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[Search] = Refused(code="bad_filter", error="no such order", field="order")

        answer = await nest.ask("POST", "/api/v1/jobs/search", {"order": "up"})

        assert problem(answer) == (400, "VALIDATION_ERROR", "bad_filter", "order")

    run(main)


def test_without_a_mirror_only_what_needs_it_says_so() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.is_away = True
        job_id = nest.put(A)

        search = await nest.ask("POST", "/api/v1/jobs/search")
        text = await nest.ask("GET", "/api/v1/search/fulltext", query={"q": "x"})
        others = [
            await nest.ask("GET", path)
            for path in (
                f"/api/v1/jobs/{job_id}",
                f"/api/v1/jobs/{job_id}/timeline",
                "/api/v1/queues",
                "/api/v1/workers",
                "/api/v1/dead",
                "/api/v1/summary",
            )
        ]

        assert problem(search)[:2] == problem(text)[:2] == (503, "MIRROR_UNAVAILABLE")
        assert header(search, "retry-after") == "1"
        assert [answer.status for answer in others] == [200] * 6

    run(main)


# Rates.


def _rates(queue: str) -> Rates:
    return Rates(
        queue=queue,
        enqueued_1m=1,
        started_1m=2,
        completed_1m=3,
        failed_1m=4,
        enqueued_5m=5,
        started_5m=6,
        completed_5m=7,
        failed_5m=8,
    )


def test_queues_have_rates_and_those_in_which_nothing_goes_on_have_zeros() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[GetRates] = AllRates(queues=[_rates(A)], as_of=AS_OF)
        nest.put(A)
        nest.put(B)

        listed = await nest.ask("GET", "/api/v1/queues")
        one = await nest.read(JSON, f"/api/v1/queues/{A}")

        busy, quiet = sorted(
            msgspec.json.decode(listed.body, type=list[dict[str, object]]),
            key=lambda row: row["name"] != A,
        )
        expected = {**msgspec.structs.asdict(_rates(A)), "queue": A}
        del expected["queue"]
        assert busy["rates"] == one["rates"] == expected
        assert set(msgspec.convert(quiet["rates"], dict[str, int]).values()) == {0}
        assert header(listed, "corvo-left-out") == ""

    run(main)


def test_without_a_mirror_rates_are_left_out_and_the_answer_says_so() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api).is_away = True
        nest.put(A)

        listed = await nest.ask("GET", "/api/v1/queues")
        one = await nest.ask("GET", f"/api/v1/queues/{A}")

        for answer in (listed, one):
            assert (answer.status, b"rates" in answer.body) == (200, False)
            assert header(answer, "corvo-left-out") == "rates"

    run(main)


def test_rates_never_make_a_list_wait_for_a_position() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        nest.put(A)

        await nest.ask("GET", "/api/v1/queues", corvo_min_seq="s0=1")

        assert mirror.last(GetRates).min_seq == {}

    run(main)


# Throughput.


def test_throughput_is_that_of_all_shards_by_the_minute() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        minute = Minute(minute=AT, enqueued=1, started=2, completed=3, failed=4, dead=5)
        mirror.answers[GetThroughput] = Throughput([minute], as_of=AS_OF)

        answer = await nest.ask("GET", "/api/v1/metrics/throughput", query={"queue": A})

        asked = mirror.last(GetThroughput)
        assert (asked.queue, asked.minutes) == (A, 60)
        assert header(answer, "corvo-seq") == "s0=12,s2=7"
        assert msgspec.json.decode(answer.body) == [
            {
                "minute": AT,
                "enqueued": 1,
                "completed": 3,
                "failed": 4,
                "started": 2,
                "dead": 5,
                "cancelled": 0,
            }
        ]

    run(main)


def test_a_node_without_a_mirror_tells_what_went_through_its_router_but_not_by_queue() -> None:
    async def main() -> None:
        nest = Nest()

        together = await nest.read(list[JSON], "/api/v1/metrics/throughput")
        one = await nest.ask("GET", "/api/v1/metrics/throughput", query={"queue": A})

        assert len(together) == 60
        assert set(together[0]) == {"minute", "enqueued", "completed", "failed"}
        assert problem(one)[:2] == (503, "MIRROR_UNAVAILABLE")

    run(main)


def test_a_key_hears_of_no_queue_that_it_is_not_for() -> None:
    async def main() -> None:
        nest = Nest(keys={"k": SCOPED})
        give(nest.api)

        answer = await nest.ask(
            "GET", "/api/v1/metrics/throughput", query={"queue": B}, x_api_key="k"
        )

        assert answer.status == 403

    run(main)


# The summary.


def _summary(*names: str) -> Summary:
    return Summary(
        queues=[
            SummaryQueue(
                name=name,
                counts={"pending": 2, "dead": 1},
                paused=False,
                enqueued_1m=6,
                completed_1m=5,
                failed_1m=4,
            )
            for name in names
        ],
        as_of=AS_OF,
    )


def test_a_summary_has_queues_their_sums_and_the_shards() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[GetSummary] = _summary(A, B, "_corvo.bulk")

        answer = await nest.ask("GET", "/api/v1/summary")
        told = msgspec.json.decode(answer.body, type=JSON)

        assert [queue["name"] for queue in msgspec.convert(told["queues"], list[JSON])] == [A, B]
        assert told["totals"] == {"pending": 4, "dead": 2}
        assert told["workers"] == {"alive": 0, "not_fetching": 0}
        assert told["source"] == "mirror"
        assert told["shards"] == [
            {"shard": 0, "status": "up", "mirror": "following"},
            {"shard": 1, "status": "up", "mirror": "away"},
            {"shard": 2, "status": "up", "mirror": "following"},
        ]
        assert header(answer, "corvo-seq") == "s0=12,s2=7"

    run(main)


def test_while_the_mirror_is_away_a_summary_is_made_of_what_the_shards_have() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api).is_away = True
        nest.put(A)
        nest.put(B)

        told = await nest.read(JSON, "/api/v1/summary")

        queues = msgspec.convert(told["queues"], list[JSON])
        assert sorted(str(queue["name"]) for queue in queues) == sorted([A, B])
        assert all("enqueued_1m" not in queue for queue in queues)
        assert msgspec.convert(told["totals"], dict[str, int])["pending"] == 2
        assert told["source"] == "shards"

    run(main)


# The mirror itself.


def test_a_rebuild_is_for_admins_and_is_begun() -> None:
    async def main() -> None:
        nest = Nest(keys={"k": SCOPED, "a": ADMIN})
        mirror = give(nest.api)

        refused = await nest.ask("POST", "/api/v1/admin/rebuild-sqlite", x_api_key="k")
        begun = await nest.ask("POST", "/api/v1/admin/rebuild-sqlite", x_api_key="a")

        assert refused.status == 403
        assert (begun.status, begun.body) == (202, b'{"status":"rebuilding","shards":3}\n')
        assert mirror.count(Rebuild) == 1

    run(main)


# Reserved queues.


def test_queues_of_the_servers_own_are_shown_to_those_who_ask_for_them_and_changed_by_nobody() -> (
    None
):
    async def main() -> None:
        nest = Nest()
        own = "_corvo.bulk"
        nest.put(own)
        nest.put(A)

        usual = await nest.read(list[JSON], "/api/v1/queues")
        every = await nest.read(list[JSON], "/api/v1/queues", query={"reserved": "true"})
        paused = await nest.ask("POST", f"/api/v1/queues/{own}/pause")
        deleted = await nest.ask("DELETE", f"/api/v1/queues/{own}")

        assert [row["name"] for row in usual] == [A]
        assert sorted(str(row["name"]) for row in every) == sorted([A, own])
        for answer in (paused, deleted):
            assert problem(answer) == (400, "VALIDATION_ERROR", "", "name")

    run(main)


def test_a_summary_counts_the_workers_of_each_queue_once_it_knows_them_all() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api).answers[GetSummary] = _summary(A, B)
        for worker, queues in (("w1", [A, B]), ("w2", [A])):
            nest.api.sightings.asks(worker, "", queues, clock.now_ns())

        early = await nest.read(JSON, "/api/v1/summary")
        nest.api.worker_health = WorkerHealth(wait_s_max=1, began_ns=0)
        later = await nest.read(JSON, "/api/v1/summary")

        assert all("workers" not in each for each in msgspec.convert(early["queues"], list[JSON]))
        counted = msgspec.convert(later["queues"], list[JSON])
        assert [each["workers"] for each in counted] == [2, 1]
        assert later["workers"] == {"alive": 2, "not_fetching": 0}

    run(main)


def test_queues_that_have_not_changed_are_kept_and_their_workers_are_those_of_now() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        nest.api.worker_health = WorkerHealth(wait_s_max=1, began_ns=0)
        mirror.answers[GetSummary] = replace(_summary(A, B), minute=AT, mark="m1")
        first = await nest.read(JSON, "/api/v1/summary")
        assert mirror.last(GetSummary).known == ""

        mirror.answers[GetSummary] = Summary(
            queues=[], minute=AT, mark="m1", changed=[], as_of=AS_OF
        )
        nest.api.sightings.asks("w", "", [A], clock.now_ns())
        for _ in range(2):
            again = await nest.read(JSON, "/api/v1/summary")
            assert (mirror.last(GetSummary).known, mirror.last(GetSummary).known_minute) == (
                "m1",
                AT,
            )
            assert again["totals"] == first["totals"]
            counted = msgspec.convert(again["queues"], list[JSON])
            assert [(each["name"], each["workers"]) for each in counted] == [(A, 1), (B, 0)]
        mirror.is_away = True
        nest.put(B)
        [own] = msgspec.convert((await nest.read(JSON, "/api/v1/summary"))["queues"], list[JSON])
        assert own["name"] == B

    run(main)


def test_queues_that_have_changed_take_the_place_of_those_that_were_kept() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        mirror.answers[GetSummary] = replace(_summary("a", "c", "d"), minute=AT, mark="m1")
        await nest.ask("GET", "/api/v1/summary")

        told = _summary("b", "c")
        counted = [replace(queue, counts={"pending": 9}) for queue in told.queues]
        mirror.answers[GetSummary] = replace(
            told, queues=counted, minute=AT, mark="m2", changed=["b", "c", "d", "foreign"]
        )
        answer = await nest.read(JSON, "/api/v1/summary")
        await nest.ask("GET", "/api/v1/summary")

        shown = msgspec.convert(answer["queues"], list[JSON])
        assert [(each["name"], each["counts"]) for each in shown] == [
            ("a", {"pending": 2, "dead": 1}),
            ("b", {"pending": 9}),
            ("c", {"pending": 9}),
        ]
        assert answer["totals"] == {"pending": 20, "dead": 1}
        assert mirror.last(GetSummary).known == "m2"

    run(main)


def test_another_scope_has_another_summary() -> None:
    kept, told = Summaries(), _summary(A)
    kept.keep(Caller(name="all"), told)

    assert kept.last(Caller(name="all")) is told
    assert kept.last(Caller(name="all", scope=Scope((A,)))).queues == []
    assert kept.last(Caller(name="all", namespace="other")).queues == []


def test_summaries_that_may_be_old_are_shared_for_a_second() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        asked = [
            await nest.ask("GET", "/api/v1/summary", query={"consistency": "stale"})
            for _ in range(3)
        ]
        assert len({answer.body for answer in asked}) == 1
        before = len(mirror.asked)
        await nest.ask("GET", "/api/v1/summary", query={"consistency": "stale", "minutes": "15"})

        assert mirror.last(GetSummary).minutes == 15
        assert len(mirror.asked) > before

    run(main)


def test_a_cluster_can_lose_as_many_nodes_as_its_weakest_shard() -> None:
    nodes = tuple(ClusterNode(number=n, name=f"n{n}", is_draining=n == 4) for n in (1, 2, 3, 4))
    known = ClusterMap(nodes=nodes, last_number=4, places=((1, 2, 3), (2, 3, 1)))

    def lose(voters: dict[int, tuple[int, ...]], *away: int) -> int:
        up = {n: n not in away for n in (1, 2, 3)}
        return summary_cluster(known, own=1, reachable=up, voters=voters).can_lose

    assert lose({}) == 1
    assert lose({}, 3) == 0
    assert lose({}, 2, 3) == 0
    assert lose({1: (1,)}) == 0
    told = summary_cluster(known, own=1, reachable={1: True, 2: False, 3: True}, voters={})
    assert [node.is_reachable for node in told.nodes] == [True, False, True, msgspec.UNSET]
    assert [node.state for node in told.nodes] == [*["active"] * 3, "draining"]
