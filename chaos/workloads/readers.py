"""Readers: they read the newest jobs again and again, wherever a read may be too old."""

from typing import Final

from chaos.calls import Client
from chaos.workloads.scene import Scene, Workload

_PER_S: Final = 4.0
_NEWEST: Final = 10


async def _run(scene: Scene, client: Client) -> None:
    while await scene.pause(client.random, _PER_S):
        if scene.recent:
            newest = list(scene.recent)[-_NEWEST:]
            await client.get(client.random.choice(newest))


WORKLOAD: Final = Workload(
    name="readers",
    what="read the newest jobs again and again",
    clients=6,
    run=_run,
)
