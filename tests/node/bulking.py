"""Bulk operations on a node whose router is killed in the middle: each job once, all counted."""

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import msgspec
import trio

from tests.node.http import Client, Lost
from tests.node.nodes import House, house_in, kill

T = TypeVar("T", bound=msgspec.Struct)

QUEUES: Final = ("mail", "sms", "fax")
PRIORITIES: Final = ("high", "critical", "normal")
BATCH: Final = 500
_LOOK_S: Final = 0.02
_PATIENCE_S: Final = 120.0


class Gap(msgspec.Struct, frozen=True):
    """How long a bulk stood still because its router was killed."""

    processed: int
    seconds: float


class Seen(msgspec.Struct):
    """What came of it."""

    jobs: int = 0
    kills: int = 0
    gaps: list[Gap] = []
    wrongs: list[str] = []


class _Jobs(msgspec.Struct):
    job_ids: list[str]


class _Begun(msgspec.Struct):
    bulk_operation_id: str
    estimated_total: int


class _Status(msgspec.Struct):
    status: str
    total: int
    processed: int
    affected: int
    errors: int
    by_code: dict[str, int]
    updated_at: str


class _Event(msgspec.Struct):
    what: str
    by: str = ""


class _Job(msgspec.Struct):
    id: str
    trail: list[_Event]


class _Found(msgspec.Struct):
    jobs: list[_Job]


class Bulking:
    """One run."""

    def __init__(self, house: House, dice: Random) -> None:
        self.seen: Final = Seen()
        self._dice = dice
        self._client = Client(house.address)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    async def fill(self, jobs: int) -> list[str]:
        """Jobs in several queues; their ids."""
        ids: list[str] = []
        while len(ids) < jobs:
            some = [{"queue": QUEUES[number % len(QUEUES)]} for number in range(BATCH)]
            ids += (await self._ask("POST", "enqueue/batch", _Jobs, {"jobs": some})).job_ids
        return ids

    async def begin(self, priority: str) -> str:
        """A bulk over all jobs; its id."""
        asked = {
            "filter": {"state": ["pending"]},
            "action": "change_priority",
            "priority": priority,
            "async": True,
        }
        return (await self._ask("POST", "jobs/bulk", _Begun, asked)).bulk_operation_id

    async def strike(self, bulk_id: str, count: int, kill: Callable[[], Awaitable[None]]) -> None:
        """Kill somebody when it has come somewhere, and see how long until it goes on."""
        status = await self._until(bulk_id, self._dice.randrange(count))
        if status.status == "completed":
            return
        began_s = trio.current_time()
        await kill()
        self.seen.kills += 1
        after = await self._until(bulk_id, status.processed + 1)
        self.seen.gaps.append(Gap(after.processed, trio.current_time() - began_s))

    async def reach(self, bulk_id: str, processed: int) -> None:
        """Let it come so far."""
        await self._until(bulk_id, processed)

    async def end(self, bulk_id: str, ids: list[str]) -> None:
        """Let it come to its end, and judge it."""
        seen = self.seen
        with trio.fail_after(_PATIENCE_S):
            status = await self._until(bulk_id, None)
        seen.jobs += len(ids)
        counts = (status.status, status.processed, status.affected, status.errors)
        if counts != ("completed", len(ids), len(ids), 0):
            seen.wrongs.append(f"{bulk_id}: {status}")
        await self._judge(ids, bulk_id)

    async def _until(self, bulk_id: str, processed: int | None) -> _Status:
        """Look until it has come so far, or has ended."""
        while True:
            status = await self._ask("GET", f"bulk/{bulk_id}", _Status)
            is_over = status.status not in {"queued", "running"}
            if is_over or (processed is not None and status.processed >= processed):
                return status
            await trio.sleep(_LOOK_S)

    async def _judge(self, ids: list[str], bulk_id: str) -> None:
        """Every job says in its trail that this was done to it, and once."""
        for start in range(0, len(ids), BATCH):
            asked = {"job_ids": ids[start : start + BATCH]}
            found = (await self._ask("POST", "jobs/bulk-get", _Found, asked)).jobs
            if len(found) != len(asked["job_ids"]):
                self.seen.wrongs.append(f"{len(asked['job_ids']) - len(found)} jobs are not there")
            for job in found:
                times = sum(bulk_id in event.by for event in job.trail)
                if times != 1:
                    self.seen.wrongs.append(f"{job.id} was changed {times} times by {bulk_id}")

    async def _ask(self, method: str, path: str, kind: type[T], body: object = None) -> T:
        """Ask until there is an answer: the router may be away, and the same again is as once."""
        data = b"" if body is None else msgspec.json.encode(body)
        key = f"{self._dice.getrandbits(64):x}" if body is not None else ""
        while True:
            try:
                answer = await self._client.ask(method, f"/api/v1/{path}", data, key)
            except Lost:
                await trio.sleep(_LOOK_S)
                continue
            if answer.status in {429, 503}:
                await trio.sleep(_LOOK_S)
                continue
            assert answer.status in {200, 201, 202}, answer.body
            return answer.read(kind)


async def run(directory: Path, *, jobs: int, kills: int, rounds: int = 1, seed: int = 0) -> Seen:
    """Bulks over so many jobs. In one the router is killed so often, and in the next the node."""
    house = await house_in(directory, shard__grace_ms="500ms")
    bulking = Bulking(house, Random(seed))
    ids: list[str] = []
    for number in range(rounds):
        async with house.open() as node:
            ids = ids or await bulking.fill(jobs)
            bulk_id = await bulking.begin(PRIORITIES[number % 3])
            for _ in range(kills):
                await bulking.strike(bulk_id, jobs, partial(kill, node, "router"))
            await bulking.end(bulk_id, ids)
            bulk_id = await bulking.begin(PRIORITIES[(number + 1) % 3])
            await bulking.reach(bulk_id, jobs // 3)
            await node.end(signal.SIGTERM if number % 2 else signal.SIGKILL)
        async with house.open() as node:
            await bulking.end(bulk_id, ids)
            bulking.close()
            code = await node.end()
            assert code == 0, code
    return bulking.seen
