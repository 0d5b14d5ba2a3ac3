"""A router's way to a shard: who is asked, what is tried again, and what a client must be told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from corvo.connections import listen_unix
from corvo.link import Link, open_link
from corvo.protocol import wire
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.queues import Pause
from corvo.protocol.ops.work import Ack, AckItem, BeatItem, Fail, FailItem, Fetch, Heartbeat
from corvo.protocol.queries import GetNumbers, GetQueue
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards import links
from corvo.router.shards.links import Answer, Shard, Shards
from corvo.topology import topology_of
from tests.support.links import on_sockets

PUT = Enqueue(jobs=[NewJob(queue="mail")])
PUT_WITH_KEY = Enqueue(jobs=[NewJob(queue="mail")], request_key="pay-17")


class Replica:
    """The other end of one link, played by hand."""

    def __init__(self, link: Link, left: trio.Event) -> None:
        self._link = link
        self.left = left
        """Set it, and the link is lost."""

    async def hear(self) -> wire.Submit | wire.Ask:
        [request] = await self._link.receive(wire.FROM_ROUTER)
        return request

    async def hear_all(self) -> list[wire.Submit | wire.Ask]:
        """What came in one piece."""
        return await self._link.receive(wire.FROM_ROUTER)

    def say(self, *messages: wire.AnyMessage) -> None:
        assert self._link.send_many(messages)


class World:
    """A socket where replicas are born, one at a time."""

    def __init__(self, directory: Path) -> None:
        self.config = RouterConfig(
            cluster="rookery",
            node=1,
            shards=1,
            sockets=dict(enumerate([str(directory / "s")])),
            listen=[0],
            limits=Limits(leader_wait_ms=1_000),
        )
        self.news: list[wire.Push] = []
        self.ups = 0
        self.shards = Shards(
            self.config,
            topology_of(self.config),
            pushed=lambda _, push: self.news.append(push),
            came_up=self._count,
        )
        self._send, self._receive = trio.open_memory_channel[Replica](10)

    def _count(self, _: int) -> None:
        self.ups += 1

    async def replica(self, *, leads: bool = True) -> Replica:
        """Whoever is reached next."""
        replica = await self._receive.receive()
        if leads:
            replica.say(wire.Leading(1, 5))
        return replica

    async def serve(self, stream: trio.SocketStream) -> None:
        hello = wire.make_hello(self.config, wire.REPLICA, shard=0)
        with trio.CancelScope() as scope:
            async with open_link(stream, hello) as link:
                left = trio.Event()
                await self._send.send(Replica(link, left))
                await left.wait()
                scope.cancel()
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[tuple[World, trio.Nursery]]:
    made = World(directory)
    async with trio.open_nursery() as nursery:
        listener = await listen_unix(made.config.sockets[0])
        nursery.start_soon(trio.serve_listeners, made.serve, [listener])
        nursery.start_soon(made.shards.run)
        yield made, nursery
        nursery.cancel_scope.cancel()


class Outcome:
    """What became of one call."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.answer: Answer | Problem | None = None

    async def run(self, shards: Shards, op: Op) -> None:
        try:
            self.answer = await shards[0].submit(op)
        except Problem as problem:
            self.answer = problem
        self.ended.set()

    async def wait(self) -> Answer | Problem:
        await self.ended.wait()
        assert self.answer is not None
        return self.answer


def start(nursery: trio.Nursery, there: World, op: Op = PUT) -> Outcome:
    outcome = Outcome()
    nursery.start_soon(outcome.run, there.shards, op)
    return outcome


@on_sockets
async def test_an_op_goes_to_the_leader_and_its_answer_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there)
        heard = await replica.hear()

        replica.say(wire.Reply(heard.id, "", b'{"jobs":[]}', 17))

        assert await outcome.wait() == Answer(b'{"jobs":[]}', 17)
        assert isinstance(heard, wire.Submit)
        assert msgspec.json.decode(heard.body) == {"jobs": [{"queue": "mail"}]}
        assert there.shards[0].is_up
        assert there.shards[0].calls_in_flight == 0


