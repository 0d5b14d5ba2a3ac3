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

_PREFIX: Final = "chaos."
"""Of all queues of a run, so that a cluster of others can be used."""


def _named(*names: str) -> tuple[str, ...]:
    return tuple(_PREFIX + name for name in names)


MAIL: Final = _named("mail-0", "mail-1", "mail-2", "mail-3")
"""Queues of plain jobs."""
BURSTS: Final = _named("burst-0", "burst-1")
"""Queues of jobs that come and go dozens at once."""
UNIQUE, NAMED, BATCH, BATCH_DONE = _named("unique", "named", "batch", "batch-done")
CHAINS: Final = _named("chain-a", "chain-b", "chain-c", "chain-end", "chain-failed")
DEPENDENT: Final = _named("day", "night")
MOVING: Final = _named("here", "there")
OPERATED, PAUSED, LIMITED, THROTTLED = _named("operated", "paused", "limited", "throttled")
(SCHEDULED,) = _named("scheduled")
QUEUES: Final = (
    *MAIL,
    *BURSTS,
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

    def __init__(self, sites: Sequence[Site], recorder: Recorder, seed: str, rate: float) -> None:
        self.sites: Final = sites
        self.recorder: Final = recorder
        self.rate: Final = rate
        """Jobs in a second, all producers together."""
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
