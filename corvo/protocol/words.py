"""Words that clients send for stored values, read in one way by every request that takes them."""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.model import Priority

PRIORITIES: Final = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "low": Priority.NORMAL,
}
PRIORITY_FORM: Final = "critical, high, normal, low, 0, 1 or 2"
"""What errors say is expected instead of any other priority."""
GivenPriority: TypeAlias = (
    Annotated[str, msgspec.Meta(max_length=4_096, extra_json_schema={"enum": [*PRIORITIES]})]
    | Annotated[int, msgspec.Meta(ge=Priority.CRITICAL, le=Priority.NORMAL)]
)
"""A word, or the number; a query has the number as text."""
_NUMBERS: Final = {str(number): number for number in PRIORITIES.values()}


def priority_number(given: str | int) -> int | None:
    """The number of a priority; None for a text that is none."""
    if isinstance(given, int):
        return given
    word = given.strip().lower()
    return PRIORITIES.get(word, _NUMBERS.get(word))


def state_words(given: str | list[str]) -> list[str]:
    """States that come as a list, or as a text with commas between them."""
    return given.split(",") if isinstance(given, str) else given
