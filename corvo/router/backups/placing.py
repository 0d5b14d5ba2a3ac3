"""Documents of a backup, placed: which shard is sent which of them."""

from collections.abc import Iterable
from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.ids import home_of, stand_in
from corvo.model import FINISHED, ApiKey, Batch, Queue, Schedule
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import ITEMS_MAX
from corvo.protocol.ops.restore import Leads, Restore, RestoredJob, RestoredSpawn
from corvo.router.http.bodies import read_body
from corvo.router.http.messages import encode_json

Stored: TypeAlias = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=ITEMS_MAX)]
"""Documents as they are stored. They are no part of the API: releases may change them."""


class RestoreBody(msgspec.Struct, frozen=True, kw_only=True):
    """Documents of a backup, as they are stored."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    jobs: Stored = []
    queues: Stored = []
    batches: Stored = []
    schedules: Stored = []
    spawns: Stored = []
    api_keys: Stored = []


class _Documents(msgspec.Struct, frozen=True, kw_only=True):
    """The same, as the server knows them."""

    shards: int
    jobs: list[RestoredJob] = []
    queues: list[Queue] = []
    batches: list[Batch] = []
    schedules: list[Schedule] = []
    spawns: list[RestoredSpawn] = []
    api_keys: list[ApiKey] = []


_decode_documents: Final = msgspec.json.Decoder(_Documents).decode


class Parts:
    """What each shard is sent."""

    def __init__(self, body: _Documents, shards: int) -> None:
        self._body = body
        self._shards = shards

    def leads(self) -> dict[int, Restore]:
        """For homes: the jobs that are in other shards."""
        found: dict[int, list[Leads]] = {}
        for each in self._body.jobs:
            job, shard = each.job, self._of(each.job.queue)
            home = home_of(job.id, self._shards)
            if home is not None and (home := stand_in(home, self._shards)) != shard:
                state = job.state.value if job.state in FINISHED else ""
                found.setdefault(home, []).append(Leads(job.id, shard, state))
        return {
            shard: Restore(shards=self._body.shards, leads=tuple(leads))
            for shard, leads in found.items()
        }

    def documents(self, existing: Iterable[str]) -> dict[int, Restore]:
        """For the shards of queues and batches: what belongs there, without the jobs that exist."""
        body, left_out = self._body, frozenset(existing)
        jobs: dict[int, list[RestoredJob]] = {}
        for job in body.jobs:
            if job.job.id not in left_out:
                jobs.setdefault(self._of(job.job.queue), []).append(job)
        queues: dict[int, list[Queue]] = {}
        for queue in body.queues:
            queues.setdefault(self._of(queue.name), []).append(queue)
        batches: dict[int, list[Batch]] = {}
        for batch in body.batches:
            home = home_of(batch.id, self._shards)
            batches.setdefault(stand_in(home or 0, self._shards), []).append(batch)
        schedules: dict[int, list[Schedule]] = {}
        for schedule in body.schedules:
            schedules.setdefault(self._of(schedule.queue), []).append(schedule)
        spawns: dict[int, list[RestoredSpawn]] = {}
        for spawn in body.spawns:
            spawns.setdefault(self._of(spawn.queue), []).append(spawn)
        return {
            shard: Restore(
                shards=body.shards,
                jobs=tuple(jobs.get(shard, ())),
                queues=tuple(queues.get(shard, ())),
                batches=tuple(batches.get(shard, ())),
                schedules=tuple(schedules.get(shard, ())),
                spawns=tuple(spawns.get(shard, ())),
            )
            for shard in sorted({*jobs, *queues, *batches, *schedules, *spawns})
        }

    @property
    def api_keys(self) -> list[ApiKey]:
        """API keys, which are in no shard of a queue."""
        return self._body.api_keys

    def _of(self, queue: str) -> int:
        return shard_of_queue(queue, self._shards)


def parts_of(sent: RestoreBody, shards: int) -> Parts:
    """What each of so many shards is sent. Raises `Problem`."""
    return Parts(read_body(_decode_documents, encode_json(sent)), shards)
