"""Stage 6: what clients can see by themselves.

No event is used to accuse: a server that lies in its feed is found here. All checks hold under
unknown outcomes: a call that may have had its effect counts as if it had, wherever that excuses.
The events are used to excuse only (a lost answer to a fetch took a job).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from chaos import history
from chaos.api import time_ns
from chaos.checks.outcomes import CONFIRMED, MS, Outcomes
from chaos.checks.report import Stage
from chaos.checks.schedules import NOW
from chaos.checks.sweeps import Point, most_at_once, overtaken
from chaos.checks.tables import DONE, DUPLICATE, INFO, NEVER, OK, REFUSED, UNKNOWN, Tables
from chaos.due_times import is_due
from chaos.history import FinalDone, NewJob

SLOW_CLOCK: Final = (9, 10)
"""A shard's clock gains at most a tenth on the time that passes, so a lease lasts at least this."""

PARKED_NS: Final = 2_000 * MS
"""A fetch that waits gets a job that comes meanwhile, within this."""
AGAIN: Final = ("retry", "requeue")
STOPPERS: Final = ("pause", "drain", "concurrency", "throttle", "clear", "delete_queue")


@dataclass(frozen=True)
class Hold:
    """A worker certainly has a job: from its answer to the fetch until the first possible end."""

    start: int
    end: int
    sent: int
    """When its fetch was sent."""
    row: int
    """Of `deliveries`."""


