"""Workers: they fetch, renew leases, and complete, fail, give back or postpone their jobs."""

from collections.abc import Sequence
from random import Random
from typing import Final

import trio

from chaos.calls import Client
from chaos.history import Delivered, Item
from chaos.workloads.scene import LEASE_MS, QUEUES, Scene, Workload

_CLIENTS: Final = 10
_SINGLE: Final = 4
"""Of these, so many ask one queue at a time. An answer without a job says something about it."""
_COUNT_MAX: Final = 10
_WAIT_MS: Final = 1_000
_LONG_WAIT_MS: Final = 4_000
_WORK_S: Final = 0.15
_LONG_S: Final = 5.0


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    is_single = int(client.name.rpartition("-")[2]) < _SINGLE
    waits = (0, 0, _WAIT_MS, _LONG_WAIT_MS) if is_single else (0, _WAIT_MS)
    while not scene.stopping.is_set():
        queues = (random.choice(QUEUES),) if is_single else chosen(random)
        count = random.randrange(1, _COUNT_MAX)
        jobs = await client.fetch(queues, count, wait_ms=random.choice(waits), lease_ms=LEASE_MS)
        if not jobs and not await scene.pause(random, 4):
            return
        if random.random() < 0.3 and len(jobs) > 1:
            await trio.sleep(random.random() * _WORK_S)
            await client.ack_many([item_of(job) for job in jobs])
            continue
        for job in jobs:
            await work(client, job)


def chosen(random: Random) -> Sequence[str]:
    """Some queues, in any order: each queue gets workers in time."""
    return random.sample(QUEUES, random.randrange(3, len(QUEUES)))


def item_of(job: Delivered) -> Item:
    """A job as a call about it names it."""
    return Item(job.job_id, job.token)


async def work(client: Client, job: Delivered) -> None:
    """Work on one job, and end it in one of the ways that there are."""
    random = client.random
    item = item_of(job)
    if random.random() < 0.02:
        for _ in range(3):
            await trio.sleep(_LONG_S / 3)
            await client.heartbeat([item])
    elif random.random() < 0.2:
        await trio.sleep(random.random() * _WORK_S)
    way = random.random()
    if way < 0.84:
        await client.finish("ack", item)
    elif way < 0.92:
        await client.finish("fail", item, error="as planned")
    elif way < 0.94:
        final = Item(item.job_id, item.token, retryable=False)
        await client.finish("fail", final, error="never again", retryable=False)
    elif way < 0.97:
        await client.finish("release", item)
    else:
        later = Item(item.job_id, item.token, delay_ms=500)
        await client.finish("snooze", later, delay_ms=500)


WORKLOAD: Final = Workload(
    name="workers",
    what="fetch jobs, renew leases, and ack, fail, release or snooze each job",
    clients=_CLIENTS,
    run=_run,
)
