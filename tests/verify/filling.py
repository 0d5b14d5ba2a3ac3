"""A server that has done work of all kinds, for checks of its stopped directory."""

from typing import Final

import msgspec

from corvo.client import jobs, keys, queues, schedules, work
from corvo.client.calls import Client, read
from corvo.client.jobs import EnqueuedMany
from corvo.placement import shard_of_queue
from tests.client_commands.running import Server

SHARDS: Final = 2
HERE: Final = "mail"
"""A queue of one shard, and one of another."""
THERE: Final = next(
    name
    for name in (f"far-{number}" for number in range(100))
    if shard_of_queue(name, SHARDS) != shard_of_queue(HERE, SHARDS)
)


class _Made(msgspec.Struct):
    job_id: str


def fill(server: Server) -> dict[str, list[str]]:
    """Do work of all kinds; ids of jobs by their state or kind."""
    with Client([server.url], api_key=server.api_key) as client:
        made = {
            "completed": _jobs(client, [{"queue": "done", "kind": "x"}] * 4),
            "dead": _jobs(client, [{"queue": "dying", "max_retries": 5}] * 3),
        }
        _finish(client, "done", "ack", {"result": {"ok": True}})
        _finish(client, "dying", "fail", {"error": "no", "retryable": False, "backtrace": "a\nb"})
        jobs.act(client, made["dead"][0], "retry")
        _finish(client, "dying", "fail", {"error": "no", "retry_after_ms": 3_600_000})
        made["moved"] = _jobs(client, [{"queue": HERE, "unique_key": f"m{n}"} for n in range(3)])
        jobs.act(client, made["moved"][0], "move", {"queue": THERE})
        jobs.act(client, made["moved"][1], "move", {"queue": "mail-slow"})
        _waiting(client, made)
        _workflows(client, made)
        _settings(client)
        _leases(client)
    return made


def _jobs(client: Client, new: list[dict[str, object]]) -> list[str]:
    answer = jobs.enqueue_many(client, new)
    return [msgspec.json.decode(raw, type=_Made).job_id for raw in read(answer, EnqueuedMany).jobs]


def _finish(client: Client, queue: str, verb: str, fields: dict[str, object]) -> None:
    answer = work.fetch_many(client, [queue], count=100, worker_id="w1", hostname="h")
    items = [
        {"job_id": each.job_id, "lease_token": each.lease_token, **fields}
        for each in work.fetched(answer)
    ]
    work.finish_many(client, verb, items)


def _waiting(client: Client, made: dict[str, list[str]]) -> None:
    for queue in (HERE, THERE):
        made[f"pending {queue}"] = _jobs(
            client,
            [
                {"queue": queue, "payload": {"n": 1}, "tags": {"t": "a"}, "expire_after": "9h"},
                {"queue": queue, "unique_key": "only", "unique_period": 3600},
                {"queue": queue, "id": "chosen"},
                {"queue": queue, "priority": "high"},
                {"queue": queue, "priority": "critical"},
                {"queue": queue, "delay": "5h"},
                {"queue": queue},
                {"queue": queue},
            ],
        )
    held, cancelled = made[f"pending {HERE}"][6:]
    jobs.act(client, held, "hold", {"reason": "look"})
    jobs.act(client, cancelled, "cancel")


def _workflows(client: Client, made: dict[str, list[str]]) -> None:
    chain = {"steps": [{"queue": "step"}, {"queue": THERE}], "on_exit": "cleanup"}
    jobs.enqueue(client, {"queue": "step", "payload": {"a": 1}, "chain": chain})
    _finish(client, "step", "ack", {})
    members = [{"queue": queue} for queue in ("batch-a", "batch-b", "batch-c", THERE)]
    answer = jobs.enqueue_many(client, members, batch={"callback_queue": "called"})
    made["batch"] = [read(answer, EnqueuedMany).batch_id]
    _finish(client, "batch-a", "ack", {})
    _finish(client, "batch-b", "fail", {"error": "x", "retryable": False})
    awaited = [made[f"pending {HERE}"][0], made[f"pending {THERE}"][0]]
    made["dependent"] = _jobs(
        client,
        [
            {"queue": HERE, "depends_on": awaited},
            {"queue": THERE, "depends_on": awaited},
            {"queue": HERE, "depends_on": [f"{HERE}~later"], "dependency_wait": "4h"},
            {"queue": HERE, "depends_on": [f"{THERE}~later"], "dependency_wait": "4h"},
        ],
    )
    agent = {"max_iterations": 3, "max_cost_usd": 1}
    jobs.enqueue(client, {"queue": "agents", "agent": agent})


def _settings(client: Client) -> None:
    schedules.create(client, {"name": "nightly", "queue": HERE, "cron": "0 3 * * *"})
    schedules.create(client, {"name": "gone", "queue": THERE, "cron": "@every 1h"})
    schedules.act(client, f"{THERE}~gone", "pause")
    keys.create(client, {"name": "mailer", "role": "worker"})
    queues.act(client, "limited", "throttle", {"rate": 5, "window_ms": 3_600_000})
    queues.act(client, "limited", "concurrency", {"max": 3})
    _jobs(client, [{"queue": "cleared"}] * 3)
    queues.act(client, "cleared", "clear")
    queues.act(client, "cleared", "pause")


def _leases(client: Client) -> None:
    _jobs(client, [{"queue": "limited", "max_run_time": "1h"}] * 6)
    work.fetch_many(client, ["limited"], count=2, worker_id="w2", lease_ms=3_600_000)
