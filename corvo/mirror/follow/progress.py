"""How far each shard was followed: the cursors in the file, and what answers and metrics show."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corvo.protocol.questions import AsOf, Place, ShardStanding
from corvo.protocol.wire import Pair
from corvo.times import sortable


class Cursor(msgspec.Struct, frozen=True):
    """How far one shard was followed: a row of `cursors`, in the order of its columns."""

    shard: int
    index: int = 0
    digest: int = 0
    """What the state's digest was at `index`."""
    now_ns: int = 0
    """The shard's own time at `index`."""
    through: int = 0
    """Rows may be as new as this index; they are exact once `index` has reached it."""
    pass_key: bytes | None = None
    """The last key of a full pass that is under way; None without one."""
    through_digest: int = 0
    """The state's digest at `through`. A log that was cut before it and went on differently is
    another log, although both have `index`."""

    def reached(self, through: int, digest: int) -> "Cursor":
        """The cursor with rows as new as a later index."""
        if through <= self.through:
            return self
        return msgspec.structs.replace(self, through=through, through_digest=digest)

    @property
    def is_whole(self) -> bool:
        """Whether every document has its rows."""
        return self.pass_key is None


class Page(msgspec.Struct, frozen=True):
    """Documents of one shard, written together with the cursor after them."""

    cursor: Cursor
    pairs: tuple[Pair, ...] = ()
    scanned: tuple[bytes, bytes] | None = None
    """For a page of a full pass, the range of keys that it covers: after the first, up to the
    second; to the end when that is empty. Rows of other documents in the range are removed."""
    is_news: bool = False
    """Whether it counts for the lag of rows: a page of changes does, a page of a pass does not."""


class ShardProgress(msgspec.Struct):
    """How far this process has followed one shard."""

    cursor: Cursor
    is_linked: bool = False
    was_linked: bool = False
    """Whether this process has had a link to the shard at any time."""
    is_due: bool = False
    """Whether a full pass was requested and has not begun."""
    passes: int = 0
    changes: int = 0


class Progress:
    """How far this process has followed each shard."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self.shards: Final = {cursor.shard: ShardProgress(cursor) for cursor in cursors}

    def written(self, page: Page) -> None:
        """Note that a page is in the file."""
        seen = self.shards[page.cursor.shard]
        seen.cursor = page.cursor
        seen.is_due = seen.is_due and seen.cursor.is_whole
        seen.changes += len(page.pairs)

    def has(self, least: Mapping[int, int]) -> bool:
        """Whether these indexes, by shard, are reached."""
        return all(
            number in self.shards and self.shards[number].cursor.index >= index
            for number, index in least.items()
        )

    def may_come(self, number: int) -> bool:
        """Whether rows of a shard can be expected now.

        They can while it has a link, and before the first one, which a start makes at once.
        """
        seen = self.shards.get(number)
        return seen is not None and (seen.is_linked or not seen.was_linked)

    def are_linked(self, numbers: Iterable[int]) -> bool:
        """Whether these shards have a link."""
        return all(self.shards[number].is_linked for number in numbers)

    def as_of(self) -> AsOf:
        """How far each shard was followed, as answers show it."""
        return {
            f"s{number}": Place(
                seen.cursor.index, sortable(seen.cursor.now_ns), seen.cursor.is_whole
            )
            for number, seen in self.shards.items()
        }

    def standings(self) -> list[ShardStanding]:
        """How each shard is followed."""
        return [
            ShardStanding(
                shard=number,
                index=seen.cursor.index,
                now_ns=seen.cursor.now_ns,
                through=seen.cursor.through,
                is_linked=seen.is_linked or seen.is_due,
                is_whole=seen.cursor.is_whole and not seen.is_due,
                passes=seen.passes,
                changes=seen.changes,
            )
            for number, seen in self.shards.items()
        ]
