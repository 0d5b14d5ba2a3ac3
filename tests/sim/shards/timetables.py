"""K1: what becomes of each due time, by the rules of `docs/semantics.md`.

`Timetables` follows every op on schedules in the log, and says what is fired, skipped or left. Due
times are a multiple of a period after some moment, so they are computed by a division: nothing of
`corvo.cron` and `corvo.shard.firing` is asked.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import msgspec

from corvo.model import Schedule
from tests.shard.reference import Reference
from tests.shard.shapes import MS, Fields, Refusal, number, rows, text
from tests.sim.failures import Violation

if TYPE_CHECKING:
    from tests.sim.shards.book import Book
    from tests.sim.shards.world import ShardWorld

S: Final = 1_000 * MS
FINISHED: Final = ("completed", "dead", "cancelled")
RUNS_MAX: Final = 20
PLAN_NS: Final = 3 * S
"""Between the reading of the clock by which a leader plans, and the stamp of its entry."""
LATE_NS: Final = 5 * S
"""How late a due time may be fired while there is a leader and nothing goes wrong."""

SERIES: Final[dict[tuple[str, str], tuple[int, int]]] = {
    ("* * * * * *", "UTC"): (1, 0),
    ("*/5 * * * * *", "UTC"): (5, 0),
    ("* * * * *", "UTC"): (60, 0),
    ("0 * * * *", "UTC"): (3_600, 0),
    ("0 * * * *", "Asia/Kolkata"): (3_600, 1_800),
    ("@every 2s", "UTC"): (2, -1),
    ("@every 3s", "UTC"): (3, -1),
}
"""The period of an expression, and the second from which it is counted: -1 is the anchor."""


def second(at_ns: int) -> str:
    """A whole second as ids of jobs have it."""
    assert at_ns % S == 0, "due times are whole seconds"
    return datetime.fromtimestamp(at_ns // S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Ran:
    """One run."""

    due_ns: int
    job_id: str = ""
    state: str = ""
    skipped: str = ""
    cause: str = ""
    count: int = 1
    seen: str = ""
    """The state of the job with this id at the last look."""

    @property
    def is_running(self) -> bool:
        return bool(self.job_id) and not self.state and not self.skipped


@dataclass
class Twin:
    """One schedule as it must be."""

    id: str
    name: str
    job: Fields
    cron: str
    timezone: str = "UTC"
    overlap: str = "allow"
    missed: str = "one"
    missed_max: int = 100
    missed_after_ms: int = 60_000
    jitter_ms: int = 0
    paused: bool = False
    changes: int = 1
    anchor_ns: int = 0
    from_ns: int = 0
    is_planned: bool = False
    next_ns: int = 0
    queued_ns: int = 0
    last_due_ns: int = 0
    fired: int = 0
    skipped: int = 0
    moving_to: str = ""
    runs: list[Ran] = field(default_factory=list)
    passed: int = 0
    """Due times of which something became since clients only finish what there is."""
    been: dict[int, None] = field(default_factory=dict)
    """Due times that were fired, skipped or queued, wherever the schedule was."""

    @property
    def queue(self) -> str:
        return self.id.partition("~")[0]

    @property
    def late_ns(self) -> int:
        """How late a due time is missed."""
        return (self.missed_after_ms + self.jitter_ms) * MS

    @property
    def running(self) -> list[Ran]:
        return [run for run in self.runs if run.is_running]

    @property
    def period_s(self) -> int:
        return SERIES[self.cron, self.timezone][0]

    def delay_ns(self, due_ns: int) -> int:
        """The jitter of a due time: all replicas of all releases must agree on it."""
        if not self.jitter_ms:
            return 0
        return zlib.crc32(f"{self.id}@{due_ns}".encode()) % (self.jitter_ms + 1) * MS

    def _place(self, at_ns: int) -> tuple[int, int]:
        period, base = SERIES[self.cron, self.timezone]
        begin_ns = self.anchor_ns if base < 0 else base * S
        return (at_ns - begin_ns) // (period * S), begin_ns

    def last(self, at_ns: int, count: int) -> list[int]:
        """The last few due times up to a moment, since `from_ns`."""
        last, begin_ns = self._place(at_ns)
        first, _ = self._place(self.from_ns)
        places = range(max(first, last - count) + 1, last + 1)
        return [begin_ns + place * self.period_s * S for place in places]

    def between(self, until_ns: int) -> int:
        """The number of due times after `from_ns` and up to a moment."""
        return max(0, self._place(until_ns)[0] - self._place(self.from_ns)[0])

    def after(self, at_ns: int) -> int:
        """The next due time."""
        place, begin_ns = self._place(at_ns)
        return begin_ns + (place + 1) * self.period_s * S

    def define(self, new: Fields) -> None:
        """Take the definition of a client."""
        self.job = cast("Fields", new["job"])
        self.cron, self.timezone = text(new, "cron"), text(new, "timezone", "UTC")
        self.overlap, self.missed = text(new, "overlap", "allow"), text(new, "missed", "one")
        self.missed_max = number(new, "missed_max", 100)
        self.missed_after_ms = number(new, "missed_after_ms", 60_000)
        self.jitter_ms, self.paused = number(new, "jitter_ms"), new.get("paused") is True

    def ran(self, run: Ran) -> None:
        """Note a run: those that are over are forgotten first."""
        self.runs.append(run)
        self.fired += not run.skipped
        self.skipped += run.count if run.skipped else 0
        if len(self.runs) > RUNS_MAX:
            over = [at for at, each in enumerate(self.runs[:-1]) if not each.is_running]
            del self.runs[over[0] if over else 0]

    def arrived(self) -> None:
        """It is in the queue that it has moved to; jobs of the other one are not waited for."""
        self.id, self.moving_to = f"{self.moving_to}~{self.name}", ""
        self.runs = [run for run in self.runs if not run.is_running]


class Timetables:
    """All schedules of a shard."""

    def __init__(self, world: "ShardWorld", book: "Book") -> None:
        self.all: dict[str, Twin] = {}
        self._away: dict[str, Twin] = {}
        """Those that the other shard has, by name."""
        self._sent: dict[str, Twin] = {}
        """As they were when they left."""
        self._world = world
        self._book = book
        self._reference: Reference = book.reference
        self._reference.ops |= {
            "CreateSchedule": self._create,
            "ChangeSchedule": self._change,
            "PauseSchedule": self._pause,
            "DeleteSchedule": self._delete,
            "RunSchedule": self._run,
            "BackfillSchedule": self._backfill,
            "FireSchedules": self._fire_all,
        }
        self._reference.effects |= {"schedule": self._came, "schedule_landed": self._landed}

    # What is looked at from outside.

    def look(self) -> None:
        """After an op: jobs of runs have ended, or are pending again."""
        for twin in self.all.values():
            for run in twin.runs:
                # Those of a queue that it has left are not followed any longer.
                if run.job_id.startswith(f"{twin.id}@") and not run.skipped:
                    self._follow(run)

    def _follow(self, run: Ran) -> None:
        """A change of the job's state is one of the run's: an id may be that of a job before."""
        reference, known = self._reference, run.seen
        job = reference.jobs.get(run.job_id)
        if job is not None:
            run.seen = job.state if job.state in FINISHED else ""
        elif not (known or run.job_id in reference.away or run.job_id in reference.ghosts):
            run.seen = "cancelled"  # it was deleted
        if run.seen != known:
            run.state = run.seen

    def swept(self, found: Iterable[Schedule]) -> None:
        """Jobs that are being swept may be removed at any time: a replica says which were."""
        gone = {run.job_id for schedule in found for run in schedule.runs if run.state} & {
            *self._reference.ghosts
        }
        for twin in self.all.values():
            for run in twin.running:
                if run.job_id in gone:
                    run.state = run.seen = "cancelled"

    def compare(self, replica: int, found: dict[str, Schedule]) -> None:
        """Hold the schedules of a replica against these."""
        if list(found) != sorted(self.all):
            raise Violation("K1", f"replica {replica} has {list(found)}, not {sorted(self.all)}")
        for name, schedule in found.items():
            self._same(self.all[name], schedule)

    def _same(self, twin: Twin, schedule: Schedule) -> None:
        runs = [
            (0 if it.cause == "now" else it.due_ns, it.job_id, it.state, it.skipped, it.count)
            for it in schedule.runs
        ]
        due_runs = [
            (0 if it.cause == "now" else it.due_ns, it.job_id, it.state, it.skipped, it.count)
            for it in twin.runs
        ]
        names = (
            *("id", "queue", "cron", "overlap", "missed", "paused", "changes", "anchor_ns"),
            *("from_ns", "is_planned", "next_ns", "queued_ns", "fired", "moving_to", "jitter_ms"),
        )
        has = {name: getattr(schedule, name) for name in names}
        due = {name: getattr(twin, name) for name in names}
        if has != due or runs != due_runs:
            other = {name: (has[name], due[name]) for name in names if has[name] != due[name]}
            raise Violation("K1", f"{twin.id} is not as it must be: {other}\n{runs}\n{due_runs}")
        if schedule.skipped > twin.skipped:
            raise Violation("K1", f"{twin.id} has skipped {schedule.skipped}, not {twin.skipped}")

    def check_lateness(self) -> None:
        """K1: while there is a leader, what is due is fired soon."""
        now_ns = self._reference.now
        for twin in self.all.values():
            if twin.paused or twin.moving_to:
                continue
            due_ns = twin.after(twin.from_ns)
            late_ns = now_ns - due_ns - twin.delay_ns(due_ns)
            if late_ns > LATE_NS:
                raise Violation("K1", f"{twin.id} is {late_ns} ns late with {second(due_ns)}")

    # Ops of clients.

    def _find(self, fields: Fields) -> Twin:
        twin = self.all.get(text(fields, "schedule_id"))
        if twin is None:
            raise Refusal("schedule_not_found")
        if twin.moving_to:
            raise Refusal("schedule_moving")
        return twin

    def _ready(self, fields: Fields) -> Twin:
        twin = self._find(fields)
        if number(fields, "unchanged") not in {0, twin.changes}:
            raise Refusal("schedule_changed")
        self._fire_due(twin)
        return twin

    def _fire_due(self, twin: Twin) -> None:
        """What is due by now is fired before a change, as far as the next due time is known."""
        self.look()
        now_ns, due_ns = self._reference.now, twin.next_ns
        dropped = 0 if twin.paused else twin.between(now_ns)
        is_known = twin.is_planned and not twin.paused and now_ns <= due_ns + twin.late_ns
        if is_known and twin.queued_ns and not twin.running:
            self._fire_queued(twin)
        if is_known and due_ns + twin.delay_ns(due_ns) <= now_ns:
            self._fire(twin, due_ns)
            twin.from_ns, twin.is_planned, twin.next_ns = due_ns, False, 0
            dropped -= 1
        self._world.counts["due times not fired before an op"] += dropped

    def _done(self, seen: Fields, status: str, twin: Twin) -> Fields:
        shown = msgspec.convert(seen["schedule"], Schedule)
        self.look()
        self._same(twin, shown)
        return {**seen, "status": status}

    def _create(self, fields: Fields, seen: Fields) -> Fields:
        new = cast("Fields", fields["schedule"])
        queue, name = text(cast("Fields", new["job"]), "queue"), text(new, "name")
        there = self.all.get(f"{queue}~{name}")
        if there is not None:
            copy = replace(there)
            copy.define(new)
            if copy != there or there.moving_to:
                return Refusal("schedule_exists").answer
            return self._done(seen, "existing", there)
        twin = Twin(f"{queue}~{name}", name, {}, "")
        twin.define(new)
        self._begin(twin)
        self.all[twin.id] = twin
        self._reference.queue(queue)
        return self._done(seen, "created", twin)

    def _begin(self, twin: Twin) -> None:
        """Due times count from now."""
        now_ns = self._reference.now
        twin.from_ns, twin.anchor_ns = now_ns, now_ns // S * S
        twin.is_planned, twin.next_ns = False, 0

    def _change(self, fields: Fields, seen: Fields) -> Fields:
        try:
            twin = self._ready(fields)
        except Refusal as no:
            return no.answer
        new = cast("Fields", fields["schedule"])
        queue = text(cast("Fields", new["job"]), "queue")
        if queue != twin.queue and f"{queue}~{twin.name}" in self.all:
            return Refusal("schedule_exists").answer
        before = (twin.cron, twin.timezone)
        was_paused = twin.paused
        twin.define(new)
        twin.changes += 1
        if (twin.cron, twin.timezone) != before or (was_paused and not twin.paused):
            self._begin(twin)
        if queue == twin.queue:
            return self._done(seen, "changed", twin)
        twin.moving_to = queue
        if queue not in self._reference.local:
            self._send(twin)
            return self._done(seen, "moving", twin)
        del self.all[twin.id]
        twin.arrived()
        self._reference.queue(queue)
        self.all[twin.id] = twin
        return self._done(seen, "moved", twin)

    def _pause(self, fields: Fields, seen: Fields) -> Fields:
        try:
            twin = self._ready(fields)
        except Refusal as no:
            return no.answer
        paused = fields.get("paused", True) is True
        if paused is not twin.paused:
            twin.paused = paused
            twin.changes += 1
            if not paused:
                twin.from_ns, twin.is_planned, twin.next_ns = self._reference.now, False, 0
        return self._done(seen, "paused" if paused else "resumed", twin)

    def _delete(self, fields: Fields, seen: Fields) -> Fields:
        try:
            twin = self._ready(fields)
        except Refusal as no:
            return no.answer
        del self.all[twin.id]
        return self._done(seen, "deleted", twin)

    def _run(self, fields: Fields, seen: Fields) -> Fields:
        try:
            twin = self._ready(fields)
        except Refusal as no:
            return no.answer
        self.look()
        if twin.running and twin.overlap in {"skip", "queue"}:
            return Refusal("schedule_overlap", twin.running[-1].job_id).answer
        if twin.overlap == "cancel":
            self._cancel(twin)
        job_id = text(seen, "job_id")
        if not job_id.startswith(f"{twin.id}@now-"):
            raise Violation("K1", f"{twin.id} was to run now, and was answered {seen}")
        self._enqueue(twin, Ran(0, job_id, cause="now"), job_id)
        return self._done({**seen, "job_id": job_id}, "fired", twin)

    def _backfill(self, fields: Fields, seen: Fields) -> Fields:
        try:
            twin = self._find(fields)
        except Refusal as no:
            return no.answer
        if fields["changes"] != twin.changes:
            return Refusal("schedule_changed").answer
        dues = [number(it, "due_ns") for it in rows(fields, "due")]
        if dues[-1] > self._reference.now:
            return Refusal("bad_request").answer
        runs = [self._make(twin, due_ns, cause="backfill") for due_ns in dues]
        self.look()
        return {
            **seen,
            "created": [run.job_id for run in runs if not run.skipped],
            "existing": [run.job_id for run in runs if run.skipped],
        }

    # Firing.

    def _fire_all(self, fields: Fields, _: Fields) -> Fields:
        done = 0
        for planned in rows(fields, "planned"):
            twin = self.all.get(text(planned, "schedule_id"))
            if twin is None or twin.paused or twin.moving_to:
                continue
            computed_for = (number(planned, "changes"), number(planned, "from_ns"))
            if computed_for == (twin.changes, twin.from_ns):
                self._carry_out(twin, planned)
                done += 1
            else:
                self._world.counts["plans for what has changed"] += 1
        return {"done": done, "more": False}

    def _carry_out(self, twin: Twin, planned: Fields) -> None:
        self._judge(twin, planned)
        dues = [number(it, "due_ns") for it in rows({"due": [], **planned}, "due")]
        missed, until_ns = number(planned, "missed"), number(planned, "until_ns")
        self.look()
        if twin.queued_ns and not twin.running:
            self._fire_queued(twin)
        if missed:
            self._world.counts["due times missed"] += missed
            twin.ran(Ran(number(planned, "missed_ns"), skipped="missed", count=missed))
        for due_ns in dues:
            self._fire(twin, due_ns)
        if self._world.is_draining:
            twin.passed += len(dues)
        twin.from_ns, twin.is_planned = until_ns, True
        twin.next_ns = twin.after(until_ns)

    def _judge(self, twin: Twin, planned: Fields) -> None:
        """Whether the due times are all that there are, and only the right ones are skipped."""
        now_ns = self._reference.now
        dues = [number(it, "due_ns") for it in rows({"due": [], **planned}, "due")]
        missed, until_ns = number(planned, "missed"), number(planned, "until_ns")
        total = twin.between(until_ns)
        left_out = total - len(dues)
        keep = {"skip": 0, "one": 1, "all": twin.missed_max}[twin.missed]
        last = twin.last(until_ns, 1)
        next_ns = twin.after(until_ns)
        skipped = twin.last(until_ns, len(dues) + 1)[:1] if left_out else []
        rules = (
            (dues == twin.last(until_ns, len(dues)), "others are due"),
            (until_ns == (last[0] if total else twin.from_ns), "it goes to another time"),
            (number(planned, "next_ns") == next_ns, f"the next one is {next_ns}"),
            (all(each + twin.delay_ns(each) <= now_ns for each in dues), "one is early"),
            (missed <= left_out and (missed > 0) == (left_out > 0), f"{left_out} are left out"),
            (
                not missed or number(planned, "missed_ns") == twin.after(twin.from_ns),
                "another one is the first that is missed",
            ),
            (all(each <= now_ns - twin.late_ns for each in skipped), "one is not late enough"),
            (not left_out or len(dues) >= keep, "more are to be fired"),
            (
                all(each > now_ns - twin.late_ns - PLAN_NS for each in dues[keep:]),
                "more are to be skipped",
            ),
            (next_ns + twin.delay_ns(next_ns) > now_ns - PLAN_NS, "the next one is due as well"),
        )
        for holds, why in rules:
            if not holds:
                raise Violation("K1", f"{planned} at {now_ns}, but {why}: {twin}")
        self._world.counts["due times judged"] += len(dues)

    def _fire_queued(self, twin: Twin) -> None:
        due_ns, twin.queued_ns = twin.queued_ns, 0
        self._world.counts["due times that had to wait"] += 1
        self._make(twin, due_ns)

    def _fire(self, twin: Twin, due_ns: int) -> None:
        self.look()
        if due_ns in twin.been:
            raise Violation("K1", f"{twin.id} fires {second(due_ns)} twice")
        twin.been[due_ns] = None
        if twin.running and twin.overlap == "queue" and not twin.queued_ns:
            twin.queued_ns = due_ns
        elif twin.running and twin.overlap in {"skip", "queue"}:
            self._world.counts["due times that overlap"] += 1
            twin.ran(Ran(due_ns, skipped="overlap"))
        else:
            if twin.overlap == "cancel":
                self._cancel(twin)
            self._make(twin, due_ns)

    def _cancel(self, twin: Twin) -> None:
        for run in twin.running:
            self._reference.cancel(run.job_id)
        self.look()

    def _make(self, twin: Twin, due_ns: int, cause: str = "") -> Ran:
        job_id = f"{twin.id}@{second(due_ns)}"
        run = Ran(due_ns, job_id, cause=cause)
        self._enqueue(twin, run, job_id)
        if not cause:
            twin.last_due_ns = due_ns
        return run

    def _enqueue(self, twin: Twin, run: Ran, job_id: str) -> None:
        asked = {**twin.job, "queue": twin.queue, "id": job_id, "tags": {"schedule": twin.name}}
        asked["payload"] = {"due": job_id.partition("@")[2].removeprefix("now-")}
        if self._book.created(asked):
            for other in twin.runs:
                if other.job_id == job_id:
                    other.seen = ""
            self._world.counts["jobs of schedules"] += 1
        else:
            run.skipped = "exists"
        twin.ran(run)
        self.look()

    # Another shard.

    def _send(self, twin: Twin) -> None:
        self._world.counts["schedules that left"] += 1
        self._reference.leave(twin.id)
        self._sent[twin.id] = replace(twin, runs=[replace(run) for run in twin.runs])

    def check_sent(self, shown: Fields) -> None:
        """The other shard has got a schedule."""
        schedule = msgspec.convert(shown, Schedule)
        self._same(self._sent[schedule.id], schedule)

    def _landed(self, effect: Fields) -> None:
        """The other shard has a schedule, or has refused it."""
        twin = self.all[text(effect, "schedule_id")]
        if effect["is_refused"]:
            twin.moving_to = ""
            twin.job = {**twin.job, "queue": twin.queue}
        else:
            del self.all[twin.id]
            self._away[twin.name] = self._sent[twin.id]

    def _came(self, effect: Fields) -> None:
        """One comes back: as the other shard got it, and in another queue."""
        schedule = msgspec.convert(effect["schedule"], Schedule)
        self._reference.leave(schedule.id)  # the answer
        there = f"{schedule.moving_to}~{schedule.name}"
        if there in self.all:
            return
        twin = self._away.pop(schedule.name)
        twin.changes += 1
        twin.job = {**twin.job, "queue": schedule.moving_to}
        twin.moving_to = schedule.moving_to
        twin.arrived()
        self._reference.queue(schedule.moving_to)
        self.all[twin.id] = twin
        self._world.counts["schedules that came back"] += 1
