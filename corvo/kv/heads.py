"""Heads: the first keys of an index, in memory, so that a queue costs the same at any length.

A scan that begins at an index's prefix walks over everything that was ever taken from its front
and not yet compacted away; a thousand tombstones cost more than the fetch. So the first few
hundred keys are held here, and where the next scan begins is remembered: `start`, below which the
index has nothing. Both are derived. Forgetting them costs a scan and changes no answer.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, TypeAlias

HEAD_KEYS_MAX: Final = 512
"""Keys held of one index: the most that one fetch can take, so that a full head serves it."""

Scan: TypeAlias = Callable[[bytes, int], list[bytes]]
"""Keys of the index in order, from a key on; fewer than asked for only at the end."""


class Head:
    """The smallest keys of one index."""

    __slots__ = ("_complete", "_scan", "keys", "start")

    def __init__(self, start: bytes, scan: Scan) -> None:
        self._scan = scan
        self.start = start  # no key of the index is smaller
        self.keys: list[bytes] = []  # the smallest keys of the index, in order
        self._complete = False  # whether these are all

    def fill(self) -> None:
        """Be sure that there is a first key in `keys`, unless the index is empty."""
        if not self.keys and not self._complete:
            self.keys = self._scan(self.start, HEAD_KEYS_MAX // 2)
            self._complete = len(self.keys) < HEAD_KEYS_MAX // 2

    def at(self, position: int) -> bytes | None:
        """The key at a position, however far that is; None behind the last."""
        while position >= len(self.keys):
            if self._complete:
                return None
            after = self.keys[-1] + b"\0" if self.keys else self.start
            more = self._scan(after, HEAD_KEYS_MAX // 2)
            self._complete = len(more) < HEAD_KEYS_MAX // 2
            self.keys += more
        return self.keys[position]

    def add(self, key: bytes) -> None:
        """A key came into the index."""
        keys = self.keys
        if key < self.start:  # noqa: PLR1730 -- `min` takes four times as long, by the million
            self.start = key
        if keys and key < keys[-1]:
            insort(keys, key)
        elif self._complete:
            keys.append(key)
        else:
            return
        if len(keys) > HEAD_KEYS_MAX:
            del keys[HEAD_KEYS_MAX // 2 :]
            self._complete = False

    def discard(self, key: bytes) -> None:
        """A key left the index."""
        keys = self.keys
        if not keys:
            return
        if keys[0] == key:
            del keys[0]
            self.start = key
            return
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            del keys[at]
