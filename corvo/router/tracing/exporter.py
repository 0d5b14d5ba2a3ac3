"""`Exporter`: sends spans to a receiver of OTLP over HTTP, in the background.

    add  ->  a bounded queue  ->  batches  ->  POST, again after a pause if that may help

No request waits for it. What does not fit into the queue is dropped and counted.
"""

import secrets
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import h11
import msgspec
import trio

from corvo.otel_settings import TraceSettings
from corvo.router.tracing.otlp import rejected, request_of
from corvo.router.tracing.spans import Span, Value
from corvo.telemetry import SILENT, Log

TRIES: Final = 5
"""Attempts to send one batch."""
_FIRST_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 30.0
_LAST_S: Final = 2.0
"""For what is left when the router stops."""
_ANSWER_BYTES_MAX: Final = 64 << 10
_CHUNK_BYTES: Final = 16 << 10
_AGAIN: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the specification has a batch sent again."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of the receiver; status 0 if there was none."""

    status: int
    body: bytes = b""
    retry_after_s: float = 0.0
    error: str = ""


class Exporter:
    """Takes spans, and sends them."""

    def __init__(self, settings: TraceSettings, resource: Mapping[str, Value]) -> None:
        self.exported = 0
        """Spans that the receiver has taken."""
        self.dropped = 0
        """Spans that did not fit into the queue, or could not be sent."""
        self._settings = settings
        self._resource: dict[str, Value] = {**resource, **settings.resource}
        self._queue: deque[Span] = deque()
        self._is_enough = trio.Event()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._tls: ssl.SSLContext | None = None
        self._is_failing = False
        self._log = SILENT

    def waiting(self) -> list[Span]:
        """The spans that wait to be sent."""
        return [*self._queue]

    def add(self, span: Span) -> None:
        """Take a span that has ended."""
        if len(self._queue) >= self._settings.queue_max:
            self.dropped += 1
            return
        self._queue.append(span)
        if len(self._queue) >= self._settings.batch_max:
            self._is_enough.set()

    async def run(self, log: Log = SILENT) -> None:
        """Send batches, until `stop` was called and the rest is sent."""
        self._log = log
        for reason in self._settings.ignored:
            log.warning("traces.ignored_setting", reason=reason)
        try:
            while not self._stopping.is_set():
                with trio.move_on_after(self._settings.delay_ms / 1_000):
                    await self._is_enough.wait()
                self._is_enough = trio.Event()
                await self._send_all()
            await self._send_all()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Send what is left, once and within a short time."""
        self._stopping.set()
        self._is_enough.set()
        with trio.move_on_after(_LAST_S):
            await self._ended.wait()

    async def _send_all(self) -> None:
        while self._queue:
            count = min(len(self._queue), self._settings.batch_max)
            await self._send([self._queue.popleft() for _ in range(count)])

    async def _send(self, spans: list[Span]) -> None:
        body = request_of(spans, self._resource)
        answer = await self._post(body)
        pause_s = _FIRST_PAUSE_S
        for _ in range(TRIES - 1):
            may_help = not answer.status or answer.status in _AGAIN
            if not may_help or self._stopping.is_set():
                break
            self._tell(answer)
            jitter = 0.5 + secrets.randbelow(1_000) / 1_000
            wait_s = answer.retry_after_s or pause_s * jitter
            with trio.move_on_after(min(wait_s, _PAUSE_S_MAX)):
                await self._stopping.wait()
            pause_s *= 2
            answer = await self._post(body)
        if 200 <= answer.status < 300:
            refused, why = rejected(answer.body)
            refused = min(refused, len(spans))
            self.exported += len(spans) - refused
            self.dropped += refused
            if refused:
                self._log.warning("traces.rejected", spans=refused, reason=why)
            self._is_failing = False
        else:
            self.dropped += len(spans)
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        """Log that batches are not taken, once until one is."""
        if not self._is_failing:
            self._is_failing = True
            self._log.warning(
                "traces.not_sent",
                endpoint=_shown(self._settings.endpoint),
                status=answer.status,
                error=answer.error,
            )

    async def _post(self, body: bytes) -> Answer:
        answer = Answer(0, error=f"no answer within {self._settings.timeout_ms} ms")
        with trio.move_on_after(self._settings.timeout_ms / 1_000):
            try:
                if self._tls is None and self._settings.endpoint.startswith("https"):
                    # Once: it reads all certificates of the system.
                    certificates = self._settings.certificate or None
                    self._tls = ssl.create_default_context(cafile=certificates)
                answer = await post(self._settings, self._tls, body)
            except (OSError, trio.BrokenResourceError, h11.ProtocolError, UnicodeError) as error:
                answer = Answer(0, error=str(error) or repr(error))
        return answer


def _shown(endpoint: str) -> str:
    """An endpoint without what may be a secret."""
    url = urlsplit(endpoint)
    return f"{url.scheme}://{url.hostname}:{_port(endpoint)}{url.path}"


def _port(endpoint: str) -> int:
    url = urlsplit(endpoint)
    return url.port or (443 if url.scheme == "https" else 80)


async def post(settings: TraceSettings, tls: ssl.SSLContext | None, body: bytes) -> Answer:
    """Send one request on a connection of its own. Raises what connections raise."""
    url = urlsplit(settings.endpoint)
    host = url.hostname or ""
    stream: trio.abc.Stream = await trio.open_tcp_stream(host, _port(settings.endpoint))
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    async with stream:
        connection = h11.Connection(h11.CLIENT)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = [
            ("host", url.netloc.rpartition("@")[2]),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("user-agent", "corvo"),
            ("connection", "close"),
            *settings.headers,
        ]
        request = h11.Request(method="POST", target=target, headers=headers)
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            await stream.send_all(connection.send(event) or b"")
        return await _answer(stream, connection)


async def _answer(stream: trio.abc.Stream, connection: h11.Connection) -> Answer:
    status, retry_after_s, parts, size = 0, 0.0, [], 0
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(_CHUNK_BYTES)))
            case h11.Response():
                status = event.status_code
                after = dict(event.headers).get(b"retry-after", b"")
                retry_after_s = float(after) if after.isdigit() else 0.0
            case h11.Data():
                size += len(event.data)
                if size <= _ANSWER_BYTES_MAX:
                    parts.append(bytes(event.data))
            case h11.EndOfMessage():
                return Answer(status, b"".join(parts), retry_after_s)
            case h11.ConnectionClosed() | h11.PAUSED:
                return Answer(0, error="the connection was closed without an answer")
            case _:
                pass  # an answer before the final one, such as 100
