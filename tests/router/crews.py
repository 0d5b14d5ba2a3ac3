"""Routers that work bulk operations off, and may be killed at any step."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from corvo.model import ApiKey, Event, Job, State
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue
from corvo.protocol.ops.jobs import Approve
from corvo.router.bulk import executor, requests
from corvo.router.bulk.requests import QUEUE, BulkBegun, BulkStatus
from corvo.router.shards.links import Answer
from corvo.shard.ops.upkeep import Reclaim
from corvo.shard.state.tables import JOBS
from corvo.telemetry import Level, Log, Style
from tests.router.nests import MachineShard, Nest, queue_of, run
from tests.router.views import WalkingMirror

BULK: Final = "/api/v1/jobs/bulk"
MAIL: Final = queue_of(0)
SMS: Final = queue_of(1)
FAX: Final = queue_of(0, 1)
LATER: Final = {"async": True}
LIVES_MAX: Final = 12
"""Routers that a bulk may need in these tests."""
STEPS_MAX: Final = 1_000
"""Ops of one test: a bulk that sends more goes round in circles."""
LIFE_S_MAX: Final = 600
"""Seconds of one router by the clock of the test: one that runs longer waits in vain."""


class Crew:
    """Routers that work bulks off, one after the other, and may be killed at any step."""

    def __init__(self, nest: Nest) -> None:
        self.mirror: Final = WalkingMirror(nest)
        self.steps = 0
        """Ops that were sent."""
        self.before: Callable[[int, Op], bool] = lambda *_: False
        """Told of each op before it is applied; True kills the router then."""
        self.after: Callable[[int, Op], bool] = lambda *_: False
        self.lines: list[str] = []
        self.may_have_bugs = False
        self._nest = nest
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        for shard in nest.shards:
            vars(shard)["submit"] = self._through(shard)

    def _through(self, shard: MachineShard) -> Callable[[Op], Awaitable[Answer]]:
        async def submit(op: Op, *, shield: bool = False) -> Answer:
            self.steps += 1
            step = self.steps
            assert step <= STEPS_MAX, "the bulk goes round in circles"
            if self.before(step, op):
                self._scope.cancel()
                await trio.lowlevel.checkpoint()
            answer = await MachineShard.submit(shard, op, shield=shield)
            if isinstance(op, Enqueue):  # as a shard tells those who wait
                self._nest.api.fetching.came_up(shard.number)
            if self.after(step, op):
                self._scope.cancel()
                await trio.lowlevel.checkpoint()
            return answer

        return submit

    async def work(self, bulks: int = 1) -> None:
        """Work until this number of bulks has ended, or the router is killed.

        Raises `trio.TooSlowError` for bulks that do not end.
        """
        self._scope = trio.CancelScope()
        self.lines.clear()
        self._ended = trio.Event()
        self._left = bulks
        log = Log(self._put, "router", Style(is_text=True), Level.INFO)
        with trio.fail_after(LIFE_S_MAX), self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(executor.run, self._nest.api, log)
                await self._ended.wait()
                nursery.cancel_scope.cancel()

    def _put(self, data: bytes) -> None:
        line = data.decode()
        self.lines.append(line)
        assert self.may_have_bugs or "bulk.bug" not in line, line
        self._left -= any(word in line for word in ("bulk.ended", "bulk.lost", "bulk.bug"))
        if self._left <= 0:
            self._ended.set()

    async def work_to_the_end(self, bulk_id: str, *, at_once: bool = False) -> BulkStatus:
        """Start a router after each that was killed, until the bulk has ended; its status.

        `at_once`: before the lease expires. A bulk that a router leaves to its lease, or that is
        held, does not end by more routers: the lease expires, and an operator approves the bulk.
        """
        job_id = requests.job_id_of(bulk_id)
        machine = self._nest[QUEUE]
        for _ in range(LIVES_MAX):
            await self.work()
            is_left = "bulk.lost" in "".join(self.lines)
            if machine.state(job_id) is State.ACTIVE and (is_left or not at_once):
                machine.pass_time(executor.LEASE_MS + 1)
                machine.do(Reclaim(limit=10))
            if machine.state(job_id) is State.HELD:
                machine.do(Approve(job_ids=[job_id]))
            status = await self.status(bulk_id)
            if status.status in requests.FINAL:
                return status
        raise AssertionError("it has no end")

    async def status(self, bulk_id: str) -> BulkStatus:
        return await self._nest.read(BulkStatus, f"/api/v1/bulk/{bulk_id}")


async def begin(nest: Nest, **asked: object) -> str:
    response = await nest.ask("POST", BULK, {**asked, **LATER})
    assert response.status == 202, response.body
    return msgspec.json.decode(response.body, type=BulkBegun).bulk_operation_id


KEYS: Final = {
    "sk_all": ApiKey(key_hash="", name="all", role="admin"),
    "sk_mail": ApiKey(key_hash="", name="mail", role="operator", queue_scope=(MAIL,)),
}


def with_crew(
    test: Callable[[Nest, Crew], Awaitable[None]], keys: dict[str, ApiKey] | None = None
) -> None:
    async def main() -> None:
        nest = Nest(keys=keys)
        await test(nest, Crew(nest))

    run(main)


def trail_of(nest: Nest, job_id: str) -> tuple[Event, ...]:
    [trail] = [job.trail for job in jobs_of(nest) if job.id == job_id]
    return trail


def words_of(nest: Nest, job_id: str) -> list[str]:
    return [event.what for event in trail_of(nest, job_id)]


def jobs_of(nest: Nest) -> list[Job]:
    return [job for shard in nest.shards for job in shard.machine.documents(JOBS)]
