"""Reading of bodies: JSON, names, durations, times, amounts of money.

A moment is RFC 3339 or a date outside and nanoseconds inside, a duration is Go's way of writing it,
or days, outside and milliseconds inside, money is dollars outside and millionths inside. Nothing is
lost between.
"""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from enum import Enum
from typing import Annotated, Final, Generic, TypeVar, cast

import msgspec

from corvo.protocol.words import PRIORITY_FORM, priority_number
from corvo.router.http.body_errors import explain
from corvo.router.http.messages import Problem, Request, bad_field
from corvo.router.http.unknown_fields import JSON, LOOK_BYTES_MAX, first_of, form_of, twin_of, warn
from corvo.scopes import RESERVED, is_reserved
from corvo.times import MS, parse_duration, parse_time

DURATION_MS_MAX: Final = 10 * 366 * 86_400_000
"""Ten years, as the ops have it."""
TIME_NS_MAX: Final = (1 << 62) - 1
"""In the year 2116, as the ops have it."""
MICROS: Final = 1_000_000
"""Of a dollar."""
USD_MAX: Final = (1 << 53) // MICROS
REQUEST_KEY_MAX: Final = 64
_TEXT_SHOWN: Final = 60

Duration = Annotated[
    str,
    msgspec.Meta(
        description="A duration such as `5s`, `1h30m`, `500ms` or `7d`.",
        # What is read is more than this pattern says; but all that it says is read.
        extra_json_schema={
            "pattern": r"^([0-9]{1,3}d)?([0-9]{1,4}h)?([0-9]{1,4}m)?"
            r"([0-9]{1,6}(\.[0-9]{1,9})?s)?$|^[0-9]{1,9}ms$"
        },
    ),
]
GivenTime = Annotated[
    str,
    msgspec.Meta(
        description="Time by RFC 3339, or a date in UTC; an empty string means not set.",
        extra_json_schema={"anyOf": [{"format": "date-time"}, {"format": "date"}, {"enum": [""]}]},
    ),
]
"""As clients write it."""
_NO_CONTROL: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
Plain = Annotated[str, msgspec.Meta(max_length=255, extra_json_schema={"pattern": _NO_CONTROL})]
"""Becomes part of a key, where there is no room for control characters."""
QueueName = Annotated[Plain, msgspec.Meta(min_length=1)]
RequestKey = Annotated[
    str,
    msgspec.Meta(
        description="The same as the header `Idempotency-Key`.",
        extra_json_schema={"pattern": "^[ -~]*$", "maxLength": REQUEST_KEY_MAX},
    ),
]
Usd = Annotated[float, msgspec.Meta(le=USD_MAX - 1, description="US dollars.")]

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
E = TypeVar("E", bound=Enum)


# Bodies.


class Body(Generic[S]):
    """How the bodies of a route are read. See `corvo.router.http.unknown_fields`."""

    def __init__(self, kind: type[S]) -> None:
        self.decode: Final = msgspec.json.Decoder(kind).decode
        self._decode_known = msgspec.json.Decoder(twin_of(kind)).decode
        is_lenient = not kind.__struct_config__.forbid_unknown_fields
        self._form = form_of(kind) if is_lenient else None
        needs_fields = any(field.required for field in msgspec.structs.fields(kind))
        self._empty = b"" if needs_fields else b"{}"

    def read(self, request: Request) -> S:
        """The body of a request; one without required fields may be empty. Raises `Problem`."""
        data = request.body or self._empty
        try:
            known: S = self._decode_known(data)
            return known
        except MALFORMED as error:
            return self._read_with_unknown(request, data, str(error))

    def _read_with_unknown(self, request: Request, data: bytes, error_of_twin: str) -> S:
        if self._form is not None and len(data) > LOOK_BYTES_MAX:
            read = read_body(self.decode, data)
            warn(request, first_of(error_of_twin))
            return read
        if self._form is not None:
            try:
                found = list(self._form.look(data.lstrip(), JSON))
            except MALFORMED as error:
                read_body(self.decode, data)
                raise malformed(error, data) from None  # only the name of an unknown field is
            warn(request, found)
        return read_body(self.decode, data)


def read_body(decode: Callable[[bytes], T], body: bytes) -> T:
    """A request's body. Raises `Problem`.

    `decode` is that of a decoder made once: `msgspec.json.Decoder(X).decode`.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        decoder: object = getattr(decode, "__self__", None)
        raise bad_body(error, getattr(decoder, "type", object)) from None
    except MALFORMED as error:
        raise malformed(error, body) from None


MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise. An error of the form is one of the first kind."""


def malformed(error: Exception, body: bytes) -> Problem:
    """Bytes that are not JSON."""
    what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    if not body.strip():
        what = "the body is empty"
    return Problem(400, "PARSE_ERROR", f"invalid JSON: {what}")


