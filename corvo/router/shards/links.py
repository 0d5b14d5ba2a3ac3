"""The shards as a router sees them: links to the replicas of each, and what goes over them.

An op or a query goes to the shard's leader, on whichever node it is. Without a leader it waits,
up to a limit, so that a change of leader, or a shard that is started again, is a pause and not an
error. The outcome of a request that was sent and
not answered before the link was lost is *unknown*. It is sent again when twice is as once: under a
request key, or under the token of a lease. Otherwise the client gets the error, since only the
client knows whether twice does harm.
"""

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Final, NamedTuple

import msgspec
import trio

from corvo import clock
from corvo.link import Call, LinkClient, LinkLost
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.ops import NAMES, NUMBERS
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import AskHere, Here, Query
from corvo.protocol.versions import held_back
from corvo.router.config import RouterConfig
from corvo.router.http.messages import UNKNOWN, Problem, overloaded
from corvo.router.http.problems import problem_of, read_refusal
from corvo.router.tracing.spans import FAILED
from corvo.router.tracing.tracer import Tracer
from corvo.shard_links import Member, ShardLinks
from corvo.telemetry import SILENT, Log
from corvo.topology import Topology

_HERE_S: Final = 1.0
"""How long one replica has to answer from its own state, before another one is asked."""
_LEADER_RETRY_S: Final = 0.1
"""Between two tries of a request, while the shard's leader is unknown."""
_LEAST_OF_WAIT: Final = 3
"""One part in so many of the wait for a leader is left to a request whose link was lost late."""
_LOOK_S: Final = 0.4
"""Between two looks at links to other nodes over which requests wait for an answer."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a shard answered, as JSON, and the place in its log that the answer speaks of."""

    body: bytes
    index: int


class AnswerHere(NamedTuple):
    """The answer of one replica from its own state."""

    answer: Answer
    contact_ms: int | None  # see `corvo.protocol.queries.Here`


class Sent(NamedTuple):
    """A request on its way."""

    client: LinkClient
    call: Call | wire.Busy
    term: int  # the leader's


class ReplicaLink(msgspec.Struct, frozen=True):
    """The link to one replica, at one moment."""

    node: int
    is_up: bool
    contact_s: float | None = None
    """Seconds since the replica last sent something; None if it never did."""
    error: str = ""
    """Why the link is not up."""


class Begun(msgspec.Struct):
    """A request to a shard, which was sent if there was a link."""

    number: int
    body: bytes
    may_repeat: bool
    sent: "Sent | None"
    is_query: bool = False
    is_local: bool = False
    """Whether any replica may answer: the question is about the replica itself."""
    refused: Rejected | None = None
    """Why it is not sent at all."""


