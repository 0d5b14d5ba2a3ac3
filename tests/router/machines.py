"""A router over shards that are machines in memory: real ops, no process, no waiting."""

from typing import Final, cast

import msgspec
import trio

from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.ops.base import Limits as OpLimits
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.protocol.queries import Query
from corvo.router.api import Api
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, Request, Response, problem_response
from corvo.router.http.problems import problem_of, read_refusal
from corvo.router.server.door import Door
from corvo.router.shards.links import Answer, Begun, Shard
from corvo.router.table import ROUTES
from corvo.shard import ops
from corvo.shard.ops import admit
from corvo.shard.queries import Asked, answer
from corvo.shard.state.entry import Stamp, encode
from corvo.topology import topology_of
from tests.shard import shard as machines

JSON = dict[str, object]


class MachineShard(Shard):
    """A shard that answers at once, or with the problem that a test has set."""

    def __init__(self, number: int, config: RouterConfig, node: "Node") -> None:
        topology = topology_of(config)
        super().__init__(number, config, topology, pushed=lambda *_: None, came_up=lambda _: None)
        self.shard: Final = machines.Shard(number=number, shards=config.shards)
        self.limits = OpLimits()
        self.ops: list[Op] = []
        """All that came, refused or not."""
        self.problems: list[Problem | None] = []
        """What the next ops meet; behind the last one all is well."""
        self._node = node
        self._begun: list[Op] = []

    @property
    def is_up(self) -> bool:
        return True

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        return await self.finish(self.begin(op), shield=shield)

    def begin(self, op: Op) -> Begun:
        self._node.order.append(f"{self.number} begins")
        self._begun.append(op)
        return Begun(len(self._begun) - 1, b"", op.is_safe_twice, None)

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        try:
            with trio.CancelScope(shield=shield):
                await trio.lowlevel.checkpoint()
            return self._submit(self._begun[begun.number])
        finally:
            self._node.order.append(f"{self.number} ends")

    def _submit(self, op: Op) -> Answer:
        self.ops.append(op)
        problem = self.problems.pop(0) if self.problems else None
        if problem is not None:
            raise problem
        number, body = ops.NUMBERS[type(op)], encode_json(op)
        refused = admit(number, body, self.limits)
        if isinstance(refused, Rejected):
            raise problem_of(refused)
        [reply] = self.shard.apply(encode(Stamp(self.shard.clock_ns, 0), [(number, body)]))
        touched = list(self.shard.tx.touched)
        self.shard.tx.touched.clear()
        self._node.feed(touched)
        if reply.code:
            raise problem_of(read_refusal(reply.body))
        return Answer(reply.body, self.shard.machine.applied)

    async def ask(self, query: Query) -> Answer:
        await trio.lowlevel.checkpoint()
        asked = cast(Asked, self.shard)  # a machine is all that is asked of it here
        return Answer(encode_json(answer(query, asked)), self.shard.machine.applied)


class Node:
    """A router and its shards."""

    def __init__(self, shards: int = 2, limits: Limits | None = None) -> None:
        config = RouterConfig(
            cluster="rookery",
            node=1,
            shards=shards,
            sockets=dict(enumerate(["nowhere"] * shards)),
            listen=[0],
            is_open=True,
            limits=limits or Limits(),
        )
        self.api = Api(config)
        self.order: list[str] = []
        """Which shard began and ended an op, in time."""
        self.shards: Final = [MachineShard(number, config, self) for number in range(shards)]
        self.api.shards._all[:] = self.shards
        self._door: Final = Door(self.api, ROUTES, on_bug=_raise)

    def feed(self, queues: list[str]) -> None:
        """Tell whoever waits."""
        self.api.fetching.pushed(wire.WorkAvailable(tuple(queues)))

    async def ask(
        self,
        path: str,
        body: object = b"",
        *,
        method: str = "POST",
        caller: Caller = ANONYMOUS,
        query: dict[str, str] | None = None,
        key: str | None = None,
    ) -> Response:
        """What a route answers, a problem included; `key` is an Idempotency-Key."""
        request = Request(
            method=method,
            path=path,
            query=query or {},
            headers={} if key is None else {"idempotency-key": key},
            body=body if isinstance(body, bytes) else msgspec.json.encode(body),
            caller=caller,
        )
        found = ROUTES.find(method, path)
        assert found is not None, f"there is a route {path}"
        request.params = found.params
        try:
            return await self._door.call(found, request)
        except Problem as problem:
            return problem_response(problem)

    async def get(self, path: str, body: object = b"", key: str | None = None) -> tuple[int, JSON]:
        """Status and body."""
        response = await self.ask(path, body, key=key)
        return response.status, json_of(response)

    def __getitem__(self, queue: str) -> MachineShard:
        """The shard of a queue."""
        return self.shards[shard_of_queue(queue, len(self.shards))]


def _raise(_: Request, error: BaseException) -> None:
    raise error


def json_of(response: Response) -> JSON:
    """The body of an answer; nothing is an empty object."""
    return msgspec.json.decode(response.body or b"{}", type=JSON)


def queue_of(shard: int, shards: int = 2, number: int = 0) -> str:
    """A queue of a shard."""
    names = (f"q{count}" for count in range(10_000))
    mine = [name for name in names if shard_of_queue(name, shards) == shard]
    return mine[number]
