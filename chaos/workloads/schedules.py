"""Schedules: they create jobs each few seconds, and are changed, stopped and run meanwhile."""

from random import Random
from typing import Final

import msgspec

from chaos import api
from chaos.calls import Client, Request
from chaos.history import Args, Schedule
from chaos.workloads.scene import SCHEDULED, Scene, Workload

_CLIENTS: Final = 2
_PER_S: Final = 0.4
_EACH_SECOND: Final = "* * * * * *"
_TIMES: Final = (
    (_EACH_SECOND, "UTC"),
    ("*/2 * * * * *", "Europe/Berlin"),
    ("1/3 * * * * *", "Asia/Kathmandu"),
    ("0,7,20-40/5,50-10 * * * * *", "America/New_York"),
    ("@every 3s", "UTC"),
)
_MISSED: Final = ("skip", "one", "all")
_ACTIONS: Final = ("pause", "resume", "resume", "run", "run", "change", "change", "delete")


async def _run(scene: Scene, client: Client) -> None:
    random = client.random
    ids = []
    for number, missed in enumerate((*_MISSED, *_MISSED)):
        made = _schedule(f"{SCHEDULED}~{client.name}-{number}", missed, random)
        if number < len(_MISSED):
            # Other due times come while one is not missed yet, so they tell when it is.
            made = msgspec.structs.replace(made, cron=_EACH_SECOND, missed_after_ms=1_000)
        await create(client, made)
        ids.append(made.id)
    while await scene.pause(random, _PER_S):
        # The first ones are never touched: their due times are known in advance.
        each, action = random.choice(ids[len(_MISSED) :]), random.choice(_ACTIONS)
        if action == "change":
            await change(client, _schedule(each, random.choice(_MISSED), random))
        elif action == "delete":
            await delete(client, each)
            await create(client, _schedule(each, random.choice(_MISSED), random))
        else:
            await command(client, f"{action}_schedule", each)
    for each in ids:
        await command(client, "pause_schedule", each)


def _schedule(name: str, missed: str, random: Random) -> Schedule:
    cron, timezone = random.choice(_TIMES)
    return Schedule(
        id=name,
        cron=cron,
        timezone=timezone,
        mark=name.partition("~")[2],
        missed=missed,
        # Shorter than a shard is without a leader, and than most distances of due times.
        missed_after_ms=random.choice((500, 1_000, 2_000, 5_000)),
        missed_max=random.choice((2, 100)),
    )


async def create(client: Client, schedule: Schedule) -> None:
    """Create a schedule."""
    await _define(client, "create_schedule", "POST", "", schedule)


async def change(client: Client, schedule: Schedule) -> None:
    """Give a schedule another definition."""
    await _define(client, "change_schedule", "PUT", f"/{schedule.id}", schedule)


async def _define(client: Client, f: str, method: str, path: str, schedule: Schedule) -> None:
    await client.call(
        Request(
            f=f,
            method=method,
            path=f"/api/v1/schedules{path}",
            body=_body(schedule),
            args=Args(schedule=schedule),
            read=api.read_status,
        ),
        tries=20,
    )


async def delete(client: Client, schedule_id: str) -> None:
    """Delete a schedule."""
    await client.call(
        Request(
            f="delete_schedule",
            method="DELETE",
            path=f"/api/v1/schedules/{schedule_id}",
            args=Args(id=schedule_id),
            read=api.read_status,
        ),
        tries=20,
    )


def _body(schedule: Schedule) -> dict[str, object]:
    queue, _, name = schedule.id.partition("~")
    return {
        "name": name,
        "queue": queue,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "payload": {"mark": schedule.mark},
        "missed": schedule.missed,
        "missed_after_ms": schedule.missed_after_ms,
        "missed_max": schedule.missed_max,
    }


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
    what="create schedules, and pause, resume, run, change and delete them",
    clients=_CLIENTS,
    run=_run,
)
