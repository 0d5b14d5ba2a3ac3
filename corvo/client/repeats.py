"""Repeating a request: which failures allow it, after how long, and how long one attempt lasts.

A request that was not sent can be repeated. So can one that the server has not applied and expects
to apply later. A request whose outcome is unknown is repeated only if a second effect is excluded:
it changes nothing, or has a request key.

A node that hangs takes connections and does not answer. So with several addresses the first round
has short limits, and the next address is asked soon. A slow answer is possible in later rounds.
"""

from typing import Final, NamedTuple

from corvo.client.errors import NOT_APPLIED, RequestFailed

ROUNDS: Final = 3
"""Times that all addresses are tried."""
PAUSE_MS: Final = 200
"""Between the first two rounds; then twice as long each time."""
PAUSE_MS_MAX: Final = 5_000
CONNECT_S: Final = 3.0
"""Time limit of a connection."""
QUICK_CONNECT_S: Final = 1.5
"""The same in the first round over several: a lost first packet is sent again after a second."""
QUICK_ANSWER_S: Final = 5.0
"""Time limit of an answer in the first round over several. The server limits a search to one second
and its wait for the mirror to a quarter, unless they are set higher."""

_SAFE: Final = frozenset({"GET", "HEAD"})
_LATER: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed, here or at another node."""
_FINAL: Final = frozenset({"NOT_READY", "OVER_BUDGET", "UNHEALTHY"})
"""Codes with such a status that are an answer all the same."""


class Limits(NamedTuple):
    """Time limits of one attempt."""

    connect_s: float
    answer_s: float
    """Including the connection."""


def limits(
    left_s: float, *, addresses: int, tried: int, finished: int, wait_s: float = 0.0
) -> Limits:
    """Limits of an attempt, after some rounds, and some addresses that were tried in this one.

    The server may wait for `wait_s` before it answers. An attempt leaves time for other addresses.
    """
    if addresses == 1:
        return Limits(min(CONNECT_S, left_s), left_s)
    share_s = left_s / (addresses - tried)
    if finished:
        return Limits(min(CONNECT_S, share_s), share_s)
    answer_s = min(QUICK_ANSWER_S + wait_s, share_s)
    return Limits(min(QUICK_CONNECT_S, answer_s), answer_s)


def is_repeatable(method: str, request_key: str) -> bool:
    """Whether a request may be sent again when its outcome is unknown."""
    return method in _SAFE or bool(request_key)


def may_repeat(error: RequestFailed, *, is_repeatable: bool) -> bool:
    """Whether an error allows the same request again."""
    if error.status not in _LATER or error.code in _FINAL:
        return False
    return is_repeatable or error.outcome == NOT_APPLIED


def ends_round(error: RequestFailed) -> bool:
    """Whether the other nodes are not asked before the pause: the client asks too often."""
    return error.status == 429


def pause_ms(finished: int, error: RequestFailed | None) -> int:
    """How long to wait after a number of rounds, the last of which ended with an error."""
    asked = error.retry_after_ms if error is not None else 0
    return min(max(asked, PAUSE_MS << finished - 1), PAUSE_MS_MAX)
