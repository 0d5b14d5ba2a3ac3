"""`Tracer`: begins and ends the spans of requests, and of what shards do for them.

There is one only if traces are switched on. The span under way is known to the task of its request,
and to the tasks that this one begins.
"""

import secrets
from contextvars import ContextVar
from typing import Final

from corvo import __version__, clock
from corvo.otel_settings import TraceSettings
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Request, Response
from corvo.router.tracing.attributes import describe
from corvo.router.tracing.exporter import Exporter
from corvo.router.tracing.spans import SERVER, Span, is_recorded
from corvo.trace_context import context_of, span_id, trace_id

_present: Final[ContextVar[Span | None]] = ContextVar("span", default=None)


def ids_of(request: Request) -> dict[str, str]:
    """The trace and the span of a request, for the log: its own span, or that of its sender."""
    span = _present.get()
    if span is not None:
        return {"trace_id": span.trace_id, "span_id": span.span_id}
    sender = context_of(request.headers.get("traceparent", ""))
    if sender is None:
        return {}
    parent = sender.traceparent
    return {"trace_id": trace_id(parent), "span_id": span_id(parent)}


def tracer_of(config: RouterConfig) -> "Tracer | None":
    """The tracer of a router; None if traces are off."""
    settings = config.traces
    if settings is None:
        return None
    name = config.own.name if config.own is not None else str(config.node)
    resource = {"service.version": __version__, "service.instance.id": name}
    return Tracer(settings, Exporter(settings, resource))


class Tracer:
    """Where spans come from."""

    def __init__(self, settings: TraceSettings, exporter: Exporter) -> None:
        self.exporter: Final = exporter
        self._sampler = settings.sampler

    def begin(self, request: Request) -> Span | None:
        """Begin the span of a request; None if it is not recorded."""
        headers = request.headers
        sender = context_of(headers.get("traceparent", ""), headers.get("tracestate", ""))
        parent = sender.traceparent if sender is not None else ""
        trace = trace_id(parent) if parent else secrets.token_hex(16)
        span = None
        if is_recorded(self._sampler, trace, parent):
            span = Span(
                trace_id=trace,
                span_id=secrets.token_hex(8),
                parent_id=span_id(parent) if parent else "",
                is_remote=bool(parent),
                tracestate=sender.tracestate if sender is not None else "",
                kind=SERVER,
                began_ns=clock.now_ns(),
            )
        # Also none: the connection may have had a request with a span before.
        _present.set(span)
        return span

    def end(
        self, span: Span, request: Request, route: str, response: Response, took_ns: int
    ) -> None:
        """End the span of a request that was answered."""
        _present.set(None)
        span.ended_ns = span.began_ns + took_ns
        describe(span, request, route, response)
        self.exporter.add(span)

    def inner(self, name: str) -> Span | None:
        """Begin a span inside the one of this task; None if the task has no span."""
        outer = _present.get()
        if outer is None:
            return None
        return Span(
            trace_id=outer.trace_id,
            span_id=secrets.token_hex(8),
            parent_id=outer.span_id,
            tracestate=outer.tracestate,
            name=name,
            began_ns=clock.now_ns(),
        )

    def end_inner(self, span: Span, took_ns: int) -> None:
        """End a span of `inner`."""
        span.ended_ns = span.began_ns + took_ns
        self.exporter.add(span)
