"""Sending an op to the shards of its jobs: outcomes in order, each job's shard found."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.ops.work import Ack, Acked, AckItem, LeaseResults
from corvo.protocol.queries import GetWhereabouts, Query, Whereabouts
from corvo.router.http.messages import UNKNOWN, Problem
from corvo.router.leases.fan_out import LeaseFanOut
from corvo.router.leases.verbs import ACK, Lease
from corvo.router.shards.addressing import REMEMBERED_MAX, Addresses
from corvo.router.shards.fan_out import send_to_job, together
from corvo.router.shards.links import Answer, Begun, Shards
from corvo.router.shards.outcomes import Outcome

SHARDS = 3


class Results(NamedTuple):
    outcomes: Sequence[Outcome | Rejected | Problem]
    positions: Mapping[int, int]


class FakeShard:
    """Has some jobs, and pointers to others."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.jobs: set[str] = set()
        self.moved: dict[str, int] = {}
        self.asked: list[list[str]] = []
        self.begun: list[Op] = []
        self.looks = 0
        self.is_away = False
        self.loses_first = False
        """Loses the answer to the first request, and is away from then on unless it `stays`."""
        self.stays = False
        self.forgets = False
        """Hears, before it is asked again, that what has moved is gone."""
        self.lands: dict[str, int] = {}
        """Jobs that are on their way here, and the look that finds them."""

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        assert isinstance(op, Ack)
        ids = [item.job_id for item in op.acks]
        self.asked.append(ids)
        await trio.lowlevel.checkpoint()
        if self.loses_first and len(self.asked) == 1:
            self.is_away = not self.stays
            raise Problem(503, "OUTCOME_UNKNOWN", "lost", outcome=UNKNOWN)
        if self.is_away:
            raise Problem(503, "LEADER_UNAVAILABLE", "away")
        results = LeaseResults([self._one(job_id) for job_id in ids])
        return Answer(msgspec.json.encode(results), 10 * self.number + len(self.asked))

    @property
    def is_up(self) -> bool:
        return not self.is_away

    def begin(self, op: Op) -> Begun:
        self.begun.append(op)
        return Begun(len(self.begun) - 1, b"", op.is_safe_twice, None)

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        return await self.submit(self.begun[begun.number])

    async def ask(self, query: Query) -> Answer:
        assert isinstance(query, GetWhereabouts)
        await trio.lowlevel.checkpoint()
        self.looks += 1
        if self.forgets:
            self.moved = {}
        self.jobs |= {job_id for job_id, look in self.lands.items() if look <= self.looks}
        seen = Whereabouts(
            {job_id: "mail" for job_id in query.job_ids if job_id in self.jobs},
            {job_id: self.moved[job_id] for job_id in query.job_ids if job_id in self.moved},
        )
        return Answer(msgspec.json.encode(seen), 1)

    def _one(self, job_id: str) -> Acked | Rejected:
        if job_id in self.jobs:
            return Acked(job_id, "completed")
        if job_id in self.moved:
            return Rejected("job_moved", "it moved", job_id=job_id, shard=self.moved[job_id])
        return Rejected("job_not_found", "no such job", job_id=job_id)


class World:
    def __init__(self) -> None:
        self.fakes = [FakeShard(number) for number in range(SHARDS)]
        self.addresses = Addresses(SHARDS)

    def ack(self, *job_ids: str) -> Results:
        """Ack jobs, a single one by the shorter way."""

        async def send() -> Results:
            shards = cast("Shards", self.fakes)
            items = [AckItem(job_id=job_id, lease_token=1) for job_id in job_ids]
            if len(job_ids) == 1:
                op = Ack(acks=items)
                try:
                    sent = await send_to_job(shards, self.addresses, job_ids[0], op)
                except Problem as problem:
                    return Results([problem], {})
                return Results([sent.outcome], sent.positions)
            fan_out = LeaseFanOut(shards, self.addresses, ACK, cast("list[Lease]", items), 0)
            await fan_out.send()
            return Results(fan_out.outcomes, fan_out.positions)

        return trio.run(send, clock=MockClock(autojump_threshold=0))

    def one(self, job_id: str, *, alone: bool) -> str:
        """What becomes of one job that is acked, alone or beside another."""
        if alone:
            return codes(self.ack(job_id))[0]
        self.fakes[1].jobs.add("s01_job_z")
        one, other = codes(self.ack(job_id, "s01_job_z"))
        assert other == "completed"
        return one

    @property
    def asked(self) -> list[list[list[str]]]:
        return [fake.asked for fake in self.fakes]


alone_or_not = pytest.mark.parametrize("alone", [True, False], ids=["alone", "among others"])


def codes(results: Results) -> list[str]:
    return [
        outcome.status if isinstance(outcome, Outcome) else outcome.code
        for outcome in results.outcomes
    ]


def test_each_shard_is_asked_once_for_all_that_it_has_and_outcomes_stand_in_order() -> None:
    world = World()
    ids = ["s02_job_a", "s00_job_b", "s02_job_c", "s00_job_x"]
    world.fakes[0].jobs = {"s00_job_b"}
    world.fakes[2].jobs = {"s02_job_a", "s02_job_c"}

    results = world.ack(*ids)

    assert codes(results) == ["completed", "completed", "completed", "job_not_found"]
    assert world.asked == [[["s00_job_b", "s00_job_x"]], [], [["s02_job_a", "s02_job_c"]]]
    assert results.positions == {0: 1, 2: 21}


