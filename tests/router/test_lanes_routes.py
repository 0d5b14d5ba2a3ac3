"""Every route in both lanes: the same requests to twin nodes, right ones and wrong ones.

The twins are machines with the same clock, so even ids, times and tokens have to be the same. The
rows come from the route table, so a new route is covered by itself.
"""

import re
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from random import Random
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
import pytest
import trio
import trio.testing
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from corvo import clock, telemetry
from corvo.model import ApiKey
from corvo.protocol.cluster import ClusterNode, first_map
from corvo.protocol.ops.cluster import Announce
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Hold
from corvo.protocol.ops.keys import HOME, UpsertAPIKey
from corvo.protocol.ops.work import Fail, FailItem
from corvo.protocol.queries import GetNumbers, Query
from corvo.protocol.questions import Count, Counted, GetStanding
from corvo.router.auth.actions import Action
from corvo.router.auth.keyring import hash_key
from corvo.router.config import Limits
from corvo.router.http.messages import encode_json
from corvo.router.openapi.document import operation_id
from corvo.router.routes import Route
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.serving import Server
from corvo.router.shards.links import Answer, ReplicaLink
from corvo.router.table import ROUTES
from tests.router.lanes import Client, no_stream
from tests.router.machines import MachineShard, Node
from tests.router.mirrors import give
from tests.router.test_lanes import plain
from tests.router.test_metrics import numbers, standing
from tests.shard.shard import START_NS

ROWS: Final = {operation_id(row): row for row in ROUTES.rows}
ADMIN: Final = "X-API-Key: of-an-admin"
ALL: Final = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
BY_GET: Final = pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if row.method == "GET"], ids=operation_id
)
LIMITS: Final = Limits(body_bytes_max=20_000)
QUEUE: Final = "mail"
JOBS: Final = 12
DEAD, HELD, WAITING, LATER = 5, 11, 9, 10
"""Of the jobs that each twin begins with; the first half of them is leased."""
KEYS: Final = {
    "of-a-worker": ApiKey(key_hash="", name="w", role="worker"),
    "of-a-reader": ApiKey(key_hash="", name="r", role="readonly"),
    "of-an-admin": ApiKey(key_hash="", name="a", role="admin"),
    "of-one-queue": ApiKey(key_hash="", name="q", role="worker", queue_scope=("other",)),
    "of-an-operator-of-one": ApiKey(key_hash="", name="o", role="operator", queue_scope=("other",)),
    "of-nobody": ApiKey(key_hash="", name="n", role="worker", enabled=False),
}
CLUSTER: Final = first_map(
    [ClusterNode(number=number, name=f"corvo-{number}") for number in (1, 4)], shards=2, replicas=2
)
"""The nodes of each twin's cluster; the made-up replicas do not have the second one as a voter."""
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
BODIES: Final[dict[str, dict[str, object]]] = {
    "post_release_batch": {"jobs": [{"job_id": "s02_job_01HF7YAT000000000003800000"}]},
    "post_jobs_bulk": {**(ROWS["post_jobs_bulk"].takes_example or {}), "async": True},
    "post_cluster_join": {"node_id": "corvo-4"},
    "delete_auth_keys": {"key_hash": hash_key("of-a-worker")},
}
"""Right bodies of routes of which the documents show none, or one that is waited for."""
QUERIES: Final = {"get_search_fulltext": "?q=x"}
"""Of routes that have no answer without one."""
CHANGING: Final = frozenset({"/metrics", "/api/v1/metrics", "/api/v1/debug/runtime"})
"""Paths of pages with numbers that differ from one moment to the next."""


class Asked(NamedTuple):
    """A request, and what is needed to read its answer."""

    data: bytes
    method: str = "POST"


class TwinShard(MachineShard):
    """A machine without a replica around it: what is asked about that is made up."""

    @property
    def is_up(self) -> bool:
        return True

    async def ask(self, query: Query) -> Answer:
        if isinstance(query, GetNumbers):
            return Answer(encode_json(numbers()), self.shard.machine.applied)
        return await super().ask(query)

    def replicas(self) -> list[ReplicaLink]:
        return [ReplicaLink(1, is_up=True, contact_s=0.0)]

    async def ask_replica(self, node: int, query: Query) -> Answer | str:
        assert node == 1
        return await self.ask(query)


