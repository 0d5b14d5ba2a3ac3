"""Bodies of bulk operations: the request, the stored progress, the answers.

A bulk is an `Order`: an action, and jobs that are either named or meant by a filter. A small one is
done while its client waits. Any other is itself a job, in the queue `QUEUE`: its payload is the
order, its checkpoint the `Mark`, and whoever has the lease of that job works it off. So it is as
durable as any job, and a router that dies in the middle is no more than a worker that does.

**Exactly those that were meant.** With an order goes a time of each shard. Only jobs to which
nothing has happened since are selected, by a mirror that has come so far, and each op says so once
more to the shard, which decides: what arrives later, or changes, is never swept up.

**Each once.** A page of jobs is written into the mark before anything is done to them. Each op on
some of them has a request key that follows from the bulk and these jobs. Whoever takes over does
the page that it finds in the mark again, and hears what became of it the first time.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from corvo.model import Priority, State
from corvo.protocol.jobs import Time
from corvo.protocol.ops.base import Id, Json, Rejected, Text
from corvo.protocol.ops.checks import bad_name
from corvo.protocol.ops.jobs import (
    Approve,
    Cancel,
    ChangePriority,
    Delete,
    Hold,
    JobsOp,
    Move,
    Reject,
    Requeue,
    Retry,
)
from corvo.protocol.queries import StoredJob
from corvo.protocol.questions import AsOf, Counted, Filter, Member
from corvo.protocol.words import PRIORITY_FORM, GivenPriority
from corvo.router.caller import Caller
from corvo.router.http.bodies import Body, not_reserved, read_priority
from corvo.router.http.messages import Problem, bad_field, encode_json
from corvo.router.http.params import Key
from corvo.router.shards.outcomes import Outcome
from corvo.scopes import RESERVED, is_reserved, scope_of_stored
from corvo.times import format_time, format_time_or_none

QUEUE: Final = f"{RESERVED}bulk"
"""Where bulk operations wait to be worked off."""
DIRECT_MAX: Final = 10_000
"""Jobs of a bulk that is done while its client waits."""
DIRECT_S_MAX: Final = 5
"""How long such a one may take by its own rate."""
IDS_MAX: Final = 20_000
"""Jobs that one request may name: they are the payload of a job."""
OP_JOBS: Final = 50
"""Jobs of one op: what holds a shard up for a few milliseconds, and no enqueue much longer."""
PAGE_JOBS: Final = 1_000
"""Jobs between two marks; with a rate, as many as a second has."""
SKIPPED_MAX: Final = 1_000
"""Jobs that are listed with the reason why nothing was done to them."""
ERROR_CHARS_MAX: Final = 160
"""Of such a reason: all of them are in the mark."""
RATE_MAX: Final = 1_000_000
TAKEOVERS_MAX: Final = 2
"""Routers that go on at once where the one before was killed. If it is the bulk that kills them,
its lease is to run out, and then again, until that has happened too often."""
CRASHES_MAX: Final = 3
"""Leases that may run out before a bulk waits for somebody to look at it. Together with those that
took it over it ends no more routers than a node starts again."""
SOMEWHERE: Final = -1
"""Instead of a shard: a job is to be looked for."""
NOWHERE: Final = -2
"""There is no such job."""
LIST_MAX: Final = 100
LIST: Final = 20
"""Bulks that one answer lists when nothing is said."""

CHANGED: Final = "changed_since"
"""The shards' code for a job to which something happened since it was counted."""

_JOB: Final = "job_"
_BULK: Final = "bulk_"


# The actions.


class Action(NamedTuple):
    """What can be done to many jobs."""

    op: type[JobsOp]
    make: "Callable[[Order, list[str]], JobsOp]"


