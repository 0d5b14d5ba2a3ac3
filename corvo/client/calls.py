"""`Client`: requests to a server, or to the nodes of a cluster, each tried until one answers.

Any node serves every request. A client uses one address until it fails, then the next one, also if
a node takes connections and does not answer. A change is only repeated after an unknown outcome if
it has a request key: see `corvo.client.repeats`.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from corvo import __version__
from corvo.client.connections import NO_ANSWER, Answer, Connection, Lost, NotSent
from corvo.client.errors import (
    NOT_APPLIED,
    UNKNOWN,
    BadClientOption,
    ClientError,
    RequestFailed,
    Unreachable,
)
from corvo.client.repeats import (
    CONNECT_S,
    ROUNDS,
    Limits,
    ends_round,
    is_repeatable,
    limits,
    may_repeat,
    pause_ms,
)
from corvo.client.servers import Server, parse_servers
from corvo.trace_context import TraceContext

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
"""Time limit of a request with all of its repeats."""
_ERROR_CHARS_MAX: Final = 300


class _Problem(msgspec.Struct, frozen=True):
    """The body of an error."""

    error: str
    code: str = ""
    outcome: str = ""
    reason: str = ""
    field: str = ""
    retry_after_ms: int = 0
    request_id: str = ""


class _Call(msgspec.Struct, frozen=True):
    """A request, ready to be sent to any server."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    is_repeatable: bool
    is_read: bool = False
    """Whether it changes nothing."""
    wait_s: float = 0.0
    """How long the server may wait before it answers; on top of the time limit."""


def new_request_key() -> str:
    """A request key for a change, so that it can be repeated without a second effect."""
    return secrets.token_hex(16)


