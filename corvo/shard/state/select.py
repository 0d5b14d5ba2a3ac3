"""The selection of jobs for a fetch, and the explanation of why a job waits.

Within a queue the urgent ones come first, then the normal ones in their order. What should not be
at the front any more is removed as it is met: jobs that have expired, and jobs that were cleared.
"""

from typing import Final

from corvo.kv.heads import Head
from corvo.kv.tables import Held
from corvo.model import FINISHED, Job, Queue, State
from corvo.protocol.queries import Explanation
from corvo.shard.state import dependencies, lifecycle
from corvo.shard.state.limits import Allowance, allowance
from corvo.shard.state.tables import JOBS, QUEUES, is_swept, queue_keys
from corvo.shard.state.tx import CHANGED_BYTES_MAX, Tx

_PENDING: Final = State.PENDING

FETCH_BYTES_MAX: Final = 4 << 20
"""Payloads and checkpoints that one fetch gives out, and one job more: a frame can carry four times
that, and what cannot be sent would be leased to nobody."""
REMOVED_MAX: Final = 512
"""Expired or cleared jobs that one fetch removes. Then it answers with the jobs that it has."""


class Selection:
    """The jobs that one fetch has taken so far, and its bounds."""

    __slots__ = ("bytes_left", "found", "removals_left")

    def __init__(self, tx: Tx) -> None:
        self.found: list[Held[Job]] = []
        self.removals_left = REMOVED_MAX
        self.bytes_left = min(FETCH_BYTES_MAX, CHANGED_BYTES_MAX - tx.changed_bytes)

    @property
    def is_over(self) -> bool:
        """Whether the fetch must be answered with the jobs that it has."""
        return self.bytes_left <= 0 or self.removals_left <= 0


def take(tx: Tx, queue: Queue, want: int, selection: Selection) -> int:
    """Select up to `want` pending jobs of a queue, in order, that may be given out now.

    Returns how many; they are at the end of `selection.found`, and still at the front of the queue:
    the caller takes each of them.
    """
    count = want
    if queue.paused or queue.max_concurrency or queue.rate_limit:
        count = allowance(tx, queue, now_ns=tx.now_ns, want=want).count
        if count == 0:
            return 0
    names = queue_keys(queue.name)
    before = len(selection.found)
    goal = before + count
    for group, skip in (
        (names.pending_group, names.pending_skip),
        (names.append_group, names.append_skip),
    ):
        head = tx.head(group)
        if head.keys:
            _take_from(tx, queue, head, skip, goal, selection)
    return len(selection.found) - before


def _take_from(
    tx: Tx, queue: Queue, head: Head, skip: int, goal: int, selection: Selection
) -> None:
    """Select from the front of one index until there are `goal`; ids begin at `skip` of a key."""
    found, prefix = selection.found, JOBS.prefix
    at = 0
    while len(found) < goal and selection.bytes_left > 0 and selection.removals_left:
        key = head.at(at)
        if key is None:
            return
        held = tx.held(JOBS, prefix + key[skip:])
        assert held is not None, "an index names jobs that are there"
        job = held.document
        assert job.state is _PENDING
        # Most jobs do not expire, and most queues were not cleared.
        may_be_gone = job.expires_ns or queue.cleared_ns or queue.deleted_ns
        if may_be_gone and _is_gone(tx, queue, held):
            selection.removals_left -= 1
        else:
            found.append(held)
            selection.bytes_left -= len(job.payload) + len(job.checkpoint)
            at += 1


def _is_gone(tx: Tx, queue: Queue, found: Held[Job]) -> bool:
    """Remove a swept or expired job. Returns whether it was one."""
    job = found.document
    if is_swept(queue, job):
        lifecycle.remove(tx, found, why=lifecycle.SWEPT)
        return True
    if job.expires_ns and job.expires_ns <= tx.now_ns:
        lifecycle.expire(tx, found)
        return True
    return False


def explain(tx: Tx, job: Job, *, now_ns: int) -> Explanation:
    """The reason why a job is not active now."""
    if job.state in FINISHED:
        return Explanation(code="finished", text=f"the job is {job.state.value}")
    match job.state:
        case State.ACTIVE:
            return Explanation(
                code="active",
                text=f"worker {job.worker_id or '(unnamed)'} has the job",
                until_ns=job.lease_expires_ns,
            )
        case State.HELD:
            why = job.hold_reason or "no reason was given"
            return Explanation(code="held", text=f"the job is held: {why}; approve or reject it")
        case State.SCHEDULED | State.RETRYING:
            return Explanation(
                code=job.state.value, text="the job waits for its time", until_ns=job.scheduled_ns
            )
        case _:
            return _explain_pending(tx, job, now_ns=now_ns)


def _explain_pending(tx: Tx, job: Job, *, now_ns: int) -> Explanation:
    if job.waits_for:
        first = job.waits_for[0]
        absent = dependencies.missing(tx, job)
        if absent is not None:
            return Explanation(
                code="missing",
                text=f"the job waits for {absent[0]}, which does not exist yet; create that job, "
                "or this one will be held",
                until_ns=absent[1],
            )
        return Explanation(
            code="waits",
            text=f"the job waits for {len(job.waits_for)} jobs to be completed, first {first}",
        )
    if job.expires_ns and job.expires_ns <= now_ns:
        return Explanation(code="expired", text="the job has expired and will become dead")
    queue = QUEUES.get(tx, job.queue)
    assert queue is not None, "a job's queue is known"
    allowed: Allowance = allowance(tx, queue, now_ns=now_ns, want=1)
    if allowed.why is not None:
        return Explanation(
            code=allowed.why.name.lower(), text=allowed.why.value, until_ns=allowed.until_ns
        )
    ahead = _ahead(tx, job)
    if ahead:
        return Explanation(
            code="behind", text=f"{ahead} jobs are before this one in the queue", ahead=ahead
        )
    return Explanation(code="next", text="the job is next, and no worker has fetched it yet")


def _ahead(tx: Tx, job: Job) -> int:
    """Number of jobs before this one, counted in the heads alone."""
    names = queue_keys(job.queue)
    count = 0
    for group in (names.pending_group, names.append_group):
        for key in tx.head(group).keys:
            if key.endswith(job.id.encode()):
                return count
            count += 1
    return count


def has_work(tx: Tx, name: str, *, now_ns: int) -> Allowance:
    """Whether a fetch from a queue would get a job now; if not, when that may change by itself."""
    queue = QUEUES.get(tx, name)
    if queue is None:
        return Allowance(0)
    names = queue_keys(name)
    if not tx.head(names.append_group).keys and not tx.head(names.pending_group).keys:
        return Allowance(0)
    return allowance(tx, queue, now_ns=now_ns, want=1)