ACTIONS: Final[dict[str, Action]] = {
    "retry": Action(Retry, lambda _, ids: Retry(job_ids=ids)),
    "delete": Action(Delete, lambda _, ids: Delete(job_ids=ids)),
    "cancel": Action(Cancel, lambda order, ids: Cancel(job_ids=ids, why=order.reason)),
    "move": Action(Move, lambda order, ids: Move(job_ids=ids, queue=order.move_to_queue)),
    "requeue": Action(Requeue, lambda _, ids: Requeue(job_ids=ids)),
    "change_priority": Action(
        ChangePriority, lambda order, ids: ChangePriority(job_ids=ids, priority=order.priority)
    ),
    "hold": Action(Hold, lambda order, ids: Hold(job_ids=ids, reason=order.reason)),
    "approve": Action(Approve, lambda _, ids: Approve(job_ids=ids)),
    "reject": Action(Reject, lambda order, ids: Reject(job_ids=ids, why=order.reason)),
}


# What clients send.


class BulkFilter(Filter, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which jobs are meant.

    A name that is not known is refused: a condition that was misspelt would mean more jobs.
    """


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done, and to which jobs: `job_ids` or `filter`."""

    action: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(ACTIONS)})]
    job_ids: Annotated[list[Id], msgspec.Meta(max_length=IDS_MAX)] | None = None
    filter: BulkFilter | None = None
    all: bool | None = None
    move_to_queue: str | None = None
    priority: GivenPriority | None = None
    reason: Text | None = None
    is_async: bool | None = msgspec.field(default=None, name="async")
    """Answer with an id at once, however few they are."""
    dry_run: bool | None = None
    rate: Annotated[int, msgspec.Meta(ge=1, le=RATE_MAX)] | None = None
    request_key: Key | None = None


decode_bulk: Final = Body(BulkBody)


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bulk, as it is remembered: what, to which jobs, and in whose name."""

    action: str
    job_ids: list[str] = []
    filter: Filter | None = None
    bounds: dict[int, int] = {}
    """By shard, the time since when nothing may have happened to a job that the filter means."""
    seen: dict[int, int] = {}
    """By shard, how far the mirror must have come to know all of these."""
    move_to_queue: str = ""
    priority: int = Priority.NORMAL
    reason: str = ""
    rate: int = 0
    """Jobs in a second; 0 is as fast as may be."""
    by: str = ""
    queues: tuple[str, ...] = ()
    """The scope of the caller, as `corvo.scopes.scope_of_stored` reads it: see `caller_of`."""
    total: int = 0
    is_exact: bool = True
    asked: str = ""
    """A digest of what was asked, so that one request key does not stand for two requests."""


read_order: Final = msgspec.json.Decoder(Order).decode


def order_of(body: BulkBody, caller: Caller) -> Order:
    """What was asked, without what has to be looked up first. Raises `Problem`."""
    if body.action not in ACTIONS:
        raise bulk_error(
            "action", f"action: expected one of {', '.join(ACTIONS)}; got {body.action[:60]!r}"
        )
    if body.job_ids is not None and body.filter is not None:
        raise bad_field("filter", "job_ids and filter exclude each other: send only one of them")
    _check_filter(body)
    target = body.move_to_queue or ""
    if body.action == "move":
        if not target:
            raise bulk_error("move_to_queue", "move_to_queue is required for the action move")
        refused = bad_name("move_to_queue", target)
        if refused is not None:
            raise bad_field("move_to_queue", refused.error)
        not_reserved("move_to_queue", target)
    if body.action == "change_priority" and body.priority is None:
        raise bulk_error(
            "priority",
            f"priority is required for the action change_priority: {PRIORITY_FORM}",
        )
    order = Order(
        action=body.action,
        job_ids=list(dict.fromkeys(body.job_ids or ())),
        filter=body.filter,
        move_to_queue=target,
        priority=Priority.NORMAL if body.priority is None else read_priority(body.priority),
        reason=body.reason or "",
        rate=body.rate or 0,
        by=caller.name,
        queues=caller.scope.stored(),
    )
    return msgspec.structs.replace(
        order,
        total=len(order.job_ids),
        asked=blake2b(encode_json(order), digest_size=16).hexdigest(),
    )


def caller_of(order: Order) -> Caller:
    """The caller who asked for a bulk operation: what it may do now is what it might do then."""
    return Caller(name=order.by, scope=scope_of_stored(order.queues), min_seq=order.seen)


def _check_filter(body: BulkBody) -> None:
    is_all = body.all or False
    if is_all and body.filter is None:
        raise bad_field("all", 'all: expected together with "filter": {}')
    if body.filter is None:
        return
    if body.filter.tags is not None and not body.filter.tags:
        raise bad_field(
            "filter.tags",
            "filter.tags: expected at least one tag; without tags every job would match",
        )
    is_empty = body.filter == BulkFilter()
    if is_empty and not is_all:
        raise bad_field(
            "filter",
            'an empty filter matches every job of every queue; to confirm that, send "all": true',
        )
    if is_all and not is_empty:
        raise bad_field("all", "all: expected only together with an empty filter")
    not_reserved("filter.queue", body.filter.queue or "")


def bulk_error(field: str, error: str) -> Problem:
    """What the action needs and does not have."""
    return Problem(400, "BULK_ERROR", error, field=field)


def is_direct(order: Order) -> bool:
    """Whether a bulk is small enough to be done while its client waits."""
    paced = order.rate * DIRECT_S_MAX if order.rate else DIRECT_MAX
    return order.is_exact and order.total <= min(DIRECT_MAX, paced)


def check_whole(as_of: AsOf, known: int, shards: int) -> None:
    """Raise `Problem` while the mirror does not know all jobs: some that are meant would be missed.

    `known` is the number of shards that it knows anything of.
    """
    missing = [name for name, place in as_of.items() if not place.is_whole]
    if missing or known < shards:
        which = f" of {', '.join(missing)}" if missing else ""
        raise Problem(
            503,
            "NOT_CAUGHT_UP",
            f"the mirror is being rebuilt and misses some jobs{which}: nothing was changed",
            retry_after_ms=1_000,
        )


# Ops.


def op_of(order: Order, ids: list[str], *, by: str, key: str, since_ns: int = 0) -> JobsOp:
    """The op on some jobs."""
    return msgspec.structs.replace(
        ACTIONS[order.action].make(order, ids),
        by=by,
        request_key=key,
        unchanged_since_ns=since_ns,
        scope=order.queues,
    )


def key_of(name: str, turn: int, ids: Sequence[str]) -> str:
    """The request key of an op on some jobs.

    `turn` rises for jobs that a full entry has left out: that answer is kept, and is not the last.
    """
    text = "\n".join((name, str(turn), *ids))
    return blake2b(text.encode(), digest_size=24).hexdigest()


def op_jobs(rate: int) -> int:
    """Jobs of one op."""
    return OP_JOBS if not rate else max(1, min(OP_JOBS, rate // 4))


def page_jobs(rate: int) -> int:
    """Jobs of one page."""
    return PAGE_JOBS if not rate else max(1, min(PAGE_JOBS, rate))


class Pace:
    """When the next jobs may be done, so that there are no more of them in a second than said."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_s: float | None = None

    def take(self, jobs: int, now_s: float) -> float:
        """How many seconds to wait before some jobs are done."""
        if not self._rate:
            return 0.0
        free_s = now_s if self._free_s is None else max(self._free_s, now_s)
        self._free_s = free_s + jobs / self._rate
        return free_s - now_s


# What became of it.


