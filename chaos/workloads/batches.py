"""Batches: jobs that are counted together, with a callback when all have ended."""

from typing import Final

import msgspec

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args, Callback
from chaos.workloads.scene import BATCH, BATCH_DONE, MAIL, Scene, Workload, plain

_PER_S: Final = 0.5


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    open_ids: list[str] = []
    while await scene.pause(random, _PER_S):
        count = random.randrange(1, 6)
        jobs = [plain(random.choice((BATCH, BATCH, MAIL[0])), random) for _ in range(count)]
        made = await client.enqueue(jobs, Callback(queue=BATCH_DONE))
        scene.note([one.job_id for one in made.res.created if one.job_id])
        if made.res.batch_id:
            open_ids = [*open_ids[-9:], made.res.batch_id]
        if open_ids and random.random() < 0.5:
            # It joins a batch, or learns that the batch has ended.
            late = msgspec.structs.replace(plain(BATCH, random), batch_id=random.choice(open_ids))
            await client.enqueue([late])
        if open_ids and random.random() < 0.3:
            await read(client, random.choice(open_ids))


async def read(client: Client, batch_id: str) -> None:
    """Read a batch."""
    await client.call(
        Request(
            f="batch",
            method="GET",
            path=f"/api/v1/batches/{batch_id}",
            args=Args(id=batch_id),
            read=api.read_batch,
            is_keyed=False,
        ),
        tries=2,
    )


WORKLOAD: Final = Workload(
    name="batches",
    what="enqueue batches with a callback, let jobs join, and read the counts",
    clients=2,
    run=_run,
)
