"""Chains: each step once, with what the one before it left, wherever its queue lives."""

from random import Random
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import Backoff, Job, State
from corvo.protocol.ops.base import Limits
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Hold, Reject, Requeue, Retry
from corvo.protocol.ops.queues import Clear
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    Fail,
    FailItem,
    Release,
    ReleaseItem,
    StepStatus,
)
from corvo.protocol.ops.workflow import CHAIN_BYTES_MAX, STEPS_MAX, Chain, Step
from corvo.shard.ops.upkeep import Expire, Reclaim, Sweep
from corvo.shard.state import chains
from corvo.shard.state.tables import JOBS
from tests.shard.cluster import QUEUES, Cluster
from tests.shard.links import Links
from tests.shard.shard import MS, Shard

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, BILL]] = QUEUES
A, B, C = 0, 1, 2
Raw: Final = msgspec.Raw
MANY: Final = 60
"""Random interleavings that are tried."""

CHAIN: Final = Chain(
    steps=[Step(SMS, Raw(b'{"unused": 1}')), Step(NOTE, Raw(b'{"to": "b"}')), Step(MAIL)],
    on_failure=Step("oops", Raw(b'{"page": true}')),
    on_exit=Step("done"),
)


def put(shard: Shard, chain: Chain = CHAIN, **fields: object) -> str:
    [job_id] = shard.put(replace(NewJob(queue=SMS, chain=chain), **fields))  # type: ignore[arg-type]
    return job_id


def ack(
    shard: Shard, queue: str, result: bytes = b"", step: StepStatus = StepStatus.CONTINUE
) -> str:
    """Complete the next job of a queue."""
    [claim] = shard.fetch(queue)
    item = AckItem(job_id=claim.job_id, step_status=step)
    if result:
        item = replace(item, result=Raw(result))
    shard.do(Ack(acks=[item]))
    return claim.job_id


def only(shard: Shard, queue: str) -> Job:
    [job] = [job for job in shard.documents(JOBS) if job.queue == queue]
    return job


def said(shard: Shard, queue: str) -> object:
    value: object = msgspec.json.decode(only(shard, queue).payload)
    return value


def queues(shard: Shard) -> list[str]:
    return sorted(job.queue for job in shard.documents(JOBS))


@pytest.fixture
def shard() -> Shard:
    return Shard(shards=1)


def test_each_step_gets_the_result_before_it_and_the_last_one_is_followed_by_on_exit(
    shard: Shard,
) -> None:
    first = put(shard, payload=Raw(b'{"own": 1}'), priority=1, tags={"a": "b"}, max_retries=9)

    began = said(shard, SMS)
    ack(shard, SMS, b'{"n": 1}')
    second = ack(shard, NOTE)
    third = ack(shard, MAIL, b"null")

    assert began == {"own": 1}
    assert said(shard, NOTE) == {"previous_job_id": first, "previous_result": {"n": 1}, "to": "b"}
    assert said(shard, MAIL) == {"previous_job_id": second}
    assert said(shard, "done") == {"previous_job_id": third, "previous_result": None}
    steps = [only(shard, queue).chain_step for queue in (SMS, NOTE, MAIL, "done")]
    assert steps == [0, 1, 2, -1]
    [chain_id] = {job.chain_id for job in shard.documents(JOBS)}
    assert chain_id.startswith("s00_chain_")
    note = only(shard, NOTE)
    assert (note.priority, note.max_retries, note.tags) == (2, 3, {})
    shard.check()
    shard.check_replay()


FIELDS: Final[dict[str, object]] = {
    "kind": "letter",
    "priority": 0,
    "max_retries": 9,
    "retry_backoff": Backoff.LINEAR,
    "retry_base_delay_ms": 8,
    "retry_max_delay_ms": 7,
    "retry_jitter": 6,
    "max_run_time_ms": 5,
    "max_crashes": 4,
    "expire_after_ms": 3,
    "expire_active": True,
    "tags": {"team": "a"},
}
"""A value other than the default, for each field of a step beside queue and payload."""


def test_every_field_of_a_step_is_one_of_a_new_job_with_its_default() -> None:
    step, new = Step(SMS), NewJob(queue=SMS)

    assert set(Step.__struct_fields__) == {"queue", "payload", *FIELDS}
    assert [getattr(step, name) for name in FIELDS] == [getattr(new, name) for name in FIELDS]


