"""Chains: jobs with further steps in other queues, and handlers for their end and their failure."""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from chaos.calls import Client
from chaos.history import Chain, NewJob, Template
from chaos.workloads.scene import CHAINS, Scene, Workload, plain, produce

_CLIENTS: Final = 1
_SHARE: Final = 0.08


def _jobs(random: Random) -> Sequence[NewJob]:
    *steps, end, failed = CHAINS
    queues = random.sample(steps, random.randrange(2, len(steps) + 1))
    chain = Chain(
        steps=tuple(Template(queue=queue, backoff="none") for queue in queues),
        on_exit=Template(queue=end) if random.random() < 0.7 else None,
        on_failure=Template(queue=failed) if random.random() < 0.7 else None,
    )
    first = plain(queues[0], random)
    # A field of the first step is one of the job.
    step = msgspec.convert(_common(first), Template)
    return [
        msgspec.structs.replace(
            first, chain=msgspec.structs.replace(chain, steps=(step, *chain.steps[1:]))
        )
    ]


def _common(job: NewJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in Template.__struct_fields__}


async def _run(scene: Scene, client: Client) -> None:
    await produce(scene, client, _SHARE / _CLIENTS, _jobs)


WORKLOAD: Final = Workload(
    name="chains",
    what="enqueue chains of steps in several queues, with handlers",
    clients=_CLIENTS,
    run=_run,
)
