"""Schedules: they create jobs each few seconds, and are paused, resumed and run meanwhile."""

from typing import Final

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args, Schedule
from chaos.workloads.scene import SCHEDULED, Scene, Workload

_PER_S: Final = 0.3
_CRON: Final = "*/5 * * * * *"
"""Each five seconds."""


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    ids = []
    for number, missed in enumerate(("all", "one", "skip")):
        made = Schedule(
            id=f"{SCHEDULED}~{client.name}-{number}",
            cron=_CRON,
            mark=f"{client.name}-{number}",
            missed=missed,
            missed_after_ms=5_000,
        )
        await create(client, made)
        ids.append(made.id)
    while await scene.pause(random, _PER_S):
        # The first one is never touched: its due times are known in advance.
        await command(
            client,
            random.choice(("pause_schedule", "resume_schedule", "resume_schedule", "run_schedule")),
            random.choice(ids[1:]),
        )
    for each in ids:
        await command(client, "pause_schedule", each)


async def create(client: Client, schedule: Schedule) -> None:
    """Create a schedule."""
    queue, _, name = schedule.id.partition("~")
    body = {
        "name": name,
        "queue": queue,
        "cron": schedule.cron,
        "payload": {"mark": schedule.mark},
        "missed": schedule.missed,
        "missed_after_ms": schedule.missed_after_ms,
    }
    await client.call(
        Request(
            f="create_schedule",
            path="/api/v1/schedules",
            body=body,
            args=Args(schedule=schedule),
            read=api.read_status,
        ),
        tries=20,
    )


async def command(client: Client, f: str, schedule_id: str) -> None:
    """Pause, resume or run a schedule."""
    await client.call(
        Request(
            f=f,
            path=f"/api/v1/schedules/{schedule_id}/{f.removesuffix('_schedule')}",
            body={},
            args=Args(id=schedule_id),
            read=api.read_status,
        )
    )


WORKLOAD: Final = Workload(
    name="schedules",
    what="create schedules, and pause, resume and run them",
    clients=1,
    run=_run,
)
