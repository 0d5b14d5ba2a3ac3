"""A router's way to the mirror: what is asked, what is asked again, and what a client is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from corvo.connections import listen_unix
from corvo.link import Link, open_link
from corvo.protocol import wire
from corvo.protocol.questions import (
    AllRates,
    GetRates,
    MirrorAnswer,
    Place,
    Question,
    Refused,
    Search,
)
from corvo.router.caller import ANONYMOUS, NOBODY, Caller
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.mirror import Mirror, problem_of
from corvo.scopes import EVERYTHING, NOTHING, Scope
from tests.router.mirrors import AT, number_of
from tests.support.links import jumping, on_sockets

RATES: Final = GetRates()
ANSWER: Final = MirrorAnswer(msgspec.json.encode(AllRates(queues=[])), {0: 7})
PACKED: Final = msgspec.msgpack.encode(ANSWER)


class World:
    """A socket where mirrors are born, one at a time."""

    def __init__(self, directory: Path) -> None:
        self.config = RouterConfig(
            cluster="rookery",
            node=1,
            shards=3,
            sockets=dict(enumerate(["nowhere"] * 3)),
            mirror_socket=str(directory / "m"),
            listen=[0],
            limits=Limits(leader_wait_ms=1_000, search_ms_max=700),
        )
        self.mirror = Mirror(self.config)
        self._send, self._receive = trio.open_memory_channel[tuple[Link, trio.Event]](10)

    async def born(self) -> tuple[Link, trio.Event]:
        """The next link's other end, once both know of it; set the event, and it is lost."""
        made = await self._receive.receive()
        while not self.mirror.is_up:
            await trio.lowlevel.checkpoint()
        return made

    async def serve(self, stream: trio.SocketStream) -> None:
        hello = wire.make_hello(self.config, wire.MIRROR, shard=wire.ALL_SHARDS)
        with trio.CancelScope() as scope:
            async with open_link(stream, hello) as link:
                left = trio.Event()
                await self._send.send((link, left))
                await left.wait()
                scope.cancel()
                await trio.lowlevel.checkpoint()

    async def outcome(self, question: Question, caller: Caller) -> MirrorAnswer | tuple[int, str]:
        try:
            return await self.mirror.ask(question, caller)
        except Problem as problem:
            return problem.status, problem.code


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[tuple[World, trio.Nursery]]:
    made = World(directory)
    async with trio.open_nursery() as nursery:
        listener = await listen_unix(made.config.mirror_socket)
        nursery.start_soon(trio.serve_listeners, made.serve, [listener])
        nursery.start_soon(made.mirror.run)
        yield made, nursery
        nursery.cancel_scope.cancel()


async def heard(link: Link) -> wire.Ask:
    [request] = await link.receive(wire.FROM_ROUTER)
    assert isinstance(request, wire.Ask)
    return request


