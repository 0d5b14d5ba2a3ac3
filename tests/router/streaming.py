"""A stream for tests: both ends of a WebSocket in memory, and machines as the shards behind it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec
import trio

from corvo.model import ApiKey
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.ops.base import Limits as OpLimits
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.protocol.queries import Query
from corvo.router.api import Api
from corvo.router.auth.keyring import hash_key
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, Request
from corvo.router.http.problems import problem_of, read_refusal
from corvo.router.shards.links import Answer, Begun, Shard
from corvo.router.stream.stream import ChannelClosed, run_stream
from corvo.shard.ops import NUMBERS, admit
from corvo.shard.queries import Asked, answer
from corvo.shard.state.entry import Stamp, encode
from corvo.topology import topology_of
from tests.shard import shard as machines

JSON = dict[str, object]


def queue_of(shard: int, shards: int = 2) -> str:
    """A queue of a shard."""
    names = (f"q{number}" for number in range(1_000))
    return next(name for name in names if shard_of_queue(name, shards) == shard)


MAIL: Final = queue_of(0)
BULK: Final = queue_of(1)


class MachineShard(Shard):
    """A shard that has carried an op out as soon as it is sent, and may answer later."""

    def __init__(self, node: "Node", number: int) -> None:
        topology = topology_of(node.config)
        super().__init__(
            number, node.config, topology, pushed=lambda *_: None, came_up=lambda _: None
        )
        self.machine: Final = machines.Shard(number=number, shards=node.config.shards)
        self.has_leader = True
        self.gate = trio.Event()
        """Answers wait for it."""
        self.gate.set()
        self.late_s = 0.0
        """How long each answer takes."""
        self.told: list[Answer] = []
        """What the next ops are answered without being done."""
        self.known: list[Answer] = []
        """What the next questions are answered."""
        self.problems: list[Problem | None] = []
        """What the next ops meet; behind the last one all is well."""
        self._node = node
        self._answers: dict[bytes, Answer | Problem] = {}

    @property
    def is_up(self) -> bool:
        return self.has_leader

    def begin(self, op: Op) -> Begun:
        ticket = str(len(self._node.ops)).encode()
        self._answers[ticket] = self._do(op)
        return Begun(0, ticket, False, None)

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        with trio.CancelScope(shield=shield):
            await trio.lowlevel.checkpoint()
            await self.gate.wait()
            await trio.sleep(self.late_s)
        answer = self._answers.pop(begun.body)
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        return await self.finish(self.begin(op), shield=shield)

    async def ask(self, query: Query) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.known:
            return self.known.pop(0)
        asked = cast(Asked, self.machine)  # a machine is all that is asked of it here
        return Answer(encode_json(answer(query, asked)), self.machine.machine.applied)

    def _do(self, op: Op) -> Answer | Problem:
        self._node.ops.append((self.number, op))
        if self.told:
            return self.told.pop(0)
        problem = self.problems.pop(0) if self.problems else None
        if problem is not None:
            return problem
        number, body = NUMBERS[type(op)], encode_json(op)
        refused = admit(number, body, OpLimits())
        if isinstance(refused, Rejected):
            return problem_of(refused)
        [reply] = self.machine.apply(encode(Stamp(self.machine.clock_ns, 0), [(number, body)]))
        touched = tuple(self.machine.tx.touched)
        self.machine.tx.touched.clear()
        self._node.api.fetching.pushed(wire.WorkAvailable(touched))
        if reply.code:
            return problem_of(read_refusal(reply.body))
        return Answer(reply.body, self.machine.machine.applied)


class Node:
    """A router and its shards."""

    def __init__(self, limits: Limits | None = None, shards: int = 2) -> None:
        self.config: Final = RouterConfig(
            cluster="rookery",
            node=1,
            shards=shards,
            sockets=dict(enumerate(["nowhere"] * shards)),
            listen=[0],
            is_open=True,
            limits=limits or Limits(),
        )
        self.api: Final = Api(self.config)
        self.api.keyring.replace([], now_s=trio.current_time())
        self.ops: list[tuple[int, Op]] = []
        """All that came, with the shard that it came to."""
        self.shards: Final = [MachineShard(self, number) for number in range(shards)]
        self.api.shards._all[:] = self.shards

    def take_key(self, key: str, role: str, *queues: str) -> None:
        """From now on this is the only key, and one is needed."""
        made = ApiKey(key_hash=hash_key(key), name=role, role=role, queue_scope=queues)
        self.api.keyring.replace([made], now_s=trio.current_time())

    @property
    def said(self) -> list[str]:
        """The kinds of ops that came, in order."""
        return [f"{shard} {type(op).__name__}" for shard, op in self.ops]


class Line:
    """Both ends of a WebSocket."""

    def __init__(self) -> None:
        self._say, self._heard_by_server = trio.open_memory_channel[bytes | str](1_000)
        self._said_by_server, self._hear = trio.open_memory_channel[bytes | str](1_000)
        self._is_sending = False
        self.is_broken = False
        self.is_read = trio.Event()
        """The client reads as long as it is set."""
        self.is_read.set()
        self.farewell: tuple[int, str] | None = None
        self.ended = trio.Event()

    # The server's end.

    async def receive(self) -> bytes | str:
        try:
            return await self._heard_by_server.receive()
        except trio.EndOfChannel:
            raise ChannelClosed("the client has gone") from None

    async def send(self, message: bytes | str) -> None:
        assert not self._is_sending, "two answers would be mixed"
        self._is_sending = True
        await self._send(message)
        self._is_sending = False

    async def _send(self, message: bytes | str) -> None:
        await self.is_read.wait()
        await trio.lowlevel.checkpoint()
        if self.is_broken:
            raise ChannelClosed("the connection is broken")
        await self._said_by_server.send(message)

    async def close(self, code: int, reason: str) -> None:
        await self.is_read.wait()
        assert self.farewell is None
        self.farewell = code, reason

    # The client's end.

    def say(self, frame: Mapping[str, object] | bytes | str) -> None:
        if not isinstance(frame, bytes | str):
            frame = msgspec.json.encode(frame).decode()
        self._say.send_nowait(frame)

    def hang_up(self) -> None:
        self._say.close()

    async def hear(self) -> JSON:
        message = await self._hear.receive()
        if isinstance(message, str):
            return msgspec.json.decode(message, type=JSON)
        return msgspec.msgpack.decode(message, type=JSON)

    async def ask(self, **frame: object) -> JSON:
        """Send a frame and hear its answer."""
        self.say({"id": 1, **frame})
        return await self.hear()

    def heard(self) -> list[JSON]:
        """Everything that has come and was not taken."""
        replies: list[JSON] = []
        while self._hear.statistics().current_buffer_used:
            replies.append(msgspec.json.decode(self._hear.receive_nowait(), type=JSON))
        return replies

    @property
    def unread(self) -> int:
        """Messages that the server has not read."""
        return self._heard_by_server.statistics().current_buffer_used


@asynccontextmanager
async def stream_to(node: Node, **headers: str) -> AsyncIterator[Line]:
    """A stream until the block ends."""
    line = Line()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(method="GET", path="/api/v1/stream", headers=named, peer="127.0.0.1")

    async def serve() -> None:
        await run_stream(node.api, request, line)
        line.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield line
        line.is_read.set()
        line.hang_up()
        await line.ended.wait()
    assert node.api.streams == 0
    assert node.api.fetching.parked == 0


def jobs_of(reply: JSON, part: str = "jobs") -> list[JSON]:
    return msgspec.convert(reply[part], list[JSON])


def codes(reply: JSON, part: str) -> list[object]:
    """Of each item its status, or its code."""
    return [item.get("status") or item["code"] for item in jobs_of(reply, part)]


def words(reply: JSON) -> list[JSON]:
    """What a worker says of jobs that it was given."""
    return [{"job_id": job["job_id"], "lease_token": job["lease_token"]} for job in jobs_of(reply)]


def fetch(*queues: str, count: int = 1, wait_ms: int = 0) -> JSON:
    return {"queues": queues or [MAIL], "count": count, "wait_ms": wait_ms}


def put(count: int = 1, queue: str = MAIL) -> list[JSON]:
    return [{"queue": queue, "payload": number} for number in range(count)]
