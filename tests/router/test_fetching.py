"""Long polls over shards: what is asked, in which order, who waits, and what a client leaves."""

from typing import cast

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.work import Claim, Claims, Fetch, Release
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer, Shards
from corvo.router.shards.long_poll import Fetched, Fetching
from tests.support.links import jumping

SHARDS = 2
ON_0 = [name for name in ("a", "b", "c", "d", "e", "f") if shard_of_queue(name, SHARDS) == 0]
ON_1 = [name for name in ("a", "b", "c", "d", "e", "f") if shard_of_queue(name, SHARDS) == 1]


class FakeShard:
    """Jobs by queue, and every op that came."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ops: list[Op] = []
        self.jobs: dict[str, int] = {}
        self.gate = trio.Event()
        self.gate.set()
        self.problem: Problem | None = None
        self.index = 0

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        self.ops.append(op)
        with trio.CancelScope(shield=shield):
            await self.gate.wait()
            await trio.lowlevel.checkpoint()
        if self.problem is not None:
            raise self.problem
        self.index += 1
        if isinstance(op, Release):
            for _ in op.jobs:
                self.jobs[ON_0[0]] += 1
            return Answer(b'{"results":[]}', self.index)
        assert isinstance(op, Fetch)
        claims: list[Claim] = []
        for queue in op.queues:
            while self.jobs.get(queue) and len(claims) < op.count:
                self.jobs[queue] -= 1
                claims.append(claim(self.number, queue, self.index))
        return Answer(msgspec.json.encode(Claims(claims)), self.index)

    @property
    def fetches(self) -> list[tuple[list[str], int]]:
        return [(op.queues, op.count) for op in self.ops if isinstance(op, Fetch)]

    @property
    def released(self) -> list[str]:
        return [item.job_id for op in self.ops if isinstance(op, Release) for item in op.jobs]


def claim(shard: int, queue: str, number: int) -> Claim:
    return Claim(
        job_id=f"s{shard:02d}_job_{number}",
        queue=queue,
        payload=msgspec.Raw(b"{}"),
        attempt=1,
        max_retries=3,
        lease_duration=60,
        lease_token=number,
        lease_expires_ns=1,
    )


def fetching(limits: Limits | None = None) -> tuple[Fetching, list[FakeShard]]:
    config = RouterConfig(
        cluster="rookery",
        node=1,
        shards=SHARDS,
        sockets=dict(enumerate(["", ""])),
        listen=[0],
        limits=limits or Limits(),
    )
    fakes = [FakeShard(number) for number in range(SHARDS)]
    return Fetching(config, cast("Shards", fakes)), fakes


@jumping
async def test_shards_are_asked_in_the_order_of_the_queues_for_what_is_missing() -> None:
    polls, (zero, one) = fetching()
    zero.jobs = {ON_0[0]: 1, ON_0[1]: 5}
    one.jobs = {ON_1[0]: 1}
    queues = [ON_0[0], ON_1[0], ON_0[1]]

    fetched = await polls.fetch(Fetch(queues=queues, count=3), 10)

    assert [claim.queue for claim in fetched.claims] == queues
    assert zero.fetches == [([ON_0[0]], 3), ([ON_0[1]], 1)]
    assert one.fetches == [([ON_1[0]], 2)]
    assert fetched.positions == {0: 2, 1: 1}


@jumping
async def test_nobody_is_asked_behind_what_was_wanted() -> None:
    polls, (zero, one) = fetching()
    zero.jobs = {ON_0[0]: 1}

    await polls.fetch(Fetch(queues=[ON_0[0], ON_1[0]]), 10)

    assert not one.ops


@jumping
async def test_a_fetch_that_finds_nothing_waits_as_long_as_it_may_and_asks_once() -> None:
    polls, (zero, _) = fetching()
    began = trio.current_time()

    fetched = await polls.fetch(Fetch(queues=[ON_0[0]]), 29.5)

    assert not fetched.claims
    assert trio.current_time() - began == 29.5
    assert len(zero.ops) == 1
    assert polls.parked == 0


@jumping
async def test_a_fetch_that_may_not_wait_is_answered_at_once() -> None:
    polls, _ = fetching()
    began = trio.current_time()

    fetched = await polls.fetch(Fetch(queues=[ON_0[0]]), 0)

    assert not fetched.claims
    assert trio.current_time() == began


@jumping
async def test_what_waits_is_woken_by_work() -> None:
    polls, (zero, _) = fetching()
    got: list[Fetched] = []

    async def poll() -> None:
        got.append(await polls.fetch(Fetch(queues=[ON_1[0], ON_0[0]]), 30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await wait_all_tasks_blocked()
        zero.jobs = {ON_0[0]: 1}
        polls.pushed(wire.WorkAvailable((ON_0[0],)))

    assert [claim.queue for claim in got[0].claims] == [ON_0[0]]


@jumping
async def test_work_that_is_announced_while_a_fetch_asks_is_not_lost() -> None:
    polls, (zero, _) = fetching()
    zero.gate = trio.Event()
    got: list[Fetched] = []

    async def poll() -> None:
        got.append(await polls.fetch(Fetch(queues=[ON_0[0]]), 30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await wait_all_tasks_blocked()
        polls.pushed(wire.WorkAvailable((ON_0[0],)))
        zero.gate.set()
        await trio.lowlevel.checkpoint()
        zero.jobs = {ON_0[0]: 1}

    assert len(got[0].claims) == 1
    assert trio.current_time() < 1


@jumping
async def test_a_client_that_goes_while_the_shard_decides_leaves_no_claim() -> None:
    polls, (zero, _) = fetching()
    zero.jobs = {ON_0[0]: 2}
    zero.gate = trio.Event()
    with trio.CancelScope() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(polls.fetch, Fetch(queues=[ON_0[0]], count=2), 30)
            await wait_all_tasks_blocked()
            client.cancel()
            zero.gate.set()

    assert zero.released == ["s00_job_1", "s00_job_1"]
    assert polls.given_back == 2
    assert polls.parked == 0


@jumping
async def test_who_goes_behind_being_woken_wakes_the_next() -> None:
    polls, (zero, _) = fetching()
    zero.jobs = {}
    got: list[Fetched] = []

    async def poll() -> None:
        got.append(await polls.fetch(Fetch(queues=[ON_0[0]]), 30))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as client:
            async with trio.open_nursery() as first:
                first.start_soon(poll)
                await wait_all_tasks_blocked()
                nursery.start_soon(poll)
                await wait_all_tasks_blocked()
                zero.jobs = {ON_0[0]: 1}
                polls.pushed(wire.WorkAvailable((ON_0[0],)))
                client.cancel()

    assert [len(fetched.claims) for fetched in got] == [1]
    assert trio.current_time() < 1


@jumping
async def test_what_one_shard_gave_is_not_lost_because_another_is_away() -> None:
    polls, (zero, one) = fetching()
    zero.jobs = {ON_0[0]: 1}
    one.problem = Problem(503, "LEADER_UNAVAILABLE", "away")

    fetched = await polls.fetch(Fetch(queues=[ON_0[0], ON_1[0]], count=2), 30)

    assert len(fetched.claims) == 1


@jumping
async def test_a_fetch_from_a_shard_that_is_away_says_so() -> None:
    polls, (zero, _) = fetching()
    zero.problem = Problem(503, "LEADER_UNAVAILABLE", "away")

    with pytest.raises(Problem) as caught:
        await polls.fetch(Fetch(queues=[ON_0[0]]), 30)

    assert caught.value.code == "LEADER_UNAVAILABLE"
    assert polls.parked == 0


@jumping
async def test_when_a_shard_has_another_leader_all_that_wait_for_it_ask_again() -> None:
    polls, (zero, one) = fetching()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(polls.fetch, Fetch(queues=[ON_0[0]]), 30)
        nursery.start_soon(polls.fetch, Fetch(queues=[ON_1[0]]), 30)
        await wait_all_tasks_blocked()

        polls.came_up(0)
        await wait_all_tasks_blocked()

        assert (len(zero.ops), len(one.ops)) == (2, 1)
        assert polls.parked == 2
        nursery.cancel_scope.cancel()


@jumping
async def test_not_more_wait_than_may() -> None:
    polls, _ = fetching(Limits(parked_max=2))
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(polls.fetch, Fetch(queues=[ON_0[0]]), 30)
        await wait_all_tasks_blocked()

        with pytest.raises(Problem) as caught:
            await polls.fetch(Fetch(queues=[ON_0[0]]), 30)

        assert caught.value.code == "OVERLOADED"
        assert caught.value.retry_after_ms
        assert polls.parked == 2
        nursery.cancel_scope.cancel()


@jumping
async def test_a_router_that_leaves_answers_all_that_wait_with_nothing() -> None:
    polls, _ = fetching()
    got: list[Fetched] = []

    async def poll() -> None:
        got.append(await polls.fetch(Fetch(queues=[ON_0[0]]), 30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await wait_all_tasks_blocked()
        polls.stop()
        nursery.start_soon(poll)

    assert [fetched.claims for fetched in got] == [[], []]
    assert trio.current_time() < 1
