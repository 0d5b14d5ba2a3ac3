"""A receiver of OTLP over HTTP on a loopback socket, which takes only what the mapping allows."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

import h11
import msgspec
import trio

_HEX_16: Final = re.compile("[0-9a-f]{16}")
_HEX_32: Final = re.compile("[0-9a-f]{32}")
_INT_64: Final = re.compile("-?[0-9]{1,20}")


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    pass


class AnyValue(_Strict, frozen=True, kw_only=True):
    string_value: str | None = None
    int_value: str | None = None  # of 64 bits: a text
    bool_value: bool | None = None
    double_value: float | None = None
    array_value: "ArrayValue | None" = None

    def __post_init__(self) -> None:
        given = [getattr(self, name) for name in self.__struct_fields__]
        assert sum(value is not None for value in given) == 1, "it is one of"
        assert self.int_value is None or _INT_64.fullmatch(self.int_value)

    @property
    def value(self) -> object:
        if self.int_value is not None:
            return int(self.int_value)
        if self.array_value is not None:
            return [each.value for each in self.array_value.values]
        return next(
            value
            for value in (self.string_value, self.bool_value, self.double_value)
            if value is not None
        )


class ArrayValue(_Strict, frozen=True, kw_only=True):
    values: list[AnyValue]


class KeyValue(_Strict, frozen=True, kw_only=True):
    key: str
    value: AnyValue


def attributes_of(found: list[KeyValue]) -> dict[str, object]:
    made = {each.key: each.value.value for each in found}
    assert len(made) == len(found), "each name is there once"
    return made


class Link(_Strict, frozen=True, kw_only=True):
    trace_id: str
    span_id: str
    trace_state: str = ""
    flags: int
    attributes: list[KeyValue] = []

    def __post_init__(self) -> None:
        assert _HEX_32.fullmatch(self.trace_id)
        assert _HEX_16.fullmatch(self.span_id)
        assert 0 <= self.flags < 1 << 32


class Status(_Strict, frozen=True, kw_only=True):
    code: Literal[0, 1, 2]
    message: str = ""


class Span(_Strict, frozen=True, kw_only=True):
    trace_id: str
    span_id: str
    trace_state: str = ""
    parent_span_id: str = ""
    flags: int
    name: str
    kind: Literal[1, 2, 3, 4, 5]
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[KeyValue] = []
    links: list[Link] = []
    status: Status = Status(code=0)

    def __post_init__(self) -> None:
        assert _HEX_32.fullmatch(self.trace_id)
        assert _HEX_16.fullmatch(self.span_id)
        assert not self.parent_span_id or _HEX_16.fullmatch(self.parent_span_id)
        assert 0 <= self.flags < 1 << 32
        assert self.name
        assert 0 < int(self.start_time_unix_nano) <= int(self.end_time_unix_nano)

    @property
    def says(self) -> dict[str, object]:
        """Its attributes."""
        return attributes_of(self.attributes)


class Scope(_Strict, frozen=True, kw_only=True):
    name: str
    version: str


class ScopeSpans(_Strict, frozen=True, kw_only=True):
    scope: Scope
    spans: list[Span]


class Resource(_Strict, frozen=True, kw_only=True):
    attributes: list[KeyValue]


class ResourceSpans(_Strict, frozen=True, kw_only=True):
    resource: Resource
    scope_spans: list[ScopeSpans]


class ExportTraceServiceRequest(_Strict, frozen=True, kw_only=True):
    resource_spans: list[ResourceSpans]

    @property
    def spans(self) -> list[Span]:
        return [
            span for of in self.resource_spans for scope in of.scope_spans for span in scope.spans
        ]


decode: Final = msgspec.json.Decoder(ExportTraceServiceRequest).decode


class Receiver:
    """Takes requests, and answers with what a test has set."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.targets: list[str] = []
        self.answers: list[bytes] = []
        """What the next requests are answered with; behind the last one all is well."""
        self.port = 0
        self._changed = trio.Event()

    @property
    def url(self) -> str:
        """The base, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [span for request in self.requests for span in request.spans]

    async def take(self, count: int) -> list[Span]:
        """Wait for so many spans."""
        while len(self.spans) < count:
            await self._changed.wait()
        return self.spans

    async def asked(self, count: int) -> None:
        """Wait for so many requests."""
        while len(self.targets) < count:
            await self._changed.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        connection = h11.Connection(h11.SERVER)
        body = b""
        async with stream:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(bytes(await stream.receive_some(65_536)))
                elif isinstance(event, h11.Request):
                    self.targets.append(f"{event.method.decode()} {event.target.decode()}")
                    names = {name.decode(): value.decode() for name, value in event.headers}
                    self.headers.append(names)
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            if isinstance(event, h11.EndOfMessage):
                answer = self.answers.pop(0) if self.answers else OK
                if answer.startswith(b"HTTP/1.1 200"):
                    self.bodies.append(body)
                    self.requests.append(decode(body))
                self._changed.set()
                self._changed = trio.Event()
                await stream.send_all(answer)


def answer(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    """An answer as bytes."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


OK: Final = answer("200 OK")


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        receiver.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, receiver.serve, listeners)
        yield receiver
        nursery.cancel_scope.cancel()
