"""Spans as values, and which requests have one."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from corvo.otel_settings import ALWAYS, RATIO, Sampler
from corvo.trace_context import TraceContext, is_sampled

INTERNAL: Final = 1
SERVER: Final = 2
"""Kinds of spans, by their numbers in OTLP."""
FAILED: Final = 2
"""The status of a span that failed, by its number in OTLP; 0 is not set."""
LINKS_MAX: Final = 128
_IDS: Final = 1 << 64
"""A ratio is compared with the last 64 bits of the trace id, as other libraries do."""

Value: TypeAlias = str | int | bool | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]


class Span(msgspec.Struct, kw_only=True):
    """One piece of work of this router."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    is_remote: bool = False  # whether the parent is in another process
    tracestate: str = ""
    name: str = ""
    kind: int = INTERNAL
    began_ns: int = 0
    ended_ns: int = 0
    attributes: Attributes = msgspec.field(default_factory=dict)
    links: tuple[TraceContext, ...] = ()
    status: int = 0


def is_recorded(sampler: Sampler, trace_id: str, traceparent: str) -> bool:
    """Whether a request has a span; `traceparent` is that of its sender, or empty."""
    if traceparent and sampler.follows_parent:
        return is_sampled(traceparent)
    if sampler.root == RATIO:
        return int(trace_id[16:], 16) < round(sampler.ratio * _IDS)
    return sampler.root == ALWAYS


def links_of(contexts: Mapping[TraceContext, None]) -> tuple[TraceContext, ...]:
    """The first contexts, as many as a span may have as links."""
    return tuple(contexts)[:LINKS_MAX]
