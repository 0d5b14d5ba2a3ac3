"""Effects of ops on schedules, and the op by which the leader fires them.

**A due time is fired once.** A schedule stores the time up to which its due times are fired or
skipped (`from_ns`), and each op that fires moves that on, in the same entry in which it creates the
jobs. The leader computes due times (`corvo.shard.firing`), and its op names the `from_ns` and the
number of changes that it has computed them for. If a schedule has changed since, nothing is done
for it, and the leader computes again.

**An op of a client first fires the due time that has come.** So what becomes of it depends on its
time and on that of the op, and not on the order in which the op and that of the leader come. Only
the next due time is stored: of several that have come without a leader, an op fires the first, and
a change of the times, a pause or a deletion drops the others.
"""

from itertools import pairwise
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import EventType, Run, Schedule, State
from corvo.placement import shard_of_queue
from corvo.protocol.ops import schedules as ops
from corvo.protocol.ops.base import ITEMS_MAX, Id, Nanos, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.schedules import (
    DUPLICATE,
    EXISTS,
    MISSED_RUN,
    OVERLAP,
    SCHEDULES_MAX,
    Moment,
    job_of,
    schedule_id,
)
from corvo.shard.ops.enqueue import enqueue
from corvo.shard.ops.upkeep import Upkeep, Walked
from corvo.shard.state import lifecycle, presence, schedules
from corvo.shard.state.applying import apply
from corvo.shard.state.tables import JOBS, SCHEDULES, jitter_ns, missed_after_ns, wakes_ns
from corvo.shard.state.tx import Tx
from corvo.times import S, format_time

BY: Final = "schedule "
"""The beginning of the name by which the trail of a job says that a schedule has created it."""
TAG: Final = "schedule"
"""Tag of the jobs of a schedule, with its name, unless the client has set it."""
MOVING: Final = "schedule_moving"
BACKFILL_BYTES_MAX: Final = 8 << 20
"""Size of the jobs of one backfill, about."""


