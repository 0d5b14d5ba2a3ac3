"""Shards with thousands of schedules, and everything that happens to them in a year."""

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.jobs import Delete
from corvo.protocol.ops.schedules import (
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    PauseSchedule,
    ScheduleDone,
)
from corvo.shard.firing import Firing
from corvo.shard.ops.schedules import FireSchedules
from corvo.shard.ops.transfer import Delivered
from corvo.shard.state.outbox import last_taken
from corvo.shard.state.tables import SCHEDULES, TIMERS, Timer
from tests.shard.cluster import Cluster
from tests.shard.shard import Shard
from tests.sim.chance import fork
from tests.sim.failures import Violation
from tests.sim.years.calendar import due_times
from tests.sim.years.plans import Plan, S, draw

SHARDS: Final = 4
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_NS: Final = round(BEGIN.timestamp()) * S
HOUR_NS: Final = 3_600 * S
DOWN_NS: Final = (5 * 60 * S, HOUR_NS, 7 * HOUR_NS, 50 * HOUR_NS)
STALE: Final = 40
"""Ops of the leaders before that may come again."""
_DISTURBANCES: Final = (
    *("lead", "restart", "stale", "stale", "down", "relay", "relay", "relay", "relay"),
    *("move", "move", "pause", "pause", "change", "delete", "same"),
)
_FIRST: Final = keys.JOB.prefix
_END: Final = prefix_end(_FIRST)
_TIMER: Final = TIMERS[Timer.SCHEDULE]
_DELETED_AT_ONCE: Final = 1_000


class Home:
    """One shard and its leader."""

    def __init__(self, shard: Shard) -> None:
        self.shard: Final = shard
        self.firing = Firing()
        self.down_since_ns = 0
        """The time at which it was left without a leader; 0 while it has one."""
        self.down_until_ns = 0
        self.stale: deque[FireSchedules] = deque(maxlen=STALE)

    @property
    def is_up(self) -> bool:
        """Whether it has a leader."""
        return not self.down_since_ns

    def next_ns(self) -> int:
        """The time at which it has something to do."""
        if not self.is_up:
            return self.down_until_ns
        first = self.shard.tx.head(_TIMER).keys
        at = len(_TIMER.prefix)
        return int.from_bytes(first[0][at : at + 8], "big") if first else 1 << 63


