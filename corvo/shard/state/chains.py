"""Chains: when a job is completed, the next step is enqueued, in the shard of its queue.

Every job of a chain has the definition, so each step can continue the chain by itself. A job has a
mark for each step that it has enqueued, so that a retry does not enqueue the step again.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.model import Job, State, trace_of
from corvo.protocol.ops.base import encode_json, json_bytes
from corvo.protocol.ops.checks import fields_of
from corvo.protocol.ops.workflow import ON_EXIT, ON_FAILURE, Chain, Step
from corvo.shard.state import spawning
from corvo.shard.state.outbox import EFFECT_BYTES_MAX, Spawn
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tx import Tx

CANCELLED: Final = "cancelled"
"""Error of a cancelled step, with the reason of the cancellation if there is one."""
_ERROR_CHARS_MAX: Final = 4_096
_ROOM_BYTES: Final = 64 << 10
"""Largest size of a job without its payload and its chain."""

WENT_ON: Final = 1
"""Mark: this step was completed, and the next one was enqueued."""
FAILED: Final = 2
"""Mark: the chain's `on_failure` was enqueued, by this step or one before it."""
EXITS: Final = 4
"""Mark: the ack of this step ended the chain."""

_decode: Final = msgspec.json.Decoder(Chain).decode


def begin(tx: Tx, job: Job, chain: Chain) -> Job:
    """The job as the first step of a new chain."""
    return replace(job, chain_id=tx.mint.mint("chain"), chain_step=0, chain=encode_json(chain))


def go_on(tx: Tx, job: Job, why: str) -> None:
    """A job of a chain has ended: enqueue the next step or a handler, if there is one."""
    if job.chain_step < 0 or job.chain_marks & WENT_ON:
        return
    if job.state is State.COMPLETED:
        _mark(tx, job, WENT_ON)
        _next(tx, job)
    elif job.chain_marks & FAILED:
        return
    elif job.state is State.DEAD:
        _mark(tx, job, FAILED)
        _fail(tx, job, why)
    elif _decode(job.chain).cancel_is_failure:
        _mark(tx, job, FAILED)
        _fail(tx, job, f"{CANCELLED}: {why}" if why else CANCELLED)


def _mark(tx: Tx, job: Job, mark: int) -> None:
    found = JOBS.find(tx, job.id)
    assert found is not None, "a job that became completed or dead is there"
    JOBS.change(tx, found, replace(found.document, chain_marks=job.chain_marks | mark))


def _next(tx: Tx, job: Job) -> None:
    chain = _decode(job.chain)
    number = job.chain_step + 1
    is_over = bool(job.chain_marks & EXITS) or number == len(chain.steps)
    step = chain.on_exit if is_over else chain.steps[number]
    if step is None:
        return
    fields = {"previous_job_id": spawning.as_raw(job.id)}
    taken = len(job.result) + len(job.chain) + len(json_bytes(step.payload)) + _ROOM_BYTES
    # A result that would make the next job too large for an effect stays with its own job.
    if job.result and taken <= EFFECT_BYTES_MAX:
        fields["previous_result"] = msgspec.Raw(job.result)
    _spawn(tx, job, step, ON_EXIT if is_over else number, fields)


def _fail(tx: Tx, job: Job, why: str) -> None:
    step = _decode(job.chain).on_failure
    if step is None:
        return
    fields = {
        "failed_job_id": spawning.as_raw(job.id),
        "failed_step": spawning.as_raw(job.chain_step),
        "error": spawning.as_raw(why[:_ERROR_CHARS_MAX]),
    }
    _spawn(tx, job, step, ON_FAILURE, fields)


def _spawn(tx: Tx, job: Job, step: Step, number: int, fields: dict[str, msgspec.Raw]) -> None:
    new = Spawn(
        queue=step.queue,
        payload=spawning.as_raw(fields | fields_of(json_bytes(step.payload))),
        why=f"after {job.id}",
        chain_id=job.chain_id,
        chain_step=number,
        chain=msgspec.Raw(job.chain),
        chain_marks=job.chain_marks & FAILED,
        trace=trace_of(job),
    )
    spawning.spawn(tx, new)