def segment(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def read(answer: Answer, kind: type[T]) -> T:
    """The body of an answer, with the fields that the client knows. Raises `ClientError`."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise ClientError(
            "BAD_ANSWER",
            f"the answer of the server cannot be read: {error}",
            hints=["the address is not that of a Corvo server, or its version is another one"],
            outcome=UNKNOWN,
        ) from error


class Client:
    """Requests to the nodes of one cluster. For one thread at a time."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        api_key: str = "",
        timeout_s: float = TIMEOUT_S,
        trace: TraceContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`trace` is the trace that all requests are part of. Raises `BadClientOption`."""
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise BadClientOption("the API key has invalid characters: use printable ASCII")
        if timeout_s <= 0:
            raise BadClientOption("the time limit is not above 0: pass one such as 30s")
        self._connections = [Connection(server) for server in parse_servers(servers)]
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._headers = {"Accept": "application/json", "User-Agent": f"corvo/{__version__}"}
        if api_key:
            self._headers["X-API-Key"] = api_key
        if trace is not None:
            self._headers["traceparent"] = trace.traceparent
            if trace.tracestate:
                self._headers["tracestate"] = trace.tracestate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    @property
    def server(self) -> Server:
        """The address that is used now."""
        return self._connections[0].server

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Answer:
        """Read something. Raises `ClientError`."""
        if query:
            path = f"{path}?{urlencode(query)}"
        return self._run(_Call("GET", path, b"", self._headers, is_repeatable=True, is_read=True))

    def query(self, path: str, body: object, *, min_seq: str = "") -> Answer:
        """Read something by a POST, which changes nothing. Raises `ClientError`.

        The answer includes the changes up to `min_seq`, the `Corvo-Seq` of an earlier answer.
        """
        data = msgspec.json.encode(body)
        headers = {**self._headers, "Content-Type": "application/json"}
        if min_seq:
            headers["Corvo-Min-Seq"] = min_seq
        return self._run(_Call("POST", path, data, headers, is_repeatable=True, is_read=True))

    def stream(self, path: str, query: Mapping[str, str | int], silent_s: float) -> Iterator[bytes]:
        """Lines of an answer that does not end, from the first server that answers.

        It ends with the answer, or without a byte for `silent_s`. Raises `ClientError`.
        """
        if query:
            path = f"{path}?{urlencode(query)}"
        run = _Run(_Call("GET", path, b"", self._headers, is_repeatable=True, is_read=True), 0.0)
        for _ in range(len(self._connections)):
            connection = self._connections[0]
            try:
                got = connection.lines(path, self._headers, connect_s=CONNECT_S, silent_s=silent_s)
                if isinstance(got, Answer):
                    raise problem_of(got, connection.server.url)
                with suppress(Lost):
                    yield from got
            except (NotSent, Lost) as error:
                run.silent(connection, error)
                self._connections.append(self._connections.pop(0))
            else:
                return
        raise run.error()

    def download(self, path: str, body: object, silent_s: float) -> Iterator[bytes]:
        """A large answer to a POST that changes nothing, from the first server that answers.

        Raises `ClientError`, also for an answer that is cut short.
        """
        data = msgspec.json.encode(body)
        headers = {**self._headers, "Accept": "*/*", "Content-Type": "application/json"}
        call = _Call("POST", path, data, headers, is_repeatable=True, is_read=True)
        run = _Run(call, 0.0)
        for _ in range(len(self._connections)):
            connection = self._connections[0]
            try:
                got = connection.pieces(path, data, headers, connect_s=CONNECT_S, silent_s=silent_s)
            except (NotSent, Lost) as error:
                run.silent(connection, error)
                self._connections.append(self._connections.pop(0))
                continue
            if isinstance(got, Answer):
                raise problem_of(got, connection.server.url)
            try:
                yield from got
            except Lost as error:
                run.silent(connection, error)
                raise run.error() from error
            return
        raise run.error()

    def pause(self, pause_s: float) -> None:
        """Wait before something is asked again."""
        self._sleep(pause_s)

    def abort(self) -> None:
        """End the requests of another thread: they have no answer."""
        for connection in self._connections:
            connection.abort()

    def change(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        request_key: str = "",
        wait_s: float = 0.0,
    ) -> Answer:
        """Change something. Raises `ClientError`.

        Without a request key the change is not repeated once it was sent, and its outcome may be
        unknown. The server may wait for `wait_s` before it answers.
        """
        data = b"" if body is None else msgspec.json.encode(body)
        headers = dict(self._headers)
        if data:
            headers["Content-Type"] = "application/json"
        if request_key:
            headers["Idempotency-Key"] = request_key
        is_safe = is_repeatable(method, request_key)
        return self._run(_Call(method, path, data, headers, is_safe, wait_s=wait_s))

    def _run(self, call: _Call) -> Answer:
        ends_at = time.monotonic() + self._timeout_s + call.wait_s
        run = _Run(call, ends_at)
        for finished in range(ROUNDS):
            answer = self._round(run, finished)
            if answer is not None:
                return answer
            pause_s = pause_ms(finished + 1, run.failed) / 1_000
            if finished + 1 == ROUNDS or time.monotonic() + pause_s >= ends_at:
                break
            self._sleep(pause_s)
        raise run.error()

    def _round(self, run: "_Run", finished: int) -> Answer | None:
        """Try all addresses; None when the request may be tried again later."""
        run.begin_round()
        addresses = len(self._connections)
        for tried in range(addresses):
            left_s = run.ends_at - time.monotonic()
            if left_s <= 0:
                return None
            allowed = limits(
                left_s,
                addresses=addresses,
                tried=tried,
                finished=finished,
                wait_s=run.call.wait_s,
            )
            connection = self._connections[0]
            try:
                answer = run.attempt(connection, allowed)
            except Unreachable:
                self._connections.append(self._connections.pop(0))  # for the next request
                raise
            if answer is not None:
                return answer
            if run.failed is not None and ends_round(run.failed):
                return None
            self._connections.append(self._connections.pop(0))
        return None


class _Run:
    """One request while it is tried."""

    def __init__(self, call: _Call, ends_at: float) -> None:
        self.call: Final = call
        self.ends_at: Final = ends_at
        self.failed: RequestFailed | None = None
        """The last error that a server has answered with in this round."""
        self._silent: dict[str, str] = {}
        """By address that has not answered, why."""
        self._was_lost = False

    def begin_round(self) -> None:
        """Forget the error of the round before."""
        self.failed = None

    def attempt(self, connection: Connection, allowed: Limits) -> Answer | None:
        """Send the request once; None when it may be tried again. Raises `ClientError`."""
        call, url = self.call, connection.server.url
        try:
            answer = connection.send(
                call.method,
                call.path,
                call.body,
                call.headers,
                connect_s=allowed.connect_s,
                timeout_s=allowed.answer_s,
            )
        except NotSent as error:
            self.silent(connection, error)
            return None
        except Lost as error:
            self.silent(connection, error)
            self._was_lost = True
            if not call.is_repeatable:
                raise self.error() from error
            return None
        if answer.status < 300:
            return answer
        self.failed = problem_of(answer, url)
        if not may_repeat(self.failed, is_repeatable=call.is_repeatable):
            raise self.failed
        self._was_lost = self._was_lost or self.failed.outcome == UNKNOWN
        return None

    def silent(self, connection: Connection, error: NotSent | Lost) -> None:
        """Note that an address has not answered."""
        self._silent[connection.server.url] = str(error)

    def error(self) -> ClientError:
        """The error of a request that is not tried again."""
        is_unknown = self._was_lost and not self.call.is_read
        if self.failed is not None:
            if is_unknown:  # what was answered concerns the last attempt alone
                self.failed.outcome = UNKNOWN
            return self.failed
        told = "; ".join(f"{url} ({why})" for url, why in self._silent.items()) or "no time left"
        is_slow = any(why.startswith(NO_ANSWER) for why in self._silent.values())
        hints = []
        if is_unknown:
            then = "repeat it when a server is back"
            if not self.call.is_repeatable:
                then = "check before you repeat it"
            hints.append(f"the change may have taken effect; {then}")
        if is_slow:
            hints.append("a server that is starting, or busy, answers later:   --timeout 5m")
        elif not is_unknown:
            hints.append("is a server running there?   corvo server, or corvo dev to try it")
        hints.append("another address:   --server HOST:PORT[,HOST:PORT], or CORVO_SERVER")
        return Unreachable(
            "OUTCOME_UNKNOWN" if is_unknown else "UNREACHABLE",
            f"no answer from {told}",
            hints=hints,
            outcome=UNKNOWN if is_unknown else NOT_APPLIED,
        )


def problem_of(answer: Answer, url: str) -> RequestFailed:
    """An answer with an error, as an error."""
    try:
        body = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.DecodeError:
        where = answer.headers.get("location", "")
        about = f"it redirects to {where[:_ERROR_CHARS_MAX]}" if where else "its answer has no code"
        return RequestFailed(
            answer.status,
            f"HTTP_{answer.status}",
            f"{url} answered {answer.status}: {about}",
            outcome=UNKNOWN,
            hints=["the address may be that of a proxy, or of another program"],
        )
    return RequestFailed(
        answer.status,
        body.code or f"HTTP_{answer.status}",
        body.error,
        outcome=body.outcome or UNKNOWN,
        reason=body.reason,
        field=body.field,
        retry_after_ms=body.retry_after_ms,
        request_id=body.request_id or answer.headers.get("x-request-id", ""),
    )
