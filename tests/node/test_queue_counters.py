"""Counters of queues, as a scraper of a real node sees them."""

import re
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.http import Client
from tests.node.nodes import house_in, kill
from tests.support.links import on_sockets

_PATIENCE_S: Final = 60.0
_LINE: Final = re.compile(r'^corvo_jobs_(\w+)_total\{queue="mail"\} (\d+)$', re.MULTILINE)
_SUM: Final = re.compile(r"^corvo_job_(wait|run)_seconds_count\{.*\} (\d+)$", re.MULTILINE)


class Claim(msgspec.Struct):
    job_id: str
    lease_token: int


async def post(client: Client, path: str, body: object) -> bytes:
    answer = await client.ask("POST", f"/api/v1/{path}", msgspec.json.encode(body))
    assert answer.status < 300, answer.body
    return answer.body


async def fetch(client: Client) -> Claim:
    take = {"queues": ["mail"], "worker_id": "w", "timeout": 30}
    return msgspec.json.decode(await post(client, "fetch", take), type=Claim)


async def counted(client: Client) -> dict[str, int]:
    """What has happened in the queue, without what never did; and how often jobs were timed."""
    page = (await client.ask("GET", "/metrics")).body.decode()
    found = {what: int(count) for what, count in _LINE.findall(page) if count != "0"}
    for what, count in _SUM.findall(page):
        found[what] = found.get(what, 0) + int(count)
    return found


@on_sockets
async def test_a_node_counts_what_happens_in_a_queue_and_a_replay_of_its_log_counts_nothing(
    tmp_path: Path,
) -> None:
    house = await house_in(tmp_path)
    client = Client(house.address)
    with trio.fail_after(_PATIENCE_S):
        async with house.open() as node:
            for new in ({}, {"max_retries": 1}, {"unique_key": "a"}, {"unique_key": "a"}):
                await post(client, "enqueue", {"queue": "mail", **new})
            for word in ("ack", "fail", "fail"):
                claim = await fetch(client)
                body = {"lease_token": claim.lease_token, "error": "no such address"}
                await post(client, f"{word}/{claim.job_id}", body)
            seen = await counted(client)

            for shard in range(house.shards):
                await kill(node, f"shard-{shard}")
            await post(client, "enqueue", {"queue": "mail"})
            again = await counted(client)
            client.close()

    assert seen == {
        "enqueued": 3,
        "fetched": 3,
        "completed": 1,
        "failed": 2,
        "retried": 1,
        "dead": 1,
        "duplicate": 1,
        "wait": 3,
        "run": 3,
    }
    assert again == {"enqueued": 1, "wait": 0, "run": 0}
