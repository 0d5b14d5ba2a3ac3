"""Operators: they cancel, hold, approve, retry, move and delete jobs, also many at once."""

from typing import Final

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args, Item
from chaos.workloads.scene import LEASE_MS, MOVING, OPERATED, Scene, Workload, plain
from chaos.workloads.workers import item_of

_PER_S: Final = 1.5
_ACTIONS: Final = (
    "cancel", "cancel", "hold", "hold", "approve", "approve", "reject", "retry", "requeue",
    "expedite", "priority", "move", "move", "delete",
)  # fmt: skip
_KEPT: Final = 60
_REASON: Final = "as planned"
_STOPS: Final = 0.2


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    ids: list[str] = []
    while await scene.pause(random, _PER_S):
        queue = random.choice((OPERATED, *MOVING))
        op = await client.enqueue([plain(queue, random)])
        ids = [*ids, *(one.job_id for one in op.res.created if one.job_id)][-_KEPT:]
        if not ids:
            continue
        await _act(client, random.choice(_ACTIONS), random.choice(ids))
        if random.random() < _STOPS:
            await _stop(client)
        if random.random() < 0.1:
            await _bulk(client, random.choice(("cancel", "retry", "hold", "approve")), ids[-8:])


async def _act(client: Client, action: str, job_id: str) -> None:
    if action == "move":
        await client.change(action, job_id, queue=client.random.choice(MOVING))
    elif action == "priority":
        await client.change(action, job_id, priority=client.random.randrange(3))
    elif action in ("cancel", "hold", "reject"):
        await client.change(action, job_id, reason=_REASON)
    else:
        await client.change(action, job_id)


async def _stop(client: Client) -> None:
    """Cancel a job while a worker has it, which then reports how the job ended."""
    for job in await client.fetch((OPERATED, *MOVING), 1, lease_ms=LEASE_MS):
        await client.change("cancel", job.job_id, reason=_REASON)
        f = client.random.choice(("ack", "fail", "release"))
        fields = {"error": _REASON} if f == "fail" else {}
        await client.finish(f, item_of(job), tries=3, **fields)


async def _bulk(client: Client, action: str, ids: list[str]) -> None:
    await client.call(
        Request(
            f="bulk",
            path="/api/v1/jobs/bulk",
            body={"action": action, "job_ids": ids},
            args=Args(action=action, items=tuple(map(Item, ids))),
            read=api.read_status,
        )
    )


WORKLOAD: Final = Workload(
    name="operators",
    what="cancel, hold, approve, reject, retry, move, expedite and delete jobs, also in bulk, and "
    "cancel jobs that a worker has",
    clients=2,
    run=_run,
)
