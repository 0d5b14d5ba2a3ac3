"""Schedules of a node whose processes are killed: each due time makes its job once, or is missed.

A worker waits for the job of the next due time, and then a process is killed: what the test waits
for is a job, and never a clock.
"""

import signal
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.times import parse_time
from tests.node.crowd import queue_on
from tests.node.http import Client, Lost
from tests.node.nodes import house_in, kill
from tests.support.links import on_sockets

SECOND_NS: Final = 1_000_000_000
_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.05
"""Between two tries of a request that a killed process has not answered."""


class Run(msgspec.Struct):
    due_at: str
    count: int = 1


class Schedule(msgspec.Struct):
    fired: int
    skipped: int
    runs: list[Run]
    created_at: str


class Claim(msgspec.Struct):
    job_id: str
    lease_token: int


class Job(msgspec.Struct):
    id: str


class Page(msgspec.Struct):
    jobs: list[Job]
    has_more: bool
    cursor: str | None = None
    is_behind: bool = False


class Seen(msgspec.Struct):
    """What has become of a schedule."""

    schedule: Schedule
    due_ns: list[int]
    """Due times of its jobs."""

    def stretch(self) -> range:
        """All due times, from the first one to the last one that was fired or skipped."""
        created_ns = at(self.schedule.created_at)
        last = self.schedule.runs[0]
        end_ns = at(last.due_at) + last.count * SECOND_NS
        return range(created_ns // SECOND_NS * SECOND_NS + SECOND_NS, end_ns, SECOND_NS)


def at(text: str) -> int:
    found = parse_time(text)
    assert found is not None
    return found


async def ask(client: Client, path: str, body: object = None) -> bytes:
    """The body of an answer of success, also if a process was killed and is not back yet."""
    data = b"" if body is None else msgspec.json.encode(body)
    while True:
        try:
            answer = await client.ask("POST", path, data)
        except Lost:
            await trio.sleep(_PAUSE_S)
            continue
        if answer.status < 300:
            return answer.body
        assert answer.status == 503, (answer.status, answer.body)
        await trio.sleep(_PAUSE_S)


async def work(client: Client, queue: str) -> None:
    """Wait for a job of a queue, and finish it."""
    take = {"queues": [queue], "worker_id": "w", "timeout": 30}
    while not (data := await ask(client, "/api/v1/fetch", take)):
        pass
    claim = msgspec.json.decode(data, type=Claim)
    await ask(client, f"/api/v1/ack/{claim.job_id}", {"lease_token": claim.lease_token})


async def look(client: Client, queue: str) -> Seen:
    """Pause the schedule of a queue, and see what has become of it."""
    data = await ask(client, f"/api/v1/schedules/{queue}~tick/pause")
    schedule = msgspec.json.decode(data, type=Schedule)
    found: list[int] = []
    query: dict[str, str | int] = {"queue": queue, "limit": 50}
    while True:
        page = msgspec.json.decode(await ask(client, "/api/v1/jobs/search", query), type=Page)
        if page.is_behind:
            continue  # the mirror has started again, and reads what it lacks
        found += [at(job.id.rpartition("@")[2]) for job in page.jobs]
        if not page.has_more:
            return Seen(schedule, sorted(found))
        assert page.cursor is not None
        query["cursor"] = page.cursor


@on_sockets
async def test_each_due_time_makes_one_job_or_is_missed_however_often_processes_are_killed(
    tmp_path: Path,
) -> None:
    house = await house_in(tmp_path, shard__grace_ms="500ms")
    client = Client(house.address)
    patient, strict = (queue_on(shard, house.shards, "mail") for shard in range(house.shards))
    new = {"name": "tick", "cron": "@every 1s"}
    late = {"missed": "skip", "missed_after": "500ms"}
    with trio.fail_after(_PATIENCE_S):
        async with house.open() as node:
            await ask(client, "/api/v1/schedules", {**new, "queue": patient, "missed_after": "1h"})
            await ask(client, "/api/v1/schedules", {**new, "queue": strict, **late})
            for shard, queue in enumerate((patient, strict)):
                for _ in range(2):
                    await work(client, queue)
                    await kill(node, f"shard-{shard}")
            await node.end(signal.SIGKILL)
        async with house.open() as node:
            await work(client, patient)
            await work(client, strict)
            await node.end(signal.SIGKILL)
        async with house.open() as node:
            await work(client, patient)
            await work(client, strict)
            of_patient, of_strict = await look(client, patient), await look(client, strict)
            assert await node.end() == 0
    client.close()

    assert of_patient.due_ns == [*of_patient.stretch()]
    assert (of_patient.schedule.fired, of_patient.schedule.skipped) == (len(of_patient.due_ns), 0)
    assert {*of_strict.due_ns} <= {*of_strict.stretch()}
    assert of_strict.schedule.fired == len({*of_strict.due_ns}) == len(of_strict.due_ns)
    assert of_strict.schedule.fired + of_strict.schedule.skipped == len(of_strict.stretch())
