"""Stage 4: every event is a change that the rules allow.

The reference model (`chaos.model`) makes the changes that the events name, in the order of the log,
and blames those that it would not have made: a second holder, a job out of turn, an attempt too
many, a limit exceeded, a unique key held twice. Events do not have everything: priorities, delays
and limits come from the requests that stage 2 joined with them; without these a check is left out.

Each shard is replayed in its own order. Where an event needs something of another shard (a job that
moved, a job that was waited for, the members of a batch), its shard waits until the others have
got so far. If all wait, what they wait for never happened.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from chaos.checks.feeds import NUMBER_BITS, WHOLE
from chaos.checks.outcomes import Outcomes
from chaos.checks.report import Stage
from chaos.checks.tables import DONE, NEVER, OK, REFUSED, Tables
from chaos.checks.tables import UNKNOWN as OUTCOME_UNKNOWN
from chaos.history import Op
from chaos.model import MS, PENDING, UNKNOWN, Model

LEASE_LONGEST_NS: Final = 60_000 * MS
"""Faults so long before and after a start count for the lease: longer than leases of runs last."""

MOVED: Final = re.compile(r"from (.*) to (.*)")

GRACES: Final = 3
"""Leaders in a row whose times of grace may have kept one lease."""

Change = Callable[[int, int, str, int], None]
"""A change of a row, job, queue, at a time of the shard."""


class Probe(NamedTuple):
    """An answer without a job."""

    seq: int
    """The position of its shard."""
    queue: int
    call: int
    job: int
    """A job that waited before the entry there."""


def last_asked(queues: tuple[int, ...], home: dict[int, int]) -> Iterator[int]:
    """The queues of a fetch for which the positions of its answer hold.

    A shard is asked for queues that follow each other at once, and later for others. The answer has
    the last of its positions.
    """
    asked: set[int] = set()
    groups = groupby(reversed(queues), key=lambda queue: home.get(queue, -1))
    for shard, group in groups:
        if shard < 0:
            return  # it may be of any shard
        if shard not in asked:
            yield from group
        asked.add(shard)


class WaitError(Exception):
    """An event needs something of another shard that has not happened yet."""


class Replay:
    """The replay of one history."""

    def __init__(self, tables: Tables, outcomes: Outcomes, stage: Stage) -> None:
        self.tables, self.outcomes, self.stage = tables, outcomes, stage
        self.events = tables.events
        self.texts = tables.feeding.types.texts
        self.model = Model(tables.spec_of)
        self.shard = 0
        """The shard whose events are replayed now."""
        if tables.faults and tables.run is not None and tables.run.grace_ms:
            self.model.with_grace = self._with_grace
        self.is_lenient = False
        """After a gap: jobs can be in any state."""
        run = tables.run
        self.grace_ns = 0 if run is None else run.grace_ms * MS
        self.faults = sorted((fault.t, fault.t_end or fault.t) for fault in tables.faults)
        self.tokens: dict[int, int] = {}
        """Job to its present lease token, if a worker got it."""
        self.heartbeats = self._heartbeats()
        self.beats = self._beats()
        self.settings = self._settings()
        self.waits = self._waits()
        self.empty = self._empty()
        self.looking: dict[int, list[Probe]] = {}
        """Empty answers at the present entry of a shard, each with a job that waited before it."""
        self.sent = dict(zip(outcomes.effects.row, outcomes.effects.inv, strict=True))
        """Row of an event to when the call that caused it was sent at the earliest."""
        self.steps: set[int] = set()
        """Jobs that had a next step or a handler."""
        self.callbacks: set[str] = set()
        self.change: dict[str, Change] = {
            "enqueued": self._enqueued, "started": self._started, "completed": self._completed,
            "failed": self._failed, "dead": self._dead, "cancelled": self._cancelled,
            "released": self._released, "snoozed": self._snoozed, "crashed": self._crashed,
            "promoted": self._promoted, "held": self._held, "approved": self._approved,
            "rejected": self._rejected, "continued": self._continued, "retried": self._retried,
            "requeued": self._requeued, "moved": self._moved, "arrived": self._arrived,
            "priority": self._priority, "asked_to_stop": self._asked, "deleted": self._deleted,
            "purged": self._purged, "queue.paused": self._paused, "queue.resumed": self._resumed,
            "queue.draining": self._paused, "queue.changed": self._changed,
            "queue.cleared": self._cleared, "queue.deleted": self._queue_deleted,
        }  # fmt: skip

    # ---- what the requests say

    def _heartbeats(self) -> dict[tuple[int, int], int]:
        """Job and lease token to the latest end that its heartbeats can have given the lease."""
        rows, code = self.tables.items, self.tables.fs.find("heartbeat")
        found: dict[tuple[int, int], int] = {}
        for item, f in enumerate(rows.f):
            if f == code and rows.how[item] != REFUSED:
                name = (rows.job[item], rows.token[item])
                until = rows.number[item] if rows.how[item] == DONE else NEVER
                found[name] = max(found.get(name, 0), until or NEVER)
        return found

    def _beats(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """Confirmed heartbeats by shard, as (key, job, token, until), the last one first."""
        rows, code = self.tables.items, self.tables.fs.find("heartbeat")
        found: dict[int, list[tuple[int, int, int, int]]] = {}
        for item, f in enumerate(rows.f):
            if f != code or rows.how[item] != DONE or not rows.number[item]:
                continue
            positions = self.tables.positions_of(rows.call[item])
            if len(positions) == 1:
                ((shard, seq),) = positions.items()
                beat = (seq << NUMBER_BITS | WHOLE, rows.job[item], rows.token[item])
                found.setdefault(shard, []).append((*beat, rows.number[item]))
        for beats in found.values():
            beats.sort(reverse=True)
        return found

    def _empty(self) -> dict[int, list[Probe]]:
        """Answers without a job by shard, the last position first."""
        tables = self.tables
        home: dict[int, int] = {}
        for shard in tables.start:
            rows = tables.rows_of_shard(shard)
            home |= dict.fromkeys(self.events.queue[rows.start : rows.stop], shard)
        found: dict[int, list[Probe]] = {}
        for call, (queues, _, _, _) in tables.fetches.items():
            if tables.calls.type[call] != OK:
                continue
            positions = tables.positions_of(call)
            for queue in last_asked(queues, home):
                if home[queue] in positions:
                    probe = Probe(positions[home[queue]], queue, call, 0)
                    found.setdefault(home[queue], []).append(probe)
        for probes in found.values():
            probes.sort(reverse=True)
        return found

    def _settings(self) -> dict[tuple[int, int, str], list[Op]]:
        """Shard, index and queue to the ops that changed the queue there."""
        found: dict[tuple[int, int, str], list[Op]] = {}
        for call, op in self.tables.small_ops("concurrency", "throttle", "unthrottle", "retention"):
            if op.type == "ok" and self.tables.calls.op[call] not in self.tables.tries:
                for shard, seq in self.tables.positions_of(call).items():
                    found.setdefault((shard, seq, op.args.queue), []).append(op)
        return found

    def _waits(self) -> dict[int, tuple[int, ...]]:
        """Jobs that wait for others, to those others."""
        found: dict[int, tuple[int, ...]] = {}
        tables = self.tables
        for row, spec in enumerate(tables.enqueued.spec):
            names = tables.specs[spec].depends_on
            is_its_own = tables.enqueued.how[row] in (DONE, OUTCOME_UNKNOWN)
            if names and is_its_own and tables.enqueued.job[row]:
                others = tuple(tables.jobs.number(name) for name in names)
                found[tables.enqueued.job[row]] = others
                self.model.watched.update(others)
        for _, rows in tables.batches.values():
            self.model.watched.update(tables.enqueued.job[row] for row in rows)
        return found

    def _calls(self, job: int, name: str) -> list[int]:
        """The calls of a worker about the present attempt that were not rejected."""
        rows, token = self.tables.items, self.tokens.get(job, 0)
        return [
            item
            for item in self.tables.items_of.of(job)
            if rows.f[item] == self.tables.fs.find(name)
            and rows.how[item] != REFUSED
            and (rows.token[item] in (token, 0) or not token)
        ]

    # ---- the walk

    def run(self) -> None:
        """Replay all shards."""
        rows = {shard: self.tables.rows_of_shard(shard) for shard in self.tables.start}
        at = {shard: part.start for shard, part in rows.items()}
        self.gaps = {row for shard in rows for row in self.tables.gaps(shard)}
        while True:
            open_ = [shard for shard, part in rows.items() if at[shard] < part.stop]
            if not open_:
                break
            before = dict(at)
            for shard in open_:
                at[shard] = self._walk(shard, at[shard], rows[shard].stop, must=False)
            if at == before:  # what was seen first lacks its cause; the others wait for it
                shard = min(open_, key=lambda shard: self.events.seen[at[shard]])
                at[shard] = self._walk(shard, at[shard], rows[shard].stop, must=True)
        for shard in rows:
            self._look(self.empty.get(shard, []), self.looking.get(shard, []), NEVER)
        self.stage.count("events", len(self.events.key))
        self.stage.count("gaps", len(self.gaps))
        self._in_order()

    def _in_order(self) -> None:
        """Jobs of one request for one queue are created in the order of the request."""
        enqueued, made = self.tables.enqueued, self.outcomes.creation
        for row in range(1, len(made)):
            before, after = made[row - 1], made[row]
            if (
                enqueued.call[row] == enqueued.call[row - 1]
                and 0 <= after < before
                and self.events.queue[before] == self.events.queue[after]
                and self.events.key[before] >> NUMBER_BITS == self.events.key[after] >> NUMBER_BITS
            ):
                self.stage.wrong(
                    "O4",
                    "jobs of one request are created in another order",
                    (self.tables.calls.n[enqueued.call[row]],),
                    (self.events.name(after), self.events.name(before)),
                )

    def _walk(self, shard: int, row: int, end: int, *, must: bool) -> int:
        """Replay the events of a shard until one has to wait. `must`: the first may not."""
        events, model, queues = self.events, self.model, self.tables.queues.texts
        beats, empty = self.beats.get(shard, []), self.empty.get(shard, [])
        looking = self.looking.setdefault(shard, [])
        self.shard = shard
        while row < end:
            key, job = events.key[row], events.job[row]
            if empty or looking:
                self._look(empty, looking, key >> NUMBER_BITS)
            while beats and beats[-1][0] < key:
                _, held, token, until = beats.pop()
                if self.tokens.get(held) == token:
                    model.renew(held, until)
            if row in self.gaps:
                self._forget(shard)
            word = self.texts[events.type[row]]
            change = self.change.get(word)
            if change is not None:
                try:
                    self._need(row, word, must=must)
                except WaitError:
                    return row
                must = False
                if job not in model.jobs and job and word not in ("enqueued", "arrived"):
                    self._first(job, queues[events.queue[row]])
                change(row, job, queues[events.queue[row]], events.at[row])
                if model.blames:
                    self._report(row)
            row += 1
        return row

    def _look(self, empty: list[Probe], looking: list[Probe], seq: int) -> None:
        """O6: the shard is before an entry; compare the empty answers up to there.

        An answer is given within its entry, before or after other ops of it. So a job counts that
        waits before the entry and still after it.
        """
        while looking and looking[-1].seq < seq:
            self._judge(looking.pop())
        while empty and empty[-1].seq <= seq:
            probe = empty.pop()
            probe = probe._replace(job=self._first_waiting(probe.queue))
            self.stage.count("empty answers")
            if probe.seq == seq:
                looking.append(probe)
            else:
                self._judge(probe)

    def _first_waiting(self, number: int) -> int:
        """The job that a queue has to give; 0 if it need not give any."""
        name = self.tables.queues.texts[number]
        queue = self.model.queues.get(name)
        if (
            queue is None or self.is_lenient or queue.is_paused is not False or queue.rate != 0
            or queue.cap is None or queue.cleared >= 0
        ):  # fmt: skip
            return 0
        if self.model.may_start(name, 0) is not None:
            return 0
        job = self.model.next_of(name, 0)
        return job if job and self.model.jobs[job].expires == NEVER else 0

    def _judge(self, probe: Probe) -> None:
        """Whether the job that waited before an empty answer waits after it, too."""
        name = self.tables.queues.texts[probe.queue]
        held = self.model.jobs.get(probe.job)
        if held is None or held.state != PENDING or held.queue != name:
            return
        if self._first_waiting(probe.queue):
            self.stage.wrong(
                "O6",
                f"queue {name} has {self.tables.jobs.texts[probe.job]} at {probe.seq}, and a fetch "
                "got no job there",
                (self.tables.calls.n[probe.call],),
            )

    def _with_grace(self, lease_end: int) -> int:
        """The latest end of a lease, if leaders changed as often as they do under faults.

        A new leader begins with a time of grace, in which no lease ends that had not ended at the
        last entry before (docs/semantics.md, Leases). No event says so. But the first event after
        the lease's end is at or after the beginning of that time.
        """
        assert self.tables.run is not None
        grace = self.tables.run.grace_ms * MS
        rows, until = self.tables.rows_of_shard(self.shard), lease_end
        for _ in range(GRACES):
            row = bisect_left(self.events.at, until, rows.start, rows.stop)
            if row == rows.stop:
                return NEVER
            until = self.events.at[row] + grace
        return until

    def _forget(self, shard: int) -> None:
        """After a gap, jobs and queues of a shard are in unknown states."""
        rows = self.tables.rows_of_shard(shard)
        here = {self.tables.queues.texts[self.events.queue[row]] for row in rows}
        for name in here:
            self.model.queues.pop(name, None)
            self.model.limit(name, None, None, 0)
            self.model.queue(name).is_paused = None
        for job in self.model.jobs.values():
            if job.queue in here:
                job.state, job.vague = UNKNOWN, True
        self.model.done.clear()
        self.is_lenient = True

    def _first(self, job: int, queue: str) -> None:
        """A job that is not known: it can be older than the run, or than a gap."""
        if self.is_lenient or not any(
            self.texts[self.events.type[row]] == "enqueued" for row in self.tables.events_of.of(job)
        ):
            self.model.know(job, queue)

    def _need(self, row: int, word: str, *, must: bool) -> None:
        """Wait, or blame, if an event needs something that has not happened."""
        job, missing = self.events.job[row], None
        if word == "arrived" and job not in self.model.away:
            missing = ("Z2", "a job arrives that no other shard sent")
        elif word == "started" and job in self.waits:
            held = self.model.jobs.get(job)
            if held is not None and not held.is_approved:
                others = [one for one in self.waits[job] if one not in self.model.completed]
                others += self._later(self.waits[job], row, ("completed",))
                if others:
                    name = self.tables.jobs.texts[others[0]]
                    missing = ("E2", f"a job is started before {name} is completed")
        elif word == "enqueued" and job in self.tables.callbacks:
            batch = self.tables.callbacks[job][0]
            if self._open_members(batch, row):
                missing = ("B2", f"batch {batch} calls back before its jobs have ended")
        if missing is not None and not self.is_lenient:
            if not must:
                raise WaitError
            self.model.blame(*missing)

    def _open_members(self, batch: str, event: int) -> bool:
        """Whether a job of a batch has not ended yet."""
        _, rows = self.tables.batches.get(batch, (0, ()))
        enqueued = self.tables.enqueued
        members = [enqueued.job[row] for row in rows if enqueued.how[row] == DONE]
        return any(one not in self.model.ended for one in members) or bool(
            self._later(members, event, ("completed", "dead", "cancelled", "deleted"))
        )

    def _later(self, jobs: Iterable[int], event: int, words: Collection[str]) -> list[int]:
        """The jobs that certainly ended so after an event of another shard had been seen.

        The order of events of two shards is not known. But what follows from a call is not there
        before the call is sent.
        """
        found = []
        for job in jobs:
            ends = [
                row
                for row in self.tables.events_of.of(job)
                if self.texts[self.events.type[row]] in words
            ]
            if ends and all(self.sent.get(row, 0) > self.events.seen[event] for row in ends):
                found.append(job)
        return found

    def _report(self, row: int) -> None:
        """Report what the model blames."""
        name = self.tables.jobs.texts[self.events.job[row]] or "a queue"
        for blame in self.model.blames:
            text = re.sub(r"{job:(\d+)}", lambda f: self.tables.jobs.texts[int(f[1])], blame.text)
            self.stage.wrong(blame.rule, f"{name}: {text}", (), (self.events.name(row),))
        self.model.blames.clear()

    # ---- one change for each type of event

    def _state(self, row: int) -> str:
        return self.tables.feeding.states.texts[self.events.state[row]]

    def _why(self, row: int) -> str:
        return self.tables.feeding.words.texts[self.events.why[row]]

    def _enqueued(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.enqueue(job, queue, self._state(row), self.tables.spec_of(job), at)
        called = self.tables.callbacks.get(job)
        if called is not None:
            if called[0] in self.callbacks:
                self.model.blame("B2", f"batch {called[0]} calls back a second time")
            self.callbacks.add(called[0])
        before = self.tables.after.get(job)
        if before is not None:
            if before in self.steps and not self._was_retried(before):
                name = self.tables.jobs.texts[before]
                self.model.blame("H1", f"{name} of a chain has a second next step")
            self.steps.add(before)

    def _was_retried(self, job: int) -> bool:
        return any(
            self.texts[self.events.type[row]] in ("retried", "requeued", "continued")
            for row in self.tables.events_of.of(job)
        )

    def _started(self, row: int, job: int, queue: str, at: int) -> None:
        got = self.outcomes.delivery[row]
        lease, most = None, None
        self.tokens.pop(job, None)
        if got >= 0:
            token = self.tokens[job] = self.tables.deliveries.token[got]
            lease = self.tables.deliveries.lease_ms[got] * MS
            most = self.heartbeats.get((job, token), 0)
            if (job, 0) in self.heartbeats:
                most = NEVER
            most = max(most, at + lease) + self._grace(row)
        self.model.start(job, at, self.events.attempt[row], lease, most)
        held = self.model.jobs[job]
        if not held.queue:
            held.queue = queue

    def _grace(self, row: int) -> int:
        """How long leases can last beyond their end, because of new leaders.

        A new leader gives all leases the time of grace, and another one meanwhile gives it again.
        No event says when. So this counts the faults in the time of the lease, and two changes of
        leader that have no fault as their cause.
        """
        if not self.grace_ns:
            return 0
        begin = self.events.seen[row]
        number = bisect_right(self.faults, (begin + LEASE_LONGEST_NS, 0))
        near = sum(1 for _, end in self.faults[:number] if end + LEASE_LONGEST_NS > begin)
        return self.grace_ns * (2 + near)

    def _completed(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.complete(job, at)

    def _failed(self, row: int, job: int, queue: str, at: int) -> None:
        sent = [self.tables.items.sent[item] for item in self._calls(job, "fail")]
        known = [ms for ms in sent if ms >= 0]
        after = None if not known else min(known) if len(known) == len(sent) else 0
        self.model.fail(job, at, retry_after_ms=after)

    def _dead(self, row: int, job: int, queue: str, at: int) -> None:
        rows = self.tables.items
        final = any(rows.flags[item] & 1 for item in self._calls(job, "fail"))
        self.model.die(job, at, is_final=final)

    def _cancelled(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.cancel(job)

    def _released(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.release(job, at)

    def _snoozed(self, row: int, job: int, queue: str, at: int) -> None:
        sent = [self.tables.items.sent[item] for item in self._calls(job, "snooze")]
        self.model.snooze(job, at, max(min(sent, default=0), 0))

    def _crashed(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.crash(job, at, self._state(row))

    def _promoted(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.promote(job, at, is_early=bool(self.events.by[row]) or self._was_expedited(job))

    def _was_expedited(self, job: int) -> bool:
        code = self.tables.fs.find("expedite")
        return any(self.tables.items.f[item] == code for item in self.tables.items_of.of(job))

    def _held(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.hold(job)

    def _approved(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.approve(job)

    def _rejected(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.reject(job)

    def _continued(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.again(job, at, self._state(row))

    def _retried(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.retry(job, queue, at, is_whole=True)

    def _requeued(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.retry(job, queue, at, is_whole=False)

    def _moved(self, row: int, job: int, queue: str, at: int) -> None:
        if not self.events.state[row]:
            self.model.leave(job)
            return
        found = MOVED.fullmatch(self._why(row))
        self.model.move(job, found[2] if found else queue, at, self.events.attempt[row])

    def _arrived(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.arrive(job, queue, self._state(row), at, self.events.attempt[row])

    def _priority(self, row: int, job: int, queue: str, at: int) -> None:
        found = MOVED.fullmatch(self._why(row))
        if found is not None and found[1].isdecimal() and found[2].isdecimal():
            self.model.prioritise(job, int(found[1]), int(found[2]))
        else:
            self.model.prioritise(job, None, None)

    def _asked(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.ask_to_stop(job)

    def _deleted(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.remove(job, is_purge=False)

    def _purged(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.remove(job, is_purge=True)

    def _paused(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.queue(queue).is_paused = True

    def _resumed(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.queue(queue).is_paused = False

    def _changed(self, row: int, job: int, queue: str, at: int) -> None:
        shard, seq, _ = self.events.name(row)
        ops = self.settings.get((shard, seq, queue), [])
        held = self.model.queue(queue)
        if len(ops) != 1:
            self.model.limit(queue, None, None, 0)
        elif ops[0].f == "concurrency":
            held.cap = ops[0].args.number
        elif ops[0].f == "throttle":
            self.model.limit(queue, held.cap, ops[0].args.number, ops[0].args.window_ms)
        elif ops[0].f == "unthrottle":
            self.model.limit(queue, held.cap, 0, 0)

    def _cleared(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.clear(queue, is_deleted=False)

    def _queue_deleted(self, row: int, job: int, queue: str, at: int) -> None:
        self.model.clear(queue, is_deleted=True)


def check(tables: Tables, outcomes: Outcomes, stage: Stage) -> Model:
    """Replay all events."""
    replay = Replay(tables, outcomes, stage)
    replay.run()
    return replay.model
