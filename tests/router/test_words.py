"""Durations, moments, money and bodies: read exactly, written as Go does, refused by name."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.http.bodies import (
    DURATION_MS_MAX,
    MICROS,
    TIME_NS_MAX,
    Duration,
    duration_ms,
    either_ms,
    micros,
    or_unset,
    read_body,
    time_ns,
)
from corvo.router.http.messages import Problem, Request
from corvo.router.http.request_keys import NO_KEY, OwnedKey, earlier_key_of, request_key
from corvo.times import format_duration

S = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = 1_000_000


class Inner(msgspec.Struct):
    name: str


class Body(msgspec.Struct):
    queue: Annotated[str, msgspec.Meta(min_length=1)]
    count: int | None = None
    items: list[Inner] = []
    named: dict[Annotated[str, msgspec.Meta(min_length=1)], int] = {}
    raw: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


decode = msgspec.json.Decoder(Body).decode


def refused(body: bytes) -> tuple[int, str, str, str]:
    with pytest.raises(Problem) as caught:
        read_body(decode, body)
    problem = caught.value
    return problem.status, problem.code, problem.field, problem.error


# Bodies.


def test_a_body_is_read_and_what_is_not_known_is_passed_over() -> None:
    body = read_body(decode, b'{"queue":"mail","colour":"red","count":null}')

    assert (body.queue, body.count) == ("mail", None)


@pytest.mark.parametrize(
    ("body", "field", "error"),
    [
        (b"{}", "queue", 'queue is required, such as "mail"'),
        (
            b'{"queue":"a","items":[{"name":"b"},{}]}',
            "items[1].name",
            'items[1].name is required, such as "mail"',
        ),
        (b'{"queue":7}', "queue", 'queue: expected a string, such as "mail"; got a whole number'),
        (b'{"queue":""}', "queue", 'queue: expected at least 1 character, such as "mail"'),
        (
            b'{"queue":"a","count":"x"}',
            "count",
            "count: expected a whole number, such as 10; got a string",
        ),
        (
            b'{"queue":"a","named":{"x":"y"}}',
            "named[...]",
            "named[...]: expected a whole number; got a string",
        ),
        (
            b'{"queue":"a","named":{"":1}}',
            "named",
            "named: name of a field: expected at least 1 character",
        ),
        (b"[]", "", "the body: expected an object; got a list"),
        (b"null", "", "the body: expected an object; got null"),
    ],
)
def test_json_that_is_not_as_it_should_be_names_the_field(
    body: bytes, field: str, error: str
) -> None:
    assert refused(body) == (400, "VALIDATION_ERROR", field, error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"{",
        b"{'queue':'a'}",
        b'{"queue":"a"} {}',
        b'{"queue":"a","raw":NaN}',
        b'{"queue":"a","raw":Infinity}',
        b'{"queue":"\xff"}',
        b'{"queue":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"queue":"a","raw":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_invalid_json(body: bytes) -> None:
    status, code, field, error = refused(body)

    assert (status, code, field) == (400, "PARSE_ERROR", "")
    assert error.startswith("invalid JSON: ")


@given(st.binary(max_size=60))
def test_no_body_is_ever_a_bug(body: bytes) -> None:
    with suppress(Problem):
        read_body(decode, body)


@pytest.mark.parametrize(
    ("raw", "left"), [(b"null", None), (b"0", b"0"), (b'"null"', b'"null"'), (b"nullx", b"nullx")]
)
def test_null_is_as_absent_and_nothing_else_is(raw: bytes, left: bytes | None) -> None:
    value = or_unset(msgspec.Raw(raw))

    assert (None if value is msgspec.UNSET else bytes(value)) == left


# Durations.


@given(st.integers(0, DURATION_MS_MAX))
def test_a_duration_that_was_written_is_read_again(span_ms: int) -> None:
    assert duration_ms("delay", format_duration(span_ms)) == span_ms


@pytest.mark.parametrize(
    ("text", "span_ms"), [(None, None), ("", None), ("5s", 5_000), (" 5s ", 5_000), ("1ns", 1)]
)
def test_what_is_left_of_a_millisecond_counts_as_one(text: str | None, span_ms: int | None) -> None:
    assert duration_ms("delay", text) == span_ms


@pytest.mark.parametrize("text", ["soon", "-1s", "99999h"])
def test_a_duration_that_does_not_do_names_the_field(text: str) -> None:
    with pytest.raises(Problem) as caught:
        duration_ms("expire_after", text)

    assert (caught.value.code, caught.value.field) == ("VALIDATION_ERROR", "expire_after")


@pytest.mark.parametrize(
    ("text", "span_ms", "wanted"),
    [
        (None, None, 7),
        ("", None, 7),
        ("", 3, 3),
        ("2s", None, 2_000),
        ("2s", 2_000, 2_000),
    ],
)
def test_a_duration_comes_as_text_or_as_a_number(
    text: str | None, span_ms: int | None, wanted: int
) -> None:
    assert either_ms("delay", text, span_ms, 7) == wanted


def test_a_duration_that_is_said_twice_must_be_the_same() -> None:
    with pytest.raises(Problem, match="send only one of them"):
        either_ms("delay", "2s", 2_001, 0)


PUBLISHED = str(msgspec.json.schema(Duration)["pattern"])


@given(st.from_regex(PUBLISHED, fullmatch=True))
def test_all_that_the_published_pattern_says_is_read(text: str) -> None:
    duration_ms("delay", text.rstrip("\n"))


# Moments.


@pytest.mark.parametrize(
    ("text", "at_ns"),
    [
        (None, 0),
        ("", 0),
        ("1950-01-01T00:00:00Z", 0),
        ("2026-02-20t11:00:05.25+01:00", 1_771_581_605_250_000_000),
        ("2000-02-29T00:00:00.1234567899z", 951_782_400 * S + 123_456_789),
        ("9999-12-31T23:59:59Z", TIME_NS_MAX),
    ],
)
def test_a_moment_is_held_between_1970_and_2116(text: str | None, at_ns: int) -> None:
    assert time_ns("scheduled_at", text) == at_ns


def test_a_moment_that_does_not_do_names_the_field() -> None:
    with pytest.raises(Problem) as caught:
        time_ns("scheduled_at", "tomorrow")

    assert (caught.value.code, caught.value.field) == ("VALIDATION_ERROR", "scheduled_at")


# Money.


@pytest.mark.parametrize(
    ("dollars", "wanted"),
    [
        (None, 0),
        (0.0, 0),
        (-1.0, 0),
        (0.1, 100_000),
        (0.3, 300_000),
        (1.1, 1_100_000),
        (0.000001, 1),
        (0.0000005, 1),
        (0.0000004, 0),
        (9_007_199_253.0, 9_007_199_253_000_000),
    ],
)
def test_dollars_are_counted_as_they_were_written(dollars: float | None, wanted: int) -> None:
    assert micros(dollars) == wanted


@given(st.integers(0, 10**12))
def test_an_amount_of_whole_millionths_is_not_changed(amount: int) -> None:
    whole, rest = divmod(amount, MICROS)

    assert micros(float(f"{whole}.{rest:06d}")) == amount


# Who asks, and what they call it.


def asked(key: str | None) -> Request:
    headers = {} if key is None else {"idempotency-key": key}
    return Request(method="POST", path="/", headers=headers)


@pytest.mark.parametrize(
    ("header", "in_body", "wanted"),
    [
        (None, None, ""),
        (None, "", ""),
        ("", None, ""),
        ("pay-17", None, "pay-17"),
        (None, "pay-17", "pay-17"),
        ("", "pay-17", "pay-17"),
        ("pay-17", "pay-17", "pay-17"),
        ("x" * 64, None, "x" * 64),
    ],
)
def test_a_request_key_comes_in_the_header_or_in_the_body(
    header: str | None, in_body: str | None, wanted: str
) -> None:
    assert request_key(asked(header), in_body).name == wanted


@pytest.mark.parametrize(
    ("header", "in_body", "field"),
    [
        ("a", "b", "request_key"),
        ("x" * 65, None, "Idempotency-Key"),
        ("caf\u00e9", None, "Idempotency-Key"),
        ("a\tb", None, "Idempotency-Key"),
        (None, "x" * 65, "request_key"),
        (None, "a\x00b", "request_key"),
    ],
)
def test_a_request_key_that_does_not_do_names_where_it_stands(
    header: str | None, in_body: str | None, field: str
) -> None:
    with pytest.raises(Problem) as caught:
        request_key(asked(header), in_body)

    assert (caught.value.status, caught.value.field) == (400, field)


def test_a_key_is_another_for_another_owner_subject_or_part() -> None:
    key = OwnedKey("k", "ann")
    keys = [
        key.of("queue", 0, "mail"),
        key.of("queue", 1, "mail"),
        key.of("queue", 0, "sms"),
        key.of("jobs", 0, "mail"),
        OwnedKey("k", "bob").of("queue", 0, "mail"),
        OwnedKey("j", "ann").of("queue", 0, "mail"),
        OwnedKey('k","ann', "").of("queue", 0, "mail"),
    ]

    assert len(set(keys)) == len(keys)
    assert key.of("queue", 0, "mail") == keys[0]
    assert max(map(len, keys)) <= 64
    assert NO_KEY.of("queue", 0, "mail") == ""


def test_the_key_of_a_part_from_before_is_as_it_was_then() -> None:
    assert earlier_key_of("k", [0, 1, 2], 3) == "k"
    assert earlier_key_of("", [0], 3) == ""
    assert earlier_key_of("k", [0, 2], 3) == "9e8692dfb0ff76e0a7a02ce63cd23b3917b9bdd460a737e6"


def test_the_trail_names_who_has_a_name() -> None:
    assert ANONYMOUS.signature == ""
    assert Caller(name="shop", key_hash="x").signature == "shop"
