"""Which due times of schedules have come, and which one is next: computed by the leader.

A calendar with time zones is no part of the state machine: releases of the time zones differ
between nodes. So the leader computes, and its op carries the times: see
`corvo.shard.ops.schedules`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from corvo.cron import BadTimetable, Timetable, timetable, tz_version
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import Schedule
from corvo.protocol.ops.schedules import Moment
from corvo.shard.ops.schedules import FireSchedules, Planned
from corvo.shard.state.tables import SCHEDULES, TIMERS, Timer, jitter_ns, missed_after_ns
from corvo.shard.state.tx import Tx

BATCH: Final = 128
"""Schedules of one op: some milliseconds of work."""
FIRES_MAX: Final = 1_000
"""Due times that one op fires."""
BYTES_MAX: Final = 4 << 20
"""Size of the jobs that one op creates, about."""
MISSED_WALK_MAX: Final = 10_000
"""Due times that are looked at in a search for the last ones that were missed."""
_COUNTED: Final = 8
"""Twice as many missed due times at least are counted exactly."""
AGAIN_NS: Final = 1_000_000_000
"""Pause until a schedule is planned again that an op has left as it was."""
WALK_EVERY_NS: Final = 1_000_000_000
WALK: Final = 256
"""Schedules that are looked at in each step of the walk for other releases of the time zones."""
_NEVER_NS: Final = 1 << 63
_TIMER: Final = TIMERS[Timer.SCHEDULE]
_END: Final = prefix_end(keys.SCHEDULE.prefix)


class Firing:
    """The schedules of a shard that are due, or were planned with other time zones."""

    def __init__(self) -> None:
        self._tried: dict[str, Schedule] = {}
        """What was planned last, by the ids of the schedules."""
        self._again_ns = 0
        self._is_held = False
        """Whether there are due schedules that wait for that time."""
        self._walk_from = keys.SCHEDULE.prefix
        """Where the walk goes on; empty at its end."""
        self._walk_at_ns = 0

    def begin(self) -> None:
        """Begin the walk again."""
        self._walk_from, self._walk_at_ns = keys.SCHEDULE.prefix, 0

    def next_ns(self, due_ns: int) -> int:
        """Time of the next look, if the first timer of a schedule is due then."""
        return max(due_ns, self._again_ns) if self._is_held else due_ns

    def op(self, tx: Tx, now_ns: int) -> FireSchedules | None:
        """The op for the schedules that are due now; None if no schedule is due."""
        tried: dict[str, Schedule] = {}
        planned: list[Planned] = []
        fires = size = 0
        self._is_held = False
        for schedule in _due(tx, now_ns):
            if now_ns < self._again_ns and self._tried.get(schedule.id) == schedule:
                tried[schedule.id] = schedule
                self._is_held = True
                continue
            plan = plan_of(schedule, now_ns)
            fires += len(plan.due) + bool(schedule.queued_ns)
            size += len(plan.due) * len(schedule.job)
            if planned and (fires > FIRES_MAX or size > BYTES_MAX):
                break
            planned.append(plan)
            tried[schedule.id] = schedule
            if len(planned) == BATCH:
                break
        if not self._is_held:
            self._again_ns = now_ns + AGAIN_NS
        self._tried = tried
        return FireSchedules(planned=planned, limit=len(planned)) if planned else None

    @property
    def walk_ns(self) -> int:
        """Time of the next step of the walk."""
        return self._walk_at_ns if self._walk_from else _NEVER_NS

    def walk(self, tx: Tx, now_ns: int) -> FireSchedules | None:
        """Plan those of the next few schedules again that were planned with other time zones."""
        found = tx.keys(self._walk_from, _END, limit=WALK)
        self._walk_from = found[-1] + b"\0" if len(found) == WALK else b""
        self._walk_at_ns = now_ns + WALK_EVERY_NS
        planned = []
        for key in found:
            schedule = SCHEDULES.get(tx, key[len(keys.SCHEDULE.prefix) :].decode())
            assert schedule is not None, "its key is there"
            if is_outdated(schedule) and schedule.next_ns > now_ns:
                planned.append(plan_of(schedule, schedule.from_ns))
        return FireSchedules(planned=planned, limit=len(planned)) if planned else None


def _due(tx: Tx, now_ns: int) -> Iterator[Schedule]:
    """Schedules whose timers are due, the first one first."""
    head = tx.head(_TIMER)
    start, end = len(_TIMER.prefix) + 8, _TIMER.prefix + (now_ns + 1).to_bytes(8, "big")
    position = 0
    while (key := head.at(position)) is not None and key < end:
        schedule = SCHEDULES.get(tx, key[start:].decode())
        assert schedule is not None, "a timer names what is there"
        yield schedule
        position += 1


def is_outdated(schedule: Schedule) -> bool:
    """Whether the next due time was computed with another release of the time zones."""
    is_due = schedule.is_planned and not schedule.paused and not schedule.moving_to
    return is_due and schedule.timezone != "UTC" and schedule.tz != tz_version()


def plan_of(schedule: Schedule, now_ns: int) -> Planned:
    """The due times of a schedule that have come, and the next one."""
    try:
        return _plan(schedule, timetable(schedule.cron, schedule.timezone), now_ns)
    except BadTimetable as error:  # its time zone is not there any more
        return Planned(
            schedule_id=schedule.id,
            changes=schedule.changes,
            from_ns=schedule.from_ns,
            until_ns=schedule.from_ns,
            tz=tz_version(),
            error=str(error)[:1_000],
        )


def _plan(schedule: Schedule, table: Timetable, now_ns: int) -> Planned:
    from_ns = schedule.from_ns
    # What is due later than this is not too late.
    missed_until_ns = max(from_ns, now_ns - missed_after_ns(schedule))
    known = _known(schedule)
    come = _walk(schedule, table, from_ns, known)
    next_ns = next(come, 0)
    missed, missed_ns, until_ns = 0, 0, from_ns
    due: list[int] = []
    if 0 < next_ns <= missed_until_ns:
        missed, due, until_ns = _missed(schedule, table, missed_until_ns)
        missed_ns = next_ns if missed else 0
        come = _walk(schedule, table, missed_until_ns)
        next_ns = next(come, 0)
    while next_ns and next_ns + jitter_ns(schedule, next_ns) <= now_ns and len(due) < FIRES_MAX:
        due.append(next_ns)
        until_ns, next_ns = next_ns, next(come, 0)
    return Planned(
        schedule_id=schedule.id,
        changes=schedule.changes,
        from_ns=from_ns,
        due=[
            Moment(each, schedule.next_local if each == known else table.local_text(each))
            for each in due
        ],
        missed=missed,
        missed_ns=missed_ns,
        until_ns=until_ns,
        next_ns=next_ns,
        next_local=table.local_text(next_ns) if next_ns else "",
        tz=tz_version(),
    )


def _known(schedule: Schedule) -> int:
    """The first due time that is not fired or skipped, if it is stored; else 0."""
    is_valid = schedule.is_planned and schedule.tz == tz_version()
    return schedule.next_ns if is_valid else 0


def _walk(schedule: Schedule, table: Timetable, after_ns: int, known_ns: int = 0) -> Iterator[int]:
    """All due times after one. `known_ns` is the first of them, if it is known."""
    if known_ns:
        yield known_ns
    at_ns = max(after_ns, known_ns, schedule.starts_ns - 1)
    while True:
        found = table.next_after(at_ns, schedule.anchor_ns)
        if found is None or (schedule.ends_ns and found > schedule.ends_ns):
            return
        yield found
        at_ns = found


def _missed(schedule: Schedule, table: Timetable, until_ns: int) -> tuple[int, list[int], int]:
    """Of the due times up to one: the number to be skipped, those to be fired, and the last.

    After a long time there may be very many, and only the last ones matter: they are looked for in
    a stretch that is widened until it has enough, and made shorter if it has very many. Then the
    number to be skipped is not known, and is said to be at least 1.
    """
    first_ns = schedule.from_ns
    until_ns = min(until_ns, schedule.ends_ns or until_ns)
    keep = {"skip": 0, "one": 1, "all": schedule.missed_max}[schedule.missed]
    start_ns = max(first_ns, until_ns - 2 * max(keep, _COUNTED) * table.shortest_ns)
    too_many_from_ns, too_few_from_ns = -1, until_ns
    while True:
        found = [*_until(schedule, table, start_ns, until_ns)]
        if len(found) == MISSED_WALK_MAX:
            too_many_from_ns = start_ns
        elif len(found) > keep or start_ns == first_ns:
            break
        else:
            too_few_from_ns = start_ns
        if too_many_from_ns >= 0:
            start_ns = (too_many_from_ns + too_few_from_ns) // 2
        else:
            start_ns = max(first_ns, until_ns - 2 * (until_ns - start_ns))
    kept = found[-keep:] if keep else []
    return len(found) - len(kept), kept, found[-1]


def _until(schedule: Schedule, table: Timetable, after_ns: int, until_ns: int) -> Iterator[int]:
    for due_ns in islice(_walk(schedule, table, after_ns), MISSED_WALK_MAX):
        if due_ns > until_ns:
            return
        yield due_ns
