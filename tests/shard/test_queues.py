"""Settings of queues, and their end."""

from typing import Final

import pytest
from msgspec.structs import replace

from corvo.model import Queue, State
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Cancel, Hold, Move, Retry
from corvo.protocol.ops.queues import (
    CONCURRENCY_MAX,
    RATE_MAX,
    Clear,
    DeleteQueue,
    Drain,
    Pause,
    QueueDone,
    QueueOp,
    RemoveThrottle,
    Resume,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.protocol.ops.work import Ack, AckItem
from corvo.shard.state.select import has_work
from corvo.shard.state.tables import QUEUES
from tests.shard.shard import MS, START_NS, Shard

MAIL: Final = "mail"
SMS: Final = "sms"
"""Of four shards, number 2 has both."""


@pytest.fixture
def shard() -> Shard:
    return Shard(number=2)


def ids(shard: Shard, *, count: int = 1) -> list[str]:
    """What a fetch gets."""
    return [claim.job_id for claim in shard.fetch(count=count)]


# Settings.

SETTINGS: Final[tuple[tuple[QueueOp, str, dict[str, object]], ...]] = (
    (Pause(queue=MAIL), "paused", {"paused": True}),
    (Resume(queue=MAIL), "resumed", {}),
    (Drain(queue=MAIL), "draining", {"paused": True, "draining": True}),
    (SetConcurrency(queue=MAIL, max=3), "ok", {"max_concurrency": 3}),
    (
        SetThrottle(queue=MAIL, rate=5, window_ms=1_000),
        "ok",
        {"rate_limit": 5, "rate_window_ms": 1_000},
    ),
    (RemoveThrottle(queue=MAIL), "ok", {}),
    (SetRetention(queue=MAIL, retention_ms=60_000), "ok", {"retention_ms": 60_000}),
)


@pytest.mark.parametrize(("op", "status", "settings"), SETTINGS, ids=lambda it: type(it).__name__)
def test_a_setting_makes_the_queue_and_says_what_it_did(
    shard: Shard, op: QueueOp, status: str, settings: dict[str, object]
) -> None:
    results = [shard.do(op), shard.do(op)]

    assert results == [QueueDone(MAIL, status)] * 2
    queue = shard.queue(MAIL)
    expected = Queue(name=MAIL, created_ns=queue.created_ns, rate_since_ns=queue.rate_since_ns)
    assert queue == replace(expected, **settings)  # type: ignore[arg-type]
    assert queue.created_ns > 0
    shard.check()


@pytest.mark.parametrize("op", [Pause(queue=MAIL), Drain(queue=MAIL)])
def test_a_paused_queue_gives_nothing_until_it_is_resumed(shard: Shard, op: QueueOp) -> None:
    job_ids = shard.put(NewJob(queue=MAIL))
    shard.do(op)
    before = ids(shard)
    shard.tx.touched = {}

    shard.do(Resume(queue=MAIL))

    assert before == []
    assert list(shard.tx.touched) == [MAIL]
    assert ids(shard) == job_ids
    assert not shard.queue(MAIL).draining


def test_a_pause_keeps_the_intention_to_drain(shard: Shard) -> None:
    shard.do(Drain(queue=MAIL))

    shard.do(Pause(queue=MAIL))

    assert shard.queue(MAIL).draining


def test_a_limit_of_concurrency_takes_no_job_away_and_gives_none_until_one_ends(
    shard: Shard,
) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 4)
    first, second = shard.fetch(count=2)
    shard.do(SetConcurrency(queue=MAIL, max=1))
    given = [ids(shard)]

    for claim in (first, second):
        shard.do(Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token)]))
        given.append(ids(shard))

    assert [len(some) for some in given] == [0, 0, 1]
    shard.tx.touched = {}
    shard.do(SetConcurrency(queue=MAIL, max=0))
    assert list(shard.tx.touched) == [MAIL]
    assert len(ids(shard)) == 1


def test_a_throttle_counts_the_fetches_of_its_window(shard: Shard) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 8)
    shard.do(SetThrottle(queue=MAIL, rate=2, window_ms=1_000))
    given = [len(ids(shard, count=5))]

    shard.pass_time(999)
    given.append(len(ids(shard, count=5)))
    shard.pass_time(1)
    given.append(len(ids(shard, count=5)))

    assert given == [2, 0, 2]


