"""A router over shards that are machines in memory: real ops, no process, no waiting."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import trio

from corvo import wire
from corvo.placement import shard_of_queue
from corvo.router.api import Api
from corvo.router.config import Limits, RouterConfig
from corvo.router.http import Principal, Problem, Request, Response, problem_response
from corvo.router.problems import problem_of, read_refusal
from corvo.router.shards import Answer, Shard
from corvo.router.table import ROUTES
from corvo.shard import ops
from corvo.shard.entry import Stamp, encode
from corvo.shard.ops.base import Op, Rejected, encode_json
from corvo.shard.ops.door import admit
from corvo.shard.queries import Query, answer
from tests.shard import shard as machines

JSON = dict[str, object]
T = TypeVar("T")


class MachineShard(Shard):
    """A shard that answers at once, or with the problem that a test has set."""

    def __init__(self, number: int, config: RouterConfig, fed: Callable[[list[str]], None]) -> None:
        super().__init__(number, config, pushed=lambda *_: None, came_up=lambda _: None)
        self.shard: Final = machines.Shard(number=number, shards=config.shards)
        self.limits = ops.base.Limits()
        self.ops: list[Op] = []
        """All that came, refused or not."""
        self.problems: list[Problem | None] = []
        """What the next ops meet; behind the last one all is well."""
        self._fed = fed

    async def submit(self, op: Op) -> Answer:
        await trio.lowlevel.checkpoint()
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
        self._fed(touched)
        if reply.code:
            raise problem_of(read_refusal(reply.body))
        return Answer(reply.body, self.shard.machine.applied)

    async def ask(self, query: Query) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer(encode_json(query.answer(self.shard.tx)), self.shard.machine.applied)


class Node:
    """A router and its shards."""

    def __init__(self, shards: int = 2, limits: Limits | None = None) -> None:
        config = RouterConfig(
            cluster="rookery",
            node=1,
            shards=shards,
            sockets=["nowhere"] * shards,
            listen=[0],
            is_open=True,
            limits=limits or Limits(),
        )
        self.api = Api(config)
        self.shards: Final = [
            MachineShard(number, config, self._feed) for number in range(shards)
        ]
        self.api.shards._all[:] = self.shards

    def _feed(self, queues: list[str]) -> None:
        self.api.fetching.pushed(wire.WorkAvailable(tuple(queues)))

    async def ask(
        self,
        path: str,
        body: object = b"",
        *,
        method: str = "POST",
        principal: Principal | None = None,
        query: dict[str, str] | None = None,
        **headers: str,
    ) -> Response:
        """What a route answers, a problem included."""
        request = Request(
            method=method,
            path=path,
            query=query or {},
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            body=body if isinstance(body, bytes) else msgspec.json.encode(body),
        )
        if principal is not None:
            request.principal = principal
        found = ROUTES.find(method, path)
        assert found is not None, f"there is a route {path}"
        request.params = found.params
        try:
            return await found.route.endpoint(self.api, request)
        except Problem as problem:
            return problem_response(problem)

    async def get(self, path: str, body: object = b"", **headers: str) -> tuple[int, JSON]:
        """Status and body."""
        response = await self.ask(path, body, **headers)
        return response.status, json_of(response)

    def __getitem__(self, queue: str) -> MachineShard:
        """The shard of a queue."""
        return self.shards[shard_of_queue(queue, len(self.shards))]


def json_of(response: Response) -> JSON:
    """The body of an answer; nothing is an empty object."""
    return msgspec.json.decode(response.body or b"{}", type=JSON)


def queue_of(shard: int, shards: int = 2, number: int = 0) -> str:
    """A queue of a shard."""
    names = (f"q{count}" for count in range(10_000))
    mine = [name for name in names if shard_of_queue(name, shards) == shard]
    return mine[number]


def run(main: Callable[[], object]) -> None:
    """Run a test's coroutine; what hangs, fails at once, for nothing here takes time."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
