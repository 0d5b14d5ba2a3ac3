"""How far each shard was followed: what is kept in the file with the rows, and what is told."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corvo.protocol.questions import AsOf, Place, ShardStanding
from corvo.protocol.wire import Pair
from corvo.times import sortable


class Cursor(msgspec.Struct, frozen=True):
    """How far one shard was followed: a row of `cursors`."""

    shard: int
    index: int = 0
    digest: int = 0
    """What the state's digest was at `index`."""
    now_ns: int = 0
    """The shard's own time at `index`."""
    through: int = 0
    """Rows are not newer than this place; they are exact once `index` has come there."""
    pass_key: bytes | None = None
    """Up to here a full pass has come; None when none is under way."""
    through_digest: int = 0
    """What the state's digest was at `through`: a log that was taken back to before it, and went
    another way, is another log, although `index` is in both."""

    def reached(self, through: int, digest: int) -> "Cursor":
        """The same, with rows that are of a later place."""
        if through <= self.through:
            return self
        return msgspec.structs.replace(self, through=through, through_digest=digest)

    @property
    def is_whole(self) -> bool:
        """Whether every document has its rows."""
        return self.pass_key is None


class Page(msgspec.Struct, frozen=True):
    """What is written at once: documents of one shard, and the cursor behind them."""

    cursor: Cursor
    pairs: tuple[Pair, ...] = ()
    scanned: tuple[bytes, bytes] | None = None
    """For a page of a full pass, the keys of which it says everything: behind the first, and up to
    the second; to the very end when that is empty. What else is there of them is gone."""
    is_news: bool = False
    """Whether it says how late rows are: a page of changes does, and a pass does not."""


class Seen(msgspec.Struct):
    """One shard, as far as this process has followed it."""

    cursor: Cursor
    is_linked: bool = False
    is_due: bool = False
    """A pass was asked for, and has not begun."""
    passes: int = 0
    changes: int = 0


class Places:
    """All shards."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self.seen: Final = {cursor.shard: Seen(cursor) for cursor in cursors}

    def written(self, page: Page) -> None:
        """A page is in the file."""
        seen = self.seen[page.cursor.shard]
        seen.cursor = page.cursor
        seen.is_due = seen.is_due and seen.cursor.is_whole
        seen.changes += len(page.pairs)

    def has(self, least: Mapping[int, int]) -> bool:
        """Whether we have come so far, by shard."""
        return all(
            number in self.seen and self.seen[number].cursor.index >= index
            for number, index in least.items()
        )

    def as_of(self) -> AsOf:
        """How far we have come, as answers say it."""
        return {
            f"s{number}": Place(
                seen.cursor.index, sortable(seen.cursor.now_ns), seen.cursor.is_whole
            )
            for number, seen in self.seen.items()
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
            for number, seen in self.seen.items()
        ]
