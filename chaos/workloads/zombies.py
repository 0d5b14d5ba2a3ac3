"""Zombies: workers that lose their lease and finish their jobs all the same, with old tokens."""

from typing import Final

from chaos.calls import Client
from chaos.workloads.scene import Scene, Workload
from chaos.workloads.workers import chosen, item_of

_LEASE_MS: Final = 1_000
_FETCHES_PER_S: Final = 0.3


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    while await scene.pause(random, _FETCHES_PER_S):
        jobs = await client.fetch(chosen(random), random.randrange(1, 4), lease_ms=_LEASE_MS)
        for job in jobs:
            # Around the end of the lease: some are in time, most are late.
            if not await scene.pause(random, 0.5):
                return
            f = random.choice(("ack", "ack", "fail", "release"))
            fields = {"error": "too late"} if f == "fail" else {}
            await client.finish(f, item_of(job), tries=2, **fields)


WORKLOAD: Final = Workload(
    name="zombies",
    what="lose their lease, and send ack, fail or release with the old token",
    clients=2,
    run=_run,
)
