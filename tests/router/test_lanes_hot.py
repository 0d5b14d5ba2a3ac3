"""Every hot route in both lanes: the same requests to twin nodes, right ones and wrong ones.

The twins are machines with the same clock, so even ids, times and tokens have to be the same.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final, NamedTuple

import msgspec
import pytest
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from corvo import telemetry
from corvo.model import ApiKey
from corvo.protocol.ops.enqueue import NewJob
from corvo.router.app import make_app
from corvo.router.config import Limits
from corvo.router.door import Door
from corvo.router.examples import REQUESTS
from corvo.router.keys import hash_key
from corvo.router.openapi import operation_id
from corvo.router.routes import Route
from corvo.router.serving import Server
from corvo.router.table import ROUTES
from tests.router.lanes import Client, get, no_stream, post
from tests.router.machines import Node
from tests.router.test_lanes import plain

HOT: Final = {operation_id(row): row for row in ROUTES.rows if row.is_hot}
LIMITS: Final = Limits(body_bytes_max=20_000)
QUEUE: Final = "mail"
JOBS: Final = 12
KEYS: Final = {
    "of-a-worker": ApiKey(key_hash="", name="w", role="worker"),
    "of-a-reader": ApiKey(key_hash="", name="r", role="readonly"),
    "of-one-queue": ApiKey(key_hash="", name="q", role="worker", queue_scope=("other",)),
    "of-nobody": ApiKey(key_hash="", name="n", role="worker", enabled=False),
}
WRONG: Final[tuple[object, ...]] = (
    None, True, 0, -1, 1.5, 1e300, 1 << 70, "", "x", "\0", "\ud55c", "x" * 300, [], [1], [""], {},
    {"x": 1},
)  # fmt: skip
"""Some of them are right for some fields."""
NO_OBJECTS: Final = (
    b"", b" ", b"{", b"nope", b"null", b"[]", b"1", b'"x"', b"{}", b"{}x", b"{} {}", b"[" * 5_000,
    b'{"queue":"\xff"}', b'{"queue":"\\ud800"}', b'{"queues":["\xc3\x28"]}', b"\xef\xbb\xbf{}",
    b'{"a":1,"a":2}', bytes(range(256)), b"x" * 30_000,
)  # fmt: skip


class Asked(NamedTuple):
    """A request, and what is needed to read its answer."""

    data: bytes
    method: str = "POST"


class Twin:
    """A node that answers in one of the lanes."""

    def __init__(self, *, fast: bool, keys: dict[str, ApiKey]) -> None:
        self.node: Final = Node(limits=LIMITS)
        api = self.node.api
        known = [
            msgspec.structs.replace(key, key_hash=hash_key(text)) for text, key in keys.items()
        ]
        api.keyring.replace(known, now_s=trio.current_time())
        api.fetching.stop()  # nobody is kept waiting
        self.bugs: Final[list[BaseException]] = []
        door = Door(api, ROUTES, on_bug=lambda _, error: self.bugs.append(error))
        log = telemetry.Log(
            lambda _: None, "router", telemetry.Style(is_text=True), telemetry.Level.INFO
        )
        app = make_app(door, no_stream)

        async def counting(
            scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
        ) -> None:
            self.slow += scope["type"] == "http"
            await app(scope, receive, send)

        self.slow = 0
        """Requests that went through the slow lane."""
        self.server: Final = Server(door, counting, api.config, log)
        self.server.lane.is_open = fast

    @property
    def logs(self) -> list[list[bytes]]:
        """All that its shards have been through."""
        return [shard.shard.log for shard in self.node.shards]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Serve; where."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.server.run, [listener], stop)
            try:
                yield listener.getsockname()[1]
            finally:
                stop.set()

    async def ask(self, asked: list[Asked]) -> list[tuple[int, dict[str, str], bytes]]:
        """The answers, without what differs between two of the same."""
        answers = []
        async with self.open() as port:
            stream: trio.SocketStream | None = None
            for each in asked:
                stream = stream or await trio.open_tcp_stream("127.0.0.1", port)
                client = Client(stream)
                # Of an open server only its own machine may ask.
                data = each.data.replace(b"host: corvo\r\n", b"host: localhost\r\n")
                answer = await client.ask(data, each.method.encode())
                answers.append(plain(answer))
                if answer.headers.get("connection") == "close":
                    await stream.aclose()
                    stream = None
            if stream is not None:
                await stream.aclose()
        assert not self.bugs
        return answers


def both(asked: list[Asked], *, keys: dict[str, ApiKey] | None = None) -> list[int]:
    """Ask twins, compare all they answer and all they did, and return the statuses."""
    answers, logs, slow = [], [], []

    async def main() -> None:
        with trio.fail_after(100):
            for fast in (True, False):
                twin = Twin(fast=fast, keys=keys or {})
                twin.node[QUEUE].shard.put(*[NewJob(queue=QUEUE)] * JOBS)
                twin.node[QUEUE].shard.fetch(QUEUE, count=JOBS // 2)
                answers.append(await twin.ask(asked))
                logs.append(twin.logs)
                slow.append(twin.slow)

    trio.run(main)
    for each, one, other in zip(asked, *answers, strict=True):
        assert one == other, each.data[:500]
    assert logs[0] == logs[1]
    assert slow[0] < slow[1], "they have taken different lanes"
    return [status for status, _, _ in answers[0]]


def job_ids() -> list[str]:
    """Of the jobs that each twin begins with: the first half of them are being worked on."""
    return Node()[QUEUE].shard.put(*[NewJob(queue=QUEUE)] * JOBS)


def at(row: Route, job_id: str) -> str:
    return row.path.replace("{job_id}", job_id)


def right(row: Route, job_id: str) -> dict[str, object]:
    """A body that is right, for a job that is there."""
    body = msgspec.json.decode(
        msgspec.json.encode(REQUESTS.get(operation_id(row), {"jobs": [{"job_id": "x"}]}))
        .replace(b"s02_job_01HF7YAT000000000003800000", job_id.encode())
        .replace(b'"sms"', b'"mail"'),
        type=dict[str, object],
    )
    return without_token(body)


def without_token(body: dict[str, object]) -> dict[str, object]:
    """The token of an example is of no job that is there."""
    kept: dict[str, object] = {}
    for name, value in body.items():
        if isinstance(value, list):
            kept[name] = [without_token(one) if isinstance(one, dict) else one for one in value]
        elif name != "lease_token":
            kept[name] = value
    return kept


def fields_of(row: Route) -> list[str]:
    assert row.takes is not None
    return [field.encode_name for field in msgspec.structs.fields(row.takes)]


def wrong_bodies(row: Route, body: dict[str, object]) -> Iterator[object]:
    """Bodies of which one field is changed, of the whole or of an item of it."""
    names = [*fields_of(row), "unknown"]
    for name in names:
        yield {key: value for key, value in body.items() if key != name}
        for value in WRONG:
            yield {**body, name: value}
    for name, value in body.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for key in (*value[0], "lease_token", "request_key", "unknown"):
                for wrong in WRONG:
                    yield {**body, name: [{**value[0], key: wrong}, *value]}


def damaged(data: bytes, count: int) -> Iterator[bytes]:
    """The same with a byte changed, left out, put in, or with the rest cut off."""
    dice = Random(data)
    for _ in range(count):
        place = dice.randrange(len(data))
        byte = bytes([dice.choice(b'{}[]",:0x-e\x00\xff\\u')])
        before, after = data[:place], data[place + 1 :]
        yield dice.choice(
            [before + byte + after, before + after, data[: place + 1] + byte + after, before]
        )


@pytest.mark.parametrize("name", HOT)
def test_right_requests_are_answered_the_same(name: str) -> None:
    row = HOT[name]
    ids = job_ids()
    asked = []
    for job_id in (*ids, *ids, "s02_job_nobody", "a%20b", "a%2Fb"):
        data = msgspec.json.encode(right(row, job_id))
        asked.append(Asked(post(at(row, job_id), data)))
    key = f"Idempotency-Key: {name}"
    first = msgspec.json.encode(right(row, ids[3]))
    other = msgspec.json.encode({**right(row, ids[4]), "worker_id": "w2", "queue": "q2"})
    asked += [Asked(post(at(row, ids[3]), data, key)) for data in (first, first, other)]
    asked += [
        Asked(post(at(row, ids[3]), first, "Idempotency-Key: " + text))
        for text in ("", " ", "x" * 64, "x" * 65, "\xe9", "a\tb")
    ]

    statuses = both(asked)

    assert {200, 201} & set(statuses)


@pytest.mark.parametrize("name", HOT)
def test_wrong_requests_are_answered_the_same(name: str) -> None:
    row = HOT[name]
    ids = job_ids()
    body = right(row, ids[0])
    whole = msgspec.json.encode(body)
    bodies = [
        *NO_OBJECTS,
        *(msgspec.json.encode(wrong) for wrong in wrong_bodies(row, body)),
        *damaged(whole, 80),
    ]
    asked = [Asked(post(at(row, ids[number % JOBS]), data)) for number, data in enumerate(bodies)]

    statuses = both(asked)

    assert {400, 413} <= set(statuses)


@pytest.mark.parametrize("name", HOT)
def test_requests_of_all_shapes_are_answered_the_same(name: str) -> None:
    row = HOT[name]
    path = at(row, job_ids()[0])
    data = msgspec.json.encode(right(row, job_ids()[0]))
    chunked = b"transfer-encoding: chunked\r\n\r\n" + f"{len(data):x}\r\n".encode()
    asked = [
        *(Asked(get(path, method=each), each) for each in ("GET", "HEAD", "PUT", "OPTIONS")),
        *(
            Asked(post(path + end, data))
            for end in ("?", "?x=y", "?x=%ff", "/", "//", "%ff", "%zz")
        ),
        Asked(post(path.upper(), data)),
        Asked(post(path, data, "content-type: text/plain", "accept: text/html")),
        Asked(post(path, data, "content-type: application/json; charset=latin-1")),
        Asked(post(path, data, "content-encoding: gzip")),
        Asked(post(path, data, "X-Request-Id: mine")),
        Asked(post(path, data, "X-Request-Id: not mine")),
        Asked(post(path, data, "Corvo-Min-Seq: s0=9")),
        Asked(post(path, data, "Connection: close")),
        Asked(
            f"POST {path} HTTP/1.1\r\nhost: corvo\r\n".encode() + chunked + data + b"\r\n0\r\n\r\n"
        ),
        Asked(f"POST {path} HTTP/1.1\r\nhost: corvo\r\n\r\n".encode()),
    ]

    statuses = both(asked)

    assert {400, 404, 405} <= set(statuses)


@pytest.mark.parametrize("name", HOT)
def test_who_may_not_is_told_so_in_the_same_words(name: str) -> None:
    row = HOT[name]
    path = at(row, job_ids()[0])
    data = msgspec.json.encode(right(row, job_ids()[0]))
    headers = [
        *(f"X-API-Key: {key}" for key in (*KEYS, "of-a-stranger", "", "\xe9")),
        *(f"Authorization: Bearer {key}" for key in (*KEYS, "of-a-stranger", "")),
        *("Authorization: of-a-worker", "Authorization: Basic eDp5", "Cookie: corvo_api_key=x"),
    ]
    asked = [Asked(post(path, data)), *(Asked(post(path, data, header)) for header in headers)]

    statuses = both(asked, keys=KEYS)

    assert {401, 403} <= set(statuses)
    assert statuses[0] == 401