class Twin:
    """A node that answers in one of the lanes."""

    def __init__(self, *, fast: bool, keys: dict[str, ApiKey]) -> None:
        self.node: Final = Node(limits=LIMITS)
        api = self.node.api
        self.node.shards[:] = [TwinShard(shard, api.config, self.node) for shard in range(2)]
        api.shards._all[:] = self.node.shards
        for shard in self.node.shards:
            shard._links.term = 1
        api.keeper._shard = self.node.shards[HOME]
        mirror = give(api)
        mirror.answers[GetStanding] = standing(2)
        mirror.answers[Count] = Counted(
            total=0, is_exact=True, states={}, queues={}, samples=[], bounds={0: 1, 1: 1}
        )
        put_jobs(self.node)
        self.node.shards[HOME].shard.do(
            Announce(name="corvo-1", instance="dir-1", number=1, first=CLUSTER)
        )
        for text, key in keys.items():
            self.node.shards[HOME].shard.do(
                UpsertAPIKey(
                    key_hash=hash_key(text),
                    name=key.name,
                    role=key.role,
                    queue_scope=key.queue_scope,
                    enabled=key.enabled,
                )
            )
        api.fetching.stop()  # nobody is kept waiting
        self.bugs: Final[list[BaseException]] = []
        door = Door(api, ROUTES, on_bug=lambda _, error: self.bugs.append(error))
        log = telemetry.Log(
            lambda _: None, "router", telemetry.Style(is_text=True), telemetry.Level.INFO
        )
        app = App(door, no_stream)

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
        await self.node.api.keeper.read()
        async with self.open() as port:
            stream: trio.SocketStream | None = None
            for each in asked:
                stream = stream or await trio.open_tcp_stream("127.0.0.1", port)
                answer = await Client(stream).ask(each.data, each.method.encode())
                answers.append(plain(answer))
                if answer.headers.get("connection") == "close":
                    await stream.aclose()
                    stream = None
            if stream is not None:
                await stream.aclose()
        assert not self.bugs
        return answers


