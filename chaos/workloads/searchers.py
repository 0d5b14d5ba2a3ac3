"""Searchers: they search the mirrors, read jobs with each consistency, and list queues."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args, QueueRow
from chaos.workloads.scene import QUEUES, Scene, Workload

_PER_S: Final = 3.0
_LIMIT: Final = 50
_STATES: Final = ("pending", "active", "completed", "dead", "held", "retrying")


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    while await scene.pause(random, _PER_S):
        what = random.random()
        if what < 0.5 and scene.recent:
            consistency = random.choice(("", "linearizable", "local"))
            await client.get(
                random.choice(scene.recent), consistency, min_seq=random.random() < 0.5
            )
        elif what < 0.9:
            await search(client, random.choice(QUEUES), random.choice(_STATES))
        else:
            await queues(client)


async def search(client: Client, queue: str, state: str) -> None:
    """Search the mirror of a node."""
    query = {"queue": queue, "state": state}
    await client.call(
        Request(
            f="search",
            method="GET",
            path=f"/api/v1/jobs?{urlencode({**query, 'limit': _LIMIT})}",
            args=Args(filter=query),
            read=api.read_search,
            is_keyed=False,
        ),
        tries=2,
        min_seq=client.random.random() < 0.3,
    )


async def queues(client: Client, tries: int = 2) -> Sequence[QueueRow]:
    """List the queues."""
    op = await client.call(
        Request(
            f="queues",
            method="GET",
            path="/api/v1/queues",
            args=Args(),
            read=api.read_queues,
            is_keyed=False,
        ),
        tries=tries,
    )
    return op.res.queues


WORKLOAD: Final = Workload(
    name="searchers",
    what="search the mirrors, read jobs with each consistency, and list queues",
    clients=2,
    run=_run,
)
