"""Questions that have no answer."""

from typing import Final

from corvo.errors import CorvoError
from corvo.protocol.questions import Refused


class NotAnswered(CorvoError):
    """A question has no answer: why is `refused`."""

    def __init__(self, code: str, error: str, field: str = "") -> None:
        super().__init__(error)
        self.refused: Final = Refused(code=code, error=error, field=field)


def bad_filter(field: str, error: str) -> NotAnswered:
    """A field that does not do; the sentence says what would."""
    return NotAnswered("bad_filter", f"{field}: {error}", field)
