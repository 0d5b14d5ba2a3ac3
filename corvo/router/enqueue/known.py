"""Jobs that a client sends again under an id that it chose: found where they are, and compared.

The shard of the queue compares a new job with the one that it has under the id. A job that has
moved to another shard is compared there. Same job: the client gets it. Another one: 409.
"""

from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.protocol.ops.base import json_bytes
from corvo.protocol.ops.enqueue import MOVED, Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.protocol.queries import Existing, GetExisting
from corvo.router.api import Api
from corvo.router.caller import Caller
from corvo.router.http.messages import Problem
from corvo.router.http.request_keys import OwnedKey
from corvo.router.shards.addressing import HOPS_MAX, located, moving


def enqueue_op(jobs: list[NewJob], by: str) -> Enqueue:
    """The op that creates jobs."""
    op = Enqueue(jobs=jobs, by=by)
    # Without ids the op is that of an older router: the same request has the same op.
    for job in jobs:  # a generator would cost a sixth of what a router does for a job
        if job.id is not None or job.depends_on:
            return replace(op, has_full_ids=True)
    return op


async def known(
    api: Api, caller: Caller, new: NewJob, made: Enqueued, *, key: OwnedKey, field: str = "id"
) -> Enqueued:
    """The answer for a job whose id is known. Raises `Problem` if it is another job.

    `field` is the place of the id in the request. If the job that had the id was deleted in another
    shard, the new job is sent once more, under a request key that follows from `key`.
    """
    assert new.id is not None
    hops = 0
    while made.status == MOVED:
        hops += 1
        if hops > HOPS_MAX:
            raise moving(new.id)
        shard = await located(api.shards, api.addresses, new.id)
        if shard < 0:
            again = key.on(enqueue_op([new], caller.signature), "queue", new.queue, new.id)
            answer = await api.shards[api.addresses.first(new.id)].submit(again)
            [made] = read_enqueued(answer.body).jobs
        else:
            answer = await api.shards[shard].ask(GetExisting(new=new))
            made = _read_existing(answer.body).found or made
    if made.differs is not msgspec.UNSET:
        raise _reused(new, made, made.differs, field)
    if made.queue is not msgspec.UNSET and not caller.scope.covers(made.queue):
        # It was moved out of the caller's sight.
        return Enqueued(made.job_id, MOVED, unique_existing=True)
    return made


_read_existing: Final = msgspec.json.Decoder(Existing).decode
read_enqueued: Final = msgspec.json.Decoder(EnqueueResults).decode


def _reused(new: NewJob, there: Enqueued, differs: list[str], field: str) -> Problem:
    names = [f"another {name}" for name in differs]
    if there.payload_sha256 is not msgspec.UNSET:
        sent = sha256(json_bytes(new.payload, b"{}")).hexdigest()
        names[0] = f"another payload (SHA-256 {there.payload_sha256}; yours {sent})"
    return Problem(
        409,
        "ID_REUSED",
        f"job {there.job_id!r} exists with {', '.join(names)}: nothing was created; "
        "choose another id for another job",
        field=field,
        job_id=there.job_id,
        differs=tuple(differs),
    )
