"""Queues and workers over HTTP: what they look like, over all shards, and what is set for them."""

from collections.abc import Iterator
from itertools import islice
from typing import Final
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.model import ApiKey, Queue, State
from corvo.placement import shard_of_queue
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Hold
from corvo.protocol.ops.queues import DeleteQueue, Pause
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.router.ask import PART
from corvo.router.http.messages import Problem
from corvo.router.queues.bodies import SetThrottleBody
from corvo.shard.state.tables import JOBS
from corvo.times import format_time
from tests.router.nests import JSON, Nest, header, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))

NONE: Final = {
    "pending": 0,
    "active": 0,
    "held": 0,
    "completed": 0,
    "dead": 0,
    "scheduled": 0,
    "retrying": 0,
    "cancelled": 0,
    "enqueued": 0,
    "failed": 0,
}


async def queues(nest: Nest, query: dict[str, str] | None = None, key: str = "") -> list[JSON]:
    return await nest.read(list[JSON], "/api/v1/queues", query=query, x_api_key=key)


def fill(nest: Nest, queue: str) -> None:
    """Jobs of every state: 1 pending, 2 active, 3 held, 4 completed, and so on."""
    shard = nest[queue]
    later_ns = shard.clock_ns + 10**12
    states = ["active", "held", "completed", "retrying", "dead", "cancelled"]
    for count, state in enumerate(states, start=2):
        for _ in range(count):
            job_id = nest.put(queue)
            if state in {"active", "completed", "retrying", "dead"}:
                shard.fetch(queue)
            match state:
                case "held":
                    shard.do(Hold(job_ids=[job_id]))
                case "completed":
                    shard.do(Ack(acks=[AckItem(job_id=job_id)]))
                case "cancelled":
                    shard.do(Cancel(job_ids=[job_id]))
                case "retrying" | "dead":
                    is_dead = state == "dead"
                    shard.do(Fail(fails=[FailItem(job_id=job_id, retryable=not is_dead)]))
                case _:
                    pass
    shard.put(*[NewJob(queue=queue, scheduled_ns=later_ns) for _ in range(8)])
    nest.put(queue)


# Looking.


def test_a_queue_is_shown_field_for_field() -> None:
    async def main() -> None:
        nest = Nest()
        fill(nest, A)
        [row] = await queues(nest)
        created_ns = nest[A].queue(A).created_ns
        [waiting] = [job for job in nest[A].documents(JOBS) if job.state is State.PENDING]

        assert row == {
            "name": A,
            "paused": False,
            "pending": 1,
            "active": 2,
            "held": 3,
            "completed": 4,
            "retrying": 5,
            "dead": 6,
            "cancelled": 7,
            "scheduled": 8,
            "enqueued": 36,
            "failed": 5 + 6,  # retrying and dead
            "created_at": format_time(created_ns),
            "oldest_pending_at": format_time(waiting.order_ns),
        }
        assert await nest.read(JSON, f"/api/v1/queues/{A}") == row

    run(main)


def test_what_is_set_for_a_queue_is_shown() -> None:
    async def main() -> None:
        nest = Nest()
        base = f"/api/v1/queues/{A}"

        await nest.ask("POST", f"{base}/drain")
        await nest.ask("POST", f"{base}/concurrency", {"max": 7})
        await nest.ask("POST", f"{base}/throttle", {"rate": 5, "window_ms": 1_500})
        await nest.ask("POST", f"{base}/retention", {"retention_ms": 60_000})

        shown = await nest.read(JSON, base)
        assert shown == {
            "name": A,
            **NONE,
            "paused": True,
            "draining": True,
            "max_concurrency": 7,
            "rate_limit": 5,
            "rate_window_ms": 1_500,
            "retention_ms": 60_000,
            "created_at": shown["created_at"],
        }

    run(main)


