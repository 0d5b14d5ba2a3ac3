"""The entry that ends the process whenever it is applied: it is tried twice, and not a third time.

An exception while an entry is applied is a bug, and every replica has it. Nothing of the entry was
written, so a start finds the state right before it. The second death at the same entry is the last:
somebody has to look, and a process that dies once a second helps nobody.

A bug says where it was on its way out. A death without a word (the kernel's, or one within a
library) cannot, so after a crash the first entry is applied with a note on disk beforehand.
"""

from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from corvo.errors import CorvoError, Poisoned
from corvo.raft import RaftError
from corvo.shard.replica import Standing

DEATHS_MAX: Final = 2


class Suspect(msgspec.Struct, frozen=True):
    """An entry that was being applied when the process died."""

    index: int
    deaths: int
    error: str = ""


class Watched(Protocol):
    """Whoever applies entries."""

    @property
    def applying(self) -> int | None:
        """The entry that is being applied; it stays so when that raised an exception."""

    def standing(self) -> Standing:
        """How far it has come."""


class Poison:
    """The note about a suspect, in a file of its own.

    `with poison.watching(replica):` is around every turn of the replica, and so it is no generator.
    """

    def __init__(self, note: Path) -> None:
        self._note = note
        self._is_wary = note.exists()
        self._watched: Watched | None = None
        self._before: Suspect | None = None
        self._noted: Suspect | None = None
        self._has_failed = False  # the process ends, and what is noted stays as it is

    def refuse(self, *, applied: int) -> None:
        """Raise `Poisoned` when the next entry has killed this replica twice."""
        suspect = self._read()
        if suspect is not None and suspect.index == applied + 1 and suspect.deaths >= DEATHS_MAX:
            raise self._poisoned(suspect)

    def be_wary(self) -> None:
        """The process before this one died: note the first entry before it is applied."""
        self._is_wary = True

    def watching(self, watched: Watched) -> "Poison":
        """A block in which entries may be applied; one at a time."""
        assert self._watched is None, "one block at a time"
        self._watched = watched
        return self

    def __enter__(self) -> None:
        """Note the next entry beforehand, if one has to be wary of it."""
        if self._has_failed or not self._is_wary:
            return
        assert self._watched is not None
        standing = self._watched.standing()
        if self._noted is not None:
            return  # by a block before this one, which did not come to apply it
        before = self._before = self._read()
        # A suspect further on is the better one: the state is older than it was when that died.
        is_first = before is None or before.index <= standing.applied + 1
        if is_first and standing.commit > standing.applied:
            self._noted = self._count(standing.applied + 1)
            self._put(self._noted)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put the blame on the entry that raised an exception, and forget one that is applied."""
        watched, self._watched = self._watched, None
        assert watched is not None
        if self._has_failed:
            return  # a task that had its turn before it was cancelled
        if error is not None:
            self._has_failed = True
            noted, self._noted = self._noted, None
            if isinstance(error, Exception):
                self._blame(watched, noted, error)
        elif self._is_wary:
            self._forget(watched)

    def _blame(self, watched: Watched, noted: Suspect | None, error: Exception) -> None:
        """Note what ended the block, unless no entry is at fault. Raises `Poisoned`."""
        if isinstance(error, CorvoError | RaftError):
            if noted is not None:
                self._note.unlink()  # the disk failed, or the like
            return
        index = watched.applying
        if index is None:
            return
        suspect = noted if noted is not None and noted.index == index else self._count(index)
        suspect = replace(suspect, error=f"{type(error).__name__}: {error}")
        self._put(suspect)
        if suspect.deaths >= DEATHS_MAX:
            raise self._poisoned(suspect) from error

    def _forget(self, watched: Watched) -> None:
        """Remove the note once the entry that it names is applied."""
        suspect = self._noted or self._before
        if suspect is not None and suspect.index <= watched.standing().applied:
            self._before = self._noted = None
            self._note.unlink()
            self._is_wary = False

    def _poisoned(self, suspect: Suspect) -> Poisoned:
        return Poisoned(
            f"entry {suspect.index} ended this replica {suspect.deaths} times:"
            f" {suspect.error or 'it died without a word'}. It will not be tried again. Keep"
            f" the data, report the error, and start a version that can apply the entry;"
            f" removing {self._note} tries it once more"
        )

    def _count(self, index: int) -> Suspect:
        """One more death at an entry."""
        before = self._read()
        deaths = before.deaths + 1 if before is not None and before.index == index else 1
        return Suspect(index, deaths)

    def _read(self) -> Suspect | None:
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=Suspect)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeError):
            return None  # a note that was cut short names nobody

    def _put(self, suspect: Suspect) -> None:
        fresh = self._note.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(suspect))
        fresh.replace(self._note)
