"""Schedules that are drawn, and what must become of each of their due times."""

from bisect import bisect_right
from random import Random
from typing import Final

from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.schedules import NewSchedule
from tests.sim.failures import Violation
from tests.sim.years.calendar import Timetable

S: Final = 1_000_000_000
MISSED_AFTER_NS: Final = 60 * S
SLACK_NS: Final = S
"""Two entries never have the same time, so the last one of an instant is a little later."""

ZONES: Final = (
    *("UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"),
    *("Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Chatham"),
)
MINUTES: Final = (0, 0, 15, 30)
HOURS: Final = (0, 1, 2, 3, 6, 9, 12, 22)
EVERY: Final = (43_200, 90_000, 604_800)
"""Seconds of an interval."""


class Plan:
    """A schedule."""

    def __init__(self, name: str, timetable: Timetable, random: Random) -> None:
        self.name: Final = name
        self.timetable = timetable
        self.missed: Final = random.choice(("skip", "one", "one", "all"))
        self.missed_max: Final = random.choice((1, 3, 100))
        self.jitter_ms: Final = random.choice((0, 0, 0, 0, 20_000))
        self.queue = ""
        self.moves_to = ""
        self.is_paused = False
        self.is_deleted = False
        self.fired: list[int] = []
        """The due times of its jobs, in seconds, as the jobs were found."""
        self.stretches: list[tuple[int, int, Timetable, int]] = []
        """From when until when which due times count, and the second they are counted from."""
        self._since_ns = -1
        self._anchor_s = 0
        self.blocks: list[tuple[int, int]] = []
        """Times in which no leader looked at it."""

    def new(self, queue: str) -> NewSchedule:
        """The definition, in a queue."""
        cron, timezone = self.timetable
        return NewSchedule(
            name=self.name,
            cron=cron,
            timezone=timezone,
            missed=self.missed,
            missed_max=self.missed_max,
            missed_after_ms=MISSED_AFTER_NS // 1_000_000,
            jitter_ms=self.jitter_ms,
            paused=self.is_paused,
            job=NewJob(queue=queue),
        )

    @property
    def id(self) -> str:
        """The id of the schedule."""
        return f"{self.queue}~{self.name}"

    @property
    def is_at_rest(self) -> bool:
        """Whether clients can change it."""
        return not (self.is_deleted or self.moves_to)

    def begins(self, at_ns: int, *, is_anchor: bool) -> None:
        """Due times count from now on."""
        self._since_ns = at_ns
        if is_anchor:
            self._anchor_s = at_ns // S

    def ends(self, at_ns: int) -> None:
        """Due times after this one do not count."""
        if self._since_ns >= 0:
            self.stretches.append((self._since_ns, at_ns, self.timetable, self._anchor_s))
        self._since_ns = -1

    def blocked(self, since_ns: int, until_ns: int) -> None:
        """No leader has looked at it: one that follows another without a gap is the same one."""
        if self.blocks and self.blocks[-1][1] >= since_ns - SLACK_NS:
            since_ns = self.blocks.pop()[0]
        self.blocks.append((since_ns, until_ns))

    def found(self, due_s: int, queue: str, at_ns: int) -> None:
        """A job of the schedule is there."""
        late_ns = at_ns - due_s * S
        is_excused = bool(self.blocks) and self.blocks[-1][1] + SLACK_NS >= at_ns
        most_ns = self.jitter_ms * 1_000_000 + SLACK_NS
        if queue != self.queue:
            raise Violation("K1", f"{self.id} has fired {due_s} in queue {queue}")
        if late_ns < 0 or (late_ns > most_ns and not is_excused):
            raise Violation("K1", f"{self.id} has fired {due_s} {late_ns} ns late")
        self.fired.append(due_s)

    def check(self, calendar: dict[Timetable, list[int]]) -> int:
        """Compare what was fired with what was due; returns the number of due times."""
        due: list[int] = []
        for since_ns, until_ns, timetable, anchor_s in self.stretches:
            due += _between(timetable, calendar, since_ns, until_ns, anchor_s)
        lost, maybe = self._missed(due)
        if len(self.fired) != len({*self.fired}):
            twice = sorted(each for each in {*self.fired} if self.fired.count(each) > 1)
            raise Violation("K1", f"{self.id} has fired {twice[:5]} twice")
        fired = {*self.fired}
        missing = sorted({*due} - lost - maybe - fired)
        wrong = sorted(fired - {*due}) + sorted(fired & (lost - maybe))
        if missing or wrong:
            raise Violation(
                "K1",
                f"{self.id} {self.timetable} {self.missed} has not fired {missing[:5]} and fired"
                f" {wrong[:5]}; {self.stretches}, {self.blocks}",
            )
        return len(due)

    def _missed(self, due: list[int]) -> tuple[set[int], set[int]]:
        """Due times that must not be fired; and those that may be, because of the jitter."""
        keep = {"skip": 0, "one": 1, "all": self.missed_max}[self.missed]
        jitter_s = self.jitter_ms // 1_000
        lost: set[int] = set()
        maybe: set[int] = set()
        for since_ns, until_ns in self.blocks:
            inside = [each for each in due if since_ns < each * S <= until_ns]
            late = [
                each
                for each in inside
                if each * S <= until_ns - MISSED_AFTER_NS - self.jitter_ms * 1_000_000
            ]
            lost |= {*(late[:-keep] if keep else late)}
            if jitter_s:
                # Those just before may be missed as well, and then one of these counts less.
                edge = {each for each in due if 0 <= since_ns - each * S <= jitter_s * S}
                maybe |= edge
        return lost, maybe


def _between(
    timetable: Timetable,
    calendar: dict[Timetable, list[int]],
    since_ns: int,
    until_ns: int,
    anchor_s: int,
) -> list[int]:
    cron, _ = timetable
    if cron.startswith("@every "):
        step = int(cron.removeprefix("@every ").removesuffix("s"))
        return [
            each
            for each in range(anchor_s + step, until_ns // S + 1, step)
            if since_ns < each * S <= until_ns
        ]
    found = calendar[timetable]
    return found[bisect_right(found, since_ns // S) : bisect_right(found, until_ns // S)]


def draw(random: Random) -> Timetable:
    """An expression and its zone: few of them hourly, most of them weekly or monthly."""
    kind, minute, hour = random.random(), random.choice(MINUTES), random.choice(HOURS)
    zone = random.choice(ZONES)
    if kind < 0.003:
        return f"{minute} * * * *", zone
    if kind < 0.08:
        return f"{minute} {hour} * * *", zone
    if kind < 0.1:
        return f"{minute} {hour} * * MON-FRI", zone
    if kind < 0.17:
        return f"@every {random.choice(EVERY)}s", "UTC"
    if kind < 0.6:
        return f"{minute} {hour} * * {random.choice(('SUN', 'MON', 'SAT'))}", zone
    return f"{minute} {hour} {random.choice((1, 15, 31, 'L'))} * *", zone