# Firing.


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The due times of one schedule that have come, and the next one."""

    SINCE = 5
    schedule_id: Id
    changes: int
    """The number of changes that these were computed for."""
    from_ns: Nanos
    """The time from which they were computed."""
    due: list[Moment] = []
    """Those to be fired, in their order."""
    missed: int = 0
    """The number of those that are skipped, before those to be fired."""
    missed_ns: Nanos = 0
    """The first one of them."""
    until_ns: Nanos
    """The time up to which due times are fired or skipped by this."""
    next_ns: Nanos = 0
    """The due time after that; 0 without one."""
    next_local: Annotated[str, msgspec.Meta(max_length=40)] = ""
    tz: Annotated[str, msgspec.Meta(max_length=40)] = ""
    error: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    """Why no due time can be computed."""


class FireSchedules(Upkeep, frozen=True, kw_only=True):
    """Due times that have come create jobs, and the next ones are stored."""

    SINCE: ClassVar[int] = 5

    planned: Annotated[list[Planned], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


@apply.register
def fire_schedules(op: FireSchedules, tx: Tx) -> Walked:
    """One schedule after the other; those that have changed since are left out."""
    done = 0
    for planned in op.planned:
        if tx.is_full:
            return Walked(done, more=True)
        found = SCHEDULES.find(tx, planned.schedule_id)
        if found is not None and _follows(planned, found.document, tx.now_ns):
            _carry_out(tx, found, planned)
            done += 1
    return Walked(done, more=False)


def _follows(planned: Planned, schedule: Schedule, now_ns: int) -> bool:
    """Whether due times were computed for the schedule as it is, and are possible ones."""
    if schedule.paused or schedule.moving_to:
        return False
    if (planned.changes, planned.from_ns) != (schedule.changes, schedule.from_ns):
        return False
    times = [each.due_ns for each in planned.due]
    if planned.missed:
        times.insert(0, planned.missed_ns)
    first_ns, last_ns = max(schedule.from_ns + 1, schedule.starts_ns), schedule.ends_ns or now_ns
    return (
        all(first_ns <= each <= last_ns for each in times)
        and all(one < other for one, other in pairwise(times))
        and max([schedule.from_ns, *times]) <= planned.until_ns <= now_ns
        and (not planned.next_ns or planned.next_ns > planned.until_ns)
    )


def _carry_out(tx: Tx, found: Held[Schedule], planned: Planned) -> None:
    if found.document.queued_ns and not found.document.running:
        _fire_queued(tx, found)
    if planned.missed:
        missed = Run(
            due_ns=planned.missed_ns, at_ns=tx.now_ns, skipped=MISSED_RUN, count=planned.missed
        )
        SCHEDULES.change(tx, found, schedules.with_run(found.document, missed))
        tx.runs.append((missed, None))
    for moment in planned.due:
        _fire(tx, found, moment)
    after = replace(
        found.document,
        from_ns=planned.until_ns,
        is_planned=True,
        next_ns=planned.next_ns,
        next_local=planned.next_local,
        tz=planned.tz,
        error=planned.error,
    )
    SCHEDULES.change(tx, found, after)


def _fire_queued(tx: Tx, found: Held[Schedule]) -> None:
    schedule = found.document
    moment = Moment(schedule.queued_ns, schedule.queued_local)
    SCHEDULES.change(tx, found, replace(schedule, queued_ns=0, queued_local=""))
    tx.runs.append((_create(tx, found, moment, cause=""), None))


def _fire(tx: Tx, found: Held[Schedule], moment: Moment, *, cause: str = "") -> Run | None:
    """Do what a due time asks for. Returns the run; None if it waits for the end of another."""
    schedule = found.document
    running = schedule.running
    if running and schedule.overlap == "queue" and not schedule.queued_ns:
        after = replace(schedule, queued_ns=moment.due_ns, queued_local=moment.local)
        SCHEDULES.change(tx, found, after)
        return None
    if running and schedule.overlap in {"skip", "queue"}:
        skipped = Run(due_ns=moment.due_ns, at_ns=tx.now_ns, skipped=OVERLAP, cause=cause)
        SCHEDULES.change(tx, found, schedules.with_run(schedule, skipped))
        if not cause:
            tx.runs.append((skipped, None))
        return skipped
    if running and schedule.overlap == "cancel":
        for run in running:
            _cancel(tx, run.job_id)
    run = _create(tx, found, moment, cause=cause)
    if not cause:
        due_ns = moment.due_ns + jitter_ns(schedule, moment.due_ns)
        tx.runs.append((run, tx.now_ns - due_ns))
    return run


def _cancel(tx: Tx, job_id: str) -> None:
    """Cancel the job of an earlier run; one that has moved to another shard goes on."""
    found = presence.find(tx, job_id)
    if found is None or found.document.cancel_requested:
        return
    job, why = found.document, "the next due time of its schedule has come"
    if job.state is State.ACTIVE:
        trail = presence.trail(tx, job, EventType.ASKED_TO_STOP, why)
        JOBS.change(tx, found, replace(job, cancel_requested=True, trail=trail))
    else:
        lifecycle.finish(tx, found, State.CANCELLED, what=EventType.CANCELLED, why=why)


def _create(tx: Tx, found: Held[Schedule], moment: Moment, *, cause: str) -> Run:
    """Create the job of a due time."""
    schedule = found.document
    by, tx.by = tx.by, BY + schedule.id
    new = _job_for(schedule, moment, cause=cause)
    made = enqueue(tx, new, _AS_NEW)
    tx.by = by
    skipped = ""
    if made.unique_existing:
        skipped = EXISTS if made.job_id == new.id else DUPLICATE
    run = Run(
        due_ns=moment.due_ns, at_ns=tx.now_ns, job_id=made.job_id, skipped=skipped, cause=cause
    )
    # The job of an earlier run may have ended meanwhile, and have changed the schedule.
    after = schedules.with_run(found.document, run)
    if not cause:
        after = replace(after, last_due_ns=moment.due_ns)
    SCHEDULES.change(tx, found, after)
    return run


_AS_NEW: Final = Enqueue(jobs=[NewJob(queue="any")], has_full_ids=True)
"""The form of an enqueue: with full ids, and in no batch."""
_NOW: Final = "now"
_BACKFILL: Final = "backfill"


def job_id_for(schedule: Schedule, due_ns: int, *, cause: str = "") -> str:
    """The id of the job of a due time. A run that was asked for is not one of a due time."""
    prefix = "now-" if cause == _NOW else ""
    return f"{schedule.id}@{prefix}{format_time(due_ns)}"


def _job_for(schedule: Schedule, moment: Moment, *, cause: str) -> NewJob:
    job = job_of(schedule)
    payload = job.payload
    if payload is not msgspec.UNSET and b"{{" in bytes(payload):
        payload = msgspec.Raw(filled(bytes(payload), schedule, moment))
    return replace(
        job,
        id=job_id_for(schedule, moment.due_ns, cause=cause),
        payload=payload,
        tags={TAG: schedule.name, **job.tags},
    )


def filled(payload: bytes, schedule: Schedule, moment: Moment) -> bytes:
    """A payload with what stands for its placeholders. None of that needs an escape in JSON."""
    before_ns = schedule.last_due_ns
    for name, text in (
        ("due_at", format_time(moment.due_ns)),
        ("due_local", moment.local),
        ("due_date", moment.local[:10]),
        ("previous_due_at", format_time(before_ns) if before_ns else ""),
        ("schedule", schedule.name),
    ):
        payload = payload.replace(b"{{%b}}" % name.encode(), text.encode())
    return payload


# Ops of clients.


def _found(tx: Tx, identifier: str) -> Held[Schedule] | Rejected:
    found = SCHEDULES.find(tx, identifier)
    if found is None:
        return Rejected("schedule_not_found", f"there is no schedule {identifier}")
    if found.document.moving_to:
        error = f"schedule {identifier} is moving to queue {found.document.moving_to}: try again"
        return Rejected(MOVING, error)
    return found


def _ready(op: ops.ScheduleOp, tx: Tx) -> Held[Schedule] | Rejected:
    """The schedule of an op, with what was due fired; or the refusal."""
    found = _found(tx, op.schedule_id)
    if isinstance(found, Rejected):
        return found
    changes = found.document.changes
    if op.unchanged and op.unchanged != changes:
        error = f"schedule {op.schedule_id} was changed: it is at change {changes} now"
        return Rejected("schedule_changed", error)
    fire_due(tx, found)
    return found


def fire_due(tx: Tx, found: Held[Schedule]) -> None:
    """Fire the next due time, if it has come and is not missed."""
    schedule = found.document
    if schedule.paused or not schedule.is_planned:
        return
    wake_ns, due_ns = wakes_ns(schedule), schedule.next_ns
    if not due_ns or wake_ns > tx.now_ns or tx.now_ns - due_ns > missed_after_ns(schedule):
        return
    if schedule.queued_ns and not schedule.running:
        _fire_queued(tx, found)
        if wakes_ns(found.document) > tx.now_ns:
            return
    _fire(tx, found, Moment(due_ns, schedule.next_local))
    SCHEDULES.change(tx, found, _unplanned(replace(found.document, from_ns=due_ns)))


def _unplanned(schedule: Schedule) -> Schedule:
    """The schedule, whose next due time is to be computed."""
    return replace(schedule, is_planned=False, next_ns=0, next_local="")


@apply.register
def create_schedule(op: ops.CreateSchedule, tx: Tx) -> ops.ScheduleDone | Rejected:
    """Create it, unless there is one of its name."""
    new = op.schedule
    identifier = schedule_id(new.job.queue, new.name)
    there = SCHEDULES.get(tx, identifier)
    if there is not None:
        if ops.definition(there) == new and not there.moving_to:
            return ops.ScheduleDone("existing", there)
        error = f"schedule {identifier} exists with another definition: change it with PUT"
        return Rejected("schedule_exists", error)
    if schedules.count(tx) >= SCHEDULES_MAX:
        error = f"the shard of this queue has {SCHEDULES_MAX} schedules, the most that it can have"
        return Rejected("too_many_schedules", error)
    blank = Schedule(id=identifier, name=new.name, queue=new.job.queue, cron=new.cron, job="")
    made = replace(
        ops.defined(new, blank),
        created_ns=tx.now_ns,
        changed_ns=tx.now_ns,
        from_ns=tx.now_ns,
        anchor_ns=_anchor(new, tx.now_ns),
    )
    schedules.insert(tx, made)
    return ops.ScheduleDone("created", made)


def _anchor(new: ops.NewSchedule, now_ns: int) -> int:
    """The whole second from which an interval is counted."""
    return (new.starts_ns or now_ns) // S * S


@apply.register
def change_schedule(op: ops.ChangeSchedule, tx: Tx) -> ops.ScheduleDone | Rejected:
    """Give it the definition; if the time of its runs changes, due times count from now on."""
    found = _ready(op, tx)
    if isinstance(found, Rejected):
        return found
    before, new = found.document, op.schedule
    if new.name != before.name:
        error = f"name: schedule {before.id} keeps its name: create another one, and delete this"
        return Rejected("bad_request", error, field="name")
    queue = new.job.queue
    if queue != before.queue and SCHEDULES.get(tx, schedule_id(queue, new.name)) is not None:
        error = f"there is a schedule {schedule_id(queue, new.name)} already"
        return Rejected("schedule_exists", error)
    after = replace(ops.defined(new, before), changed_ns=tx.now_ns, changes=before.changes + 1)
    if _times(after) != _times(before) or (before.paused and not after.paused):
        after = _unplanned(replace(after, from_ns=tx.now_ns, anchor_ns=_anchor(new, tx.now_ns)))
    if queue == before.queue:
        SCHEDULES.change(tx, found, after)
        return ops.ScheduleDone("changed", after)
    after = replace(after, moving_to=queue)
    if shard_of_queue(queue, tx.shards) == tx.shard:
        schedules.remove(tx, before.id, what=EventType.SCHEDULE_MOVED.stored, why=f"to {queue}")
        after = schedules.moved(after)
        schedules.insert(tx, after)
        return ops.ScheduleDone("moved", after)
    SCHEDULES.change(tx, found, after)
    schedules.send(tx, after)
    return ops.ScheduleDone("moving", after)


def _times(schedule: Schedule) -> tuple[str, str, int, int]:
    return schedule.cron, schedule.timezone, schedule.starts_ns, schedule.ends_ns


@apply.register
def pause_schedule(op: ops.PauseSchedule, tx: Tx) -> ops.ScheduleDone | Rejected:
    """Pause or resume it."""
    found = _ready(op, tx)
    if isinstance(found, Rejected):
        return found
    before = found.document
    status = "paused" if op.paused else "resumed"
    if before.paused is op.paused:
        return ops.ScheduleDone(status, before)
    after = replace(before, paused=op.paused, changed_ns=tx.now_ns, changes=before.changes + 1)
    if not op.paused:
        after = _unplanned(replace(after, from_ns=tx.now_ns))
    SCHEDULES.change(tx, found, after)
    return ops.ScheduleDone(status, after)


@apply.register
def delete_schedule(op: ops.DeleteSchedule, tx: Tx) -> ops.ScheduleDone | Rejected:
    """Delete it."""
    found = _ready(op, tx)
    if isinstance(found, Rejected):
        return found
    before = found.document
    schedules.remove(tx, before.id, what=EventType.SCHEDULE_DELETED.stored)
    return ops.ScheduleDone("deleted", before)


@apply.register
def run_schedule(op: ops.RunSchedule, tx: Tx) -> ops.ScheduleDone | Rejected:
    """Create a job now, as far as runs may overlap."""
    found = _ready(op, tx)
    if isinstance(found, Rejected):
        return found
    running = found.document.running
    if running and found.document.overlap in {"skip", "queue"}:
        last = running[-1].job_id
        error = (
            f"job {last} of schedule {op.schedule_id} has not ended, and its overlap is"
            f" {found.document.overlap}: wait, or cancel the job"
        )
        return Rejected("schedule_overlap", error, job_id=last)
    now_ns = tx.next_order_ns()  # another one for each op of an entry
    run = _fire(tx, found, Moment(now_ns, format_time(now_ns)), cause=_NOW)
    assert run is not None
    if run.skipped:
        error = f"job {run.job_id} has the unique key of schedule {op.schedule_id}"
        return Rejected("schedule_overlap", error, job_id=run.job_id)
    return ops.ScheduleDone("fired", found.document, run.job_id)


@apply.register
def backfill_schedule(op: ops.BackfillSchedule, tx: Tx) -> ops.Backfilled | Rejected:
    """Create the jobs that are missing, however many run at once."""
    found = _found(tx, op.schedule_id)
    if isinstance(found, Rejected):
        return found
    schedule = found.document
    if op.changes != schedule.changes:
        error = f"schedule {op.schedule_id} was changed meanwhile: send the request again"
        return Rejected("schedule_changed", error)
    if len(op.due) * len(schedule.job) > BACKFILL_BYTES_MAX:
        error = f"to: the jobs of {len(op.due)} due times are too large together: send less at once"
        return Rejected("bad_request", error, field="to")
    if op.due[-1].due_ns > tx.now_ns:
        error = "to: expected a time in the past: later due times are fired when they come"
        return Rejected("bad_request", error, field="to")
    runs = [_create(tx, found, moment, cause=_BACKFILL) for moment in op.due]
    return ops.Backfilled(
        created=[run.job_id for run in runs if not run.skipped],
        existing=[run.job_id for run in runs if run.skipped],
        schedule=found.document,
    )
