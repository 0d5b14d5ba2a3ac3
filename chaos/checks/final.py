"""Stage 7: the end. What was read after the drain must be what all that happened leads to.

Jobs are in the states that the events lead to; the counters of a queue are those of a recount; the
mirror of each node has the jobs of the shards; replicas at one index have one digest; batches and
chains add up; no job waits that could have been given out.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from chaos.checks.report import Stage
from chaos.checks.tables import REFUSED, Tables
from chaos.history import (
    BatchRow,
    FinalBatch,
    FinalDone,
    FinalMirror,
    FinalQueue,
    FinalReplica,
    JobRow,
    QueueRow,
)
from chaos.model import STATES, UNKNOWN, Model

UNFINISHED: Final = ("pending", "active", "scheduled", "retrying")
"""States that a job leaves while workers empty its queue."""
RESERVED: Final = "_corvo."
"""Queues of the server itself: no list has their jobs."""


class Ending:
    """The final reading."""

    def __init__(self, tables: Tables, model: Model | None, stage: Stage) -> None:
        self.tables, self.model, self.stage = tables, model, stage
        self.ends = tables.ends
        self.is_fresh = tables.run is None or tables.run.is_fresh
        self.done: FinalDone | None = None
        for record in tables.final:
            if isinstance(record, FinalDone):
                self.done = record

    def run(self) -> None:
        """Compare all."""
        self.stage.count("jobs", len(self.ends.job))
        self.replicas()
        if self.done is None:
            return
        self.stage_ends()
        self.states()
        self.counters()
        self.mirrors()
        self.batches()
        self.chains()
        if self.done.drained or self.tables.phase_time("drain") is not None:
            self.stranded(("pending",) if self.done.drained else UNFINISHED)

    def stage_ends(self) -> None:
        """The reading itself is whole."""
        assert self.done is not None
        if self.done.jobs != len(self.ends.job):
            self.stage.wrong(
                "S6", f"the reading says {self.done.jobs} jobs, and has {len(self.ends.job)}"
            )

    def replicas(self) -> None:
        """A3: replicas of a shard at one index have one digest."""
        known: dict[tuple[int, int], FinalReplica] = {}
        for record in self.tables.final:
            if not isinstance(record, FinalReplica) or not record.digest:
                continue
            self.stage.count("replicas")
            other = known.setdefault((record.shard, record.index), record)
            if other.digest != record.digest:
                self.stage.wrong(
                    "A3",
                    f"s{record.shard} at {record.index} has the digest {other.digest} at "
                    f"{other.node} and {record.digest} at {record.node}",
                )

    def states(self) -> None:
        """Each job is in the state that its events lead to."""
        model = self.model
        if model is None:
            return
        for job in self.ends.job:
            expected, state = model.state(job), self.ends.state_of(job)
            if expected in ("", UNKNOWN):
                if not expected:
                    self.gone(job, state)
                continue
            self.stage.count("states")
            if expected != state:
                name = self.tables.jobs.texts[job]
                self.stage.wrong(
                    "X3", f"job {name} is {state} at the end, by its events {expected}"
                )
        for job, held in model.jobs.items():
            missing = self.ends.row(job) < 0 and not self.is_reserved(held.queue)
            if held.state != UNKNOWN and missing:
                self.stage.wrong(
                    "D1",
                    f"job {self.tables.jobs.texts[job]} is {held.state} by its events, and does "
                    "not exist at the end",
                )

    def gone(self, job: int, state: str) -> None:
        """A job exists that has no events, or was deleted by them."""
        words = [
            self.tables.feeding.types.texts[self.tables.events.type[event]]
            for event in self.tables.events_of.of(job)
        ]
        if words and words[-1] in ("deleted", "purged"):
            name = self.tables.jobs.texts[job]
            self.stage.wrong("X3", f"job {name} is {state} at the end, and was {words[-1]}")

    @staticmethod
    def is_reserved(queue: str) -> bool:
        """Whether a queue belongs to the server."""
        return queue.startswith(RESERVED)

    def counters(self) -> None:
        """C2: the counters of each queue are those of a recount."""
        if not self.is_fresh:
            return  # the reading has only the jobs that the run knows
        counted: dict[str, Counter[str]] = {}
        ends = self.ends
        for number, state in zip(ends.queue, ends.state, strict=True):
            queue = self.tables.queues.texts[number]
            counted.setdefault(queue, Counter())[ends.states.texts[state]] += 1
        seen: set[str] = set()
        for record in self.tables.final:
            if isinstance(record, FinalQueue):
                seen.add(record.row.name)
                self.queue(record.node, record.row, counted.get(record.row.name, Counter()))
        for queue in sorted(counted.keys() - seen):
            if seen and not self.is_reserved(queue):
                self.stage.wrong("C2", f"queue {queue} has jobs, and is in no list of queues")

    def queue(self, node: str, row: QueueRow, counted: Counter[str]) -> None:
        """One queue as one node gave it."""
        told = {
            "pending": row.pending, "scheduled": row.scheduled, "active": row.active,
            "retrying": row.retrying, "held": row.held, "completed": row.completed,
            "dead": row.dead, "cancelled": row.cancelled,
        }  # fmt: skip
        assert set(told) == set(STATES)
        self.stage.count("queues")
        for state, number in told.items():
            if number != counted[state]:
                self.stage.wrong(
                    "C2",
                    f"queue {row.name} has {number} {state} jobs by {node}, and by a recount "
                    f"{counted[state]}",
                )
        if row.enqueued != counted.total():
            self.stage.wrong(
                "C2", f"queue {row.name} has {row.enqueued} jobs by {node}, not {counted.total()}"
            )

    def mirrors(self) -> None:
        """M3: the mirror of each node has the jobs of the shards, and no other."""
        answers: dict[str, FinalMirror] = {}
        for record in self.tables.final:
            if isinstance(record, FinalMirror):
                answers[record.node] = record
        ends, texts = self.ends, self.tables.jobs.texts
        seen = {node: bytearray(len(texts)) for node in answers}
        rows = zip(ends.mirror_node, ends.mirror_job, ends.mirror_sum, strict=True)
        for number, job, told in rows:
            node = ends.nodes.texts[number]
            answer = answers.get(node)
            if answer is None or not answer.is_whole or answer.is_behind:
                continue
            seen[node][job] = 1
            self.stage.count("mirror rows")
            self.mirror_row(node, job, told)
        for node, answer in answers.items():
            if not answer.is_whole or answer.is_behind:
                self.stage.wrong("M3", f"the mirror of {node} has not caught up after the drain")
                continue
            missing = [
                texts[job]
                for job, queue in zip(ends.job, ends.queue, strict=True)
                if not seen[node][job] and not self.is_reserved(self.tables.queues.texts[queue])
            ]
            if missing:
                self.stage.wrong(
                    "M3",
                    f"the mirror of {node} lacks {len(missing)} jobs, such as {missing[0]}",
                )

    def mirror_row(self, node: str, job: int, told: int) -> None:
        """One job of a mirror and of its shard."""
        name, row = self.tables.jobs.texts[job], self.ends.row(job)
        if row < 0:
            if self.is_fresh:
                self.stage.wrong("M3", f"the mirror of {node} has {name}, which does not exist")
            return
        held = self.ends.sum_of(row)
        if held != told:
            self.stage.wrong(
                "M3",
                f"the mirror of {node} has {name} as {self.ends.told(told)}, and the shard as "
                f"{self.ends.told(held)}",
            )

    def batches(self) -> None:
        """B1: the counts of a batch add up, and are those of a recount."""
        members: dict[str, list[JobRow]] = {}
        for row in self.ends.linked:
            if row.batch_id:
                members.setdefault(row.batch_id, []).append(row)
        for record in self.tables.final:
            if isinstance(record, FinalBatch):
                self.stage.count("batches")
                self.batch(record.row, members.get(record.row.id, []))

    def batch(self, row: BatchRow, members: list[JobRow]) -> None:
        """One batch."""
        if row.total != row.pending + row.succeeded + row.failed + row.cancelled:
            self.stage.wrong("B1", f"the counts of batch {row.id} do not add up to {row.total}")
        if row.removed or len(members) != row.total:
            return  # jobs of it are gone, or were announced and never added
        counted = Counter(member.state for member in members)
        told = (row.succeeded, row.failed, row.cancelled)
        if told != (counted["completed"], counted["dead"], counted["cancelled"]):
            self.stage.wrong(
                "B1",
                f"batch {row.id} has {told} jobs that succeeded, failed and were cancelled, and "
                f"its jobs are {dict(counted)}",
            )

    def chains(self) -> None:
        """H1: each step of a chain is one job, and a completed step has its next one."""
        steps: dict[tuple[str, int], JobRow] = {}
        for row in self.ends.linked:
            if not row.chain_id or row.chain_step is None:
                continue
            self.stage.count("chain jobs")
            other = steps.setdefault((row.chain_id, row.chain_step), row)
            if other is not row:
                self.stage.wrong(
                    "H1",
                    f"{other.job_id} and {row.job_id} are both step {row.chain_step} of "
                    f"{row.chain_id}",
                )
        for (chain, step), row in steps.items():
            if step == 0:
                self.chain(chain, row, steps)

    def chain(self, chain: str, first: JobRow, steps: dict[tuple[str, int], JobRow]) -> None:
        """The steps of one chain, as far as none of its jobs may be gone or left it early."""
        spec = self.tables.spec_of(self.tables.jobs.number(first.job_id))
        if spec is None or spec.chain is None:
            return
        here = [row for (name, _), row in steps.items() if name == chain]
        if any(self.is_meddled(row) for row in here):
            return
        for step in range(len(spec.chain.steps) - 1):
            row = steps.get((chain, step))
            if row is None:
                return
            if row.state == "completed" and (chain, step + 1) not in steps:
                self.stage.wrong("H1", f"{row.job_id} is completed, and step {step + 1} is missing")
            if row.state != "completed" and (chain, step + 1) in steps:
                self.stage.wrong("H1", f"{row.job_id} is {row.state}, and step {step + 1} exists")
        failed = any(
            row.state == "dead" for (name, at), row in steps.items() if name == chain and at >= 0
        )
        if spec.chain.on_failure is not None and failed != ((chain, -2) in steps):
            state = "failed" if failed else "did not fail"
            self.stage.wrong("H1", f"{chain} {state}: its handler of failures does not fit")

    def is_meddled(self, row: JobRow) -> bool:
        """Whether an operator, or the worker's own word, may have changed the course of a chain."""
        tables = self.tables
        job = tables.jobs.number(row.job_id)
        if any(True for _ in tables.small_ops("clear", "delete_queue", "retention")):
            return True
        if tables.may_be_bulk(job):
            return True
        if tables.run is None or tables.run.retention_ms:
            return True
        operators = {tables.fs.find(name) for name in ("retry", "requeue", "cancel", "delete")}
        return any(
            tables.items.how[item] != REFUSED
            and (tables.items.f[item] in operators or tables.items.flags[item] & 2)
            for item in tables.items_of.of(job)
        )

    def stranded(self, states: Collection[str]) -> None:
        """O5: no job waits in a queue that gives out jobs."""
        stopped = {
            record.row.name
            for record in self.tables.final
            if isinstance(record, FinalQueue) and (record.row.paused or record.row.draining)
        }
        for job, number in zip(self.ends.job, self.ends.queue, strict=True):
            queue = self.tables.queues.texts[number]
            state = self.ends.state_of(job)
            if state not in states or queue in stopped or self.is_reserved(queue):
                continue
            if not self.waits(job):
                name = self.tables.jobs.texts[job]
                self.stage.wrong("O5", f"job {name} of queue {queue} is still {state}")

    def waits(self, job: int) -> bool:
        """Whether a job waits for another one that is not completed."""
        spec = self.tables.spec_of(job)
        names = spec.depends_on if spec is not None else ()
        return any(
            self.ends.state_of(self.tables.jobs.find(name) or -1) != "completed" for name in names
        )


def check(tables: Tables, model: Model | None, stage: Stage) -> None:
    """Compare the final reading with all before it."""
    Ending(tables, model, stage).run()
