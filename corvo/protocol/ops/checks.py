"""Checks of names, ids, tags and JSON, before an op reaches the log.

A part of a stored key must not have a zero byte, and a text in a list for people must not have
control characters.
"""

import re
from typing import Final

import msgspec

from corvo.ids import shard_of
from corvo.protocol.ops.base import (
    NAME_BYTES_MAX,
    OWN_ID_BYTES_MAX,
    Json,
    Limits,
    Rejected,
    bad_request,
)
from corvo.trace_context import (
    TRACEPARENT_FORM,
    TRACESTATE_MAX,
    TraceContext,
    is_traceparent,
    is_tracestate,
)

DEPTH_MAX: Final = 100
"""Largest depth of a client's JSON, far below the limits of readers."""

_SHOWN: Final = 60
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS: Final = b"[]{}"
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f]")

_TAKEN: Final = {".", "..", "batch", "bulk", "bulk-get", "search"}
"""What could be an id without a queue, and stands for something else where ids stand in paths."""

_ID: Final = re.compile(f"[A-Za-z0-9_.:-]{{1,{OWN_ID_BYTES_MAX}}}")
_QUEUE: Final = re.compile("[A-Za-z0-9_.:-]+")


def bad_name(field: str, name: str) -> Rejected | None:
    """The refusal of an invalid name of a queue or a worker, or of a unique key."""
    if len(name) > NAME_BYTES_MAX or len(name.encode()) > NAME_BYTES_MAX:
        return bad_request(field, f"{field}: expected at most {NAME_BYTES_MAX} bytes")
    if not name.isprintable() and _CONTROL.search(name):
        return bad_request(field, f"{field}: control characters are not allowed")
    return None


def bad_chosen_id(field: str, chosen: str, queue: str) -> Rejected | None:
    """The refusal of an invalid id that a client chose for a job of a queue.

    A router sends full ids only. An id without a queue is one that an older router sends.
    """
    of_queue, has_queue, own = chosen.rpartition("~")
    if not _ID.fullmatch(own):
        allowed = f"1 to {OWN_ID_BYTES_MAX} letters, digits, '_', '.', ':' and '-'"
        return bad_request(field, f"{field}: expected {allowed}")
    if has_queue and of_queue != queue:
        return bad_request(
            field,
            f"{field}: {chosen!r} is an id of queue {of_queue!r}, and the job is for {queue!r}: "
            f"send {own!r}, or the other queue",
        )
    if has_queue and not _QUEUE.fullmatch(queue):
        return bad_request(
            field,
            f"{field}: expected a queue name of letters, digits, '_', '.', ':' and '-' with an id "
            f"that you choose; got {queue!r}: leave the id out, or use unique_key",
        )
    if not has_queue and own in _TAKEN:
        return bad_request(field, f"{field}: {own!r} is reserved; choose another id")
    if shard_of(own) is not None:
        return bad_request(
            field, f"{field}: this prefix is reserved for ids of the server; choose another one"
        )
    return None


def bad_tags(field: str, tags: dict[str, str], limits: Limits) -> Rejected | None:
    """The refusal of invalid tags."""
    if len(tags) > limits.tags_max:
        return bad_request(field, f"{field}: expected at most {limits.tags_max} tags")
    for name, value in tags.items():
        if not name:
            return bad_request(field, f"{field}: every tag needs a name")
        if max(len(name.encode()), len(value.encode())) > limits.tag_bytes_max:
            most = limits.tag_bytes_max
            return bad_request(
                field, f"{field}: expected at most {most} bytes in each name and value"
            )
    return None


def bad_trace(field: str, trace: TraceContext) -> Rejected | None:
    """The refusal of an invalid trace context; `field` is what has it."""
    if not is_traceparent(trace.traceparent):
        shown = repr(trace.traceparent[:_SHOWN])
        return bad_request(
            f"{field}.traceparent",
            f"{field}.traceparent: expected {TRACEPARENT_FORM} (W3C Trace Context); got {shown}: "
            "send the header of your tracing library as it is, or leave the field out",
        )
    if not is_tracestate(trace.tracestate):
        return bad_request(
            f"{field}.tracestate",
            f"{field}.tracestate: expected members such as vendor=value, separated by commas, in "
            f"at most {TRACESTATE_MAX} characters (W3C Trace Context): send the header of your "
            "tracing library as it is, or leave the field out",
        )
    return None


def bad_json(field: str, value: Json, bytes_max: int) -> Rejected | None:
    """The refusal of a client's JSON that is too large or too deep."""
    if value is msgspec.UNSET:
        return None
    data = bytes(value)
    if len(data) > bytes_max:
        return _too_large(field, bytes_max)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return bad_request(field, f"{field} is not valid UTF-8")
    if _is_deep(data):
        return bad_request(field, f"{field}: expected at most {DEPTH_MAX} levels of nesting")
    return None


def _is_deep(data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return False
    return True


def is_object(data: bytes) -> bool:
    """Whether JSON is an object, whose fields can be merged with others."""
    return data.lstrip(b" \t\r\n")[:1] == b"{"


def fields_of(data: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object; none for other JSON."""
    return _decode_fields(data) if is_object(data) else {}


def has_bad_field(data: bytes) -> bool:
    """Whether JSON is an object whose fields cannot be read; called before an op reaches the log.

    Half of a surrogate pair in a name is found only when the name is read.
    """
    try:
        fields_of(data)
    except msgspec.DecodeError:
        return True
    return False


_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def too_long_text(field: str, text: str, bytes_max: int) -> Rejected | None:
    """The refusal of a text that is longer than a limit."""
    if 4 * len(text) <= bytes_max or len(text.encode()) <= bytes_max:
        return None
    return _too_large(field, bytes_max)


def _too_large(field: str, bytes_max: int) -> Rejected:
    error = f"{field}: expected at most {bytes_max} bytes"
    return Rejected("payload_too_large", error, field=field)
