"""Stage 5: schedules create the jobs of their due times, each once.

The due times are those of `chaos.due_times`, for the definition that the requests of clients gave
the schedule. All times are those of the shard, as its events have them, so no clock of a node
matters. A due time that has no job must have been missed, by the schedule's own rule.

An entry fires all due times up to the moment at which its leader planned it. No event has that
moment. It is later than the last due time of the entry and before the next one, and an entry is
right if some such moment explains its jobs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from chaos import due_times
from chaos.api import time_ns
from chaos.checks.feeds import NUMBER_BITS
from chaos.checks.outcomes import MS
from chaos.checks.report import Stage
from chaos.checks.tables import OK, Tables
from chaos.history import FinalDone, FinalSchedule, Op, Schedule

BY: Final = "schedule "
"""What `by` of a job's first event begins with, if a schedule created the job."""
NOW: Final = "now-"
LATE_NS: Final = 15_000 * MS
WORKING_FROM_NS: Final = 5_000 * MS
WORKING: Final = 20
"""A shard that has made so many entries since some seconds after a due time has a leader that would
have fired it."""
LOOKED_AT: Final = 500
"""Events in which these entries are looked for."""
MISSED: Final = "missed"


def due_of(job: str) -> tuple[str, int, bool]:
    """Of the id of a schedule's job: schedule, due time, and whether it was fired by hand."""
    name, _, text = job.rpartition("@")
    return name, time_ns(text.removeprefix(NOW)), text.startswith(NOW)


class Entry:
    """What one entry of the log did with one schedule."""

    def __init__(self, tables: Tables, rows: Sequence[int]) -> None:
        events = tables.events
        self.row = rows[0]
        self.shard, self.seq, _ = events.name(rows[0])
        self.at = events.at[rows[0]]
        self.names = tuple(events.name(row) for row in rows)
        self.words: set[str] = set()
        self.due: list[int] = []
        """Due times whose jobs were created."""
        self.by_hand = 0
        self.is_missed = self.is_skipped = False
        for row in rows:
            word = tables.feeding.types.texts[events.type[row]]
            if word == "enqueued":
                _, due, is_now = due_of(tables.jobs.texts[events.job[row]])
                if is_now:
                    self.by_hand += 1
                else:
                    self.due.append(due)
            elif word == "schedule.skipped":
                self.is_skipped = True
                self.is_missed |= tables.feeding.words.texts[events.why[row]] == MISSED
            else:
                self.words.add(word)

    @property
    def is_asked(self) -> bool:
        """Whether a client's request did some of it."""
        return bool(self.words or self.by_hand)


