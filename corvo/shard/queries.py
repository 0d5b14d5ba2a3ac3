"""What a replica answers from its own state: questions that change nothing.

The registry numbers them as `corvo.shard.ops` does ops. A question is asked as JSON and answered
as JSON; unless it is about this replica alone, it is answered behind a proof of leadership.
"""

import heapq
from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Protocol

import msgspec
from msgspec.structs import replace

from corvo.errors import BadKey
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import STATES, ApiKey, Event, Job, JobError, Priority, Queue, State, Worker
from corvo.protocol.ops.base import (
    ID_BYTES_MAX,
    ITEMS_MAX,
    Id,
    Json,
    Name,
    Nanos,
    Rejected,
    as_json,
)
from corvo.raft import Node
from corvo.shard import consequences, lifecycle, presence, select
from corvo.shard.machine import Machine
from corvo.shard.numbers import (
    PAGE_NUMBERS_MAX,
    PAGE_QUEUES,
    Counters,
    Numbers,
    PageLimit,
    PeerNumbers,
    QueueNumbers,
    QueuePage,
    WorkerPage,
)
from corvo.shard.tables import API_KEYS, JOBS, QUEUES, WORKERS, queue_keys
from corvo.shard.tx import Tx

PAGE_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 4 << 20
"""Behind so much an answer is cut short and says so; a frame carries four times that."""
QUEUES_MAX: Final = 1_000
"""Queues that one question about dead jobs may name."""
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


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question."""

    is_local: ClassVar[bool] = False
    """Whether it is about this replica, whoever leads."""

    def answer(self, asked: Asked) -> msgspec.Struct:
        """The answer, or `Rejected`."""
        raise NotImplementedError


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is stored, its JSON as JSON, and its last errors."""

    job: msgspec.Raw
    payload: Json = msgspec.UNSET
    result: Json = msgspec.UNSET
    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    chain: Json = msgspec.UNSET
    trail: tuple[Event, ...] = ()
    errors: list[JobError] = []


class Jobs(msgspec.Struct, frozen=True):
    """Those that are there, in the order asked for."""

    jobs: list[JobView]
    looked_at: int = 0
    """How many of the ids: fewer than were asked for when the answer has become large."""
    moved: dict[str, int] = {}
    """Ids of jobs that have moved, and the shards that they are in or on their way to."""


class GetJobs(Query, frozen=True, kw_only=True):
    """Jobs by their ids."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]

    def answer(self, asked: Asked) -> Jobs:
        """Leaves out those that are not here."""
        tx = asked.machine.tx
        views: list[JobView] = []
        moved: dict[str, int] = {}
        size = 0
        for number, job_id in enumerate(self.job_ids, start=1):
            found = presence.find(tx, job_id)
            if found is None:
                forward = consequences.forwarded(tx, job_id)
                if forward is not None:
                    moved[job_id] = forward.shard
                continue
            views.append(view(tx, found.document))
            size += _size(views[-1])
            if size >= ANSWER_BYTES_MAX:
                return Jobs(views, number, moved)
        return Jobs(views, len(self.job_ids), moved)


def _size(view: JobView) -> int:
    """How large a view is, about."""
    texts = (view.job, view.payload, view.result, view.progress, view.checkpoint, view.chain)
    size = sum(len(bytes(text)) for text in texts if text is not msgspec.UNSET)
    return size + sum(len(error.error) + len(error.backtrace) + 256 for error in view.errors)


def view(tx: Tx, job: Job) -> JobView:
    """A job for people."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(job).items()
        if name not in {"payload", "result", "progress", "checkpoint", "trail", "settled", "chain"}
    }
    return JobView(
        job=msgspec.Raw(msgspec.json.encode(fields)),
        payload=as_json(job.payload),
        result=as_json(job.result),
        progress=as_json(job.progress),
        checkpoint=as_json(job.checkpoint),
        chain=as_json(job.chain),
        trail=job.trail,
        errors=errors_of(tx, job),
    )