class Outcome:
    """What became of a question."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.answer: MirrorAnswer | tuple[int, str] = (0, "")

    async def run(self, there: World, question: Question, caller: Caller) -> None:
        self.answer = await there.outcome(question, caller)
        self.ended.set()

    async def wait(self) -> MirrorAnswer | tuple[int, str]:
        await self.ended.wait()
        return self.answer


def start(
    nursery: trio.Nursery,
    there: World,
    question: Question = RATES,
    caller: Caller = ANONYMOUS,
) -> Outcome:
    outcome = Outcome()
    nursery.start_soon(outcome.run, there, question, caller)
    return outcome


@on_sockets
async def test_a_question_goes_out_with_scope_position_and_budget(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        caller = Caller(name="k", scope=Scope(("mail", "sms*")), min_seq={0: 5, 2: 9})
        outcome = start(nursery, there, RATES, caller)
        asked = await heard(link)

        link.send(wire.Reply(asked.id, "", PACKED))

        assert await outcome.wait() == ANSWER
        assert there.mirror.is_up
        assert asked.query == number_of(RATES)
        assert msgspec.json.decode(asked.body, type=GetRates) == GetRates(
            scope=Scope(("mail", "sms*")), min_seq={0: 5, 2: 9}, budget_ms=700
        )


@on_sockets
async def test_the_scope_of_a_question_is_its_callers_and_an_empty_one_stays_empty(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        scopes = []
        for caller in (ANONYMOUS, NOBODY, Caller(name="k", scope=Scope(("b",)))):
            start(nursery, there, GetRates(scope=Scope(("a",))), caller)
            asked = await heard(link)
            scopes.append(msgspec.json.decode(asked.body, type=GetRates).scope)

        assert scopes == [EVERYTHING, NOTHING, Scope(("b",))]


@on_sockets
async def test_a_question_whose_answer_was_lost_is_asked_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        link, left = await there.born()
        outcome = start(nursery, there)
        await heard(link)

        left.set()
        link, _ = await there.born()
        asked = await heard(link)
        link.send(wire.Reply(asked.id, "", PACKED))

        assert await outcome.wait() == ANSWER


@on_sockets
async def test_a_question_that_was_lost_twice_is_given_up_for_it_may_be_what_ends_mirrors(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        outcome = start(nursery, there)
        for _ in range(2):
            link, left = await there.born()
            await heard(link)
            left.set()

        assert await outcome.wait() == (503, "MIRROR_UNAVAILABLE")


@on_sockets
async def test_while_no_mirror_comes_it_is_said_that_there_is_none(tmp_path: Path) -> None:
    there = World(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(there.mirror.run)

        outcome = await there.outcome(RATES, ANONYMOUS)
        at_once = await there.mirror.ask_now(RATES, ANONYMOUS)

        nursery.cancel_scope.cancel()
    assert outcome == (503, "MIRROR_UNAVAILABLE")
    assert at_once is None
    assert "no answer" in there.mirror.last_error


@jumping
async def test_a_node_without_a_mirror_says_so_at_once() -> None:
    config = RouterConfig(cluster="c", node=1, shards=1, sockets=dict(enumerate(["s"])), listen=[3])
    mirror = Mirror(config)

    await mirror.run()  # it has nothing to keep
    with pytest.raises(Problem) as caught:
        await mirror.ask(RATES, ANONYMOUS)

    assert (caught.value.status, caught.value.code) == (503, "MIRROR_UNAVAILABLE")
    assert "without a mirror" in caught.value.error
    assert "jobs by id" in caught.value.error
    assert caught.value.retry_after_ms > 0
    assert await mirror.ask_now(RATES, ANONYMOUS) is None


@on_sockets
async def test_a_mirror_that_is_silent_is_given_up(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        nursery.start_soon(link.receive, wire.FROM_ROUTER)

        answer = await there.mirror.ask_now(RATES, ANONYMOUS, patience_s=0.05)
        with pytest.raises(Problem) as caught:
            await there.mirror.ask(RATES, ANONYMOUS, patience_s=0.05)

        assert answer is None
        assert caught.value.code == "MIRROR_UNAVAILABLE"
        assert "did not answer in time" in caught.value.error


@on_sockets
async def test_who_can_do_without_a_stuck_mirror_waits_for_it_once_until_it_answers_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        waited = await there.mirror.ask_now(RATES, ANONYMOUS, patience_s=0.05)
        first = await heard(link)
        skipped = await there.mirror.ask_now(RATES, ANONYMOUS)
        outcome = start(nursery, there)
        second = await heard(link)
        link.send(wire.Reply(second.id, "", PACKED))
        await outcome.wait()

        async def answer() -> None:
            link.send(wire.Reply((await heard(link)).id, "", PACKED))

        nursery.start_soon(answer)

        assert (waited, skipped) == (None, None)
        assert second.id == first.id + 1, "nobody asked in between"
        assert await there.mirror.ask_now(RATES, ANONYMOUS) == ANSWER


@on_sockets
async def test_whoever_waits_for_a_position_in_vain_takes_the_mirror_from_nobody(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        waiting = ANONYMOUS.as_of({0: 999_999_999})
        in_vain = await there.mirror.ask_now(RATES, waiting, patience_s=0.05)
        await heard(link)

        async def answer() -> None:
            link.send(wire.Reply((await heard(link)).id, "", PACKED))

        nursery.start_soon(answer)

        assert in_vain is None
        assert await there.mirror.ask_now(RATES, ANONYMOUS) == ANSWER
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [
        ("bad_filter", 400, "VALIDATION_ERROR"),
        ("bad_cursor", 400, "VALIDATION_ERROR"),
        ("too_large", 413, "ANSWER_TOO_LARGE"),
        ("not_caught_up", 503, "NOT_CAUGHT_UP"),
        ("over_budget", 503, "OVER_BUDGET"),
        ("busy", 429, "OVERLOADED"),
        ("unknown_query", 501, "UNSUPPORTED"),
        ("of a later release", 500, "INTERNAL_ERROR"),
    ],
)
def test_a_refusal_is_a_problem_that_names_the_field(code: str, status: int, name: str) -> None:
    problem = problem_of(Refused(code=code, error="no", field="sort"))

    assert (problem.status, problem.code, problem.field) == (status, name, "sort")
    assert (problem.outcome, problem.reason) == ("not_applied", code)
    assert (problem.retry_after_ms > 0) is (status in {429, 503})


def test_who_waited_in_vain_is_told_how_far_the_mirror_is() -> None:
    refused = Refused(code="not_caught_up", error="it is behind", as_of={"s1": Place(7, AT)})

    problem = problem_of(refused)

    assert problem.error == "it is behind (the mirror stands at s1=7)"


@on_sockets
async def test_a_refusal_and_a_full_mirror_become_problems(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        link, _ = await there.born()
        refused = start(nursery, there, Search())
        asked = await heard(link)
        body = msgspec.json.encode(Refused(code="bad_filter", error="no", field="sort"))
        link.send(wire.Reply(asked.id, "bad_filter", body))
        turned_away = start(nursery, there, Search())
        asked = await heard(link)

        link.send(wire.Busy(asked.id, 300))

        assert await refused.wait() == (400, "VALIDATION_ERROR")
        assert await turned_away.wait() == (429, "OVERLOADED")
