"""Errors of a client: each with a code for programs, a sentence, and hints what to do.

ClientError
├── BadClientOption   the address, API key or time limit is invalid; nothing was sent
├── Unreachable       no server has answered
└── RequestFailed     a server has answered with an error
"""

from collections.abc import Sequence
from typing import Final

from corvo.errors import CorvoError

APPLIED: Final = "applied"
NOT_APPLIED: Final = "not_applied"
UNKNOWN: Final = "unknown"


class ClientError(CorvoError):
    """A request that is not done, or not known to be done."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hints: Sequence[str] = (),
        outcome: str = NOT_APPLIED,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        """In capitals, stable, for programs."""
        self.message = message
        self.hints = tuple(hints)
        """For people: what to do, each a line."""
        self.outcome = outcome
        """Whether the request took effect: `not_applied`, `applied` or `unknown`."""
        self.request_id = request_id
        """The server's id for the request, for its log."""


class BadClientOption(ClientError):
    """An address, API key or time limit is invalid."""

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__("BAD_OPTION", message, hints=hints)


class Unreachable(ClientError):
    """No server has answered in time."""


class RequestFailed(ClientError):
    """A server has answered with an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        outcome: str,
        reason: str = "",
        field: str = "",
        retry_after_ms: int = 0,
        request_id: str = "",
        hints: Sequence[str] = (),
    ) -> None:
        super().__init__(code, message, hints=hints, outcome=outcome, request_id=request_id)
        self.status = status
        self.reason = reason
        """Distinguishes the causes of one code."""
        self.field = field
        """The invalid field of the request."""
        self.retry_after_ms = retry_after_ms
        """Time after which the same request may succeed; 0 if the server named none."""