def test_queues_of_all_shards_are_listed_by_name() -> None:
    async def main() -> None:
        nest = Nest()
        names = [f"queue-{number}" for number in range(20)] + ["ä", "Z", "\U0001f426"]
        for name in names:
            nest[name].do(Pause(queue=name))

        assert [row["name"] for row in await queues(nest)] == sorted(names)

    run(main)


def test_a_long_list_of_queues_is_read_in_parts_by_its_links() -> None:
    async def main() -> None:
        nest = Nest()
        names = [f"a&b {number:02d}" for number in range(23)]
        for name in names:
            nest[name].do(Pause(queue=name))

        found: list[object] = []
        query = {"limit": "5"}
        for _ in range(20):
            answer = await nest.ask("GET", "/api/v1/queues", query=query)
            part = msgspec.json.decode(answer.body, type=list[JSON])
            assert len(part) <= 5
            found += [row["name"] for row in part]
            link = header(answer, "link")
            if not link:
                break
            assert link.startswith("</api/v1/queues?after=a%26b%20")
            assert link.endswith('&limit=5>; rel="next"')
            query = {"limit": "5", "after": str(found[-1])} if found else query

        assert found == names

    run(main)


def test_more_queues_than_one_question_asks_for_are_listed_all_the_same() -> None:
    async def main() -> None:
        nest = Nest(shards=1)
        names = [f"queue-{number:03d}" for number in range(2 * PART + 10)]
        for name in names:
            nest[name].do(Pause(queue=name))

        assert [row["name"] for row in await queues(nest)] == names
        assert len(nest.shards[0].questions) == 3

    run(main)


def test_queues_that_somebody_may_not_see_are_passed_over_and_not_named() -> None:
    async def main() -> None:
        keys = {"k": ApiKey(key_hash="", name="k", role="operator", queue_scope=("z*",))}
        nest = Nest(shards=1, keys=keys)
        for name in ("a", "b", "c", "z1", "z2", "z3"):
            nest[name].do(Pause(queue=name))

        answer = await nest.ask("GET", "/api/v1/queues", query={"limit": "2"}, x_api_key="k")

        rows = msgspec.json.decode(answer.body, type=list[JSON])
        assert [row["name"] for row in rows] == ["z1", "z2"]
        assert header(answer, "link") == '</api/v1/queues?after=z2&limit=2>; rel="next"'

    run(main)


_NAMES: Final = ("a", "ab", "abc", "b", "b\U0010ffff", "c", "c ", "z", "_corvo.a", "_corvo.b", "_d")
_NAMES_TOO: Final = ("\ud7ff", "\ue000", "\U0010ffff", "_corvo-", "_corvo/")


@settings(max_examples=150, deadline=None)
@given(
    there=st.sets(st.sampled_from(_NAMES + _NAMES_TOO)),
    scope=st.lists(
        st.sampled_from([*_NAMES, *_NAMES_TOO, "a*", "ab*", "c*", "\ue000*", "_corvo.*", "*"]),
        max_size=4,
    ),
    limit=st.integers(1, 4),
    shows_reserved=st.booleans(),
)
def test_all_pages_of_queues_have_what_a_key_is_for_and_no_link_names_another(
    there: set[str], scope: list[str], limit: int, *, shows_reserved: bool
) -> None:
    async def main() -> None:
        keys = {"k": ApiKey(key_hash="", name="k", role="operator", queue_scope=tuple(scope))}
        nest = Nest(shards=2, keys=keys)
        for name in there:
            nest[name].do(Pause(queue=name))
        visible = [
            name
            for name in sorted(there)
            if (shows_reserved or not name.startswith("_corvo."))
            and (not scope or any(_is_in(name, one) for one in scope))
        ]

        found: list[object] = []
        query = {"limit": str(limit)}
        if shows_reserved:
            query["reserved"] = "true"
        for _ in range(len(visible) + 1):
            answer = await nest.ask("GET", "/api/v1/queues", query=query, x_api_key="k")
            rows = msgspec.json.decode(answer.body, type=list[JSON])
            assert len(rows) <= limit
            found += [row["name"] for row in rows]
            link = header(answer, "link")
            if not link:
                break
            query["after"] = unquote(link.partition("after=")[2].partition("&")[0])
            assert query["after"] in visible
        else:
            pytest.fail("there are more links than queues")

        assert found == visible

    run(main)


