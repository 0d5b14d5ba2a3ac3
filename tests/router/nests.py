"""A router's door with shards behind it that are machines in memory: questions, ops, journeys."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

import msgspec
import trio
import trio.testing
from msgspec.structs import replace

from corvo.model import ApiKey
from corvo.otel_settings import TraceSettings
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Limits, Op, Rejected, encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.work import Fail, FailItem
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import Query
from corvo.router.api import Api
from corvo.router.auth.keyring import hash_key
from corvo.router.config import ApiSettings, RouterConfig, WebhookSettings
from corvo.router.http.messages import Problem, Request, Response
from corvo.router.http.problems import problem_of, read_refusal
from corvo.router.server.door import Door
from corvo.router.shards.links import Answer, AnswerHere, Begun, Shard
from corvo.router.table import ROUTES
from corvo.shard import queries
from corvo.shard.ops import NUMBERS, admit
from corvo.shard.ops.transfer import Delivered, Receive
from corvo.shard.state import outbox
from corvo.shard.state.entry import Stamp, encode
from corvo.topology import topology_of
from tests.shard import shard as machines

JSON = dict[str, object]
T = TypeVar("T")

SHARDS: Final = 3


class MachineShard(Shard):
    """A shard that answers at once, unless it is away."""

    def __init__(self, number: int, config: RouterConfig) -> None:
        topology = topology_of(config)
        super().__init__(number, config, topology, pushed=lambda *_: None, came_up=lambda _: None)
        self.machine: Final = machines.Shard(number=number, shards=config.shards)
        self.questions: list[Query] = []
        self.is_away = False
        self.contact_ms: int | None = 0

    @property
    def is_up(self) -> bool:
        return not self.is_away

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        return await self.finish(self.begin(op), shield=shield)

    def begin(self, op: Op) -> Begun:
        number, body = NUMBERS[type(op)], encode_json(op)
        return Begun(number, body, op.is_safe_twice, None)

    async def finish(self, begun: Begun, *, shield: bool = False) -> Answer:
        with trio.CancelScope(shield=shield):
            await trio.lowlevel.checkpoint()
        self._check()
        return self._admit(begun.number, begun.body)

    def _admit(self, number: int, body: bytes) -> Answer:
        refused = admit(number, body, Limits())
        if isinstance(refused, Rejected):
            raise problem_of(refused)
        return self.apply(number, body)

    def apply(self, number: int, body: bytes) -> Answer:
        """Apply one op, from wherever it is."""
        machine = self.machine
        machine.pass_time(1)
        [reply] = machine.apply(encode(Stamp(machine.clock_ns, 0), [(number, body)]))
        if reply.code:
            raise problem_of(read_refusal(reply.body))
        return Answer(reply.body, machine.machine.applied)

    async def ask(self, query: Query) -> Answer:
        await trio.lowlevel.checkpoint()
        self._check()
        self.questions.append(query)
        asked = cast("queries.Asked", self.machine)  # only its machine is asked of here
        number = QUERY_NUMBERS[type(query)]
        answer = queries.answer_bytes(asked, number, encode_json(query))
        if isinstance(answer, Rejected):
            raise problem_of(answer)
        return Answer(encode_json(answer), self.machine.machine.applied)

    async def ask_here(self, query: Query) -> AnswerHere:
        await trio.lowlevel.checkpoint()
        asked = cast("queries.Asked", self.machine)
        number = QUERY_NUMBERS[type(query)]
        answer = queries.answer_bytes(asked, number, encode_json(query))
        if isinstance(answer, Rejected):
            raise problem_of(answer)
        position = self.machine.machine.applied
        return AnswerHere(Answer(encode_json(answer), position), self.contact_ms)

    def _check(self) -> None:
        if self.is_away:
            raise Problem(503, "LEADER_UNAVAILABLE", "away", retry_after_ms=1_000)


class Nest:
    """A door and what is behind it."""

    def __init__(
        self,
        shards: int = SHARDS,
        keys: dict[str, ApiKey] | None = None,
        *,
        strict: bool = False,
        webhook_secrets: tuple[str, ...] = (),
        traces: TraceSettings | None = None,
    ) -> None:
        """`keys` are those that open it; without any, it is open."""
        config = RouterConfig(
            cluster="rookery",
            node=1,
            shards=shards,
            sockets=dict(enumerate(["nowhere"] * shards)),
            listen=[0],
            is_open=True,
            api=ApiSettings(strict="on" if strict else "off"),
            webhooks=WebhookSettings(secrets=webhook_secrets),
            traces=traces,
        )
        self.api: Final = Api(config)
        self.shards: Final = [MachineShard(number, config) for number in range(shards)]
        self.api.shards._all[:] = self.shards
        known = [replace(key, key_hash=hash_key(text)) for text, key in (keys or {}).items()]
        self.api.keyring.replace(known, now_s=trio.current_time())
        self.door: Final = Door(self.api, ROUTES, on_bug=_raise)

    def __getitem__(self, queue: str) -> machines.Shard:
        """The machine that has a queue."""
        return self.shards[shard_of_queue(queue, len(self.shards))].machine

    def put(self, queue: str, **fields: object) -> str:
        """A new job; its id."""
        self[queue].pass_time(1)
        [job_id] = self[queue].put(replace(NewJob(queue=queue), **fields))  # type: ignore[arg-type]
        return job_id

    async def ask(
        self,
        method: str,
        path: str,
        body: object = b"",
        *,
        query: dict[str, str] | None = None,
        **headers: str,
    ) -> Response:
        """What the door answers."""
        request = Request(
            method=method,
            path=path,
            query=query or {},
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            body=body if isinstance(body, bytes) else msgspec.json.encode(body),
        )
        return await self.door.answer(request)

    async def read(
        self, kind: type[T], path: str, *, query: dict[str, str] | None = None, **headers: str
    ) -> T:
        """What a GET answers when all is well."""
        response = await self.ask("GET", path, query=query, **headers)
        assert response.status == 200, response.body
        return msgspec.json.decode(response.body, type=kind)

    def deliver(self) -> None:
        """Bring what shards have for each other to where it belongs."""
        while any(self._deliver(source) for source in self.shards):
            pass

    def _deliver(self, source: MachineShard) -> bool:
        tx = source.machine.tx
        waiting = [
            (shard, taken + 1)
            for shard, (given, taken) in outbox.numbers(tx).items()
            if given > taken
        ]
        for shard, seq in waiting:
            self.shards[shard].apply(NUMBERS[Receive], outbox.outgoing(tx, shard, seq).body)
            source.machine.do(Delivered(shard=shard, seq=seq))
        return bool(waiting)


def fail(nest: Nest, queue: str, job_id: str, error: str = "no", *, dies: bool = False) -> None:
    """The job's next attempt fails."""
    shard = nest[queue]
    shard.pass_time(1)
    shard.fetch(queue)
    shard.do(Fail(fails=[FailItem(job_id=job_id, error=error, retryable=not dies)]))


def die(nest: Nest, queue: str, error: str = "no") -> str:
    """A job that is dead."""
    job_id = nest.put(queue)
    fail(nest, queue, job_id, error, dies=True)
    return job_id


def _raise(request: Request, error: BaseException) -> None:
    raise AssertionError(f"a bug at {request.path}") from error


def problem(response: Response) -> tuple[int, str, str, str]:
    """Status, code, the shard's reason, and the field of a problem."""
    body = msgspec.json.decode(response.body, type=dict[str, object])
    return (
        response.status,
        str(body["code"]),
        str(body.get("reason", "")),
        str(body.get("field", "")),
    )


def header(response: Response, name: str) -> str:
    """A header that is there once, or nothing."""
    found = [value for key, value in response.headers if key == name]
    assert len(found) <= 1
    return found[0] if found else ""


def queue_of(shard: int, number: int = 0, shards: int = SHARDS) -> str:
    """A queue that a shard has."""
    names = (f"q{count}" for count in range(10_000))
    return [name for name in names if shard_of_queue(name, shards) == shard][number]


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test; nothing in it takes time."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