@on_sockets
async def test_a_question_is_asked_as_one(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()

        async def answer() -> None:
            heard = await replica.hear()
            assert isinstance(heard, wire.Ask)
            replica.say(wire.Reply(heard.id, "", heard.body, 3))

        nursery.start_soon(answer)

        assert (await there.shards[0].ask(GetQueue(queue="a"))).body == b'{"queue":"a"}'


@on_sockets
async def test_a_refusal_is_a_problem(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there)
        heard = await replica.hear()
        refused = Rejected("bad_request", "no such name", field="jobs[0].queue")

        replica.say(wire.Reply(heard.id, refused.code, msgspec.json.encode(refused)))

        problem = await outcome.wait()
        assert isinstance(problem, Problem)
        assert (problem.status, problem.field) == (400, "jobs[0].queue")
        assert problem.outcome == "not_applied"


@on_sockets
async def test_a_shard_that_is_being_started_is_a_pause(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there)
        first = await replica.hear()

        replica.say(wire.NotLeader(first.id, None))
        replica.say(wire.Leading(1, 6))
        second = await replica.hear()
        replica.say(wire.Reply(second.id, "", b"{}", 1))

        assert await outcome.wait() == Answer(b"{}", 1)


@on_sockets
async def test_a_shard_without_a_leader_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        await there.replica(leads=False)

        problem = await start(nursery, there).wait()

        assert isinstance(problem, Problem)
        assert (problem.status, problem.code) == (503, "LEADER_UNAVAILABLE")
        assert problem.outcome == "not_applied"
        assert problem.retry_after_ms


@on_sockets
async def test_what_was_sent_and_not_answered_is_unknown_and_not_sent_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there)
        await replica.hear()

        replica.left.set()

        problem = await outcome.wait()
        assert isinstance(problem, Problem)
        assert (problem.status, problem.outcome) == (503, "unknown")


SAFE = [
    PUT_WITH_KEY,
    Ack(acks=[AckItem(job_id="s00_job_a", lease_token=7)]),
    Fail(fails=[FailItem(job_id="s00_job_a", lease_token=7)]),
    Heartbeat(jobs=[BeatItem(job_id="s00_job_a")]),
]
UNSAFE = [
    PUT,
    Ack(acks=[AckItem(job_id="s00_job_a", lease_token=7), AckItem(job_id="s00_job_b")]),
    Fetch(queues=["mail"]),
]


@pytest.mark.parametrize("op", UNSAFE, ids=lambda op: type(op).__name__)
def test_what_might_do_harm_twice_is_not_safe(op: Op) -> None:
    assert not op.is_safe_twice


@pytest.mark.parametrize("op", SAFE, ids=lambda op: type(op).__name__)
@on_sockets
async def test_what_does_no_harm_twice_is_sent_again(tmp_path: Path, op: Op) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there, op)
        first = await replica.hear()
        replica.left.set()
        replica = await there.replica()
        again = await replica.hear()

        replica.say(wire.Reply(again.id, "", b"{}", 9))

        assert await outcome.wait() == Answer(b"{}", 9)
        assert isinstance(first, wire.Submit)
        assert isinstance(again, wire.Submit)
        assert first.body == again.body


@on_sockets
async def test_what_was_sent_once_is_unknown_if_no_leader_comes(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there, PUT_WITH_KEY)
        await replica.hear()
        replica.left.set()
        replica = await there.replica()
        again = await replica.hear()
        replica.say(wire.NotLeader(again.id, None), wire.Leading(None, 6))

        problem = await outcome.wait()

        assert isinstance(problem, Problem)
        assert (problem.status, problem.code) == (503, "OUTCOME_UNKNOWN")
        assert problem.outcome == "unknown"


@on_sockets
async def test_what_was_sent_once_is_unknown_if_the_next_leader_has_too_much_to_do(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there, PUT_WITH_KEY)
        await replica.hear()
        replica.left.set()
        replica = await there.replica()
        again = await replica.hear()
        replica.say(wire.Busy(again.id, 70))

        problem = await outcome.wait()

        assert isinstance(problem, Problem)
        assert (problem.code, problem.outcome) == ("OUTCOME_UNKNOWN", "unknown")


@on_sockets
async def test_a_question_that_was_sent_once_has_changed_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, _):
        replica = await there.replica()
        problems: list[Problem] = []

        async def ask() -> None:
            with pytest.raises(Problem) as caught:
                await there.shards[0].ask(GetQueue(queue="a"))
            problems.append(caught.value)

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            await replica.hear()
            replica.left.set()
            await there.replica(leads=False)

        assert [(each.code, each.outcome) for each in problems] == [
            ("LEADER_UNAVAILABLE", "not_applied")
        ]


@on_sockets
async def test_a_shard_that_has_too_much_to_do_says_when_to_come_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there, Pause(queue="a"))
        heard = await replica.hear()

        replica.say(wire.Busy(heard.id, 70))

        problem = await outcome.wait()
        assert isinstance(problem, Problem)
        assert (problem.status, problem.code, problem.retry_after_ms) == (429, "OVERLOADED", 70)


