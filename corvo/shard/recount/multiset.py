"""Keys with their values as a set, in a few bytes: two sets are compared without keeping either."""

from hashlib import blake2b
from typing import Final

_BYTES: Final = 16


class Multiset:
    """The number of pairs, and a sum of their hashes, which does not depend on their order."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Add a pair."""
        self.count += 1
        data = b"%b%b%b" % (len(key).to_bytes(4, "big"), key, value)
        self._sum += int.from_bytes(blake2b(data, digest_size=_BYTES).digest(), "big")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Multiset):
            return NotImplemented
        return (self.count, self._sum) == (other.count, other._sum)

    __hash__ = None  # type: ignore[assignment]  # it changes