def test_a_chosen_id_is_looked_for_everywhere_and_then_remembered() -> None:
    world = World()
    world.fakes[1].jobs = {"mine"}

    first, second = world.ack("mine"), world.ack("mine")

    assert codes(first) == codes(second) == ["completed"]
    assert world.asked == [[["mine"]], [["mine"], ["mine"]], []]


@alone_or_not
def test_a_chosen_id_that_nobody_has_is_not_found(*, alone: bool) -> None:
    world = World()

    assert world.one("nobodys", alone=alone) == "job_not_found"
    assert [asked.count(["nobodys"]) for asked in world.asked] == [1] * SHARDS


@alone_or_not
def test_a_job_that_has_moved_is_found_behind_its_pointer(*, alone: bool) -> None:
    world = World()
    world.fakes[0].moved = {"s00_job_a": 2}
    world.fakes[2].jobs = {"s00_job_a"}

    assert world.one("s00_job_a", alone=alone) == "completed"


def test_a_job_on_its_way_is_waited_for_and_the_op_is_sent_only_when_it_is_there() -> None:
    world = World()
    world.fakes[0].moved = {"s00_job_a": 2}
    world.fakes[2].lands = {"s00_job_a": 3}

    results = world.ack("s00_job_a")

    assert codes(results) == ["completed"]
    assert world.asked == [[["s00_job_a"]], [], [["s00_job_a"]]]


@alone_or_not
def test_a_job_that_was_deleted_behind_its_pointer_is_not_found_once_its_home_knows(
    *, alone: bool
) -> None:
    world = World()
    world.fakes[0].moved = {"s00_job_a": 2}
    world.fakes[0].forgets = True

    assert world.one("s00_job_a", alone=alone) == "job_not_found"


@alone_or_not
def test_a_job_that_does_not_land_is_told_to_be_on_its_way(*, alone: bool) -> None:
    world = World()
    world.fakes[0].moved = {"s00_job_a": 2}

    assert world.one("s00_job_a", alone=alone) == "JOB_MOVING"
    assert world.asked[2] == []


@alone_or_not
def test_pointers_that_go_round_in_circles_are_not_followed_for_ever(*, alone: bool) -> None:
    world = World()
    world.fakes[0].moved = {"s00_job_a": 1}
    world.fakes[1].moved = {"s00_job_a": 0}

    assert world.one("s00_job_a", alone=alone) == "JOB_MOVING"


@pytest.mark.parametrize("job_id", ["s07_job_a", "s999_job_a"])
def test_an_id_of_a_shard_that_there_is_not_costs_one_question(job_id: str) -> None:
    """The job may have come from a backup of more shards: another shard stands in."""
    world = World()

    assert codes(world.ack(job_id)) == ["job_not_found"]
    assert sorted(world.asked) == [[], [], [[job_id]]]


def test_a_shard_that_is_away_is_the_outcome_of_its_jobs_alone() -> None:
    world = World()
    world.fakes[0].jobs = {"s00_job_a"}
    world.fakes[1].is_away = True

    results = world.ack("s01_job_b", "s00_job_a")

    assert codes(results) == ["LEADER_UNAVAILABLE", "completed"]


def test_an_outcome_that_is_unknown_stays_so_when_the_shard_is_away_for_the_second_request() -> (
    None
):
    world = World()
    world.fakes[0].jobs = {"s00_job_a"}
    world.fakes[1].loses_first = True

    results = world.ack("s01_job_b", "s00_job_a")

    assert len(world.fakes[1].asked) == 2
    assert codes(results) == ["OUTCOME_UNKNOWN", "completed"]


def test_an_outcome_that_is_unknown_stays_so_when_the_job_has_moved_and_does_not_land() -> None:
    world = World()
    world.fakes[0].jobs = {"s00_job_a"}
    world.fakes[1].loses_first = world.fakes[1].stays = True
    world.fakes[1].moved = {"s01_job_b": 2}

    results = world.ack("s01_job_b", "s00_job_a")

    assert world.fakes[2].looks > 0
    assert codes(results) == ["OUTCOME_UNKNOWN", "completed"]


def test_whatever_is_where_the_outcome_is_that_of_a_search_through_everything() -> None:
    random = Random(5)
    for _ in range(200):
        world = World()
        ids = [f"s{random.randrange(SHARDS):02d}_job_{number}" for number in range(4)]
        ids += ["mine", "yours"]
        for job_id in ids:
            where = random.randrange(-1, SHARDS)
            if where >= 0:
                world.fakes[where].jobs.add(job_id)
                if job_id.startswith("s") and int(job_id[1:3]) != where:
                    world.fakes[int(job_id[1:3])].moved[job_id] = where
        asked = random.sample(ids, random.randrange(1, len(ids)))

        results = world.ack(*asked)

        there = {job_id for fake in world.fakes for job_id in fake.jobs}
        assert codes(results) == [
            "completed" if job_id in there else "job_not_found" for job_id in asked
        ]


def test_of_many_that_are_asked_at_once_a_problem_of_one_is_that_problem() -> None:
    done: list[str] = []

    async def fail() -> None:
        raise Problem(503, "LEADER_UNAVAILABLE", "away")

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        done.append("work")

    with pytest.raises(Problem) as caught:
        trio.run(together, [fail, work])

    assert caught.value.code == "LEADER_UNAVAILABLE"
    assert done == ["work"]


def test_what_is_remembered_has_a_bound() -> None:
    addresses = Addresses(SHARDS)

    for number in range(REMEMBERED_MAX + 10):
        addresses.remember(f"job {number}", 1)

    assert len(addresses._remembered) == REMEMBERED_MAX
    assert addresses.candidates("job 0") == [0, 1, 2]
    assert addresses.candidates(f"job {REMEMBERED_MAX + 9}") == [1, 0, 2]