class Course:
    """One schedule, entry by entry."""

    def __init__(self, tables: Tables, stage: Stage, name: str) -> None:
        self.tables, self.stage, self.name = tables, stage, name
        self.ops = tables.schedules.get(name, [])
        self.sent = {call: op for call, op in self.ops if op.args.schedule is not None}
        """Requests with a definition, by their calls."""
        calls = tables.calls
        self.vague = [
            call for call in self.sent if calls.type[call] != OK or calls.op[call] in tables.tries
        ]
        """Those whose place in the log may be any, from their first try to their answer."""
        self.placed: dict[tuple[int, int], list[Op]] = {}
        """Shard and index to the requests whose answers have that position."""
        for call, op in self.sent.items():
            for place in tables.positions_of(call).items():
                self.placed.setdefault(place, []).append(op)
        self.asked = {place for call, _ in self.ops for place in tables.positions_of(call).items()}
        """Shard and index of all requests about it, also of those that changed nothing."""
        self.spec: Schedule | None = None
        """What it is now; none if that is not known."""
        self.is_known = False
        """Whether `after` is known. Due times are checked if both are."""
        self.exists = self.paused = False
        self.is_whole = self.has_gap = False
        """Whether all of it was seen since it was created; and whether something of it was not."""
        self.anchor = self.after = 0
        """Where intervals count from; and the time up to which due times are fired or dropped."""
        self.row = 0
        self.loose: set[int] = set()
        """Due times up to `after` that may be fired yet."""
        self.done: set[int] = set()
        self.fired = self.by_hand = 0
        self.entry: Entry | None = None

    # ---- helpers

    def wrong(self, rule: str, text: str) -> None:
        """Report a violation that the present entry shows."""
        names = self.entry.names if self.entry is not None else ()
        self.stage.wrong(rule, f"schedule {self.name}: {text}", (), names)

    def due(self, until: int) -> list[int]:
        """The due times that have come and are not fired."""
        if self.spec is None or not self.is_known or self.paused or not self.exists:
            return []
        spec = self.spec
        found = due_times.due_times(spec.cron, spec.timezone, self.after, until, self.anchor)
        return list(found)

    @property
    def late_ns(self) -> int:
        """From when on a due time is missed."""
        assert self.spec is not None
        return (self.spec.missed_after_ms + self.spec.jitter_ms) * MS

    def entries_between(self, first: int, begin: int, end: int) -> int:
        """The entries of the shard with events between two times, from a row on."""
        events = self.tables.events
        stop = self.tables.rows_of_shard(events.shard[first]).stop
        low = bisect_left(events.at, begin, first, stop)
        high = bisect_left(events.at, end, first, stop)
        rows = range(low, min(high, low + LOOKED_AT))
        return len({events.key[row] >> NUMBER_BITS for row in rows})

    # ---- entries

    def take(self, entry: Entry) -> None:
        """One entry after the other."""
        self.entry = entry
        self.stage.count("entries")
        if entry.is_missed:
            self.stage.count("entries that skip what was missed")
        self.by_hand += entry.by_hand
        self.fired += len(entry.due) + entry.by_hand
        if "schedule.created" not in entry.words:
            self.fire(entry)
        for word in entry.words:
            self.change(entry, word)
        self.row = entry.row

    def fire(self, entry: Entry) -> None:
        """Compare what an entry fired with what it had to fire."""
        for due in entry.due:
            self.stage.count("due times fired")
            if due in self.done:
                self.wrong("K1", f"the due time {shown(due)} has a second job")
            self.done.add(due)
        if self.spec is None or not self.is_known:
            if entry.due:
                # It is as it was before the gap, or its definition is one of several.
                self.after = self.anchor = max(entry.due)
                self.is_known, self.exists, self.paused = True, True, False
            return
        if not self.exists or self.paused:
            if entry.due:
                state = "is paused" if self.exists else "does not exist"
                self.wrong("K1", f"it {state}, and fires {shown(entry.due[0])}")
            return
        pending = self.due(entry.at)
        fresh = self.fitting(entry, pending)
        if self.spec.overlap != "allow":
            self.go_on(max([self.after, *fresh]), pending)
        elif fresh:
            last = pending.index(fresh[-1]) + 1
            following = pending[last:]
            if not self.is_explained(entry, fresh, pending[:last], following):
                self.unexplained(entry, fresh, pending[:last])
            self.not_late(entry, pending)
            self.go_on(fresh[-1], pending)
        elif entry.is_missed:
            missed = [due for due in pending if due <= entry.at - self.late_ns]
            if not missed and self.loose:
                # The entry before was planned when fewer were missed than at its time.
                self.loose.discard(min(self.loose))
            elif not missed:
                self.wrong("K2", "due times are skipped as missed, and none was missed")
            elif self.spec.missed != "skip":
                self.wrong("K2", f"all due times are skipped, with missed = {self.spec.missed}")
            else:
                self.go_on(missed[-1], pending, is_loose=True)
                self.loose.discard(missed[0])

    def fitting(self, entry: Entry, pending: list[int]) -> list[int]:
        """The due times of an entry that could come now; the others are violations."""
        fresh, known = [], set(pending)
        for due in sorted(entry.due):
            if due in known:
                fresh.append(due)
            elif due in self.loose:
                self.loose.discard(due)
            elif due > entry.at:
                self.wrong("K1", f"{shown(due)} is fired {(due - entry.at) // MS} ms early")
            elif due <= self.after:
                self.wrong("K1", f"{shown(due)} is fired after it was dropped, or later ones fired")
            else:
                self.wrong("K1", f"{shown(due)} is fired, and is no due time")
        return fresh

    def is_explained(
        self, entry: Entry, fired: list[int], pending: list[int], following: list[int]
    ) -> bool:
        """Whether some moment of planning makes an entry fire these, of those that had come."""
        assert self.spec is not None
        late, jitter = self.late_ns, self.spec.jitter_ms * MS
        latest = min([entry.at, *(due + jitter for due in following[:1])])
        keep = {"skip": 0, "one": 1, "all": self.spec.missed_max}[self.spec.missed]
        least = sum(1 for due in pending if due <= pending[-1] - late)
        most = sum(1 for due in pending if due <= latest - late)
        for missed in range(least, most + 1):
            kept = pending[:missed][-keep:] if keep else []
            if fired == [*kept, *pending[missed:]] and (len(kept) == missed or entry.is_missed):
                return True
        # A request fires one due time that has come since the leader planned.
        is_asked = entry.is_asked or (entry.shard, entry.seq) in self.asked
        is_last_asked = is_asked and entry.at - fired[-1] <= late and len(fired) > 1
        return is_last_asked and self.is_explained(entry, fired[:-1], pending[:-1], pending[-1:])

    def unexplained(self, entry: Entry, fired: list[int], pending: list[int]) -> None:
        """Say what is wrong with an entry."""
        assert self.spec is not None
        missing = [due for due in pending if due not in fired]
        late = entry.at - self.late_ns
        if missing and missing[-1] > late:
            self.wrong("K1", f"{shown(missing[-1])} has no job, and was not missed")
        elif missing and not entry.is_missed:
            self.wrong(
                "K1", f"{shown(missing[0])} has no job, and no event says that it is skipped"
            )
        else:
            self.wrong(
                "K2",
                f"{len(fired)} of {len(pending)} due times are fired at {shown(entry.at)}, with "
                f"missed = {self.spec.missed} after {self.spec.missed_after_ms} ms",
            )

    def go_on(self, until: int, pending: list[int], *, is_loose: bool = False) -> None:
        """Due times are fired or skipped up to one."""
        self.loose = {due for due in pending if due <= until} if is_loose else set()
        self.loose -= self.done
        self.after = max(self.after, until)

    def not_late(self, entry: Entry, pending: list[int]) -> None:
        """A shard that works fires a due time that has come."""
        self.check_late(pending, entry.at)

    def check_late(self, pending: list[int], at: int) -> None:
        """A shard that works has fired what was due."""
        if not pending or at - pending[0] <= LATE_NS:
            return
        working = self.entries_between(self.row, pending[0] + WORKING_FROM_NS, at)
        if working >= WORKING:
            self.wrong(
                "K1",
                f"{shown(pending[0])} is not fired {(at - pending[0]) // MS} ms later, and its "
                "shard works",
            )

    # ---- requests

    def change(self, entry: Entry, word: str) -> None:
        """A request changed the schedule."""
        before, spec = self.spec, self.defined(entry, word)
        is_same = before is not None and spec is not None and times_of(before) == times_of(spec)
        is_again = word != "schedule.changed" or not is_same
        """Whether due times count from now on, and those of before are dropped."""
        if word == "schedule.created":
            self.is_whole, self.fired = True, len(entry.due) + entry.by_hand
        elif is_again:
            self.drop(entry)
        self.spec = spec
        self.exists = word not in ("schedule.deleted", "schedule.moved")
        self.paused = word == "schedule.paused"
        if is_again:
            self.after, self.loose = entry.at, set()
            # After a gap it is not known whether other times were changed.
            self.is_known = word != "schedule.changed" or before is not None
        if word == "schedule.created" or (is_again and self.is_put(entry, word)):
            self.anchor = entry.at
        if spec is None and self.exists:
            self.stage.count("definitions that are not known")
        if word == "schedule.moved":
            self.is_whole, self.has_gap = False, True

    def drop(self, entry: Entry) -> None:
        """Due times that have come are dropped: the first one only if it was missed."""
        pending = self.due(entry.at)
        if not pending or self.spec is None or self.spec.overlap != "allow":
            return
        self.check_late(pending, entry.at)
        # Until a leader has planned the schedule again, a request does not know what is due.
        is_planned = self.entries_between(self.row, 0, pending[0]) > WORKING
        is_ripe = pending[0] + self.late_ns >= entry.at and not self.spec.jitter_ms
        if is_planned and is_ripe and not entry.due:
            self.wrong("K1", f"{shown(pending[0])} has come, and is dropped by a request")

    def defined(self, entry: Entry, word: str) -> Schedule | None:
        """The definition after a request; none if it is not certain."""
        here = self.placed.get((entry.shard, entry.seq), [])
        if here:
            return only(here)
        self.vague = [call for call in self.vague if not self.is_over(call, entry)]
        seen = self.tables.events.seen[entry.row]
        vague = [self.sent[call] for call in self.vague if self.tables.calls.inv[call] < seen]
        if word in ("schedule.created", "schedule.changed"):
            return only(vague)
        is_certain = word == "schedule.deleted" or all(op.f == "create_schedule" for op in vague)
        return self.spec if is_certain else None

    def is_over(self, call: int, entry: Entry) -> bool:
        """Whether a call had its effect before an entry, by the answer to one of its tries."""
        calls = self.tables.calls
        tries = self.tables.tries.get(calls.op[call], [call])
        told = [self.tables.seq_of(one, entry.shard) for one in tries if calls.type[one] == OK]
        return any(0 <= seq < entry.seq for seq in told)

    def is_put(self, entry: Entry, word: str) -> bool:
        """Whether a request gave the schedule a definition, as far as that is known."""
        here = self.placed.get((entry.shard, entry.seq), [])
        return word == "schedule.changed" or any(op.f == "change_schedule" for op in here)

    # ---- the end

    def forget(self) -> None:
        """Events are missing from here on."""
        self.spec, self.is_known, self.is_whole, self.has_gap = None, False, False, True

    def finish(self) -> None:
        """After the last event."""
        self.entry = None
        if self.has_gap or not self.is_whole:
            return
        events = self.tables.events
        last = events.at[self.tables.rows_of_shard(events.shard[self.row]).stop - 1]
        if self.spec is not None and self.spec.overlap == "allow":
            self.check_late(self.due(last), last)
        runs = [(call, op) for call, op in self.ops if op.f == "run_schedule"]
        most = len({op.op_id for _, op in runs})
        least = len({op.op_id for _, op in runs if op.type == "ok"})
        self.stage.count("fired by hand", self.by_hand)
        if not least <= self.by_hand <= most:
            self.wrong("K1", f"{self.by_hand} jobs were fired by {least} to {most} requests")


