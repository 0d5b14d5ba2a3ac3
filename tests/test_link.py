"""Links: what is sent arrives in order, and every way to end is told apart and takes its time."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import msgspec
import pytest
import trio
from trio.testing import (
    lockstep_stream_pair,
    memory_stream_pair,
    wait_all_tasks_blocked,
)

from corvo.connections import accept_link
from corvo.errors import WireError
from corvo.link import Link, LinkLost, LinkRefused, LinkSettings, open_client, open_link
from corvo.protocol.wire import (
    FRAME_BYTES_MAX,
    FROM_ROUTER,
    TO_ROUTER,
    AnyMessage,
    Ask,
    Goodbye,
    Hello,
    Leading,
    Peer,
    Ping,
    Pong,
    Reply,
    Submit,
    encode,
    encode_many,
)
from tests.support.links import (
    SETTINGS,
    STRANGER,
    THEM,
    US,
    Gated,
    OneByte,
    Raw,
    echo,
    jumping,
    link_and_raw,
)

# Hello.

Opener: TypeAlias = Callable[[trio.abc.Stream, Hello], AbstractAsyncContextManager[Link]]


def one_byte_pair() -> tuple[OneByte, OneByte]:
    ours, theirs = memory_stream_pair()
    return OneByte(ours), OneByte(theirs)


PAIRS: Final[dict[str, Callable[[], tuple[trio.abc.Stream, trio.abc.Stream]]]] = {
    "buffered": memory_stream_pair,
    "lockstep": lockstep_stream_pair,
    "one byte": one_byte_pair,
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@jumping
async def test_two_ends_know_each_other_and_talk_in_order(
    pair: Callable[[], tuple[trio.abc.Stream, trio.abc.Stream]],
) -> None:
    ours, theirs = pair()
    heard: list[AnyMessage] = []

    async def them() -> None:
        async with open_link(theirs, THEM) as link:
            assert link.peer == US
            link.send(Leading(2, 9))
            while requests := await link.receive(FROM_ROUTER):
                heard.extend(requests)
            assert link.goodbye == "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(them)
        async with open_link(ours, US) as link:
            assert link.peer == THEM
            assert all(link.send(Submit(id_, 1, b"{}")) for id_ in range(50))
            told = await link.receive(TO_ROUTER)

    assert told == [Leading(2, 9)]
    assert heard == [Submit(id_, 1, b"{}") for id_ in range(50)]
    assert trio.current_time() < 1


FOREIGN: Final = "the replica of node 2 belongs to cluster 'nest', and the router of node 1 to"


@pytest.mark.parametrize("answer", [open_link, accept_link])
@jumping
async def test_ends_of_different_clusters_part_and_both_know_why(answer: Opener) -> None:
    ours, theirs = memory_stream_pair()
    reasons: list[str] = []

    async def refused(opener: Opener, stream: trio.abc.Stream, hello: Hello) -> None:
        with pytest.raises(LinkRefused) as caught:
            async with opener(stream, hello):
                pytest.fail("a foreign peer was accepted")
        assert not caught.value.was_sent
        reasons.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, open_link, ours, US)
        nursery.start_soon(refused, answer, theirs, STRANGER)

    assert all("'nest'" in reason and "'rookery'" in reason for reason in reasons)
    assert len(reasons) == 2
    assert trio.current_time() == 0


@jumping
async def test_a_refused_peer_gets_the_reason_before_the_end() -> None:
    ours, theirs = memory_stream_pair()
    raw = Raw(theirs)
    await raw.say(STRANGER)

    with pytest.raises(LinkRefused):
        async with open_link(ours, US):
            pytest.fail("a foreign peer was accepted")

    sent, goodbye = await raw.hear_the_end()
    assert sent == US
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason.startswith(FOREIGN)


@jumping
async def test_an_end_that_was_dialled_answers_a_hello_and_puts_its_refusal_there() -> None:
    ours, theirs = memory_stream_pair()
    raw = Raw(theirs)

    async with trio.open_nursery() as nursery:

        async def answer() -> None:
            with pytest.raises(LinkRefused):
                async with accept_link(ours, US):
                    pytest.fail("a foreign peer was accepted")

        nursery.start_soon(answer)
        await wait_all_tasks_blocked()
        with trio.move_on_after(1) as silence:
            await raw.hear(1)
        await raw.say(STRANGER)
        [hello] = await raw.hear(1)
        await raw.stream.aclose()

    assert silence.cancelled_caught, "nothing is said to a peer that said nothing"
    assert isinstance(hello, Hello)
    assert hello.refusal.startswith(FOREIGN)
    assert msgspec.structs.replace(hello, refusal="") == US


@jumping
async def test_a_refusal_for_a_reason_of_the_peers_own_is_one_before_the_block_begins() -> None:
    ours, theirs = memory_stream_pair()
    await Raw(theirs).say(msgspec.structs.replace(THEM, refusal="node 1 was removed"))

    with pytest.raises(LinkRefused, match="node 1 was removed"):
        async with open_link(ours, US):
            pytest.fail("the peer refused")


@jumping
async def test_an_end_that_answers_serves_a_peer_that_it_accepts() -> None:
    ours, theirs = memory_stream_pair()
    heard: list[Submit | Ask] = []

    async def serve() -> None:
        async with accept_link(theirs, THEM) as link:
            assert link.peer == US
            heard.extend(await link.receive(FROM_ROUTER))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with open_link(ours, US, node=2) as link:
            assert link.peer == THEM
            link.send(Submit(1, 1, b"{}"))

    assert heard == [Submit(1, 1, b"{}")]


@jumping
async def test_a_node_that_answers_for_another_is_refused() -> None:
    ours, theirs = memory_stream_pair()
    await Raw(theirs).say(THEM)

    with pytest.raises(LinkRefused, match="node 2 answers at the address of node 3"):
        async with open_link(ours, US, node=3):
            pytest.fail("the wrong node was accepted")


@jumping
async def test_a_peer_that_never_says_hello_is_given_up_in_time() -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(encode(THEM)[:-1])

    with pytest.raises(LinkLost, match="no hello within"):
        async with open_link(ours, US):
            pytest.fail("nobody is let in")

    assert trio.current_time() == SETTINGS.connect_s
    assert await theirs.receive_some() == encode(US)
    assert await theirs.receive_some() == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", encode(Ping(1)), encode(STRANGER)[5:]])
@jumping
async def test_what_begins_with_no_hello_is_no_link(data: bytes) -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(data)

    with pytest.raises(WireError):
        async with open_link(ours, US):
            pytest.fail("nobody is let in")

    with pytest.raises(trio.BrokenResourceError):
        await theirs.send_all(b"more")


@jumping
async def test_a_peer_may_go_at_each_byte_of_its_hello() -> None:
    for cut in range(len(encode(THEM))):
        ours, theirs = memory_stream_pair()
        await theirs.send_all(encode(THEM)[:cut])
        await theirs.aclose()

        with pytest.raises(LinkLost):
            async with open_link(ours, US):
                pytest.fail("nobody is let in")

    assert trio.current_time() == 0


@jumping
async def test_what_came_in_one_piece_with_the_hello_is_received() -> None:
    ours, theirs = memory_stream_pair()
    await Raw(theirs).say(THEM, Leading(2, 9), Leading(1, 10))

    async with open_link(ours, US) as link:
        heard = await link.receive(TO_ROUTER)
        await theirs.aclose()

    assert heard == [Leading(2, 9), Leading(1, 10)]


# Sending.


@jumping
async def test_what_gathers_while_the_stream_is_busy_goes_out_in_one_piece() -> None:
    ours, theirs = memory_stream_pair()
    raw, gated = Raw(theirs), Gated(ours)
    await raw.say(THEM)
    asks = [Ask(id_, 1, b"{}") for id_ in range(1000)]

    async with open_link(gated, US) as link:
        for ask in asks:
            assert link.send(ask)
        gated.gate.set()
        heard = await raw.hear(1 + len(asks))
        await theirs.aclose()

    assert heard == [US, *asks]
    assert gated.pieces[:2] == [encode(US), encode_many(asks)]


@jumping
async def test_what_one_task_sends_without_waiting_goes_out_in_one_piece() -> None:
    ours, theirs = memory_stream_pair()
    raw, gated = Raw(theirs), Gated(ours)
    gated.gate.set()
    await raw.say(THEM)

    async with open_link(gated, US) as link:
        await raw.hear(1)
        await wait_all_tasks_blocked()
        link.send(Ask(1, 1, b""))
        link.send_many([Ask(2, 1, b""), Ask(3, 1, b"")])
        await raw.hear(3)
        await theirs.aclose()

    assert gated.pieces[1] == encode_many(Ask(id_, 1, b"") for id_ in (1, 2, 3))


@jumping
async def test_a_slow_reader_fills_the_buffer_and_no_more() -> None:
    ours, theirs = memory_stream_pair()
    gated, raw = Gated(ours), Raw(theirs)
    await raw.say(THEM)
    ask = Ask(1, 1, bytes(100))
    hello, one = len(encode(US)), len(encode(ask))
    settings = LinkSettings(buffer_bytes_max=hello + 10 * one)

    async with open_link(gated, US, settings) as link:
        taken = sum(link.send(ask) for _ in range(50))
        taken_together = link.send_many([ask, ask])
        full = link._unsent_bytes
        gated.gate.set()
        await raw.hear(1 + taken)
        await wait_all_tasks_blocked()
        empty = link._unsent_bytes
        taken_again = link.send(ask)
        await theirs.aclose()

    assert taken == 10
    assert not taken_together
    assert full == settings.buffer_bytes_max
    assert (empty, taken_again) == (0, True)


@jumping
async def test_a_message_larger_than_any_may_be_is_an_error_and_the_link_lives() -> None:
    async with link_and_raw() as (link, raw):
        with pytest.raises(WireError):
            link.send(Peer(bytes(FRAME_BYTES_MAX)))
        link.send(Peer(b"small"))

        assert await raw.hear(1) == [Peer(b"small")]
        await raw.stream.aclose()


@jumping
async def test_into_a_broken_stream_nothing_is_sent_and_what_came_before_is_received() -> None:
    async with link_and_raw() as (link, raw):
        await raw.say(Leading(2, 9))
        await raw.stream.aclose()
        assert link.send(Ask(1, 1, b""))
        await wait_all_tasks_blocked()

        taken = link.send(Ask(2, 1, b""))
        heard = await link.receive(TO_ROUTER)

        assert not taken
        assert not link.is_open
        assert link._unsent_bytes == 0
        assert heard == [Leading(2, 9)]
        with pytest.raises(LinkLost):
            await link.receive(TO_ROUTER)
    assert trio.current_time() == 0


# Ends.


@jumping
async def test_a_goodbye_comes_behind_what_was_said_before_it() -> None:
    async with link_and_raw() as (link, raw):
        await raw.say(Leading(2, 9), Goodbye("shutting down"), Leading(1, 10))

        heard = [await link.receive(TO_ROUTER) for _ in range(3)]

        assert heard == [[Leading(2, 9)], [], []]
        assert link.goodbye == "shutting down"
        assert not link.is_open


@jumping
async def test_leaving_the_block_sends_what_was_taken_and_says_goodbye() -> None:
    async with link_and_raw() as (link, raw):
        link.send(Ask(1, 1, b""))
        await raw.say(Goodbye("you too"))

    assert await raw.hear_the_end() == [Ask(1, 1, b""), Goodbye("done")]
    assert trio.current_time() == 0


@jumping
async def test_a_closed_link_takes_nothing_and_says_why_but_still_receives() -> None:
    async with link_and_raw() as (link, raw):
        link.send(Ask(1, 1, b""))
        link.close("shutting down")
        link.close("twice")
        taken = link.send(Ask(2, 1, b"")) or link.send_many([Ask(3, 1, b"")])
        await raw.say(Reply(1, "", b""))

        heard = await link.receive(TO_ROUTER)
        await raw.say(Goodbye("done"))

    assert not taken
    assert heard == [Reply(1, "", b"")]
    assert await raw.hear_the_end() == [Ask(1, 1, b""), Goodbye("shutting down")]


@jumping
async def test_two_that_leave_at_once_do_not_wait_for_each_other() -> None:
    ours, theirs = lockstep_stream_pair()

    async def leave(stream: trio.abc.Stream, hello: Hello) -> None:
        async with open_link(stream, hello):
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave, ours, US)
        nursery.start_soon(leave, theirs, THEM)

    assert trio.current_time() == 0


@pytest.mark.parametrize("pair", [memory_stream_pair, lockstep_stream_pair])
@jumping
async def test_a_peer_that_stalls_holds_up_leaving_for_so_long_and_no_longer(
    pair: Callable[[], tuple[trio.StapledStream, trio.StapledStream]],  # type: ignore[type-arg]
) -> None:
    ours, theirs = pair()
    raw = Raw(theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(raw.say, THEM)
        nursery.start_soon(raw.hear, 1)
        async with open_link(ours, US) as link:
            link.send(Ask(1, 1, b""))

    assert trio.current_time() == SETTINGS.goodbye_s


@jumping
async def test_garbage_is_no_matter_to_whoever_leaves() -> None:
    async with link_and_raw() as (link, raw):
        link.send(Ask(1, 1, b""))
        await raw.stream.send_all(b"\xff" * 10)

    assert (await raw.hear_the_end())[0] == Ask(1, 1, b"")
    assert trio.current_time() == 0


@jumping
async def test_an_exception_in_the_block_comes_out_alone_and_ends_the_link_at_once() -> None:
    with pytest.raises(KeyError):
        async with link_and_raw() as (_, raw):
            raise KeyError

    assert await raw.hear_the_end() == []
    assert trio.current_time() == 0


@jumping
async def test_after_an_exception_in_the_block_nothing_is_taken() -> None:
    links: list[Link] = []

    async def block() -> None:
        async with link_and_raw() as (link, _):
            links.append(link)
            raise KeyError

    with pytest.raises(KeyError):
        await block()

    assert not links[0].is_open
    assert not links[0].send(Ask(1, 1, b""))


@jumping
async def test_an_exception_in_the_block_beside_one_of_the_stream_stay_two() -> None:
    class Odd(Gated):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await trio.sleep(1)
            raise IndexError

    async def block() -> None:
        ours, theirs = memory_stream_pair()
        await Raw(theirs).say(THEM)
        async with open_link(Odd(ours), US):
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError

    with pytest.RaisesGroup(KeyError, IndexError):
        await block()


@jumping
async def test_a_loss_in_a_block_that_is_being_cancelled_still_comes_out_alone() -> None:
    async def lose_while_cancelled() -> None:
        async with link_and_raw():
            scope.cancel()
            raise LinkLost("just now")

    with trio.CancelScope() as scope, pytest.raises(LinkLost):
        await lose_while_cancelled()


@jumping
async def test_a_cancelled_block_is_left_at_once_without_a_goodbye() -> None:
    with trio.move_on_after(0.5) as scope:
        async with link_and_raw() as (link, raw):
            await link.receive(TO_ROUTER)

    assert scope.cancelled_caught
    assert trio.current_time() == 0.5
    assert await raw.hear_the_end() == []


@jumping
async def test_a_cancelled_receive_loses_nothing() -> None:
    async with link_and_raw() as (link, raw):
        frame = encode(Leading(2, 9))
        await raw.stream.send_all(frame[:3])
        with trio.move_on_after(0.5):
            await link.receive(TO_ROUTER)
        await raw.stream.send_all(frame[3:])

        heard = await link.receive(TO_ROUTER)

        assert heard == [Leading(2, 9)]
        await raw.stream.aclose()


@jumping
async def test_a_peer_may_go_at_each_byte_of_a_message() -> None:
    frame = encode(Leading(2, 9))
    reasons = set()

    for cut in range(len(frame)):
        async with link_and_raw() as (link, raw):
            await raw.stream.send_all(encode(Leading(1, 8)) + frame[:cut])
            await raw.stream.aclose()
            heard = await link.receive(TO_ROUTER)
            with pytest.raises(LinkLost) as caught:
                await link.receive(TO_ROUTER)
        assert heard == [Leading(1, 8)]
        reasons.add((cut > 0, str(caught.value)))

    assert reasons == {
        (False, "the peer went without a goodbye"),
        (True, "the peer went without a goodbye, in the middle of a frame"),
    }


@pytest.mark.parametrize("data", [b"\xff" * 10, encode(Ask(1, 1, b"")), encode(US)])
@jumping
async def test_bytes_that_are_no_message_of_the_group_end_the_link(data: bytes) -> None:
    async with link_and_raw() as (link, raw):
        await raw.stream.send_all(data)
        with pytest.raises(WireError):
            await link.receive(TO_ROUTER)
        await raw.stream.aclose()


@jumping
async def test_only_one_task_receives() -> None:
    async with link_and_raw() as (link, _), trio.open_nursery() as nursery:
        nursery.start_soon(link.receive, TO_ROUTER)
        await wait_all_tasks_blocked()

        with pytest.raises(AssertionError, match="tear the frames apart"):
            await link.receive(TO_ROUTER)
        nursery.cancel_scope.cancel()


# Signs of life.


@jumping
async def test_a_ping_is_answered_and_our_user_hears_nothing_of_it() -> None:
    async with link_and_raw() as (link, raw):
        await raw.say(Ping(7), Leading(2, 9), Pong(1), Ping(8))

        heard = await link.receive(TO_ROUTER)

        assert heard == [Leading(2, 9)]
        assert await raw.hear(2) == [Pong(7), Pong(8)]
        await raw.stream.aclose()


@jumping
async def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    async with link_and_raw() as (link, raw):
        with pytest.raises(LinkLost, match="silent, and answered no ping"):
            await link.receive(TO_ROUTER)

        # The hello was a sign of life in the first beat.
        assert trio.current_time() == SETTINGS.beat_s * (SETTINGS.pings_max + 2)
        assert not link.is_open
        assert await raw.hear_the_end() == [Ping(1), Ping(2), Ping(3)]
    assert trio.current_time() == SETTINGS.beat_s * (SETTINGS.pings_max + 2)


@jumping
async def test_a_silent_peer_is_given_up_while_a_send_is_stuck() -> None:
    ours, theirs = lockstep_stream_pair()
    raw = Raw(theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(raw.say, THEM)
        nursery.start_soon(raw.hear, 1)
        async with open_link(ours, US) as link:
            link.send(Ask(1, 1, b""))
            with pytest.raises(LinkLost, match="silent"):
                await link.receive(TO_ROUTER)

    assert trio.current_time() == SETTINGS.beat_s * (SETTINGS.pings_max + 2)


@jumping
async def test_one_sign_of_life_in_time_starts_the_count_again() -> None:
    async with link_and_raw() as (link, raw), trio.open_nursery() as nursery:

        async def answer_the_last_ping() -> None:
            for _ in range(10):
                await raw.hear(SETTINGS.pings_max)
                await raw.say(Pong(SETTINGS.pings_max))
            await raw.say(Leading(2, 9))

        nursery.start_soon(answer_the_last_ping)

        assert await link.receive(TO_ROUTER) == [Leading(2, 9)]
        await raw.stream.aclose()


@jumping
async def test_two_idle_ends_stay_together() -> None:
    ours, theirs = memory_stream_pair()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo, theirs)
        async with open_link(ours, US) as link, open_client(link) as client:
            await trio.sleep(10_000)
            answer = await client.ask(1, b"still there?")

    assert answer == Reply(1, "", b"still there?", 1)


@jumping
async def test_the_end_that_has_dialled_sends_one_ping_in_two_beats() -> None:
    beats = 200
    async with link_and_raw() as (link, raw), trio.open_nursery() as nursery:
        pings: list[AnyMessage] = []

        async def answer() -> None:
            while True:
                [ping] = await raw.hear(1)
                assert isinstance(ping, Ping)
                pings.append(ping)
                await raw.say(Pong(ping.id))

        nursery.start_soon(answer)
        nursery.start_soon(link.receive, TO_ROUTER)
        await trio.sleep(beats * SETTINGS.beat_s)

        assert beats // 2 - 1 <= len(pings) <= beats // 2
        nursery.cancel_scope.cancel()


@jumping
async def test_the_end_that_was_dialled_asks_once_and_gives_up_at_the_same_beat() -> None:
    ours, theirs = memory_stream_pair()
    raw = Raw(theirs)
    await raw.say(THEM)

    async with accept_link(ours, US) as link:
        with pytest.raises(LinkLost, match="the peer was silent"):
            await link.receive(TO_ROUTER)

    assert trio.current_time() == SETTINGS.beat_s * (SETTINGS.pings_max + 2)
    assert await raw.hear_the_end() == [US, Ping(SETTINGS.pings_max)]


@jumping
async def test_a_peer_that_talks_is_not_asked() -> None:
    async with link_and_raw() as (link, raw), trio.open_nursery() as nursery:

        async def talk() -> None:
            for term in range(20):
                await raw.say(Leading(2, term))
                await trio.sleep(SETTINGS.beat_s * 0.75)
            await raw.say(Goodbye("done"))

        nursery.start_soon(talk)
        while await link.receive(TO_ROUTER):
            pass

    assert await raw.hear_the_end() == [Goodbye("done")]


@jumping
async def test_nobody_is_silent_while_nobody_listens() -> None:
    async with link_and_raw() as (link, raw):
        await trio.sleep(1000)
        await raw.say(Leading(2, 9))

        heard = await link.receive(TO_ROUTER)

        assert heard == [Leading(2, 9)]
        await raw.stream.aclose()
