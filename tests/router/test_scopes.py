"""Keys that are for some queues: every route of the table is tried on a queue that is not theirs.

Two keys of one role ask the same: one is for `mine` alone, and one has no scope, so that it is seen
that the scope is what refuses. The bodies are the examples of the documents.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.keys import UpsertAPIKey
from corvo.router.actions import Action
from corvo.router.examples import REQUESTS
from corvo.router.http import Response
from corvo.router.keys import hash_key, make_key
from corvo.router.openapi import operation_id
from corvo.router.routes import Route
from corvo.router.table import ROUTES
from tests.router.test_key_endpoints import Client, config, routing
from tests.shard.processes import calling, config_in, put, running, submit
from tests.support.links import on_sockets

ADMIN_KEY: Final = "correct horse battery staple"
SCOPED: Final = make_key(1)
FREE: Final = make_key(2)
MINE: Final = "mine"
THEIRS: Final = "theirs"

LISTS: Final = {
    "/api/v1/cluster/status",
    "/api/v1/dead",
    "/api/v1/jobs/bulk-get",
    "/api/v1/metrics",
    "/api/v1/metrics/throughput",
    "/api/v1/queues",
    "/api/v1/workers",
    "/metrics",
}
"""They name no queue: what a key is not for is left out of them, or they have nothing of queues."""

BY_THE_MIRROR: Final = {
    "/api/v1/events",
    "/api/v1/jobs",
    "/api/v1/jobs/search",
    "/api/v1/search/fulltext",
    "/api/v1/summary",
}
"""They name no queue either, and answer what the scope allows: it is part of each question."""

BULKS: Final = {
    "/api/v1/bulk",
    "/api/v1/bulk/{id}",
    "/api/v1/bulk/{id}/cancel",
    "/api/v1/bulk/{id}/progress",
}
"""They are of no queue that anybody has, but of whoever asked: see `tests/router/test_bulk.py`."""

BODIES: Final[dict[str, dict[str, object]]] = {
    **REQUESTS,
    "post_jobs_bulk": {"job_ids": ["s00_job_0"], "action": "cancel"},
    "post_release_batch": {"jobs": [{"job_id": "s00_job_0"}]},
}

ROWS: Final = [
    row
    for row in ROUTES.rows
    if row.action not in {Action.OPEN, Action.ADMIN}
    and row.path not in LISTS | BY_THE_MIRROR | BULKS
]


def keys() -> list[UpsertAPIKey]:
    return [
        UpsertAPIKey(key_hash=hash_key(FREE), name="free", role="operator"),
        UpsertAPIKey(
            key_hash=hash_key(SCOPED), name="scoped", role="operator", queue_scope=(MINE,)
        ),
    ]


async def ask(client: Client, row: Route, job_id: str, key: str) -> Response:
    """Ask for what is in the queue that is not theirs."""
    path = re.sub(r"\{(queue|name)\}", THEIRS, row.path)
    path = re.sub(r"\{[a-z_]+\}", job_id, path)
    example = msgspec.json.encode(BODIES.get(operation_id(row), {})).decode()
    example = re.sub(r'"s\d\d_job_[0-9A-Z]+"', f'"{job_id}"', example)
    example = re.sub(r'"(mail|sms|done|mail-slow)"', f'"{THEIRS}"', example)
    body = msgspec.json.decode(example, type=dict[str, object])
    if row.is_parked:
        body["wait_seconds"] = 0
    return await client.ask(row.method, path, body or None, key=key)


@on_sockets
async def test_no_route_touches_a_queue_that_a_key_is_not_for(tmp_path: Path) -> None:
    shard = config_in(tmp_path)
    async with running(shard), calling(shard) as caller:
        for op in keys():
            await submit(caller, op)
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as client:
            for row in ROWS:
                [job_id] = await put(caller, NewJob(queue=THEIRS))
                refused = await ask(client, row, job_id, SCOPED)
                allowed = await ask(client, row, job_id, FREE)

                where = f"{row.method} {row.path}"
                assert (refused.status, allowed.status != 403) == (403, True), where
                assert b"not for queue" in refused.body, where


@on_sockets
async def test_a_list_leaves_out_what_a_key_is_not_for(tmp_path: Path) -> None:
    shard = config_in(tmp_path)
    async with running(shard), calling(shard) as caller:
        for op in keys():
            await submit(caller, op)
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as client:
            ids = await put(caller, NewJob(queue=MINE), NewJob(queue=THEIRS))
            for queue in (MINE, THEIRS):
                fetched = {"queues": [queue], "worker_id": f"at {queue}", "wait_seconds": 0}
                await client.ask("POST", "/api/v1/fetch", fetched, key=FREE)
            for job_id in ids:
                failed = {"error": "no", "retryable": False}
                await client.ask("POST", f"/api/v1/fail/{job_id}", failed, key=FREE)

            seen = {
                path: [await _look(client, path, ids, key) for key in (FREE, SCOPED)]
                for path in sorted(LISTS - {"/api/v1/cluster/status"})
            }

    for path, (all_of_it, part) in seen.items():
        if path in {"/api/v1/metrics", "/api/v1/metrics/throughput"}:
            continue  # sums over everything, without a name
        assert THEIRS.encode() in all_of_it, path
        assert MINE.encode() in part, path
        assert THEIRS.encode() not in part, path


async def _look(client: Client, path: str, ids: list[str], key: str) -> bytes:
    if path == "/api/v1/jobs/bulk-get":
        answer = await client.ask("POST", path, {"job_ids": ids}, key=key)
    else:
        answer = await client.ask("GET", path, key=key)
    assert answer.status == 200, answer.body
    return answer.body


@on_sockets
async def test_a_job_takes_no_others_along_into_queues_that_a_key_is_not_for(
    tmp_path: Path,
) -> None:
    step = {"queue": THEIRS}
    bodies: list[dict[str, object]] = [
        {"queue": MINE, "chain": {"steps": [{"queue": MINE}, step]}},
        {"queue": MINE, "chain": {"steps": [{"queue": MINE}] * 2, "on_failure": step}},
        {"queue": MINE, "chain": {"steps": [{"queue": MINE}] * 2, "on_failure": THEIRS}},
        {"queue": MINE, "chain": {"steps": [{"queue": MINE}] * 2, "on_exit": step}},
    ]
    batches: list[dict[str, object]] = [
        {"jobs": [{"queue": MINE}, {"queue": THEIRS}]},
        {"jobs": [{"queue": MINE}], "batch": {"callback_queue": THEIRS}},
    ]
    shard = config_in(tmp_path)
    async with running(shard), calling(shard) as caller:
        for op in keys():
            await submit(caller, op)
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as client:
            for body in bodies:
                refused = await client.ask("POST", "/api/v1/enqueue", body, key=SCOPED)
                allowed = await client.ask("POST", "/api/v1/enqueue", body, key=FREE)
                assert (refused.status, allowed.status) == (403, 201), body
            for body in batches:
                refused = await client.ask("POST", "/api/v1/enqueue/batch", body, key=SCOPED)
                allowed = await client.ask("POST", "/api/v1/enqueue/batch", body, key=FREE)
                assert (refused.status, allowed.status) == (403, 201), body
            mine = await client.ask("POST", "/api/v1/enqueue", {"queue": MINE}, key=SCOPED)

    assert mine.status == 201
