"""Trace contexts: what a producer sent stays with the job, and goes on with what follows it."""

from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import State, TracedJob, trace_of
from corvo.protocol.ops.base import Limits
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel, Retry
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem, Release, ReleaseItem
from corvo.protocol.ops.workflow import Chain, NewBatch, Step
from corvo.protocol.versions import needed
from corvo.shard.ops.transfer import Receive
from corvo.shard.ops.upkeep import Promote, Reclaim
from corvo.shard.rendering import job_body
from corvo.shard.state.tables import BATCHES, JOBS
from corvo.trace_context import TraceContext
from tests.shard.cluster import QUEUES, Cluster, home_of
from tests.shard.shard import Shard

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, _]] = QUEUES
TRACE: Final = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", "vendor=1")
OTHER: Final = TraceContext("00-1bf7651916cd43dd8448eb211c80319d-c8ad6b7169203332-00")


@pytest.fixture
def shard() -> Shard:
    return Shard()


def put(shard: Shard, trace: TraceContext | None = TRACE, **fields: object) -> str:
    new = NewJob(queue="mail", trace=trace)
    [job_id] = shard.put(replace(new, **fields))  # type: ignore[arg-type]  # fields of a job
    return job_id


def shown(shard: Shard, job_id: str) -> tuple[str, str]:
    """The context as a client reads it."""
    body = msgspec.json.decode(msgspec.json.encode(job_body(shard.job(job_id), ())))
    return body.get("traceparent", ""), body.get("tracestate", "")


def test_a_job_keeps_the_context_and_every_worker_gets_it(shard: Shard) -> None:
    job_id = put(shard)
    [claim] = shard.fetch()
    released = ReleaseItem(job_id=job_id, lease_token=claim.lease_token)
    shard.do(Release(jobs=[released]))
    [again] = shard.fetch()

    assert claim.trace == again.trace == TRACE
    assert shown(shard, job_id) == (TRACE.traceparent, TRACE.tracestate)
    shard.reopen()
    assert trace_of(shard.job(job_id)) == TRACE


def test_a_job_without_a_context_is_stored_as_before(shard: Shard) -> None:
    plain, with_context = put(shard, None), put(shard)
    sizes = [len(JOBS.encode(shard.job(job_id))) for job_id in (plain, with_context)]
    [claim] = shard.fetch()

    assert claim.trace is None
    assert not isinstance(shard.job(plain), TracedJob)
    assert JOBS.encode(shard.job(plain))[:3] == b"\xdc\x00\x35"
    assert sizes[1] - sizes[0] == 1 + 2 + len(TRACE.traceparent) + 1 + len(TRACE.tracestate)
    assert shown(shard, plain) == ("", "")


def test_the_context_stays_over_failures_expired_leases_and_retries(shard: Shard) -> None:
    job_id = put(shard)
    [claim] = shard.fetch()
    shard.do(Fail(fails=[FailItem(job_id=job_id, lease_token=claim.lease_token, error="no")]))
    shard.pass_time(60_000)
    shard.do(Promote(limit=10))
    [second] = shard.fetch()
    shard.pass_time(120_000)
    shard.do(Reclaim(limit=10))
    [third] = shard.fetch()
    last = FailItem(job_id=job_id, lease_token=third.lease_token, error="no", retryable=False)
    shard.do(Fail(fails=[last]))
    shard.do(Retry(job_ids=[job_id]))
    [fourth] = shard.fetch()

    assert {each.trace for each in (second, third, fourth)} == {TRACE}


def test_a_request_key_is_for_one_request_in_whatever_span(shard: Shard) -> None:
    op = Enqueue(jobs=[NewJob(queue="mail", trace=TRACE)], batch=NewBatch(trace=TRACE))
    batch = NewBatch(trace=OTHER)
    again = replace(op, jobs=[NewJob(queue="mail", trace=OTHER)], batch=batch)
    without = replace(op, jobs=[NewJob(queue="mail")], batch=NewBatch())

    assert op.asked() == again.asked() == without.asked()
    first = shard.do(replace(op, request_key="k"))
    assert shard.do(replace(again, request_key="k")) == first
    [job_id] = [made.job_id for made in first.jobs]  # type: ignore[union-attr]  # not refused
    assert trace_of(shard.job(job_id)) == TRACE


def test_the_job_that_has_the_id_or_the_unique_key_keeps_its_own_context(shard: Shard) -> None:
    job_id = put(shard, id="mail~a", unique_key="k")
    op = Enqueue(jobs=[NewJob(queue="mail", id="mail~a", unique_key="k", trace=OTHER)])

    [made] = shard.enqueue(replace(op, has_full_ids=True)).jobs

    assert (made.job_id, made.unique_existing, made.differs) == (job_id, True, msgspec.UNSET)
    assert trace_of(shard.job(job_id)) == TRACE


def test_an_invalid_context_is_refused_with_its_place() -> None:
    def refused(trace: TraceContext) -> tuple[str, str]:
        found = Enqueue(jobs=[NewJob(queue="mail", trace=trace)]).check(Limits())
        assert found is not None
        assert "send the header of your tracing library as it is" in found.error
        return found.code, found.field

    assert refused(TraceContext("00-abc")) == ("bad_request", "jobs[0].traceparent")
    invalid_state = TraceContext(TRACE.traceparent, "A=b")
    assert refused(invalid_state) == ("bad_request", "jobs[0].tracestate")
    of_batch = Enqueue(jobs=[NewJob(queue="mail")], batch=NewBatch(trace=invalid_state))
    found = of_batch.check(Limits())
    assert found is not None
    assert found.field == "batch.tracestate"