@pytest.mark.parametrize("field", FIELDS)
def test_the_next_step_and_the_handlers_are_jobs_like_those_of_a_producer(field: str) -> None:
    cluster = Cluster()
    changes = {field: FIELDS[field]}
    steps = [Step(SMS), replace(Step(MAIL), **changes)]  # type: ignore[arg-type]
    end = replace(Step(PUSH), **changes)  # type: ignore[arg-type]
    alone = cluster.shards[B].put(replace(NewJob(queue=MAIL), **changes))  # type: ignore[arg-type]
    put(cluster.shards[A], Chain(steps=steps, on_exit=end))

    ack(cluster.shards[A], SMS)
    cluster.settle()
    [next_] = [
        claim.job_id
        for claim in cluster.shards[B].fetch(MAIL, count=2)
        if claim.job_id not in alone
    ]
    cluster.shards[B].do(Ack(acks=[AckItem(job_id=next_)]))
    cluster.settle()

    wanted = cluster.shards[B].job(alone[0])
    step, exit_ = cluster.shards[B].job(next_), only(cluster.shards[C], PUSH)
    assert of_run(step) == of_run(wanted) == of_run(exit_) != of_run(only(cluster.shards[A], SMS))
    for shard in cluster.shards:
        shard.check()
        shard.check_replay()


def of_run(job: Job) -> tuple[object, ...]:
    """What a producer said of a job's runs."""
    expires_ms = (job.expires_ns - job.created_ns) // MS if job.expires_ns else 0
    return (
        *(job.kind, job.priority, job.tags, job.max_retries, job.backoff, job.retry_jitter),
        *(job.retry_base_delay_ms, job.retry_max_delay_ms, job.max_run_time_ms, job.max_crashes),
        *(expires_ms, job.expires_active),
    )


def test_a_handler_goes_no_further(shard: Shard) -> None:
    put(shard)
    ack(shard, SMS, step=StepStatus.EXIT)
    before = queues(shard)

    ack(shard, "done")

    assert before == queues(shard) == ["done", SMS]


def test_an_ack_that_exits_ends_the_chain_with_on_exit_or_nothing(shard: Shard) -> None:
    put(shard)
    put(shard, Chain(steps=[Step(SMS), Step("never")]))

    ack(shard, SMS, step=StepStatus.EXIT)
    ack(shard, SMS, step=StepStatus.EXIT)

    assert queues(shard) == ["done", SMS, SMS]


def test_steps_acked_in_one_op_all_go_on(shard: Shard) -> None:
    jobs = [put(shard) for _ in range(3)]
    shard.fetch(SMS, count=3)

    shard.do(Ack(acks=[AckItem(job_id=job) for job in (*jobs, jobs[0])]))

    assert shard.counts(NOTE) == {State.PENDING: 3}


def test_a_step_that_dies_calls_on_failure_with_its_last_error(shard: Shard) -> None:
    put(shard)
    ack(shard, SMS)
    [claim] = shard.fetch(NOTE)

    shard.do(Fail(fails=[FailItem(job_id=claim.job_id, error="no route", retryable=False)]))

    assert said(shard, "oops") == {
        "failed_job_id": claim.job_id,
        "failed_step": 1,
        "error": "no route",
        "page": True,
    }
    assert only(shard, "oops").chain_step == -2


@pytest.mark.parametrize("how", ["expired", "max_run_time exceeded", "not wanted"])
def test_however_a_step_dies_its_on_failure_is_told_why(shard: Shard, how: str) -> None:
    job = put(shard, expire_after_ms=10, max_run_time_ms=10, max_retries=1)
    if how == "not wanted":
        shard.do(Hold(job_ids=[job]))
        shard.do(Reject(job_ids=[job], why="not wanted"))
    elif how == "expired":
        shard.pass_time(20)
        shard.do(Expire(limit=1))
    else:
        shard.fetch(SMS)
        shard.pass_time(20)
        shard.do(Reclaim(limit=1))

    payload = said(shard, "oops")

    assert isinstance(payload, dict)
    assert payload["error"] == how


HANDLED: Final = replace(CHAIN, cancel_is_failure=True)


@pytest.mark.parametrize(("why", "error"), [("", "cancelled"), ("not now", "cancelled: not now")])
def test_a_step_that_is_cancelled_calls_on_failure(shard: Shard, why: str, error: str) -> None:
    put(shard, HANDLED)
    step = ack(shard, SMS)
    second = only(shard, NOTE).id

    shard.do(Cancel(job_ids=[second], why=why))

    assert said(shard, "oops") == {
        "failed_job_id": second,
        "failed_step": 1,
        "error": error,
        "page": True,
    }
    assert queues(shard) == [NOTE, "oops", SMS]
    assert step != second
    shard.check()
    shard.check_replay()