def _is_in(name: str, one: str) -> bool:
    return name.startswith(one[:-1]) if one.endswith("*") else name == one


def test_passing_over_many_queues_takes_few_questions() -> None:
    async def main() -> None:
        keys = {"k": ApiKey(key_hash="", name="k", role="operator", queue_scope=("a", "z", "zz"))}
        nest = Nest(shards=1, keys=keys)
        for name in (
            "a",
            "zz",
            *(f"{first}{number:03d}" for first in "bz" for number in range(99)),
        ):
            nest[name].do(Pause(queue=name))

        answer = await nest.ask("GET", "/api/v1/queues", query={"limit": "5"}, x_api_key="k")

        rows = msgspec.json.decode(answer.body, type=list[JSON])
        assert [row["name"] for row in rows] == ["a", "zz"]
        assert len(nest.shards[0].questions) == 3

    run(main)


def test_no_queue_is_passed_over_because_its_shard_has_others_before_it() -> None:
    async def main() -> None:
        keys = {"k": ApiKey(key_hash="", name="k", role="operator", queue_scope=("m*",))}
        nest = Nest(shards=2, keys=keys)
        hidden = list(islice(_names("a", 0), 2))
        first = next(_names("m1-", 0))
        later = list(islice(_names("m2-", 1), 2))
        for name in (*hidden, first, *later):
            nest[name].do(Pause(queue=name))

        found: list[object] = []
        query = {"limit": "2"}
        for _ in range(4):
            answer = await nest.ask("GET", "/api/v1/queues", query=query, x_api_key="k")
            found += [row["name"] for row in msgspec.json.decode(answer.body, type=list[JSON])]
            link = header(answer, "link")
            if not link:
                break
            query["after"] = link.partition("after=")[2].partition("&")[0]

        assert found == [first, *later]

    run(main)


def _names(beginning: str, shard: int) -> Iterator[str]:
    """Queues of one of two shards."""
    names = (f"{beginning}{number:03d}" for number in range(1_000))
    return (name for name in names if shard_of_queue(name, 2) == shard)


def test_a_queue_that_was_deleted_or_never_named_is_not_there() -> None:
    async def main() -> None:
        nest = Nest()
        nest.put(A)
        nest[A].do(DeleteQueue(queue=A))

        listed = await queues(nest)
        deleted = await nest.ask("GET", f"/api/v1/queues/{A}")
        unknown = await nest.ask("GET", f"/api/v1/queues/{B}")

        assert listed == []
        assert problem(deleted) == (404, "NOT_FOUND", "", "")
        assert problem(unknown) == (404, "NOT_FOUND", "", "")

    run(main)


def test_a_list_with_a_shard_missing_is_not_given_as_if_it_were_whole() -> None:
    async def main() -> None:
        nest = Nest()
        nest.shards[2].is_away = True

        listed = await nest.ask("GET", "/api/v1/queues")
        workers = await nest.ask("GET", "/api/v1/workers")
        dead = await nest.ask("GET", "/api/v1/dead")

        for answer in (listed, workers, dead):
            assert problem(answer)[:2] == (503, "LEADER_UNAVAILABLE")

    run(main)


@pytest.mark.parametrize(
    ("query", "field"),
    [({"limit": "0"}, "limit"), ({"limit": "10001"}, "limit"), ({"after": "x" * 256}, "after")],
)
def test_a_list_of_queues_is_asked_for_in_the_right_words(
    query: dict[str, str], field: str
) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/api/v1/queues", query=query)

        assert problem(answer) == (400, "VALIDATION_ERROR", "", field)

    run(main)


# Changing.