def errors_of(tx: Tx, job: Job) -> list[JobError]:
    """The errors that are kept of a job, oldest first."""
    stored = [
        tx.get_key(lifecycle.error_key(job.id, number)) for number in lifecycle.error_numbers(job)
    ]
    return [msgspec.json.decode(data, type=JobError) for data in stored if data is not None]


class Whereabouts(msgspec.Struct, frozen=True):
    """Where jobs are, for whoever has to know who may touch them, or whom to ask."""

    queues: dict[str, str]
    """By id, of those that are here."""
    moved: dict[str, int]
    """By id, the shard of those that have left for it."""


class GetWhereabouts(Query, frozen=True, kw_only=True):
    """Which of some jobs are here, and which have moved."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]

    def answer(self, asked: Asked) -> Whereabouts:
        """Leaves out those that were never here, or are gone."""
        tx = asked.machine.tx
        queues: dict[str, str] = {}
        moved: dict[str, int] = {}
        for job_id in self.job_ids:
            found = presence.find(tx, job_id)
            if found is not None:
                queues[job_id] = found.document.queue
                continue
            forward = consequences.forwarded(tx, job_id)
            if forward is not None:
                moved[job_id] = forward.shard
        return Whereabouts(queues, moved)


class Explain(Query, frozen=True, kw_only=True):
    """Why a job is not being worked on."""

    job_id: Id

    def answer(self, asked: Asked) -> select.Explanation | Rejected:
        """One reason: the first that holds."""
        tx = asked.machine.tx
        found = presence.find(tx, self.job_id)
        if found is None:
            return lifecycle.missing(tx, self.job_id)
        return select.explain(tx, found.document, now_ns=asked.machine.now_ns)


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, its settings, and how many jobs of each state it has."""

    queue: Queue
    counts: dict[str, int]
    oldest_pending_ns: int = 0
    """The place of the pending job that waits longest for a worker; 0 when none does."""


class Queues(msgspec.Struct, frozen=True):
    """A page of queues, and the name behind which the next one begins; empty at the end."""

    queues: list[QueueView]
    after: str = ""


