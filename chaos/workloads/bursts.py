"""Bursts: many jobs in one request, given out and acknowledged many at once."""

from collections.abc import Sequence
from random import Random
from typing import Final

from chaos.calls import Client
from chaos.history import NewJob
from chaos.workloads.scene import BURSTS, LEASE_MS, Scene, Workload, plain, produce
from chaos.workloads.workers import item_of, work

_CLIENTS: Final = 4
_SHARE: Final = 1.0
"""Jobs, as a share of the run's rate: these clients make as many again as all others."""
_JOBS: Final = (10, 60)
_JOBS_MEAN: Final = sum(_JOBS) / 2
_COUNT_MAX: Final = 50
_WAIT_MS: Final = 1_000


def _jobs(random: Random) -> Sequence[NewJob]:
    queue = random.choice(BURSTS)
    return [plain(queue, random) for _ in range(random.randint(*_JOBS))]


async def _run(scene: Scene, client: Client) -> None:
    if client.name.endswith("-0"):
        await produce(scene, client, _SHARE / _JOBS_MEAN, _jobs)
        return
    random = client.random
    while not scene.stopping.is_set():
        jobs = await client.fetch(BURSTS, _COUNT_MAX, wait_ms=_WAIT_MS, lease_ms=LEASE_MS)
        if not jobs and not await scene.pause(random, 4):
            return
        alone = jobs[:1] if random.random() < 0.2 else []
        for job in alone:
            await work(client, job)
        if rest := jobs[len(alone) :]:
            await client.ack_many([item_of(job) for job in rest])


WORKLOAD: Final = Workload(
    name="bursts",
    what="enqueue dozens of jobs in one request, and fetch and ack dozens at once",
    clients=_CLIENTS,
    run=_run,
)
