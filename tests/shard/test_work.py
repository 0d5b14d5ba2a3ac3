"""What workers say: fetch, ack, fail, heartbeat, release, snooze; and under which lease."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from corvo.model import Backoff, Job, State
from corvo.protocol.ops.base import Limits, Op, Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Move
from corvo.protocol.ops.queues import DeleteQueue
from corvo.protocol.ops.work import (
    Ack,
    Acked,
    AckItem,
    Beat,
    BeatItem,
    Claim,
    Fail,
    Failed,
    FailItem,
    Fetch,
    Heartbeat,
    Release,
    ReleaseItem,
    Snooze,
    SnoozeItem,
)
from corvo.shard.ops.upkeep import Lead, Promote, Reclaim
from corvo.shard.state.tables import JOBS
from tests.shard.shard import MS, Shard

DONE: Final = msgspec.Raw(b'{"ok": true}')
MAIL: Final = NewJob(queue="mail")


def ack(shard: Shard, item: AckItem) -> Acked | Rejected:
    [result] = shard.do(Ack(acks=[item])).results
    return result


def fail(shard: Shard, item: FailItem) -> Failed | Rejected:
    [result] = shard.do(Fail(fails=[item])).results
    return result


def beat(shard: Shard, item: BeatItem) -> Beat | Rejected:
    [result] = shard.do(Heartbeat(jobs=[item])).results
    return result


def release(shard: Shard, item: ReleaseItem) -> Acked | Rejected:
    [result] = shard.do(Release(jobs=[item])).results
    return result


def snooze(shard: Shard, item: SnoozeItem) -> Acked | Rejected:
    [result] = shard.do(Snooze(jobs=[item])).results
    return result


def taken(shard: Shard, new: NewJob = MAIL) -> Claim:
    """A job that worker w1 has."""
    shard.put(new)
    [claim] = shard.fetch(new.queue)
    return claim


# Every word, said of a job under a token and by a worker.

Say = Callable[[Shard, str, int | None, str], Acked | Failed | Beat | Rejected]

WORDS: Final[dict[str, Say]] = {
    "ack": lambda shard, job_id, token, worker: ack(
        shard, AckItem(job_id=job_id, lease_token=token, worker_id=worker)
    ),
    "fail": lambda shard, job_id, token, worker: fail(
        shard, FailItem(job_id=job_id, lease_token=token, worker_id=worker, error="no")
    ),
    "heartbeat": lambda shard, job_id, token, worker: beat(
        shard, BeatItem(job_id=job_id, lease_token=token, worker_id=worker)
    ),
    "release": lambda shard, job_id, token, worker: release(
        shard, ReleaseItem(job_id=job_id, lease_token=token, worker_id=worker)
    ),
    "snooze": lambda shard, job_id, token, worker: snooze(
        shard, SnoozeItem(job_id=job_id, lease_token=token, worker_id=worker, delay_ms=10)
    ),
}
ENDING: Final = {name: say for name, say in WORDS.items() if name != "heartbeat"}
"""Those that end the lease."""

every_word = pytest.mark.parametrize("say", WORDS.values(), ids=WORDS)
every_ending_word = pytest.mark.parametrize("say", ENDING.values(), ids=ENDING)


def code(result: Acked | Failed | Beat | Rejected) -> str:
    return result.code if isinstance(result, Rejected) else "done"


@every_word
def test_a_word_is_taken_under_the_present_token(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)

    result = say(shard, claim.job_id, claim.lease_token, "")

    assert code(result) == "done"
    shard.check()


@every_word
@pytest.mark.parametrize("change", [-1, 1])
def test_a_word_under_another_token_is_refused_and_changes_nothing(say: Say, change: int) -> None:
    shard = Shard()
    claim = taken(shard)
    before = shard.job(claim.job_id)

    result = say(shard, claim.job_id, claim.lease_token + change, "")

    assert code(result) == "lease_lost"
    assert shard.job(claim.job_id) == before


@every_word
def test_a_word_about_a_job_that_nobody_knows_is_refused(say: Say) -> None:
    shard = Shard()

    result = say(shard, "nobody", 1, "")

    assert isinstance(result, Rejected)
    assert (result.code, result.job_id) == ("job_not_found", "nobody")


@every_word
def test_a_word_is_taken_just_before_the_lease_is_over_and_not_then(say: Say) -> None:
    early, late = Shard(), Shard()
    first, second = taken(early), taken(late)
    early.clock_ns = first.lease_expires_ns - 1
    late.clock_ns = second.lease_expires_ns

    results = [
        say(early, first.job_id, first.lease_token, ""),
        say(late, second.job_id, second.lease_token, ""),
    ]

    assert [code(result) for result in results] == ["done", "lease_lost"]
    assert late.state(second.job_id) is State.ACTIVE


@every_word
def test_without_a_token_the_state_decides(say: Say) -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)

    before = say(shard, job_id, None, "")
    shard.fetch()
    after = say(shard, job_id, None, "")

    assert (code(before), code(after)) == ("job_not_active", "done")


@every_word
def test_without_a_token_a_lease_that_is_over_is_lost_just_the_same(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    shard.pass_time(60_000)

    result = say(shard, claim.job_id, None, "")

    assert code(result) == "lease_lost"


@every_word
def test_a_job_of_another_worker_is_not_the_callers(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)

    stranger = say(shard, claim.job_id, None, "w2")
    owner = say(shard, claim.job_id, None, "w1")

    assert (code(stranger), code(owner)) == ("lease_lost", "done")


@every_word
def test_the_token_is_enough_whoever_brings_it(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)

    result = say(shard, claim.job_id, claim.lease_token, "w2")

    assert code(result) == "done"


@every_word
def test_a_job_that_was_fetched_without_a_name_is_anybodys(say: Say) -> None:
    shard = Shard()
    shard.put(MAIL)
    [claim] = shard.fetch(worker="")

    result = say(shard, claim.job_id, None, "w2")

    assert code(result) == "done"


@every_ending_word
def test_the_same_word_again_gets_the_same_answer_and_does_nothing(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    first = say(shard, claim.job_id, claim.lease_token, "")
    before = shard.job(claim.job_id)

    second = say(shard, claim.job_id, claim.lease_token, "")

    assert second == first
    assert shard.job(claim.job_id) == before


@pytest.mark.parametrize("say", [ENDING["fail"], ENDING["release"], ENDING["snooze"]])
def test_the_same_word_is_known_again_when_the_job_has_gone_on(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    first = say(shard, claim.job_id, claim.lease_token, "")
    shard.pass_time(3_600_000)
    shard.do(Promote(limit=9))
    [again] = shard.fetch()

    second = say(shard, claim.job_id, claim.lease_token, "")

    assert second == first
    assert shard.job(claim.job_id).lease_token == again.lease_token


@every_ending_word
def test_another_word_under_a_settled_token_is_refused(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    say(shard, claim.job_id, claim.lease_token, "")

    others = [
        code(other(shard, claim.job_id, claim.lease_token, ""))
        for other in ENDING.values()
        if other is not say
    ]

    assert set(others) == {"lease_lost"}


def test_a_later_word_is_remembered_in_place_of_the_one_before() -> None:
    shard = Shard()
    first = taken(shard)
    release(shard, ReleaseItem(job_id=first.job_id, lease_token=first.lease_token))
    [second] = shard.fetch()
    release(shard, ReleaseItem(job_id=first.job_id, lease_token=second.lease_token))

    result = release(shard, ReleaseItem(job_id=first.job_id, lease_token=first.lease_token))

    assert code(result) == "lease_lost"


def test_a_crash_is_no_word_and_takes_the_place_of_none() -> None:
    shard = Shard()
    first = taken(shard)
    item = ReleaseItem(job_id=first.job_id, lease_token=first.lease_token)
    release(shard, item)
    shard.fetch()
    shard.pass_time(60_000)
    shard.do(Reclaim(limit=9))

    result = release(shard, item)

    assert result == Acked(first.job_id, "pending")


@every_ending_word
def test_a_job_that_was_deleted_knows_no_words_any_more(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    say(shard, claim.job_id, claim.lease_token, "")
    shard.do(Delete(job_ids=[claim.job_id]))

    result = say(shard, claim.job_id, claim.lease_token, "")

    assert code(result) == "job_not_found"


@every_ending_word
def test_a_job_that_is_being_swept_knows_no_words_any_more(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    say(shard, claim.job_id, claim.lease_token, "")
    shard.do(DeleteQueue(queue="mail"))

    result = say(shard, claim.job_id, claim.lease_token, "")

    assert code(result) == "job_not_found"


# Grace.


@every_word
def test_a_lease_that_was_not_over_when_a_leader_began_lasts_until_its_grace_ends(
    say: Say,
) -> None:
    within, after = Shard(), Shard()
    results = []
    for shard, wait_ms in ((within, 119_000), (after, 120_000)):
        claim = taken(shard)
        shard.pass_time(100_000)
        shard.do(Lead(grace_ms=120_000))
        shard.pass_time(wait_ms)
        results.append(say(shard, claim.job_id, claim.lease_token, ""))

    assert [code(result) for result in results] == ["done", "lease_lost"]


def test_a_lease_that_was_over_at_the_last_entry_before_a_leader_has_no_grace() -> None:
    shard = Shard()
    claim = taken(shard)
    shard.pass_time(60_000)
    shard.put(MAIL)
    shard.do(Lead(grace_ms=60_000))

    result = ack(shard, AckItem(job_id=claim.job_id, lease_token=claim.lease_token))

    assert code(result) == "lease_lost"


# Fetch.


def test_a_fetch_counts_the_attempt_and_gives_a_greater_token_each_time() -> None:
    shard = Shard()
    first = taken(shard)
    fail(shard, FailItem(job_id=first.job_id, retry_after_ms=0))
    shard.do(Promote(limit=9))

    [second] = shard.fetch()

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.lease_token > first.lease_token


def test_a_job_can_be_fetched_and_released_many_times_in_one_entry() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    round_trip: list[Op] = [Fetch(queues=["mail"]), Release(jobs=[ReleaseItem(job_id=job_id)])]

    shard.entry(*round_trip * 200)
    before = shard.job(job_id).lease_token
    [claim] = shard.fetch()

    assert claim.lease_token > before
    assert claim.attempt == 1
    shard.check()


def test_a_claim_tells_a_worker_what_it_needs() -> None:
    shard = Shard()
    new = NewJob(
        queue="mail",
        payload=msgspec.Raw(b'{"to": 7}'),
        kind="letter",
        tags={"a": "b"},
        checkpoint=msgspec.Raw(b"[1]"),
        max_retries=7,
    )
    shard.put(new)

    [claim] = shard.fetch(lease_ms=1_500)

    assert bytes(claim.payload or b"") == b'{"to": 7}'
    assert bytes(claim.checkpoint or b"") == b"[1]"
    assert (claim.kind, claim.tags, claim.max_retries) == ("letter", {"a": "b"}, 7)
    assert claim.lease_duration == 2, "seconds, rounded up"
    assert claim.lease_expires_ns == shard.now_ns + 1_500 * MS


def test_queues_are_served_in_the_order_in_which_they_are_named() -> None:
    shard = Shard()
    shard.put(NewJob(queue="a"), NewJob(queue="b"), NewJob(queue="a"))

    claims = shard.fetch("b", "none", "a", count=9)

    assert [claim.queue for claim in claims] == ["b", "a", "a"]


def test_urgent_jobs_come_first_and_the_rest_in_order() -> None:
    shard = Shard()
    ids = shard.put(*[NewJob(queue="mail", priority=priority) for priority in (2, 1, 0, 2, 1, 0)])

    claims = shard.fetch(count=9)

    assert [claim.job_id for claim in claims] == [ids[at] for at in (2, 5, 1, 4, 0, 3)]


# Ack.


def test_an_ack_completes_a_job_and_keeps_what_it_brings() -> None:
    shard = Shard()
    claim = taken(shard)

    result = ack(shard, AckItem(job_id=claim.job_id, result=DONE, checkpoint=msgspec.Raw(b'"end"')))

    job = shard.job(claim.job_id)
    assert result == Acked(claim.job_id, "completed")
    assert (job.state, job.result, job.checkpoint) == (State.COMPLETED, bytes(DONE), b'"end"')
    assert job.finished_ns == job.completed_ns == shard.now_ns
    assert shard.counts("mail") == {State.COMPLETED: 1}
    shard.check()


def test_one_ack_that_is_refused_does_not_hold_up_the_others() -> None:
    shard = Shard()
    shard.put(MAIL, MAIL)
    first, second = shard.fetch(count=2)

    results = shard.do(
        Ack(acks=[AckItem(job_id=name) for name in (first.job_id, "nobody", second.job_id)])
    ).results

    assert [code(result) for result in results] == ["done", "job_not_found", "done"]


def test_an_ack_completes_a_job_that_was_asked_to_stop() -> None:
    shard = Shard()
    claim = taken(shard)
    shard.do(Cancel(job_ids=[claim.job_id]))

    ack(shard, AckItem(job_id=claim.job_id))

    assert shard.state(claim.job_id) is State.COMPLETED


# Fail.


def test_a_failed_job_waits_and_keeps_its_error() -> None:
    shard = Shard()
    claim = taken(shard)

    result = fail(
        shard,
        FailItem(job_id=claim.job_id, error="boom", backtrace="line 1", error_class="Boom"),
    )

    due_ns = shard.now_ns + 5_000 * MS
    assert result == Failed(claim.job_id, "retrying", due_ns, attempts_remaining=2)
    assert shard.job(claim.job_id).scheduled_ns == due_ns
    [error] = shard.errors(claim.job_id)
    assert (error.attempt, error.error, error.backtrace) == (1, "boom", "line 1")
    assert (error.error_class, error.worker_id, error.at_ns) == ("Boom", "w1", shard.now_ns)
    shard.check()


def test_a_job_without_attempts_left_is_dead() -> None:
    shard = Shard()
    claim = taken(shard, NewJob(queue="mail", max_retries=1))

    result = fail(shard, FailItem(job_id=claim.job_id, error="boom"))

    assert result == Failed(claim.job_id, "dead")
    assert shard.state(claim.job_id) is State.DEAD
    assert len(shard.errors(claim.job_id)) == 1
    shard.check()


def test_an_error_that_cannot_be_retried_is_the_last() -> None:
    shard = Shard()
    claim = taken(shard)

    result = fail(shard, FailItem(job_id=claim.job_id, retryable=False))

    assert result == Failed(claim.job_id, "dead")


def test_a_job_that_was_asked_to_stop_is_cancelled_when_it_fails() -> None:
    shard = Shard()
    claim = taken(shard)
    shard.do(Cancel(job_ids=[claim.job_id]))

    result = fail(shard, FailItem(job_id=claim.job_id, error="boom"))

    assert result == Failed(claim.job_id, "cancelled")
    assert shard.state(claim.job_id) is State.CANCELLED
    assert [error.error for error in shard.errors(claim.job_id)] == ["boom"]
    shard.check()


@pytest.mark.parametrize(
    ("backoff", "delays_ms"),
    [
        (Backoff.NONE, [0, 0, 0, 0]),
        (Backoff.FIXED, [100, 100, 100, 100]),
        (Backoff.LINEAR, [100, 200, 300, 350]),
        (Backoff.EXPONENTIAL, [100, 200, 350, 350]),
    ],
)
def test_delays_grow_as_the_backoff_says_and_no_further_than_the_cap(
    backoff: Backoff, delays_ms: list[int]
) -> None:
    shard = Shard()
    new = NewJob(
        queue="mail",
        max_retries=9,
        retry_backoff=backoff,
        retry_base_delay_ms=100,
        retry_max_delay_ms=350,
    )
    shard.put(new)

    waited = []
    for _ in delays_ms:
        [claim] = shard.fetch()
        result = fail(shard, FailItem(job_id=claim.job_id))
        assert isinstance(result, Failed)
        waited.append((result.next_attempt_ns - shard.now_ns) // MS)
        shard.pass_time(1_000)
        shard.do(Promote(limit=1))

    assert waited == delays_ms


def test_a_delay_that_is_given_goes_before_the_backoff() -> None:
    shard = Shard()
    claim = taken(shard, NewJob(queue="mail", retry_jitter=100))

    result = fail(shard, FailItem(job_id=claim.job_id, retry_after_ms=77))

    assert isinstance(result, Failed)
    assert result.next_attempt_ns == shard.now_ns + 77 * MS


def test_jitter_spreads_a_delay_by_its_share_and_replicas_agree() -> None:
    waited = []
    for dice in range(50):
        shard = Shard(dice=dice)
        claim = taken(shard, NewJob(queue="mail", retry_jitter=10, retry_base_delay_ms=1_000))
        result = fail(shard, FailItem(job_id=claim.job_id))
        assert isinstance(result, Failed)
        waited.append((result.next_attempt_ns - shard.now_ns) // MS)
        shard.check_replay()

    assert min(waited) >= 900
    assert max(waited) <= 1_100
    assert max(waited) - min(waited) > 100, "it does spread"


def test_the_last_twenty_errors_are_kept() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail", max_retries=99, retry_backoff=Backoff.NONE))
    job_id = ""

    for number in range(1, 26):
        [claim] = shard.fetch()
        job_id = claim.job_id
        fail(shard, FailItem(job_id=job_id, error=f"error {number}"))
        shard.do(Promote(limit=1))

    assert [error.error for error in shard.errors(job_id)] == [
        f"error {number}" for number in range(6, 26)
    ]
    shard.check()


def test_a_job_without_a_cap_waits_ten_years_and_no_longer() -> None:
    shard = Shard()
    new = NewJob(queue="mail", max_retries=99, retry_max_delay_ms=0, retry_base_delay_ms=10**11)
    shard.put(new)

    for _ in range(9):
        [claim] = shard.fetch()
        fail(shard, FailItem(job_id=claim.job_id))
        shard.clock_ns = shard.job(claim.job_id).scheduled_ns
        shard.do(Promote(limit=1))

    shard.check()


def test_a_job_that_was_moved_with_its_attempts_reset_can_fail() -> None:
    shard = Shard(shards=1)
    claim = taken(shard)
    shard.do(Move(job_ids=[claim.job_id], queue="post", reset_attempts=True))

    result = fail(shard, FailItem(job_id=claim.job_id))

    assert isinstance(result, Failed)
    assert (result.status, result.attempts_remaining) == ("retrying", 3)
    shard.check()


# Heartbeat.


def test_a_heartbeat_begins_the_jobs_own_lease_anew() -> None:
    shard = Shard()
    shard.put(MAIL)
    [claim] = shard.fetch(lease_ms=30_000)
    shard.pass_time(20_000)

    result = beat(shard, BeatItem(job_id=claim.job_id, lease_token=claim.lease_token))

    until_ns = shard.now_ns + 30_000 * MS
    assert result == Beat(claim.job_id, "ok", until_ns)
    assert shard.job(claim.job_id).lease_expires_ns == until_ns
    shard.check()


def test_a_heartbeat_never_shortens_a_lease() -> None:
    shard = Shard()
    claim = taken(shard)
    tx = shard.tx
    tx.begin(index=shard.machine.applied + 1, term=1, stamp_ns=shard.clock_ns)
    found = JOBS.find(tx, claim.job_id)
    assert found is not None
    until_ns = claim.lease_expires_ns + 9_000 * MS
    # As a job that was moved in a time of grace may bring with it.
    JOBS.change(tx, found, msgspec.structs.replace(found.document, lease_expires_ns=until_ns))
    tx.commit()

    result = beat(shard, BeatItem(job_id=claim.job_id))

    assert result == Beat(claim.job_id, "ok", until_ns)


def test_a_heartbeat_stores_progress_and_checkpoint_when_they_are_sent() -> None:
    shard = Shard()
    claim = taken(shard)
    half, place = msgspec.Raw(b'{"done": 50}'), msgspec.Raw(b'"row 7"')

    beat(shard, BeatItem(job_id=claim.job_id, progress=half, checkpoint=place))
    beat(shard, BeatItem(job_id=claim.job_id))

    job = shard.job(claim.job_id)
    assert (job.progress, job.checkpoint) == (bytes(half), bytes(place))
    assert shard.trail(claim.job_id) == ["enqueued", "started"], "it is no event"


def test_a_heartbeat_asks_to_stop() -> None:
    shard = Shard()
    claim = taken(shard)
    shard.do(Cancel(job_ids=[claim.job_id]))

    result = beat(shard, BeatItem(job_id=claim.job_id))

    assert isinstance(result, Beat)
    assert result.status == "cancel"
    assert shard.state(claim.job_id) is State.ACTIVE


# Release and snooze.


def test_a_released_job_is_at_its_old_place_and_its_attempt_is_given_back() -> None:
    shard = Shard()
    first, second = shard.put(MAIL, MAIL)
    shard.fetch()

    result = release(
        shard, ReleaseItem(job_id=first, why="stopping", checkpoint=msgspec.Raw(b"[7]"))
    )
    claims = shard.fetch(count=2)

    assert result == Acked(first, "pending")
    assert [(claim.job_id, claim.attempt) for claim in claims] == [(first, 1), (second, 1)]
    assert bytes(claims[0].checkpoint or b"") == b"[7]"
    shard.check()


def test_a_snoozed_job_is_scheduled_and_its_attempt_is_given_back() -> None:
    shard = Shard()
    claim = taken(shard)

    result = snooze(shard, SnoozeItem(job_id=claim.job_id, delay_ms=5_000))

    job = shard.job(claim.job_id)
    assert result == Acked(claim.job_id, "scheduled")
    assert (job.state, job.attempt) == (State.SCHEDULED, 0)
    assert job.scheduled_ns == shard.now_ns + 5_000 * MS
    assert (job.worker_id, job.lease_expires_ns) == ("", 0)
    shard.check()


@pytest.mark.parametrize("say", [ENDING["release"], ENDING["snooze"]])
def test_a_job_that_was_asked_to_stop_is_cancelled_when_it_is_given_back(say: Say) -> None:
    shard = Shard()
    claim = taken(shard)
    shard.do(Cancel(job_ids=[claim.job_id]))

    results = [say(shard, claim.job_id, claim.lease_token, "") for _ in range(2)]

    assert results == [Acked(claim.job_id, "cancelled")] * 2
    job = shard.job(claim.job_id)
    assert (job.state, job.attempt, job.cancel_requested) == (State.CANCELLED, 0, False)
    shard.check()


# The door, and what is remembered.


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Fetch(queues=["mail"], lease_ms=999), "lease_ms"),
        (Fetch(queues=["mail", "a\nb"]), "queues[1]"),
        (Fetch(queues=["mail"], worker_id="a\0b"), "worker_id"),
        (
            Ack(acks=[AckItem(job_id="a"), AckItem(job_id="b", result=msgspec.Raw(b"1" * 101))]),
            "acks[1].result",
        ),
        (Ack(acks=[AckItem(job_id="a", checkpoint=msgspec.Raw(b'"\xff"'))]), "acks[0].checkpoint"),
        (Fail(fails=[FailItem(job_id="a", error="é" * 51)]), "fails[0].error"),
        (Fail(fails=[FailItem(job_id="a", backtrace="x" * 101)]), "fails[0].backtrace"),
        (
            Heartbeat(jobs=[BeatItem(job_id="a", progress=msgspec.Raw(b"[" * 101 + b"]" * 101))]),
            "jobs[0].progress",
        ),
        (Release(jobs=[ReleaseItem(job_id="a", checkpoint=msgspec.Raw(b"1" * 101))]), "jobs[0].c"),
        (
            Snooze(jobs=[SnoozeItem(job_id="a", delay_ms=1, checkpoint=msgspec.Raw(b"1" * 101))]),
            "jobs[0].checkpoint",
        ),
    ],
)
def test_what_is_wrong_is_refused_at_the_door_with_the_name_of_the_field(
    op: Op, field: str
) -> None:
    limits = Limits(
        result_bytes_max=100,
        checkpoint_bytes_max=100,
        progress_bytes_max=1_000,
        error_bytes_max=100,
        backtrace_bytes_max=100,
    )

    refused = op.check(limits)

    assert refused is not None
    assert refused.field.startswith(field)


def test_the_trail_keeps_the_first_event_and_the_last_ones() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)

    for _ in range(20):
        shard.fetch()
        release(shard, ReleaseItem(job_id=job_id))

    trail = shard.job(job_id).trail
    assert len(trail) == 32
    assert [event.what for event in trail[:3]] == ["enqueued", "released", "started"]
    assert trail[-1].what == "released"


def test_a_replica_that_restarts_before_every_entry_comes_to_the_same_state() -> None:
    shard = Shard(dice=9)
    for number in range(6):
        shard.put(*[NewJob(queue="mail", retry_jitter=50, priority=at % 3) for at in range(4)])
        claims = shard.fetch(count=3, lease_ms=1_000)
        words = [ENDING[name] for name in sorted(ENDING)]
        for at, claim in enumerate(claims):
            words[(at + number) % len(words)](shard, claim.job_id, claim.lease_token, "w1")
        shard.fetch(count=1, lease_ms=1_000)
        shard.pass_time(3_000)
        shard.do(Promote(limit=2))
        shard.do(Reclaim(limit=2))
        shard.check()

    shard.check_replay()


def test_a_jobs_document_is_as_it_was_when_it_is_read_back() -> None:
    shard = Shard()
    claim = taken(shard, NewJob(queue="mail", tags={"a": "b"}, unique_key="k"))
    before = shard.job(claim.job_id)

    shard.reopen()

    after: Job = shard.job(claim.job_id)
    assert after == before
