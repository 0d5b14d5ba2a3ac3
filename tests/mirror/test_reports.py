"""What dashboards are told: rates, throughput, beats and the summary of queues."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.model import Job, State
from corvo.protocol.questions import (
    AllRates,
    Beats,
    Count,
    Counted,
    Filter,
    Found,
    GetBeats,
    GetRates,
    GetStanding,
    GetSummary,
    GetThroughput,
    Minute,
    QueueMinutes,
    Rates,
    Search,
    SearchBody,
    Summary,
    Throughput,
)
from corvo.scopes import EVERYTHING, NOTHING, Scope
from tests.mirror.shelves import NOW_NS, Shelf
from tests.mirror.twin import EPOCH_NS, Kept

PRESENT = NOW_NS // 60_000_000_000
"""10:10; the last whole minute is 10:09."""


def shelf_of(*rows: tuple[str, int, int, int]) -> Shelf:
    """Queue, shard, minutes ago, and how many of each thing."""
    shelf = Shelf()
    for queue, shard, ago, number in rows:
        numbers = tuple(number * (place + 1) for place in range(6))
        shelf.connection.execute(
            "INSERT INTO throughput (queue, shard, minute, enqueued, started, completed, failed,"
            " dead, cancelled) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (queue, shard, PRESENT - ago, *numbers),
        )
    return shelf


def test_rates_are_of_whole_minutes_and_of_all_shards_together() -> None:
    shelf = shelf_of(
        ("a", 0, 0, 1_000), ("a", 0, 1, 1), ("a", 1, 1, 10), ("a", 0, 5, 100), ("a", 0, 6, 1_000),
        ("b", 0, 2, 1), ("c", 0, 1, 0),
    )  # fmt: skip

    found = shelf.ask(GetRates(scope=EVERYTHING), AllRates).queues

    assert found == [
        Rates(
            queue="a",
            enqueued_1m=11,
            started_1m=22,
            completed_1m=33,
            failed_1m=44,
            enqueued_5m=111,
            started_5m=222,
            completed_5m=333,
            failed_5m=444,
        ),
        Rates(
            queue="b",
            enqueued_1m=0,
            started_1m=0,
            completed_1m=0,
            failed_1m=0,
            enqueued_5m=1,
            started_5m=2,
            completed_5m=3,
            failed_5m=4,
        ),
    ]


def test_rates_are_of_queues_that_are_asked_for_and_may_be_seen() -> None:
    shelf = shelf_of(("a", 0, 1, 1), ("ab", 0, 1, 1), ("b", 0, 1, 1))

    named = shelf.ask(GetRates(scope=EVERYTHING, queues=("b", "nobody", "a")), AllRates).queues
    seen = shelf.ask(GetRates(scope=Scope(("a*",))), AllRates).queues
    both = shelf.ask(GetRates(scope=Scope(("a*",)), queues=("b", "ab")), AllRates).queues

    assert [one.queue for one in named] == ["a", "b"]
    assert [one.queue for one in seen] == ["a", "ab"]
    assert [one.queue for one in both] == ["ab"]


def test_throughput_has_every_whole_minute_and_zeros_where_nothing_went_on() -> None:
    shelf = shelf_of(
        ("a", 0, 0, 9), ("a", 0, 1, 1), ("b", 1, 1, 10), ("a", 0, 3, 5), ("a", 0, 4, 7),
        ("_corvo.bulk", 0, 1, 500),
    )  # fmt: skip

    everything = shelf.ask(GetThroughput(scope=EVERYTHING, minutes=3), Throughput).minutes
    one = shelf.ask(GetThroughput(scope=EVERYTHING, queue="a", minutes=3), Throughput).minutes
    seen = shelf.ask(GetThroughput(scope=Scope(("b*",)), minutes=1), Throughput).minutes

    assert [minute.minute for minute in everything] == [
        "2026-02-11T10:07:00Z",
        "2026-02-11T10:08:00Z",
        "2026-02-11T10:09:00Z",
    ]
    assert [minute.enqueued for minute in everything] == [5, 0, 11]
    assert [minute.cancelled for minute in one] == [30, 0, 6]
    assert seen == [
        Minute(
            minute="2026-02-11T10:09:00Z",
            enqueued=10,
            started=20,
            completed=30,
            failed=40,
            dead=50,
            cancelled=60,
        )
    ]


def active(number: int, worker: str, queue: str, *, lease_s: int, beat_s: int) -> Kept:
    job = Job(
        id=f"s00_job_{number}",
        queue=queue,
        state=State.ACTIVE,
        payload=b"{}",
        created_ns=EPOCH_NS,
        order_ns=number,
        worker_id=worker,
        hostname="h1",
        lease_ms=lease_s * 1_000,
        lease_expires_ns=EPOCH_NS + (beat_s + lease_s) * 10**9,
        started_ns=EPOCH_NS + number,
    )
    return Kept(job, number % 3)


def test_a_worker_beat_when_the_lease_of_any_of_its_jobs_began_anew() -> None:
    shelf = Shelf(
        [
            active(1, "w1", "b", lease_s=300, beat_s=5),
            active(2, "w1", "a", lease_s=30, beat_s=9),
            active(3, "w1", "a", lease_s=30, beat_s=8),
            active(4, "w2", "a", lease_s=30, beat_s=1),
        ]
    )

    found = shelf.ask(GetBeats(scope=EVERYTHING), Beats).workers
    seen = shelf.ask(GetBeats(scope=Scope(("b",))), Beats).workers

    assert [(one.worker_id, one.active, one.queues) for one in found] == [
        ("w1", 3, ("a", "b")),
        ("w2", 1, ("a",)),
    ]
    assert found[0].beat_ns == EPOCH_NS + 9 * 10**9
    assert found[0].started_ns == EPOCH_NS + 3
    assert found[0].hostname == "h1"
    assert [(one.worker_id, one.active) for one in seen] == [("w1", 1)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "ab", "_corvo.bulk")),
            st.sampled_from((State.PENDING, State.DEAD)),
            st.integers(0, 2),
            st.integers(0, 9),
        ),
        max_size=12,
    ),
    st.sampled_from((EVERYTHING, NOTHING, *map(Scope, (("a",), ("a*",), ("b",))))),
)
def test_the_summary_counts_queues_and_knows_their_oldest_pending_job(
    told: list[tuple[str, State, int, int]], scope: Scope
) -> None:
    keeps = [
        Kept(
            Job(
                id=f"s00_job_{number}",
                queue=queue,
                state=state,
                payload=b"{}",
                created_ns=EPOCH_NS + after,
                order_ns=number,
                priority=priority,
            ),
            number % 3,
        )
        for number, (queue, state, priority, after) in enumerate(told)
    ]
    shelf = Shelf(keeps)

    found = shelf.ask(GetSummary(scope=scope), Summary).queues

    visible = [
        kept
        for kept in keeps
        if kept.job.queue != "_corvo.bulk" and kept.job.queue in seen_by(scope)
    ]
    assert [one.name for one in found] == sorted({kept.job.queue for kept in visible})
    for one in found:
        mine = [kept.job for kept in visible if kept.job.queue == one.name]
        pending = [job.created_ns for job in mine if job.state is State.PENDING]
        assert one.counts["pending"] == len(pending)
        assert one.counts["dead"] == len(mine) - len(pending)
        assert sum(one.counts.values()) == len(mine)
        assert one.oldest_pending_at == (shown(min(pending)) if pending else msgspec.UNSET)


def seen_by(scope: Scope) -> set[str]:
    if scope == EVERYTHING:
        return {"a", "ab", "b"}
    return {"a", "ab"} if scope.names == ("a*",) else set(scope.names)


def shown(at_ns: int) -> str:
    decimals = f".{at_ns - EPOCH_NS:09d}".rstrip("0") if at_ns > EPOCH_NS else ""
    return f"2026-02-11T10:00:00{decimals}Z"


def test_the_summary_has_queues_without_jobs_and_says_which_are_paused() -> None:
    shelf = shelf_of(("a", 0, 1, 1))
    for name, shard, paused in (("a", 0, 0), ("a", 1, 1), ("z", 0, 0)):
        shelf.connection.execute(
            "INSERT INTO queues (name, shard, paused, created_at) VALUES (?, ?, ?, '')",
            (name, shard, paused),
        )

    found = shelf.ask(GetSummary(scope=EVERYTHING), Summary).queues

    assert [(one.name, one.paused, one.enqueued_1m) for one in found] == [
        ("a", True, 1),
        ("z", False, 0),
    ]


def test_the_summary_counts_the_present_minute_and_lists_those_before_it() -> None:
    shelf = shelf_of(
        ("a", 0, 0, 5), ("a", 1, 0, 1), ("a", 0, 1, 7), ("a", 0, 3, 2), ("b", 0, 9, 1)
    )  # fmt: skip
    for queue in ("a", "b"):
        shelf.connection.execute(
            "INSERT INTO queues (name, shard, draining, max_concurrency, created_at)"
            " VALUES (?, 0, 1, 8, '')",
            (queue,),
        )

    told = shelf.ask(GetSummary(scope=EVERYTHING, minutes=3), Summary)
    plain = shelf.ask(GetSummary(scope=EVERYTHING), Summary)

    a, b = told.queues
    assert told.minute == "2026-02-11T10:10:00Z"
    assert (a.enqueued_this_minute, a.completed_this_minute, a.failed_this_minute) == (6, 18, 24)
    assert (a.enqueued_1m, a.completed_1m, a.failed_1m) == (7, 21, 28)
    assert a.minutes == QueueMinutes(enqueued=[2, 0, 7], completed=[6, 0, 21], failed=[8, 0, 28])
    assert (a.draining, a.max_concurrency) == (True, 8)
    assert (b.enqueued_this_minute, b.enqueued_1m, b.minutes) == (0, 0, msgspec.UNSET)
    assert [queue.minutes for queue in plain.queues] == [msgspec.UNSET, msgspec.UNSET]


def test_a_report_that_has_no_time_is_refused() -> None:
    shelf = Shelf(active(number, f"w{number}", "a", lease_s=1, beat_s=1) for number in range(500))
    question = GetBeats(scope=EVERYTHING, budget_ms=1)

    refused = shelf.refusal(question, every=10)

    assert refused.code == "over_budget"


def test_what_the_tables_do_not_know_is_refused() -> None:
    refused = Shelf().refusal(GetStanding())

    assert refused.code == "unknown_query"


def test_every_answer_says_how_far_the_mirror_has_come() -> None:
    shelf = Shelf()
    shelf.connection.execute("UPDATE cursors SET pass_key = x'00' WHERE shard = 1")

    found = shelf.ask(GetRates(scope=EVERYTHING), AllRates).as_of

    assert [(name, place.index, place.is_whole) for name, place in found.items()] == [
        ("s0", 100, True),
        ("s1", 101, False),
        ("s2", 102, True),
    ]
    assert found["s0"].at == "2026-02-11T10:10:00Z"


def test_nothing_is_known_to_be_whole_of_a_shard_of_which_nothing_was_told_yet() -> None:
    shelf = Shelf([active(1, "w1", "a", lease_s=1, beat_s=1)])
    shelf.connection.execute("UPDATE cursors SET idx = 0, now_ns = 0 WHERE shard = 1")

    rates = shelf.ask(GetRates(scope=EVERYTHING), AllRates)
    found = shelf.ask(Search(scope=EVERYTHING), Found)
    checked = shelf.ask(Search(scope=EVERYTHING, search=SearchBody(kind="x")), Found)
    counted = shelf.ask(Count(scope=EVERYTHING), Counted)

    assert [place.is_whole for place in rates.as_of.values()] == [True, False, True]
    assert (found.total, found.total_is_exact) == (1, False)
    assert (checked.total, checked.total_is_exact) == (0, False)
    assert (counted.total, counted.is_exact) == (1, False)


def test_without_any_shard_nothing_is_exact() -> None:
    shelf = Shelf()
    shelf.connection.execute("DELETE FROM cursors")

    found = shelf.ask(Search(scope=EVERYTHING), Found)
    counted = shelf.ask(Count(scope=EVERYTHING), Counted)

    assert (found.total_is_exact, counted.is_exact) == (False, False)


def in_shards(*queues: str) -> Shelf:
    """Three jobs of each queue; those of the first are in shard 1."""
    return Shelf(
        Kept(active(10 * place + number, "w1", queue, lease_s=1, beat_s=1).job, 1 - place)
        for place, queue in enumerate(queues)
        for number in range(3)
    )


def behind(shelf: Shelf, *, counted: int) -> None:
    """Shard 1 is behind, and has told more counts of queue `a` than jobs."""
    shelf.connection.execute("UPDATE cursors SET through = idx + 9 WHERE shard = 1")
    shelf.connection.execute("UPDATE queue_counts SET active = ? WHERE queue = 'a'", (counted,))


def totals(shelf: Shelf, **words: object) -> set[tuple[int, bool]]:
    """What a page says, on which not all jobs have room, and what a count says."""
    given = msgspec.convert(words, Filter)
    search = msgspec.convert({**words, "limit": 1}, SearchBody)
    found = shelf.ask(Search(scope=EVERYTHING, search=search), Found)
    counted = shelf.ask(Count(scope=EVERYTHING, filter=given, samples=1), Counted)
    return {(found.total, found.total_is_exact), (counted.total, counted.is_exact)}


def test_what_a_shard_counts_ahead_of_its_jobs_is_counted_again_where_that_is_quick() -> None:
    shelf = in_shards("a")
    behind(shelf, counted=90_000)

    assert totals(shelf) == {(3, True)}
    assert totals(shelf, queue="a") == {(3, True)}
    assert totals(shelf, queue="a", state=["active"]) == {(3, True)}
    assert totals(shelf, queue="a", state=["dead"]) == {(0, True)}


def test_what_a_shard_counts_ahead_of_its_jobs_is_not_called_exact() -> None:
    shelf = in_shards("a")
    behind(shelf, counted=900_000)

    assert totals(shelf) == {(900_000, False)}
    assert totals(shelf, queue="a") == {(900_000, False)}


def test_jobs_that_came_ahead_of_all_counts_of_their_queue_are_counted_all_the_same() -> None:
    shelf = in_shards("a")
    behind(shelf, counted=1)
    shelf.connection.execute("DELETE FROM queue_counts")

    assert totals(shelf, queue="a") == {(3, True)}
    assert totals(shelf, queue="nobody") == {(0, True)}


def test_a_queue_keeps_its_total_while_other_shards_are_behind() -> None:
    shelf = in_shards("a", "b")
    behind(shelf, counted=900_000)
    shelf.connection.execute("UPDATE queue_counts SET active = 800000 WHERE queue = 'b'")

    assert totals(shelf, queue="b") == {(800_000, True)}
    assert totals(shelf) == {(1_700_000, False)}


def test_as_soon_as_a_cursor_has_come_to_what_was_told_counts_are_exact_again() -> None:
    shelf = in_shards("a")
    behind(shelf, counted=900_000)
    shelf.connection.execute("UPDATE cursors SET idx = through WHERE shard = 1")

    assert totals(shelf, queue="a") == {(900_000, True)}


def test_a_total_is_not_called_exact_while_a_pass_is_under_way() -> None:
    shelf = Shelf([active(1, "w1", "a", lease_s=1, beat_s=1)])
    before = shelf.ask(Search(scope=EVERYTHING), dict[str, object])
    shelf.connection.execute("UPDATE cursors SET pass_key = x'00' WHERE shard = 1")

    found = shelf.ask(Search(scope=EVERYTHING), dict[str, object])

    assert (before["total"], before["total_is_exact"]) == (1, True)
    assert (found["total"], found["total_is_exact"]) == (1, False)
