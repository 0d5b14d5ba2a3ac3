"""Answers to queries, from the state of this replica: nothing is changed."""

import heapq
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Final, Protocol

import msgspec

from corvo.errors import BadKey
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import STATES, Job, JobError, Priority, Queue, State
from corvo.protocol.numbers import (
    Counters,
    Numbers,
    PeerNumbers,
    QueueNumbers,
    QueuePage,
    WorkerPage,
)
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.queries import (
    ANSWER_BYTES_MAX,
    QUERIES,
    Active,
    ApiKeys,
    CountJobs,
    Counts,
    Dead,
    Explain,
    Explanation,
    Form,
    FoundJob,
    GetActive,
    GetJobs,
    GetMoment,
    GetNumbers,
    GetQueue,
    GetQueueNumbers,
    GetQueues,
    GetWhereabouts,
    GetWorkerNumbers,
    GetWorkers,
    Jobs,
    ListDead,
    ListKeys,
    Moment,
    Query,
    Queues,
    QueueView,
    Whereabouts,
    Workers,
)
from corvo.raft import Node
from corvo.shard import rendering
from corvo.shard.machine import Machine
from corvo.shard.state import consequences, lifecycle, presence, select
from corvo.shard.state.tables import API_KEYS, JOBS, QUEUES, WORKERS, queue_keys
from corvo.shard.state.tx import Tx

WALK_MAX: Final = 1_000
"""Finished jobs that one such question looks at: some 5 ms."""


class Asked(Protocol):
    """What is asked."""

    @property
    def node(self) -> Node:
        """Its half of Raft."""

    @property
    def machine(self) -> Machine:
        """Its state."""

    @property
    def counters(self) -> Counters:
        """What it has counted."""

    @property
    def waiting(self) -> int:
        """Ops that wait for agreement, or to be proposed."""

    @property
    def disk_is_full(self) -> bool:
        """Whether nothing new is taken."""


@singledispatch
def answer(query: Query, asked: Asked) -> msgspec.Struct:
    """The answer to a query, or `Rejected`."""
    raise NotImplementedError(type(query).__name__)


@answer.register
def get_jobs(query: GetJobs, asked: Asked) -> Jobs:
    """Leaves out those that are not here."""
    tx = asked.machine.tx
    found: list[FoundJob] = []
    moved: dict[str, int] = {}
    size = 0
    for number, job_id in enumerate(query.job_ids, start=1):
        held = presence.find(tx, job_id)
        if held is None:
            forward = consequences.forwarded(tx, job_id)
            if forward is not None:
                moved[job_id] = forward.shard
            continue
        found.append(found_job(tx, held.document, query.form))
        size += len(bytes(found[-1].json))
        if size >= ANSWER_BYTES_MAX:
            return Jobs(found, number, moved)
    return Jobs(found, len(query.job_ids), moved)


def found_job(tx: Tx, job: Job, form: Form) -> FoundJob:
    """A job in a form."""
    errors = errors_of(tx, job)
    shown = encode_json(_RENDER[form](job, errors))
    return FoundJob(job.id, job.queue, job.state, job.finished_ns, msgspec.Raw(shown))


_RENDER: Final[dict[Form, Callable[[Job, list[JobError]], msgspec.Struct]]] = {
    Form.BODY: rendering.job_body,
    Form.SUMMARY: rendering.job_summary,
    Form.STORED: rendering.stored_job,
}


def errors_of(tx: Tx, job: Job) -> list[JobError]:
    """The errors that are kept of a job, oldest first."""
    stored = [
        tx.get_key(lifecycle.error_key(job.id, number)) for number in lifecycle.error_numbers(job)
    ]
    return [msgspec.json.decode(data, type=JobError) for data in stored if data is not None]


@answer.register
def get_whereabouts(query: GetWhereabouts, asked: Asked) -> Whereabouts:
    """Leaves out those that were never here, or are gone."""
    tx = asked.machine.tx
    queues: dict[str, str] = {}
    moved: dict[str, int] = {}
    for job_id in query.job_ids:
        found = presence.find(tx, job_id)
        if found is not None:
            queues[job_id] = found.document.queue
            continue
        forward = consequences.forwarded(tx, job_id)
        if forward is not None:
            moved[job_id] = forward.shard
    return Whereabouts(queues, moved)


