"""Stage 2: what was answered, and what the log says happened.

Each op is joined with its events. A confirmed op without its event, and a rejected one with an
event, are violations. An op whose outcome is unknown either has an event, and then happened
between its request and the first time that anybody saw it, or never happened. So later stages have
nothing to guess (etcd's robustness tests found this trick).

Jobs are joined by id. A delivery and its event `started` are the same if the lease ends the length
of the lease after the event. The call that ended an attempt is known by its lease token.
"""

from array import array
from dataclasses import dataclass
from typing import Final

from chaos.checks.feeds import NUMBER_BITS
from chaos.checks.report import Stage
from chaos.checks.tables import DONE, FAIL, INFO, NEVER, REFUSED, UNKNOWN, Tables

MS: Final = 1_000_000

ENDS: Final = (
    "completed", "failed", "dead", "crashed", "released", "snoozed", "cancelled", "held",
    "continued", "deleted",
)  # fmt: skip
"""Events that end an attempt."""

CONFIRMED: Final[dict[str, tuple[str, ...]]] = {
    "ack": ("completed", "continued", "held", "cancelled"),
    "fail": ("failed", "dead", "cancelled"),
    "release": ("released", "cancelled"),
    "snooze": ("snoozed", "cancelled"),
}
"""How an attempt can have ended whose worker's call was confirmed."""

ONLY_BY: Final[dict[str, str]] = {
    "completed": "ack", "continued": "ack", "snoozed": "snooze", "failed": "fail",
}  # fmt: skip
"""Events that only this call of a worker can cause (`failed` also the end of the run time)."""

OPERATED: Final[dict[str, tuple[str, ...]]] = {
    "retry": ("retried",),
    "requeue": ("requeued",),
    "expedite": ("promoted",),
    "cancel": ("cancelled", "asked_to_stop"),
    "hold": ("held",),
    "approve": ("approved",),
    "reject": ("rejected",),
    "priority": ("priority",),
    "delete": ("deleted",),
}
"""Events of an operator's call."""

ONLY_OPERATED: Final = ("retried", "requeued", "approved", "rejected", "priority")
"""Those that have no other cause."""


@dataclass
class Attempt:
    """One attempt of a job: the events that began and ended it."""

    start: int
    end: int = -1
    token: int = 0


class Effects:
    """Ops and their events, as columns."""

    def __init__(self) -> None:
        self.row = array("i")
        """Of the event."""
        self.inv = array("q")
        self.ret = array("q")
        """The earliest and the latest time of the op (NEVER: unknown)."""
        self.call = array("i")

    def append(self, effect: tuple[int, int, int, int]) -> None:
        """Add one: row, earliest and latest time, call."""
        self.row.append(effect[0])
        self.inv.append(effect[1])
        self.ret.append(effect[2])
        self.call.append(effect[3])


@dataclass
class Outcomes:
    """What is known after the join. Rows of events are those of `tables.events`."""

    surely: "array[int]"
    """By row of `enqueued`: the job certainly existed from then on (NEVER: it never did)."""
    possibly: "array[int]"
    """By row of `enqueued`: the job certainly did not exist before."""
    creation: "array[int]"
    """By row of `enqueued`: the row of its event; -1 if it has none."""
    delivery: "array[int]"
    """By row of an event `started`: the row of `deliveries`; -1 if no worker got it."""
    effects: Effects