# What follows from a job.


def chain(*queues: str) -> Chain:
    return Chain(
        steps=[Step(queue) for queue in queues], on_failure=Step("oops"), on_exit=Step("done")
    )


def test_the_steps_of_a_chain_have_its_context_also_in_other_shards() -> None:
    cluster = Cluster()
    new = NewJob(queue=SMS, chain=chain(SMS, MAIL, NOTE), trace=TRACE)
    cluster.shards[home_of(SMS)].put(new)
    seen = []
    for queue in (SMS, MAIL, NOTE, "done"):
        shard = cluster.shards[home_of(queue)]
        [claim] = shard.fetch(queue)
        seen.append(claim.trace)
        item = AckItem(job_id=claim.job_id, lease_token=claim.lease_token)
        shard.do(Ack(acks=[item]))
        cluster.settle()

    assert seen == [TRACE] * 4
    cluster.check_together()


def test_the_handler_of_a_failed_step_has_its_context() -> None:
    shard = Shard(shards=1)
    put(shard, chain=chain("mail", "sms"), max_retries=1)
    [claim] = shard.fetch()
    item = FailItem(job_id=claim.job_id, lease_token=claim.lease_token, error="no", retryable=False)
    shard.do(Fail(fails=[item]))
    [handler] = shard.fetch("oops")

    assert handler.trace == TRACE


def test_the_callback_of_a_batch_has_the_context_of_the_batch() -> None:
    shard = Shard(shards=1)
    batch = NewBatch(callback_queue="done", trace=OTHER)
    shard.enqueue(Enqueue(jobs=[NewJob(queue="mail", trace=TRACE)], batch=batch))
    [job] = shard.fetch()
    shard.reopen()
    shard.do(Cancel(job_ids=[job.job_id]))
    shard.do(Ack(acks=[AckItem(job_id=job.job_id, lease_token=job.lease_token)]))
    [callback] = shard.fetch("done")

    assert job.trace == TRACE
    assert callback.trace == OTHER


def test_a_batch_without_a_context_is_stored_as_before(shard: Shard) -> None:
    made = shard.enqueue(Enqueue(jobs=[NewJob(queue="mail")], batch=NewBatch()))

    batch = BATCHES.get(shard.tx, made.batch_id)

    assert batch is not None
    assert b"trace" not in BATCHES.encode(batch)


def test_a_job_that_waits_for_another_has_its_own_context_or_none(shard: Shard) -> None:
    first = put(shard)
    own, none = put(shard, OTHER, depends_on=(first,)), put(shard, None, depends_on=(first,))
    [claim] = shard.fetch()
    shard.do(Ack(acks=[AckItem(job_id=first, lease_token=claim.lease_token)]))
    claims = {claim.job_id: claim.trace for claim in shard.fetch(count=5)}

    assert claims == {own: OTHER, none: None}


def test_a_moved_job_keeps_its_context_and_its_bytes_on_the_way_home() -> None:
    cluster = Cluster()
    home = cluster.shards[home_of(SMS)]
    [job_id] = home.put(NewJob(queue=SMS, trace=TRACE, payload=msgspec.Raw(b'{"a": 1}')))
    name = (home.number, job_id)
    cluster.move(name, MAIL)
    cluster.settle()
    abroad = cluster.shards[home_of(MAIL)].job(job_id)
    cluster.move(name, PUSH)
    cluster.settle()
    further = cluster.shards[home_of(PUSH)].job(job_id)
    cluster.move(name, NOTE)
    cluster.settle()

    assert trace_of(abroad) == trace_of(further) == trace_of(home.job(job_id)) == TRACE
    assert home.state(job_id) is State.PENDING
    cluster.check_together()


# Versions.


def test_only_a_context_needs_version_6_of_the_ops() -> None:
    new = NewJob(queue="mail")
    batch = NewBatch(callback_queue="done")

    assert needed(Enqueue(jobs=[new], batch=batch)) == 1
    assert needed(Enqueue(jobs=[new, replace(new, trace=TRACE)])) == 6
    assert needed(Enqueue(jobs=[new], batch=replace(batch, trace=TRACE))) == 6


@pytest.mark.parametrize(("trace", "version"), [(None, 2), (TRACE, 6)])
def test_only_an_effect_with_a_context_needs_version_6(
    trace: TraceContext | None, version: int
) -> None:
    cluster = Cluster()
    home = cluster.shards[home_of(SMS)]
    [moved] = home.put(NewJob(queue=SMS, trace=trace))
    cluster.move((home.number, moved), MAIL)
    home.put(NewJob(queue=SMS, chain=chain(SMS, MAIL), trace=trace))
    [claim] = home.fetch(SMS)
    home.do(Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token)]))

    effects = [msgspec.json.decode(row.body, type=Receive) for row in cluster.outbox(home)]

    assert len(effects) == 2
    assert all(needed(effect) <= version for effect in effects)
    assert all((needed(effect) == 6) is (trace is not None) for effect in effects)