def put_jobs(node: Node) -> list[str]:
    """Jobs in all states that a route asks for; their ids."""
    shard = node[QUEUE].shard
    ids = shard.put(
        *[NewJob(queue=QUEUE)] * LATER,
        NewJob(queue=QUEUE, delay_ms=1_000_000),
        *[NewJob(queue=QUEUE)] * (JOBS - LATER - 1),
    )
    shard.fetch(QUEUE, count=JOBS // 2)
    shard.do(Fail(fails=[FailItem(job_id=ids[DEAD], error="no", retryable=False)]))
    shard.do(Hold(job_ids=[ids[HELD]]))
    return ids


@cache
def job_ids() -> list[str]:
    """Of the jobs that each twin begins with."""
    return put_jobs(Node())


@pytest.fixture(autouse=True)
def _equal_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins that draw the same dice, at the same time of day."""
    monkeypatch.setattr(clock, "now_ns", lambda: START_NS + 1)
    monkeypatch.setattr(secrets, "randbits", lambda _: 7)


def clock_of_tests() -> trio.testing.MockClock:
    """A clock that stands still while anything is done, and leaps over what waits."""
    return trio.testing.MockClock(autojump_threshold=0.001)


def both(
    row: Route, asked: list[Asked], *, keys: dict[str, ApiKey] | None = None
) -> list[tuple[int, dict[str, str], bytes]]:
    """Ask twins, compare all they answer and all they did, and return the answers."""
    answers, logs, slow = [], [], []

    async def main() -> None:
        with trio.fail_after(10_000):
            for fast in (True, False):
                twin = Twin(fast=fast, keys=keys or {})
                answers.append(await twin.ask(asked))
                logs.append(twin.logs)
                slow.append(twin.slow)

    trio.run(main, clock=clock_of_tests())
    for each, one, other in zip(asked, *answers, strict=True):
        assert steady(row, one) == steady(row, other), each.data[:500]
    if operation_id(row) == "post_jobs_bulk":  # it has shards in the order of their answers
        logs = [[[bytes(sorted(entry)) for entry in log] for log in of_twin] for of_twin in logs]
    assert logs[0] == logs[1]
    assert slow[0] == 0 or row.is_streamed, "a route without a stream has taken the slow lane"
    assert slow[1] > 0
    return answers[0]


def statuses_of(answers: list[tuple[int, dict[str, str], bytes]]) -> set[int]:
    return {status for status, _, _ in answers}


def steady(
    row: Route, answer: tuple[int, dict[str, str], bytes]
) -> tuple[int, dict[str, str], bytes]:
    """An answer without the numbers that differ from one moment to the next."""
    status, headers, body = answer
    if row.path not in CHANGING or status != 200:
        return answer
    return status, {**headers, "content-length": ""}, re.sub(rb"[0-9.e+-]+", b"0", body)


# Requests.


@cache
def begun_id(path: str) -> str:
    """Of what `begin` begins, where it is the first request to a twin."""

    async def main() -> str:
        [(_, _, body)] = await Twin(fast=True, keys=KEYS).ask(begin(path))
        answer = msgspec.json.decode(body)
        return str(answer.get("bulk_operation_id") or answer.get("batch_id") or answer["id"])

    return trio.run(main, clock=clock_of_tests())


def begin(path: str) -> list[Asked]:
    """A bulk operation that takes long, a batch or a schedule, where a path names one."""
    bulk = {"job_ids": [job_ids()[WAITING]], "action": "cancel", "async": True}
    batch = {"jobs": [{"queue": QUEUE}], "batch": {"callback_queue": QUEUE}}
    for beginning, asked, body in (
        ("/api/v1/bulk/", "/api/v1/jobs/bulk", bulk),
        ("/api/v1/batches/", "/api/v1/enqueue/batch", batch),
        ("/api/v1/schedules/{id}", "/api/v1/schedules", ROWS["post_schedules"].takes_example),
    ):
        if path.startswith(beginning):
            return [request("POST", asked, msgspec.json.encode(body), ADMIN)]
    return []


WITHOUT_SUCCESS: Final = {"/api/v1/admin/backup": "there are no shards here to copy"}


def method_of(row: Route) -> str:
    """The method of a row; of a GET that streams HEAD, whose answer has an end."""
    return "HEAD" if row.is_streamed and row.method == "GET" else row.method


def at(row: Route, job_id: str) -> str:
    """The path of a row with its places filled."""
    is_other = "_job_" in job_id and begin(row.path)
    a_thing = begun_id(row.path) if is_other else job_id
    path = row.path.replace("{job_id}", job_id).replace("{id}", a_thing)
    path = path.replace("{node}", "corvo-4")
    path = path.replace("{name}", QUEUE).replace("{queue}", QUEUE)
    return path.replace("{key_hash}", hash_key("of-a-worker"))


def request(method: str, path: str, body: bytes = b"", *headers: str) -> Asked:
    """A request as most clients send it. Of an open server only its own machine may ask."""
    lines = "".join(f"{header}\r\n" for header in headers)
    length = f"content-length: {len(body)}\r\n" if body or method in {"POST", "PUT"} else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{length}{lines}\r\n"
    return Asked(head.encode("latin-1") + body, method)


def to(row: Route, job_id: str, *headers: str, more: str = "") -> Asked:
    """A right request of a row."""
    path = at(row, job_id) + QUERIES.get(operation_id(row), "") + more
    return request(method_of(row), path, right(row, job_id), *headers)


def right(row: Route, job_id: str) -> bytes:
    """The body of a right request."""
    if row.takes is None:
        return b""
    return msgspec.json.encode(fields_right(row, job_id))


def fields_right(row: Route, job_id: str) -> dict[str, object]:
    """A body that is right, for a job that is there."""
    body = msgspec.json.decode(
        msgspec.json.encode(BODIES.get(operation_id(row), row.takes_example or {}))
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
    fields = msgspec.structs.fields(row.takes) if row.takes is not None else ()
    return [field.encode_name for field in fields]


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


def wrong_queries(row: Route) -> Iterator[str]:
    """Queries of which one parameter is changed."""
    for name in (*(parameter.name for parameter in row.query), "unknown"):
        for value in ("", "0", "-1", "1.5", "1" * 30, "x", "\0", "\ud55c", "x" * 300, "a,,b", "[]"):
            yield f"?{name}={quote(value)}"
        yield f"?{name}"
        yield f"?{name}=1&{name}=2"
        yield f"?{name}=%ff"


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


@ALL
def test_right_requests_are_answered_the_same(row: Route) -> None:
    ids = job_ids()
    key = f"Idempotency-Key: {operation_id(row)}"
    asked = begin(row.path)
    asked += [to(row, each, ADMIN) for each in (*ids, *ids, "s02_job_nobody", "a%20b", "a%2Fb")]
    asked += [to(row, each, ADMIN, key) for each in (ids[3], ids[3], ids[4])]
    asked += [
        to(row, ids[3], ADMIN, "Idempotency-Key: " + text)
        for text in ("", " ", "x" * 64, "x" * 65, "\xe9", "a\tb")
    ]

    answers = both(row, asked, keys=KEYS)

    success = {503} if row.path in WITHOUT_SUCCESS else {200, 201, 202}
    assert success & statuses_of(answers[len(asked) - 36 :])


@ALL
def test_wrong_requests_are_answered_the_same(row: Route) -> None:
    ids = job_ids()
    method, path = method_of(row), at(row, ids[0])
    asked = [request(method, path + query) for query in wrong_queries(row)]
    if row.method == "POST":
        fields = fields_right(row, ids[0]) if row.takes is not None else {}
        whole = msgspec.json.encode(fields)
        bodies = [
            *NO_OBJECTS,
            *(msgspec.json.encode(wrong) for wrong in wrong_bodies(row, fields)),
            *damaged(whole, 80),
        ]
        asked += [
            request(method, at(row, ids[number % JOBS]), data) for number, data in enumerate(bodies)
        ]
    else:
        asked += [request(method, path, data) for data in NO_OBJECTS]

    statuses = statuses_of(both(row, asked))

    assert {400, 413} <= statuses


@ALL
def test_requests_of_all_shapes_are_answered_the_same(row: Route) -> None:
    job_id = job_ids()[0]
    method, path, data = method_of(row), at(row, job_id), right(row, job_id)
    line = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n".encode()
    chunk = f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""
    others = {"HEAD", "PUT", "OPTIONS", "PATCH", "DELETE", "POST", "GET"} - {row.method}
    asked = [
        *(
            request(each, path, data if each in {"PUT", "PATCH"} else b"")
            for each in sorted(others)
            if each != "GET" or not row.is_streamed
        ),
        *(request("PURGE", path, data) for _ in range(2)),
        *(
            request(method, path + end, data)
            for end in ("?", "?x=y", "?x=%ff", "/", "//", "%ff", "%zz", "#a")
        ),
        request(method, path.upper(), data),
        request(method, f"http://localhost:8080{path}", data),
        request(method, f"http://localhost{path}", data),
        to(row, job_id, "content-type: text/plain", "accept: text/html"),
        to(row, job_id, "content-type: application/json; charset=latin-1"),
        to(row, job_id, "content-encoding: gzip"),
        to(row, job_id, "expect: nothing"),
        to(row, job_id, "X-Request-Id: mine"),
        to(row, job_id, "X-Request-Id: not mine"),
        to(row, job_id, "Corvo-Min-Seq: s0=9"),
        to(row, job_id, "Corvo-Min-Seq: nothing"),
        to(row, job_id, "Origin: http://elsewhere"),
        to(row, job_id, "If-None-Match: *"),
        to(row, job_id, "Connection: close"),
        Asked(line + b"transfer-encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n", method),
        Asked(line + b"\r\n", method),
        Asked(line.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n", method),
    ]

    statuses = statuses_of(both(row, asked))

    assert {400, 404, 405} <= statuses


@ALL
def test_who_may_not_is_told_so_in_the_same_words(row: Route) -> None:
    headers = [
        *(f"X-API-Key: {key}" for key in (*KEYS, "of-a-stranger", "", "\xe9")),
        *(f"Authorization: Bearer {key}" for key in (*KEYS, "of-a-stranger", "")),
        *("Authorization: of-a-worker", "Authorization: Basic eDp5", "Cookie: corvo_api_key=x"),
    ]
    asked = [to(row, job_ids()[0]), *(to(row, job_ids()[0], header) for header in headers)]

    answers = both(row, asked, keys=KEYS)

    if row.action is Action.OPEN:
        assert not {401, 403} & statuses_of(answers)
    else:
        assert answers[0][0] == 401


@BY_GET
def test_a_head_is_its_get_without_the_body(row: Route) -> None:
    ids = job_ids()
    headers = ("X-Request-Id: =5a/",)  # as long as the name that `plain` puts in its place
    path = at(row, ids[0]) + QUERIES.get(operation_id(row), "")
    asked = begin(row.path)
    for each in (path, f"{path}?limit=x", f"{path}/nothing/at/all"):
        has_end = not row.is_streamed or "nothing" in each
        asked.append(request("GET" if has_end else "HEAD", each, b"", *headers))
        asked.append(request("HEAD", each, b"", *headers))

    answers = both(row, asked)[-6:]

    for got, head in zip(answers[::2], answers[1::2], strict=True):
        assert head[:2] == got[:2] or row.path in CHANGING
        assert head[2] == b""
        assert head[0] == got[0]
