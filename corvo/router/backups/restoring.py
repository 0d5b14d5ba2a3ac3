"""Documents of a backup, sent to the shards that they belong to now.

A job that is not in its home comes in two steps, as `corvo.shard.ops.restore` says: first the home
stores where it is, and says whether it exists already.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import trio

from corvo.model import ApiKey
from corvo.protocol.ops.keys import HOME, UpsertAPIKey
from corvo.protocol.ops.restore import Restore, Restored
from corvo.router.api import Api
from corvo.router.backups.placing import RestoreBody, parts_of
from corvo.router.http.messages import Problem
from corvo.router.http.request_keys import OwnedKey

SHOWN_MAX: Final = 100
"""Ids of jobs that exist which one answer names."""
_decode: Final = msgspec.json.Decoder(Restored).decode


class RestoreResult(msgspec.Struct, kw_only=True):
    """What came back. What existed already was not changed."""

    jobs: int = 0
    queues: int = 0
    batches: int = 0
    schedules: int = 0
    spawned: int = 0
    api_keys: int = 0
    existing: int = 0
    existing_ids: list[str] = []


async def send(
    api: Api, sent: RestoreBody, key: OwnedKey, *, by: str
) -> tuple[RestoreResult, dict[int, int]]:
    """Bring documents back. Returns what came back, and the positions. Raises `Problem`."""
    parts = parts_of(sent, len(api.shards))
    reached: dict[int, int] = {}
    homes = await _submit(api, parts.leads(), key, "leads", by, reached)
    existing = [job_id for told in homes for job_id in told.existing]
    result = RestoreResult()
    for told in await _submit(api, parts.documents(existing), key, "documents", by, reached):
        result.jobs += told.jobs
        result.queues += told.queues
        result.batches += told.batches
        result.schedules += told.schedules
        result.spawned += told.spawned
        existing += told.existing
    if parts.api_keys:
        result.api_keys = await _restore_keys(api, parts.api_keys, by=by)
    result.existing, result.existing_ids = len(existing), existing[:SHOWN_MAX]
    return result, reached


async def _restore_keys(api: Api, keys: Iterable[ApiKey], *, by: str) -> int:
    """Create the API keys that do not exist. Raises `Problem`."""
    await api.keeper.read()
    known, count = api.keyring.keys, 0
    for key in keys:
        if key.key_hash not in known:
            op = UpsertAPIKey(
                by=by,
                key_hash=key.key_hash,
                name=key.name,
                role=key.role,
                namespace=key.namespace,
                queue_scope=key.queue_scope,
                enabled=key.enabled,
                expires_ns=key.expires_ns,
            )
            await api.shards[HOME].submit(op)
            count += 1
    return count


async def _submit(
    api: Api,
    ops: Mapping[int, Restore],
    key: OwnedKey,
    what: str,
    by: str,
    reached: dict[int, int],
) -> list[Restored]:
    """Submit an op to each shard. Raises the first `Problem`, after all have answered."""
    found: list[Restored] = []
    problems: list[Problem] = []

    async def submit(shard: int, op: Restore) -> None:
        try:
            op = key.on(msgspec.structs.replace(op, by=by), "restore", what, shard)
            answer = await api.shards[shard].submit(op)
        except Problem as problem:
            problems.append(problem)
            return
        reached[shard] = answer.index
        found.append(_decode(answer.body))

    async with trio.open_nursery() as nursery:
        for shard, op in ops.items():
            nursery.start_soon(submit, shard, op)
    if problems:
        raise problems[0]
    return found