def test_a_step_that_was_asked_to_stop_calls_on_failure_when_its_worker_gives_it_back(
    shard: Shard,
) -> None:
    job = put(shard, HANDLED)
    shard.fetch(SMS)
    shard.do(Cancel(job_ids=[job]))
    before = queues(shard)

    shard.do(Release(jobs=[ReleaseItem(job_id=job)]))

    assert before == [SMS]
    assert queues(shard) == ["oops", SMS]
    assert only(shard, "oops").payload.count(b'"error":"cancelled: asked to stop"') == 1


def test_a_cancelled_step_that_is_retried_goes_on_and_on_failure_does_not_come_again(
    shard: Shard,
) -> None:
    job = put(shard, HANDLED)
    for _ in range(2):
        shard.do(Cancel(job_ids=[job]))
        shard.do(Retry(job_ids=[job]))

    ack(shard, SMS)

    assert queues(shard) == [NOTE, "oops", SMS]


@pytest.mark.parametrize("chain", [replace(CHAIN, cancel_is_failure=False), CHAIN])
def test_a_cancelled_step_ends_a_chain_that_says_so_or_is_of_an_older_router(
    shard: Shard, chain: Chain
) -> None:
    shard.do(Cancel(job_ids=[put(shard, chain)]))

    assert queues(shard) == [SMS]


def test_a_step_that_is_deleted_or_cleared_ends_the_chain(shard: Shard) -> None:
    shard.do(Delete(job_ids=[put(shard, HANDLED)]))
    put(shard, HANDLED)
    shard.do(Clear(queue=SMS))
    shard.do(Sweep(queue=SMS, limit=5))

    assert queues(shard) == []


def test_a_step_that_was_completed_goes_on_once_however_often_it_is_retried(shard: Shard) -> None:
    job = put(shard)
    ack(shard, SMS)

    shard.do(Retry(job_ids=[job]))
    ack(shard, SMS)
    shard.do(Retry(job_ids=[job]))
    shard.fetch(SMS)
    shard.do(Fail(fails=[FailItem(job_id=job, retryable=False)]))

    assert queues(shard) == [NOTE, SMS]


def test_on_failure_comes_once_in_a_chain_and_a_dead_step_that_is_mended_goes_on(
    shard: Shard,
) -> None:
    job = put(shard)
    for _ in range(2):
        shard.fetch(SMS)
        shard.do(Fail(fails=[FailItem(job_id=job, retryable=False)]))
        shard.do(Requeue(job_ids=[job]))
    ack(shard, SMS)
    [claim] = shard.fetch(NOTE)

    shard.do(Fail(fails=[FailItem(job_id=claim.job_id, retryable=False)]))

    assert queues(shard) == [NOTE, "oops", SMS]


def test_a_result_that_would_keep_the_next_step_from_travelling_stays_behind(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "EFFECT_BYTES_MAX", 100_000)
    small, large = put(shard), put(shard)

    ack(shard, SMS, b'"' + b"x" * 30_000 + b'"')
    ack(shard, SMS, b'"' + b"x" * 60_000 + b'"')

    payloads = [
        msgspec.json.decode(job.payload, type=dict[str, str])
        for job in shard.documents(JOBS)
        if job.queue == NOTE
    ]
    results = {it["previous_job_id"]: "previous_result" in it for it in payloads}
    assert results == {small: True, large: False}


BAD: Final = {
    "steps": Chain(steps=[Step(SMS)]),
    "steps ": Chain(steps=[Step(SMS)] * (STEPS_MAX + 1)),
    "steps[0].queue": Chain(steps=[Step(NOTE), Step(SMS)]),
    "steps[1].queue": Chain(steps=[Step(SMS), Step("")]),
    "steps[2].queue": Chain(steps=[Step(SMS), Step(SMS), Step("a\0")]),
    "on_exit.queue": Chain(steps=[Step(SMS), Step(SMS)], on_exit=Step("")),
    "on_failure.payload": Chain(
        steps=[Step(SMS), Step(SMS)], on_failure=Step(SMS, Raw(b'{"\\ud800":1}'))
    ),
    "steps[1].tags": Chain(steps=[Step(SMS), Step(SMS, tags={"a": "x" * 300})]),
    "on_exit.tags": Chain(steps=[Step(SMS), Step(SMS)], on_exit=Step(SMS, tags={"": "x"})),
    "steps[1].payload": Chain(steps=[Step(SMS), Step(SMS, Raw(b'"\xff"'))]),
}


