"""Limits: queues that are paused and resumed, and queues with a concurrency or a rate limit."""

from typing import Final

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args
from chaos.workloads.scene import LIMITED, PAUSED, THROTTLED, Scene, Workload, plain

_PER_S: Final = 2.0
_CHANGES: Final = 0.15
_AT_ONCE: Final = (1, 1, 8)
"""Jobs of one enqueue: at times more than a limit lets through."""


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    await set_limit(client, LIMITED, 3)
    await throttle(client, THROTTLED, 4, 1_000)
    while await scene.pause(random, _PER_S):
        queue = random.choice((PAUSED, LIMITED, LIMITED, THROTTLED))
        await client.enqueue([plain(queue, random) for _ in range(random.choice(_AT_ONCE))])
        if random.random() < _CHANGES:
            change = random.randrange(5)
            if change == 0:
                await set_limit(client, LIMITED, random.randrange(1, 6))
            elif change == 1:
                await throttle(client, THROTTLED, random.randrange(2, 8), 1_000)
            else:
                await command(client, ("pause", "resume", "drain")[change - 2], PAUSED)
                if change != 3 and await scene.pause(random, 1):
                    await command(client, "resume", PAUSED)


async def set_limit(client: Client, queue: str, number: int) -> None:
    """Limit the active jobs of a queue."""
    await _send(client, "concurrency", Args(queue=queue, number=number), {"max": number})


async def throttle(client: Client, queue: str, number: int, window_ms: int) -> None:
    """Set the rate limit of a queue."""
    args = Args(queue=queue, number=number, window_ms=window_ms)
    await _send(client, "throttle", args, {"rate": number, "window_ms": window_ms})


async def command(client: Client, f: str, queue: str) -> None:
    """Pause, resume or drain a queue."""
    await _send(client, f, Args(queue=queue), {})


async def _send(client: Client, f: str, args: Args, body: dict[str, int]) -> None:
    await client.call(
        Request(
            f=f,
            path=f"/api/v1/queues/{args.queue}/{f}",
            body=body,
            args=args,
            read=api.read_status,
        )
    )


WORKLOAD: Final = Workload(
    name="limits",
    what="pause, resume and drain a queue, and change concurrency and rate limits",
    clients=1,
    run=_run,
)