class Joining:
    """The join, job by job."""

    def __init__(self, tables: Tables, stage: Stage) -> None:
        self.tables, self.stage = tables, stage
        rows = len(tables.enqueued.call)
        self.out = Outcomes(
            array("q", [NEVER]) * rows,
            array("q", bytes(8 * rows)),
            array("i", [-1]) * rows,
            array("i", [-1]) * len(tables.events.key),
            Effects(),
        )
        types = tables.feeding.types
        self.code = {name: types.find(name) for name in (*ENDS, "started", "enqueued")}
        self.ends = {types.find(name) for name in ENDS}
        self.f = {name: tables.fs.find(name) for name in (*CONFIRMED, *OPERATED)}
        self.lossy = {
            worker
            for call, (_, worker, _, _) in tables.fetches.items()
            if tables.calls.type[call] == INFO
        }
        if tables.faults:
            # A fetch asks the shards of all its queues. If one of them loses its leader, the answer
            # has the jobs of the others, and its own jobs come again when their leases have ended.
            self.lossy |= set(tables.deliveries.worker) | {
                worker for queues, worker, _, _ in tables.fetches.values() if len(queues) > 1
            }
        self.workers = set(tables.deliveries.worker) | {
            worker for _, worker, _, _ in tables.fetches.values()
        }

    def run(self) -> Outcomes:
        """Join all jobs."""
        for job in range(1, len(self.tables.jobs)):
            rows = self.tables.ordered_events(job)
            self.creations(job, rows)
            attempts = self.attempts(rows)
            self.deliveries(job, attempts)
            items = self.tables.items_of.of(job)
            if items or attempts:
                self.endings(job, rows, attempts, items)
        self.refused()
        return self.out

    # ---- enqueues

    def creations(self, job: int, rows: "list[int]") -> None:
        """Join the enqueues of a job with its creation, or its creations one after the other."""
        tables, out = self.tables, self.out
        enqueued, calls, events = tables.enqueued, tables.calls, tables.events
        asked = tables.enqueued_of.of(job)
        if not asked:
            return
        made = [row for row in rows if events.type[row] == self.code["enqueued"]]
        groups: dict[int, list[int]] = {}
        for row in asked:
            groups.setdefault(calls.op[enqueued.call[row]], []).append(row)
        done = [group for group in groups.values() if any(enqueued.how[r] == DONE for r in group)]
        maybe = [
            group
            for group in groups.values()
            if any(enqueued.how[r] == UNKNOWN for r in group) and group not in done
        ]
        self.stage.count("enqueues", len(asked))
        for group in done:
            inv, ret, call = self.interval(group)
            event = self.creation_of(made, group, len(done))
            if event >= 0:
                out.effects.append((event, inv, ret, call))
                self.position(event, call)
            elif self.is_covered(call, job):
                self.stage.wrong(
                    "D1",
                    f"job {tables.jobs.texts[job]} was confirmed, and no event created it",
                    (calls.n[call],),
                )
            for row in group:
                if enqueued.how[row] in (DONE, UNKNOWN):
                    out.possibly[row], out.surely[row], out.creation[row] = inv, ret, event
        if len(done) > len(made) and made and self.is_covered(self.interval(done[-1])[2], job):
            self.stage.wrong(
                "Q1",
                f"job {tables.jobs.texts[job]} was confirmed as new {len(done)} times, and "
                f"created {len(made)} times",
                tuple(calls.n[self.interval(group)[2]] for group in done),
            )
        if made and not done and maybe:
            seen = min(events.seen[made[0]], self.first_delivery(job))
            for group in maybe:
                inv, _, call = self.interval(group)
                for row in group:
                    out.possibly[row], out.surely[row] = inv, seen
                    out.creation[row] = made[0] if len(maybe) == 1 else -1
                if len(maybe) == 1 and len(made) == 1:
                    out.effects.append((made[0], inv, NEVER, call))
        elif made and not done and all(calls.type[enqueued.call[row]] == FAIL for row in asked):
            self.stage.wrong(
                "D6",
                f"job {tables.jobs.texts[job]} was created, and every enqueue of it was rejected",
                tuple(calls.n[enqueued.call[row]] for row in asked),
                (events.name(made[0]),),
            )
        if not made and not done:
            seen = self.first_delivery(job)
            for group in maybe:
                for row in group:
                    out.possibly[row], out.surely[row] = self.interval(group)[0], seen

    def interval(self, group: list[int]) -> tuple[int, int, int]:
        """Of enqueues that are tries of one call: when it can have had its effect, and the call."""
        calls, enqueued = self.tables.calls, self.tables.enqueued
        own = [enqueued.call[row] for row in group]
        tries = self.tables.tries.get(calls.op[own[0]], own)
        inv = min(calls.inv[call] for call in tries if calls.type[call] != FAIL or call in own)
        good = [enqueued.call[row] for row in group if enqueued.how[row] == DONE]
        if not good:
            return inv, NEVER, own[0]
        first = min(good, key=calls.ret.__getitem__)
        return inv, calls.ret[first], first

    def creation_of(self, made: list[int], group: list[int], groups: int) -> int:
        """The event that created a job, if it is certain which one."""
        if len(made) == 1 and groups == 1:
            return made[0]
        for row in group:
            for event in made:
                shard, seq, _ = self.tables.events.name(event)
                if self.tables.seq_of(self.tables.enqueued.call[row], shard) == seq:
                    return event
        return -1

    def first_delivery(self, job: int) -> int:
        """When a worker first had the job."""
        calls, deliveries = self.tables.calls, self.tables.deliveries
        return min(
            (calls.ret[deliveries.call[row]] for row in self.tables.deliveries_of.of(job)),
            default=NEVER,
        )

    def refused(self) -> None:
        """Enqueues that were certainly rejected must not have made a job, by their marks."""
        tables = self.tables
        rows = tables.enqueued
        seen = set(tables.deliveries.mark)
        for row, how in enumerate(rows.how):
            if how != REFUSED or rows.mark[row] not in seen:
                continue
            call = rows.call[row]
            if tables.calls.type[call] != FAIL:
                continue
            tries = tables.tries.get(tables.calls.op[call], [call])
            if all(tables.calls.type[one] == FAIL for one in tries):
                self.stage.wrong(
                    "D6", "the job of a rejected enqueue was delivered", (tables.calls.n[call],)
                )

    # ---- attempts

    def attempts(self, rows: list[int]) -> list[Attempt]:
        """The attempts of a job, by its events."""
        kinds, found, started = self.tables.events.type, [], self.code["started"]
        for row in rows:
            if kinds[row] == started:
                found.append(Attempt(row))
            elif found and found[-1].end < 0 and kinds[row] in self.ends:
                found[-1].end = row
        return found

    def deliveries(self, job: int, attempts: list[Attempt]) -> None:
        """Join what workers got with the attempts."""
        tables, out = self.tables, self.out
        rows, events, calls = tables.deliveries, tables.events, tables.calls
        by_token: dict[int, Attempt] = {}
        for row in tables.deliveries_of.of(job):
            self.stage.count("deliveries")
            call, token = rows.call[row], rows.token[row]
            at = rows.expires[row] - rows.lease_ms[row] * MS
            attempt = by_token.get(token)
            if attempt is None:
                attempt = self.by_time(attempts, row, at)
            if attempt is None and calls.op[call] in tables.tries:
                attempt = self.by_worker(attempts, row)  # as it is now: the lease was renewed
            if attempt is None:
                if self.is_covered(call, job):
                    self.stage.wrong(
                        "D7",
                        f"job {tables.jobs.texts[job]} was delivered (lease token {token}), and no "
                        "event started it",
                        (calls.n[call],),
                    )
                continue
            if token not in by_token:
                by_token[token] = attempt
                attempt.token = token
                out.delivery[attempt.start] = row
                tries = tables.tries.get(calls.op[call], [call])
                inv = min(calls.inv[one] for one in tries)
                out.effects.append((attempt.start, inv, calls.ret[call], call))
                self.position(attempt.start, call)
        for one in attempts:
            worker = events.by[one.start]
            if one.token:
                continue
            self.stage.count("starts that no worker got")
            is_calm = not tables.faults and worker not in tables.wide_workers
            if is_calm and worker in self.workers and worker not in self.lossy:
                self.stage.wrong(
                    "D7",
                    f"job {tables.jobs.texts[job]} was started for worker "
                    f"{tables.clients.texts[worker]}, which never got it and has all its answers",
                    (),
                    (events.name(one.start),),
                )

    def by_time(self, attempts: list[Attempt], row: int, at: int) -> Attempt | None:
        """The attempt that began at a time of the shard; if several, the one at the position."""
        events, rows = self.tables.events, self.tables.deliveries
        found = [
            one
            for one in attempts
            if events.at[one.start] == at
            and events.attempt[one.start] == rows.attempt[row]
            and events.by[one.start] == rows.worker[row]
        ]
        for one in found[1:] and found:
            shard, seq, _ = events.name(one.start)
            if self.tables.seq_of(rows.call[row], shard) == seq:
                return one
        return found[0] if found else None

    def by_worker(self, attempts: list[Attempt], row: int) -> Attempt | None:
        """The only attempt of a worker with this number."""
        events, rows = self.tables.events, self.tables.deliveries
        found = [
            one
            for one in attempts
            if not one.token
            and events.by[one.start] == rows.worker[row]
            and events.attempt[one.start] == rows.attempt[row]
        ]
        return found[0] if len(found) == 1 else None

    # ---- calls about jobs

    def endings(
        self, job: int, rows: list[int], attempts: list[Attempt], items: "array[int]"
    ) -> None:
        """Join the calls of workers and operators with what happened to the job."""
        tables = self.tables
        groups: dict[tuple[int, int], list[int]] = {}
        for item in items:
            groups.setdefault((tables.items.f[item], tables.items.token[item]), []).append(item)
        self.stage.count("calls about jobs", len(items))
        tokens = {one.token: one for one in attempts if one.token}
        for name, types in CONFIRMED.items():
            f = self.f[name]
            for (code, token), group in groups.items():
                if code == f and token in tokens:
                    self.ended(job, name, types, tokens[token], group)
        if attempts:
            self.causes(job, attempts, groups)
        for name, types in OPERATED.items():
            f = self.f[name]
            for (code, _), group in groups.items():
                if code == f:
                    self.operated(job, rows, types, group)
        self.operators(job, rows, groups)

    def ended(
        self, job: int, name: str, types: tuple[str, ...], attempt: Attempt, group: list[int]
    ) -> None:
        """A worker's calls about one attempt, and how it ended."""
        tables, events = self.tables, self.tables.events
        items, calls = tables.items, tables.calls
        done = [item for item in group if items.how[item] == DONE]
        word = tables.feeding.types.texts[events.type[attempt.end]] if attempt.end >= 0 else ""
        if done:
            first = min(done, key=lambda item: calls.ret[items.call[item]])
            call = items.call[first]
            if word in types:
                open_ = [item for item in group if items.how[item] != REFUSED]
                inv = min(calls.inv[items.call[item]] for item in open_)
                self.out.effects.append((attempt.end, inv, calls.ret[call], call))
                self.position(attempt.end, call)
            elif word or self.is_covered(call, job):
                self.stage.wrong(
                    "D7",
                    f"{name} of job {tables.jobs.texts[job]} (lease token {attempt.token}) was "
                    f"confirmed, and its attempt {'ended as ' + word if word else 'did not end'}",
                    (calls.n[call],),
                    (events.name(attempt.end),) if word else (),
                )
        elif word and ONLY_BY.get(word) == name:
            unknown = [item for item in group if items.how[item] == UNKNOWN]
            if unknown:
                inv = min(calls.inv[items.call[item]] for item in unknown)
                call = items.call[unknown[0]]
                self.out.effects.append((attempt.end, inv, NEVER, call))

    def causes(
        self, job: int, attempts: list[Attempt], groups: dict[tuple[int, int], list[int]]
    ) -> None:
        """Each attempt that was ended by its worker has a call that can have done it."""
        tables, items = self.tables, self.tables.items
        for one in attempts:
            if one.end < 0:
                continue
            word = tables.feeding.types.texts[tables.events.type[one.end]]
            name = ONLY_BY.get(word)
            if name is None:
                continue
            if word == "failed" and tables.has_run_time(job):
                continue
            related = [
                item
                for (code, token), group in groups.items()
                if code == self.f[name] and (token in (one.token, 0) or not one.token)
                for item in group
            ]
            if any(items.how[item] != REFUSED for item in related):
                continue
            rule = "D6" if related else "D2"
            how = "all calls for it were rejected" if related else "no client asked for it"
            self.stage.wrong(
                rule,
                f"job {tables.jobs.texts[job]} is {word}, and {how}",
                tuple(tables.calls.n[items.call[item]] for item in related),
                (tables.events.name(one.end),),
            )

    def operated(self, job: int, rows: list[int], types: tuple[str, ...], group: list[int]) -> None:
        """A confirmed call of an operator has its event."""
        tables, events = self.tables, self.tables.events
        codes = {tables.feeding.types.find(name) for name in types}
        fitting = [row for row in rows if events.type[row] in codes]
        for item in group:
            call = tables.items.call[item]
            if tables.items.how[item] != DONE:
                continue
            exact = [
                row
                for row in fitting
                if tables.seq_of(call, events.shard[row]) == events.key[row] >> NUMBER_BITS
            ]
            if len(exact) == 1 and tables.calls.op[call] not in tables.tries:
                effect = (exact[0], tables.calls.inv[call], tables.calls.ret[call], call)
                self.out.effects.append(effect)
            elif not fitting and self.is_covered(call, job):
                self.stage.wrong(
                    "D7",
                    f"a call about job {tables.jobs.texts[job]} was confirmed, and the job has no "
                    f"event {' or '.join(types)}",
                    (tables.calls.n[call],),
                )

    def operators(
        self, job: int, rows: list[int], groups: dict[tuple[int, int], list[int]]
    ) -> None:
        """Events that only an operator can cause have a call that was not rejected."""
        if self.tables.may_be_bulk(job):
            return
        tables = self.tables
        for row in rows:
            word = tables.feeding.types.texts[tables.events.type[row]]
            if word not in ONLY_OPERATED:
                continue
            name = next(name for name, types in OPERATED.items() if word in types)
            related = [
                item
                for (code, _), group in groups.items()
                if code == self.f[name]
                for item in group
            ]
            if related and all(tables.items.how[item] == REFUSED for item in related):
                self.stage.wrong(
                    "D6",
                    f"job {tables.jobs.texts[job]} is {word}, and all calls for it were rejected",
                    tuple(tables.calls.n[tables.items.call[item]] for item in related),
                    (tables.events.name(row),),
                )

    # ---- positions

    def position(self, event: int, call: int) -> None:
        """The position of an answer includes its own effect."""
        shard, seq, _ = self.tables.events.name(event)
        told = self.tables.seq_of(call, shard)
        if 0 <= told < seq:
            self.stage.wrong(
                "M4",
                f"an answer has the position s{shard}={told}, before its own effect",
                (self.tables.calls.n[call],),
                (self.tables.events.name(event),),
            )

    def is_covered(self, call: int, job: int) -> bool:
        """Whether listeners have all that happened up to the answer, in the shard of the job."""
        tables = self.tables
        shards = tables.positions_of(call)
        rows = tables.events_of.of(job)
        if rows:
            shards = {
                shard: seq
                for shard, seq in shards.items()
                if shard == tables.events.shard[rows[-1]]
            }
        return bool(shards) and all(tables.is_covered(shard, seq) for shard, seq in shards.items())


def check(tables: Tables, stage: Stage) -> Outcomes:
    """Join ops and events."""
    return Joining(tables, stage).run()
