"""What a replica answers from its own state: questions that change nothing.

The registry numbers them as `corvo.shard.ops` does ops. A question is asked as JSON and answered
as JSON; unless it is about this replica alone, it is answered behind a proof of leadership.
"""

from typing import Annotated, ClassVar, Final, Protocol

import msgspec

from corvo.errors import BadKey
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import STATES, ApiKey, Event, Job, JobError, Queue, Worker
from corvo.raft import Node
from corvo.shard import lifecycle, presence, select
from corvo.shard.machine import Machine
from corvo.shard.ops.base import ITEMS_MAX, Id, Json, Name, Rejected, as_json
from corvo.shard.tables import API_KEYS, QUEUES, WORKERS
from corvo.shard.tx import Tx

PAGE_MAX: Final = 1_000


class Asked(Protocol):
    """What is asked."""

    @property
    def node(self) -> Node:
        """Its half of Raft."""

    @property
    def machine(self) -> Machine:
        """Its state."""


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
    trail: tuple[Event, ...] = ()
    errors: list[JobError] = []


class Jobs(msgspec.Struct, frozen=True):
    """Those that are there, in the order asked for."""

    jobs: list[JobView]


class GetJobs(Query, frozen=True, kw_only=True):
    """Jobs by their ids."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]

    def answer(self, asked: Asked) -> Jobs:
        """Leaves out those that are not here."""
        tx = asked.machine.tx
        found = [presence.find(tx, job_id) for job_id in self.job_ids]
        return Jobs([view(tx, held.document) for held in found if held is not None])


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
        trail=job.trail,
        errors=errors_of(tx, job),
    )


def errors_of(tx: Tx, job: Job) -> list[JobError]:
    """The errors that are kept of a job, oldest first."""
    stored = [
        tx.get_key(lifecycle.error_key(job.id, number)) for number in lifecycle.error_numbers(job)
    ]
    return [msgspec.json.decode(data, type=JobError) for data in stored if data is not None]


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
    return QueueView(
        queue=QUEUES.get(tx, name) or Queue(name=name),
        counts={state.value: counts[state.number] for state in STATES},
    )


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


QUERIES: Final[dict[int, type[Query]]] = {
    1: GetJobs,
    2: Explain,
    3: GetQueues,
    4: GetQueue,
    5: GetWorkers,
    6: GetStatus,
    7: ListKeys,
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