@on_sockets
async def test_news_are_passed_on_and_a_new_leader_is_told_of(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        replica = await there.replica()
        outcome = start(nursery, there)
        heard = await replica.hear()

        replica.say(wire.WorkAvailable(("mail",)), wire.Leading(1, 6))
        replica.say(wire.Reply(heard.id, "", b"{}"))

        await outcome.wait()
        assert there.news == [wire.WorkAvailable(("mail",))]
        assert (there.ups, there.shards[0].term) == (2, 6)


@pytest.mark.parametrize("queue", ["a", "b", "mail"])
def test_a_queue_has_one_shard(queue: str, tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        World(tmp_path).config, shards=4, sockets=dict(enumerate([""] * 4))
    )
    shards = Shards(config, topology_of(config), pushed=lambda _, __: None, came_up=lambda _: None)

    assert shards.of_queue(queue) is shards.of_queue(queue)
    assert [shard.number for shard in shards] == [0, 1, 2, 3]


@on_sockets
async def test_what_a_node_does_not_know_yet_is_refused_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "held_back", lambda *_: Rejected("not_upgraded", "upgrade node 2"))
    async with world(tmp_path) as (there, _):
        shard = there.shards[0]
        replica = await there.replica()
        while not shard.is_up:
            await trio.lowlevel.checkpoint()

        with pytest.raises(Problem) as op:
            await shard.submit(PUT)
        with pytest.raises(Problem) as query:
            await shard.ask(GetQueue(queue="mail"))

        assert shard.calls_in_flight == 0
        for refused in (op.value, query.value):
            assert (refused.status, refused.code) == (503, "NOT_UPGRADED")
            assert (refused.outcome, refused.error) == ("not_applied", "upgrade node 2")
        replica.left.set()


@on_sockets
async def test_a_replica_without_a_leader_is_asked_about_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, _):
        shard = there.shards[0]
        assert await shard.ask_replica(1, GetNumbers()) == "there is no link to the replica"
        replica = await there.replica(leads=False)
        while not shard.replicas()[0].is_up:
            await trio.lowlevel.checkpoint()
        answers: list[Answer | str] = []

        async def ask() -> None:
            answers.append(await shard.ask_replica(1, GetNumbers()))

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            replica.say(wire.Reply((await replica.hear()).id, "", b"{}", 9))
        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            replica.say(wire.Busy((await replica.hear()).id, 70))
        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            refused = encode_json(Rejected("unknown_query", "it is too old"))
            replica.say(wire.Reply((await replica.hear()).id, "unknown_query", refused))
        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            await replica.hear()
            replica.left.set()

        assert answers[:3] == [
            Answer(b"{}", 9),
            "the replica has too many requests",
            "it is too old",
        ]
        assert isinstance(answers[3], str)


@on_sockets
async def test_the_last_contact_with_a_replica_is_known_after_its_link_is_lost(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, _):
        shard = there.shards[0]
        while not shard.replicas():
            await trio.lowlevel.checkpoint()
        before = shard.replicas()
        replica = await there.replica()
        while not shard.replicas()[0].is_up:
            await trio.lowlevel.checkpoint()
        [linked] = shard.replicas()
        replica.left.set()
        while shard.replicas()[0].is_up:
            await trio.lowlevel.checkpoint()

        [lost] = shard.replicas()

        assert [(each.node, each.is_up, each.contact_s) for each in before] == [(1, False, None)]
        assert linked.is_up
        assert not linked.error
        assert linked.contact_s is not None
        assert lost.contact_s is not None
        assert not lost.is_up
        assert lost.error


@on_sockets
async def test_the_time_without_a_leader_begins_with_the_router_and_with_each_loss(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, _):
        shard = there.shards[0]
        began = trio.current_time()
        replica = await there.replica(leads=False)
        before = shard.unled_s
        waited = trio.current_time() - began
        replica.say(wire.Leading(1, 5))
        await until_up(shard, up=True)
        led = shard.unled_s
        lost_at = trio.current_time()
        replica.left.set()
        await until_up(shard, up=False)
        after = shard.unled_s

        assert 0 < before <= waited + 0.1
        assert led == 0
        assert after <= trio.current_time() - lost_at
        await trio.lowlevel.checkpoint()
        assert shard.unled_s > after


async def until_up(shard: Shard, *, up: bool) -> None:
    while shard.is_up != up:
        await trio.lowlevel.checkpoint()
