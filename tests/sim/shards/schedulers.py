"""Who creates schedules, changes, pauses, resumes, runs, moves and deletes them."""

from typing import Final

from tests.shard.shapes import MS, Fields
from tests.sim.shards.callers import Caller
from tests.sim.shards.clock import BEGIN_NS
from tests.sim.shards.timetables import SERIES, Twin

NAMES: Final = ("s0", "s1", "s2")
ELSEWHERE: Final = "q1"
"""A queue of the other shard."""
_OPS: Final = (
    *("Pause", "Resume", "Resume", "Run", "Backfill", "Change", "Job"),
    *("Move", "Move", "Move", "Delete", "Create"),
)
_S: Final = 1_000 * MS


class Scheduler(Caller):
    """One client, with a request key for each thing to be done."""

    _keys = 0

    def begin(self) -> None:
        """Do something now and then."""
        self.later(5 * self.random.random(), self._next)

    def _next(self) -> None:
        if self.world.is_draining:
            return
        self.later(self.random.expovariate(1 / 8), self._next)
        if self.world.is_chaos:
            self._ask()

    def ask(self, op: str, **fields: object) -> None:
        """Have one thing done, once."""
        self._keys += 1
        body: Fields = {**fields, "request_key": f"{self.name}-{self._keys}"}
        self.call(op, body, lambda _: None)

    def _ask(self) -> None:
        random = self.random
        twins = [*self.world.book.timetables.all.values()]
        if not twins or (len(twins) < len(NAMES) and random.random() < 0.4):
            self.ask("CreateSchedule", schedule=self._drawn(random.choice(NAMES)))
            return
        twin = random.choice(twins)
        op = random.choice(_OPS)
        # A change that goes by an earlier state must be refused.
        seen: Fields = {"unchanged": twin.changes} if random.random() < 0.3 else {}
        match op:
            case "Pause" | "Resume":
                self.ask("PauseSchedule", schedule_id=twin.id, paused=op == "Pause", **seen)
            case "Run":
                self.ask("RunSchedule", schedule_id=twin.id, **seen)
            case "Delete":
                self.ask("DeleteSchedule", schedule_id=twin.id, **seen)
            case "Backfill":
                self._backfill(twin)
            case "Create":
                self.ask("CreateSchedule", schedule=self._drawn(twin.name))
            case "Job":
                new = {**self._defined(twin), "overlap": random.choice(("allow", "skip"))}
                self.ask("ChangeSchedule", schedule_id=twin.id, schedule=new, **seen)
            case "Change":
                new = self._drawn(twin.name)
                new["job"] = twin.job
                self.ask("ChangeSchedule", schedule_id=twin.id, schedule=new, **seen)
            case _:
                queues = [*self.world.clients.queues]
                if self.world.options.shards > 1:
                    queues.append(ELSEWHERE)
                new = self._defined(twin)
                new["job"] = {**twin.job, "queue": random.choice(queues)}
                self.ask("ChangeSchedule", schedule_id=twin.id, schedule=new, **seen)

    def _backfill(self, twin: Twin) -> None:
        """A few due times around now: some were fired, and some are still to come."""
        random = self.random
        place = (BEGIN_NS + self.world.now) // _S // twin.period_s - random.randrange(-1, 6)
        due = [
            {"due_ns": (place + each) * twin.period_s * _S, "local": ""}
            for each in range(random.choice((1, 3)))
        ]
        self.ask("BackfillSchedule", schedule_id=twin.id, changes=twin.changes, due=due)

    def _drawn(self, name: str) -> Fields:
        random = self.random
        often = [one for one, (period, _) in SERIES.items() if period < 10]
        cron, timezone = random.choice(often if random.random() < 0.8 else [*SERIES])
        new: Fields = {
            "name": name,
            "cron": cron,
            "job": {
                "queue": random.choice(self.world.clients.queues),
                "payload": {"due": "{{due_at}}"},
                "max_retries": random.choice((1, 3)),
                "retry_base_delay_ms": 100,
                "retry_max_delay_ms": 1_500,
            },
            "overlap": random.choice(("allow", "skip", "skip", "queue", "cancel")),
            "missed": random.choice(("skip", "one", "all")),
            "missed_max": random.choice((1, 2, 5)),
            "missed_after_ms": random.choice((300, 500, 2_000, 60_000)),
        }
        if timezone != "UTC":
            new["timezone"] = timezone
        if random.random() < 0.3:
            new["jitter_ms"] = random.choice((300, 900))
        if random.random() < 0.1:
            new["paused"] = True
        return new

    def _defined(self, twin: Twin) -> Fields:
        """The definition of a schedule, as it is."""
        return {
            "name": twin.name,
            "cron": twin.cron,
            "timezone": twin.timezone,
            "job": twin.job,
            "overlap": twin.overlap,
            "missed": twin.missed,
            "missed_max": twin.missed_max,
            "missed_after_ms": twin.missed_after_ms,
            "jitter_ms": twin.jitter_ms,
            "paused": twin.paused,
        }

    def finish(self) -> None:
        """Delete every schedule that has shown that it goes on."""
        if self.waits:
            return
        for twin in self.world.book.timetables.all.values():
            is_shown = twin.passed > 1 or twin.paused or twin.period_s > 10
            if is_shown and not twin.moving_to:
                self.ask("DeleteSchedule", schedule_id=twin.id)
