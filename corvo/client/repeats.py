"""Repeating a request: which failures allow it, and after how long.

A request that was not sent can be repeated. So can one that the server has not applied and expects
to apply later. A request whose outcome is unknown is repeated only if a second effect is excluded:
it changes nothing, or has a request key.
"""

from typing import Final

from corvo.client.errors import NOT_APPLIED, RequestFailed

ROUNDS: Final = 3
"""Times that all addresses are tried."""
PAUSE_MS: Final = 200
"""Between the first two rounds; then twice as long each time."""
PAUSE_MS_MAX: Final = 5_000

_SAFE: Final = frozenset({"GET", "HEAD"})
_LATER: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed, here or at another node."""
_FINAL: Final = frozenset({"NOT_READY", "OVER_BUDGET", "UNHEALTHY"})
"""Codes with such a status that are an answer all the same."""


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
