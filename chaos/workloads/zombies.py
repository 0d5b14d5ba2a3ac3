"""Zombies: workers that lose their lease and finish their jobs all the same, with old tokens."""

from collections.abc import Sequence
from typing import Final

import trio

from chaos.calls import Client
from chaos.history import Delivered
from chaos.workloads.scene import LEASE_MS, Scene, Workload
from chaos.workloads.workers import chosen, item_of

_LEASE_MS: Final = 1_000
_FETCHES_PER_S: Final = 0.3
_LATE_S: Final = 0.2
_COUNT: Final = 10


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    while await scene.pause(random, _FETCHES_PER_S):
        jobs = await client.fetch(chosen(random), random.randrange(1, 4), lease_ms=_LEASE_MS)
        if random.random() < 0.5:
            with trio.move_on_after(_LEASE_MS / 1e3 + _LATE_S):
                await scene.stopping.wait()
            await _take_again(client, jobs)
            continue
        for job in jobs:
            # Around the end of the lease: some are in time, most are late.
            if not await scene.pause(random, 0.5):
                return
            f = random.choice(("ack", "ack", "fail", "release"))
            fields = {"error": "too late"} if f == "fail" else {}
            await client.finish(f, item_of(job), tries=2, **fields)


async def _take_again(client: Client, jobs: Sequence[Delivered]) -> None:
    """Fetch jobs whose leases have ended, and send their old tokens while the new ones hold."""
    old = {job.job_id: job for job in jobs}
    for queue in dict.fromkeys(job.queue for job in jobs):
        for job in await client.fetch((queue,), _COUNT, lease_ms=LEASE_MS):
            if job.job_id in old:
                await client.finish("ack", item_of(old[job.job_id]), tries=2)
            await client.finish("ack", item_of(job), tries=2)


WORKLOAD: Final = Workload(
    name="zombies",
    what="lose their lease, and send ack, fail or release with the old token, at times while a new "
    "one holds",
    clients=2,
    run=_run,
)