@pytest.mark.parametrize("field", BAD)
def test_what_is_wrong_with_a_chain_is_named_at_the_door(field: str) -> None:
    op = Enqueue(jobs=[NewJob(queue=SMS), NewJob(queue=SMS, chain=BAD[field])])

    refused = op.check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("bad_request", f"jobs[1].chain.{field.strip()}")


def test_a_chain_is_not_larger_than_may_travel_with_every_job_of_it() -> None:
    half = Raw(b'"' + b"x" * (CHAIN_BYTES_MAX // 2) + b'"')
    chain = Chain(steps=[Step(SMS, half), Step(SMS, half)])

    refused = Enqueue(jobs=[NewJob(queue=SMS, chain=chain)]).check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("payload_too_large", "jobs[0].chain")


# Across shards.


def test_the_next_step_is_made_in_the_shard_of_its_queue() -> None:
    cluster = Cluster()
    steps = [Step(SMS), Step(MAIL, Raw(b'{"a": 1}')), Step(PUSH)]
    first = put(cluster.shards[A], Chain(steps=steps, on_exit=Step(NOTE)))

    ack(cluster.shards[A], SMS, b'"r"')
    cluster.settle()
    there = only(cluster.shards[B], MAIL)
    ack(cluster.shards[B], MAIL)
    cluster.settle()
    ack(cluster.shards[C], PUSH)
    cluster.settle()

    assert there.id.startswith("s01_job_")
    assert said(cluster.shards[B], MAIL) == {
        "previous_job_id": first,
        "previous_result": "r",
        "a": 1,
    }
    assert only(cluster.shards[A], NOTE).chain_step == -1
    assert len({job.chain_id for _, job in cluster.live()}) == 1
    for shard in cluster.shards:
        shard.check()


@pytest.mark.parametrize("part", range(3))
def test_whatever_happens_each_step_is_made_once_at_most(part: int) -> None:
    for seed in range(part * MANY // 3, (part + 1) * MANY // 3):
        run_trial(seed)


def run_trial(seed: int) -> None:
    """A chain through all shards, whose jobs are acked, failed, retried and moved at random."""
    random = Random(seed)
    cluster = (Cluster, Links)[seed % 2]()
    chain = Chain(
        steps=[Step(SMS), Step(MAIL), Step(PUSH), Step(NOTE)],
        on_failure=Step(BILL),
        on_exit=Step(VIDEO),
        cancel_is_failure=True,
    )
    put(cluster.shards[A], chain)
    for _ in range(100):
        shard = random.choice(cluster.shards)
        cluster.stray(random)
        live = list(cluster.live())
        if not live:
            continue
        number, job = random.choice(live)
        if random.random() < 0.15:
            home = job.born_in if job.born_in >= 0 else number
            cluster.move((home, job.id), random.choice((SMS, MAIL, PUSH)))
        elif random.random() < 0.3:
            shard.do(Retry(job_ids=[job.id]))
        elif random.random() < 0.1:
            shard.do(Cancel(job_ids=[job.id]))
        else:
            shard.fetch(SMS, NOTE, MAIL, PUSH, VIDEO, BILL, count=4)
            fails = [FailItem(job_id=job.id, retryable=False)]
            shard.do(
                Fail(fails=fails) if random.random() < 0.3 else Ack(acks=[AckItem(job_id=job.id)])
            )
        check_once(cluster)
    cluster.settle()
    check_once(cluster)


def check_once(cluster: Cluster) -> None:
    """No step is there twice, and each has one before it that was completed, or has died."""
    jobs = {job.chain_step: job for _, job in cluster.live()}
    assert len(jobs) == len(list(cluster.live()))
    made = {step for step in jobs if step > 0} | {4 if step == -1 else step for step in jobs}
    for step in made:
        if step > 0 and step - 1 in jobs:
            assert jobs[step - 1].chain_marks & 1, "it went on"
    if -2 in jobs:
        assert any(job.chain_marks & 2 for job in jobs.values() if job.chain_step >= 0) or (
            list(cluster.in_transit())
        )
