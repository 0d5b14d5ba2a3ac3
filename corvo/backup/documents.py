"""The documents of a backup as of its one moment: what the copies of all shards say together.

An effect of one shard on another may be in the outbox of the first copy, and not taken in the
second one. Here it is carried out: a job on its way is in its new queue, a batch has the count, a
job that waited for another knows its end. What comes of that is the same for any number of shards.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.kv.store import Store
from corvo.model import (
    ABSENT,
    FINISHED,
    MISSING,
    ApiKey,
    Batch,
    Job,
    Queue,
    Schedule,
    State,
    trace_of,
)
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.restore import RestoredJob, RestoredSpawn, apart
from corvo.shard.recount.effects import effects_after, numbers_of, taken_of
from corvo.shard.recount.rows import rows
from corvo.shard.state import schedules
from corvo.shard.state.batches import counted
from corvo.shard.state.lifecycle import error_key, error_numbers
from corvo.shard.state.outbox import (
    Arrival,
    Forget,
    JobEnded,
    ScheduleArrival,
    ScheduleLanded,
    Spawn,
    Tally,
    WatchAnswer,
)
from corvo.shard.state.tables import API_KEYS, BATCHES, ENDINGS, JOBS, QUEUES, SCHEDULES, is_swept

Selects = Callable[[str], bool]
"""Whether a queue is wanted."""
_COMPLETED: Final = State.COMPLETED.value
_CANCELLED: Final = State.CANCELLED.value
_NOWHERE: Final = -1
"""In place of a shard: of a job that is on its way, and asks for ends when it arrives."""
_ENDS: Final = frozenset(state.value for state in FINISHED)


class StoredJob(NamedTuple):
    """A job, and its last errors as they are stored."""

    job: Job
    errors: list[bytes]

    def restored(self) -> RestoredJob:
        """The job as an op has it."""
        bare, json = apart(self.job)
        return RestoredJob(
            job=bare,
            json=json,
            errors=[msgspec.Raw(each) for each in self.errors],
            trace=trace_of(self.job),
        )


class StoredSpawn(NamedTuple):
    """A job that was about to be created in another shard."""

    source: int
    target: int
    seq: int
    spawn: RestoredSpawn


class Documents:
    """The documents of a backup; of the wanted queues, if not all are wanted."""

    def __init__(self, stores: Mapping[int, Store], selects: Selects | None = None) -> None:
        """Raises `CorvoError` and `msgspec.MsgspecError` for a copy that cannot be read."""
        self._stores = stores
        self._selects = selects
        self._arrivals: dict[str, Arrival] = {}
        self._tallies: dict[str, list[Tally]] = {}
        self._ends: dict[tuple[int, str], str] = {}
        """How a job ended, as a shard is about to be told: by that shard, and the job."""
        self._removed: dict[str, str] = {}
        """How jobs ended that are about to be removed."""
        self._spawns: list[StoredSpawn] = []
        self._schedules: list[Schedule] = []
        self._landed: dict[str, bool] = {}
        """Schedules that have left, and whether the other shard has refused them."""
        self._swept = {shard: self._swept_queues(store) for shard, store in stores.items()}
        for shard, store in stores.items():
            for _, data in rows(store, ENDINGS.prefix, prefix_end(ENDINGS.prefix)):
                ending = ENDINGS.decode(data)
                if ending.state not in (MISSING, ABSENT):
                    self._ends[shard, ending.id] = ending.state
        # Only then the effects: they can say that a job goes on which had ended.
        for source, store in stores.items():
            for target in sorted(numbers_of(store)):
                self._carry_out(source, target)
            self._sweep(source)
        self._split = self._split_batches() if selects is not None else frozenset[str]()

    def _carry_out(self, source: int, target: int) -> None:
        """Take the effects of a shard on another that the other has not taken."""
        taken = taken_of(self._stores[target]).get(source, 0)
        for seq, effect in effects_after(self._stores[source], target, taken):
            match effect:
                case Arrival():
                    self._arrivals[effect.job.id] = effect
                case Tally():
                    self._tally(effect)
                case JobEnded(job_id=job_id, state=state, step=step, batch_id=batch_id):
                    if batch_id:
                        self._tally(Tally(batch_id, state, step))
                    self._home_learns(target, job_id, state if step > 0 else "")
                case Forget(batch_id=batch_id):
                    if batch_id:
                        self._tally(Tally(batch_id, "removed"))
                case Spawn():
                    spawn = RestoredSpawn(effect.queue, msgspec.Raw(encode_json(effect)))
                    self._spawns.append(StoredSpawn(source, target, seq, spawn))
                case WatchAnswer(job_id=job_id, state=state):
                    if state in _ENDS:
                        self._ends[target, job_id] = state
                case ScheduleArrival(schedule=schedule):
                    self._schedules.append(schedules.moved(schedule))
                    self._landed[schedule.id] = False
                case ScheduleLanded(schedule_id=schedule_id, is_refused=is_refused):
                    self._landed[schedule_id] = is_refused
                case _:
                    pass  # a question for an end is asked again when the job comes back

    def _home_learns(self, home: int, job_id: str, state: str) -> None:
        """The home of a job learns its end, and tells those that wait; or that it goes on."""
        prefix = keys.WATCHER.prefix + job_id.encode() + b"\0"
        found = rows(self._stores[home], prefix, prefix_end(prefix))
        askers = [int.from_bytes(key[-4:], "big") for key, _ in found]
        for shard in (home, *askers):
            if state:
                self._ends[shard, job_id] = state
            else:
                self._ends.pop((shard, job_id), None)

    def _swept_queues(self, store: Store) -> dict[str, Queue]:
        """Queues that were cleared or deleted: the removal of their jobs is a matter of time."""
        return {
            queue.name: queue
            for queue in self._all_queues(store)
            if queue.cleared_ns or queue.deleted_ns
        }

    def _sweep(self, shard: int) -> None:
        """Note the ends of jobs that were cleared, or deleted with their queue."""
        if not self._swept[shard]:
            return
        for job in self._stored(shard):
            if self._is_gone(shard, job):
                self._removed[job.id] = job.state.value if job.state in FINISHED else _CANCELLED
                if job.batch_id:
                    if job.state not in FINISHED:
                        self._tally(Tally(job.batch_id, _CANCELLED))
                    self._tally(Tally(job.batch_id, "removed"))

    def _stored(self, shard: int) -> Iterator[Job]:
        """The jobs of a shard, also those that are gone."""
        for _, data in rows(self._stores[shard], JOBS.prefix, prefix_end(JOBS.prefix)):
            yield JOBS.decode(data)

    def _is_gone(self, shard: int, job: Job) -> bool:
        queue = self._swept[shard].get(job.queue)
        return queue is not None and is_swept(queue, job)

    def _tally(self, change: Tally) -> None:
        self._tallies.setdefault(change.batch_id, []).append(change)

    def _wants(self, queue: str) -> bool:
        return self._selects is None or self._selects(queue)

    # Jobs.

    def jobs(self) -> Iterator[StoredJob]:
        """All jobs, those that wait for others included."""
        for shard in self._stores:
            for job in self._stored(shard):
                if self._is_wanted(shard, job):
                    yield self._whole(shard, job)
        for arrival in self._arrivals.values():
            if self._wants(arrival.queue):
                yield self._arrived(arrival)

    def named(self, job_ids: Iterable[str]) -> Iterator[StoredJob]:
        """Those jobs with some ids."""
        for job_id in job_ids:
            for shard, store in self._stores.items():
                data = store.get(JOBS.prefix + job_id.encode())
                if data is not None and self._is_wanted(shard, job := JOBS.decode(data)):
                    yield self._whole(shard, job)
            arrival = self._arrivals.get(job_id)
            if arrival is not None and self._wants(arrival.queue):
                yield self._arrived(arrival)

    def _is_wanted(self, shard: int, job: Job) -> bool:
        return self._wants(job.queue) and not self._is_gone(shard, job)

    def _whole(self, shard: int, job: Job) -> StoredJob:
        return StoredJob(self._settled(job, shard), _errors(self._stores[shard], job))

    def _arrived(self, arrival: Arrival) -> StoredJob:
        job = self._settled(_landed(arrival), _NOWHERE)
        return StoredJob(job, [bytes(each) for each in arrival.errors])

    def _settled(self, job: Job, shard: int) -> Job:
        """The job with the ends of those that it waits for."""
        told = ((each, self._end_of(each, shard)) for each in job.waits_for)
        ends = {each: end for each, end in told if end}
        failed = next((each for each, end in ends.items() if end != _COMPLETED), "")
        if failed:
            job = replace(
                job,
                state=State.HELD,
                scheduled_ns=0,
                held_ns=job.trail[-1].at_ns if job.trail else job.created_ns,
                hold_reason=f"dependency_failed: {failed}",
                waits_for=(),
            )
        elif ends:
            waits_for = tuple(each for each in job.waits_for if each not in ends)
            job = replace(job, waits_for=waits_for)
        if job.batch_id in self._split:
            job = replace(job, batch_id="")
        return job

    def _end_of(self, job_id: str, shard: int) -> str:
        return self._ends.get((shard, job_id)) or self._removed.get(job_id, "")

    # What is beside them.

    def _all_queues(self, store: Store) -> Iterator[Queue]:
        for _, data in rows(store, QUEUES.prefix, prefix_end(QUEUES.prefix)):
            yield QUEUES.decode(data)

    def queues(self) -> Iterator[Queue]:
        """All queues that exist, with their settings."""
        for store in self._stores.values():
            for queue in self._all_queues(store):
                if queue.created_ns and self._wants(queue.name):
                    yield replace(queue, cleared_ns=0, deleted_ns=0, rate_since_ns=0)

    def batches(self) -> Iterator[Batch]:
        """All batches; of some queues, those whose jobs are in these queues alone."""
        wanted = self._batches_of_wanted() if self._selects is not None else None
        for store in self._stores.values():
            for _, data in rows(store, BATCHES.prefix, prefix_end(BATCHES.prefix)):
                batch = BATCHES.decode(data)
                if wanted is None or (batch.id in wanted and batch.id not in self._split):
                    for change in self._tallies.get(batch.id, ()):
                        batch = counted(batch, change)
                    yield batch

    def _members(self) -> Iterator[tuple[str, str]]:
        """The batch and the queue of each job that is in a batch."""
        for shard in self._stores:
            for job in self._stored(shard):
                if job.batch_id:
                    yield job.batch_id, job.queue
        for arrival in self._arrivals.values():
            if arrival.job.batch_id:
                yield arrival.job.batch_id, arrival.queue

    def _split_batches(self) -> frozenset[str]:
        """Batches with jobs in queues that are not wanted: without these, they would never end."""
        return frozenset(batch for batch, queue in self._members() if not self._wants(queue))

    def _batches_of_wanted(self) -> frozenset[str]:
        return frozenset(batch for batch, queue in self._members() if self._wants(queue))

    def schedules(self) -> Iterator[Schedule]:
        """All schedules."""
        for shard, store in self._stores.items():
            for _, data in rows(store, SCHEDULES.prefix, prefix_end(SCHEDULES.prefix)):
                schedule = SCHEDULES.decode(data)
                if not self._wants(schedule.queue):
                    continue
                if schedule.moving_to:
                    # It is in the other shard, or on its way, unless that one has refused it.
                    if self._landed.get(schedule.id) is not True:
                        continue
                    schedule = replace(schedule, moving_to="")
                yield self._with_ends(schedule, shard)
        for schedule in self._schedules:
            if self._wants(schedule.queue):
                yield schedule

    def _with_ends(self, schedule: Schedule, shard: int) -> Schedule:
        """The schedule with the ends of jobs that it does not know yet."""
        runs = tuple(
            replace(run, state=self._end_of(run.job_id, shard)) if run.is_running else run
            for run in schedule.runs
        )
        return replace(schedule, runs=runs) if runs != schedule.runs else schedule

    def spawns(self) -> Iterator[StoredSpawn]:
        """Jobs that are to be created."""
        yield from (each for each in self._spawns if self._wants(each.spawn.queue))

    def api_keys(self) -> Iterator[ApiKey]:
        """All API keys, by their hashes."""
        for store in self._stores.values():
            for _, data in rows(store, API_KEYS.prefix, prefix_end(API_KEYS.prefix)):
                yield API_KEYS.decode(data)

    def count(self) -> int:
        """The number of stored jobs, of all queues."""
        found = 0
        for store in self._stores.values():
            prefix = keys.COUNTS.prefix
            for _, data in rows(store, prefix, prefix_end(prefix)):
                found += sum(msgspec.msgpack.decode(data, type=list[int]))
        return found


def _errors(store: Store, job: Job) -> list[bytes]:
    found = (store.get(error_key(job.id, number)) for number in error_numbers(job))
    return [each for each in found if each is not None]


def _landed(arrival: Arrival) -> Job:
    """The job of an effect, in its new queue."""
    job = replace(arrival.whole(), queue=arrival.queue)
    if arrival.reset_attempts and not arrival.refused:
        job = replace(job, attempt=0, crashes=0)
    return job
