"""A history as columns: what the stages work on.

Each call, each job of a call, and each event is a row of numbers in arrays. Text is interned, and
jobs, queues and workers are numbers. Measured with two million operations and 4.9 million events
of two nodes: 95 s of one core for all stages, and 1.4 GB. As objects, the jobs of the final reading
alone needed 1 GB.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from chaos import history
from chaos.checks.ends import Ends
from chaos.checks.feeds import NUMBER_BITS, WHOLE, Events, Feeding, Names
from chaos.checks.sweeps import united
from chaos.history import Event, Fault, Feed, FinalJob, NewJob, Op, Phase, Record, Run, malformed

NEVER: Final = 1 << 62
"""A time later than all others: of what did not return."""

STALE_NS: Final = 5_000_000_000
"""A leader that is cut off answers for at most two election timeouts, and for a while more if the
machine is busy. It does not know of jobs that came meanwhile."""

OK, FAIL, INFO = 0, 1, 2
TYPES: Final = {"ok": OK, "fail": FAIL, "info": INFO}

DONE, REFUSED, UNKNOWN, DUPLICATE = 0, 1, 2, 3
"""How one job of a call went. DUPLICATE: another job has its unique key."""

SMALL_OPS: Final = frozenset({*history.QUEUE_OPS, "bulk", "search", "queues", "batch"})
"""Ops that are kept as they are: a run has few of them."""


class Calls:
    """One row for each op."""

    def __init__(self) -> None:
        self.n = array("q")
        self.f = array("h")
        self.client = array("i")
        self.session = array("i")
        self.op = array("q")
        """The hash of `op_id`."""
        self.attempt = array("h")
        """Its `try`."""
        self.inv = array("q")
        self.ret = array("q")
        self.type = array("b")
        self.keyed = array("b")
        self.shard = array("h")
        self.seq = array("q")
        """Shard and index of `Corvo-Seq`, if it has one shard; else -1, and `seqs` may have it."""
        self.seqs: dict[int, dict[int, int]] = {}


class Enqueued:
    """One row for each job of an enqueue."""

    def __init__(self) -> None:
        self.call = array("i")
        self.job = array("i")
        """0 if the answer did not name it."""
        self.mark = array("q")
        self.sha = array("Q")
        self.spec = array("i")
        self.how = array("b")
        """DONE (a new job), REFUSED (an older one, a duplicate, or an error), UNKNOWN."""


class Deliveries:
    """One row for each job of the answer to a fetch."""

    def __init__(self) -> None:
        self.call = array("i")
        self.job = array("i")
        self.token = array("q")
        self.attempt = array("i")
        self.expires = array("q")
        self.lease_ms = array("q")
        self.queue = array("i")
        self.worker = array("i")
        self.mark = array("q")
        self.sha = array("Q")


class Items:
    """One row for each job of another call."""

    def __init__(self) -> None:
        self.call = array("i")
        self.job = array("i")
        self.f = array("h")
        self.token = array("q")
        self.how = array("b")
        self.status = array("h")
        self.number = array("q")
        """The new end of a lease, the time of the next attempt, or what else the answer has."""
        self.sent = array("q")
        """retry_after_ms, delay_ms or a priority; -1 if not sent."""
        self.flags = array("b")
        """1: not retryable. 2: an agent's or a chain's status was sent."""


class Rows:
    """Rows by job: `of(job)` are those of a job, in their order."""

    def __init__(self, jobs: "array[int]", number: int) -> None:
        first = array("i", bytes(4 * (number + 2)))
        for job in jobs:
            first[job + 2] += 1
        for job in range(2, number + 2):
            first[job] += first[job - 1]
        rows = array("i", bytes(4 * len(jobs)))
        for row, job in enumerate(jobs):
            at = first[job + 1]
            rows[at] = row
            first[job + 1] = at + 1
        self.first, self.rows = first, rows

    def of(self, job: int) -> "array[int]":
        """The rows of a job; none if only the final reading named it."""
        if job + 1 >= len(self.first):
            return self.rows[:0]
        return self.rows[self.first[job] : self.first[job + 1]]


class Tables:
    """A history."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.runs = 0
        self.phases: list[Phase] = []
        self.faults: list[Fault] = []
        self.unrest: list[tuple[int, int]] = []
        """Times with faults, or with leaders that do not know yet that they were replaced."""
        self.jobs = Names()
        self.queues = Names()
        self.clients = Names()
        self.fs = Names()
        self.states = Names()
        self.specs: list[NewJob] = [NewJob(queue="")]
        self._spec_numbers: dict[NewJob, int] = {}
        self.calls = Calls()
        self.enqueued = Enqueued()
        self.deliveries = Deliveries()
        self.items = Items()
        self.small: list[Op] = []
        self.small_calls: list[int] = []
        self.gets: list[tuple[int, int, str]] = []
        """Call, job, and the state that was read (empty: not found)."""
        self.bulk_jobs: set[int] = set()
        """Jobs that a bulk operation named."""
        self.has_wide_bulk = False
        """Whether a bulk operation had a filter: it can have changed every job."""
        self.wide_workers: set[int] = set()
        """Workers that fetch from several queues. One answer can come from several shards, and a
        shard that answers too late has leased jobs that no worker received."""
        self.made_queues: set[str] = set()
        """Queues in which the server itself creates jobs."""
        self.weak: set[int] = set()
        """Calls of reads that need not be fresh."""
        self.stale: list[tuple[int, str]] = []
        """Ops (`n`) whose answer is older than their `Corvo-Min-Seq`, and how."""
        self.fetches: dict[int, tuple[tuple[int, ...], int, int, int]] = {}
        """Of fetches that were empty or unknown: call to queues, worker, wait_ms, count."""
        self.schedules: dict[str, list[tuple[int, Op]]] = {}
        """Id of each schedule to the ops on it that were not rejected, with their calls."""
        self.batches: dict[str, tuple[int, list[int]]] = {}
        """Id of each batch to the call that made it, and the rows of its jobs."""
        self.after: dict[int, int] = {}
        """Steps and handlers of chains to the jobs that they follow, by their payloads."""
        self.callbacks: dict[int, tuple[str, int, int, int, int]] = {}
        """Callbacks to their batches with the counts, by their payloads."""
        self.marks: set[int] = set()
        """Of templates, callbacks and schedules: of jobs that the server makes."""
        self.malformed: list[tuple[int, str]] = []
        self.tries: dict[int, list[int]] = {}
        """Op id of each call that was sent more than once, to its tries."""
        self.final: list[Record] = []
        """The final reading but for its jobs."""
        self.ends = Ends(self.jobs, self.queues)
        self.feeding = Feeding(self.jobs, self.queues, self.clients)
        self.events = Events()
        self.start: dict[int, int] = {}
        """Shard to its first row in `events`."""

    def load(self, records: Iterable[Record]) -> None:
        """Take all records of a history."""
        for record in records:
            if isinstance(record, Op):
                self._op(record)
            elif isinstance(record, Event):
                self.feeding.event(record)
            elif isinstance(record, Feed):
                self.feeding.feed(record)
            elif isinstance(record, FinalJob):
                self.ends.add(record)
            elif isinstance(record, Run):
                self.run = record
                self.runs += 1
            elif isinstance(record, Phase):
                self.phases.append(record)
            elif isinstance(record, Fault):
                self.faults.append(record)
            else:
                self.final.append(record)
        ends = [(fault.t, (fault.t_end or NEVER) + STALE_NS) for fault in self.faults]
        self.unrest = united(ends)
        self.events, self.start = self.feeding.merged()
        self.ends.finish()
        self._group_tries()
        self._find_unknown()
        self.enqueued_of = Rows(self.enqueued.job, len(self.jobs))
        self.deliveries_of = Rows(self.deliveries.job, len(self.jobs))
        self.items_of = Rows(self.items.job, len(self.jobs))
        self.events_of = Rows(self.events.job, len(self.jobs))

    def _group_tries(self) -> None:
        """Find the calls that were sent more than once."""
        ops = self.calls.op
        order = sorted(range(len(ops)), key=ops.__getitem__)
        for before, after in pairwise(order):
            if ops[before] == ops[after]:
                self.tries.setdefault(ops[before], [before]).append(after)

    def _find_unknown(self) -> None:
        """Find the jobs of enqueues whose answer did not name them, by their marks."""
        rows = self.enqueued
        nameless: dict[int, list[int]] = {}
        for row, job in enumerate(rows.job):
            if not job:
                nameless.setdefault(rows.mark[row], []).append(row)
        if not nameless:
            return
        for mark, job in zip(self.deliveries.mark, self.deliveries.job, strict=True):
            for row in nameless.pop(mark, ()):
                rows.job[row] = job
        for mark, job in zip(self.ends.mark, self.ends.job, strict=True):
            for row in nameless.pop(mark, ()):
                rows.job[row] = job

    # ---- ops

    def _op(self, op: Op) -> None:
        why = malformed(op)
        if why:
            self.malformed.append((op.n, why))
            return
        calls = self.calls
        call = len(calls.n)
        calls.n.append(op.n)
        calls.f.append(self.fs.number(op.f))
        calls.client.append(self.clients.number(op.client))
        calls.session.append(self.clients.number(op.session))
        calls.op.append(hash(op.op_id))
        calls.attempt.append(op.try_)
        calls.inv.append(op.t_inv)
        calls.ret.append(NEVER if op.t_ret is None else op.t_ret)
        calls.type.append(TYPES[op.type])
        calls.keyed.append(op.keyed)
        if len(op.seq) == 1:
            ((shard, index),) = op.seq.items()
            calls.shard.append(int(shard))
            calls.seq.append(index)
        else:
            calls.shard.append(-1)
            calls.seq.append(-1)
            if op.seq:
                calls.seqs[call] = {int(shard): index for shard, index in op.seq.items()}
        if op.min_seq and op.type == "ok":
            self._min_seq(op)
        if op.f == "enqueue":
            self._enqueue(call, op)
        elif op.f == "fetch":
            self._fetch(call, op)
        elif op.f == "get":
            if op.args.consistency in ("local", "stale"):
                self.weak.add(call)
            state = op.res.job.state if op.res.job is not None else ""
            self.gets.append((call, self.jobs.number(op.args.items[0].job_id), state))
        elif op.f in SMALL_OPS:
            if op.f == "bulk" and op.type != "fail":
                self._bulk(op)
            self.small.append(op)
            self.small_calls.append(call)
        elif op.args.items:
            self._items(call, op)
        elif op.args.schedule is not None or op.f in history.SCHEDULE_OPS:
            self._schedule(call, op)

    def _enqueue(self, call: int, op: Op) -> None:
        rows = self.enqueued
        created = op.res.created
        first = len(rows.call)
        for place, job in enumerate(op.args.jobs):
            answer = created[place] if place < len(created) else None
            name, how = "", UNKNOWN
            if answer is not None and answer.job_id:
                name = answer.job_id
                how = REFUSED if answer.existing or answer.code else DONE
                how = DUPLICATE if answer.status == "duplicate" else how
            elif op.type == "fail" or (answer is not None and answer.outcome == "not_applied"):
                name, how = job.id, REFUSED
            else:
                name = job.id  # unknown, and known by its id if it exists
            rows.call.append(call)
            rows.job.append(self.jobs.number(name))
            rows.mark.append(hash(job.mark))
            rows.sha.append(int(job.sha or "0", 16))
            rows.how.append(how)
            rows.spec.append(self._spec(job))
            if job.chain is not None:
                for step in (*job.chain.steps, job.chain.on_failure, job.chain.on_exit):
                    if step is not None:
                        self.marks.add(hash(step.mark))
                        self.made_queues.add(step.queue)
        if op.args.batch is not None:
            self.marks.add(hash(op.args.batch.mark))
            self.made_queues.add(op.args.batch.queue)
        if op.res.batch_id and op.res.batch_id not in self.batches:
            self.batches[op.res.batch_id] = (call, list(range(first, len(rows.call))))

    def _schedule(self, call: int, op: Op) -> None:
        sent = op.args.schedule
        if sent is not None:
            self.marks.add(hash(sent.mark))
            self.made_queues.add(sent.id.partition("~")[0])
        if op.type != "fail":
            name = sent.id if sent is not None else op.args.id
            self.schedules.setdefault(name, []).append((call, op))

    def _bulk(self, op: Op) -> None:
        """A bulk operation is on jobs that it names, or on any."""
        self.bulk_jobs.update(self.jobs.number(item.job_id) for item in op.args.items)
        self.has_wide_bulk = self.has_wide_bulk or not op.args.items
        if op.args.queue:
            self.made_queues.add(op.args.queue)  # of a move

    def _min_seq(self, op: Op) -> None:
        """A read includes the position that it was sent."""
        told = op.res.as_of or op.seq
        for shard, index in op.min_seq.items():
            if told.get(shard, index) < index:
                self.stale.append((op.n, f"s{shard}={told[shard]} for s{shard}={index}"))

    def _spec(self, job: NewJob) -> int:
        """The number of all that was said of a job but for its name and payload."""
        plain = NewJob(
            queue=job.queue, priority=job.priority, max_retries=job.max_retries,
            backoff=job.backoff, base_ms=job.base_ms, max_delay_ms=job.max_delay_ms,
            jitter=job.jitter, max_run_ms=job.max_run_ms, max_crashes=job.max_crashes,
            expire_after_ms=job.expire_after_ms, expire_active=job.expire_active,
            unique_key=job.unique_key, unique_ms=job.unique_ms, delay_ms=job.delay_ms,
            scheduled_at_ns=job.scheduled_at_ns, batch_id=job.batch_id,
            depends_on=job.depends_on, wait_ms=job.wait_ms, chain=job.chain,
        )  # fmt: skip
        found = self._spec_numbers.get(plain)
        if found is None:
            found = self._spec_numbers[plain] = len(self.specs)
            self.specs.append(plain)
        return found

    def _fetch(self, call: int, op: Op) -> None:
        rows, args = self.deliveries, op.args
        worker = self.clients.number(args.worker)
        if len(args.queues) > 1:
            self.wide_workers.add(worker)
        for got in op.res.delivered:
            if got.previous_job_id:
                self.after[self.jobs.number(got.job_id)] = self.jobs.number(got.previous_job_id)
            if got.batch is not None:
                self.callbacks[self.jobs.number(got.job_id)] = got.batch
            rows.call.append(call)
            rows.job.append(self.jobs.number(got.job_id))
            rows.token.append(got.token)
            rows.attempt.append(got.attempt)
            rows.expires.append(got.expires_ns)
            rows.lease_ms.append(args.lease_ms)
            rows.queue.append(self.queues.number(got.queue))
            rows.worker.append(worker)
            rows.mark.append(hash(got.mark))
            rows.sha.append(int(got.sha or "0", 16))
        if not op.res.delivered and op.type != "fail":
            queues = tuple(self.queues.number(name) for name in args.queues)
            self.fetches[call] = (queues, worker, args.wait_ms, args.count)

    def _items(self, call: int, op: Op) -> None:
        rows, answers = self.items, op.res.items
        if op.f == "move":
            self.made_queues.add(op.args.queue)
        f = self.fs.number(op.f)
        for place, item in enumerate(op.args.items):
            answer = answers[place] if place < len(answers) else None
            how, status, number = UNKNOWN, "", 0
            if answer is not None and answer.code:
                how = {"not_applied": REFUSED, "applied": DONE}.get(answer.outcome, UNKNOWN)
                status = answer.reason or answer.code
            elif op.type == "fail":
                how = REFUSED
            elif answer is not None and op.type == "ok":
                how, status = DONE, answer.state or answer.status
                if answer.reason == "lease_ended":
                    status = answer.reason
                number = answer.expires_ns or answer.next_ns
            sent = item.retry_after_ms if item.retry_after_ms is not None else item.delay_ms
            if op.f == "priority":
                sent = op.args.number
            rows.call.append(call)
            rows.job.append(self.jobs.number(item.job_id))
            rows.f.append(f)
            rows.token.append(item.token)
            rows.how.append(how)
            rows.status.append(self.states.number(status))
            rows.number.append(number)
            rows.sent.append(-1 if sent is None else sent)
            rows.flags.append(
                (not item.retryable) | bool(item.agent_status or item.step_status) * 2
            )

    # ---- what stages ask for

    def seq_of(self, call: int, shard: int) -> int:
        """The index that the answer of a call had for a shard; -1 if it had none."""
        if self.calls.shard[call] == shard:
            return self.calls.seq[call]
        return self.calls.seqs.get(call, {}).get(shard, -1)

    def positions_of(self, call: int) -> dict[int, int]:
        """The position of an answer: shard to index."""
        if self.calls.shard[call] >= 0:
            return {self.calls.shard[call]: self.calls.seq[call]}
        return self.calls.seqs.get(call, {})

    def ordered_events(self, job: int) -> list[int]:
        """The rows of a job's events in their order, also if the job was in several shards."""
        rows = list(self.events_of.of(job))
        shards = {self.events.shard[row] for row in rows}
        if len(shards) < 2:
            return rows
        parts = {s: [row for row in rows if self.events.shard[row] == s] for s in sorted(shards)}
        arrived = self.feeding.types.find("arrived")
        ordered: list[int] = []
        here = -1
        while parts:
            if here not in parts:
                heads = sorted(
                    parts.items(),
                    key=lambda part: (
                        (self.events.type[part[1][0]] == arrived) != bool(ordered),
                        self.events.at[part[1][0]],
                    ),
                )
                here = heads[0][0]
            row = parts[here].pop(0)
            ordered.append(row)
            if not parts[here]:
                del parts[here]
            if self.is_departure(row):
                here = -1
        return ordered

    def is_departure(self, row: int) -> bool:
        """Whether an event says that a job went to another shard."""
        return self.events.state[row] == 0 and self.events.type[row] == self.feeding.types.find(
            "moved"
        )

    def spec_of(self, job: int) -> NewJob | None:
        """What the run asked for when it enqueued a job; none if the server made the job."""
        rows = self.enqueued_of.of(job)
        for row in rows:
            if self.enqueued.how[row] == DONE:
                return self.specs[self.enqueued.spec[row]]
        specs = {self.enqueued.spec[row] for row in rows if self.enqueued.how[row] == UNKNOWN}
        return self.specs[specs.pop()] if len(specs) == 1 else None

    def has_run_time(self, job: int) -> bool:
        """Whether an attempt of the job can end by itself after a time."""
        spec = self.spec_of(job)
        return spec is None or spec.max_run_ms > 0

    def rows_of_shard(self, shard: int) -> range:
        """The rows of a shard's events."""
        first = self.start.get(shard)
        if first is None:
            return range(0)
        later = [row for row in self.start.values() if row > first]
        return range(first, min(later, default=len(self.events.key)))

    def gaps(self, shard: int) -> list[int]:
        """The first event after each part that no listener followed."""
        rows, found = self.rows_of_shard(shard), []
        parts = sorted(
            (part.start, part.end) for part in self.feeding.segments if part.shard == shard
        )
        until = parts[0][1] if parts else 0
        for start, end in parts:
            if start > until:
                found.append(bisect_right(self.events.key, start, rows.start, rows.stop))
            until = max(until, end)
        return found

    def is_covered(self, shard: int, index: int) -> bool:
        """Whether some listener has all events of an entry."""
        key = index << NUMBER_BITS
        return any(
            part.shard == shard and part.start <= key and part.end >= key | WHOLE
            for part in self.feeding.segments
        )

    def may_be_bulk(self, job: int) -> bool:
        """Whether a bulk operation may have changed a job."""
        return self.has_wide_bulk or job in self.bulk_jobs

    def calm_since(self, time: int) -> int:
        """When the faults began that may still have an effect; the time itself if none has.

        A job that waited before that time waited for all leaders that can have answered.
        """
        at = bisect_right(self.unrest, (time, NEVER)) - 1
        return self.unrest[at][0] if at >= 0 and time <= self.unrest[at][1] else time

    def small_ops(self, *names: str) -> Iterator[tuple[int, Op]]:
        """Ops on queues, bulk operations and searches, with their calls."""
        for call, op in zip(self.small_calls, self.small, strict=True):
            if op.f in names:
                yield call, op

    def phase_time(self, name: str) -> int | None:
        """When a phase began."""
        return next((phase.t for phase in self.phases if phase.name == name), None)
