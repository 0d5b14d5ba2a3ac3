"""The queues of jobs and batches that a request names: its caller's rights are checked by them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from corvo.ids import queue_of_id, shard_of, stand_in
from corvo.protocol.ops.base import ITEMS_MAX
from corvo.protocol.queries import BatchQueues, GetBatchQueues
from corvo.router.shards.addressing import Addresses, landed, whereabouts
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Shards


async def queues_of(
    shards: Shards, addresses: Addresses, job_ids: Sequence[str]
) -> set[tuple[str, str]]:
    """Jobs and their queues. Raises `Problem`.

    A job is in the queue to which it was moved, in whichever shard. A job that does not exist is in
    the queue of its id, if that has one. An id without a queue can be that of jobs in several.
    """
    home = [(each, job_id) for job_id in job_ids for each in addresses.candidates(job_id)]
    queues, moved = await _look(shards, home)
    found, _ = await _look(shards, [(shard, job_id) for job_id, _, shard in moved])
    queues |= found
    there = {job_id for job_id, _ in queues}
    for job_id, home_shard, shard in moved:
        if job_id not in there:  # it is on its way
            at = await landed(shards, job_id, home_shard, shard)
            queues |= (await _look(shards, [(at, job_id)] if at >= 0 else []))[0]
    there = {job_id for job_id, _ in queues}
    named = ((job_id, queue_of_id(job_id)) for job_id in job_ids if job_id not in there)
    return queues | {(job_id, queue) for job_id, queue in named if queue}


async def queues_of_batches(shards: Shards, batch_ids: Sequence[str]) -> dict[str, str]:
    """The queues that batches belong to, of those that exist. Raises `Problem`."""
    by_shard: dict[int, list[str]] = {}
    for batch_id in batch_ids:
        home = shard_of(batch_id)
        if home is not None:
            by_shard.setdefault(stand_in(home, len(shards)), []).append(batch_id)
    queues: dict[str, str] = {}

    async def look(shard: int, ids: list[str]) -> None:
        for start in range(0, len(ids), ITEMS_MAX):
            query = GetBatchQueues(batch_ids=ids[start : start + ITEMS_MAX])
            queues.update(_read_queues((await shards[shard].ask(query)).body).queues)

    await together([partial(look, *each) for each in by_shard.items()])
    return queues


_read_queues: Final = msgspec.json.Decoder(BatchQueues).decode


async def _look(
    shards: Shards, wanted: Iterable[tuple[int, str]]
) -> tuple[set[tuple[str, str]], list[tuple[str, int, int]]]:
    """Jobs that a shard has, with their queues; and those that have moved, with both shards."""
    by_shard: dict[int, list[str]] = {}
    for shard, job_id in wanted:
        by_shard.setdefault(shard, []).append(job_id)
    queues: set[tuple[str, str]] = set()
    moved: list[tuple[str, int, int]] = []

    async def look(shard: int, job_ids: list[str]) -> None:
        for start in range(0, len(job_ids), ITEMS_MAX):
            seen = await whereabouts(shards[shard], job_ids[start : start + ITEMS_MAX])
            queues.update(seen.queues.items())
            moved.extend((job_id, shard, to) for job_id, to in seen.moved.items())

    await together([partial(look, *each) for each in by_shard.items()])
    return queues, moved
