"""What a leader does by itself: each op bounded, in the order in which things became due."""

from random import Random
from typing import Final

import msgspec
import pytest

from corvo.kv import keys
from corvo.model import Backoff, State
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel, Hold
from corvo.protocol.ops.queues import (
    Clear,
    DeleteQueue,
    Pause,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.protocol.ops.work import Ack, AckItem, BeatItem, Fail, FailItem, Fetch, Heartbeat
from corvo.shard.ops import OPS
from corvo.shard.ops.upkeep import (
    CleanRateLimits,
    CleanRequests,
    CleanUnique,
    CleanWorkers,
    Expire,
    Lead,
    Promote,
    Purge,
    Reclaim,
    Sweep,
    Upkeep,
    Walked,
)
from corvo.shard.state.tables import QUEUES, WORKERS
from tests.shard.shard import MS, Shard

MAIL: Final = NewJob(queue="mail")
DAY_MS: Final = 24 * 3_600_000


def finished(shard: Shard, count: int = 1) -> list[str]:
    """Jobs of `mail` that were completed one after the other."""
    ids = shard.put(*[MAIL] * count)
    for _ in ids:
        [claim] = shard.fetch()
        shard.do(Ack(acks=[AckItem(job_id=claim.job_id)]))
        shard.pass_time(1)
    return ids


def test_upkeep_is_for_the_leader_alone() -> None:
    upkeep = [op for op in OPS.values() if issubclass(op, Upkeep | Lead)]

    assert len(upkeep) == 12
    assert all(op.PRIVATE for op in upkeep)


# Promote.


def test_jobs_are_promoted_in_the_order_in_which_they_are_due() -> None:
    shard = Shard()
    now_ns = shard.clock_ns
    late, early, never = shard.put(
        NewJob(queue="mail", scheduled_ns=now_ns + 20 * MS),
        NewJob(queue="mail", scheduled_ns=now_ns + 10 * MS),
        NewJob(queue="mail", scheduled_ns=now_ns + 90 * MS),
    )
    waiting = shard.put(MAIL)
    shard.pass_time(20)

    walked = shard.do(Promote(limit=9))

    assert walked == Walked(2, more=False)
    assert [claim.job_id for claim in shard.fetch(count=9)] == [*waiting, early, late]
    assert shard.state(never) is State.SCHEDULED
    shard.check()


def test_a_job_is_promoted_at_its_time_and_not_before() -> None:
    shard = Shard()
    due_ns = shard.clock_ns + 1_000
    shard.put(NewJob(queue="mail", scheduled_ns=due_ns))
    shard.clock_ns = due_ns - 1
    before = shard.do(Promote(limit=9))
    shard.clock_ns = due_ns

    after = shard.do(Promote(limit=9))

    assert (before.done, after.done) == (0, 1)


def test_a_retrying_job_that_is_promoted_keeps_what_is_known_of_it() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    shard.fetch()
    shard.do(Fail(fails=[FailItem(job_id=job_id, retry_after_ms=0)]))
    before = shard.job(job_id)

    shard.do(Promote(limit=9))

    after = shard.job(job_id)
    assert after.state is State.PENDING
    assert (after.attempt, after.failures) == (1, 1)
    assert after.failed_ns == before.failed_ns
    assert (after.scheduled_ns, before.scheduled_ns) == (0, before.failed_ns)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_an_op_does_no_more_than_its_limit_and_says_whether_there_is_more(limit: int) -> None:
    shard = Shard()
    shard.put(*[NewJob(queue="mail", scheduled_ns=shard.clock_ns + MS)] * 7)
    shard.pass_time(1)

    walks = [shard.do(Promote(limit=limit)) for _ in range(-(-7 // limit))]

    assert sum(walk.done for walk in walks) == 7
    assert [walk.more for walk in walks] == [True] * (len(walks) - 1) + [False]
    shard.check()


def test_many_that_are_due_at_once_are_promoted_in_batches() -> None:
    shard = Shard()
    due = NewJob(queue="mail", scheduled_ns=shard.clock_ns + MS)
    ids = [job_id for _ in range(3) for job_id in shard.put(*[due] * 1_000)]
    shard.pass_time(1)

    done = [shard.do(Promote(limit=700)).done for _ in range(5)]

    assert done == [700, 700, 700, 700, 200]
    assert [claim.job_id for claim in shard.fetch(count=512)] == ids[:512]
    shard.check()


def test_a_scheduled_job_that_was_cleared_is_not_promoted() -> None:
    shard = Shard()
    [cleared] = shard.put(NewJob(queue="mail", scheduled_ns=shard.clock_ns + MS))
    shard.do(Clear(queue="mail"))
    [kept] = shard.put(NewJob(queue="mail", scheduled_ns=shard.clock_ns + MS))
    shard.pass_time(2)

    walked = shard.do(Promote(limit=1))

    assert walked == Walked(1, more=False)
    assert shard.find(cleared) is None
    assert shard.state(kept) is State.PENDING
    shard.check()


# Reclaim.


def test_a_lease_that_ran_out_gives_the_job_and_the_attempt_back() -> None:
    shard = Shard()
    first, _ = shard.put(MAIL, MAIL)
    [claim] = shard.fetch()
    shard.clock_ns = claim.lease_expires_ns

    walked = shard.do(Reclaim(limit=9))

    job = shard.job(first)
    assert walked == Walked(1, more=False)
    assert (job.state, job.attempt, job.crashes) == (State.PENDING, 0, 1)
    assert [again.job_id for again in shard.fetch()] == [first], "it is at its old place"
    assert shard.errors(first) == [], "a crash is not an error"
    shard.check()


def test_a_lease_is_not_reclaimed_before_it_is_over() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    [claim] = shard.fetch()
    shard.clock_ns = claim.lease_expires_ns - 1

    walked = shard.do(Reclaim(limit=9))

    assert walked.done == 0
    assert shard.state(job_id) is State.ACTIVE


def test_a_heartbeat_keeps_a_job_from_being_reclaimed() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    shard.fetch()
    shard.pass_time(59_000)
    shard.do(Heartbeat(jobs=[BeatItem(job_id=job_id)]))
    shard.pass_time(59_000)

    walked = shard.do(Reclaim(limit=9))

    assert walked.done == 0
    shard.check()


def test_a_job_that_crashes_again_and_again_is_held() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail", max_crashes=3))
    states = []

    for _ in range(3):
        shard.fetch()
        shard.pass_time(60_000)
        shard.do(Reclaim(limit=9))
        states.append(shard.state(job_id))

    job = shard.job(job_id)
    assert states == [State.PENDING, State.PENDING, State.HELD]
    assert (job.hold_reason, job.crashes, job.attempt) == ("crash_loop", 3, 0)
    assert (job.held_ns, job.worker_id) == (shard.now_ns, "")
    shard.check()


@pytest.mark.parametrize("max_crashes", [1, 5])
def test_a_job_that_was_asked_to_stop_is_cancelled_when_its_lease_runs_out(
    max_crashes: int,
) -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail", max_crashes=max_crashes))
    shard.fetch()
    shard.do(Cancel(job_ids=[job_id]))
    shard.pass_time(60_000)

    shard.do(Reclaim(limit=9))

    assert shard.state(job_id) is State.CANCELLED
    shard.check()


def run_of(shard: Shard, **changes: int) -> str:
    """A job that may run for 1,000 ms, under a lease of a minute."""
    new = NewJob(queue="mail", max_run_time_ms=1_000, retry_backoff=Backoff.FIXED)
    [job_id] = shard.put(msgspec.structs.replace(new, **changes))  # type: ignore[arg-type]
    shard.fetch()
    return job_id


def test_a_run_that_takes_too_long_fails() -> None:
    shard = Shard()
    job_id = run_of(shard)
    shard.pass_time(1_000)

    walked = shard.do(Reclaim(limit=9))

    job = shard.job(job_id)
    [error] = shard.errors(job_id)
    assert walked.done == 1
    assert (job.state, job.attempt, job.crashes) == (State.RETRYING, 1, 0)
    assert job.scheduled_ns == shard.now_ns + 5_000 * MS
    assert (error.error, error.worker_id) == ("max_run_time exceeded", "w1")
    shard.check()


def test_the_last_run_that_takes_too_long_is_the_end() -> None:
    shard = Shard()
    job_id = run_of(shard, max_retries=1)
    shard.pass_time(1_000)

    shard.do(Reclaim(limit=9))

    assert shard.state(job_id) is State.DEAD
    shard.check()


def test_a_worker_whose_run_took_too_long_has_lost_its_lease() -> None:
    shard = Shard()
    job_id = run_of(shard)
    token = shard.job(job_id).lease_token
    shard.pass_time(1_000)
    shard.do(Reclaim(limit=9))
    item = FailItem(job_id=job_id, lease_token=token)

    [result] = shard.do(Fail(fails=[item])).results

    assert getattr(result, "code", "") == "lease_lost", "it did not say so itself"


def test_heartbeats_do_not_make_a_run_longer() -> None:
    shard = Shard()
    job_id = run_of(shard)
    shard.pass_time(999)
    shard.do(Heartbeat(jobs=[BeatItem(job_id=job_id)]))
    shard.pass_time(1)

    walked = shard.do(Reclaim(limit=9))

    assert walked.done == 1


def test_reclaimed_jobs_make_room_for_others() -> None:
    shard = Shard()
    shard.do(SetConcurrency(queue="mail", max=1))
    shard.put(MAIL, MAIL)
    shard.fetch()
    nothing = shard.fetch()
    shard.pass_time(60_000)
    shard.tx.touched.clear()

    shard.do(Reclaim(limit=9))

    assert nothing == []
    assert "mail" in shard.tx.touched
    assert len(shard.fetch()) == 1


# Grace.


def test_leases_in_grace_are_not_reclaimed_until_it_ends() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    [claim] = shard.fetch()
    shard.do(Lead(grace_ms=120_000))
    until_ns = shard.now_ns + 120_000 * MS
    walks = []

    for at_ns in (claim.lease_expires_ns, until_ns - 1, until_ns):
        shard.clock_ns = at_ns
        walks.append(shard.do(Reclaim(limit=9)))

    assert walks == [Walked(0, more=False), Walked(0, more=False), Walked(1, more=False)]
    assert shard.state(job_id) is State.PENDING
    shard.check()


def test_grace_outlives_a_restart() -> None:
    shard = Shard()
    shard.put(MAIL)
    [claim] = shard.fetch()
    shard.do(Lead(grace_ms=120_000))
    shard.reopen()
    shard.clock_ns = claim.lease_expires_ns

    walked = shard.do(Reclaim(limit=9))

    assert walked.done == 0
    shard.check_replay()


def test_jobs_in_grace_do_not_keep_others_from_being_reclaimed() -> None:
    shard = Shard()
    graced = shard.put(*[MAIL] * 300)
    shard.fetch(count=300)
    limited = [run_of(shard, max_run_time_ms=60_000) for _ in range(3)]
    shard.do(Lead(grace_ms=120_000))
    shard.pass_time(60_000)

    walks = [shard.do(Reclaim(limit=2)) for _ in range(2)]

    assert walks == [Walked(2, more=True), Walked(1, more=False)]
    assert {shard.state(job_id) for job_id in limited} == {State.RETRYING}
    assert {shard.state(job_id) for job_id in graced} == {State.ACTIVE}
    shard.check()


def test_leases_given_in_a_time_of_grace_have_none() -> None:
    shard = Shard()
    shard.put(MAIL)
    shard.do(Lead(grace_ms=1_000))
    [claim] = shard.fetch(lease_ms=2_000)
    shard.clock_ns = claim.lease_expires_ns

    walked = shard.do(Reclaim(limit=9))

    assert walked.done == 1


# Expire.


def expiring(**changes: int) -> NewJob:
    return msgspec.structs.replace(NewJob(queue="mail", expire_after_ms=1_000), **changes)  # type: ignore[arg-type]


def test_waiting_jobs_of_every_state_expire_at_their_time() -> None:
    shard = Shard()
    pending, held, scheduled, retrying = shard.put(
        expiring(priority=1),
        expiring(),
        expiring(scheduled_ns=shard.clock_ns + DAY_MS * MS),
        expiring(priority=0),
    )
    shard.fetch()
    shard.do(Fail(fails=[FailItem(job_id=retrying)]))
    shard.do(Hold(job_ids=[held], reason="why not"))
    shard.clock_ns = shard.job(pending).expires_ns - 1
    early = shard.do(Expire(limit=9))
    shard.clock_ns += 1

    late = shard.do(Expire(limit=9))

    assert (early.done, late.done) == (0, 4)
    for job_id in (pending, held, scheduled, retrying):
        job = shard.job(job_id)
        assert (job.state, job.trail[-1].why) == (State.DEAD, "expired")
        assert (job.scheduled_ns, job.hold_reason) == (0, "")
    shard.check()


@pytest.mark.parametrize("expire_active", [False, True])
def test_an_active_job_expires_only_when_it_was_said(expire_active: bool) -> None:
    shard = Shard()
    [job_id] = shard.put(expiring(expire_active=expire_active))
    shard.fetch()
    shard.pass_time(1_001)

    walked = shard.do(Expire(limit=9))

    assert walked.done == int(expire_active)
    assert shard.state(job_id) is (State.DEAD if expire_active else State.ACTIVE)
    shard.check()


def test_a_job_that_expired_while_it_was_active_does_so_when_it_fails() -> None:
    shard = Shard()
    [job_id] = shard.put(expiring())
    shard.fetch()
    shard.pass_time(1_001)
    shard.do(Fail(fails=[FailItem(job_id=job_id)]))

    walked = shard.do(Expire(limit=9))

    assert walked.done == 1
    assert shard.state(job_id) is State.DEAD


def test_a_fetch_does_not_give_what_has_expired() -> None:
    shard = Shard()
    expired, good = shard.put(expiring(), MAIL)
    shard.pass_time(1_000)

    claims = shard.fetch()

    assert [claim.job_id for claim in claims] == [good]
    assert shard.state(expired) is State.DEAD
    shard.check()


# Purge.


def test_finished_jobs_go_when_they_were_kept_long_enough() -> None:
    shard = Shard()
    ids = finished(shard, 3)
    shard.clock_ns = shard.job(ids[1]).finished_ns + 1_000 * MS

    walked = shard.do(Purge(queue="mail", keep_ms=1_000, limit=9))

    assert walked == Walked(2, more=False)
    assert [shard.find(job_id) is None for job_id in ids] == [True, True, False]
    shard.check()


def test_a_queues_own_retention_goes_before_the_servers() -> None:
    shard = Shard()
    finished(shard)
    shard.do(SetRetention(queue="mail", retention_ms=5_000))
    shard.pass_time(4_000)
    early = shard.do(Purge(queue="mail", keep_ms=1, limit=9))
    shard.pass_time(1_000)

    late = shard.do(Purge(queue="mail", keep_ms=DAY_MS, limit=9))

    assert (early.done, late.done) == (0, 1)


def test_a_purge_takes_no_more_than_its_limit_and_only_finished_jobs_of_the_queue() -> None:
    shard = Shard()
    finished(shard, 3)
    [pending] = shard.put(MAIL)
    [elsewhere] = shard.put(NewJob(queue="mail2"))
    shard.do(Cancel(job_ids=[elsewhere]))
    shard.pass_time(10)

    walks = [shard.do(Purge(queue="mail", keep_ms=0, limit=2)) for _ in range(2)]

    assert walks == [Walked(2, more=True), Walked(1, more=False)]
    assert shard.state(pending) is State.PENDING
    assert shard.state(elsewhere) is State.CANCELLED
    shard.check()


def test_the_errors_of_a_purged_job_go_with_it() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail", max_retries=1))
    shard.fetch()
    shard.do(Fail(fails=[FailItem(job_id=job_id, error="no")]))
    shard.pass_time(1)

    shard.do(Purge(queue="mail", keep_ms=0, limit=9))

    assert shard.rows(keys.JOB_ERROR) == []
    shard.check()


# Locks, rows, keys, workers.


def test_a_lock_whose_time_is_over_is_let_go_and_its_job_goes_on() -> None:
    shard = Shard()
    new = NewJob(queue="mail", unique_key="k", unique_period_ms=1_000)
    [job_id] = shard.put(new)
    shard.clock_ns = shard.job(job_id).unique_until_ns - 1
    early = shard.do(CleanUnique(limit=9))
    shard.clock_ns += 1

    late = shard.do(CleanUnique(limit=9))

    assert (early.done, late.done) == (0, 1)
    assert shard.rows(keys.UNIQUE) == []
    assert shard.state(job_id) is State.PENDING
    shard.check()


def test_rows_that_have_left_the_window_are_removed() -> None:
    shard = Shard()
    shard.do(SetThrottle(queue="mail", rate=5, window_ms=1_000))
    shard.put(*[MAIL] * 9)
    shard.fetch(count=2)
    first_ns = shard.now_ns
    shard.pass_time(500)
    shard.fetch(count=2)
    shard.clock_ns = first_ns + 1_000 * MS - 1
    early = shard.do(CleanRateLimits(queue="mail", limit=9))
    shard.clock_ns += 1

    late = [shard.do(CleanRateLimits(queue="mail", limit=1)) for _ in range(2)]

    assert early == Walked(0, more=False)
    assert late == [Walked(1, more=True), Walked(1, more=False)]
    assert len(shard.rows(keys.RATE_LIMIT)) == 2
    assert len(shard.fetch(count=9)) == 3
    shard.check_replay()


def test_workers_that_were_not_heard_of_for_a_day_are_forgotten() -> None:
    shard = Shard()
    shard.fetch(worker="w1")
    shard.pass_time(1_000)
    shard.fetch(worker="w2")
    shard.pass_time(DAY_MS - 1_000)

    walked = shard.do(CleanWorkers(limit=9))

    assert walked == Walked(1, more=False)
    assert [worker.id for worker in shard.documents(WORKERS)] == ["w2"]
    shard.check()


@pytest.mark.parametrize(
    "op",
    [
        Promote(limit=1),
        Reclaim(limit=1),
        Expire(limit=1),
        CleanUnique(limit=1),
        CleanRequests(limit=1),
        CleanWorkers(limit=1),
        Purge(queue="none", keep_ms=1, limit=1),
        CleanRateLimits(queue="none", limit=1),
        Sweep(queue="none", limit=1),
    ],
)
def test_there_is_nothing_to_do_in_an_empty_shard(op: Upkeep) -> None:
    shard = Shard()

    [answer] = shard.entry(op)

    assert answer.body == b'{"done":0,"more":false}'
    shard.check()


# Sweep.


def in_every_state(shard: Shard, queue: str) -> dict[str, list[str]]:
    """Three jobs of a queue in each state, by that."""
    ids: dict[str, list[str]] = {}
    later_ns = shard.clock_ns + DAY_MS * MS
    for name in ("active", "completed", "retrying", "held"):
        ids[name] = shard.put(*[NewJob(queue=queue, priority=0, unique_key="")] * 3)
        shard.fetch(queue, count=3)
    shard.do(Ack(acks=[AckItem(job_id=job_id) for job_id in ids["completed"]]))
    shard.do(Fail(fails=[FailItem(job_id=job_id, error="no") for job_id in ids["retrying"]]))
    shard.do(Hold(job_ids=ids["held"], reason="because"))
    ids["scheduled"] = shard.put(*[NewJob(queue=queue, scheduled_ns=later_ns)] * 3)
    ids["pending"] = shard.put(*[NewJob(queue=queue, priority=at) for at in range(3)])
    return ids


def sweep_all(shard: Shard, queue: str, limit: int) -> list[Walked]:
    walks = [shard.do(Sweep(queue=queue, limit=limit))]
    while walks[-1].more:
        walks.append(shard.do(Sweep(queue=queue, limit=limit)))
        shard.check()
    return walks


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_sweep_removes_what_was_cleared_and_nothing_else(limit: int) -> None:
    shard = Shard()
    ids = in_every_state(shard, "mail")
    shard.do(Clear(queue="mail"))
    later = shard.put(*[NewJob(queue="mail", priority=at) for at in range(3)])

    walks = sweep_all(shard, "mail", limit)

    assert sum(walk.done for walk in walks) == 9
    assert all(walk.done <= limit for walk in walks)
    gone = [name for name in ids if all(shard.find(job_id) is None for job_id in ids[name])]
    assert gone == ["retrying", "scheduled", "pending"]
    assert shard.counts("mail")[State.PENDING] == len(later)
    assert shard.queue("mail").cleared_ns == 0
    shard.check()
    shard.check_replay()


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_sweep_removes_a_deleted_queue_and_everything_of_it(limit: int) -> None:
    shard = Shard()
    shard.do(SetThrottle(queue="mail", rate=99, window_ms=1_000))
    in_every_state(shard, "mail")
    kept = in_every_state(shard, "mail2")
    shard.do(DeleteQueue(queue="mail"))

    sweep_all(shard, "mail", limit)

    assert [queue.name for queue in shard.documents(QUEUES)] == ["mail2"]
    assert not any(b"mail\0" in key or key.endswith(b"mail") for key in shard.store.content())
    assert sum(shard.counts("mail2").values()) == 3 * len(kept)
    shard.check()
    shard.check_replay()


def test_a_queue_that_is_begun_anew_while_it_is_swept_stays() -> None:
    shard = Shard()
    in_every_state(shard, "mail")
    shard.do(Pause(queue="mail"))
    shard.do(DeleteQueue(queue="mail"))
    shard.do(Sweep(queue="mail", limit=4))
    [job_id] = shard.put(MAIL)

    sweep_all(shard, "mail", 4)

    assert shard.counts("mail") == {State.PENDING: 1}
    assert [claim.job_id for claim in shard.fetch()] == [job_id], "it is not paused any more"
    assert (shard.queue("mail").deleted_ns, shard.queue("mail").paused) == (0, False)
    shard.check()


def test_a_queue_that_is_named_again_by_a_setting_stays_with_it() -> None:
    shard = Shard()
    in_every_state(shard, "mail")
    shard.do(DeleteQueue(queue="mail"))
    shard.do(Pause(queue="mail"))

    sweep_all(shard, "mail", 4)

    assert shard.queue("mail").paused


def test_clearing_again_while_a_sweep_goes_on_takes_the_new_ones_too() -> None:
    shard = Shard()
    in_every_state(shard, "mail")
    shard.do(Clear(queue="mail"))
    shard.do(Sweep(queue="mail", limit=5))
    shard.put(*[MAIL] * 3, NewJob(queue="mail", priority=0))
    shard.do(Clear(queue="mail"))

    sweep_all(shard, "mail", 5)

    assert sorted(shard.counts("mail"), key=lambda state: state.number) == [
        State.ACTIVE,
        State.HELD,
        State.COMPLETED,
    ]


def test_a_sweep_passes_by_many_that_stay_and_comes_to_its_end() -> None:
    shard = Shard()
    soon, late = shard.clock_ns + MS, shard.clock_ns + DAY_MS * MS
    [cleared] = shard.put(NewJob(queue="mail", scheduled_ns=late))
    shard.do(Clear(queue="mail"))
    shard.put(*[NewJob(queue="mail", scheduled_ns=soon)] * 50)

    walks = sweep_all(shard, "mail", 10)

    assert [walk.done for walk in walks] == [0, 0, 0, 0, 0, 1]
    assert shard.find(cleared) is None
    assert shard.counts("mail") == {State.SCHEDULED: 50}


def test_jobs_that_leave_their_worker_after_a_clear_are_not_swept() -> None:
    shard = Shard()
    failed, lapsed = shard.put(MAIL, MAIL)
    shard.fetch(count=2)
    shard.do(Clear(queue="mail"))
    shard.do(Fail(fails=[FailItem(job_id=failed)]))
    shard.pass_time(60_000)
    shard.do(Reclaim(limit=9))

    sweep_all(shard, "mail", 9)

    assert shard.state(failed) is State.RETRYING
    assert shard.state(lapsed) is State.PENDING
    shard.check()


def test_swept_jobs_are_not_there_for_any_op() -> None:
    shard = Shard()
    ids = in_every_state(shard, "mail")
    everybody = [job_id for of_state in ids.values() for job_id in of_state]
    shard.do(DeleteQueue(queue="mail"))

    results = [
        *shard.do(Ack(acks=[AckItem(job_id=job_id) for job_id in everybody])).results,
        *shard.do(Cancel(job_ids=everybody)).results,
    ]

    assert {getattr(result, "code", "") for result in results} == {"job_not_found"}


@pytest.mark.parametrize("seed", range(20))
def test_upkeep_in_any_order_keeps_every_promise(seed: int) -> None:
    chance = Random(seed)
    shard = Shard()
    made = 0

    for _ in range(60):
        queue = chance.choice(["mail", "post"])
        made += len(shard.put(*random_jobs(chance, queue, shard.clock_ns)))
        claims = shard.fetch(
            queue, count=chance.randint(1, 4), lease_ms=chance.choice([1_000, 9_000])
        )
        for claim in claims:
            ending: list[Op] = [
                Ack(acks=[AckItem(job_id=claim.job_id)]),
                Fail(fails=[FailItem(job_id=claim.job_id, retry_after_ms=500)]),
                Cancel(job_ids=[claim.job_id]),
            ]
            shard.entry(*chance.sample(ending, k=chance.randint(0, 1)))
        shard.pass_time(chance.randint(1, 2_000))
        shard.entry(*chance.sample(upkeep(chance, queue), k=4))
        shard.check()

    total = sum(sum(shard.counts(queue).values()) for queue in ("mail", "post"))
    assert 0 < total < made
    shard.check_replay()


def random_jobs(chance: Random, queue: str, now_ns: int) -> list[NewJob]:
    return [
        NewJob(
            queue=queue,
            priority=chance.randint(0, 2),
            scheduled_ns=chance.choice([0, now_ns + chance.randint(1, 3_000) * MS]),
            expire_after_ms=chance.choice([0, 0, 2_000]),
            expire_active=chance.random() < 0.5,
            unique_key=chance.choice(["", "a", "b"]),
            unique_period_ms=chance.randint(1, 2_000),
            max_run_time_ms=chance.choice([0, 1_500]),
            max_crashes=2,
        )
        for _ in range(chance.randint(1, 4))
    ]


def upkeep(chance: Random, queue: str) -> list[Op]:
    limit = chance.randint(1, 5)
    return [
        Promote(limit=limit),
        Reclaim(limit=limit),
        Expire(limit=limit),
        CleanUnique(limit=limit),
        CleanWorkers(limit=limit),
        Purge(queue=queue, keep_ms=3_000, limit=limit),
        CleanRateLimits(queue=queue, limit=limit),
        Sweep(queue=queue, limit=limit),
        SetThrottle(queue=queue, rate=chance.randint(1, 9), window_ms=2_000),
        Clear(queue=queue),
        DeleteQueue(queue=queue),
        Lead(grace_ms=1_000),
        Enqueue(jobs=[NewJob(queue=queue)], request_key=f"k{chance.randint(1, 9)}"),
        Fetch(queues=[queue], request_key=f"f{chance.randint(1, 9)}"),
    ]
