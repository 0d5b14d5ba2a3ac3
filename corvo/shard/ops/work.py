"""What workers do: fetch jobs, and say what became of them."""

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, ClassVar, Final, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import Agent, EventType, Job, Settled, State, Worker
from corvo.shard import agents, lifecycle, presence
from corvo.shard.agents import AgentStatus
from corvo.shard.chains import EXITS
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
    encode_json,
    json_bytes,
    left_out,
)
from corvo.shard.ops.checks import bad_json, bad_name, too_long_text
from corvo.shard.ops.workflow import COST_MAX
from corvo.shard.select import Selection, take
from corvo.shard.tables import JOBS, QUEUES, WORKERS
from corvo.shard.tx import Tx

_ACTIVE: Final = State.ACTIVE
_COMPLETED: Final = State.COMPLETED

LEASE_MS: Final = 60_000
"""How long a lease is when nothing is said."""
FETCH_MAX: Final = 512
QUEUES_MAX: Final = 64
"""Queues that one fetch may name."""
LEASE_MS_MIN: Final = 1_000
"""No lease is shorter: heartbeats have to get through."""
_SEEN_EVERY_NS: Final = 1_000_000_000
"""How often a worker's document is written at most, while it only fetches."""

R_co = TypeVar("R_co", covariant=True)


class AgentView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an agent's job stands, for its worker."""

    max_iterations: int = 0
    max_cost_micros: int = 0
    iteration_timeout_ms: int = 0
    iteration: int = 0
    total_cost_micros: int = 0


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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
        if self.lease_ms < LEASE_MS_MIN:
            error = f"a lease has at least {LEASE_MS_MIN} ms"
            return Rejected("bad_request", error, field="lease_ms")
        for number, name in enumerate(self.queues):
            refused = bad_name(f"queues[{number}]", name)
            if refused is not None:
                return refused
        return bad_name("worker_id", self.worker_id)

    def apply(self, tx: Tx) -> Claims:
        """Give out what may be given out."""
        if self.worker_id:
            tx.by = self.worker_id
            if tx.seen != self.worker_id:
                see_worker(tx, self)
        claims: list[Claim] = []
        selection = Selection(tx)
        for name in self.queues:
            queue = QUEUES.get(tx, name)
            if queue is None:
                continue
            taken = take(tx, queue, self.count - len(claims), selection)
            for found in selection.found[len(claims) :]:
                job = lifecycle.lease(
                    tx,
                    found.document,
                    worker_id=self.worker_id,
                    hostname=self.hostname,
                    lease_ms=self.lease_ms,
                )
                JOBS.change(tx, found, job)
                claims.append(claim(job))
            if taken and queue.rate_limit:
                record_fetches(tx, queue, taken)
            if len(claims) == self.count or selection.is_over:
                break
        return Claims(claims)

    def is_void(self, result: msgspec.Struct) -> bool:
        """It found nothing, and asks again."""
        assert isinstance(result, Claims)
        return not result.jobs

    def keep(self, result: msgspec.Struct) -> bytes:
        """Which leases were given: what is told of them is looked up again."""
        assert isinstance(result, Claims)
        return _encode_given([(claim.job_id, claim.lease_token) for claim in result.jobs])

    def again(self, tx: Tx, kept: bytes) -> bytes:
        """Those that are still the caller's."""
        claims = []
        for job_id, token in _decode_given(kept):
            found = presence.find(tx, job_id)
            if found is None:
                continue
            job = found.document
            if job.state is _ACTIVE and job.lease_token == token:
                claims.append(claim(job))
        return encode_json(Claims(claims))


_encode_given: Final = msgspec.json.Encoder().encode
_decode_given: Final = msgspec.json.Decoder(list[tuple[str, int]]).decode


def claim(job: Job) -> Claim:
    """What a worker is told of its job."""
    return Claim(  # by position, which takes half the time
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
        AgentView(*msgspec.structs.astuple(job.agent)) if job.agent is not None else None,
    )


def see_worker(tx: Tx, fetch: Fetch) -> None:
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


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has used."""

    input_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    output_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_creation_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_read_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    model: Text = ""
    provider: Text = ""
    cost_micros: Annotated[int, msgspec.Meta(ge=0, lt=COST_MAX)] = 0


# Operations under a lease.


class LeaseItem(
    msgspec.Struct, Generic[R_co], frozen=True, kw_only=True, omit_defaults=True, gc=False
):
    """One job, and the lease under which something is done to it."""

    job_id: Id
    lease_token: Token | None = None
    worker_id: Text = ""
    is_own: bool = False
    """Whether the server itself asks, about its own work, which no client may touch."""

    ENDS: ClassVar[str] = ""
    """How the job's document records that this operation ended the lease; empty if it does not."""

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The first limit that the item exceeds; `field` is the item's own place."""
        raise NotImplementedError

    def apply(self, tx: Tx) -> R_co | Rejected:
        """Do it, if the lease holds. Returns the result for this job, or `Rejected`."""
        found = lifecycle.holder(
            tx, self.job_id, self.lease_token, self.worker_id, is_own=self.is_own
        )
        if not isinstance(found, Rejected):
            return self.do(tx, found)
        ended = presence.find(tx, self.job_id) if self.ENDS else None
        if ended is not None:
            settled = lifecycle.settled_before(ended.document, self.lease_token, self.ENDS)
            if settled is not None:
                return self.repeat(settled)
        return found

    def do(self, tx: Tx, found: Held[Job]) -> R_co | Rejected:
        """Do it to a job that is active under this lease."""
        raise NotImplementedError

    def repeat(self, settled: Settled) -> R_co:
        """The result of the same operation under the same token, which ended the lease before."""
        raise NotImplementedError