class Shard:
    """One shard, by the link to its leader."""

    def __init__(
        self,
        number: int,
        config: RouterConfig,
        topology: Topology,
        *,
        pushed: Callable[[int, wire.Push], None],
        came_up: Callable[[int], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when another replica leads, or one can or cannot be reached."""
        self.number: Final = number
        self._on_change = changed
        self._config = config
        self._topology = topology
        self._on_up = came_up
        self._came_up = trio.Event()
        self._unled_since: float | None = None
        self._links: Final = ShardLinks(
            number,
            topology,
            wire.make_hello(config, wire.ROUTER, shard=number),
            pushed=lambda push: pushed(number, push),
            changed=self._note_leader,
            linked=changed,
        )

    @property
    def is_up(self) -> bool:
        """Whether there is a link to the leader."""
        return self._links.leader is not None

    @property
    def leader(self) -> int | None:
        """The leader's node."""
        return self._links.leader_node

    @property
    def term(self) -> int:
        """The highest term that is known."""
        return self._links.term

    @property
    def led_term(self) -> int:
        """The term of the leader; 0 without a leader."""
        return self._links.led_term

    @property
    def unled_s(self) -> float:
        """How long there has been no link to a leader; 0 while there is one."""
        if self.is_up or self._unled_since is None:
            return 0.0
        return trio.current_time() - self._unled_since

    @property
    def last_error(self) -> str:
        """Why there is no link, while there is none."""
        return self._links.last_error

    @property
    def calls_in_flight(self) -> int:
        """Requests that wait for this shard's answer."""
        return self._links.calls_in_flight

    async def run(self, log: Log = SILENT) -> None:
        """Keep links to the shard's replicas."""
        self._unled_since = trio.current_time()
        await self._links.run(log)

    def look(self) -> None:
        """Give up links to other nodes that are silent while requests wait for an answer."""
        self._links.look()

    def _note_leader(self) -> None:
        """Wake requests that wait for a leader; a new one does not know which fetches wait."""
        self._on_change()
        if not self.is_up:
            if self._unled_since is None:
                self._unled_since = trio.current_time()
        else:
            self._unled_since = None
            self._came_up.set()
            self._came_up = trio.Event()
            self._on_up(self.number)

    def submit(self, op: Op, *, shield: bool = False) -> Coroutine[object, object, Answer]:
        """Have an op carried out. Raises `Problem`. For `shield` see `finish`."""
        return self.finish(self.begin(op), shield=shield)

    async def submit_bytes(self, number: int, body: bytes, *, may_repeat: bool) -> Answer:
        """Have an op of another process carried out. Raises `Problem`."""
        return await self.finish(Begun(number, body, may_repeat, None))

    async def ask(self, query: Query) -> Answer:
        """Have a question answered. Raises `Problem`."""
        number, body = QUERY_NUMBERS[type(query)], encode_json(query)
        begun = Begun(number, body, True, None, is_query=True, is_local=query.is_local)
        begun.refused = held_back(query, self._topology.map)
        return await self.finish(begun)

    def replicas(self) -> list[ReplicaLink]:
        """The links to the replicas that the map names, by their nodes."""
        now = trio.current_time()
        return [
            ReplicaLink(
                member.node,
                member.client is not None,
                None if member.contact is None else now - member.contact,
                "" if member.client is not None else member.link.last_error,
            )
            for member in self._links.members
        ]

    async def ask_replica(self, node: int, query: Query) -> Answer | str:
        """Have one replica answer a question about itself, at once; or why it does not."""
        assert query.is_local, "only a question about the replica itself"
        for member in self._links.members:
            if member.node == node and member.client is not None:
                try:
                    answer = await member.client.ask(QUERY_NUMBERS[type(query)], encode_json(query))
                except LinkLost as lost:
                    return str(lost)
                if not isinstance(answer, wire.Reply):
                    return "the replica has too many requests"
                if answer.code:
                    return read_refusal(answer.body).error
                return Answer(answer.body, answer.index)
        return "there is no link to the replica"

    async def ask_here(self, query: Query) -> AnswerHere:
        """Have a question answered from the state of one replica, that of this node if possible.

        Raises `Problem`. Nothing is waited for but the answer of a replica that is linked.
        """
        outer = _here(query)
        asked = encode_json(outer)
        reasons: list[str] = []
        for member in sorted(
            self._links.members, key=lambda each: (each.node != self._topology.node, not each.leads)
        ):
            found = await _ask_here(member, asked)
            if isinstance(found, AnswerHere):
                return found
            reasons.append(f"node {member.node}: {found}")
        # A replica of an older release was ignored, as long as another one could answer.
        refused = held_back(outer, self._topology.map)
        if refused is not None:
            raise problem_of(refused)
        why = "; ".join(reasons) or "no node is known that has a replica"
        error = f"no replica of shard {self.number} answers: {why}; nothing was changed"
        raise Problem(503, "LEADER_UNAVAILABLE", error, retry_after_ms=1_000)

    async def ask_each_here(self, query: Query) -> list[Answer]:
        """The answers of all replicas that answer, each from its own state.

        A replica that the leader cannot reach has an old one.
        """
        asked = encode_json(_here(query))
        found = [await _ask_here(member, asked) for member in self._links.members]
        return [each.answer for each in found if isinstance(each, AnswerHere)]

    def begin(self, op: Op) -> Begun:
        """Send an op at once, and wait for it later with `finish`.

        What is begun without waiting in between goes out together, in this order.
        """
        number, body = NUMBERS[type(op)], encode_json(op)
        begun = Begun(number, body, op.is_safe_twice, None)
        # Not left to the leader: an older one does not know the op, and cannot tell what to do.
        begun.refused = held_back(op, self._topology.map)
        if begun.refused is None:
            begun.sent = self._send(begun)
        return begun

    def _send(self, begun: Begun) -> Sent | None:
        """Send a request over the link; None when there is no link."""
        links = self._links
        client = links.any if begun.is_local else links.leader
        if client is None:
            return None
        try:
            begin = client.begin_query if begun.is_query else client.begin
            return Sent(client, begin(begun.number, begun.body), links.led_term)
        except LinkLost:
            return None

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        """The answer to a request that was begun. Raises `Problem`.

        With `shield`, the answer is waited for even if the caller is cancelled meanwhile.
        """
        if begun.refused is not None:
            raise problem_of(begun.refused)
        sent = begun.sent
        is_unknown = False  # an attempt was sent and not answered
        wait_s = self._config.limits.leader_wait_ms / 1_000
        began = trio.current_time()
        until: float | None = None
        while True:
            came_up = self._came_up
            if sent is None:
                sent = self._send(begun)
            if sent is not None:
                (client, call, term), sent = sent, None
                try:
                    answer = (
                        call
                        if isinstance(call, wire.Busy)
                        else await client.finish(call, shield=shield)
                    )
                except LinkLost as lost:
                    if not begun.may_repeat:
                        raise self._unknown() from lost
                    is_unknown = not begun.is_query
                else:
                    if isinstance(answer, wire.Reply):
                        if answer.code:
                            raise problem_of(read_refusal(answer.body))
                        return Answer(answer.body, answer.index)
                    if isinstance(answer, wire.Busy):
                        if is_unknown:
                            raise self._unknown()
                        raise overloaded(
                            f"shard {self.number} is overloaded: nothing was changed; try again",
                            retry_after_ms=answer.retry_after_ms,
                        )
                    self._links.not_leader(client, term)
            now = trio.current_time()
            if until is None:
                # An attempt on a link that was lost has taken time already.
                until = max(began + wait_s, now + wait_s / _LEAST_OF_WAIT)
            with trio.move_on_at(min(until, now + _LEADER_RETRY_S), shield=shield):
                await came_up.wait()
            if trio.current_time() >= until:
                raise self._unknown() if is_unknown else self._unavailable()

    def _unavailable(self) -> Problem:
        return Problem(
            503,
            "LEADER_UNAVAILABLE",
            f"shard {self.number} has no leader: {self.last_error}; nothing was changed",
            retry_after_ms=1_000,
        )

    def _unknown(self) -> Problem:
        return Problem(
            503,
            "OUTCOME_UNKNOWN",
            f"shard {self.number} disconnected before it answered, so the request may have taken "
            "effect; with an Idempotency-Key it can be sent again safely",
            outcome=UNKNOWN,
            retry_after_ms=1_000,
        )


def _here(query: Query) -> AskHere:
    """A question that a replica answers from its own state."""
    return AskHere(number=QUERY_NUMBERS[type(query)], query=msgspec.Raw(encode_json(query)))


async def _ask_here(member: Member, asked: bytes) -> AnswerHere | str:
    """The answer of one replica, or why another one is to be asked. Raises `Problem`."""
    if member.client is None:
        return member.link.last_error
    answer: wire.Answer | None = None
    with trio.move_on_after(_HERE_S):
        try:
            answer = await member.client.ask(_ASK_HERE, asked)
        except LinkLost as lost:
            return str(lost)
    if not isinstance(answer, wire.Reply):
        return "the replica has too many requests" if answer else f"no answer in {_HERE_S:.0f} s"
    if answer.code:
        refused = read_refusal(answer.body)
        if answer.code in _NOT_HERE:
            return refused.error
        raise problem_of(refused)
    found = _decode_here(answer.body)
    return AnswerHere(Answer(bytes(found.answer), answer.index), found.contact_ms)


_ASK_HERE: Final = QUERY_NUMBERS[AskHere]
_NOT_HERE: Final = frozenset({"unknown_query", "no_state"})
"""Refusals of a replica of an older release, and of one that is being made."""
_decode_here: Final = msgspec.json.Decoder(Here).decode


class TracedShard(Shard):
    """A shard whose ops have spans, inside those of their requests."""

    def __init__(
        self,
        tracer: Tracer,
        number: int,
        config: RouterConfig,
        topology: Topology,
        *,
        pushed: Callable[[int, wire.Push], None],
        came_up: Callable[[int], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(number, config, topology, pushed=pushed, came_up=came_up, changed=changed)
        self._tracer = tracer

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        """As without a span, which ends with the answer."""
        span = None if begun.is_query else self._tracer.inner("raft.propose")
        if span is None:
            return await super().finish(begun, shield=shield)
        began_ns = clock.steady_ns()
        span.attributes = {
            "messaging.corvo.op": NAMES[begun.number],
            "messaging.destination.partition.id": str(self.number),
        }
        try:
            answer = await super().finish(begun, shield=shield)
        except Problem as problem:
            span.attributes["error.type"] = problem.code
            span.status = FAILED
            raise
        else:
            span.attributes["messaging.corvo.log.index"] = answer.index
            return answer
        finally:
            self._tracer.end_inner(span, clock.steady_ns() - began_ns)


class Shards:
    """All of them."""

    def __init__(
        self,
        config: RouterConfig,
        topology: Topology,
        *,
        pushed: Callable[[int, wire.Push], None],
        came_up: Callable[[int], None],
        changed: Callable[[], None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        kind = Shard if tracer is None else partial(TracedShard, tracer)
        self._all: Final = [
            kind(number, config, topology, pushed=pushed, came_up=came_up, changed=changed)
            for number in range(config.shards)
        ]

    def __getitem__(self, number: int) -> Shard:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._all)

    def of_queue(self, queue: str) -> Shard:
        """The shard that owns a queue."""
        return self._all[shard_of_queue(queue, len(self._all))]

    async def run(self, log: Log = SILENT) -> None:
        """Keep the links to all of them."""
        async with trio.open_nursery() as nursery:
            for shard in self._all:
                nursery.start_soon(shard.run, log)
            while True:
                await trio.sleep(_LOOK_S)
                for shard in self._all:
                    shard.look()
