"""Kept links: opened again after a loss, patient after a refusal, and one log line per change."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo.connections import Address, TcpAddress, accept_link
from corvo.errors import WireError
from corvo.kept_link import BETWEEN_NODES, WITHIN_NODE, KeptLink, Retry
from corvo.link import DEFAULT, Link, LinkLost, LinkRefused
from corvo.protocol.wire import (
    BETWEEN_REPLICAS,
    OP_VERSION,
    REPLICA,
    Goodbye,
    Hello,
    Peer,
    encode,
    make_hello,
)
from corvo.telemetry import Level, Log, Style
from tests.support.links import Member, Raw, jumping

RETRY: Final = Retry(first_s=1, max_s=8, refused_s=60)
ADDRESS: Final = TcpAddress("10.0.0.2", 9400)
US: Final = make_hello(Member(node=1), REPLICA, shard=0)
THEM: Final = make_hello(Member(node=2), REPLICA, shard=0)


Play: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]
"""What one peer does with a connection."""


async def FAIL(_: trio.abc.Stream) -> None:  # noqa: N802 -- a mark, and never called
    """Not a peer: the try fails."""


class Peers:
    """The network, played by hand: each try goes to the next peer, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plays: list[Play] = []
        """One for each try; all fail after the last one."""
        self.tries: list[float] = []
        """When each was made."""
        self.addresses: list[Address] = []
        self.lines: list[dict[str, str]] = []
        self.log: Final = Log(self._put, "router", Style(is_text=False), Level.INFO)
        self.served: list[Link] = []
        self.nursery: trio.Nursery
        monkeypatch.setattr("corvo.connections.connect", self._connect)

    def _put(self, line: bytes) -> None:
        found = msgspec.json.decode(line, type=dict[str, str])
        del found["time"], found["process"]
        self.lines.append(found)

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    async def _connect(self, address: Address, _: object = DEFAULT) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.tries.append(trio.current_time())
        self.addresses.append(address)
        play = self.plays.pop(0) if self.plays else FAIL
        if play is FAIL:
            raise LinkLost("nobody answers", was_sent=False)
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(play, theirs)
        return ours

    # What peers do.

    async def work(self, stream: trio.abc.Stream, *, hello: Hello = THEM, s: float = 1e6) -> None:
        """Accept, and be lost after some time."""
        with trio.move_on_after(s), suppress(LinkLost):
            async with accept_link(stream, hello) as link:
                while await link.receive(BETWEEN_REPLICAS):
                    pass

    async def refuse(self, stream: trio.abc.Stream, *, hello: Hello) -> None:
        """Be a peer that does not fit."""
        with pytest.raises(LinkLost):
            async with accept_link(stream, hello):
                pytest.fail("the peers do not fit")

    async def leave(self, stream: trio.abc.Stream) -> None:
        """Accept, and leave in order."""
        async with accept_link(stream, THEM) as link:
            link.close("stopping")

    async def say_nothing(self, stream: trio.abc.Stream) -> None:
        """Accept the connection, and no more."""
        with trio.move_on_after(1e6):
            await trio.sleep_forever()
        await stream.aclose()

    async def serve(self, link: Link) -> None:
        """Use a link until it is lost."""
        self.served.append(link)
        while await link.receive(BETWEEN_REPLICAS):
            pass


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Peers:
    return Peers(monkeypatch)


def kept(peers: Peers, serve: Callable[[Link], Awaitable[None]] | None = None) -> KeptLink:
    return KeptLink(
        "node-2",
        ADDRESS,
        US,
        serve or peers.serve,
        node=2,
        retry=RETRY,
        chance=lambda: 1.0,
    )


@asynccontextmanager
async def running(peers: Peers, link: KeptLink) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        peers.nursery = nursery
        nursery.start_soon(link.run, peers.log)
        yield
        nursery.cancel_scope.cancel()


def is_up(link: KeptLink) -> bool:
    """What a type checker takes for a constant."""
    return link.is_up


async def until(seconds: float) -> None:
    """Wait until that time, and for all that happens then."""
    await trio.sleep_until(seconds)
    await wait_all_tasks_blocked()


# Tries.


@jumping
async def test_a_link_is_served_as_soon_as_it_is_open(peers: Peers) -> None:
    peers.plays = [peers.work]
    link = kept(peers)

    async with running(peers, link):
        await wait_all_tasks_blocked()
        assert is_up(link)
    assert [one.peer for one in peers.served] == [THEM]
    assert peers.addresses == [ADDRESS]
    assert not is_up(link)
    assert peers.lines == []


@jumping
async def test_a_lost_link_is_opened_again(peers: Peers) -> None:
    peers.plays = [partial(peers.work, s=100), partial(peers.work, s=100), peers.work]
    link = kept(peers)

    async with running(peers, link):
        await until(300)
        assert is_up(link)
        assert "went without a goodbye" in link.last_error

    assert peers.tries == [0, 101, 202]
    assert peers.events == ["link.down", "link.up", "link.down", "link.up"]


@jumping
async def test_each_loss_and_each_try_that_fails_is_told(peers: Peers) -> None:
    stranger = msgspec.structs.replace(THEM, cluster="nest")
    peers.plays = [partial(peers.work, s=100), FAIL, partial(peers.refuse, hello=stranger)]
    failures: list[Exception] = []
    link = KeptLink("node-2", ADDRESS, US, peers.serve, retry=RETRY, failed=failures.append)

    async with running(peers, link):
        await until(110)

    assert [type(each) for each in failures] == [LinkLost, LinkLost, LinkRefused]


@jumping
async def test_pauses_double_up_to_their_bound_and_begin_anew_after_a_link_that_held(
    peers: Peers,
) -> None:
    peers.plays = [*[FAIL] * 5, partial(peers.work, s=100), FAIL, peers.work]
    link = kept(peers)

    async with running(peers, link):
        await until(300)

    assert peers.tries == [0, 1, 3, 7, 15, 23, 124, 126]


@jumping
async def test_a_link_that_is_lost_as_soon_as_it_is_open_is_not_tried_all_the_time(
    peers: Peers,
) -> None:
    peers.plays = [partial(peers.work, s=0.5)] * 100
    link = kept(peers)

    async with running(peers, link):
        await until(100)

    assert len(peers.served) <= 15