class LeaseResults(msgspec.Struct, Generic[R_co], frozen=True):
    """One result for each job, in order."""

    results: list[R_co | Rejected]


class LeaseOp(Op, Generic[R_co], frozen=True, kw_only=True):
    """One operation on jobs under their leases; each item succeeds or fails by itself."""

    ITEMS: ClassVar[str]
    """Name of the field with the items, in the log and in the code."""

    @classmethod
    def of(cls, items: Sequence[LeaseItem[R_co]], *, request_key: str = "", by: str = "") -> Self:
        """The op with these items, whatever its field is called."""
        return cls(**{cls.ITEMS: items}, request_key=request_key, by=by)

    @property
    def items(self) -> Sequence[LeaseItem[R_co]]:
        """All items, in order."""
        items: Sequence[LeaseItem[R_co]] = getattr(self, self.ITEMS)
        return items

    def check(self, limits: Limits) -> Rejected | None:
        """Texts and JSON of the items have limits."""
        for number, item in enumerate(self.items):
            refused = item.check(f"{self.ITEMS}[{number}]", limits)
            if refused is not None:
                return refused
        return None

    @property
    def is_safe_twice(self) -> bool:
        """A lease ends once, and the same operation under its token gets the same answer again."""
        return bool(self.request_key) or all(item.lease_token is not None for item in self.items)

    def apply(self, tx: Tx) -> LeaseResults[R_co]:
        """Apply each item by itself: one that is rejected does not stop the others."""
        return LeaseResults(
            [left_out(item.job_id) if tx.is_full else item.apply(tx) for item in self.items]
        )


class Acked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Result for a job that was acknowledged, released or snoozed."""

    job_id: str
    status: str


class _StateItem(LeaseItem[Acked], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An operation whose result is the job's new state."""

    def repeat(self, settled: Settled) -> Acked:
        """The state in which the lease ended."""
        return Acked(self.job_id, settled.state.word)


class StepStatus(Enum):
    """How a chain goes on after a step."""

    CONTINUE = "continue"
    EXIT = "exit"


class AckItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job whose work is done."""

    result: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: Usage | None = None
    """Its cost is added to that of an agent's job."""
    agent_status: AgentStatus | None = None
    """For an agent's job: whether this was its last iteration; without it, it was."""
    hold_reason: Text = ""
    step_status: StepStatus = StepStatus.CONTINUE
    """For a job of a chain: whether the next step comes."""

    ENDS = "ack"

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """Result and checkpoint have a limit."""
        refused = bad_json(f"{field}.result", self.result, limits.result_bytes_max)
        return refused or bad_json(
            f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max
        )

    def do(self, tx: Tx, found: Held[Job]) -> Acked | Rejected:
        """Complete it, once."""
        job = found.document
        if job.agent is not None or job.chain_id or self.agent_status is not None:
            return self._of_others(tx, found, job.agent)
        lifecycle.finish(
            tx,
            found,
            _COMPLETED,
            what=EventType.COMPLETED,
            result=json_bytes(self.result, job.result),
            checkpoint=json_bytes(self.checkpoint, job.checkpoint),
            settled=Settled(job.lease_token, "ack", _COMPLETED),
        )
        return Acked(job.id, _COMPLETED.word)

    def _of_others(self, tx: Tx, found: Held[Job], agent: Agent | None) -> Acked | Rejected:
        """A job of an agent or a chain, for which its end may mean something else."""
        job = found.document
        result = json_bytes(self.result, job.result)
        checkpoint = json_bytes(self.checkpoint, job.checkpoint)
        if agent is None:
            if self.agent_status is not None:
                error = f"job {job.id} is not an agent's: ack it without agent_status"
                return Rejected("not_an_agent", error, "agent_status", job_id=job.id)
        else:
            agent = agents.spend(agent, self.usage.cost_micros if self.usage is not None else 0)
            done: Job | None = None
            match self.agent_status:
                case AgentStatus.CONTINUE:
                    done = agents.go_on(tx, found, agent, result=result, checkpoint=checkpoint)
                case AgentStatus.HOLD:
                    done = agents.hold(
                        tx,
                        found,
                        agent,
                        reason=self.hold_reason,
                        result=result,
                        checkpoint=checkpoint,
                    )
                case _:
                    pass
            if done is not None:
                return Acked(job.id, done.state.word)
        exits = EXITS if self.step_status is StepStatus.EXIT else 0
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
        return Acked(job.id, _COMPLETED.word)