@answer.register
def explain(query: Explain, asked: Asked) -> Explanation | Rejected:
    """One reason: the first that holds."""
    tx = asked.machine.tx
    found = presence.find(tx, query.job_id)
    if found is None:
        return lifecycle.missing(tx, query.job_id)
    return select.explain(tx, found.document, now_ns=asked.machine.now_ns)


@answer.register
def get_queues(query: GetQueues, asked: Asked) -> Queues:
    """Their settings and counts."""
    names = _page(asked.machine.tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
    views = [queue_view(asked.machine.tx, name) for name in names]
    return Queues(views, names[-1] if len(names) == query.limit else "")


@answer.register
def get_queue(query: GetQueue, asked: Asked) -> QueueView:
    """Its settings and counts; those of a queue that nobody has named are empty."""
    return queue_view(asked.machine.tx, query.queue)


def queue_view(tx: Tx, name: str) -> QueueView:
    """A queue for people."""
    counts = tx.count(name)
    queue = QUEUES.get(tx, name) or Queue(name=name)
    return QueueView(
        queue=queue,
        counts={state.value: counts[state.number] for state in STATES},
        oldest_pending_ns=_oldest_pending_ns(tx, queue) if counts[State.PENDING.number] else 0,
    )


def _oldest_pending_ns(tx: Tx, queue: Queue) -> int:
    """The smallest place in the queue's indexes, behind what is only waiting to be swept."""
    names = queue_keys(queue.name)
    swept_ns = max(queue.cleared_ns, queue.deleted_ns)
    behind = (swept_ns + 1).to_bytes(8, "big")
    cursor = tx.get_key(names.append_group.cursor) or names.append
    starts = [(names.append, max(cursor, names.append + behind))]
    if tx.keys(names.pending, prefix_end(names.pending), limit=1):  # most queues have none
        urgent = [names.pending + bytes((priority,)) for priority in range(Priority.NORMAL)]
        starts += [(prefix, prefix + behind) for prefix in urgent]
    places = [
        int.from_bytes(key[len(prefix) : len(prefix) + 8], "big")
        for prefix, start in starts
        for key in tx.keys(start, prefix_end(prefix), limit=1)
    ]
    return min(places, default=0)


@answer.register
def count_jobs(query: CountJobs, asked: Asked) -> Counts:
    """Those that have any."""
    tx = asked.machine.tx
    names = _page(tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
    found = [(name, tx.count(name)[query.state.number]) for name in names]
    after = names[-1] if len(names) == query.limit else ""
    return Counts([each for each in found if each[1]], after)


@answer.register
def list_dead(query: ListDead, asked: Asked) -> Dead:
    """As many as there are among the next few that ended."""
    tx = asked.machine.tx
    before = query.before_ns.to_bytes(8, "big") + query.before_id.encode()
    chunk = max(1, WALK_MAX // len(query.queues))
    ended = heapq.merge(
        *(_ended(tx, name, before if query.before_ns else b"", chunk) for name in query.queues),
        reverse=True,
    )
    found: list[FoundJob] = []
    size = 0
    for walked, place in enumerate(ended, start=1):
        job_id = place[8:].decode()
        job = _dead(tx, job_id)
        if job is not None:
            found.append(found_job(tx, job, Form.SUMMARY))
            size += len(bytes(found[-1].json))
        if walked == WALK_MAX or len(found) == query.limit or size >= ANSWER_BYTES_MAX:
            return Dead(found, int.from_bytes(place[:8], "big"), job_id)
    return Dead(found)


def _ended(tx: Tx, queue: str, before: bytes, chunk: int) -> Iterator[bytes]:
    """When jobs of a queue ended, and their ids, as keys have it: from the newest on backwards."""
    prefix = queue_keys(queue).finished
    stop = prefix + before if before else prefix_end(prefix)
    while True:
        found = tx.last_keys(prefix, stop, limit=chunk)
        for key in found:
            yield key[len(prefix) :]
        if len(found) < chunk:
            return
        stop = found[-1]


class _Beginning(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first fields of a `Job`: enough to pass over it."""

    id: str
    queue: str
    state: State


_decode_beginning: Final = msgspec.msgpack.Decoder(_Beginning).decode


def _dead(tx: Tx, job_id: str) -> Job | None:
    """A job that has ended, if it is dead and there."""
    data = tx.get_key(JOBS.prefix + job_id.encode())
    assert data is not None, "an index names jobs that are there"
    if _decode_beginning(data).state is not State.DEAD:
        return None
    found = presence.find(tx, job_id)
    return found.document if found is not None else None


@answer.register
def get_workers(query: GetWorkers, asked: Asked) -> Workers:
    """As they were when they fetched last."""
    tx = asked.machine.tx
    names = _page(tx, keys.WORKER.prefix, query.after, query.limit)
    workers = [worker for name in names if (worker := WORKERS.get(tx, name)) is not None]
    return Workers(workers, names[-1] if len(names) == query.limit else "")


@answer.register
def list_keys(query: ListKeys, asked: Asked) -> ApiKeys:
    """By their hashes."""
    tx = asked.machine.tx
    hashes = _page(tx, keys.API_KEY.prefix, query.after, query.limit)
    found = [key for name in hashes if (key := API_KEYS.get(tx, name)) is not None]
    return ApiKeys(found, hashes[-1] if len(hashes) == query.limit else "")


def _page(tx: Tx, prefix: bytes, after: str, limit: int) -> list[str]:
    start = prefix + after.encode() + b"\0" if after else prefix
    found = tx.keys(start, prefix_end(prefix), limit=limit)
    return [key[len(prefix) :].decode() for key in found]


@answer.register
def get_active(query: GetActive, asked: Asked) -> Active:
    """None, if there is no such queue."""
    prefix = keys.ACTIVE.prefix + query.queue.encode() + b"\0"
    return Active(_page(asked.machine.tx, prefix, "", query.limit))


@answer.register
def get_moment(query: GetMoment, asked: Asked) -> Moment:
    """That of the last entry."""
    return Moment(asked.machine.now_ns)


@answer.register
def get_numbers(query: GetNumbers, asked: Asked) -> Numbers:
    """As it is now, whoever leads."""
    seen = asked.node.statistics()
    return Numbers(
        replica=seen.replica,
        role=seen.role.value,
        term=seen.term,
        leader=seen.leader,
        commit=seen.commit,
        applied=seen.applied,
        first_index=seen.first_index,
        last_index=seen.last_index,
        voters=seen.membership.voters,
        learners=seen.membership.learners,
        is_repairing=seen.is_repairing,
        uncommitted_bytes=seen.uncommitted_bytes,
        reads_waiting=seen.reads_waiting,
        waiting=asked.waiting,
        peers=[
            PeerNumbers(
                replica=each.replica,
                match=each.match,
                is_active=each.is_active,
                is_learner=each.is_learner,
            )
            for each in seen.progress
            if each.replica != seen.replica
        ],
        now_ns=asked.machine.now_ns,
        digest=asked.machine.digest,
        disk_is_full=asked.disk_is_full,
        counted=asked.counters,
    )


@answer.register
def get_queue_numbers(query: GetQueueNumbers, asked: Asked) -> QueuePage:
    """As this replica has it, whoever leads."""
    tx = asked.machine.tx
    names = _page(tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
    found = [_queue_numbers(tx, name, is_brief=query.is_brief) for name in names]
    return QueuePage(found, names[-1] if len(names) == query.limit else "")


def _queue_numbers(tx: Tx, name: str, *, is_brief: bool) -> QueueNumbers:
    counts = tx.count(name)
    told = tuple(counts[: len(STATES)])
    if is_brief:
        return QueueNumbers(name, told, paused=False, oldest_ns=0)
    queue = QUEUES.get(tx, name) or Queue(name=name)
    oldest_ns = _oldest_pending_ns(tx, queue) if counts[State.PENDING.number] else 0
    return QueueNumbers(name, told, queue.paused, oldest_ns)


@answer.register
def get_worker_numbers(query: GetWorkerNumbers, asked: Asked) -> WorkerPage:
    """As this replica has it, whoever leads."""
    tx = asked.machine.tx
    names = _page(tx, keys.WORKER.prefix, query.after, query.limit)
    found = [
        (name, worker.seen_ns) for name in names if (worker := WORKERS.get(tx, name)) is not None
    ]
    return WorkerPage(found, names[-1] if len(names) == query.limit else "")


_DECODERS: Final = {number: msgspec.json.Decoder(query).decode for number, query in QUERIES.items()}


def answer_bytes(asked: Asked, number: int, body: bytes) -> msgspec.Struct:
    """Answer a question of the registry, or say what is wrong with it."""
    try:
        query: Query = _DECODERS[number](body)
        return answer(query, asked)
    except (msgspec.DecodeError, UnicodeError, BadKey) as error:
        return Rejected("bad_request", str(error))
    except RecursionError:
        return Rejected("bad_request", "the question is nested too deeply")
    finally:
        asked.machine.tx.rest()
