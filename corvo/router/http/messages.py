"""`Request`, `Response` and `Problem`: the values that both lanes and all endpoints use.

A lane turns bytes into a `Request` and a `Response` into bytes; nothing behind it knows which lane
it was. What goes wrong is raised as a `Problem`, and becomes a response in one place.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from corvo.errors import CorvoError
from corvo.router.caller import NOBODY, Caller
from corvo.router.http import positions

JSON: Final = "application/json"
NOT_APPLIED: Final = "not_applied"
APPLIED: Final = "applied"
UNKNOWN: Final = "unknown"


class FieldWarning(msgspec.Struct, frozen=True):
    """A field or parameter of a request that had no effect."""

    field: str
    warning: str


class Request(msgspec.Struct, kw_only=True, gc=False):
    """One request, its body included."""

    method: str
    path: str
    """As it came, without the query."""
    params: dict[str, str] = {}
    """What stood in the places of the route's path, percent-decoded."""
    query: dict[str, str] = {}
    """Decoded. Each name is there once."""
    headers: dict[str, str] = {}
    """Names in lower case; several of one name are joined with `, `."""
    body: bytes = b""
    peer: str = ""
    """The address that the connection came from, without the port."""
    id: str = ""
    """The request's own id, for logs; the client's when it sent one that can be used."""
    caller: Caller = NOBODY
    decoded: tuple[object, object] | None = None
    """A `Body`, and what it read: see `corvo.router.http.bodies.body_of`."""
    is_strict: bool = False
    """Whether unknown fields are refused."""
    warnings: tuple[FieldWarning, ...] = ()
    """The first fields without effect, to be named in the answer."""
    ignored: int = 0
    """Number of fields without effect."""


class Sink(Protocol):
    """Where an answer that has no end goes."""

    @property
    def is_slow(self) -> bool:
        """Whether the client was cut off because it did not read what was sent."""

    async def send(self, data: bytes) -> None:
        """Bring a piece to the client. Raises `ClientGone`, also for one that is too slow.

        It may return without a checkpoint.
        """


class ClientGone(CorvoError):
    """Nobody reads any more, or not fast enough."""


class Response(msgspec.Struct, kw_only=True, gc=False):
    """What is answered."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    """Not sent with an empty body."""
    headers: list[tuple[str, str]] = []
    """Beside those that every answer has. Names in lower case. Never changed in place."""
    stream: Callable[[Sink], Awaitable[None]] | None = None
    """In the place of a body: sends pieces until it returns, or is cancelled because the client or
    this router leaves. Only a route with `is_streamed` may answer so."""
    undelivered: Callable[[], Awaitable[None]] | None = None
    """To be called by the lane when the client cannot have got the answer: gives claims back."""


class Problem(CorvoError):
    """A request that is not done, or not known to be done: what the client is told."""

    def __init__(
        self,
        status: int,
        code: str,
        error: str,
        *,
        outcome: str = NOT_APPLIED,
        reason: str = "",
        field: str = "",
        job_id: str = "",
        retry_after_ms: int = 0,
        differs: tuple[str, ...] = (),
    ) -> None:
        super().__init__(error)
        self.status = status
        self.code = code
        """In capitals, stable: what programs look at, and the original's where it has one."""
        self.error = error
        """For people: the thing, its state, and what to do."""
        self.outcome = outcome
        self.reason = reason
        """The shard's own code of the refusal, where there is one."""
        self.field = field
        self.job_id = job_id
        self.retry_after_ms = retry_after_ms
        self.differs = differs
        """Fields in which a job that exists differs from the one that was sent."""


def bad_field(field: str, error: str) -> Problem:
    """The problem of an invalid field, parameter or header."""
    return Problem(400, "VALIDATION_ERROR", error, field=field)


def overloaded(error: str, *, retry_after_ms: int = 1_000) -> Problem:
    """The problem of a client that came when a limit was reached."""
    return Problem(429, "OVERLOADED", error, retry_after_ms=retry_after_ms)


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem as JSON."""

    error: str
    code: str
    outcome: str
    reason: str = ""
    field: str = ""
    job_id: str = ""
    retry_after_ms: int = 0
    request_id: str = ""
    differs: tuple[str, ...] = ()


def problem_body(problem: Problem, request_id: str = "") -> ProblemBody:
    """What a client reads of a problem."""
    body = msgspec.convert(problem, ProblemBody, from_attributes=True)
    return msgspec.structs.replace(body, request_id=request_id)


def problem_response(problem: Problem, request_id: str = "") -> Response:
    """A problem as a response, with a `Retry-After` of whole seconds where waiting helps."""
    headers: list[tuple[str, str]] = []
    if problem.retry_after_ms:
        headers.append(("retry-after", str(-(-problem.retry_after_ms // 1_000))))
    if problem.status == 401:
        headers.append(("www-authenticate", "Bearer"))
    elif problem.status == 415:
        headers.append(("accept-encoding", "identity"))
    body = encode_json(problem_body(problem, request_id)) + b"\n"
    return Response(status=problem.status, body=body, headers=headers)


def add_warnings(response: Response, warnings: Sequence[FieldWarning]) -> None:
    """Have an answer name the fields of its request that had no effect.

    Only an object has room for them; beside any other body they are in a header.
    """
    body = response.body.rstrip()
    if response.content_type == JSON and body[:1] == b"{":
        comma = b"" if body == b"{}" else b","
        response.body = body[:-1] + comma + b'"warnings":' + encode_json(warnings) + b"}\n"
        return
    header = json.dumps(msgspec.to_builtins(warnings), separators=(",", ":"))
    response.headers = [*response.headers, ("corvo-warnings", header)]


def json_response(
    value: msgspec.Struct | list[msgspec.Struct] | dict[str, object],
    *,
    status: int = 200,
    reached: Mapping[int, int] | None = None,
    headers: list[tuple[str, str]] | None = None,
) -> Response:
    """A struct as a response. `reached` has the positions that it speaks of, by shard."""
    all_headers = headers or []
    if reached:
        all_headers = [*all_headers, ("corvo-seq", positions.render(reached))]
    return Response(status=status, body=encode_json(value) + b"\n", headers=all_headers)


def raw_response(body: msgspec.Raw | bytes, reached: Mapping[int, int]) -> Response:
    """JSON that another process has rendered, and the positions that it speaks of."""
    headers = [("corvo-seq", positions.render(reached))] if reached else []
    return Response(body=bytes(body) + b"\n", headers=headers)


encode_json: Final = msgspec.json.Encoder().encode