class Ack(LeaseOp[Acked], frozen=True, kw_only=True):
    """Complete jobs."""

    ITEMS = "acks"
    acks: Annotated[list[AckItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class Failed(msgspec.Struct, frozen=True, gc=False):
    """What became of a job whose attempt failed."""

    job_id: str
    status: str
    next_attempt_ns: int = 0
    """0 when there is none."""
    attempts_remaining: int = 0


class FailItem(LeaseItem[Failed], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job whose attempt failed, and why."""

    error: str = ""
    backtrace: str = ""
    error_class: Text = ""
    retryable: bool = True
    retry_after_ms: Millis | None = None
    """When to try again; without it the job's own backoff decides."""

    ENDS = "fail"

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """Error and backtrace have a limit."""
        refused = too_long_text(f"{field}.error", self.error, limits.error_bytes_max)
        return refused or too_long_text(
            f"{field}.backtrace", self.backtrace, limits.backtrace_bytes_max
        )

    def do(self, tx: Tx, found: Held[Job]) -> Failed | Rejected:
        """Let it wait for its next attempt, or give it up."""
        failure = lifecycle.Failure(
            error=self.error,
            backtrace=self.backtrace,
            error_class=self.error_class,
            retryable=self.retryable,
            retry_after_ms=self.retry_after_ms,
        )
        return self.repeat(lifecycle.fail(tx, found, failure))

    def repeat(self, settled: Settled) -> Failed:
        """The state after the failed attempt."""
        return Failed(self.job_id, settled.state.word, settled.due_ns, settled.attempts_left)


class Fail(LeaseOp[Failed], frozen=True, kw_only=True):
    """Report failed attempts of jobs."""

    ITEMS = "fails"
    fails: Annotated[list[FailItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A lease that goes on."""

    job_id: str
    status: str
    """`ok`, or `cancel`: the worker is asked to stop."""
    lease_expires_ns: int


class BeatItem(LeaseItem[Beat], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that is still being worked on."""

    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """Progress and checkpoint have a limit."""
        refused = bad_json(f"{field}.progress", self.progress, limits.progress_bytes_max)
        return refused or bad_json(
            f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max
        )

    def do(self, tx: Tx, found: Held[Job]) -> Beat | Rejected:
        """The lease begins anew, and is never shortened."""
        job = found.document
        after = replace(
            job,
            lease_expires_ns=max(job.lease_expires_ns, tx.now_ns + job.lease_ms * lifecycle.NS),
            progress=json_bytes(self.progress, job.progress),
            checkpoint=json_bytes(self.checkpoint, job.checkpoint),
        )
        JOBS.change(tx, found, after)
        return Beat(job.id, "cancel" if job.cancel_requested else "ok", after.lease_expires_ns)


class Heartbeat(LeaseOp[Beat], frozen=True, kw_only=True):
    """Renew the leases of jobs, with their progress."""

    ITEMS = "jobs"
    jobs: Annotated[list[BeatItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]

    @property
    def is_safe_twice(self) -> bool:
        """A lease that is renewed twice is renewed."""
        return True


class ReleaseItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that its worker does not go on with."""

    checkpoint: Json = msgspec.UNSET
    why: Text = ""

    ENDS = "release"

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The checkpoint has a limit."""
        return bad_json(f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max)

    def do(self, tx: Tx, found: Held[Job]) -> Acked | Rejected:
        """It is pending again, where it was."""
        checkpoint = json_bytes(self.checkpoint, found.document.checkpoint)
        job = lifecycle.release(tx, found, why=self.why, checkpoint=checkpoint)
        return Acked(job.id, job.state.word)


class Release(LeaseOp[Acked], frozen=True, kw_only=True):
    """Give jobs back, as if they had not been fetched."""

    ITEMS = "jobs"
    jobs: Annotated[list[ReleaseItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class SnoozeItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that its worker wants to see again later."""

    delay_ms: Millis
    checkpoint: Json = msgspec.UNSET
    why: Text = ""

    ENDS = "snooze"

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The checkpoint has a limit."""
        return bad_json(f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max)

    def do(self, tx: Tx, found: Held[Job]) -> Acked | Rejected:
        """It is scheduled, and its attempt is not counted."""
        checkpoint = json_bytes(self.checkpoint, found.document.checkpoint)
        job = lifecycle.snooze(
            tx, found, delay_ms=self.delay_ms, why=self.why, checkpoint=checkpoint
        )
        return Acked(job.id, job.state.word)


class Snooze(LeaseOp[Acked], frozen=True, kw_only=True):
    """Give jobs back, to be fetched again later."""

    ITEMS = "jobs"
    jobs: Annotated[list[SnoozeItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
