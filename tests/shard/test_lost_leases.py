"""What a worker hears that comes too late: when its lease ended, and how long it was."""

from collections.abc import Callable
from typing import Final

import pytest

from corvo.model import EventType, State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, ChangePriority, Retry
from corvo.protocol.ops.work import Ack, AckItem, Beat, BeatItem, Claim, Fetch, Heartbeat
from corvo.shard.ops.upkeep import Reclaim
from corvo.times import format_time
from tests.shard.shard import Shard
from tests.shard.test_work import ENDING, Say, beat, code

MAIL: Final = NewJob(queue="mail", max_crashes=2)
every_ending_word = pytest.mark.parametrize("say", ENDING.values(), ids=ENDING)


def taken(shard: Shard, lease_ms: int = 60_000) -> Claim:
    shard.put(MAIL)
    fetch = Fetch(queues=["mail"], worker_id="w1", lease_ms=lease_ms)
    [claim] = shard.do(fetch).jobs
    return claim


def refusal(shard: Shard, claim: Claim, *, token: bool = True, worker: str = "") -> str:
    item = AckItem(
        job_id=claim.job_id, lease_token=claim.lease_token if token else None, worker_id=worker
    )
    [result] = shard.do(Ack(acks=[item])).results
    assert isinstance(result, Rejected)
    begin = f"job {claim.job_id} is not leased to you: "
    assert result.error.startswith(begin)
    return result.error.removeprefix(begin)


def event_time(shard: Shard, claim: Claim, what: EventType) -> str:
    [at_ns] = [it.at_ns for it in shard.job(claim.job_id).trail if it.what == what.stored]
    return format_time(at_ns)


@pytest.mark.parametrize("token", [True, False])
@pytest.mark.parametrize(("lease_ms", "span"), [(60_000, "1m0s"), (1_500, "1.5s")])
def test_a_lease_that_expired_says_when_and_how_long_it_was(
    token: bool, lease_ms: int, span: str
) -> None:
    shard = Shard()
    claim = taken(shard, lease_ms)
    shard.pass_time(lease_ms)
    not_seen = refusal(shard, claim, token=token)
    shard.pass_time(500)
    shard.do(Reclaim(limit=1))
    shard.do(ChangePriority(job_ids=[claim.job_id], priority=0))

    seen = refusal(shard, claim, token=token)

    assert not_seen == f"the lease of {span} expired at {format_time(claim.lease_expires_ns)}"
    at = event_time(shard, claim, EventType.CRASHED)
    assert seen == f"the lease of {span} ended at {at} (expired), and the job is pending"
    shard.check_replay()


def test_a_job_that_is_held_since_its_leases_expired_says_so() -> None:
    shard = Shard()
    claim = taken(shard)
    for _ in range(2):
        shard.pass_time(60_000)
        shard.do(Reclaim(limit=1))
        shard.fetch()

    late = refusal(shard, claim, token=False)

    at = event_time(shard, claim, EventType.HELD)
    assert late == f"the lease of 1m0s ended at {at} (expired), and the job is held"


def test_a_lease_that_the_worker_gave_up_says_how() -> None:
    shard = Shard()
    claim = taken(shard)
    ENDING["release"](shard, claim.job_id, claim.lease_token, "")
    shard.do(Cancel(job_ids=[claim.job_id]))
    shard.do(Retry(job_ids=[claim.job_id]))

    late = refusal(shard, claim)

    at = event_time(shard, claim, EventType.RELEASED)
    assert late == f"the lease of 1m0s ended at {at} (released), and the job is pending"


def test_a_lease_after_which_too_much_happened_says_how_long_it_was() -> None:
    shard = Shard()
    claim = taken(shard)
    ENDING["release"](shard, claim.job_id, claim.lease_token, "")
    for number in range(40):
        shard.do(ChangePriority(job_ids=[claim.job_id], priority=number % 3))

    assert refusal(shard, claim) == "the lease of 1m0s ended, and the job is pending"


