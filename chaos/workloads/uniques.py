"""Jobs that may exist once: few unique keys for many jobs, and ids that the client chooses."""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from chaos.calls import Client
from chaos.history import NewJob
from chaos.workloads.scene import NAMED, UNIQUE, Scene, Workload, plain, produce

_CLIENTS: Final = 2
_SHARE: Final = 0.1
_KEYS: Final = 8
_NAMES: Final = 40


def _jobs(random: Random) -> Sequence[NewJob]:
    job = plain(random.choice((UNIQUE, NAMED)), random)
    if job.queue == UNIQUE:
        return [msgspec.structs.replace(job, unique_key=f"key-{random.randrange(_KEYS)}")]
    # Another job under an id that exists is rejected, which is to be seen as well.
    return [msgspec.structs.replace(job, id=f"{NAMED}~{random.randrange(_NAMES)}")]


async def _run(scene: Scene, client: Client) -> None:
    await produce(scene, client, _SHARE / _CLIENTS, _jobs)


WORKLOAD: Final = Workload(
    name="uniques",
    what="enqueue jobs with few unique keys, and with ids of the client's choice",
    clients=_CLIENTS,
    run=_run,
)