class GetQueues(Query, frozen=True, kw_only=True):
    """The shard's queues by name, a page at a time."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> Queues:
        """Their settings and counts."""
        names = _page(asked.machine.tx, keys.QUEUE_NAME.prefix, self.after, self.limit)
        views = [queue_view(asked.machine.tx, name) for name in names]
        return Queues(views, names[-1] if len(names) == self.limit else "")


class GetQueue(Query, frozen=True, kw_only=True):
    """One queue."""

    queue: Name

    def answer(self, asked: Asked) -> QueueView:
        """Its settings and counts; those of a queue that nobody has named are empty."""
        return queue_view(asked.machine.tx, self.queue)


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


class Counts(msgspec.Struct, frozen=True):
    """A page of queues that have jobs of a state."""

    queues: list[tuple[str, int]]
    """The name, and how many."""
    after: str = ""
    """The name behind which the next page begins; empty at the end."""


class CountJobs(Query, frozen=True, kw_only=True):
    """In which queues jobs of a state are. Looks at so many queues, and leaves out most of them."""

    state: State
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> Counts:
        """Those that have any."""
        tx = asked.machine.tx
        names = _page(tx, keys.QUEUE_NAME.prefix, self.after, self.limit)
        found = [(name, tx.count(name)[self.state.number]) for name in names]
        after = names[-1] if len(names) == self.limit else ""
        return Counts([each for each in found if each[1]], after)


class Dead(msgspec.Struct, frozen=True):
    """Dead jobs, the newest first, each with its last error."""

    jobs: list[JobView]
    before_ns: int = 0
    before_id: str = ""
    """Where to go on: with what is older than this. The id is empty when all was looked at."""


class ListDead(Query, frozen=True, kw_only=True):
    """Dead jobs of some queues, the newest first.

    Completed and cancelled ones lie between them, so one answer may have few or none and still not
    be the last.
    """

    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    before_ns: Nanos = 0
    before_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """Only what ended before this, of what ended at one time those with a smaller id; nothing is
    all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> Dead:
        """As many as there are among the next few that ended."""
        tx = asked.machine.tx
        before = self.before_ns.to_bytes(8, "big") + self.before_id.encode()
        chunk = max(1, WALK_MAX // len(self.queues))
        ended = heapq.merge(
            *(_ended(tx, name, before if self.before_ns else b"", chunk) for name in self.queues),
            reverse=True,
        )
        views: list[JobView] = []
        size = 0
        for walked, place in enumerate(ended, start=1):
            job_id = place[8:].decode()
            job = _dead(tx, job_id)
            if job is not None:
                views.append(_summary(tx, job))
                size += _size(views[-1])
            if walked == WALK_MAX or len(views) == self.limit or size >= ANSWER_BYTES_MAX:
                return Dead(views, int.from_bytes(place[:8], "big"), job_id)
        return Dead(views)


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


def _summary(tx: Tx, job: Job) -> JobView:
    """A job for a list: without what only it itself is asked for."""
    errors = errors_of(tx, job)[-1:]
    bare = replace(job, result=b"", progress=b"", checkpoint=b"", chain=b"", trail=())
    return replace(view(tx, bare), errors=errors)


class Workers(msgspec.Struct, frozen=True):
    """A page of workers, and the id behind which the next one begins; empty at the end."""

    workers: list[Worker]
    after: str = ""


class GetWorkers(Query, frozen=True, kw_only=True):
    """Workers that fetched from this shard lately, a page at a time."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> Workers:
        """As they were when they fetched last."""
        tx = asked.machine.tx
        names = _page(tx, keys.WORKER.prefix, self.after, self.limit)
        workers = [worker for name in names if (worker := WORKERS.get(tx, name)) is not None]
        return Workers(workers, names[-1] if len(names) == self.limit else "")


class ApiKeys(msgspec.Struct, frozen=True):
    """A page of API keys, and the hash behind which the next one begins; empty at the end."""

    keys: list[ApiKey]
    after: str = ""


class ListKeys(Query, frozen=True, kw_only=True):
    """The API keys, a page at a time. Only the shard that keeps them has any."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> ApiKeys:
        """By their hashes."""
        tx = asked.machine.tx
        hashes = _page(tx, keys.API_KEY.prefix, self.after, self.limit)
        found = [key for name in hashes if (key := API_KEYS.get(tx, name)) is not None]
        return ApiKeys(found, hashes[-1] if len(hashes) == self.limit else "")


def _page(tx: Tx, prefix: bytes, after: str, limit: int) -> list[str]:
    start = prefix + after.encode() + b"\0" if after else prefix
    found = tx.keys(start, prefix_end(prefix), limit=limit)
    return [key[len(prefix) :].decode() for key in found]


class Active(msgspec.Struct, frozen=True):
    """Jobs that workers have."""

    job_ids: list[str]


class GetActive(Query, frozen=True, kw_only=True):
    """The jobs of a queue that workers have, the first by their ids."""

    queue: Name
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def answer(self, asked: Asked) -> Active:
        """None, if there is no such queue."""
        prefix = keys.ACTIVE.prefix + self.queue.encode() + b"\0"
        return Active(_page(asked.machine.tx, prefix, "", self.limit))


class Moment(msgspec.Struct, frozen=True):
    """The shard's own time: whatever happens from here on happens later."""

    now_ns: int


class GetMoment(Query, frozen=True, kw_only=True):
    """What time it is for the shard; the place in the log goes with every answer."""

    def answer(self, asked: Asked) -> Moment:
        """That of the last entry."""
        return Moment(asked.machine.now_ns)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replica stands."""

    replica: int
    role: str
    term: int
    leader: int | None
    commit: int
    applied: int
    last_index: int
    first_index: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    is_repairing: bool
    now_ns: int
    digest: int


class GetStatus(Query, frozen=True, kw_only=True):
    """Where this replica stands."""

    is_local: ClassVar[bool] = True

    def answer(self, asked: Asked) -> Status:
        """As it is now, whoever leads."""
        seen = asked.node.statistics()
        return Status(
            replica=seen.replica,
            role=seen.role.value,
            term=seen.term,
            leader=seen.leader,
            commit=seen.commit,
            applied=seen.applied,
            last_index=seen.last_index,
            first_index=seen.first_index,
            voters=seen.membership.voters,
            learners=seen.membership.learners,
            is_repairing=seen.is_repairing,
            now_ns=asked.machine.now_ns,
            digest=asked.machine.digest,
        )


class GetNumbers(Query, frozen=True, kw_only=True):
    """What this replica has counted, for metrics."""

    is_local: ClassVar[bool] = True

    def answer(self, asked: Asked) -> Numbers:
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
            disk_is_full=asked.disk_is_full,
            counted=asked.counters,
        )


class GetQueueNumbers(Query, frozen=True, kw_only=True):
    """How many jobs each queue has, a page at a time: less of a queue than `GetQueues` tells."""

    is_local: ClassVar[bool] = True

    after: str = ""
    limit: PageLimit = PAGE_QUEUES
    is_brief: bool = False
    """Whether counts are enough: what waits longest has to be looked for, and they have not."""

    def answer(self, asked: Asked) -> QueuePage:
        """As this replica has it, whoever leads."""
        tx = asked.machine.tx
        names = _page(tx, keys.QUEUE_NAME.prefix, self.after, self.limit)
        found = [_queue_numbers(tx, name, is_brief=self.is_brief) for name in names]
        return QueuePage(found, names[-1] if len(names) == self.limit else "")


def _queue_numbers(tx: Tx, name: str, *, is_brief: bool) -> QueueNumbers:
    counts = tx.count(name)
    told = tuple(counts[: len(STATES)])
    if is_brief:
        return QueueNumbers(name, told, paused=False, oldest_ns=0)
    queue = QUEUES.get(tx, name) or Queue(name=name)
    oldest_ns = _oldest_pending_ns(tx, queue) if counts[State.PENDING.number] else 0
    return QueueNumbers(name, told, queue.paused, oldest_ns)


class GetWorkerNumbers(Query, frozen=True, kw_only=True):
    """When each worker was heard of last, a page at a time."""

    is_local: ClassVar[bool] = True

    after: str = ""
    limit: PageLimit = PAGE_NUMBERS_MAX

    def answer(self, asked: Asked) -> WorkerPage:
        """As this replica has it, whoever leads."""
        tx = asked.machine.tx
        names = _page(tx, keys.WORKER.prefix, self.after, self.limit)
        found = [
            (name, worker.seen_ns)
            for name in names
            if (worker := WORKERS.get(tx, name)) is not None
        ]
        return WorkerPage(found, names[-1] if len(names) == self.limit else "")


QUERIES: Final[dict[int, type[Query]]] = {
    1: GetJobs,
    2: Explain,
    3: GetQueues,
    4: GetQueue,
    5: GetWorkers,
    6: GetStatus,
    7: ListKeys,
    10: CountJobs,
    11: ListDead,
    12: GetMoment,
    13: GetActive,
    20: GetWhereabouts,
    30: GetNumbers,
    31: GetQueueNumbers,
    32: GetWorkerNumbers,
}
"""A number is never used again."""

NUMBERS: Final = {query: number for number, query in QUERIES.items()}

_DECODERS: Final = {number: msgspec.json.Decoder(query).decode for number, query in QUERIES.items()}


def answer(asked: Asked, number: int, body: bytes) -> msgspec.Struct:
    """Answer a question of the registry, or say what is wrong with it."""
    try:
        query: Query = _DECODERS[number](body)
        return query.answer(asked)
    except (msgspec.DecodeError, UnicodeError, BadKey) as error:
        return Rejected("bad_request", str(error))
    except RecursionError:
        return Rejected("bad_request", "the question is nested too deeply")
    finally:
        asked.machine.tx.rest()
