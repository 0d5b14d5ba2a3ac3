"""Dependencies: jobs that wait for others, some of which are made later or never."""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from chaos.calls import Client
from chaos.history import NewJob
from chaos.workloads.scene import DEPENDENT, Scene, Workload, plain

_PER_S: Final = 0.6
_MISSING: Final = 0.1
_TWO: Final = 0.3
_WAIT_MS: Final = 3_000


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    number = 0
    while await scene.pause(random, _PER_S):
        number += 1
        first, second = random.sample(DEPENDENT, 2)
        name = f"{first}~{client.name}-{number}"
        jobs = _made(first, second, name, random)
        for job in jobs:
            op = await client.enqueue([job])
            scene.note([one.job_id for one in op.res.created if one.job_id])


def _made(first: str, second: str, name: str, random: Random) -> Sequence[NewJob]:
    """One or two jobs, and one that depends on them, which is at times not the last."""
    names = (name, f"{name}-too") if random.random() < _TWO else (name,)
    causes = [msgspec.structs.replace(plain(first, random), id=each) for each in names]
    effect = msgspec.structs.replace(plain(second, random), depends_on=names, wait_ms=_WAIT_MS)
    if random.random() < _MISSING:
        return [*causes[1:], effect]
    return [*causes, effect] if random.random() < 0.6 else [effect, *causes]


WORKLOAD: Final = Workload(
    name="dependencies",
    what="enqueue jobs that depend on one or two others, which come earlier, later or never",
    clients=2,
    run=_run,
)