def test_a_changed_throttle_looks_at_the_rows_again(shard: Shard) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 8)
    shard.do(SetThrottle(queue=MAIL, rate=2, window_ms=1_000))
    shard.fetch(count=2)
    shard.pass_time(1_500)
    given = [len(ids(shard, count=1))]

    shard.do(SetThrottle(queue=MAIL, rate=3, window_ms=10_000))
    given.append(len(ids(shard, count=5)))
    shard.tx.touched = {}
    shard.do(RemoveThrottle(queue=MAIL))
    remembered = list(shard.tx.rates)
    given.append(len(ids(shard, count=5)))

    assert list(shard.tx.touched) == [MAIL]
    assert remembered == []
    assert given[0] == 1
    assert given[2] == 8 - 2 - sum(given[:2])
    shard.reopen()
    shard.check()


BAD: Final[tuple[tuple[QueueOp, str], ...]] = (
    (SetConcurrency(queue=MAIL, max=CONCURRENCY_MAX + 1), "max"),
    (SetThrottle(queue=MAIL, rate=RATE_MAX + 1, window_ms=1), "rate"),
    (SetThrottle(queue=MAIL, rate=1, window_ms=0), "window_ms"),
    (Pause(queue="a\0b"), "queue"),
    (SetConcurrency(queue="a\nb", max=1), "queue"),
    (SetThrottle(queue="a\0b", rate=1, window_ms=1), "queue"),
    (Clear(queue="ü" * 200), "queue"),
)


@pytest.mark.parametrize(("op", "field"), BAD)
def test_a_bad_setting_is_refused_at_the_door_and_named(op: QueueOp, field: str) -> None:
    refused = op.check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("bad_request", field)


@pytest.mark.parametrize(
    "op",
    [
        SetConcurrency(queue=MAIL, max=CONCURRENCY_MAX),
        SetThrottle(queue=MAIL, rate=RATE_MAX, window_ms=1),
        Move(job_ids=["x"], queue=MAIL),
    ],
)
def test_the_greatest_setting_is_let_in(op: QueueOp | Move) -> None:
    assert op.check(Limits()) is None


# The end of a queue.


def one_of_each(shard: Shard) -> dict[State, str]:
    """A job of every state that a queue can be cleared of, and of some that it cannot."""
    later = START_NS + 3_600_000 * MS
    active, done, held, cancelled = shard.put(*[NewJob(queue=MAIL)] * 4)
    claims = shard.fetch(count=2)
    shard.do(Ack(acks=[AckItem(job_id=done, lease_token=claims[1].lease_token)]))
    shard.do(Hold(job_ids=[held]))
    shard.do(Cancel(job_ids=[cancelled]))
    pending, urgent, scheduled = shard.put(
        NewJob(queue=MAIL),
        NewJob(queue=MAIL, priority=0),
        NewJob(queue=MAIL, scheduled_ns=later),
    )
    return {
        State.ACTIVE: active,
        State.COMPLETED: done,
        State.HELD: held,
        State.CANCELLED: cancelled,
        State.PENDING: pending,
        State.RETRYING: urgent,
        State.SCHEDULED: scheduled,
    }


def is_there(shard: Shard, job_id: str) -> bool:
    """Whether a job is there for an op."""
    [result] = shard.do(Cancel(job_ids=[job_id])).results
    return not isinstance(result, Rejected) or result.code != "job_not_found"


def test_a_cleared_queue_has_no_waiting_jobs_for_any_op_from_then_on(shard: Shard) -> None:
    jobs = one_of_each(shard)

    result = shard.do(Clear(queue=MAIL))

    assert result == QueueDone(MAIL, "cleared")
    assert shard.fetch(count=9) == []
    assert {state for state, job_id in jobs.items() if is_there(shard, job_id)} == {
        State.ACTIVE,
        State.COMPLETED,
        State.HELD,
        State.CANCELLED,
    }
    shard.check()


def test_what_comes_into_a_cleared_queue_afterwards_is_not_cleared(shard: Shard) -> None:
    jobs = one_of_each(shard)
    [moved] = shard.put(NewJob(queue=SMS, scheduled_ns=START_NS + 3_600_000 * MS))
    shard.do(Clear(queue=MAIL))

    shard.do(Approve(job_ids=[jobs[State.HELD]]))
    shard.do(Retry(job_ids=[jobs[State.COMPLETED]]))
    shard.do(Move(job_ids=[moved], queue=MAIL))
    [put] = shard.put(NewJob(queue=MAIL))

    assert ids(shard, count=9) == [jobs[State.HELD], jobs[State.COMPLETED], put]
    assert is_there(shard, moved)
    shard.check()


