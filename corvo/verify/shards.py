"""Check of the states of shards: each by itself, and what shards say of each other."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from corvo.client_commands.tables import counted
from corvo.errors import CorvoError, StoreError
from corvo.ids import home_of, stand_in
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.kv.store import Store
from corvo.model import Batch, Forward, Job
from corvo.shard.recount.effects import numbers_of, taken_of, waiting_effects
from corvo.shard.recount.recounting import Recount, Visitor
from corvo.shard.recount.rows import Wrong, rows
from corvo.shard.state.outbox import (
    Arrival,
    Forget,
    JobEnded,
    ScheduleArrival,
    ScheduleLanded,
    Spawn,
    Tally,
    Watch,
    WatchAnswer,
)
from corvo.shard.state.tables import BATCHES, FORWARDS
from corvo.verify.members import MemberCounts
from corvo.verify.report import REPLACE, Part
from corvo.verify.states import OpenState

ACTION: Final = (
    f"with other replicas: {REPLACE}. Without: restore a backup. Report it, with this output"
)
ACROSS: Final = (
    "one of both shards has an older state: put the directories of the last stop back, or restore a"
    " backup of the whole directory. Report it, with this output"
)


class Together:
    """The states of the shards that are here, and what is on its way between them."""

    def __init__(self, states: Mapping[int, OpenState], *, shards: int) -> None:
        self.stores: Final[dict[int, Store]] = {
            number: state.store for number, state in states.items() if state.is_current
        }
        """Those that can be compared with each other."""
        self.shards: Final = shards
        self._moving: dict[tuple[int, int], set[str]] = {}
        """By pair of shards, the jobs that effects between them speak of."""
        self.counting: Final[set[str]] = set()
        """Batches whose members are in effects that are on their way."""
        self.waiting = 0

    @property
    def is_complete(self) -> bool:
        """Whether all shards can be compared."""
        return len(self.stores) == self.shards

    def look(self) -> None:
        """Read what is on its way. Raises `CorvoError` and `msgspec.DecodeError`."""
        for source, store in self.stores.items():
            for target in numbers_of(store):
                pair = self._moving.setdefault((min(source, target), max(source, target)), set())
                for effect in waiting_effects(store, target):
                    self.waiting += 1
                    match effect:
                        case Arrival(job=job):
                            pair.add(job.id)
                            self.counting.add(job.batch_id)
                        case Tally(batch_id=batch_id):
                            self.counting.add(batch_id)
                        case Forget(job_id=job_id) | JobEnded(job_id=job_id):
                            pair.add(job_id)
                            self.counting.add(effect.batch_id)
                        case Watch(job_id=job_id) | WatchAnswer(job_id=job_id):
                            pair.add(job_id)
                        case Spawn() | ScheduleArrival() | ScheduleLanded():
                            pass  # these are of no job and no batch that exists

    def is_moving(self, one: int, other: int, job_id: str) -> bool:
        """Whether an effect between two shards speaks of a job."""
        return job_id in self._moving.get((min(one, other), max(one, other)), ())


class _Visitor(Visitor):
    """Compares the documents of one shard with those of others."""

    def __init__(self, number: int, together: Together, members: MemberCounts, part: Part) -> None:
        self._number = number
        self._together = together
        self._members = members
        self._part = part
        self._is_here = number in together.stores

    def job(self, job: Job) -> None:
        if job.batch_id:
            self._members.add(job)
        home = self._together.stores.get(job.born_in) if job.born_in >= 0 else None
        if home is None or not self._is_here:
            return
        data = home.get(FORWARDS.prefix + job.id.encode())
        leads = FORWARDS.decode(data).shard if data is not None else None
        moving = self._together.is_moving(self._number, job.born_in, job.id)
        if leads != self._number and not moving:
            where = "nowhere" if leads is None else f"to shard {leads}"
            problem = f"is here, and its home, shard {job.born_in}, leads {where}"
            self._part.wrong(f"job {job.id!r}", problem, ACROSS)

    def forward(self, forward: Forward) -> None:
        target = self._together.stores.get(forward.shard)
        if target is None or not self._is_here:
            return
        there = target.get(keys.JOB.prefix + forward.id.encode())
        if there is None and not self._together.is_moving(self._number, forward.shard, forward.id):
            problem = f"leads to shard {forward.shard}, which does not have the job"
            self._part.wrong(f"forwarding address {forward.id!r}", problem, ACROSS)


def verify_shard(
    number: int,
    state: OpenState,
    together: Together,
    members: MemberCounts,
    part: Part,
    step: Callable[[int], None],
) -> None:
    """Recount one state."""

    def tell(wrong: Wrong) -> None:
        where = f"shard-{number}/state, {wrong.space} {shown(wrong.key)}"
        part.wrong(where, wrong.problem, ACTION)

    try:
        found = Recount(
            state.store,
            shard=number,
            shards=together.shards,
            tell=tell,
            visitor=_Visitor(number, together, members, part),
            step=step,
        ).run()
    except StoreError as error:
        part.wrong(f"shard-{number}/state", str(error), ACTION)
        return
    for name, one, several in (
        ("job", "job", "jobs"),
        ("queue", "queue", "queues"),
        ("batch", "batch", "batches"),
        ("schedule", "schedule", "schedules"),
        ("event log", "entry of the feed", "entries of the feed"),
        ("outbox", "effect on its way", "effects on their way"),
    ):
        if found.counts.get(name):
            part.count(found.counts[name], one, several)
    derived = sum(found.counts.get(space.name, 0) for space in keys.SPACES) - sum(
        found.counts.get(name, 0) for name in ("job", "queue", "batch", "schedule")
    )
    part.count(derived, "other key")


def shown(key: bytes) -> str:
    """A key as text: bytes that are no letters as their numbers."""
    return repr(key)[2:-1]


def verify_together(together: Together, members: MemberCounts, part: Part) -> None:
    """Compare the shards with each other."""
    pairs = 0
    try:
        for source, store in together.stores.items():
            given = numbers_of(store)
            for target, other in together.stores.items():
                if target != source:
                    pairs += 1
                    last = taken_of(other).get(source, 0)
                    _compare(source, target, given.get(target, (0, 0)), last, part)
            _check_watches(source, store, together, part)
        part.count(pairs, "pair of shards", "pairs of shards")
        part.count(together.waiting, "effect on its way", "effects on their way")
        if not together.is_complete:
            missing = together.shards - len(together.stores)
            part.remark("batches", f"not recounted: {missing} shards are not here, or not whole")
        else:
            _check_batches(together, members, part)
    except (CorvoError, msgspec.MsgspecError) as error:
        part.skipped("effects", f"cannot be compared: {error}")


def _compare(source: int, target: int, numbers: tuple[int, int], last: int, part: Part) -> None:
    """What one shard has given to another, and what that has taken."""
    given, removed = numbers
    if not removed <= last <= given:
        problem = (
            f"shard {source} has given {given} effects, of which {removed} were confirmed, and"
            f" shard {target} has taken {last}"
        )
        part.wrong(f"effects of shard {source} on shard {target}", problem, ACROSS)


def _check_watches(number: int, store: Store, together: Together, part: Part) -> None:
    """A question for the end of a job is known in both shards, or on its way."""
    for key, _ in rows(store, keys.WATCHED.prefix, prefix_end(keys.WATCHED.prefix)):
        job_id = key[len(keys.WATCHED.prefix) :].decode()
        home = _home_of(job_id, together)
        other = together.stores.get(home) if home is not None else None
        if other is None or home is None or together.is_moving(number, home, job_id):
            continue
        if other.get(keys.WATCHER.build(job_id, number)) is None:
            problem = f"shard {home} does not know that shard {number} waits for the job"
            part.wrong(f"shard {number}, watched {job_id!r}", problem, ACROSS)
    for key, _ in rows(store, keys.WATCHER.prefix, prefix_end(keys.WATCHER.prefix)):
        job_id = key[len(keys.WATCHER.prefix) : -5].decode()
        asker = int.from_bytes(key[-4:], "big")
        other = together.stores.get(asker)
        if other is None or together.is_moving(number, asker, job_id):
            continue
        if other.get(keys.WATCHED.build(job_id)) is None:
            problem = f"shard {asker} does not wait for the job"
            part.wrong(f"shard {number}, watcher of {job_id!r}", problem, ACROSS)


def _home_of(identifier: str, together: Together) -> int | None:
    home = home_of(identifier, together.shards)
    return None if home is None else stand_in(home, together.shards)


def _check_batches(together: Together, members: MemberCounts, part: Part) -> None:
    """Counts of batches against the jobs that are in them."""
    count = 0
    for store in together.stores.values():
        for _, data in rows(store, BATCHES.prefix, prefix_end(BATCHES.prefix)):
            batch = BATCHES.decode(data)
            if batch.id in together.counting:
                continue
            count += 1
            problem = _batch_problem(batch, members)
            if problem:
                part.wrong(f"batch {batch.id!r}", problem, ACTION)
    for batch_id in members.batches():
        if batch_id in together.counting:
            continue
        home = _home_of(batch_id, together)
        there = together.stores.get(home) if home is not None else None
        if there is None or there.get(BATCHES.prefix + batch_id.encode()) is None:
            part.wrong(f"batch {batch_id!r}", "has jobs, and does not exist", ACTION)
    part.count(count, "batch", "batches")
    left_out = len(together.counting - {""})
    if left_out:
        number = counted(left_out, "batch", "batches")
        part.remark("batches", f"{number} not recounted: effects between shards count jobs of them")


def _batch_problem(batch: Batch, members: MemberCounts) -> str:
    found = members.of(batch.id)
    ended = batch.succeeded + batch.failed + batch.cancelled
    if found.waiting > batch.pending:
        return f"says that {batch.pending} jobs are pending, and a recount has {found.waiting}"
    if found.ended + batch.removed != ended:
        return (
            f"says that {ended} jobs have ended, and a recount has {found.ended}, and"
            f" {batch.removed} that were removed"
        )
    stated = (batch.succeeded, batch.failed, batch.cancelled)
    there = (found.completed, found.dead, found.cancelled)
    if any(one < other for one, other in zip(stated, there, strict=True)):
        return f"says {stated} succeeded, failed and cancelled, and a recount has {there}"
    return ""