class BlackBox:
    """All checks of this stage."""

    def __init__(self, tables: Tables, outcomes: Outcomes | None, stage: Stage) -> None:
        self.tables, self.outcomes, self.stage = tables, outcomes, stage
        self.calls, self.items, self.got = tables.calls, tables.items, tables.deliveries
        find = tables.fs.find
        self.ends = {find(name): name for name in CONFIRMED}
        self.heartbeat, self.ack = find("heartbeat"), find("ack")
        self.again = {find(name) for name in AGAIN}
        self.operated = {find(name) for name in history.ITEMS_OF_OPERATORS}
        self.stopped: set[str] = {
            op.args.queue for _, op in tables.small_ops(*STOPPERS) if op.type != "fail"
        }
        self.emptied: set[str] = {
            op.args.queue
            for _, op in tables.small_ops("clear", "delete_queue")
            if op.type != "fail"
        }
        self.short_lived: set[str] = {
            op.args.queue for _, op in tables.small_ops("retention") if op.type != "fail"
        }
        self.moved = {
            self.items.job[item]
            for item, f in enumerate(self.items.f)
            if f == find("move") and self.items.how[item] != REFUSED
        }
        self.holds: dict[str, list[Hold]] = {}
        self.capped = {op.args.queue for _, op in tables.small_ops("concurrency")}
        self.first: dict[int, tuple[int, int]] = {}
        """Job to when its first delivery was sent at the earliest, and was back at the earliest."""

    def run(self) -> None:
        """Check all."""
        for job in range(1, len(self.tables.jobs)):
            rows = self.tables.deliveries_of.of(job)
            if rows:
                self.job(job, list(rows))
        self.repeats()
        self.order()
        self.caps()
        self.payloads()
        self.schedules()
        self.callbacks()
        self.reads()
        self.lost()

    # ---- what may excuse

    def calls_about(self, job: int, codes: set[int | None]) -> Iterator[int]:
        """Calls of some kinds about a job that were not rejected."""
        for item in self.tables.items_of.of(job):
            if self.items.f[item] in codes and self.items.how[item] != REFUSED:
                yield item

    def is_touched(self, job: int) -> bool:
        """Whether an operator may have changed the job."""
        return self.tables.may_be_bulk(job) or any(
            True for _ in self.calls_about(job, {*self.operated})
        )

    def may_vanish(self, job: int, queue: str) -> bool:
        """Whether the job may be gone without an error."""
        if (
            self.tables.may_be_bulk(job)
            or queue in self.emptied
            or (job in self.moved and self.emptied)
        ):
            return True
        if any(True for _ in self.calls_about(job, {self.tables.fs.find("delete")})):
            return True
        run = self.tables.run
        keeps = run is not None and not run.retention_ms
        return (
            not keeps or queue in self.short_lived or bool(job in self.moved and self.short_lived)
        )

    # ---- one job: leases and deliveries

    def job(self, job: int, rows: list[int]) -> None:
        """D3, L1 and L2 for one job."""
        self.stage.count("deliveries", len(rows))
        calls, got = self.calls, self.got
        items = self.tables.items_of.of(job)
        if len(rows) > 1:
            self.tokens(job, rows)
        if len(rows) > 1 or len(items) > 1:
            self.late_calls(job, rows, list(items))
        spec = self.tables.spec_of(job)
        queue = self.tables.queues.texts[got.queue[rows[0]]]
        if len(rows) > 1 or queue in self.capped:
            self.hold(job, rows, list(items), spec)
        # A slow answer can arrive after that of a later delivery, so these can be of two calls.
        self.first[job] = (
            min(calls.inv[got.call[row]] for row in rows),
            min(calls.ret[got.call[row]] for row in rows),
        )

    def name(self, job: int) -> str:
        """The id of a job."""
        return self.tables.jobs.texts[job]

    def ns(self, *calls: int) -> tuple[int, ...]:
        """The numbers of calls."""
        return tuple(self.calls.n[call] for call in calls)

    def tokens(self, job: int, rows: list[int]) -> None:
        """A lease token is given to one call, and a later delivery has a greater one."""
        calls, got = self.calls, self.got
        by_token: dict[int, int] = {}
        for row in rows:
            other = by_token.setdefault(got.token[row], row)
            if calls.op[got.call[other]] != calls.op[got.call[row]]:
                self.stage.wrong(
                    "L1",
                    f"two calls got job {self.name(job)} under lease token {got.token[row]}",
                    self.ns(got.call[other], got.call[row]),
                )
        first = [(calls.ret[got.call[r]], got.token[r], r) for r in by_token.values()]
        second = [(calls.inv[got.call[r]], got.token[r], r) for r in by_token.values()]
        for one, other in overtaken(first, second):
            self.stage.wrong(
                "L1",
                f"job {self.name(job)}: lease token {got.token[other]} was given out after "
                f"{got.token[one]}",
                self.ns(got.call[one], got.call[other]),
            )

    def late_calls(self, job: int, rows: list[int], items: list[int]) -> None:
        """An old lease token has no effect; an attempt ends once; an ack is final."""
        calls, got, about = self.calls, self.got, self.items
        ended: dict[int, tuple[int, int]] = {}
        for item in items:
            token, f, call = about.token[item], about.f[item], about.call[item]
            if about.how[item] != DONE or not token:
                continue
            is_beat = f == self.heartbeat and self.tables.states.texts[about.status[item]] == "ok"
            if not (is_beat or f in self.ends) or self.is_repeat(items, item):
                continue
            later = [
                row
                for row in rows
                if got.token[row] > token and calls.ret[got.call[row]] < calls.inv[call]
            ]
            if later:
                self.stage.wrong(
                    "L2",
                    f"job {self.name(job)}: {self.tables.fs.texts[f]} under lease token {token} "
                    f"was confirmed after {got.token[later[0]]} had been given out",
                    self.ns(call, got.call[later[0]]),
                )
            if f in self.ends:
                other, before = ended.setdefault(token, (f, call))
                if other != f:
                    self.stage.wrong(
                        "L2",
                        f"job {self.name(job)}: {self.ends[other]} and {self.ends[f]} were both "
                        f"confirmed under lease token {token}",
                        self.ns(before, call),
                    )
        self.after_ack(job, rows, items)

    def after_ack(self, job: int, rows: list[int], items: list[int]) -> None:
        """After a confirmed ack the job is not delivered again."""
        calls, got, about = self.calls, self.got, self.items
        acks = [item for item in items if about.f[item] == self.ack and about.how[item] != REFUSED]
        done = [
            item
            for item in acks
            if about.how[item] == DONE
            and self.tables.states.texts[about.status[item]] in ("completed", "ok")
        ]
        if not done or self.tables.may_be_bulk(job) or any(about.flags[item] & 2 for item in acks):
            return
        if any(True for _ in self.calls_about(job, {*self.again})) or self.is_reborn(job):
            return
        first = min(done, key=lambda item: calls.ret[about.call[item]])
        token, ack = about.token[first], about.call[first]
        for row in rows:
            if got.token[row] != token and calls.inv[got.call[row]] > calls.ret[ack]:
                self.stage.wrong(
                    "D3",
                    f"job {self.name(job)} was delivered after its ack was confirmed",
                    self.ns(ack, got.call[row]),
                )

    def is_reborn(self, job: int) -> bool:
        """Whether a deleted job of this id may have been created again."""
        rows = self.tables.enqueued_of.of(job)
        enqueued = self.tables.enqueued
        asked = {
            self.calls.op[enqueued.call[row]]
            for row in rows
            if enqueued.how[row] in (DONE, UNKNOWN)
        }
        return len(asked) > 1

    def is_repeat(self, items: list[int], item: int) -> bool:
        """Whether an earlier call with the same lease token can have had the effect."""
        about, ops = self.items, self.calls.op
        return any(
            other != item
            and about.token[other] == about.token[item]
            and about.f[other] == about.f[item]
            and (
                about.f[item] != self.heartbeat
                or ops[about.call[other]] == ops[about.call[item]]  # by its request key
            )
            and about.how[other] != REFUSED
            and self.calls.inv[about.call[other]] < self.calls.ret[about.call[item]]
            for other in items
        )

    def hold(self, job: int, rows: list[int], items: list[int], spec: NewJob | None) -> None:
        """While a worker certainly has the job, no other gets it."""
        calls, got, about = self.calls, self.got, self.items
        if self.tables.may_be_bulk(job) or (spec is not None and spec.expire_active):
            return
        seen: set[int] = set()
        for row in sorted(rows, key=lambda row: calls.ret[got.call[row]]):
            token, call = got.token[row], got.call[row]
            if token in seen:
                continue
            seen.add(token)
            longest = got.lease_ms[row]
            if spec is None or spec.max_run_ms:
                longest = min(longest, spec.max_run_ms if spec is not None else 0)
            end = calls.inv[call] + longest * MS * SLOW_CLOCK[0] // SLOW_CLOCK[1]
            for item in items:
                f = about.f[item]
                is_end = f in self.ends and about.token[item] in (token, 0)
                if about.how[item] != REFUSED and (is_end or f in self.operated):
                    end = min(end, calls.inv[about.call[item]])
            queue = self.tables.queues.texts[got.queue[row]]
            if queue in self.emptied:
                continue
            hold = Hold(calls.ret[call], end, calls.inv[call], row)
            if queue in self.capped and hold.start < hold.end:
                self.holds.setdefault(queue, []).append(hold)
            for other in rows:
                there = got.call[other]
                if (
                    got.token[other] != token
                    and calls.inv[there] >= hold.start
                    and calls.ret[there] <= hold.end
                ):
                    self.stage.wrong(
                        "L1",
                        f"job {self.name(job)} was given to a second worker while the lease of the "
                        "first one lasted",
                        self.ns(call, there),
                    )

    # ---- request keys

    def repeats(self) -> None:
        """Q1: all tries of a call have the same effect. U2: a duplicate has the same unique key."""
        tables, enqueued = self.tables, self.tables.enqueued
        jobs: dict[tuple[int, int], int] = {}
        for row, call in enumerate(enqueued.call):
            job, how = enqueued.job[row], enqueued.how[row]
            if how == DUPLICATE:
                self.duplicate(row)
            is_answered = job and how != UNKNOWN and self.calls.type[call] == OK
            if is_answered and self.calls.op[call] in tables.tries and self.calls.keyed[call]:
                name = (self.calls.op[call], enqueued.mark[row])
                other = jobs.setdefault(name, row)
                if enqueued.job[other] != job:
                    self.stage.wrong(
                        "Q1",
                        f"one request key made {self.name(enqueued.job[other])} and "
                        f"{self.name(job)}",
                        self.ns(enqueued.call[other], call),
                    )
        self.doubled()

    def doubled(self) -> None:
        """Q1: one job of a request is one job, also if its answer was lost: by its mark."""
        tables = self.tables
        asked = {mark for mark in tables.enqueued.mark if mark} - tables.marks
        known: dict[int, int] = {}
        told: set[int] = set()
        for marks, jobs in ((self.got.mark, self.got.job), (tables.ends.mark, tables.ends.job)):
            for mark, job in zip(marks, jobs, strict=True):
                if mark in asked and known.setdefault(mark, job) != job and job not in told:
                    told.add(job)
                    both = f"{self.name(known[mark])} and {self.name(job)}"
                    self.stage.wrong("Q1", f"one job of one request became two: {both}")

    def duplicate(self, row: int) -> None:
        """The job of a duplicate was enqueued with the same unique key, and not later."""
        tables, enqueued = self.tables, self.tables.enqueued
        own = tables.specs[enqueued.spec[row]]
        call, job = enqueued.call[row], enqueued.job[row]
        others = [one for one in tables.enqueued_of.of(job) if enqueued.how[one] in (DONE, UNKNOWN)]
        if not others or job in self.moved:
            return
        acked = self.acked_before(job, self.possibly(row))
        if acked >= 0:
            self.stage.wrong(
                "U2",
                f"{self.name(job)} keeps its unique key after its ack was confirmed",
                self.ns(acked, call),
            )
        fitting = [
            one
            for one in others
            if tables.specs[enqueued.spec[one]].unique_key == own.unique_key
            and tables.specs[enqueued.spec[one]].queue == own.queue
            and self.calls.inv[enqueued.call[one]] < self.calls.ret[call]
        ]
        if not fitting:
            self.stage.wrong(
                "U2",
                f"{self.name(job)} is called a duplicate, and was not enqueued with the unique key "
                f"{own.unique_key!r} before",
                self.ns(call, enqueued.call[others[0]]),
            )

    # ---- order

    def plain_jobs(self) -> Iterator[tuple[int, int, str, int]]:
        """Jobs that wait from their enqueue until a worker gets them: row, job, queue, priority."""
        tables, enqueued = self.tables, self.tables.enqueued
        seen: set[int] = set()
        for row, job in enumerate(enqueued.job):
            spec = tables.specs[enqueued.spec[row]]
            if (
                not job or enqueued.how[row] not in (DONE, UNKNOWN) or spec.delay_ms
                or spec.scheduled_at_ns or spec.depends_on or spec.expire_after_ms
                or spec.queue in self.emptied or job in seen or self.is_touched(job)
                or self.is_reborn(job)
            ):  # fmt: skip
                continue
            seen.add(job)
            yield row, job, spec.queue, spec.priority

    def surely(self, row: int) -> int:
        """From when on a job certainly existed, by the answers alone."""
        enqueued, calls = self.tables.enqueued, self.calls
        if enqueued.how[row] == DONE:
            return calls.ret[enqueued.call[row]]
        return self.first.get(enqueued.job[row], (NEVER, NEVER))[1]

    def possibly(self, row: int) -> int:
        """Until when a job certainly did not exist."""
        call = self.tables.enqueued.call[row]
        tries = self.tables.tries.get(self.calls.op[call], [call])
        return min(self.calls.inv[one] for one in tries)

    def taken(self, job: int, queue: str, lost: dict[str, int]) -> int:
        """Until when a job certainly waited: it was not taken before."""
        if job in self.first:
            inv = self.first[job][0]
            if self.outcomes is None:
                return min(inv, lost.get(queue, NEVER))
            # By the events, an earlier attempt was one whose answer, or a part of it, got lost.
            return inv if self.knows_first(job) else -1
        if self.tables.ends.state_of(job) == "pending":
            return min(lost.get(queue, NEVER), self.end)
        return -1

    def knows_first(self, job: int) -> bool:
        """Whether the first attempt of a job, by the events, is one whose answer arrived."""
        assert self.outcomes is not None
        events = self.tables.events
        started = self.tables.feeding.types.find("started")
        for row in self.tables.events_of.of(job):
            if events.type[row] == started:
                return self.outcomes.delivery[row] >= 0
        return False

    end = NEVER

    def order(self) -> None:
        """O2, O3 and O6."""
        tables, calls = self.tables, self.calls
        quiet = tables.phase_time("quiet")
        self.end = quiet if quiet is not None else NEVER
        lost: dict[str, int] = {}
        empty: dict[str, list[Point]] = {}
        for call, (queues, _, wait_ms, _) in tables.fetches.items():
            for queue in (tables.queues.texts[number] for number in queues):
                if calls.type[call] == INFO:
                    lost[queue] = min(lost.get(queue, NEVER), calls.inv[call])
            if calls.type[call] == OK and len(queues) == 1:
                name = tables.queues.texts[queues[0]]
                begin = calls.inv[call]
                if wait_ms:
                    begin = max(begin, calls.ret[call] - PARKED_NS)
                begin = min(tables.calm_since(begin), tables.calm_since(calls.ret[call]))
                empty.setdefault(name, []).append((begin, calls.ret[call], call))
        firsts: dict[tuple[str, int], list[Point]] = {}
        seconds: dict[tuple[str, int], list[Point]] = {}
        for row, job, queue, priority in self.plain_jobs():
            taken = self.taken(job, queue, lost)
            if taken > 0:
                point = (self.surely(row), taken, job)
                firsts.setdefault((queue, priority), []).append(point)
            if job in self.first:
                point = (self.possibly(row), self.first[job][1], job)
                seconds.setdefault((queue, priority), []).append(point)
        for (queue, priority), waiting in firsts.items():
            self.stage.count("jobs in order", len(waiting))
            for one, other in overtaken(waiting, seconds.get((queue, priority), [])):
                self.stage.wrong(
                    "O2",
                    f"queue {queue}: {self.name(other)} was delivered before {self.name(one)}, "
                    "which was enqueued before it",
                    self.ns(*self.calls_of(one), *self.calls_of(other)),
                )
            if queue not in self.stopped and not self.may_steal:
                for one, call in overtaken(waiting, empty.get(queue, [])):
                    self.stage.wrong(
                        "O6",
                        f"a fetch from queue {queue} got no job while {self.name(one)} waited",
                        self.ns(*self.calls_of(one), call),
                    )
        self.stage.count("empty fetches", sum(len(points) for points in empty.values()))
        self.priorities(firsts)

    @property
    def may_steal(self) -> bool:
        """Whether answers with a part of the jobs may have hidden that others were taken."""
        return self.outcomes is None and bool(self.tables.faults and self.tables.wide_workers)

    def calls_of(self, job: int) -> tuple[int, ...]:
        """The enqueue and the first delivery of a job."""
        enqueued = [self.tables.enqueued.call[row] for row in self.tables.enqueued_of.of(job)]
        got = [self.got.call[row] for row in self.tables.deliveries_of.of(job)]
        return (*enqueued[:1], *got[:1])

    def priorities(self, firsts: dict[tuple[str, int], list[Point]]) -> None:
        """O3: no job is delivered while one of a better priority certainly waits."""
        used = {queue for queue, priority in firsts if priority < 2}
        if not used:
            return
        tables, got = self.tables, self.got
        served: dict[tuple[str, int], list[Point]] = {}
        for row, job in enumerate(got.job):
            queue = tables.queues.texts[got.queue[row]]
            spec = tables.spec_of(job) if queue in used else None
            if spec is None or self.is_touched(job):
                continue
            call = got.call[row]
            point = (self.calls.inv[call], self.calls.ret[call], job)
            served.setdefault((queue, spec.priority), []).append(point)
        for (queue, priority), points in served.items():
            better = [
                point for level in range(priority) for point in firsts.get((queue, level), [])
            ]
            for one, other in overtaken(better, points):
                self.stage.wrong(
                    "O3",
                    f"queue {queue}: {self.name(other)} of priority {priority} was delivered while "
                    f"{self.name(one)} of a better one waited",
                    self.ns(*self.calls_of(one), *self.calls_of(other)),
                )

    # ---- limits

    def caps(self) -> None:
        """C1: never more jobs at once than the queue's concurrency."""
        tables, calls = self.tables, self.calls
        for queue in sorted(self.capped):
            changes = sorted(
                (calls.inv[call], calls.ret[call], op.args.number, op.type)
                for call, op in tables.small_ops("concurrency", "delete_queue")
                if op.args.queue == queue and op.type != "fail"
            )
            holds = self.holds.get(queue, [])
            self.stage.count("holds", len(holds))
            for at, (_, ret, cap, kind) in enumerate(changes):
                until = min((inv for inv, _, _, _ in changes[at + 1 :]), default=NEVER)
                overlaps = any(other > ret for _, other, _, _ in changes[:at])
                if kind != "ok" or not cap or overlaps:
                    continue
                inside = [
                    (hold.start, min(hold.end, until), hold.row)
                    for hold in holds
                    if hold.sent > ret and hold.start < until
                ]
                most, _, rows = most_at_once(inside)
                if most > cap:
                    self.stage.wrong(
                        "C1",
                        f"queue {queue} had {most} active jobs at once, of {cap}",
                        self.ns(*(self.got.call[row] for row in rows[:8])),
                    )

    # ---- payloads, reads, and the end

    def payloads(self) -> None:
        """D2: each job that was seen has a cause, and the payload that was sent."""
        tables, enqueued = self.tables, self.tables.enqueued
        if tables.run is None or not tables.run.is_fresh:
            return
        rows = zip(self.got.job, self.got.mark, self.got.sha, self.got.call, strict=True)
        for job, mark, sha, call in rows:
            self.payload(job, mark, sha, self.ns(call))
        ends = tables.ends
        for job, mark, sha in zip(ends.job, ends.mark, ends.sha, strict=True):
            if mark:
                self.payload(job, mark, sha, ())
        self.stage.count("payloads", len(self.got.job) + len(enqueued.job))

    def payload(self, job: int, mark: int, sha: int, ops: tuple[int, ...]) -> None:
        """The payload of one job, as it was seen."""
        tables, enqueued = self.tables, self.tables.enqueued
        rows = [row for row in tables.enqueued_of.of(job) if enqueued.how[row] in (DONE, UNKNOWN)]
        if not rows:
            if mark not in tables.marks and mark not in self.nameless:
                self.stage.wrong("D2", f"job {self.name(job)} was never asked for", ops)
            return
        if mark and all(enqueued.mark[row] != mark for row in rows):
            asked = self.ns(enqueued.call[rows[0]])
            self.stage.wrong("D2", f"job {self.name(job)} has another payload", (*ops, *asked))
        elif sha and all(enqueued.sha[row] not in (sha, 0) for row in rows):
            asked = self.ns(enqueued.call[rows[0]])
            self.stage.wrong(
                "D2", f"job {self.name(job)} has a payload with other bytes", (*ops, *asked)
            )

    def schedules(self) -> None:
        """K1: each job of a schedule is one of a due time, by some definition of the schedule."""
        tables = self.tables
        specs = {
            name: {op.args.schedule for _, op in ops if op.args.schedule is not None}
            for name, ops in tables.schedules.items()
        }
        if not specs:
            return
        for job in {*self.got.job, *tables.ends.job}:
            name, _, text = self.name(job).rpartition("@")
            if name not in specs or text.startswith(NOW):
                continue
            self.stage.count("due times")
            due = time_ns(text)
            if not any(is_due(spec.cron, spec.timezone, due) for spec in specs[name]):
                calls = [self.got.call[row] for row in tables.deliveries_of.of(job)]
                self.stage.wrong("K1", f"{self.name(job)} is a job of no due time", self.ns(*calls))

    def callbacks(self) -> None:
        """B1: the counts of a callback add up, and have each job that was confirmed."""
        tables = self.tables
        for job, (batch, total, *ended) in tables.callbacks.items():
            self.stage.count("callbacks")
            calls = self.ns(*(self.got.call[row] for row in tables.deliveries_of.of(job)))
            _, rows = tables.batches.get(batch, (0, ()))
            least = sum(1 for row in rows if tables.enqueued.how[row] == DONE)
            if total != sum(ended) or total < least:
                self.stage.wrong(
                    "B1",
                    f"batch {batch} with {least} confirmed jobs calls back with {total} jobs, of "
                    f"which {' + '.join(map(str, ended))} have ended",
                    calls,
                )

    @property
    def nameless(self) -> set[int]:
        """Marks of enqueues without a known job."""
        rows = self.tables.enqueued
        if self._nameless is None:
            self._nameless = {
                rows.mark[row]
                for row, job in enumerate(rows.job)
                if not job and rows.how[row] == UNKNOWN
            }
        return self._nameless

    _nameless: set[int] | None = None

    def reads(self) -> None:
        """V2: a read sees what was confirmed before it."""
        tables, calls = self.tables, self.calls
        for n, how in tables.stale:
            self.stage.wrong("V2", f"a read is older than the position it was sent: {how}", (n,))
        for call, job, state in tables.gets:
            if calls.type[call] != OK or call in tables.weak:
                continue
            self.stage.count("reads")
            if not state:
                self.missing(job, call)
            else:
                self.read_state(job, state, call)
        for call, op in tables.small_ops("search"):
            if op.type != "ok" or op.args.consistency == "stale" or op.res.is_behind or op.min_seq:
                continue  # with a position it waits for that instead of all that was confirmed
            self.stage.count("reads")
            for row in op.res.rows:
                self.read_state(tables.jobs.find(row.job_id) or 0, row.state, call)

    def missing(self, job: int, call: int) -> None:
        """A job was not found: it must not have been confirmed before."""
        enqueued = self.tables.enqueued
        for row in self.tables.enqueued_of.of(job):
            asked = enqueued.call[row]
            if enqueued.how[row] == DONE and self.calls.ret[asked] < self.calls.inv[call]:
                queue = self.tables.specs[enqueued.spec[row]].queue
                if not self.may_vanish(job, queue):
                    self.stage.wrong(
                        "V2",
                        f"job {self.name(job)} was not found after it was confirmed",
                        self.ns(asked, call),
                    )

    def read_state(self, job: int, state: str, call: int) -> None:
        """A job was read in a state: after a confirmed ack, it is completed."""
        acked = -1 if state == "completed" else self.acked_before(job, self.calls.inv[call])
        if acked >= 0:
            self.stage.wrong(
                "V2",
                f"job {self.name(job)} was read as {state} after its ack was confirmed",
                self.ns(acked, call),
            )

    def acked_before(self, job: int, time: int) -> int:
        """The call that certainly completed a job for good before a time; -1 without one."""
        if not job or self.is_reborn(job) or self.tables.may_be_bulk(job):
            return -1
        about = self.items
        acks = list(self.calls_about(job, {self.ack}))
        again = any(True for _ in self.calls_about(job, {*self.again}))
        if again or any(about.flags[item] & 2 for item in acks):
            return -1
        for item in acks:
            is_done = self.tables.states.texts[about.status[item]] in ("completed", "ok")
            if about.how[item] == DONE and is_done and self.calls.ret[about.call[item]] < time:
                return about.call[item]
        return -1

    def lost(self) -> None:
        """D1: each confirmed job is there at the end, or was allowed to go."""
        tables, enqueued = self.tables, self.tables.enqueued
        if not any(isinstance(record, FinalDone) for record in tables.final):
            return
        for row, job in enumerate(enqueued.job):
            if enqueued.how[row] != DONE:
                continue
            self.stage.count("confirmed jobs")
            if tables.ends.row(job) >= 0 or self.may_vanish(
                job, tables.specs[enqueued.spec[row]].queue
            ):
                continue
            self.stage.wrong(
                "D1",
                f"job {self.name(job)} was confirmed, and does not exist at the end",
                self.ns(enqueued.call[row]),
            )


def check(tables: Tables, outcomes: Outcomes | None, stage: Stage) -> None:
    """Check what clients saw."""
    BlackBox(tables, outcomes, stage).run()