CHANGES: Final[dict[str, tuple[str, object, str, Queue]]] = {
    "pause": ("POST", b"", "paused", Queue(name=A, paused=True)),
    "resume": ("POST", b"", "resumed", Queue(name=A)),
    "drain": ("POST", b"", "draining", Queue(name=A, paused=True, draining=True)),
    "concurrency": ("POST", {"max": 3}, "ok", Queue(name=A, max_concurrency=3)),
    "throttle": (
        "POST",
        {"rate": 2, "window": "1m"},
        "ok",
        Queue(name=A, rate_limit=2, rate_window_ms=60_000),
    ),
    "retention": (
        "POST",
        {"retention": "168h"},
        "ok",
        Queue(name=A, retention_ms=168 * 3_600_000),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_set_for_a_queue_that_nobody_has_named_begins_it(name: str) -> None:
    async def main() -> None:
        method, body, word, expected = CHANGES[name]
        nest = Nest()

        answer = await nest.ask(method, f"/api/v1/queues/{A}/{name}", body)

        assert answer.status == 200, answer.body
        assert msgspec.json.decode(answer.body) == {"status": word, "queue": A}
        assert header(answer, "corvo-seq") == "s0=1"
        stored = nest[A].queue(A)
        assert stored.created_ns > 0
        plain = msgspec.structs.replace(stored, created_ns=0, rate_since_ns=0)
        assert plain == expected

    run(main)


def test_a_limit_of_none_takes_the_limits_away() -> None:
    async def main() -> None:
        nest = Nest()
        base = f"/api/v1/queues/{A}"
        await nest.ask("POST", f"{base}/concurrency", {"max": 3})
        await nest.ask("POST", f"{base}/throttle", {"rate": 2, "period": "1m"})

        await nest.ask("POST", f"{base}/concurrency", {"max": -1})
        gone = await nest.ask("DELETE", f"{base}/throttle")

        assert msgspec.json.decode(gone.body) == {"status": "ok", "queue": A}
        assert nest[A].queue(A).max_concurrency == 0
        assert nest[A].queue(A).rate_limit == 0

    run(main)


def test_clear_and_delete_take_jobs_away_and_want_no_queue() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)

        cleared = await nest.ask("POST", f"/api/v1/queues/{A}/clear")
        missing = await nest.ask("GET", f"/api/v1/jobs/{job_id}")
        deleted = await nest.ask("DELETE", f"/api/v1/queues/{A}", query={"confirm": "true"})
        unknown = await nest.ask("DELETE", f"/api/v1/queues/{B}")

        assert msgspec.json.decode(cleared.body, type=JSON)["status"] == "cleared"
        assert missing.status == 404
        assert msgspec.json.decode(deleted.body, type=JSON)["status"] == "deleted"
        assert unknown.status == 200

    run(main)


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("concurrency", b"", ""),
        ("concurrency", {}, "max"),
        ("concurrency", {"max": 1_000_001}, "max"),
        ("concurrency", {"max": "3"}, "max"),
        ("throttle", {"rate": 1}, "window_ms"),
        ("throttle", {"rate": 0, "window_ms": 1}, "rate"),
        ("throttle", {"rate": 100_001, "window_ms": 1}, "rate"),
        ("throttle", {"rate": 1, "window_ms": 0}, "window_ms"),
        ("throttle", {"rate": 1, "window": "soon"}, "window"),
        ("throttle", {"rate": 1, "window": "0s"}, "window_ms"),
        ("throttle", {"rate": 1, "window": "1m", "window_ms": 1}, "window"),
        ("throttle", {"rate": 1, "window": "1m", "period": "2m"}, "period"),
        ("throttle", {"rate": 1, "period": "soon"}, "period"),
        ("throttle", {"rate": 1, "period": "0s"}, "window_ms"),
        ("throttle", {"rate": 1, "window_ms": 5, "period": ""}, "period"),
        ("throttle", {"rate": 1, "period": "1m", "window_ms": 1}, "period"),
        ("retention", {}, "retention_ms"),
        ("retention", {"retention": "9999999h"}, "retention"),
        ("retention", {"retention_ms": -1}, "retention_ms"),
    ],
)
def test_what_a_setting_has_wrong_is_named(name: str, body: object, field: str) -> None:
    async def main() -> None:
        nest = Nest()

        answer = await nest.ask("POST", f"/api/v1/queues/{A}/{name}", body)

        status, _, _, named = problem(answer)
        assert (status, named) == (400, field)
        assert await queues(nest) == []

    run(main)


