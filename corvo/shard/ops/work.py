"""What workers do: fetch jobs, and say what became of them."""

from typing import Annotated, ClassVar, Final

import msgspec

from corvo.kv.tables import Held
from corvo.model import Event, Job, Settled, State, Worker
from corvo.shard import lifecycle
from corvo.shard.limits import record_fetches
from corvo.shard.ops.base import (
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Name,
    Op,
    Rejected,
    Text,
    Token,
    as_json,
    json_bytes,
    too_long,
)
from corvo.shard.select import take
from corvo.shard.tables import JOBS, QUEUES, WORKERS
from corvo.shard.tx import Tx

LEASE_MS: Final = 60_000
"""How long a lease is when nothing is said."""
FETCH_MAX: Final = 512
QUEUES_MAX: Final = 64
"""Queues that one fetch may name."""
_SEEN_EVERY_NS: Final = 1_000_000_000
"""How often a worker's document is written at most, while it only fetches."""

_replace: Final = msgspec.structs.replace


class AgentView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an agent's job stands, for its worker."""

    max_iterations: int = 0
    max_cost_micros: int = 0
    iteration_timeout_ms: int = 0
    iteration: int = 0
    total_cost_micros: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that a worker was given."""

    job_id: str
    queue: str
    payload: Json
    attempt: int
    max_retries: int
    lease_duration: int
    """Seconds, rounded up."""
    lease_token: int
    """To be sent with whatever is said of this job."""
    lease_expires_ns: int
    kind: str = ""
    checkpoint: Json = msgspec.UNSET
    tags: dict[str, str] = {}
    agent: AgentView | None = None


class Claims(msgspec.Struct, frozen=True):
    """What a fetch got: nothing, too, is an answer."""

    jobs: list[Claim]


class Fetch(Op, frozen=True, kw_only=True):
    """Take the next jobs of some queues, in the order in which the queues are named."""

    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    worker_id: Text = ""
    hostname: Text = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    lease_ms: Millis = LEASE_MS

    def check(self, limits: Limits) -> Rejected | None:
        """A lease has to be long enough to be kept."""
        if self.lease_ms < 1_000:
            return Rejected("bad_request", "a lease has at least 1000 ms", field="lease_ms")
        return None

    def apply(self, tx: Tx) -> Claims:
        """Give out what may be given out."""
        if self.worker_id:
            tx.by = self.worker_id
            see_worker(tx, self)
        claims: list[Claim] = []
        for name in self.queues:
            queue = QUEUES.get(tx, name)
            if queue is None:
                continue
            taken = take(tx, queue, self.count - len(claims))
            for found in taken:
                job = lifecycle.lease(
                    tx,
                    found.document,
                    worker_id=self.worker_id,
                    hostname=self.hostname,
                    lease_ms=self.lease_ms,
                )
                JOBS.change(tx, found, job)
                claims.append(claim(job))
            if taken:
                record_fetches(tx, queue, len(taken))
            if len(claims) == self.count:
                break
        return Claims(claims)


def claim(job: Job) -> Claim:
    """What a worker is told of its job."""
    return Claim(
        job_id=job.id,
        queue=job.queue,
        payload=msgspec.Raw(job.payload),
        attempt=job.attempt,
        max_retries=job.max_retries,
        lease_duration=-(-job.lease_ms // 1_000),
        lease_token=job.lease_token,
        lease_expires_ns=job.lease_expires_ns,
        kind=job.kind,
        checkpoint=as_json(job.checkpoint),
        tags=job.tags,
        agent=AgentView(*msgspec.structs.astuple(job.agent)) if job.agent is not None else None,
    )


def see_worker(tx: Tx, fetch: Fetch) -> None:
    """Remember who fetches, and from where."""
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
    after = _replace(worker, hostname=fetch.hostname, queues=queues, seen_ns=tx.now_ns)
    WORKERS.change(tx, seen, after)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has used."""

    input_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    output_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_creation_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_read_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    model: Text = ""
    provider: Text = ""
    cost_micros: Annotated[int, msgspec.Meta(ge=0)] = 0


class Acked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of a job that was acknowledged."""

    job_id: str
    status: str


class AckItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job whose work is done."""

    job_id: Id
    lease_token: Token | None = None
    worker_id: Text = ""
    result: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET

    def apply(self, tx: Tx) -> Acked | Rejected:
        """Complete it, once."""
        found = lifecycle.holder(tx, self.job_id, self.lease_token, self.worker_id)
        if isinstance(found, Rejected):
            settled = lifecycle.settled_before(
                JOBS.get(tx, self.job_id), self.lease_token, "ack"
            )
            return Acked(self.job_id, settled.state.value) if settled is not None else found
        job = found.document
        lifecycle.finish(
            tx,
            found,
            State.COMPLETED,
            what="completed",
            result=json_bytes(self.result, job.result),
            checkpoint=json_bytes(self.checkpoint, job.checkpoint),
            settled=Settled(job.lease_token, "ack", State.COMPLETED),
        )
        return Acked(job.id, "completed")


class AckResults(msgspec.Struct, frozen=True):
    """One answer for each job, in order."""

    results: list[Acked | Rejected]


class Ack(Op, frozen=True, kw_only=True):
    """Say of jobs that their work is done."""

    acks: Annotated[list[AckItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]

    def check(self, limits: Limits) -> Rejected | None:
        """Results and checkpoints have a limit."""
        for number, item in enumerate(self.acks):
            refused = too_long(f"acks[{number}].result", item.result, limits.result_bytes_max)
            refused = refused or too_long(
                f"acks[{number}].checkpoint", item.checkpoint, limits.checkpoint_bytes_max
            )
            if refused is not None:
                return refused
        return None

    def apply(self, tx: Tx) -> AckResults:
        """Each by itself: one that is refused does not hold up the others."""
        return AckResults([item.apply(tx) for item in self.acks])
