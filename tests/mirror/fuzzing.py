"""Anything at all for the endpoints that need the mirror of a real node: no 5xx, no lies.

Jobs are enqueued once, with every odd text wherever a text can be, and are not touched then: so
what a filter finds is known. The short form is a test; `python -m tests.mirror fuzz --minutes N` is
the long one.
"""

import http.client
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from corvo.plans import Programs
from tests.mirror import evaluator, jq_examples
from tests.mirror.test_injection import EVIL
from tests.support.nodes import ROOT, Told

JOBS: Final = 300
_READY_S: Final = 60.0
_QUEUES: Final = ("mail", "sms", "ünïcode", "a.b", "it's")
_KINDS: Final = ("", "letter", "' OR 1=1 --")
_PRIORITIES: Final = ("critical", "high", "normal")
_HEADERS: Final = {"content-type": "application/json"}
_FULL: Final = 1_000

texts = st.one_of(st.sampled_from(EVIL), st.text(max_size=20)).filter(bool)
short = st.one_of(st.sampled_from([text for text in EVIL if len(text) < 100]), st.text(max_size=8))


@dataclass
class Answer:
    status: int
    body: bytes
    position: str = ""


class Client:
    """One connection to a node."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        self._connection.request(method, target, body, {**_HEADERS, **headers})
        response = self._connection.getresponse()
        return Answer(response.status, response.read(), response.headers.get("corvo-seq", ""))

    def close(self) -> None:
        self._connection.close()


@dataclass
class Known:
    """A job as it was enqueued."""

    id: str
    queue: str
    payload: str
    kind: str
    priority: str
    tags: dict[str, str]


@dataclass
class Seen:
    """What came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    found: int = 0


class Named(msgspec.Struct):
    id: str


class Page(msgspec.Struct):
    jobs: list[msgspec.Raw]
    total: int
    total_is_exact: bool
    partial: bool = False