def test_a_window_of_nothing_is_refused_before_a_shard_sees_it() -> None:
    with pytest.raises(Problem) as refused:
        _ = SetThrottleBody(rate=1, period="0s").span_ms

    assert "or window such as 1m" in refused.value.error


@pytest.mark.parametrize("name", ["a%00b", "%C2%85", "x" * 256, "%C3%A4" * 128])
@pytest.mark.parametrize(("method", "action"), [("GET", ""), ("POST", "/pause"), ("DELETE", "")])
def test_what_cannot_be_the_name_of_a_queue_is_refused(method: str, action: str, name: str) -> None:
    async def main() -> None:
        answer = await Nest().ask(method, f"/api/v1/queues/{name}{action}")

        status, code, _, field = problem(answer)
        assert (status, code, field) == (400, "VALIDATION_ERROR", "name")

    run(main)


def test_a_request_under_its_key_has_one_effect() -> None:
    async def main() -> None:
        nest = Nest()
        base = f"/api/v1/queues/{A}"

        first = await nest.ask("POST", f"{base}/pause", idempotency_key="once")
        await nest.ask("POST", f"{base}/resume")
        again = await nest.ask("POST", f"{base}/pause", idempotency_key="once")
        other = await nest.ask("POST", f"{base}/concurrency", {"max": 1, "request_key": "once"})

        assert first.body == again.body
        assert not nest[A].queue(A).paused
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")

    run(main)


def test_a_key_of_one_queue_sees_and_changes_only_that() -> None:
    async def main() -> None:
        keys = {"k": ApiKey(key_hash="", name="k", role="operator", queue_scope=(A,))}
        nest = Nest(keys=keys)
        for queue in (A, B):
            nest.put(queue)
            nest[queue].fetch(queue, worker=f"worker-of-{queue}")

        listed = await queues(nest, key="k")
        own = await nest.ask("POST", f"/api/v1/queues/{A}/pause", x_api_key="k")
        others = [
            await nest.ask(method, f"/api/v1/queues/{B}{action}", body, x_api_key="k")
            for method, action, body in (
                ("GET", "", b""),
                ("DELETE", "", b""),
                ("POST", "/pause", b""),
                ("POST", "/concurrency", {"max": 1}),
            )
        ]
        workers = await nest.read(list[JSON], "/api/v1/workers", x_api_key="k")

        assert [row["name"] for row in listed] == [A]
        assert own.status == 200
        assert [answer.status for answer in others] == [403] * 4
        assert [row["id"] for row in workers] == [f"worker-of-{A}"]

    run(main)


# Workers.


def test_workers_of_all_shards_are_listed_once_the_one_seen_last_first() -> None:
    async def main() -> None:
        nest = Nest()
        for number, (queue, worker) in enumerate([(A, "both"), (B, "one"), (C, "both")]):
            for shard in nest.shards:
                shard.machine.pass_time(1_000 * (number + 1))
            nest[queue].fetch(queue, worker=worker)
        first, last = nest[A].now_ns, nest[C].now_ns

        listed = await nest.read(list[JSON], "/api/v1/workers")

        assert [row["id"] for row in listed] == ["both", "one"]
        assert listed[0] == {
            "id": "both",
            "hostname": "",
            "queues": msgspec.json.encode(sorted([A, C])).decode(),
            "queue_names": sorted([A, C]),
            "last_heartbeat": format_time(last),
            "started_at": format_time(first),
            "last_asked_at": format_time(last),
            "state": "unknown",
        }

    run(main)
