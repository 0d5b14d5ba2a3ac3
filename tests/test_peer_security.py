"""Links between nodes: who is let in, and what is said to those who are not."""

from typing import Final

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from corvo import connections as links
from corvo.connections import STRANGERS_MAX, accept_link
from corvo.errors import WireError
from corvo.link import LinkLost, LinkRefused, LinkSettings
from corvo.peer_security import PeerSecurity
from corvo.protocol.wire import (
    TO_ROUTER,
    Challenge,
    Goodbye,
    Leading,
    Proof,
    Submit,
    encode,
)
from tests.support.links import SETTINGS, STRANGER, THEM, US, Raw, jumping, link_and_raw
from tests.support.peers import OTHER, SECURITY, Lines, Pair, dials

FIX: Final = "set cluster.secret to the same value on all nodes"


@pytest.fixture(autouse=True)
def no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own for each test."""
    monkeypatch.setattr(links, "_STRANGERS", links._Strangers())


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(monkeypatch)


@jumping
async def test_two_nodes_with_one_secret_talk(pair: Pair) -> None:
    async with pair.answers() as received, dials() as link:
        assert link.peer == THEM
        assert await link.receive(TO_ROUTER) == [Leading(2, 9)]
        assert link.send(Submit(1, 1, b"{}"))

    assert received == [Submit(1, 1, b"{}")]
    assert pair.log.lines == []


@jumping
async def test_a_node_with_another_secret_is_refused_and_both_know_why(pair: Pair) -> None:
    expected = f"the cluster secret of node 1 is not that of node 2: {FIX}"

    async with pair.answers():
        reason = await pair.refused(OTHER)

    assert (reason, pair.reason) == (expected, expected)
    assert pair.log.lines == [
        {"event": "peer.refused", "address": "", "reason": expected, "refused": 1}
    ]
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("ours", "theirs"), [(PeerSecurity(), SECURITY), (SECURITY, PeerSecurity())]
)
@jumping
async def test_a_secret_on_one_node_alone_is_refused(
    pair: Pair, ours: PeerSecurity, theirs: PeerSecurity
) -> None:
    async with pair.answers(theirs):
        reason = await pair.refused(ours)

    assert reason == pair.reason
    assert reason.endswith(FIX)
    assert "has none" in reason


@jumping
async def test_a_foreign_cluster_with_the_same_secret_is_named(pair: Pair) -> None:
    async with pair.answers(hello=STRANGER):
        reason = await pair.refused()

    assert "belongs to cluster 'nest'" in reason
    assert "belongs to cluster 'rookery'" in pair.reason


@jumping
async def test_a_foreign_cluster_with_another_secret_learns_nothing_of_ours(pair: Pair) -> None:
    async with pair.answers():
        raw = Raw(pair.near)
        await raw.say(STRANGER, Challenge(bytes(32), 2))
        [asked] = await raw.hear(1)
        await raw.say(Proof(bytes(32)))
        heard = await raw.hear_the_end()
        await raw.stream.aclose()

    assert isinstance(asked, Challenge)
    assert heard == [Goodbye(f"the cluster secret of node 2 is not that of node 2: {FIX}")]
    assert b"rookery" not in encode(asked)


@pytest.mark.parametrize("said", [b"", encode(US), encode(US)[:-1]])
@jumping
async def test_a_silent_stranger_hears_nothing_and_is_sent_away_in_time(
    pair: Pair, said: bytes
) -> None:
    async with pair.answers():
        await pair.near.send_all(said)
        await pair.is_closed.wait()

    assert pair.reason == f"no hello within {SETTINGS.connect_s} s"
    assert await pair.near.receive_some() == b""


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", encode(Proof(bytes(32)))])
@jumping
async def test_another_protocol_hears_nothing(pair: Pair, said: bytes) -> None:
    await pair.near.send_all(said)

    with pytest.raises(WireError):
        async with accept_link(pair.far, THEM, security=SECURITY):
            pytest.fail("a stranger was let in")

    assert await pair.near.receive_some() == b""


@jumping
async def test_a_process_that_was_recorded_is_not_taken_for_the_one_that_speaks_now(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []
    send_all = pair.near.send_all

    async def record(data: bytes) -> None:
        said.append(bytes(data))
        await send_all(data)

    monkeypatch.setattr(pair.near, "send_all", record)
    async with pair.answers(), dials():
        pass
    near, far = memory_stream_pair()
    await near.send_all(b"".join(said))
    await near.send_eof()

    with pytest.raises(LinkRefused, match="the cluster secret of node 1 is not that of node 2"):
        async with accept_link(far, THEM, security=SECURITY):
            pytest.fail("a recording was let in")


@jumping
async def test_a_node_that_is_refused_because_the_other_closes_is_told_where_to_look(
    pair: Pair,
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.far.aclose)
        with pytest.raises(LinkLost, match="the log of the other node has the reason") as caught:
            async with dials():
                pytest.fail("no node is there")

    assert not caught.value.was_sent


@jumping
async def test_a_process_has_room_for_a_number_of_strangers_and_for_its_links_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [memory_stream_pair() for _ in range(STRANGERS_MAX)]
    lost = 0

    async def accept(stream: trio.abc.Stream) -> None:
        nonlocal lost
        with pytest.raises(LinkLost):
            async with accept_link(stream, THEM, SETTINGS, security=SECURITY):
                pytest.fail("a stranger was let in")
        lost += 1

    async with trio.open_nursery() as nursery:
        for _, far in kept:
            nursery.start_soon(accept, far)
        await wait_all_tasks_blocked()
        crowded = Pair(monkeypatch)
        async with crowded.answers():
            assert await crowded.near.receive_some() == b""
        assert crowded.reason == "too many connections that have not sent a hello yet"
        assert lost == 0

    assert (lost, trio.current_time()) == (STRANGERS_MAX, SETTINGS.connect_s)
    free = Pair(monkeypatch)
    async with free.answers(), dials() as link:
        assert link.peer == THEM


@jumping
async def test_links_that_are_open_leave_their_place_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "STRANGERS_MAX", 1)

    first, second = Pair(monkeypatch), Pair(monkeypatch)
    monkeypatch.setattr(links, "connect", connecting(first, second))
    async with first.answers(), dials(), second.answers(), dials():
        pass

    assert (first.reason, second.reason) == ("", "")


def connecting(*pairs: Pair) -> object:
    left = iter(pairs)

    async def connect(*_: object) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return next(left).near

    return connect


@jumping
async def test_many_refusals_are_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()

    async def be_refused() -> None:
        pair = Pair(monkeypatch)
        pair.log = lines
        async with pair.answers():
            await pair.refused(OTHER)

    for _ in range(5):
        await be_refused()
    await trio.sleep(10)
    await be_refused()

    assert [line["refused"] for line in lines.lines] == [1, 5]


@jumping
async def test_a_link_that_was_open_and_is_lost_is_no_refused_one(pair: Pair) -> None:
    async with pair.answers():
        with pytest.raises(KeyError):
            async with dials():
                raise KeyError

    assert pair.reason == "the peer went without a goodbye"
    assert pair.log.lines == []


@jumping
async def test_a_link_within_a_node_is_as_it_was() -> None:
    async with link_and_raw(LinkSettings()) as (link, raw):
        assert link.peer == THEM
        await raw.stream.aclose()
