"""What the span of a request says: the conventions for HTTP, and those for messaging.

https://opentelemetry.io/docs/specs/semconv/messaging/ has the names. What is not there begins with
`messaging.corvo`. Names of spans are few: an id is never a part of one.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from corvo.router.http.messages import Request, Response
from corvo.router.metrics import METHODS, OTHER
from corvo.router.tracing.spans import FAILED, Attributes, Span, links_of
from corvo.trace_context import TraceContext, is_traceparent, is_tracestate

_READ_BYTES_MAX: Final = 1 << 20
"""A larger answer is not read for its ids."""
_SHOWN: Final = 1_024
"""Characters of what clients send."""
_SERVER_ERROR: Final = 500


class Operation(NamedTuple):
    """What a route does, in the words of the conventions."""

    name: str
    type: str
    is_batch: bool = False


def _operations() -> Iterator[tuple[str, Operation]]:
    api = "/api/v1"
    yield f"{api}/enqueue", Operation("enqueue", "send")
    yield f"{api}/enqueue/batch", Operation("enqueue", "send", is_batch=True)
    yield f"{api}/webhooks/{{queue}}", Operation("enqueue", "send")
    yield f"{api}/fetch", Operation("fetch", "receive")
    yield f"{api}/fetch/batch", Operation("fetch", "receive", is_batch=True)
    for name in ("ack", "fail", "release", "snooze"):
        yield f"{api}/{name}/{{job_id}}", Operation(name, "settle")
        yield f"{api}/{name}/batch", Operation(name, "settle", is_batch=True)
    yield f"{api}/heartbeat", Operation("heartbeat", "settle", is_batch=True)


OPERATIONS: Final = dict(_operations())
"""By the path of the route."""


class _Job(msgspec.Struct, frozen=True):
    """What a span shows of a job in an answer."""

    job_id: str | None = None
    queue: str = ""
    traceparent: str = ""
    tracestate: str = ""


class _Answer(_Job, frozen=True):
    jobs: list[_Job] | msgspec.Raw = []


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def describe(span: Span, request: Request, route: str, response: Response) -> None:
    """Fill in the name, attributes, links and status of a request that was answered."""
    method = request.method if request.method in METHODS else "HTTP"
    span.name = method if route == OTHER else f"{method} {route}"
    span.attributes = {
        "http.request.method": request.method if request.method in METHODS else "_OTHER",
        "url.path": request.path[:_SHOWN],
        "http.response.status_code": response.status,
    }
    if route != OTHER:
        span.attributes["http.route"] = route
    _add_sender(span.attributes, request)
    if response.status >= _SERVER_ERROR:
        span.status = FAILED
        span.attributes["error.type"] = str(response.status)
    operation = OPERATIONS.get(route)
    if operation is not None:
        _add_messaging(span, operation, request, response)


def _add_sender(attributes: Attributes, request: Request) -> None:
    if request.peer:
        attributes["client.address"] = request.peer
    host, _, port = request.headers.get("host", "").rpartition(":")
    if host and port.isascii() and port.isdigit():
        attributes["server.address"], attributes["server.port"] = host[:_SHOWN], int(port[:5])
    elif request.headers.get("host"):
        attributes["server.address"] = request.headers["host"][:_SHOWN]
    agent = request.headers.get("user-agent")
    if agent:
        attributes["user_agent.original"] = agent[:_SHOWN]
    attributes["messaging.corvo.request.id"] = request.id


def _add_messaging(span: Span, operation: Operation, request: Request, response: Response) -> None:
    attributes = span.attributes
    attributes["messaging.system"] = "corvo"
    attributes["messaging.operation.name"] = operation.name
    attributes["messaging.operation.type"] = operation.type
    body: object = request.decoded[1] if request.decoded is not None else None
    answer = _read(response)
    answered = answer.jobs if isinstance(answer.jobs, list) else []
    asked = _items(body)
    queues = dict.fromkeys(
        [
            *_texts(body, "queue"),
            *(queue for item in asked for queue in _texts(item, "queue")),
            *(job.queue for job in (answer, *answered) if job.queue),
            *filter(None, [request.params.get("queue")]),
        ]
    )
    if len(queues) == 1:
        [attributes["messaging.destination.name"]] = queues
    job_id = answer.job_id or request.params.get("job_id")
    if job_id:
        attributes["messaging.message.id"] = job_id
    if operation.is_batch:
        count = len(answered) if operation.type == "receive" else len(asked)
        attributes["messaging.batch.message_count"] = count
    worker = next(iter(_texts(body, "worker_id")), "")
    if worker:
        attributes["messaging.client.id"] = worker
    # One span for several traces: each job's context is a link. The sender's own is the parent.
    contexts = dict.fromkeys(_contexts([body, *asked, answer, *answered]))
    span.links = links_of(contexts)


def _read(response: Response) -> _Answer:
    if response.status < 300 and 0 < len(response.body) <= _READ_BYTES_MAX:
        try:
            return _decode_answer(response.body)
        except msgspec.DecodeError:
            pass  # it has another form
    return _Answer()


def _items(body: object) -> list[object]:
    """The items of a request with many."""
    for name in ("jobs", "acks", "fails"):
        found = getattr(body, name, None)
        if isinstance(found, list | dict):
            return list(found)
    return []


def _texts(holder: object, name: str) -> list[str]:
    found = getattr(holder, name, None)
    return [found] if isinstance(found, str) and found else []


def _contexts(holders: Iterable[object]) -> Iterator[TraceContext]:
    for holder in holders:
        for parent in _texts(holder, "traceparent"):
            if is_traceparent(parent):
                state = next(iter(_texts(holder, "tracestate")), "")
                yield TraceContext(parent, state if is_tracestate(state) else "")
