"""Requests over a link: each gets its own answer, or fails when the link is lost."""

import pytest
import trio
from trio.testing import (
    memory_stream_pair,
    wait_all_tasks_blocked,
)

from corvo.errors import WireError
from corvo.link import Call, LinkClient, LinkLost, LinkSettings, open_client, open_link
from corvo.protocol.wire import (
    FROM_ROUTER,
    Answer,
    Ask,
    Busy,
    Goodbye,
    Leading,
    NotLeader,
    Push,
    Reply,
    Submit,
    WorkAvailable,
)
from tests.support.links import (
    THEM,
    US,
    Gated,
    Raw,
    client_and_raw,
    jumping,
    lose,
    take,
)


@jumping
async def test_each_call_gets_its_own_answer_whatever_their_order() -> None:
    answers: list[Answer] = []
    async with client_and_raw() as (client, raw), trio.open_nursery() as nursery:
        for body in (b"a", b"b", b"c"):
            nursery.start_soon(take, answers, lambda body=body: client.submit(7, body))
            await wait_all_tasks_blocked()
        asked = await raw.hear(3)

        for answer in (NotLeader(3, 2), Reply(1, "", b"A", 5), Busy(2, 10)):
            await raw.say(answer)
            await wait_all_tasks_blocked()

        assert asked == [Submit(1, 7, b"a"), Submit(2, 7, b"b"), Submit(3, 7, b"c")]
        assert answers == [NotLeader(3, 2), Reply(1, "", b"A", 5), Busy(2, 10)]
        assert client.calls_in_flight == 0


@jumping
async def test_ten_thousand_calls_in_flight_arrive_in_order_and_are_all_answered() -> None:
    ours, theirs = memory_stream_pair()
    arrived: list[int] = []
    answers: dict[int, bytes] = {}
    bodies = [str(number).encode() for number in range(10_000)]

    async def replica() -> None:
        async with open_link(theirs, THEM) as link:
            requests: list[Submit | Ask] = []
            while len(requests) < len(bodies):
                requests += await link.receive(FROM_ROUTER)
            arrived.extend(one.id for one in requests)
            link.send_many([Reply(one.id, "", one.body) for one in reversed(requests)])
            assert await link.receive(FROM_ROUTER) == []

    async def call(number: int) -> None:
        answer = await client.submit(1, bodies[number])
        assert isinstance(answer, Reply)
        answers[number] = answer.body

    async with trio.open_nursery() as nursery:
        nursery.start_soon(replica)
        async with (
            open_link(ours, US) as link,
            open_client(link) as client,
            trio.open_nursery() as calls,
        ):
            for number in range(len(bodies)):
                calls.start_soon(call, number)

    assert arrived == list(range(1, len(bodies) + 1))
    assert answers == dict(enumerate(bodies))


@jumping
async def test_what_nobody_asked_for_is_pushed_in_order() -> None:
    pushed: list[Push] = []
    async with client_and_raw(pushed=pushed.append) as (_, raw):
        await raw.say(Leading(2, 9), WorkAvailable(("emails",)), Leading(None, 10))
        await wait_all_tasks_blocked()

    assert pushed == [Leading(2, 9), WorkAvailable(("emails",)), Leading(None, 10)]


@jumping
async def test_a_cancelled_call_leaves_the_others_alone_and_its_late_answer_is_dropped() -> None:
    answers: list[Answer] = []
    async with client_and_raw() as (client, raw), trio.open_nursery() as nursery:
        with trio.move_on_after(0.5) as scope:
            await client.submit(1, b"slow")
        nursery.start_soon(take, answers, lambda: client.submit(1, b"patient"))
        await wait_all_tasks_blocked()
        in_flight = client.calls_in_flight

        await raw.say(Reply(1, "", b"late"), Reply(2, "", b"in time"))

    assert scope.cancelled_caught
    assert in_flight == 1
    assert answers == [Reply(2, "", b"in time")]


@jumping
async def test_a_shielded_call_has_its_answer_although_it_was_cancelled() -> None:
    async with client_and_raw() as (client, raw):
        call = client.begin(1, b"")
        assert isinstance(call, Call)
        answers: list[Answer] = []
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take, answers, lambda: client.finish(call, shield=True))
                await wait_all_tasks_blocked()
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                    in_flight = client.calls_in_flight
                    await raw.say(Reply(1, "", b"late"))

    assert in_flight == 1
    assert answers == [Reply(1, "", b"late")]


@jumping
async def test_a_shielded_call_hears_of_a_lost_link_although_it_was_cancelled() -> None:
    losses: list[LinkLost] = []
    async with trio.open_nursery() as nursery, client_and_raw() as (client, _):
        call = client.begin(1, b"")
        assert isinstance(call, Call)
        nursery.start_soon(lose, losses, lambda: client.finish(call, shield=True))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert [str(loss) for loss in losses] == ["the link was left"]
    assert client.calls_in_flight == 0


