"""A backup comes back: its documents, in the order in which a cluster needs them.

queues, batches and schedules      what jobs belong to
jobs                               those that wait for nothing
jobs that wait for others          each after the jobs that it waits for
jobs that were to be created       by the end of others
API keys                           last: they can close an open server

What has a name is not created twice. A job that was to be created has none until then: each comes
in a request of its own, whose key is the same in each restore.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from corvo.backup.documents import Documents, StoredJob, StoredSpawn
from corvo.client import backups as api
from corvo.model import ApiKey, Batch, Queue, Schedule
from corvo.protocol.ops.restore import RestoredJob, RestoredSpawn

PAGE_BYTES: Final = 512 << 10
"""Of the documents in one request, unless a single one is larger."""
PAGE_DOCUMENTS: Final = 500
_KEY_BYTES: Final = 16
T = TypeVar("T")


class Page(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of one request."""

    shards: int
    jobs: list[RestoredJob] = []
    queues: list[Queue] = []
    batches: list[Batch] = []
    schedules: list[Schedule] = []
    spawns: list[RestoredSpawn] = []
    api_keys: list[ApiKey] = []


class Progress(msgspec.Struct):
    """What came back until now."""

    jobs: int = 0
    queues: int = 0
    batches: int = 0
    schedules: int = 0
    spawned: int = 0
    api_keys: int = 0
    existing: int = 0
    """Jobs that the cluster has already. They were not changed."""
    existing_ids: list[str] = []


class Restoring:
    """Sends the documents of a backup to a cluster."""

    def __init__(
        self,
        send: "Callable[[Page, str], api.Restored]",
        documents: Documents,
        *,
        cluster: str,
        shards: int,
        step: Callable[[int], None],
    ) -> None:
        """`send` brings a page to the cluster, with a request key or none; it raises `ClientError`.

        `cluster` and `shards` are those of the backup, and `step` gets numbers of jobs.
        """
        self.done: Final = Progress()
        self._send_page = send
        self._documents = documents
        self._cluster = cluster
        self._shards = shards
        self._step = step

    def run(self, *, with_api_keys: bool = False) -> Progress:
        """Send everything. Raises `ClientError`; then it can be repeated."""
        documents = self._documents
        for queues in _pages(documents.queues()):
            self._send(Page(shards=self._shards, queues=queues))
        for batches in _pages(documents.batches()):
            self._send(Page(shards=self._shards, batches=batches))
        for planned in _pages(documents.schedules()):
            self._send(Page(shards=self._shards, schedules=planned))
        waiting: dict[str, tuple[str, ...]] = {}
        self._send_jobs(_without_waiting(documents.jobs(), waiting))
        for level in levels(waiting):
            self._send_jobs(each for each in documents.named(level) if each.job.waits_for)
        for each in documents.spawns():
            self._send(Page(shards=self._shards, spawns=[each.spawn]), _key(self._cluster, each))
        if with_api_keys:
            for keys in _pages(documents.api_keys()):
                self._send(Page(shards=self._shards, api_keys=keys))
        return self.done

    def _send_jobs(self, jobs: Iterable[StoredJob]) -> None:
        for page in _pages(each.restored() for each in jobs):
            self._send(Page(shards=self._shards, jobs=page))
            self._step(len(page))

    def _send(self, page: Page, request_key: str = "") -> None:
        told = self._send_page(page, request_key)
        done = self.done
        done.jobs += told.jobs
        done.queues += told.queues
        done.batches += told.batches
        done.schedules += told.schedules
        done.spawned += told.spawned
        done.api_keys += told.api_keys
        done.existing += told.existing
        done.existing_ids = [*done.existing_ids, *told.existing_ids][:100]


def _key(cluster: str, each: StoredSpawn) -> str:
    """The request key under which a job is created, and not a second time."""
    data = msgspec.json.encode((cluster, each.source, each.target, each.seq, each.spawn))
    return blake2b(data, digest_size=_KEY_BYTES).hexdigest()


def _without_waiting(
    jobs: Iterable[StoredJob], waiting: dict[str, tuple[str, ...]]
) -> Iterator[StoredJob]:
    """The jobs that wait for nothing; the others are noted."""
    for each in jobs:
        if each.job.waits_for:
            waiting[each.job.id] = each.job.waits_for
        else:
            yield each


def levels(waiting: dict[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Jobs in the order of their dependencies: each in a level after those that it waits for.

    Jobs that wait for each other in a circle are in the last one.
    """
    dependents: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for job_id, awaited in waiting.items():
        before = [each for each in awaited if each in waiting]
        left[job_id] = len(before)
        for each in before:
            dependents.setdefault(each, []).append(job_id)
    level = [job_id for job_id, count in left.items() if not count]
    while level:
        yield level
        later = []
        for job_id in level:
            del left[job_id]
            for dependent in dependents.get(job_id, ()):
                left[dependent] -= 1
                if not left[dependent]:
                    later.append(dependent)
        level = later
    if left:
        yield list(left)


def _pages(documents: Iterable[T]) -> Iterator[list[T]]:
    page: list[T] = []
    size = 0
    for document in documents:
        length = len(msgspec.json.encode(document))
        if page and (size + length > PAGE_BYTES or len(page) >= PAGE_DOCUMENTS):
            yield page
            page, size = [], 0
        page.append(document)
        size += length
    if page:
        yield page
