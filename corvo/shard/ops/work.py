"""Ops of workers: fetch, ack, fail, heartbeat, release and snooze."""

from collections.abc import Callable
from functools import singledispatch
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import Agent, EventType, Job, Settled, State, TracedJob, Worker
from corvo.protocol.ops import work as ops
from corvo.protocol.ops.base import Rejected, as_json, encode_json, json_bytes, left_out
from corvo.protocol.ops.workflow import AgentStatus
from corvo.shard.state import agents, lifecycle, presence
from corvo.shard.state.applying import again, apply, is_void, keep
from corvo.shard.state.chains import EXITS
from corvo.shard.state.limits import record_fetches
from corvo.shard.state.select import Selection, take
from corvo.shard.state.tables import JOBS, QUEUES, WORKERS
from corvo.shard.state.tx import Tx
from corvo.times import MS

_ACTIVE: Final = State.ACTIVE
_COMPLETED: Final = State.COMPLETED

_SEEN_EVERY_NS: Final = 1_000_000_000
"""How often a worker's document is written at most, while it only fetches."""


@apply.register
def fetch(op: ops.Fetch, tx: Tx) -> ops.Claims:
    """Give out what may be given out."""
    if op.worker_id:
        tx.by = op.worker_id
        if tx.seen != op.worker_id:
            see_worker(tx, op)
    claims: list[ops.Claim] = []
    selection = Selection(tx)
    for name in op.queues:
        queue = QUEUES.get(tx, name)
        if queue is None:
            continue
        taken = take(tx, queue, op.count - len(claims), selection)
        for found in selection.found[len(claims) :]:
            job = lifecycle.lease(
                tx,
                found.document,
                worker_id=op.worker_id,
                hostname=op.hostname,
                lease_ms=op.lease_ms,
            )
            JOBS.change(tx, found, job)
            claims.append(claim(job))
        if taken and queue.rate_limit:
            record_fetches(tx, queue, taken)
        if len(claims) == op.count or selection.is_over:
            break
    return ops.Claims(claims)


@is_void.register
def found_nothing(op: ops.Fetch, result: msgspec.Struct) -> bool:
    """It found nothing, and asks again."""
    assert isinstance(result, ops.Claims)
    return not result.jobs


@keep.register
def keep_leases(op: ops.Fetch, result: msgspec.Struct) -> bytes:
    """Which leases were given: what is told of them is looked up again."""
    assert isinstance(result, ops.Claims)
    return encode_json([(claim.job_id, claim.lease_token) for claim in result.jobs])


@again.register
def still_leased(op: ops.Fetch, tx: Tx, kept: bytes) -> bytes:
    """Those that are still the caller's."""
    claims = []
    for job_id, token in _decode_given(kept):
        found = presence.find(tx, job_id)
        if found is None:
            continue
        job = found.document
        if job.state is _ACTIVE and job.lease_token == token:
            claims.append(claim(job))
    return encode_json(ops.Claims(claims))


_decode_given: Final = msgspec.json.Decoder(list[tuple[str, int]]).decode


