"""The relay between hosts on loopback delays bytes, and holds them back while they are cut."""

import trio
import trio.lowlevel

from chaos.cluster.relay import Relay
from chaos.cluster.rules import CLEAR, Rule
from chaos.cluster.wire import Change, Command
from tests.support.links import on_sockets

THERE, BACK = ("a", "b"), ("b", "a")


class Ends:
    """The two ends of a connection through a relay."""

    def __init__(self, relay: Relay, near: trio.SocketStream, far: trio.SocketStream) -> None:
        self.relay = relay
        self.near = near
        self.far = far


async def connected(nursery: trio.Nursery) -> Ends:
    (target,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay = Relay({THERE: ("127.0.0.1", target.socket.getsockname()[1])}, "1")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(relay.serve, THERE, listener)
    near = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    far = await target.accept()
    await target.aclose()
    return Ends(relay, near, far)


async def close(ends: Ends, nursery: trio.Nursery) -> None:
    await ends.near.aclose()
    await ends.far.aclose()
    nursery.cancel_scope.cancel()


@on_sockets
async def test_bytes_pass_in_both_directions_and_are_counted() -> None:
    async with trio.open_nursery() as nursery:
        ends = await connected(nursery)

        await ends.near.send_all(b"ping")
        assert await ends.far.receive_some() == b"ping"
        await ends.far.send_all(b"pong")
        assert await ends.near.receive_some() == b"pong"

        assert ends.relay.ways[THERE].counts.passed == 1
        assert ends.relay.ways[BACK].counts.passed == 1
        await close(ends, nursery)


@on_sockets
async def test_bytes_of_a_cut_direction_arrive_after_the_cut_and_the_other_direction_is_open() -> (
    None
):
    async with trio.open_nursery() as nursery:
        ends = await connected(nursery)
        way = ends.relay.ways[THERE]
        ends.relay.obey(Command([Change(*THERE, Rule(is_cut=True))]))

        await ends.near.send_all(b"ping")
        await ends.far.send_all(b"pong")
        assert await ends.near.receive_some() == b"pong"
        while not way.counts.dropped:
            await trio.lowlevel.checkpoint()
        ends.relay.obey(Command([Change(*THERE, CLEAR)]))

        assert await ends.far.receive_some() == b"ping"
        await close(ends, nursery)


@on_sockets
async def test_the_end_of_a_connection_is_carried_on() -> None:
    async with trio.open_nursery() as nursery:
        ends = await connected(nursery)

        await ends.near.aclose()

        assert await ends.far.receive_some() == b""
        await close(ends, nursery)


@on_sockets
async def test_a_slow_direction_delays_what_follows() -> None:
    async with trio.open_nursery() as nursery:
        ends = await connected(nursery)
        way = ends.relay.ways[THERE]
        way.rule = Rule(bytes_per_second=1_000)

        assert way.due(10.0, 500) == 10.5
        assert way.due(10.0, 500) == 11.0
        assert way.counts.delayed == 2
        await close(ends, nursery)
