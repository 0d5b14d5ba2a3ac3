"""Reads by id: the leader answers, or any replica, which says how old its answer may be."""

from typing import Final, cast

import msgspec
import pytest
import trio

from corvo.link import LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.queries import NUMBERS, AskHere, GetJobs, Here
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.links import AnswerHere, Shard
from corvo.topology import topology_of
from tests.router.nests import Nest, problem, run
from tests.support.links import jumping

CONTACT: Final = "corvo-leader-contact-ms"


def test_a_local_read_needs_no_leader_and_says_how_old_it_may_be() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put("mail")
        for shard in nest.shards:
            shard.is_away, shard.contact_ms = True, 1_250

        for path in ("", "/timeline", "/explain"):
            target = f"/api/v1/jobs/{job_id}{path}"
            local = await nest.ask("GET", target, query={"consistency": "local"})
            strict = await nest.ask("GET", target, query={"consistency": "linearizable"})
            default = await nest.ask("GET", target, query={"consistency": ""})

            assert local.status == 200, local.body
            headers = dict(local.headers)
            assert headers[CONTACT] == "1250"
            assert headers["corvo-seq"].startswith("s")
            assert problem(strict)[1] == problem(default)[1] == "LEADER_UNAVAILABLE"

    run(main)


def test_a_replica_that_has_heard_of_no_leader_yet_says_so() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put("mail")
        for shard in nest.shards:
            shard.contact_ms = None

        local = await nest.ask("GET", f"/api/v1/jobs/{job_id}", query={"consistency": "local"})
        default = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        assert dict(local.headers)[CONTACT] == "unknown"
        assert CONTACT not in dict(default.headers)

    run(main)


@pytest.mark.parametrize("path", ["jobs/x", "jobs/x/timeline", "jobs/x/explain", "batches/x"])
def test_another_word_is_refused_with_the_words_that_there_are(path: str) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", f"/api/v1/{path}", query={"consistency": "strong"})

        status, code, _, field = problem(answer)
        assert (status, code, field) == (400, "VALIDATION_ERROR", "consistency")
        assert b"expected one of linearizable, local; got 'strong'" in answer.body

    run(main)


def test_a_local_read_waits_for_a_position_and_then_says_how_far_the_replica_is() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put("mail")
        shard = nest.api.addresses.first(job_id)
        position = nest.shards[shard].machine.machine.applied
        target, local = f"/api/v1/jobs/{job_id}", {"consistency": "local"}

        there = await nest.ask("GET", target, query=local, corvo_min_seq=f"s{shard}={position}")
        beyond = await nest.ask("GET", target, query=local, corvo_min_seq=f"s{shard}=999")

        assert there.status == 200
        assert problem(beyond)[:2] == (503, "NOT_CAUGHT_UP")
        assert b"behind its leader" in beyond.body

    run(main)


# Which replica is asked.


class Replica:
    """A linked replica, as far as a local read needs it."""

    def __init__(self, node: int, told: object = None, *, leads: bool = False) -> None:
        self.node: Final = node
        self.leads: Final = leads
        self.client = cast("LinkClient", self) if told is not None else None
        self.link = self
        self.last_error = "connection refused"
        self._told = told

    async def ask(self, number: int, body: bytes) -> wire.Answer:
        assert number == NUMBERS[AskHere]
        asked = msgspec.json.decode(body, type=AskHere)
        assert asked.number == NUMBERS[GetJobs]
        await trio.lowlevel.checkpoint()
        match self._told:
            case LinkLost():
                raise self._told
            case wire.Busy():
                return self._told
            case Rejected(code=code):
                return wire.Reply(1, code, encode_json(self._told))
            case int(contact_ms):
                here = Here(msgspec.Raw(b'"jobs"'), contact_ms)
                return wire.Reply(1, "", encode_json(here), self.node)
            case _:
                await trio.sleep_forever()
                raise AssertionError


def shard_of(*replicas: Replica) -> Shard:
    """The shard, as the router of node 1 knows it."""
    config = RouterConfig(cluster="rookery", node=1, shards=1, sockets={0: "s"}, listen=[0])
    topology = topology_of(config)
    shard = Shard(0, config, topology, pushed=lambda *_: None, came_up=lambda _: None)
    vars(shard._links)["_members"] = {each.node: each for each in replicas}
    return shard


async def read(*replicas: Replica) -> AnswerHere:
    """A read of node 1."""
    return await shard_of(*replicas).ask_here(GetJobs(job_ids=["x"]))


@jumping
async def test_the_replica_of_this_node_comes_first_and_then_the_leader() -> None:
    own = await read(Replica(3, 30, leads=True), Replica(1, 10))
    leader = await read(Replica(2, 20), Replica(3, 30, leads=True))

    assert (own.answer.body, own.answer.index, own.contact_ms) == (b'"jobs"', 1, 10)
    assert leader.contact_ms == 30


@jumping
@pytest.mark.parametrize(
    "told",
    [
        None,
        "silent",
        LinkLost("lost"),
        wire.Busy(1, 50),
        Rejected("unknown_query", "it is too old"),
        Rejected("no_state", "the replica has no state yet"),
    ],
)
async def test_a_replica_that_cannot_answer_is_passed_over(told: object) -> None:
    began = trio.current_time()

    other = await read(Replica(1, told), Replica(2, 20))

    assert other.contact_ms == 20
    assert trio.current_time() - began <= 1.1
    with pytest.raises(Problem) as none:
        await read(Replica(1, told), Replica(2))
    assert none.value.code == "LEADER_UNAVAILABLE"
    assert "node 2: connection refused" in none.value.error


@jumping
async def test_another_refusal_is_the_answer() -> None:
    with pytest.raises(Problem) as refused:
        await read(Replica(1, Rejected("job_not_found", "no")), Replica(2, 20))

    assert refused.value.status == 404


@jumping
async def test_all_replicas_are_asked_and_those_that_cannot_answer_are_left_out() -> None:
    shard = shard_of(Replica(1, 10), Replica(2), Replica(3, LinkLost("lost")), Replica(4, 40))

    found = await shard.ask_each_here(GetJobs(job_ids=["x"]))

    assert [answer.index for answer in found] == [1, 4]
