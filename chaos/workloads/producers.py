"""Producers: plain jobs, one by one and several at once, some of them for later."""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from chaos.calls import Client
from chaos.history import NewJob
from chaos.workloads.scene import MAIL, Scene, Workload, plain, produce

_CLIENTS: Final = 4
_SHARE: Final = 0.5
"""Share of the run's jobs that these clients make together."""
_JOBS_MEAN: Final = 2.0


def _jobs(random: Random) -> Sequence[NewJob]:
    count = random.choice((1, 1, 1, 2, 5))
    return [_later(plain(random.choice(MAIL), random), random) for _ in range(count)]


def _later(job: NewJob, random: Random) -> NewJob:
    if random.random() < 0.9:
        return job
    return msgspec.structs.replace(job, delay_ms=random.randrange(200, 5_000))


async def _run(scene: Scene, client: Client) -> None:
    await produce(scene, client, _SHARE / _CLIENTS / _JOBS_MEAN, _jobs)


WORKLOAD: Final = Workload(
    name="producers",
    what="enqueue plain jobs, one by one and several at once, with priorities and delays",
    clients=_CLIENTS,
    run=_run,
)