class Log:
    """What a node says, read by a thread of its own until nobody is left who could say anything."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.events: list[dict[str, object]] = []
        self.is_ready = threading.Event()
        self._process = process
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                event = msgspec.json.decode(line, type=dict[str, object])
            except msgspec.DecodeError:
                event = {"event": "last words", "level": "error", "text": line.decode()}
            self.events.append(event)
            if event["event"] == "node.ready":
                self.is_ready.set()
        self.is_ready.set()

    @property
    def address(self) -> str:
        assert self.is_ready.wait(_READY_S), self.events
        [ready] = [event for event in self.events if event["event"] == "node.ready"]
        listening = ready["listening"]
        assert isinstance(listening, list)
        return str(listening[0]).removeprefix("http://")


@contextmanager
def node(directory: Path) -> Iterator[tuple[Client, list[dict[str, object]]]]:
    """A real node, and what it has logged, which is complete once it is over."""
    settings_given = {"data_dir": str(directory / "d"), "shards": "2", "durability": "relaxed"}
    # A search that takes long is no fault here.
    settings_given |= {"limits.search_ms_max": "60s", "mirror.niceness": "0"}
    told = Told({"bind": "127.0.0.1:0", "log_format": "json", **settings_given}, Programs())
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.nodes", msgspec.json.encode(told).decode()],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        log = Log(process)
        try:
            client = Client(log.address)
            yield client, log.events
            client.close()
        finally:
            process.terminate()
            log.thread.join()


# Jobs.


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    text = draw(texts)
    payload = draw(
        st.one_of(
            jq_examples.payloads(),
            st.just(msgspec.json.encode({"text": text, text: [text], "n": len(text)}).decode()),
        )
    )
    return {
        "queue": draw(st.sampled_from(_QUEUES)),
        "payload": msgspec.Raw(payload.encode()),
        "kind": draw(st.sampled_from(_KINDS)),
        "priority": draw(st.sampled_from(_PRIORITIES)),
        "tags": draw(st.dictionaries(short.filter(bool), short, max_size=2)),
    }


def enqueue(client: Client, number: int) -> list[Known]:
    """Jobs by chance; those that the door refuses are passed over."""
    known: list[Known] = []

    @seed(number)
    @settings(max_examples=JOBS, database=None, deadline=None, phases=[Phase.generate])
    @given(jobs())
    def one(job: dict[str, object]) -> None:
        body = msgspec.json.encode({key: value for key, value in job.items() if value != ""})
        answer = client.ask("POST", "/api/v1/enqueue", body)
        assert answer.status < 500, (job, answer)
        if answer.status >= 300:
            return
        told = msgspec.json.decode(answer.body, type=dict[str, object])
        raw = job["payload"]
        tags = job["tags"]
        assert isinstance(raw, msgspec.Raw)
        assert isinstance(tags, dict)
        known.append(
            Known(
                str(told["job_id"]),
                str(job["queue"]),
                bytes(raw).decode(),
                str(job["kind"]),
                str(job["priority"]),
                tags,
            )
        )

    one()
    return known


# Questions of which the answer is known.


@st.composite
def filters(draw: st.DrawFn) -> tuple[dict[str, object], list[Callable[[Known], bool]]]:
    wanted: dict[str, object] = {}
    conditions: list[Callable[[Known], bool]] = []
    names = ("queue", "kind", "priority", "tags", "payload_contains", "payload_jq", "state")
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        value, condition = draw(_field(name))
        wanted[name] = value
        conditions.append(condition)
    return wanted, conditions


@st.composite
def _field(draw: st.DrawFn, name: str) -> tuple[object, Callable[[Known], bool]]:
    if name == "payload_jq":
        tree = draw(jq_examples.trees())
        source = draw(jq_examples.written(tree))
        return source, lambda job: evaluator.matches(tree, job.payload)
    if name == "payload_contains":
        text = draw(texts)
        return text, lambda job: text in job.payload
    if name == "tags":
        tags = draw(st.dictionaries(short.filter(bool), short, min_size=1, max_size=1))
        return tags, lambda job: tags.items() <= job.tags.items()
    if name == "state":
        states = draw(st.lists(st.sampled_from(("pending", "dead")), min_size=1, max_size=2))
        return states, lambda _: "pending" in states
    choices = {"queue": _QUEUES, "kind": _KINDS[1:], "priority": _PRIORITIES}[name]
    word = draw(st.sampled_from((*choices, *(() if name == "priority" else EVIL[:20]))))
    return word, lambda job: getattr(job, name) == word


def compare(client: Client, known: list[Known], position: str, asked: "Asked", seen: Seen) -> None:
    wanted, conditions = asked
    body = msgspec.json.encode({**wanted, "limit": _FULL})
    answer = client.ask("POST", "/api/v1/jobs/search", body, **{"corvo-min-seq": position})
    seen.statuses[f"search {answer.status}"] += 1
    if answer.status == 400:
        refused = msgspec.json.decode(answer.body, type=dict[str, object])
        error = str(refused["error"])
        assert any(word in error for word in jq_examples.REFUSALS), (asked, error)
        return
    assert answer.status == 200, (asked, answer)
    page = msgspec.json.decode(answer.body, type=Page)
    found = {msgspec.json.decode(job, type=Named).id for job in page.jobs}
    expected = {job.id for job in known if all(holds(job) for holds in conditions)}
    assert found == expected, (asked, found ^ expected)
    assert page.total == len(expected)
    assert page.total_is_exact
    assert not page.partial
    seen.compared += 1
    seen.found += len(found)


Asked = tuple[dict[str, object], list[Callable[[Known], bool]]]


# Questions that make no sense.

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FIELDS: Final = (
    *("queue", "state", "kind", "priority", "tags", "payload_contains", "payload_jq", "limit"),
    *("error_contains", "has_errors", "unique_key", "batch_id", "worker_id", "parent_id", "cursor"),
    *("chain_id", "job_id_prefix", "created_after", "created_before", "scheduled_after", "sort"),
    *("started_before", "completed_after", "expire_before", "attempt_min", "attempt_max", "order"),
    "dlq_reason",
)
TARGETS: Final = (
    *("/api/v1/jobs", "/api/v1/search/fulltext", "/api/v1/summary", "/api/v1/queues"),
    *("/api/v1/workers", "/api/v1/metrics/throughput"),
)


@st.composite
def nonsense(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    """A method, a target, a body and headers."""
    headers = draw(
        st.just({})
        | st.fixed_dictionaries(
            {"corvo-min-seq": st.sampled_from(("", "s0=1", "s0=-1", "s9=1", "x", "s0=1,s0=2", "0"))}
        )
    )
    kind = draw(st.sampled_from(("search", "bytes", "query", "words", "id", "bulk")))
    if kind == "search":
        fields = draw(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=3))
        return "POST", "/api/v1/jobs/search", msgspec.json.encode(fields), headers
    if kind == "bytes":
        return "POST", "/api/v1/jobs/search", draw(st.binary(max_size=60)), headers
    if kind == "words":
        query = urlencode({"q": draw(texts), "limit": draw(st.sampled_from(("1", "0", "x", "50")))})
        return "GET", f"/api/v1/search/fulltext?{query}", None, headers
    if kind == "id":
        name = quote(draw(texts)[:200], safe="")
        end = draw(st.sampled_from(("", "/timeline")))
        return "GET", f"/api/v1/jobs/{name}{end}", None, headers
    if kind == "bulk":
        fields = draw(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=2))
        action = draw(st.sampled_from(("retry", "delete", "cancel", "move", "hold")) | texts)
        body = {"filter": fields, "action": action, "dry_run": True, "move_to_queue": "x"}
        return "POST", "/api/v1/jobs/bulk", msgspec.json.encode(body), headers
    names = st.sampled_from((*FIELDS, "q", "minutes", "queue", "tag.x"))
    query = urlencode(
        {key: value[:300] for key, value in draw(st.dictionaries(names, texts)).items()}
    )
    return "GET", f"{draw(st.sampled_from(TARGETS))}?{query}", None, headers


def bear(client: Client, asked: tuple[str, str, bytes | None, dict[str, str]], seen: Seen) -> None:
    method, target, body, headers = asked
    answer = client.ask(method, target, body, **headers)
    what = "/".join(target.partition("?")[0].split("/")[3:4])
    seen.statuses[f"{method} {what} {answer.status}"] += 1
    # A position to which the shards have not come is waited for, and not reached.
    is_early = answer.status == 503 and b"NOT_CAUGHT_UP" in answer.body
    assert answer.status < 500 or is_early, (asked, answer)
    # Whatever else is the matter, it is told in JSON.
    msgspec.json.decode(answer.body, type=msgspec.Raw)


# Rounds.


def fuzz(directory: Path, *, examples: int, number: int = 1, minutes: float = 0.0) -> Seen:
    """Ask so many questions of either kind, and again until the time is over."""
    seen = Seen()
    until = time.monotonic() + 60 * minutes
    with node(directory) as (client, events):
        known = enqueue(client, number)
        position = _position(client)
        while True:
            _round(client, known, position, seen, examples=examples, number=number)
            number += 1
            if time.monotonic() >= until:
                break
        _round_is_over(client, known)
    broken = [
        event
        for event in events
        if event.get("level") in {"error", "critical"} and event["event"] != "loop.stuck"
    ]
    assert not broken, broken
    return seen


def _round(
    client: Client, known: list[Known], position: str, seen: Seen, *, examples: int, number: int
) -> None:
    tried = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    @seed(number)
    @tried
    @given(filters())
    def comparing(asked: Asked) -> None:
        compare(client, known, position, asked, seen)

    @seed(number)
    @tried
    @given(nonsense())
    def bearing(asked: tuple[str, str, bytes | None, dict[str, str]]) -> None:
        bear(client, asked, seen)

    comparing()
    bearing()


def _position(client: Client) -> str:
    """Behind all jobs, by one more in a queue of each shard, which are gone again."""
    places: dict[str, str] = {}
    number = 0
    while len(places) < 2:
        body = msgspec.json.encode({"queue": f"marker{number}", "payload": {}})
        answer = client.ask("POST", "/api/v1/enqueue", body)
        told = msgspec.json.decode(answer.body, type=dict[str, object])
        job_id = str(told["job_id"])
        gone = client.ask("DELETE", f"/api/v1/jobs/{job_id}")
        assert gone.status < 300, gone
        shard, _, _ = gone.position.partition("=")
        places[shard] = gone.position
        number += 1
    return ",".join(places.values())


def _round_is_over(client: Client, known: list[Known]) -> None:
    """Nothing of all that has changed a job."""
    answer = client.ask("POST", "/api/v1/jobs/search", b'{"state": ["pending"], "limit": 1000}')
    page = msgspec.json.decode(answer.body, type=Page)
    assert {msgspec.json.decode(job, type=Named).id for job in page.jobs} == {
        job.id for job in known
    }
