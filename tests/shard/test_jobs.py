"""What becomes of jobs that are named by their ids: each op, from each state."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import pytest

from corvo.model import STATES, State
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import (
    Approve,
    Cancel,
    ChangePriority,
    Delete,
    Done,
    Expedite,
    Hold,
    JobsOp,
    Move,
    Reject,
    Requeue,
    Retry,
)
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Fail,
    FailItem,
    Heartbeat,
    Release,
    ReleaseItem,
    Snooze,
    SnoozeItem,
)
from corvo.shard.ops.upkeep import Reclaim
from corvo.shard.state.tables import REQUESTS, queue_keys
from tests.shard.shard import MS, START_NS, Shard

NEAR: Final = "mail"
ALSO_NEAR: Final = "sms"
"""Of four shards, number 2 has both."""
OWN: Final = "_corvo.bulk"
LEASE_MS: Final = 60_000


Say: TypeAlias = Callable[[str, int | None, bool], Ack | Fail | Heartbeat | Release | Snooze]
SAYINGS: Final[list[Say]] = [
    lambda it, token, own: Ack(acks=[AckItem(job_id=it, lease_token=token, is_own=own)]),
    lambda it, token, own: Fail(fails=[FailItem(job_id=it, lease_token=token, is_own=own)]),
    lambda it, token, own: Heartbeat(jobs=[BeatItem(job_id=it, lease_token=token, is_own=own)]),
    lambda it, token, own: Release(jobs=[ReleaseItem(job_id=it, lease_token=token, is_own=own)]),
    lambda it, token, own: Snooze(
        jobs=[SnoozeItem(job_id=it, lease_token=token, is_own=own, delay_ms=1)]
    ),
]
"""Each says something of a job under a lease."""


def in_state(shard: Shard, state: State, **fields: object) -> str:
    """A job that came into a state by itself, as far as ops on jobs allow."""
    later = START_NS + 3_600_000 * MS
    new = NewJob(queue=NEAR, scheduled_ns=later if state is State.SCHEDULED else 0)
    [job_id] = shard.put(msgspec.structs.replace(new, **fields))  # type: ignore[arg-type]
    match state:
        case State.ACTIVE:
            shard.fetch()
        case State.HELD:
            shard.do(Hold(job_ids=[job_id], reason="look at it"))
        case State.COMPLETED:
            [claim] = shard.fetch()
            shard.do(Ack(acks=[AckItem(job_id=job_id, lease_token=claim.lease_token)]))
        case State.RETRYING | State.DEAD:
            shard.fetch()
            fail(shard, job_id, state)
        case State.CANCELLED:
            shard.do(Cancel(job_ids=[job_id]))
        case _:
            pass
    assert shard.state(job_id) is state
    return job_id


def fail(shard: Shard, job_id: str, state: State) -> None:
    shard.do(Fail(fails=[FailItem(job_id=job_id, error="no", retryable=state is State.RETRYING)]))


def one(shard: Shard, op: JobsOp) -> Done | Rejected:
    """The only result of an op on one job; everything derived is as it should be."""
    [result] = shard.do(op).results
    shard.check()
    return result


@pytest.fixture
def shard() -> Shard:
    return Shard(number=2)


# Which states an op takes.

OPS: Final[dict[str, tuple[Callable[[str], JobsOp], dict[State, tuple[str, State | None]]]]] = {
    "retry": (
        lambda job_id: Retry(job_ids=[job_id]),
        dict.fromkeys(
            (State.COMPLETED, State.DEAD, State.CANCELLED, State.SCHEDULED),
            ("pending", State.PENDING),
        ),
    ),
    "expedite": (
        lambda job_id: Expedite(job_ids=[job_id]),
        dict.fromkeys((State.SCHEDULED, State.RETRYING), ("pending", State.PENDING)),
    ),
    "requeue": (
        lambda job_id: Requeue(job_ids=[job_id]),
        {State.DEAD: ("pending", State.PENDING)},
    ),
    "cancel": (
        lambda job_id: Cancel(job_ids=[job_id], why="not needed"),
        {
            **dict.fromkeys(
                (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD),
                ("cancelled", State.CANCELLED),
            ),
            State.ACTIVE: ("cancelling", State.ACTIVE),
        },
    ),
    "delete": (
        lambda job_id: Delete(job_ids=[job_id]),
        dict.fromkeys(STATES, ("deleted", None)),
    ),
    "hold": (
        lambda job_id: Hold(job_ids=[job_id], reason="wait"),
        dict.fromkeys(
            (State.PENDING, State.SCHEDULED, State.RETRYING, State.ACTIVE), ("held", State.HELD)
        ),
    ),
    "approve": (
        lambda job_id: Approve(job_ids=[job_id]),
        {State.HELD: ("pending", State.PENDING)},
    ),
    "reject": (
        lambda job_id: Reject(job_ids=[job_id], why="nonsense"),
        {State.HELD: ("dead", State.DEAD)},
    ),
    "move": (
        lambda job_id: Move(job_ids=[job_id], queue=ALSO_NEAR),
        {state: ("moved", state) for state in STATES},
    ),
    "change priority": (
        lambda job_id: ChangePriority(job_ids=[job_id], priority=0),
        {
            state: (state.value, state)
            for state in (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD)
        },
    ),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
@pytest.mark.parametrize("name", OPS)
def test_an_op_takes_a_job_from_its_states_and_refuses_it_in_all_others(
    shard: Shard, name: str, state: State
) -> None:
    make, taken = OPS[name]
    job_id = in_state(shard, state)
    before = shard.job(job_id)
    status, after = taken.get(state, (None, state))

    result = one(shard, make(job_id))

    if status is None:
        assert isinstance(result, Rejected)
        assert (result.code, result.job_id) == ("bad_state", job_id)
        assert f"is {state.value}:" in result.error
        assert shard.job(job_id) == before
    else:
        assert result == Done(job_id, status)
        found = shard.find(job_id)
        assert (found.state if found is not None else None) is after


@pytest.mark.parametrize("name", OPS)
def test_a_job_that_is_not_there_is_refused_by_every_op(shard: Shard, name: str) -> None:
    make, _ = OPS[name]

    result = one(shard, make("nobody"))

    assert result == Rejected("job_not_found", "job nobody not found", job_id="nobody")


def test_each_job_of_an_op_is_done_by_itself_and_in_order(shard: Shard) -> None:
    first, second = shard.put(NewJob(queue=NEAR), NewJob(queue=NEAR))

    results = shard.do(Delete(job_ids=[first, "nobody", first, second])).results

    assert [getattr(result, "code", "") for result in results] == [
        "",
        "job_not_found",
        "job_not_found",
        "",
    ]
    assert shard.counts(NEAR) == {}


# Back to the queue.


def test_a_retried_job_begins_anew_behind_the_others_and_keeps_what_it_made(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD, checkpoint=msgspec.Raw(b'{"step":2}'))
    [waiting] = shard.put(NewJob(queue=NEAR))
    before = shard.job(job_id)

    shard.do(Retry(job_ids=[job_id], by="ann"))

    job = shard.job(job_id)
    assert (job.attempt, job.crashes, job.finished_ns, job.failed_ns) == (0, 0, 0, 0)
    assert (job.checkpoint, job.failures, job.lease_token) == (b'{"step":2}', 1, before.lease_token)
    assert (job.trail[-1].what, job.trail[-1].by) == ("retried", "ann")
    assert [claim.job_id for claim in shard.fetch(count=2)] == [waiting, job_id]
    assert shard.job(job_id).lease_token > before.lease_token
    shard.check()


@pytest.mark.parametrize(("make", "counted"), [(Retry, (0, 0)), (Requeue, (1, 1))])
def test_a_requeued_job_keeps_its_attempts_and_crashes_and_a_retried_one_does_not(
    shard: Shard, make: type[Retry | Requeue], counted: tuple[int, int]
) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))
    shard.fetch(lease_ms=1_000)
    shard.pass_time(1_000)
    shard.do(Reclaim(limit=1))
    shard.fetch()
    fail(shard, job_id, State.DEAD)

    shard.do(make(job_ids=[job_id]))

    job = shard.job(job_id)
    assert (job.attempt, job.crashes) == counted


def test_an_expedited_job_does_not_wait_for_its_next_attempt_and_keeps_its_attempts(
    shard: Shard,
) -> None:
    job_id = in_state(shard, State.RETRYING)
    before = shard.job(job_id)

    shard.do(Expedite(job_ids=[job_id]))

    [claim] = shard.fetch()
    assert (claim.job_id, claim.attempt) == (job_id, before.attempt + 1)
    shard.check()


def test_a_scheduled_job_that_is_retried_does_not_wait_for_its_time(shard: Shard) -> None:
    job_id = in_state(shard, State.SCHEDULED)

    shard.do(Retry(job_ids=[job_id]))

    assert [claim.job_id for claim in shard.fetch()] == [job_id]
    shard.check()


@pytest.mark.parametrize("make", [Retry, Requeue])
def test_back_in_the_queue_a_job_takes_its_unique_lock_again(
    shard: Shard, make: type[Retry | Requeue]
) -> None:
    job_id = in_state(shard, State.DEAD, unique_key="k", unique_period_ms=5_000)
    assert shard.job(job_id).unique_until_ns == 0

    shard.do(make(job_ids=[job_id]))

    assert shard.job(job_id).unique_until_ns == shard.now_ns + 5_000 * MS
    shard.check()


@pytest.mark.parametrize("make", [Retry, Requeue])
def test_a_job_whose_lock_another_has_does_not_come_back(
    shard: Shard, make: type[Retry | Requeue]
) -> None:
    job_id = in_state(shard, State.DEAD, unique_key="k")
    [holder] = shard.put(NewJob(queue=NEAR, unique_key="k"))
    before = shard.job(job_id)

    result = one(shard, make(job_ids=[job_id]))

    assert isinstance(result, Rejected)
    assert (result.code, result.job_id) == ("duplicate", holder)
    assert shard.job(job_id) == before


def test_a_lock_whose_time_is_over_is_taken_from_its_holder(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD, unique_key="k")
    [holder] = shard.put(NewJob(queue=NEAR, unique_key="k", unique_period_ms=1_000))
    shard.pass_time(1_000)

    result = one(shard, Retry(job_ids=[job_id]))

    assert result == Done(job_id, "pending")
    assert shard.job(holder).unique_until_ns == 0
    assert shard.job(job_id).unique_until_ns > 0


def test_a_scheduled_job_that_is_retried_has_its_own_lock_for_a_whole_period(shard: Shard) -> None:
    job_id = in_state(shard, State.SCHEDULED, unique_key="k", unique_period_ms=5_000)
    shard.pass_time(4_000)

    shard.do(Retry(job_ids=[job_id]))

    assert shard.job(job_id).unique_until_ns == shard.now_ns + 5_000 * MS
    shard.check()


# The end.


def test_a_cancelled_job_says_who_and_why_and_frees_its_lock(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR, unique_key="k"))

    shard.do(Cancel(job_ids=[job_id], why="not needed", by="ann"))

    last = shard.job(job_id).trail[-1]
    assert (last.what, last.by, last.why) == ("cancelled", "ann", "not needed")
    assert shard.put(NewJob(queue=NEAR, unique_key="k")) != [job_id]
    shard.check()


def test_a_worker_that_is_asked_to_stop_may_still_complete_the_job(shard: Shard) -> None:
    job_id = in_state(shard, State.ACTIVE)

    results = [one(shard, Cancel(job_ids=[job_id], why=why)) for why in ("first", "again")]

    assert results == [Done(job_id, "cancelling")] * 2
    assert [event.why for event in shard.job(job_id).trail if event.what == "asked to stop"] == [
        "first"
    ]
    shard.do(Ack(acks=[AckItem(job_id=job_id)]))
    assert shard.state(job_id) is State.COMPLETED


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
def test_nothing_is_left_of_a_deleted_job(shard: Shard, state: State) -> None:
    job_id = in_state(
        shard, state, unique_key="k", expire_after_ms=9_000_000, max_run_time_ms=50_000
    )

    shard.do(Delete(job_ids=[job_id]))

    shard.check()
    left = [key for key, _ in shard.store.scan(b"", b"\xff", limit=1_000) if job_id.encode() in key]
    assert left == []
    assert shard.counts(NEAR) == {}


# Somebody's word.


def test_a_held_job_is_not_given_out_and_its_worker_has_lost_it(shard: Shard) -> None:
    job_id = in_state(shard, State.ACTIVE)

    shard.do(Hold(job_ids=[job_id], reason="wait", by="ann"))

    job = shard.job(job_id)
    assert (job.hold_reason, job.lease_expires_ns, job.worker_id) == ("wait", 0, "")
    assert (job.held_ns, job.trail[-1].by) == (shard.now_ns, "ann")
    token = job.lease_token
    [result] = shard.do(Ack(acks=[AckItem(job_id=job_id, lease_token=token)])).results
    assert isinstance(result, Rejected)
    assert result.code == "lease_lost"
    assert shard.fetch() == []


def test_a_worker_holds_its_own_job_under_its_token(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))
    [claim] = shard.fetch()

    result = one(shard, Hold(job_ids=[job_id], lease_token=claim.lease_token))

    assert result == Done(job_id, "held")


def test_a_hold_under_a_lease_that_is_over_is_refused(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))
    [claim] = shard.fetch(lease_ms=LEASE_MS)
    shard.pass_time(LEASE_MS)

    result = one(shard, Hold(job_ids=[job_id], lease_token=claim.lease_token))

    assert isinstance(result, Rejected)
    assert result.code == "lease_lost"


def test_a_hold_under_a_token_refuses_a_job_that_is_not_active(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))

    results = [one(shard, Hold(job_ids=[name], lease_token=1)) for name in (job_id, "nobody")]

    assert [getattr(result, "code", "") for result in results] == ["lease_lost", "job_not_found"]


def test_a_token_goes_with_one_job_only() -> None:
    refused = Hold(job_ids=["a", "b"], lease_token=7).check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("bad_request", "lease_token")


def test_an_approved_job_waits_behind_the_others_with_its_attempts(shard: Shard) -> None:
    job_id = in_state(shard, State.ACTIVE)
    shard.do(Hold(job_ids=[job_id]))
    [waiting] = shard.put(NewJob(queue=NEAR))

    shard.do(Approve(job_ids=[job_id]))

    job = shard.job(job_id)
    assert (job.held_ns, job.hold_reason, job.attempt) == (0, "", 1)
    assert [claim.job_id for claim in shard.fetch(count=2)] == [waiting, job_id]


def test_a_rejected_job_is_dead_and_has_no_error(shard: Shard) -> None:
    job_id = in_state(shard, State.HELD)

    shard.do(Reject(job_ids=[job_id], why="nonsense"))

    job = shard.job(job_id)
    assert (job.state, job.failed_ns) == (State.DEAD, shard.now_ns)
    assert (job.trail[-1].why, shard.errors(job_id)) == ("nonsense", [])


# Sooner or later, and elsewhere in the shard.


def test_a_job_of_another_priority_keeps_its_place_among_those_that_have_it(shard: Shard) -> None:
    first, second, third = shard.put(*[NewJob(queue=NEAR)] * 3)

    shard.do(ChangePriority(job_ids=[third, first], priority=0))

    assert [claim.job_id for claim in shard.fetch(count=3)] == [first, third, second]
    shard.check()


def test_a_moved_job_comes_behind_all_others_of_its_new_queue(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))
    [waiting] = shard.put(NewJob(queue=ALSO_NEAR))

    shard.do(Move(job_ids=[job_id], queue=ALSO_NEAR, by="ann"))

    job = shard.job(job_id)
    assert (job.trail[-1].what, job.trail[-1].by) == ("moved", "ann")
    assert job.trail[-1].why == f"from {NEAR} to {ALSO_NEAR}"
    assert shard.counts(NEAR) == {}
    assert [claim.job_id for claim in shard.fetch(ALSO_NEAR, count=2)] == [waiting, job_id]
    shard.check()


def test_a_move_to_its_own_queue_changes_nothing(shard: Shard) -> None:
    job_id = in_state(shard, State.ACTIVE)
    before = shard.job(job_id)

    result = one(shard, Move(job_ids=[job_id], queue=NEAR, reset_attempts=True))

    assert result == Done(job_id, "moved")
    assert shard.job(job_id) == before


def test_a_moved_job_can_have_its_attempts_reset(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD)
    assert shard.job(job_id).attempt == 1

    shard.do(Move(job_ids=[job_id], queue=ALSO_NEAR, reset_attempts=True))

    job = shard.job(job_id)
    assert (job.attempt, job.crashes, job.failures) == (0, 0, 1)
    assert len(shard.errors(job_id)) == 1


def test_an_active_job_is_moved_with_its_lease(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR))
    [claim] = shard.fetch()

    shard.do(Move(job_ids=[job_id], queue=ALSO_NEAR))

    item = AckItem(job_id=job_id, lease_token=claim.lease_token, worker_id="w1")
    [result] = shard.do(Ack(acks=[item])).results
    assert not isinstance(result, Rejected)
    assert shard.counts(ALSO_NEAR) == {State.COMPLETED: 1}
    shard.check()


def test_a_unique_lock_is_moved_with_its_job(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR, unique_key="k"))
    until_ns = shard.job(job_id).unique_until_ns

    shard.do(Move(job_ids=[job_id], queue=ALSO_NEAR))

    assert shard.job(job_id).unique_until_ns == until_ns
    assert shard.store.get(queue_keys(NEAR).unique + b"k") is None
    assert shard.store.get(queue_keys(ALSO_NEAR).unique + b"k") is not None
    shard.check()


def test_a_job_is_not_moved_where_another_has_its_lock(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR, unique_key="k"))
    [holder] = shard.put(NewJob(queue=ALSO_NEAR, unique_key="k"))
    before = shard.job(job_id)

    result = one(shard, Move(job_ids=[job_id], queue=ALSO_NEAR))

    assert isinstance(result, Rejected)
    assert (result.code, result.job_id) == ("duplicate", holder)
    assert shard.job(job_id) == before


def test_a_job_whose_lock_is_over_is_moved_without_it(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=NEAR, unique_key="k", unique_period_ms=1_000))
    shard.put(NewJob(queue=ALSO_NEAR, unique_key="k"))
    shard.pass_time(1_000)

    result = one(shard, Move(job_ids=[job_id], queue=ALSO_NEAR))

    assert result == Done(job_id, "moved")
    assert shard.job(job_id).unique_until_ns == 0


MAKES_AVAILABLE: Final[tuple[tuple[str, State, list[str]], ...]] = (
    ("retry", State.DEAD, [NEAR]),
    ("requeue", State.DEAD, [NEAR]),
    ("approve", State.HELD, [NEAR]),
    ("delete", State.ACTIVE, [NEAR]),
    ("hold", State.ACTIVE, [NEAR]),
    ("move", State.PENDING, [ALSO_NEAR]),
    ("move", State.ACTIVE, [NEAR]),
)
"""Ops after which a fetch may get something: a job, or the slot of one that was active."""


@pytest.mark.parametrize(("name", "state", "queues"), MAKES_AVAILABLE)
def test_a_queue_that_may_have_something_to_give_is_told_of(
    shard: Shard, name: str, state: State, queues: list[str]
) -> None:
    make, _ = OPS[name]
    job_id = in_state(shard, state)
    shard.tx.touched = {}

    shard.do(make(job_id))

    assert set(queues) <= set(shard.tx.touched)


# Only in some queues.


@pytest.mark.parametrize(
    ("scope", "is_done"),
    [((), True), (("mail",), True), (("sms", "ma*"), True), (("mai",), False), (("sms*",), False)],
)
def test_an_op_with_a_scope_leaves_jobs_of_other_queues_alone(
    shard: Shard, scope: tuple[str, ...], is_done: bool
) -> None:
    job_id = in_state(shard, State.DEAD)

    done = one(shard, Retry(job_ids=[job_id], scope=scope))

    if is_done:
        assert done == Done(job_id, "pending")
    else:
        assert isinstance(done, Rejected)
        assert (done.code, done.job_id) == ("forbidden", job_id)
        assert shard.job(job_id).state is State.DEAD


def test_a_job_that_left_the_scope_since_somebody_looked_is_left_alone(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD)
    shard.do(Move(job_ids=[job_id], queue=ALSO_NEAR))

    refused = one(shard, Delete(job_ids=[job_id], scope=("mail",)))

    assert isinstance(refused, Rejected)
    assert refused.code == "forbidden"


# What the server works on itself.


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("say", SAYINGS)
@pytest.mark.parametrize("has_token", [True, False])
def test_only_the_server_has_a_say_in_its_own_work(
    shard: Shard, say: Say, is_own: bool, has_token: bool
) -> None:
    [job_id] = shard.put(NewJob(queue=OWN))
    shard.fetch(OWN)
    before = shard.job(job_id)

    [answer] = shard.entry(say(job_id, before.lease_token if has_token else None, is_own))

    refused = b'"code":"forbidden"' in answer.body
    assert refused != is_own
    if refused:
        assert shard.job(job_id) == before


def test_nobody_takes_its_own_work_away_from_the_server(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=OWN))

    refused = one(shard, Move(job_ids=[job_id], queue=NEAR))

    assert isinstance(refused, Rejected)
    assert refused.code == "forbidden"
    assert shard.job(job_id).queue == OWN


def test_a_worker_cannot_hold_what_the_server_works_on(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=OWN))
    shard.fetch(OWN)
    token = shard.job(job_id).lease_token

    refused = one(shard, Hold(job_ids=[job_id], lease_token=token))

    assert isinstance(refused, Rejected)
    assert refused.code == "forbidden"


# Only if nothing happened since.


def test_a_job_to_which_something_happened_later_is_left_alone(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD)
    since_ns = shard.now_ns
    trail = shard.trail(job_id)

    shard.pass_time(1)
    shard.do(Requeue(job_ids=[job_id]))
    refused = one(shard, Retry(job_ids=[job_id], unchanged_since_ns=since_ns))

    assert isinstance(refused, Rejected)
    assert (refused.code, refused.job_id) == ("changed_since", job_id)
    assert shard.trail(job_id) == [*trail, "requeued"]


def test_a_job_that_is_as_it_was_is_changed(shard: Shard) -> None:
    job_id = in_state(shard, State.DEAD)

    done = one(shard, Retry(job_ids=[job_id], unchanged_since_ns=shard.now_ns))

    assert done == Done(job_id, "pending")


def test_that_it_changed_comes_before_its_state(shard: Shard) -> None:
    job_id = in_state(shard, State.COMPLETED)
    since_ns = shard.now_ns - 1

    refused = one(shard, Cancel(job_ids=[job_id], unchanged_since_ns=since_ns))

    assert isinstance(refused, Rejected)
    assert refused.code == "changed_since"


def test_a_heartbeat_is_nothing_that_happens_to_a_job(shard: Shard) -> None:
    job_id = in_state(shard, State.ACTIVE)
    since_ns = shard.now_ns
    token = shard.job(job_id).lease_token

    shard.pass_time(1_000)
    shard.do(Heartbeat(jobs=[BeatItem(job_id=job_id, lease_token=token)]))
    done = one(shard, Cancel(job_ids=[job_id], unchanged_since_ns=since_ns))

    assert done == Done(job_id, "cancelling")


@pytest.mark.parametrize("since_ns", [0, START_NS + 10**15])
def test_the_same_request_again_hears_what_became_of_each_job(shard: Shard, since_ns: int) -> None:
    dead = [in_state(shard, State.DEAD) for _ in range(3)]
    pending = in_state(shard, State.PENDING)
    op = Retry(
        job_ids=[dead[0], "s02_job_none", *dead[1:], pending],
        request_key="k",
        unchanged_since_ns=since_ns,
    )

    first = shard.do(op)
    again = shard.do(op)

    assert again == first
    codes = [each.code if isinstance(each, Rejected) else each.status for each in first.results]
    assert codes == ["pending", "job_not_found", "pending", "pending", "bad_state"]
    assert [shard.trail(job_id).count("retried") for job_id in dead] == [1, 1, 1]


def test_what_is_kept_of_a_bulk_is_small(shard: Shard) -> None:
    ids = [in_state(shard, State.DEAD) for _ in range(50)]
    since_ns = shard.now_ns

    shard.do(Retry(job_ids=ids, request_key="k", unchanged_since_ns=since_ns))

    [kept] = shard.documents(REQUESTS)
    assert len(kept.body) < 32
