"""Counters of queues by the book: each op's answer and jobs are looked at, before and after it."""

from collections import Counter
from typing import Final, NamedTuple

from tests.shard.reference import Reference
from tests.shard.shapes import Fields, rows, text

ENDS: Final = ("completed", "dead", "cancelled")


class Before(NamedTuple):
    """What is remembered of a job."""

    queue: str
    state: str
    failures: int


class CountingTwin:
    """Counts what happened in each queue within one entry."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._before: dict[str, Before] = {}
        self._queues: set[str] = set()
        self._is_repeated = False
        self.counted: Counter[tuple[str, str]] = Counter()
        """By queue and what happened."""

    def begin(self) -> None:
        """An entry begins."""
        self.counted = Counter()

    def look(self, fields: Fields) -> None:
        """Remember all jobs and queues, before an op."""
        self._queues = {*self._reference.queues}
        self._before = {
            job.id: Before(job.queue, job.state, job.failures)
            for job in self._reference.jobs.values()
        }
        self._is_repeated = text(fields, "request_key") in self._reference.requests

    def saw(self, name: str, fields: Fields, answer: Fields) -> None:
        """An op was applied."""
        if name == "Enqueue" and "jobs" in answer and not self._is_repeated:
            for asked, made in zip(rows(fields, "jobs"), rows(answer, "jobs"), strict=True):
                queue = text(asked, "queue")
                if not made["unique_existing"]:
                    self._queues.add(queue)
                    self._count(queue, "enqueued")
                elif queue in self._queues:  # else there is nothing to count it for yet
                    self._count(queue, "duplicate")
        for job in self._reference.jobs.values():
            before = self._before.get(job.id)
            if before is None:
                continue  # it was enqueued, or arrived
            self.counted[job.queue, "failed"] += job.failures - before.failures
            if job.state == before.state:
                continue
            if job.state in ENDS:
                self._count(job.queue, job.state)
            if job.state == "active":
                self._count(job.queue, "fetched")
            if job.state == "retrying":
                self._count(job.queue, "retried")
            if job.state == "dead" and name in {"Expire", "Fetch"}:
                self._count(job.queue, "expired")
            if before.state == "active" and name == "Reclaim":
                self._count(job.queue, "lease_expired")

    def _count(self, queue: str, what: str) -> None:
        self.counted[queue, what] += 1