@pytest.mark.parametrize(("chance", "second"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
@jumping
async def test_half_of_a_pause_is_left_to_chance(
    peers: Peers, chance: float, second: float
) -> None:
    link = KeptLink("a", ADDRESS, US, peers.serve, retry=RETRY, chance=lambda: chance)

    async with running(peers, link):
        await until(1)

    assert peers.tries[:2] == [0, second]


@pytest.mark.parametrize("retry", [WITHIN_NODE, BETWEEN_NODES])
def test_pauses_are_short_beside_an_election_and_a_refusal_is_not(retry: Retry) -> None:
    pauses = [retry.next(0)]
    while pauses[-1] < retry.max_s:
        pauses.append(retry.next(pauses[-1]))

    assert 0.05 <= pauses[0] < pauses[-1] <= 1.0
    assert retry.next(retry.refused_s) == retry.max_s
    assert retry.refused_s > retry.max_s


@jumping
async def test_a_peer_that_accepts_and_says_nothing_is_given_up_and_tried_again(
    peers: Peers,
) -> None:
    peers.plays = [peers.say_nothing, peers.work]
    link = kept(peers)

    async with running(peers, link):
        await until(4)
        assert not is_up(link)
        await until(10)
        assert is_up(link)
        assert link.last_error == f"no hello within {DEFAULT.connect_s} s"

    assert peers.tries == [0, DEFAULT.connect_s + 1]


@jumping
async def test_a_peer_that_leaves_in_order_is_tried_again_after_a_pause(peers: Peers) -> None:
    peers.plays = [peers.leave, peers.leave, peers.work]
    link = kept(peers)

    async with running(peers, link):
        await until(10)
        assert link.last_error == "the peer left: stopping"

    assert peers.tries == [0, 1, 3]


@jumping
async def test_bytes_that_are_no_message_are_a_loss(peers: Peers) -> None:
    async def babble(stream: trio.abc.Stream) -> None:
        await stream.send_all(encode(THEM) + b"\xff" * 10)
        assert await stream.receive_some() == encode(US)

    peers.plays = [babble, peers.work]

    async with running(peers, kept(peers)):
        await until(10)

    assert len(peers.served) == 2


# Refusals.

UNFIT: Final = {
    "an older release": (
        msgspec.structs.replace(THEM, wire_version=0),
        "the replica of node 2 is older: it has wire version 0",
    ),
    "a newer release": (
        msgspec.structs.replace(THEM, op_version=9, op_oldest=8),
        f"the replica of node 1 is older: it has op version {OP_VERSION}",
    ),
    "another cluster": (msgspec.structs.replace(THEM, cluster="nest"), "belongs to cluster 'nest'"),
    "another number of shards": (msgspec.structs.replace(THEM, shards=9), "has 9 shards"),
    "another shard": (msgspec.structs.replace(THEM, shard=5), "is for shard 5"),
    "another role": (msgspec.structs.replace(THEM, role="mirror", shard=-1), "check the address"),
    "another node": (msgspec.structs.replace(THEM, node=3), "node 3 answers at the address of"),
    "ourselves": (msgspec.structs.replace(THEM, node=1), "check the address"),
    "a reason of its own": (
        msgspec.structs.replace(THEM, refusal="node 1 was removed"),
        "node 1 was removed",
    ),
}


@pytest.mark.parametrize(("hello", "reason"), UNFIT.values(), ids=UNFIT)
@jumping
async def test_a_refusal_is_logged_once_and_tried_seldom(
    peers: Peers, hello: Hello, reason: str
) -> None:
    async def answer(stream: trio.abc.Stream) -> None:
        raw = Raw(stream)
        await raw.say(hello)
        assert [type(one) for one in await raw.hear(2)] == [Hello, Goodbye]
        await stream.aclose()

    peers.plays = [answer] * 100
    link = kept(peers)

    async with running(peers, link):
        await until(3_601)
        assert reason in link.last_error

    assert peers.tries == [60 * number for number in range(61)]
    assert peers.served == []
    [line] = peers.lines
    assert (line["event"], line["level"], line["to"]) == ("link.refused", "error", "node-2")
    assert reason in line["reason"]
    assert line["then"] == "trying again every 60 s"


@jumping
async def test_a_peer_that_refuses_before_its_hello_is_over_is_never_up(peers: Peers) -> None:
    older = msgspec.structs.replace(THEM, wire_version=9, wire_oldest=8)
    peers.plays = [partial(peers.refuse, hello=older), peers.work]
    link = kept(peers)

    async with running(peers, link):
        await until(59)
        assert not is_up(link)
        assert peers.events == ["link.refused"]
        await until(61)
        assert is_up(link)

    assert peers.events == ["link.refused", "link.up"]


@jumping
async def test_another_reason_is_another_line(peers: Peers) -> None:
    foreign, many = (UNFIT[name][0] for name in ("another cluster", "another number of shards"))
    peers.plays = [
        partial(peers.refuse, hello=foreign),
        FAIL,
        partial(peers.refuse, hello=foreign),
        partial(peers.refuse, hello=many),
    ]

    async with running(peers, kept(peers)):
        await until(150)

    assert peers.events == ["link.refused", "link.refused"]
    assert "'nest'" in peers.lines[0]["reason"]
    assert "9 shards" in peers.lines[1]["reason"]


# What is logged.


@jumping
async def test_a_link_that_is_down_for_long_is_one_line_and_so_is_its_return(peers: Peers) -> None:
    peers.plays = [partial(peers.work, s=10), *[FAIL] * 100, peers.work]

    async with running(peers, kept(peers)):
        await until(500)
        assert peers.events == ["link.down"]
        await until(1_000)

    assert peers.lines == [
        {
            "level": "info",
            "event": "link.down",
            "to": "node-2",
            "reason": "the peer went without a goodbye",
        },
        {"level": "info", "event": "link.up", "to": "node-2"},
    ]


@jumping
async def test_processes_that_start_in_any_order_are_no_news(peers: Peers) -> None:
    peers.plays = [FAIL, FAIL, peers.work]

    async with running(peers, kept(peers)):
        await until(100)

    assert peers.tries == [0, 1, 3]
    assert peers.lines == []


@jumping
async def test_a_peer_that_never_comes_is_logged_once(peers: Peers) -> None:
    async with running(peers, kept(peers)):
        await until(1_000)

    assert peers.events == ["link.down"]
    assert peers.lines[0]["reason"] == "nobody answers"


# What serves.


@jumping
async def test_a_server_that_returns_has_the_link_opened_anew_at_once(peers: Peers) -> None:
    peers.plays = [peers.work, peers.work, peers.work]
    left: list[Link] = []

    async def serve(link: Link) -> None:
        left.append(link)
        if len(left) == 3:
            await trio.sleep_forever()

    link = kept(peers, serve)
    async with running(peers, link):
        await until(1)
        assert is_up(link)

    assert peers.tries == [0, 0, 0]
    assert peers.lines == []


@pytest.mark.parametrize("error", [KeyError("a bug"), OSError("no disk")])
@jumping
async def test_an_error_of_the_server_comes_out_and_ends_the_link(
    peers: Peers, error: Exception
) -> None:
    peers.plays = [peers.work, peers.work]

    async def serve(_: Link) -> None:
        raise error

    link = kept(peers, serve)
    with pytest.RaisesGroup(type(error), flatten_subgroups=True):
        async with running(peers, link):
            await until(10)

    assert not is_up(link)
    assert peers.tries == [0]


@pytest.mark.parametrize("error", [LinkLost("lost"), WireError("no answer of ours")])
@jumping
async def test_a_loss_that_the_server_finds_is_a_loss(peers: Peers, error: Exception) -> None:
    peers.plays = [peers.work, peers.work]
    errors = [error]

    async def serve(_: Link) -> None:
        if errors:
            raise errors.pop()
        await trio.sleep_forever()

    link = kept(peers, serve)
    async with running(peers, link):
        await until(10)
        assert is_up(link)
        assert link.last_error == str(error)

    assert peers.tries == [0, 1]


# Cancellation.


@jumping
async def test_it_can_be_cancelled_while_it_dials(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial_for_ever(_: Address, __: object = DEFAULT) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("corvo.connections.connect", dial_for_ever)
    with trio.move_on_after(1) as scope:
        await kept(peers).run(peers.log)

    assert scope.cancelled_caught
    assert trio.current_time() == 1


@pytest.mark.parametrize("play", ["say_nothing", "work"])
@jumping
async def test_it_can_be_cancelled_during_the_hello_and_while_it_serves(
    peers: Peers, play: str
) -> None:
    peers.plays = [getattr(peers, play)]
    link = kept(peers)

    async with trio.open_nursery() as nursery:
        peers.nursery = nursery
        with trio.move_on_after(1) as scope:
            await link.run(peers.log)
        was_up = bool(peers.served)
        nursery.cancel_scope.cancel()

    assert scope.cancelled_caught
    assert trio.current_time() == 1
    assert was_up is (play == "work")
    assert not is_up(link)
    assert peers.lines == []


@jumping
async def test_it_can_be_cancelled_between_two_tries_and_run_again(peers: Peers) -> None:
    link = kept(peers)
    with trio.move_on_after(2) as scope:
        await link.run(peers.log)
    peers.plays = [peers.work]

    async with running(peers, link):
        await wait_all_tasks_blocked()
        assert is_up(link)

    assert scope.cancelled_caught
    assert peers.tries == [0, 1, 2]


@jumping
async def test_what_is_sent_over_a_kept_link_arrives(peers: Peers) -> None:
    heard: list[Peer] = []

    async def listen(stream: trio.abc.Stream) -> None:
        async with accept_link(stream, THEM) as link:
            while messages := await link.receive(BETWEEN_REPLICAS):
                heard.extend(messages)

    peers.plays = [listen]

    async with running(peers, kept(peers)):
        await wait_all_tasks_blocked()
        peers.served[0].send(Peer(b"a vote"))
        await wait_all_tasks_blocked()

    assert heard == [Peer(b"a vote")]