def test_a_job_that_another_worker_has_says_which_and_since_when() -> None:
    shard = Shard()
    claim = taken(shard)
    shard.pass_time(60_000)
    shard.do(Reclaim(limit=1))
    shard.do(Fetch(queues=["mail"], worker_id="w2"))
    since = format_time(shard.now_ns)

    newer = refusal(shard, claim)
    other = refusal(shard, claim, token=False, worker="w1")

    assert newer == f"a newer lease exists: worker w2 has the job since {since}"
    assert other == "worker w2 has the lease"


def test_a_job_that_was_never_fetched_says_so() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)

    [result] = shard.do(Ack(acks=[AckItem(job_id=job_id)])).results

    assert isinstance(result, Rejected)
    assert result.error.endswith("it is pending, and no worker has fetched it")


@pytest.mark.parametrize("earlier", ["", "ann"])
def test_an_answer_that_is_kept_is_the_one_of_the_version_of_its_entry(earlier: str) -> None:
    shard = Shard()
    claim = taken(shard)
    shard.pass_time(60_000)
    item = AckItem(job_id=claim.job_id, lease_token=claim.lease_token)
    op = Ack(acks=[item], request_key="k", earlier_key=earlier)

    [result] = shard.do(op).results
    [again] = shard.do(op).results

    assert isinstance(result, Rejected)
    assert result == again
    assert result.error.endswith(": the lease has expired") == (not earlier)
    assert "1m0s" in refusal(shard, claim), "only that op is of an earlier version"


# Heartbeats that cross the end of their lease.


@every_ending_word
def test_a_heartbeat_that_crosses_its_own_workers_word_stops_nobody(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    say(shard, claim.job_id, claim.lease_token, "")
    before = shard.job(claim.job_id)

    result = beat(shard, BeatItem(job_id=claim.job_id, lease_token=claim.lease_token))

    assert result == Beat(claim.job_id, "ended", 0)
    assert shard.job(claim.job_id) == before


def _expired(shard: Shard, claim: Claim) -> None:
    shard.pass_time(60_000)
    shard.do(Reclaim(limit=1))


def _cancelled(shard: Shard, claim: Claim) -> None:
    _expired(shard, claim)
    shard.do(Cancel(job_ids=[claim.job_id]))


def _acked_by_another(shard: Shard, claim: Claim) -> None:
    _expired(shard, claim)
    [other] = shard.do(Fetch(queues=["mail"], worker_id="w2")).jobs
    ENDING["ack"](shard, other.job_id, other.lease_token, "")


@pytest.mark.parametrize("end", [_expired, _cancelled, _acked_by_another])
@pytest.mark.parametrize(("token", "worker"), [(True, ""), (False, "w1"), (False, "")])
def test_a_heartbeat_under_a_lease_that_its_worker_lost_is_told_so(
    end: Callable[[Shard, Claim], None], token: bool, worker: str
) -> None:
    shard = Shard()
    claim = taken(shard)
    end(shard, claim)
    item = BeatItem(
        job_id=claim.job_id, lease_token=claim.lease_token if token else None, worker_id=worker
    )

    assert code(beat(shard, item)) in ("lease_lost", "job_not_active")


def test_without_a_token_a_heartbeat_of_the_worker_that_acked_stops_nobody() -> None:
    shard = Shard()
    claim = taken(shard)
    ENDING["ack"](shard, claim.job_id, None, "w1")

    results = [beat(shard, BeatItem(job_id=claim.job_id, worker_id=name)) for name in ("w1", "")]

    assert results[0] == Beat(claim.job_id, "ended", 0)
    assert code(results[1]) == "job_not_active"
    assert shard.state(claim.job_id) is State.COMPLETED


def test_a_kept_heartbeat_of_an_earlier_version_is_answered_as_then() -> None:
    shard = Shard()
    claim = taken(shard)
    ENDING["ack"](shard, claim.job_id, claim.lease_token, "")
    item = BeatItem(job_id=claim.job_id, lease_token=claim.lease_token)

    [result] = shard.do(Heartbeat(jobs=[item], request_key="k")).results

    assert code(result) == "lease_lost"