def times_of(spec: Schedule) -> tuple[str, str]:
    """What decides about the due times of a definition."""
    return spec.cron, spec.timezone


def only(ops: list[Op]) -> Schedule | None:
    """The definition of some requests, if it is one."""
    found = {op.args.schedule for op in ops}
    return found.pop() if len(found) == 1 else None


def shown(time: int) -> str:
    """A time of a shard as text."""
    moment = datetime.fromtimestamp(time // due_times.SECOND_NS, due_times.zone_of("UTC"))
    return f"{moment:%H:%M:%S}.{time % due_times.SECOND_NS // MS:03}"


def rows_by_schedule(tables: Tables) -> dict[str, list[int]]:
    """The rows of the events of each schedule and of the jobs that it created."""
    events = tables.events
    types, clients = tables.feeding.types, tables.clients.texts
    own = {number for number, text in enumerate(types.texts) if text.startswith("schedule.")}
    makers = {
        number: text.removeprefix(BY) for number, text in enumerate(clients) if text.startswith(BY)
    }
    found: dict[str, list[int]] = {}
    if not own and not makers:
        return found
    enqueued = types.find("enqueued")
    for row, (kind, by) in enumerate(zip(events.type, events.by, strict=True)):
        if kind in own:
            found.setdefault(tables.jobs.texts[events.job[row]], []).append(row)
        elif kind == enqueued and by in makers:
            name = makers[by]
            if tables.jobs.texts[events.job[row]].startswith(f"{name}@"):
                found.setdefault(name, []).append(row)
    return found


def check(tables: Tables, stage: Stage) -> None:
    """Check all schedules."""
    events = tables.events
    gaps = {shard: tables.gaps(shard) for shard in tables.start}
    ends = {record.id: record for record in tables.final if isinstance(record, FinalSchedule)}
    courses: dict[str, Course] = {}
    for name, rows in rows_by_schedule(tables).items():
        stage.count("schedules")
        course = courses[name] = Course(tables, stage, name)
        for _, group in groupby(rows, key=lambda row: events.name(row)[:2]):
            part = list(group)
            gone = gaps[events.shard[part[0]]]
            at = bisect_left(gone, part[0] + 1)
            if at and gone[at - 1] > course.row:
                course.forget()
            course.take(Entry(tables, part))
        course.finish()
    if any(isinstance(record, FinalDone) for record in tables.final) and ends:
        for name, course in courses.items():
            _end(course, ends.get(name), stage)


def _end(course: Course, end: FinalSchedule | None, stage: Stage) -> None:
    """The schedule at the end is what its events lead to."""
    if not course.is_whole:
        return
    stage.count("schedules at the end")
    if (end is not None) != course.exists:
        state = "exists at the end, and was deleted" if end is not None else "is gone at the end"
        course.wrong("K1", f"it {state}")
    elif end is not None and end.paused != course.paused:
        course.wrong("K1", f"paused is {end.paused} at the end, and {course.paused} by its events")
    elif end is not None and end.fired != course.fired:
        course.wrong("K1", f"it says {end.fired} jobs, and its events say {course.fired}")