@jumping
async def test_beyond_the_bound_a_call_is_told_that_we_are_busy() -> None:
    settings = LinkSettings(calls_max=2, retry_after_ms=30)
    answers: list[Answer] = []
    async with client_and_raw(settings) as (client, raw), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(take, answers, lambda: client.ask(1, b""))
        await wait_all_tasks_blocked()

        refused = await client.ask(1, b"")
        await raw.say(Reply(1, "", b""))
        await wait_all_tasks_blocked()
        nursery.start_soon(take, answers, lambda: client.ask(1, b""))
        await wait_all_tasks_blocked()
        await raw.say(Reply(2, "", b""), Reply(4, "", b""))

    assert refused == Busy(3, 30)
    assert sorted(answer.id for answer in answers) == [1, 2, 4]


@jumping
async def test_a_call_that_finds_the_buffer_full_is_told_that_we_are_busy() -> None:
    ours, theirs = memory_stream_pair()
    gated = Gated(ours)
    await Raw(theirs).say(THEM)
    settings = LinkSettings(buffer_bytes_max=1)

    async with open_link(gated, US, settings) as link, open_client(link) as client:
        answer = await client.submit(1, b"")
        in_flight = client.calls_in_flight

    assert answer == Busy(1, settings.retry_after_ms)
    assert in_flight == 0


@jumping
async def test_when_the_link_is_lost_every_call_hears_of_it_and_may_have_had_its_effect() -> None:
    losses: list[LinkLost] = []

    async def block() -> None:
        async with client_and_raw() as (client, raw):
            for _ in range(3):
                nursery.start_soon(lose, losses, lambda: client.submit(1, b""))
            await wait_all_tasks_blocked()
            await raw.stream.aclose()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        with pytest.raises(LinkLost, match="without a goodbye"):
            await block()

    assert [loss.was_sent for loss in losses] == [True] * 3
    assert {str(loss) for loss in losses} == {"the peer went without a goodbye"}
    assert trio.current_time() == 0


@jumping
async def test_a_call_on_a_link_that_has_ended_was_never_sent() -> None:
    clients: list[LinkClient] = []

    async def block() -> None:
        async with client_and_raw() as (client, raw):
            clients.append(client)
            await raw.say(Goodbye("shutting down"))
            await trio.sleep_forever()

    with pytest.raises(LinkLost, match="the replica left: shutting down"):
        await block()
    with pytest.raises(LinkLost, match="the replica left: shutting down") as caught:
        await clients[0].submit(1, b"")

    assert not caught.value.was_sent


@jumping
async def test_calls_that_wait_when_we_leave_hear_of_it() -> None:
    losses: list[LinkLost] = []
    async with trio.open_nursery() as nursery, client_and_raw() as (client, _):
        nursery.start_soon(lose, losses, lambda: client.submit(1, b""))
        await wait_all_tasks_blocked()

    assert [str(loss) for loss in losses] == ["the link was left"]


@jumping
async def test_a_call_in_the_block_and_the_block_itself_lose_the_link_as_one() -> None:
    async def block() -> None:
        async with client_and_raw() as (client, raw):
            await raw.stream.aclose()
            await client.submit(1, b"")

    with pytest.raises(LinkLost, match="without a goodbye"):
        await block()


@jumping
async def test_an_answer_to_a_request_that_was_never_made_ends_the_link() -> None:
    async def block() -> None:
        async with client_and_raw() as (_, raw):
            await raw.say(Reply(1, "", b""))
            await trio.sleep_forever()

    with pytest.raises(WireError, match="request 1, which was never made"):
        await block()


@jumping
async def test_a_call_made_while_the_block_is_on_its_way_out_does_not_wait() -> None:
    async def block() -> None:
        async with client_and_raw() as (client, raw):
            await raw.say(Reply(1, "", b""))
            with trio.fail_after(1, shield=True):
                await wait_all_tasks_blocked()
                with pytest.raises(LinkLost) as caught:
                    await client.submit(1, b"")
                assert not caught.value.was_sent

    with pytest.raises(WireError):
        await block()


@jumping
async def test_a_bug_in_whoever_hears_pushes_comes_out_as_itself() -> None:
    def stumble(push: Push) -> None:
        raise ZeroDivisionError(push)

    losses: list[LinkLost] = []

    async def block() -> None:
        async with client_and_raw(pushed=stumble) as (client, raw):
            nursery.start_soon(lose, losses, lambda: client.submit(1, b""))
            await wait_all_tasks_blocked()
            await raw.say(Leading(2, 9))
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError):
            await block()

    assert len(losses) == 1


@jumping
async def test_answers_that_are_there_are_taken_without_another_turn() -> None:
    async with client_and_raw() as (client, raw):
        begun = [client.begin(1, b"") for _ in range(3)]
        await raw.hear(3)
        await raw.say(*(Reply(number, "", b"") for number in (1, 2, 3)))
        await wait_all_tasks_blocked()

        with trio.CancelScope() as scope:
            scope.cancel()
            answers = [await client.finish(call) for call in begun if isinstance(call, Call)]

    assert answers == [Reply(number, "", b"") for number in (1, 2, 3)]
    assert not scope.cancelled_caught
