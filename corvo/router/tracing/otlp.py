"""Spans as an `ExportTraceServiceRequest` of OTLP in JSON.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hexadecimal, integers of
64 bits are texts, enums are numbers, and names are in lowerCamelCase.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from corvo import __version__
from corvo.router.tracing.spans import Span, Value
from corvo.trace_context import TraceContext, flags, span_id, trace_id

_SCOPE: Final = {"name": "corvo", "version": __version__}
_SAMPLED: Final = 1
_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200


def request_of(spans: Sequence[Span], resource: Mapping[str, Value]) -> bytes:
    """The body that sends spans of one resource."""
    scope = {"scope": _SCOPE, "spans": [_span(span) for span in spans]}
    of_resource = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
    return msgspec.json.encode({"resourceSpans": [of_resource]})


def _span(span: Span) -> dict[str, object]:
    made: dict[str, object] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": _SAMPLED | _HAS_IS_REMOTE | (_IS_REMOTE if span.is_remote else 0),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.began_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_id:
        made["parentSpanId"] = span.parent_id
    if span.tracestate:
        made["traceState"] = span.tracestate
    if span.links:
        made["links"] = [_link(context) for context in span.links]
    if span.status:
        made["status"] = {"code": span.status}
    return made


def _link(context: TraceContext) -> dict[str, object]:
    parent = context.traceparent
    made: dict[str, object] = {
        "traceId": trace_id(parent),
        "spanId": span_id(parent),
        "flags": flags(parent) | _HAS_IS_REMOTE | _IS_REMOTE,
    }
    if context.tracestate:
        made["traceState"] = context.tracestate
    return made


def _attributes(values: Mapping[str, Value]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case str():
            # Half of a surrogate pair cannot be sent.
            return {"stringValue": value.encode(errors="replace").decode()}


class _PartialSuccess(msgspec.Struct, frozen=True, rename="camel"):
    rejected_spans: int | str = 0
    error_message: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess | None = None


def rejected(body: bytes) -> tuple[int, str]:
    """How many spans of a batch the receiver did not take, and why."""
    try:
        partial = _decode_answer(body).partial_success
        return (0, "") if partial is None else (int(partial.rejected_spans), partial.error_message)
    except (msgspec.DecodeError, ValueError):
        return 0, ""  # the status says that all were taken


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode
