"""W3C Trace Context: what of `traceparent` and `tracestate` is valid, and kept with a job.

    context_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")

A `traceparent` of any version and with any flags is valid, and passed on as it came. An invalid one
is no context: https://www.w3.org/TR/trace-context/ has the rules.
"""

import re
from typing import Final

import msgspec

TRACEPARENT_MAX: Final = 128
"""Characters: one of version 00 has 55, and a later version may add to it."""
TRACESTATE_MAX: Final = 512
"""Characters: a longer one may be dropped, by the recommendation."""
_MEMBERS_MAX: Final = 32
_TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?"
)
_KEY: Final = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_VALUE: Final = r"[ -+\--<>-~]{0,255}[!-+\--<>-~]"
_MEMBER: Final = re.compile(rf"{_KEY}={_VALUE}")

TRACEPARENT_FORM: Final = "00-<trace id, 32 hex digits>-<span id, 16 hex digits>-<flags, 2 digits>"
"""As texts for people have it."""


class TraceContext(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The W3C trace context in which a job was created, as the producer sent it."""

    SINCE = 6
    traceparent: str
    tracestate: str = ""


def is_traceparent(text: str) -> bool:
    """Whether a text is a `traceparent` of any version."""
    if len(text) > TRACEPARENT_MAX:
        return False
    found = _TRACEPARENT.fullmatch(text)
    return found is not None and (found[5] is None or found[1] != "00")


def is_tracestate(text: str) -> bool:
    """Whether a text is a `tracestate` that is short enough to be kept."""
    if len(text) > TRACESTATE_MAX:
        return False
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    return len(members) <= _MEMBERS_MAX and all(map(_MEMBER.fullmatch, members))


def context_of(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """The context of two headers; None if there is no valid one. An invalid state is left out."""
    traceparent = traceparent.strip(" \t")
    if not is_traceparent(traceparent):
        return None
    tracestate = tracestate.strip(" \t")
    return TraceContext(traceparent, tracestate if is_tracestate(tracestate) else "")


def trace_id(traceparent: str) -> str:
    """The trace id of a valid `traceparent`, in hex."""
    return traceparent[3:35]


def span_id(traceparent: str) -> str:
    """The span id of a valid `traceparent`, in hex."""
    return traceparent[36:52]


def flags(traceparent: str) -> int:
    """The flags of a valid `traceparent`."""
    return int(traceparent[53:55], 16)


def is_sampled(traceparent: str) -> bool:
    """Whether the sender of a valid `traceparent` records the trace."""
    return bool(flags(traceparent) & 1)
