"""Which jobs a fetch gets: the one selection, and the one place that can say why a job waits.

Within a queue the urgent ones come first, then the normal ones in their order. What should not be
at the front any more is removed as it is met: jobs that have expired, and jobs that were cleared.
"""

from typing import Final

import msgspec

from corvo.kv.tables import Group, Held
from corvo.model import FINISHED, Job, Queue, State
from corvo.shard import lifecycle
from corvo.shard.limits import Allowance, allowance
from corvo.shard.tables import JOBS, QUEUES, queue_keys
from corvo.shard.tx import Tx

REMOVED_MAX: Final = 512
"""Expired or cleared jobs that one fetch removes; then it gives what it has, and more next time."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not being worked on."""

    code: str
    text: str
    until_ns: int = 0
    """When that ends by itself; 0 when it does not, or is not known."""
    ahead: int = 0
    """Jobs that come before it, as far as they were counted."""


def take(tx: Tx, queue: Queue, want: int) -> list[Held[Job]]:
    """Up to `want` pending jobs of a queue, in order, that may be given out now.

    They are still at the front when this returns; the caller takes each of them.
    """
    allowed = allowance(tx, queue, now_ns=tx.now_ns, want=want)
    if allowed.count == 0:
        return []
    names = queue_keys(queue.name)
    removals = REMOVED_MAX
    taken: list[Held[Job]] = []
    for group in (names.pending_group, names.append_group):
        if tx.head(group).keys:
            removals = _take_from(tx, queue, group, allowed.count, taken, removals)
    return taken


def _take_from(  # noqa: PLR0913 -- one loop of `take`
    tx: Tx, queue: Queue, group: Group, want: int, taken: list[Held[Job]], removals: int
) -> int:
    """Add to `taken` from the front of one index; returns how many may still be removed."""
    head = tx.head(group)
    at = 0
    skip = len(group.prefix) + (8 if group.cursor else 9)
    find, prefix = tx.held, JOBS.prefix
    while len(taken) < want and removals:
        if at == len(head.keys):
            if at == 0:
                head.fill()
            else:
                head.extend()
            if at == len(head.keys):
                break
        found = find(JOBS, prefix + head.keys[at][skip:])
        assert found is not None, "an index names jobs that are there"
        job = found.document
        assert job.state is State.PENDING
        if not job.expires_ns and not queue.sweep_ns:
            taken.append(found)
            at += 1
        elif _is_gone(tx, queue, found):
            removals -= 1
        else:
            taken.append(found)
            at += 1
    return removals


def _is_gone(tx: Tx, queue: Queue, found: Held[Job]) -> bool:
    """Remove a job that should not be there any more, and say so."""
    job = found.document
    if queue.sweep_ns and job.order_ns <= queue.sweep_ns:
        lifecycle.remove(tx, found)
        return True
    if job.expires_ns and job.expires_ns <= tx.now_ns:
        lifecycle.expire(tx, found)
        return True
    return False


def explain(tx: Tx, job: Job, *, now_ns: int) -> Explanation:
    """Why a job is not with a worker now."""
    if job.state in FINISHED:
        return Explanation(code="finished", text=f"the job is {job.state.value}")
    match job.state:
        case State.ACTIVE:
            return Explanation(
                code="active",
                text=f"worker {job.worker_id or '(unnamed)'} has it",
                until_ns=job.lease_expires_ns,
            )
        case State.HELD:
            why = job.hold_reason or "no reason was given"
            return Explanation(code="held", text=f"it is held: {why}; approve or reject it")
        case State.SCHEDULED | State.RETRYING:
            return Explanation(
                code=job.state.value, text="its time has not come", until_ns=job.scheduled_ns
            )
        case _:
            return _explain_pending(tx, job, now_ns=now_ns)


def _explain_pending(tx: Tx, job: Job, *, now_ns: int) -> Explanation:
    if job.waits_for:
        first = job.waits_for[0]
        return Explanation(
            code="waits", text=f"it waits for {len(job.waits_for)} jobs to complete, first {first}"
        )
    if job.expires_ns and job.expires_ns <= now_ns:
        return Explanation(code="expired", text="it has expired and will not be given out")
    queue = QUEUES.get(tx, job.queue)
    assert queue is not None, "a job's queue is known"
    allowed: Allowance = allowance(tx, queue, now_ns=now_ns, want=1)
    if allowed.why is not None:
        return Explanation(
            code=allowed.why.name.lower(), text=allowed.why.value, until_ns=allowed.until_ns
        )
    ahead = _ahead(tx, job)
    if ahead:
        return Explanation(code="behind", text=f"{ahead} jobs come before it", ahead=ahead)
    return Explanation(code="next", text="it is next: no worker has asked for it")


def _ahead(tx: Tx, job: Job) -> int:
    """Jobs before this one, counted in the heads alone: enough to say whether it is soon."""
    names = queue_keys(job.queue)
    count = 0
    for group in (names.pending_group, names.append_group):
        for key in tx.head(group).keys:
            if key.endswith(job.id.encode()):
                return count
            count += 1
    return count


def has_work(tx: Tx, name: str, *, now_ns: int) -> Allowance:
    """Whether a fetch from a queue would get something now, and if not, when it might by itself."""
    queue = QUEUES.get(tx, name)
    if queue is None:
        return Allowance(0)
    names = queue_keys(name)
    if not tx.head(names.append_group).keys and not tx.head(names.pending_group).keys:
        return Allowance(0)
    return allowance(tx, queue, now_ns=now_ns, want=1)