Result: TypeAlias = Outcome | Rejected | Problem
"""What became of one job: it was done, it was refused, or its shard could not be asked."""


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A job to which nothing was done, and why."""

    job_id: str
    code: str
    error: str


class Mark(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a bulk has come: the checkpoint of its job."""

    after: str = ""
    """Where the next selection begins."""
    place: int = 0
    """How many of the jobs that were named have been done, or are in `page`."""
    page: list[tuple[str, int]] = []
    """Jobs that are being done, with their shards."""
    is_last: bool = False
    """Whether nothing comes behind `page`."""
    pages: int = 0
    takeovers: int = 0
    """How many routers in a row went on with it at once and have not come to the next page."""
    processed: int = 0
    affected: int = 0
    errors: int = 0
    skipped_total: int = 0
    by_code: dict[str, int] = {}
    skipped: list[Skipped] = []
    reached: dict[int, int] = {}
    """By shard, how far its log had come when a job of it was done last."""
    at_ns: int = 0
    """When it was written, by the clock of the router."""

    def note(self, outcomes: Sequence[tuple[str, Result]]) -> None:
        """Count what became of jobs."""
        for job_id, outcome in outcomes:
            self.processed += 1
            if isinstance(outcome, Outcome):
                self.affected += 1
                continue
            if isinstance(outcome, Rejected):
                self.skipped_total += 1
            else:
                self.errors += 1
            self.by_code[outcome.code] = self.by_code.get(outcome.code, 0) + 1
            if len(self.skipped) < SKIPPED_MAX:
                error = outcome.error[:ERROR_CHARS_MAX]
                self.skipped.append(Skipped(job_id, outcome.code, error))

    def give_up(self, order: Order, problem: Problem) -> None:
        """The rest cannot be found in time."""
        rest = max(0, order.total - self.processed)
        self.processed += rest
        self.errors += rest
        self.by_code[problem.code] = self.by_code.get(problem.code, 0) + rest

    def settle(self, order: Order) -> None:
        """Everything was looked at: jobs that were counted and not found again had changed."""
        changed = order.total - self.processed
        if order.filter is None or not order.is_exact or changed <= 0:
            return
        self.processed += changed
        self.skipped_total += changed
        self.by_code[CHANGED] = self.by_code.get(CHANGED, 0) + changed


read_mark: Final = msgspec.json.Decoder(Mark).decode


def page_of(members: Sequence[Member]) -> list[tuple[str, int]]:
    """The jobs of a selection that a bulk may touch: the server's own are none of them."""
    return [(each.id, each.shard) for each in members if not is_reserved(each.queue)]


# What is answered.


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk would act on."""

    action: str
    total: int
    is_exact: bool
    would_affect: int
    takes: list[str]
    states: dict[str, int]
    queues: dict[str, int]
    samples: list[msgspec.Raw]
    is_async: bool = msgspec.field(name="async")
    """Whether it would be answered with an id."""
    as_of: AsOf = {}


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk that was done at once."""

    affected: int
    errors: int
    skipped: list[Skipped]
    skipped_total: int
    by_code: dict[str, int]
    duration_ms: int
    dry_run: DryRun | msgspec.UnsetType = msgspec.UNSET


class BulkBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk that will be worked off."""

    bulk_operation_id: str
    status: str
    estimated_total: int
    progress_url: str


class BulkStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bulk that is worked off, or was."""

    id: str
    status: str
    action: str
    total: int
    total_is_exact: bool = True
    processed: int
    affected: int
    errors: int
    skipped_total: int
    by_code: dict[str, int]
    skipped: list[Skipped]
    error: str = ""
    rate: int = 0
    by: str = ""
    move_to_queue: str = ""
    reason: str = ""
    filter: Filter | None = None
    created_at: Time
    updated_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None


class BulkList(msgspec.Struct, frozen=True):
    """Bulks, the newest first."""

    bulks: list[BulkStatus]


class BulkEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a bulk, for whoever watches it."""

    type: str
    task_id: str
    status: str
    affected: int
    skipped_total: int
    errors: int
    total: int
    processed: int
    percent: float
    error: str = ""
    created_at_ns: int


FINAL: Final = frozenset({"completed", "failed", "cancelled"})
_STATUSES: Final = {
    State.ACTIVE: "running",
    State.COMPLETED: "completed",
    State.DEAD: "failed",
    State.CANCELLED: "cancelled",
    State.HELD: "failed",
}


def bulk_id_of(job_id: str) -> str:
    """What the bulk is called that a job is."""
    return job_id.replace(_JOB, _BULK, 1)


def job_id_of(bulk_id: str) -> str:
    """The job that a bulk is; nothing that is a job for what is none."""
    return bulk_id.replace(_BULK, _JOB, 1) if _BULK in bulk_id else ""


def chosen_id(request_key: str) -> str:
    """The id of the job of a bulk that was asked for under a request key: the same again is it."""
    return f"{_JOB}{blake2b(request_key.encode(), digest_size=13).hexdigest()}"


def answer_of(
    mark: Mark, duration_ms: int, dry_run: DryRun | msgspec.UnsetType = msgspec.UNSET
) -> BulkAnswer:
    """A bulk that is done, for whoever waited."""
    return BulkAnswer(
        affected=mark.affected,
        errors=mark.errors,
        skipped=mark.skipped,
        skipped_total=mark.skipped_total,
        by_code=mark.by_code,
        duration_ms=duration_ms,
        dry_run=dry_run,
    )


def begun_of(bulk_id: str, order: Order) -> BulkBegun:
    """A bulk that was put into the queue."""
    return BulkBegun(
        bulk_operation_id=bulk_id,
        status="queued",
        estimated_total=order.total,
        progress_url=f"/api/v1/bulk/{bulk_id}/progress",
    )


def dry_run_of(order: Order, counted: Counted, *, is_async: bool) -> DryRun:
    """What an order means."""
    takes = [state.value for state in ACTIONS[order.action].op.TAKES]
    return DryRun(
        action=order.action,
        total=counted.total,
        is_exact=order.is_exact and counted.is_exact,
        would_affect=sum(counted.states.get(state, 0) for state in takes),
        takes=takes,
        states=counted.states,
        queues=counted.queues,
        samples=counted.samples,
        is_async=is_async,
        as_of=counted.as_of,
    )


def may_watch(view: StoredJob, caller: Caller) -> bool:
    """Whether a caller may see a bulk operation: its scope has every queue, or it is its own."""
    if caller.scope.has_everything:
        return True
    owner = caller_of(read_order(bytes(view.payload)))
    return (owner.name, owner.scope) == (caller.name, caller.scope)


def mark_of(checkpoint: Json) -> Mark:
    """How far a bulk has come, by the checkpoint of its job."""
    return Mark() if checkpoint is msgspec.UNSET else read_mark(bytes(checkpoint))


def status_of(view: StoredJob) -> BulkStatus:
    """A bulk, from the job that it is."""
    job, order, mark = view.job, read_order(bytes(view.payload)), mark_of(view.checkpoint)
    last_ns = max(job.created_ns, mark.at_ns, *(event.at_ns for event in view.trail))
    return BulkStatus(
        id=bulk_id_of(job.id),
        status=_STATUSES.get(job.state, "queued"),
        action=order.action,
        total=order.total,
        total_is_exact=order.is_exact,
        processed=mark.processed,
        affected=mark.affected,
        errors=mark.errors,
        skipped_total=mark.skipped_total,
        by_code=mark.by_code,
        skipped=mark.skipped,
        error=_error(view),
        rate=order.rate,
        by=order.by,
        move_to_queue=order.move_to_queue,
        reason=order.reason,
        filter=order.filter,
        created_at=format_time(job.created_ns),
        updated_at=format_time(last_ns),
        started_at=format_time_or_none(job.started_ns),
        finished_at=format_time_or_none(job.finished_ns),
    )


def _error(view: StoredJob) -> str:
    if view.job.state is State.HELD:
        return f"held ({view.job.hold_reason}): to continue, approve job {view.job.id}"
    if view.job.state is State.DEAD and view.errors:
        return view.errors[-1].error
    return ""


_TYPES: Final = {
    "queued": "bulk.async.started",
    "running": "bulk.async.progress",
    "completed": "bulk.async.completed",
    "failed": "bulk.async.failed",
    "cancelled": "bulk.async.cancelled",
}


def event_of(status: BulkStatus, *, is_first: bool, now_ns: int) -> BulkEvent:
    """What is told to whoever watches: how it stands now."""
    what = _TYPES[status.status]
    if is_first and status.status not in FINAL:
        what = "bulk.async.started"
    whole = max(status.total, status.processed)
    percent = 100.0 * status.processed / whole if whole else 100.0
    return BulkEvent(
        type=what,
        task_id=status.id,
        status=status.status,
        affected=status.affected,
        skipped_total=status.skipped_total,
        errors=status.errors,
        total=status.total,
        processed=status.processed,
        percent=round(percent, 2),
        error=status.error,
        created_at_ns=now_ns,
    )