def test_a_wider_window_counts_what_was_in_the_narrower_one_and_no_more(shard: Shard) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 4)
    shard.do(SetThrottle(queue=MAIL, rate=1, window_ms=200))
    old = ids(shard)
    shard.pass_time(300)
    recent = ids(shard)

    shard.do(SetThrottle(queue=MAIL, rate=2, window_ms=10_000))

    given = ids(shard, count=4)
    assert [len(old), len(recent), len(given)] == [1, 1, 1]
    shard.check_replay()


@pytest.mark.parametrize("op", [RemoveThrottle(queue=MAIL), DeleteQueue(queue=MAIL)])
def test_what_was_fetched_without_a_limit_or_under_one_that_ended_does_not_count(
    shard: Shard, op: QueueOp
) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 2)
    shard.do(SetThrottle(queue=MAIL, rate=2, window_ms=60_000))
    ids(shard, count=1)
    shard.do(op)
    shard.put(*[NewJob(queue=MAIL)] * 4)
    ids(shard, count=1)

    shard.do(SetThrottle(queue=MAIL, rate=2, window_ms=60_000))

    assert len(ids(shard, count=4)) == 2
    shard.check_replay()


@pytest.mark.parametrize("make", [Clear, DeleteQueue])
def test_jobs_of_the_same_entry_are_gone_if_they_come_before(
    shard: Shard, make: type[Clear | DeleteQueue]
) -> None:
    shard.entry(
        Enqueue(jobs=[NewJob(queue=MAIL, id="before")]),
        make(queue=MAIL),
        Enqueue(jobs=[NewJob(queue=MAIL, id="after")]),
    )

    assert ids(shard, count=9) == ["after"]
    shard.check()


def test_a_deleted_queue_has_no_jobs_and_no_settings(shard: Shard) -> None:
    jobs = one_of_each(shard)
    shard.do(SetConcurrency(queue=MAIL, max=9))
    shard.do(SetThrottle(queue=MAIL, rate=1, window_ms=10_000))
    shard.fetch()
    shard.do(Pause(queue=MAIL))
    assert MAIL in shard.tx.rates

    result = shard.do(DeleteQueue(queue=MAIL))

    assert result == QueueDone(MAIL, "deleted")
    assert not any(is_there(shard, job_id) for job_id in jobs.values())
    queue = shard.queue(MAIL)
    assert queue == Queue(name=MAIL, deleted_ns=queue.deleted_ns)
    assert MAIL not in shard.tx.rates
    assert shard.fetch(count=9) == []
    shard.check()


def test_a_deleted_queue_begins_anew_with_its_next_job_or_setting(shard: Shard) -> None:
    one_of_each(shard)
    shard.do(SetConcurrency(queue=MAIL, max=1))
    shard.do(DeleteQueue(queue=MAIL))

    shard.do(SetRetention(queue=MAIL, retention_ms=5_000))
    born_ns = shard.now_ns
    put = shard.put(*[NewJob(queue=MAIL)] * 2)

    assert ids(shard, count=9) == put
    queue = shard.queue(MAIL)
    assert (queue.created_ns, queue.retention_ms, queue.max_concurrency) == (born_ns, 5_000, 0)
    shard.check()


@pytest.mark.parametrize("make", [Clear, DeleteQueue])
def test_a_queue_that_nobody_named_stays_unknown(
    shard: Shard, make: type[Clear | DeleteQueue]
) -> None:
    shard.do(make(queue=MAIL))

    assert QUEUES.get(shard.tx, MAIL) is None
    assert not has_work(shard.tx, MAIL, now_ns=shard.now_ns).count
    shard.check()


@pytest.mark.parametrize("make", [Clear, DeleteQueue])
def test_an_end_costs_the_same_however_many_jobs_there_are(
    shard: Shard, make: type[Clear | DeleteQueue]
) -> None:
    shard.put(*[NewJob(queue=MAIL)] * 1_000)
    written: list[int] = []
    write = shard.store.write

    def counting(changes: dict[bytes, bytes | None]) -> None:
        written.append(len(changes))
        write(changes)

    shard.store.write = counting  # type: ignore[method-assign, assignment]

    shard.do(make(queue=MAIL))

    assert written[0] < 10
