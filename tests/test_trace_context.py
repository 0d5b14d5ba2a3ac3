"""W3C Trace Context: which headers are valid, and what is kept of the others."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.trace_context import (
    TRACEPARENT_MAX,
    TRACESTATE_MAX,
    TraceContext,
    context_of,
    is_sampled,
    is_traceparent,
    is_tracestate,
    span_id,
    trace_id,
)

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
PARENT: Final = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("flags", [f"{flags:02x}" for flags in range(256)])
def test_any_flags_are_accepted(flags: str) -> None:
    assert is_traceparent(f"00-{TRACE}-{SPAN}-{flags}")


@pytest.mark.parametrize(
    "text",
    [
        f"cc-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-03-what-comes-later",
        f"01-{TRACE}-{SPAN}-03-",
    ],
)
def test_a_later_version_is_accepted_with_what_it_adds(text: str) -> None:
    assert context_of(text) == TraceContext(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"{PARENT}-more",
        f"{PARENT}-",
        f"01-{TRACE}-{SPAN}-01.more",
        f"{PARENT}\n",
        f"{PARENT}, {PARENT}",
        f"01-{TRACE}-{SPAN}-01-{'x' * TRACEPARENT_MAX}",
        f"00-{TRACE[:-1]}é-{SPAN}-01",
    ],
)
def test_other_texts_are_no_traceparent(text: str) -> None:
    assert not is_traceparent(text)
    assert context_of(text, "a=b") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vendor=1",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=b, c=d ,\te=f",
        "a=b,,c=d,",
        "fw529a3039@dt=FfAlUhkM",
        "a/b*c_d-e=x y",
        ",".join(f"k{number}=v" for number in range(32)),
        f"a={'x' * 256}",
    ],
)
def test_a_tracestate_is_a_list_of_members(text: str) -> None:
    assert is_tracestate(text)
    assert context_of(PARENT, text) == TraceContext(PARENT, text)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "=b",
        "A=b",
        "a=b=c",
        "a=é",
        "a=b\n",
        "a@=b",
        f"a={'x' * 257}",
        ",".join(f"k{number}=v" for number in range(33)),
        ",".join(["a=" + "x" * 100] * 6),
    ],
)
def test_an_invalid_tracestate_is_left_out_and_the_traceparent_stays(text: str) -> None:
    assert not is_tracestate(text)
    assert context_of(PARENT, text) == TraceContext(PARENT)


def test_spaces_around_a_header_do_not_count() -> None:
    assert context_of(f" {PARENT}\t", " a=b ") == TraceContext(PARENT, "a=b")


def test_ids_and_the_flag_of_sampling_are_read() -> None:
    assert trace_id(PARENT) == TRACE
    assert span_id(PARENT) == SPAN
    assert [is_sampled(f"00-{TRACE}-{SPAN}-{flags}") for flags in ("00", "01", "02", "03")] == [
        False,
        True,
        False,
        True,
    ]


@given(st.text(max_size=2 * TRACESTATE_MAX), st.text(max_size=2 * TRACESTATE_MAX))
def test_no_text_is_too_odd(parent: str, state: str) -> None:
    found = context_of(parent, state)

    assert found is None or len(found.traceparent) <= TRACEPARENT_MAX
    kept = context_of(PARENT, state)
    assert kept is not None
    assert len(kept.tracestate) <= TRACESTATE_MAX