class Year:
    """One life of all of them."""

    def __init__(self, seed: int, *, schedules: int, days: int, pace_ns: int = HOUR_NS) -> None:
        self.counts: Counter[str] = Counter()
        self._random = fork(seed, "year")
        self._pace_ns = pace_ns
        """The mean time between two disturbances."""
        self._end_ns = BEGIN_NS + days * 24 * HOUR_NS
        self._cluster = Cluster(SHARDS)
        self._homes = [Home(shard) for shard in self._cluster.shards]
        self._queues = _queues()
        self._now_ns = BEGIN_NS
        self._moving: dict[str, int] = {}
        """Schedules on their way to another shard, and when they left."""
        random = fork(seed, "schedules")
        self._plans = {
            f"n{number}": Plan(f"n{number}", draw(random), random) for number in range(schedules)
        }
        self._spare = [draw(Random(number)) for number in range(60)]
        """Timetables to which schedules are changed."""
        timetables = [*(plan.timetable for plan in self._plans.values()), *self._spare]
        crons = [each for each in timetables if not each[0].startswith("@")]
        end = BEGIN + timedelta(days=days)
        self._calendar = due_times(crons, BEGIN_NS // S, round(end.timestamp()))

    # The run.

    def run(self) -> int:
        """The whole life; the number of due times."""
        self._create_all()
        disturbed_ns = self._now_ns
        while True:
            due_ns = min(home.next_ns() for home in self._homes)
            self._now_ns = max(self._now_ns, min(due_ns, disturbed_ns))
            if self._now_ns >= self._end_ns:
                break
            self._start_again()
            is_disturbed = disturbed_ns <= self._now_ns
            is_first = self._random.random() < 0.5
            if is_disturbed and is_first:
                self._disturb()
            self._lead_all()
            if is_disturbed:
                if not is_first:
                    self._disturb()
                disturbed_ns = self._next_disturbance()
        return self._finish()

    def _next_disturbance(self) -> int:
        """Any time; often that of the next due time of a schedule."""
        random = self._random
        at_ns = self._now_ns + int(random.expovariate(1 / self._pace_ns)) + 1
        plan = random.choice([*self._plans.values()])
        if random.random() < 0.5 and plan.is_at_rest:
            schedule = SCHEDULES.get(self._home(plan.queue).shard.tx, plan.id)
            if schedule is not None and self._now_ns < schedule.next_ns < at_ns + 2 * self._pace_ns:
                return schedule.next_ns
        return at_ns

    def _create_all(self) -> None:
        for home in self._homes:
            home.shard.clock_ns = self._now_ns
        for plan in self._plans.values():
            plan.queue = self._random.choice(self._queues)
            self._create(plan)
        self._lead_all()

    def _create(self, plan: Plan) -> None:
        shard = self._home(plan.queue).shard
        done = shard.do(CreateSchedule(schedule=plan.new(plan.queue)))
        assert isinstance(done, ScheduleDone), done
        plan.begins(shard.now_ns, is_anchor=True)

    def _finish(self) -> int:
        """Everything arrives and is fired, and is what was due."""
        for home in self._homes:
            home.down_until_ns = self._now_ns
        self._start_again()
        self._lead_all()
        for _ in range(100):
            self._relay(is_whole=True)
        self._lead_all()
        total = 0
        for plan in self._plans.values():
            if plan.moves_to:
                raise Violation("X5", f"{plan.id} has not come to {plan.moves_to}")
            plan.ends(self._now_ns)
        # What the jitter delays comes some seconds later.
        end_ns = self._now_ns + 60 * S
        while (due_ns := min(home.next_ns() for home in self._homes)) <= end_ns:
            self._now_ns = max(self._now_ns, due_ns)
            self._lead_all()
        for plan in self._plans.values():
            total += plan.check(self._calendar)
        for home in self._homes:
            home.shard.check()
        self.counts["due times"] = total
        self.counts["fired"] = sum(len(plan.fired) for plan in self._plans.values())
        return total

    # Leaders.

    def _home(self, queue: str) -> Home:
        return self._homes[shard_of_queue(queue, SHARDS)]

    def _start_again(self) -> None:
        for home in self._homes:
            if not home.is_up and home.down_until_ns <= self._now_ns:
                for plan in self._plans.values():
                    if plan.is_at_rest and self._home(plan.queue) is home:
                        plan.blocked(home.down_since_ns, self._now_ns)
                home.down_since_ns = 0
                home.shard.reopen()
                home.firing = Firing()

    def _lead_all(self) -> None:
        for home in self._homes:
            if home.is_up and home.next_ns() <= self._now_ns:
                self._lead(home)

    def _lead(self, home: Home) -> None:
        random, shard = self._random, home.shard
        shard.clock_ns = self._now_ns
        for _ in range(1_000):
            op = home.firing.op(shard.tx, self._now_ns)
            if op is None:
                break
            chance = random.random()
            if chance < 0.02:
                self.counts["proposals lost"] += 1
                home.stale.append(op)
                home.firing = Firing()
                continue
            shard.entry(op)
            if chance < 0.05:
                home.stale.append(op)
            elif chance < 0.07:
                self.counts["proposals that came twice"] += 1
                shard.entry(op)
            elif chance < 0.08:
                self.counts["restarts"] += 1
                shard.reopen()
                home.firing = Firing()
        else:
            raise Violation("D4", "the leader does not come to an end")
        self._take_jobs(home)
        shard.log.clear()

    def _take_jobs(self, home: Home) -> None:
        """Note the jobs that are there, and delete them: each one is found once."""
        shard = home.shard
        while found := shard.store.keys(_FIRST, _END, limit=_DELETED_AT_ONCE):
            ids = [key[len(_FIRST) :].decode() for key in found]
            for job_id in ids:
                schedule, _, due = job_id.rpartition("@")
                queue, _, name = schedule.partition("~")
                due_s = round(datetime.fromisoformat(due).timestamp())
                self._plans[name].found(due_s, queue, self._now_ns)
            shard.entry(Delete(job_ids=ids))

    # Disturbances.

    def _disturb(self) -> None:
        random = self._random
        home = random.choice(self._homes)
        if home.is_up:
            home.shard.clock_ns = self._now_ns
        match random.choice(_DISTURBANCES):
            case "lead" if home.is_up:
                self.counts["leader changes"] += 1
                home.firing = Firing()
            case "restart" if home.is_up:
                self.counts["restarts"] += 1
                home.shard.reopen()
                home.firing = Firing()
            case "stale" if home.is_up and home.stale:
                self.counts["stale proposals"] += 1
                home.shard.do(random.choice(home.stale))
                self._take_jobs(home)
            case "down" if home.is_up and random.random() < 0.3:
                self._lead(home)  # what is due now is fired
                self.counts["times without a leader"] += 1
                home.down_since_ns = self._now_ns
                home.down_until_ns = self._now_ns + random.choice(DOWN_NS)
            case "relay":
                self._relay()
            case "move" | "pause" | "change" | "delete" | "same" as what:
                self._ask(what)
            case _:
                pass

    def _ask(self, what: str) -> None:
        """A client changes a schedule."""
        plan = self._some_plan()
        if plan is None:
            return
        self.counts[f"client {what}"] += 1
        home = self._home(plan.queue)
        shard = home.shard
        shard.clock_ns = self._now_ns
        # An op that the leader has computed may come in the same entry, before or after.
        with_leader = (
            home.firing.op(shard.tx, self._now_ns) if self._random.random() < 0.3 else None
        )
        old = plan.timetable
        match what:
            case "move":
                queue = self._random.choice([it for it in self._queues if it != plan.queue])
                op: Op = ChangeSchedule(schedule_id=plan.id, schedule=plan.new(queue))
            case "pause":
                op = PauseSchedule(schedule_id=plan.id, paused=not plan.is_paused)
            case "delete":
                op = DeleteSchedule(schedule_id=plan.id)
            case _:
                if what == "change":
                    plan.timetable = self._random.choice(self._spare)
                op = ChangeSchedule(schedule_id=plan.id, schedule=plan.new(plan.queue))
        both: list[Op] = [op] if with_leader is None else [with_leader, op]
        if self._random.random() < 0.5:
            both.reverse()
        for answer in shard.entry(*both):
            assert not answer.code, answer
        self._take_jobs(home)
        self._changed(plan, what, old, home)

    def _some_plan(self) -> Plan | None:
        random = self._random
        due = [
            plan
            for plan in random.choices([*self._plans.values()], k=40)
            if plan.is_at_rest and self._home(plan.queue).is_up and not plan.jitter_ms
        ]
        # Rather one that is due in this instant.
        return max(due, key=self._is_due, default=None)

    def _is_due(self, plan: Plan) -> bool:
        schedule = SCHEDULES.get(self._home(plan.queue).shard.tx, plan.id)
        assert schedule is not None, plan.id
        return schedule.next_ns == self._now_ns

    def _changed(self, plan: Plan, what: str, old: tuple[str, str], home: Home) -> None:
        at_ns = home.shard.now_ns
        match what:
            case "pause":
                plan.is_paused = not plan.is_paused
                if plan.is_paused:
                    plan.ends(at_ns)
                else:
                    plan.begins(at_ns, is_anchor=False)
            case "delete":
                plan.ends(at_ns)
                plan.is_deleted = True
            case "change" if old != plan.timetable:
                new, plan.timetable = plan.timetable, old
                plan.ends(at_ns)
                plan.timetable = new
                plan.begins(at_ns, is_anchor=True)
                if plan.is_paused:
                    plan.ends(at_ns)
            case "move":
                schedule = SCHEDULES.get(home.shard.tx, plan.id)
                plan.moves_to = schedule.moving_to if schedule is not None else ""
                self._moved(plan, home, at_ns)
            case _:
                pass

    def _moved(self, plan: Plan, home: Home, at_ns: int) -> None:
        """A schedule has left its queue: for another one of the same shard it is there at once."""
        if plan.moves_to:
            self._moving[plan.name] = at_ns
            return
        [plan.queue] = [
            queue
            for queue in self._queues
            if SCHEDULES.get(home.shard.tx, f"{queue}~{plan.name}") is not None
        ]

    # The relay.

    def _relay(self, *, is_whole: bool = False) -> None:
        """Bring some effects, perhaps twice, and perhaps without telling."""
        random = self._random
        for source, home in enumerate(self._homes):
            if not home.is_up:
                continue
            for row in self._cluster.firsts(home.shard):
                target = self._homes[row.shard]
                if not target.is_up or (not is_whole and random.random() < 0.3):
                    continue
                target.shard.clock_ns = home.shard.clock_ns = self._now_ns
                times = 2 if random.random() < 0.1 else 1
                for _ in range(times):
                    self._cluster.bring(source, [row])
                self.counts["effects"] += 1
                if is_whole or random.random() < 0.8:
                    taken = last_taken(target.shard.tx, source)
                    home.shard.do(Delivered(shard=row.shard, seq=min(row.seq, taken)))
                self._arrived(target)
                self._lead(target)

    def _arrived(self, target: Home) -> None:
        for name, since_ns in [*self._moving.items()]:
            plan = self._plans[name]
            if self._home(plan.moves_to) is target:
                there = f"{plan.moves_to}~{name}"
                if SCHEDULES.get(target.shard.tx, there) is not None:
                    plan.queue, plan.moves_to = plan.moves_to, ""
                    plan.blocked(since_ns, self._now_ns)
                    del self._moving[name]


def _queues() -> list[str]:
    """Two queues of each shard."""
    found: dict[int, list[str]] = {}
    for number in range(100):
        found.setdefault(shard_of_queue(f"q{number}", SHARDS), []).append(f"q{number}")
    return [queue for shard in range(SHARDS) for queue in found[shard][:2]]
