"""Schedules: how many there are, what became of their runs, and their way to another shard.

A schedule that gets a queue of another shard is sent there as an effect. Until it is confirmed, the
schedule stays in its old shard, where it is not due. A schedule of the same name in the new queue
refuses it: then the old one goes on.
"""

from typing import Final

from msgspec.structs import replace

from corvo.kv.keys import META, prefix_end
from corvo.model import RUNS_MAX, EventType, Run, Schedule
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.schedules import schedule_id, schedule_of_job
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import ScheduleArrival, ScheduleLanded
from corvo.shard.state.tables import SCHEDULES
from corvo.shard.state.tx import Tx

_COUNT_KEY: Final = META.build("schedules")


def count(tx: Tx) -> int:
    """The number of schedules of this shard."""
    return tx.number(_COUNT_KEY)


def insert(tx: Tx, schedule: Schedule) -> None:
    """Add a schedule, and its queue if that does not exist."""
    presence.ensure_queue(tx, schedule.queue)
    SCHEDULES.insert(tx, schedule)
    tx.set_number(_COUNT_KEY, count(tx) + 1)


def remove(tx: Tx, identifier: str, *, what: str, why: str = "") -> None:
    """Remove a schedule."""
    SCHEDULES.remove(tx, identifier, what=what, why=why)
    tx.set_number(_COUNT_KEY, count(tx) - 1)


def remove_all(tx: Tx, queue: str, limit: int) -> bool:
    """Remove the schedules of a queue, unless they are more than a limit."""
    if not count(tx):
        return True
    prefix = SCHEDULES.prefix + schedule_id(queue, "").encode()
    found = tx.keys(prefix, prefix_end(prefix), limit=limit + 1)
    if len(found) > limit:
        return False
    for key in found:
        identifier = key[len(SCHEDULES.prefix) :].decode()
        remove(tx, identifier, what=EventType.SCHEDULE_DELETED.stored, why="queue deleted")
    return True


def with_run(schedule: Schedule, run: Run) -> Schedule:
    """The schedule with another run."""
    made = int(bool(run.job_id and not run.skipped))
    return replace(
        schedule,
        runs=_last((*schedule.runs, run)),
        fired=schedule.fired + made,
        skipped=schedule.skipped + (run.count if run.skipped else 0),
    )


def _last(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs that are kept: rather those whose jobs have not ended, and then the last ones."""
    if len(runs) <= RUNS_MAX:
        return runs
    ended = (at for at, run in enumerate(runs[:-1]) if not run.is_running)
    oldest = next(ended, 0)
    return runs[:oldest] + runs[oldest + 1 :]


def job_became(tx: Tx, job_id: str, state: str) -> None:
    """Note that a job has ended; or, with an empty state, that it is pending again."""
    identifier = schedule_of_job(job_id)
    found = SCHEDULES.find(tx, identifier) if identifier else None
    if found is None:
        return
    schedule = found.document
    runs = tuple(
        replace(run, state=state) if run.job_id == job_id and not run.skipped else run
        for run in schedule.runs
    )
    if runs != schedule.runs:
        SCHEDULES.change(tx, found, replace(schedule, runs=runs))


# To another shard.


def send(tx: Tx, schedule: Schedule) -> None:
    """Send a schedule to the shard of the queue that it moves to."""
    shard = shard_of_queue(schedule.moving_to, tx.shards)
    outbox.post(tx, shard, encode_json(ScheduleArrival(schedule)))


def moved(schedule: Schedule) -> Schedule:
    """The schedule in the queue that it moves to, with its new id.

    Jobs of the old queue are not waited for any longer: they end in another shard.
    """
    queue = schedule.moving_to
    return replace(
        schedule,
        id=schedule_id(queue, schedule.name),
        queue=queue,
        moving_to="",
        runs=tuple(run for run in schedule.runs if run.state or run.skipped),
    )


def arrive(tx: Tx, source: int, arrival: ScheduleArrival) -> None:
    """A schedule comes from another shard."""
    schedule = moved(arrival.schedule)
    is_taken = SCHEDULES.get(tx, schedule.id) is not None
    if not is_taken:
        insert(tx, schedule)
    answer = ScheduleLanded(arrival.schedule.id, is_refused=is_taken)
    outbox.post(tx, source, encode_json(answer))


def landed(tx: Tx, answer: ScheduleLanded) -> None:
    """The other shard has the schedule, or has another one of its name."""
    found = SCHEDULES.find(tx, answer.schedule_id)
    if found is None or not found.document.moving_to:
        return  # this shard has lost entries, and its operator has accepted that
    if answer.is_refused:
        SCHEDULES.change(tx, found, replace(found.document, moving_to=""))
    else:
        why = f"to {found.document.moving_to}"
        remove(tx, answer.schedule_id, what=EventType.SCHEDULE_MOVED.stored, why=why)