def claim(job: Job) -> ops.Claim:
    """What a worker is told of its job."""
    return ops.Claim(  # by position, which takes half the time
        job.id,
        job.queue,
        msgspec.Raw(job.payload),
        job.attempt,
        job.max_retries,
        -(-job.lease_ms // 1_000),
        job.lease_token,
        job.lease_expires_ns,
        job.kind,
        as_json(job.checkpoint),
        job.tags,
        job.agent,
        job.trace if isinstance(job, TracedJob) else None,
    )


def see_worker(tx: Tx, fetch: ops.Fetch) -> None:
    """Remember who fetches, and from where; once is enough for fetches in a row in one entry."""
    tx.seen = fetch.worker_id
    seen = WORKERS.find(tx, fetch.worker_id)
    queues = tuple(fetch.queues)
    if seen is None:
        started = Worker(
            id=fetch.worker_id,
            hostname=fetch.hostname,
            queues=queues,
            started_ns=tx.now_ns,
            seen_ns=tx.now_ns,
        )
        WORKERS.insert(tx, started)
        return
    worker = seen.document
    is_recent = tx.now_ns - worker.seen_ns < _SEEN_EVERY_NS
    if is_recent and worker.queues == queues and worker.hostname == fetch.hostname:
        return
    after = replace(worker, hostname=fetch.hostname, queues=queues, seen_ns=tx.now_ns)
    WORKERS.change(tx, seen, after)


# Operations under a lease.


@apply.register(ops.LeaseOp)
def apply_under_leases(op: ops.LeaseOp[msgspec.Struct], tx: Tx) -> ops.LeaseResults[msgspec.Struct]:
    """Apply each item by itself: one that is rejected does not stop the others."""
    items = op.items
    do_one = do.registry[type(items[0])]
    return ops.LeaseResults(
        [left_out(item.job_id) if tx.is_full else _each(item, tx, do_one) for item in items]
    )


Item: TypeAlias = ops.LeaseItem[msgspec.Struct]
Do: TypeAlias = Callable[[Item, Tx, Held[Job]], msgspec.Struct]


def _each(item: Item, tx: Tx, do_one: Do) -> msgspec.Struct:
    """Do it, if the lease holds. Returns the result for this job, or `Rejected`."""
    found = lifecycle.holder(tx, item.job_id, item.lease_token, item.worker_id, is_own=item.is_own)
    if not isinstance(found, Rejected):
        return do_one(item, tx, found)
    ended = presence.find(tx, item.job_id) if item.ENDS or isinstance(item, ops.BeatItem) else None
    if ended is None:
        return found
    if isinstance(item, ops.BeatItem):
        is_own = lifecycle.has_ended_it(ended.document, item.lease_token, item.worker_id)
        if is_own and not tx.has_old_answers:
            return ops.Beat(item.job_id, "ended", 0)
    else:
        settled = lifecycle.settled_before(ended.document, item.lease_token, item.ENDS)
        if settled is not None:
            return item.repeat(settled)
    return found


@singledispatch
def do(item: Item, tx: Tx, found: Held[Job]) -> msgspec.Struct:
    """Do it to a job that is active under this lease."""
    raise NotImplementedError(type(item).__name__)


@do.register
def ack(item: ops.AckItem, tx: Tx, found: Held[Job]) -> ops.Acked | Rejected:
    """Complete it, once."""
    job = found.document
    if job.agent is not None or job.chain_id or item.agent_status is not None:
        return _of_others(item, tx, found, job.agent)
    lifecycle.finish(
        tx,
        found,
        _COMPLETED,
        what=EventType.COMPLETED,
        result=json_bytes(item.result, job.result),
        checkpoint=json_bytes(item.checkpoint, job.checkpoint),
        settled=Settled(job.lease_token, "ack", _COMPLETED),
    )
    return ops.Acked(job.id, _COMPLETED.word)


def _of_others(
    item: ops.AckItem, tx: Tx, found: Held[Job], agent: Agent | None
) -> ops.Acked | Rejected:
    """A job of an agent or a chain, for which its end may mean something else."""
    job = found.document
    result = json_bytes(item.result, job.result)
    checkpoint = json_bytes(item.checkpoint, job.checkpoint)
    if agent is None:
        if item.agent_status is not None:
            error = f"job {job.id} has no `agent`: send the ack without agent_status"
            return Rejected("not_an_agent", error, "agent_status", job_id=job.id)
    else:
        agent = agents.spend(agent, item.usage.cost_micros if item.usage is not None else 0)
        done: Job | None = None
        match item.agent_status:
            case AgentStatus.CONTINUE:
                done = agents.go_on(tx, found, agent, result=result, checkpoint=checkpoint)
            case AgentStatus.HOLD:
                done = agents.hold(
                    tx, found, agent, reason=item.hold_reason, result=result, checkpoint=checkpoint
                )
            case _:
                pass
        if done is not None:
            return ops.Acked(job.id, done.state.word)
    exits = EXITS if item.step_status is ops.StepStatus.EXIT else 0
    lifecycle.finish(
        tx,
        found,
        _COMPLETED,
        what=EventType.COMPLETED,
        result=result,
        checkpoint=checkpoint,
        settled=Settled(job.lease_token, "ack", _COMPLETED),
        agent=agent,
        chain_marks=job.chain_marks & ~EXITS | exits,
    )
    return ops.Acked(job.id, _COMPLETED.word)


@do.register
def fail(item: ops.FailItem, tx: Tx, found: Held[Job]) -> ops.Failed | Rejected:
    """Let it wait for its next attempt, or give it up."""
    failure = lifecycle.Failure(
        error=item.error,
        backtrace=item.backtrace,
        error_class=item.error_class,
        retryable=item.retryable,
        retry_after_ms=item.retry_after_ms,
    )
    return item.repeat(lifecycle.fail(tx, found, failure))


@do.register
def beat(item: ops.BeatItem, tx: Tx, found: Held[Job]) -> ops.Beat | Rejected:
    """The lease begins anew, and is never shortened."""
    job = found.document
    after = replace(
        job,
        lease_expires_ns=max(job.lease_expires_ns, tx.now_ns + job.lease_ms * MS),
        progress=json_bytes(item.progress, job.progress),
        checkpoint=json_bytes(item.checkpoint, job.checkpoint),
    )
    JOBS.change(tx, found, after)
    return ops.Beat(job.id, "cancel" if job.cancel_requested else "ok", after.lease_expires_ns)


@do.register
def release(item: ops.ReleaseItem, tx: Tx, found: Held[Job]) -> ops.Acked | Rejected:
    """It is pending again, where it was."""
    checkpoint = json_bytes(item.checkpoint, found.document.checkpoint)
    job = lifecycle.release(tx, found, why=item.why, checkpoint=checkpoint)
    return ops.Acked(job.id, job.state.word)


@do.register
def snooze(item: ops.SnoozeItem, tx: Tx, found: Held[Job]) -> ops.Acked | Rejected:
    """It is scheduled, and its attempt is not counted."""
    checkpoint = json_bytes(item.checkpoint, found.document.checkpoint)
    job = lifecycle.snooze(tx, found, delay_ms=item.delay_ms, why=item.why, checkpoint=checkpoint)
    return ops.Acked(job.id, job.state.word)
