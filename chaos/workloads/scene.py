"""What all clients of a run share: the nodes, the pace, and the jobs that others have made."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

import msgspec
import trio

from chaos.calls import Client
from chaos.history import NewJob
from chaos.http import Site
from chaos.recording import Recorder

MAIL: Final = tuple(f"mail-{number}" for number in range(4))
"""Queues of plain jobs."""
UNIQUE: Final = "unique"
NAMED: Final = "named"
CHAINS: Final = ("chain-a", "chain-b", "chain-c", "chain-end", "chain-failed")
BATCH: Final = "batch"
BATCH_DONE: Final = "batch-done"
DEPENDENT: Final = ("day", "night")
MOVING: Final = ("here", "there")
OPERATED: Final = "operated"
PAUSED: Final = "paused"
LIMITED: Final = "limited"
THROTTLED: Final = "throttled"
SCHEDULED: Final = "scheduled"
QUEUES: Final = (
    *MAIL,
    UNIQUE,
    NAMED,
    *CHAINS,
    BATCH,
    BATCH_DONE,
    *DEPENDENT,
    *MOVING,
    OPERATED,
    PAUSED,
    LIMITED,
    THROTTLED,
    SCHEDULED,
)
"""Every queue of a run."""
LEASE_MS: Final = 4_000
_RECENT: Final = 500


class Scene:
    """A run, as its clients see it."""

    def __init__(
        self, sites: Sequence[Site], recorder: Recorder, seed: str, rate: float, shards: int
    ) -> None:
        self.sites: Final = sites
        self.recorder: Final = recorder
        self.rate: Final = rate
        """Jobs in a second, all producers together."""
        self.shards: Final = shards
        self.stopping: Final = trio.Event()
        self.recent: Final[deque[str]] = deque(maxlen=_RECENT)
        """Ids of jobs that were just made, for clients that change or read them."""
        self._seed = seed

    def client(self, name: str) -> Client:
        """A client with random numbers of its own."""
        return Client(name, self.sites, self.recorder, Random(f"{self._seed} {name}"))

    async def pause(self, random: Random, per_second: float) -> bool:
        """Wait for a random time, so often a second; whether to go on."""
        with trio.move_on_after(random.expovariate(per_second)):
            await self.stopping.wait()
        return not self.stopping.is_set()

    def note(self, job_ids: Sequence[str]) -> None:
        """Tell other clients of jobs."""
        self.recent.extend(job_ids)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of client."""

    name: str
    what: str
    clients: int
    run: Callable[[Scene, Client], Awaitable[None]]
    """One client, until `Scene.stopping`."""


def plain(queue: str, random: Random) -> NewJob:
    """A job of a kind that is mostly wanted: retried soon, with any priority."""
    return NewJob(
        queue=queue,
        priority=random.choice((0, 1, 2, 2, 2)),
        max_retries=random.choice((1, 2, 3)),
        backoff=random.choice(("fixed", "linear", "exponential", "none")),
        base_ms=random.choice((100, 400)),
        max_delay_ms=2_000,
        jitter=random.choice((0, 0, 20)),
    )


async def produce(
    scene: Scene, client: Client, share: float, make: Callable[[Random], Sequence[NewJob]]
) -> None:
    """Enqueue jobs at a share of the run's rate, until the run stops."""
    while await scene.pause(client.random, scene.rate * share):
        op = await client.enqueue(make(client.random))
        scene.note([one.job_id for one in op.res.created if one.job_id])
