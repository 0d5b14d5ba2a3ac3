"""Ops that are sent at once and waited for later: together, in order, and with the same ends."""

from pathlib import Path

import pytest
import trio

from corvo.link import Call, LinkLost, LinkSettings
from corvo.protocol import wire
from corvo.protocol.ops.queues import Pause, Resume
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer
from tests.router.test_shards import PUT, PUT_WITH_KEY, Replica, World, start, world
from tests.support.links import client_and_raw, jumping, on_sockets


async def reached(there: World, nursery: trio.Nursery) -> Replica:
    """A replica that the router has a link to, for it has answered."""
    replica = await there.replica()
    outcome = start(nursery, there)
    replica.say(wire.Reply((await replica.hear()).id, "", b"{}", 1))
    await outcome.wait()
    return replica


@on_sockets
async def test_what_is_begun_without_a_pause_goes_out_together_and_in_order(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica, shard = await reached(there, nursery), there.shards[0]

        begun = [shard.begin(op) for op in (Pause(queue="a"), PUT, Resume(queue="a"))]
        heard = await replica.hear_all()
        for number, request in reversed(list(enumerate(heard))):
            replica.say(wire.Reply(request.id, "", b"", number))

        assert [request.op for request in heard if isinstance(request, wire.Submit)] == [
            one.number for one in begun
        ]
        assert [(await shard.finish(one)).index for one in begun] == [0, 1, 2]
        assert shard.calls_in_flight == 0


@on_sockets
async def test_what_is_begun_before_there_is_a_link_is_sent_over_the_next(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        shard = there.shards[0]
        begun = shard.begin(PUT)
        replica = await there.replica()

        async def answer() -> None:
            replica.say(wire.Reply((await replica.hear()).id, "", b"{}", 4))

        nursery.start_soon(answer)

        assert await shard.finish(begun) == Answer(b"{}", 4)


@on_sockets
async def test_what_was_begun_with_one_that_does_not_lead_is_sent_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica, shard = await reached(there, nursery), there.shards[0]
        begun = shard.begin(PUT)
        replica.say(wire.NotLeader((await replica.hear()).id, 1), wire.Leading(1, 7))

        async def answer() -> None:
            replica.say(wire.Reply((await replica.hear()).id, "", b"{}", 4))

        nursery.start_soon(answer)

        assert await shard.finish(begun) == Answer(b"{}", 4)


@on_sockets
async def test_what_was_begun_and_not_answered_is_unknown(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica, shard = await reached(there, nursery), there.shards[0]
        begun = shard.begin(PUT)
        await replica.hear()

        replica.left.set()

        with pytest.raises(Problem) as raised:
            await shard.finish(begun)
        assert raised.value.outcome == "unknown"


@on_sockets
async def test_under_a_request_key_it_is_sent_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica, shard = await reached(there, nursery), there.shards[0]
        begun = shard.begin(PUT_WITH_KEY)
        await replica.hear()
        replica.left.set()

        async def answer() -> None:
            replica = await there.replica()
            replica.say(wire.Reply((await replica.hear()).id, "", b"{}", 4))

        nursery.start_soon(answer)

        assert await shard.finish(begun) == Answer(b"{}", 4)


@jumping
async def test_a_client_that_has_no_room_says_so_at_once() -> None:
    async with client_and_raw(LinkSettings(calls_max=1)) as (client, _):
        first, second = client.begin(1, b""), client.begin(1, b"")

        assert isinstance(first, Call)
        assert isinstance(second, wire.Busy)
        assert client.calls_in_flight == 1


@jumping
async def test_nothing_is_begun_over_a_link_that_has_ended() -> None:
    async with client_and_raw() as (client, _):
        pass

    with pytest.raises(LinkLost) as raised:
        client.begin(1, b"")
    assert not raised.value.was_sent