def body_of(request: Request, body: Body[S]) -> S:
    """A request's body, read once however often it is asked for. Raises `Problem`.

    A route reads its body in one way, so that the queues which the caller must have in its scope
    are those that the endpoint acts on.
    """
    if request.decoded is None:
        request.decoded = body, body.read(request)
    reader, read = request.decoded
    assert reader is body, "a route has one body"
    return cast(S, read)


def bad_body(error: msgspec.ValidationError, expected: object) -> Problem:
    """JSON that does not have the form of a type, with the field that is wrong."""
    field, sentence = explain(error, expected)
    return bad_field(field, sentence)


def renamed(problem: Problem, old: str, new: str) -> Problem:
    """A problem of a field that begins with `old`, and is called otherwise by the client."""
    assert problem.field.startswith(old)
    return Problem(
        problem.status,
        problem.code,
        problem.error.replace(old, new),
        outcome=problem.outcome,
        reason=problem.reason,
        field=new + problem.field.removeprefix(old),
        job_id=problem.job_id,
        retry_after_ms=problem.retry_after_ms,
    )


def alone(problem: Problem) -> Problem:
    """A problem of the only item of a request, which has no number there."""
    found = _ALONE.match(problem.field)
    return renamed(problem, found[0], "") if found is not None else problem


_ALONE: Final = re.compile(r"(?:jobs|acks|fails)\[0\]\.")


def or_unset(value: msgspec.Raw | msgspec.UnsetType) -> msgspec.Raw | msgspec.UnsetType:
    """JSON for which null is as absent."""
    if value is not msgspec.UNSET and bytes(memoryview(value)[:5]) == b"null":
        return msgspec.UNSET
    return value


def read_enum(field: str, text: str, kind: type[E]) -> E:
    """A word as a member of an enum, in upper or lower case. Raises `Problem`."""
    try:
        return kind(text.strip().lower())
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        shown = repr(text[:_TEXT_SHOWN])
        raise bad_field(field, f"{field}: expected one of {known}; got {shown}") from None


def read_priority(given: str | int) -> int:
    """A priority by its word or its number. Raises `Problem`."""
    number = priority_number(given)
    if number is None:
        shown = repr(str(given)[:_TEXT_SHOWN])
        raise bad_field("priority", f"priority: expected {PRIORITY_FORM}; got {shown}")
    return number


# Durations.


def duration_ms(field: str, text: str | None) -> int | None:
    """Milliseconds of a duration, what is left of one counting as one; None when none is given.

    Raises `Problem`, naming the field.
    """
    if not text:
        return None
    span_ns = parse_duration(text.strip())
    if span_ns is None:
        example = "5s, 1h30m, 500ms or 7d"
        shown = repr(text[:_TEXT_SHOWN])
        raise bad_field(field, f"{field}: expected a duration such as {example}; got {shown}")
    span_ms = -(-span_ns // MS)
    if not 0 <= span_ms <= DURATION_MS_MAX:
        raise bad_field(
            field, f"{field}: expected a duration from 0 to {DURATION_MS_MAX} milliseconds"
        )
    return span_ms


def either_ms(field: str, text: str | None, span_ms: int | None, default: int) -> int:
    """A duration that may come as text or, in a field of its own, as milliseconds."""
    if not text:
        return default if span_ms is None else span_ms
    told = duration_ms(field, text)
    if span_ms is not None and span_ms != told:
        raise bad_field(field, f"{field} and {field}_ms differ: send only one of them")
    return default if told is None else told


# Moments.


def time_ns(field: str, text: str | None) -> int:
    """A moment, 0 when none is given. Raises `Problem`.

    One before 1970 is as 1970; and one after 2116 is as 2116, for "never" is often written so.
    """
    if not text:
        return 0
    at_ns = parse_time(text)
    if at_ns is None:
        example = "2026-02-20T10:00:05Z, 2026-02-20T11:00:05.25+01:00 or 2026-02-20"
        shown = repr(text[:_TEXT_SHOWN])
        raise bad_field(
            field, f"{field}: expected a time by RFC 3339 or a date, such as {example}; got {shown}"
        )
    return min(max(0, at_ns), TIME_NS_MAX)


# Money.


def micros(usd: float | None) -> int:
    """Millionths of a dollar, as the number was written; none and less than none are 0."""
    if usd is None or usd <= 0:
        return 0
    return int((Decimal(repr(usd)) * MICROS).to_integral_value(ROUND_HALF_UP))


# Queues that are not for everybody.


def not_reserved(field: str, queue: str) -> None:
    """Raise `Problem` for a queue that nobody but the server uses."""
    if is_reserved(queue):
        raise bad_field(
            field, f"{field}: queue names with the prefix {RESERVED} are reserved for the server"
        )
