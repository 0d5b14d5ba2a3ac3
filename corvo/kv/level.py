"""`Store` on LevelDB: the only module that imports plyvel.

Habits of the two that the rest is built around, each of them tried:

- A flipped bit in a table is returned as a value by every read that does not ask for checksums;
  `paranoid_checks` does not change that. So every read here asks.
- LevelDB passes over a table or block that it cannot read, and keeps the error for whoever asks.
  plyvel asks at each key that it finds, but not when it finds no more: what is unreadable at the
  end would look like the end. So a scan that runs into the end of all keys asks once more; one that
  is ended by a key beyond `stop` need not, and that is nearly every scan.
- A table that is removed under a running LevelDB reads as keys that are not there, for `get` alone
  (in LevelDB, a missing file and a missing key are one error). Opening finds it.
- `compact_range` tells nobody that it failed, but each later write does. `sync` asks with one.
- After a write that failed nobody knows what the log holds, and later records may be unreadable
  behind it. So the object ends there, and with it the process.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final

import plyvel

from corvo.errors import StoreDamaged, StoreError, StoreFailed, StoreFull, StoreRefused

# A flush of so much takes about 0.1 s, and may hold up a write when the next buffer is full too.
WRITE_BUFFER_BYTES: Final = 16 << 20
CACHE_BYTES: Final = 32 << 20  # for each shard; what is not here, the page cache has
BLOOM_BITS: Final = 10  # one needless read in a hundred; most keys that are asked for are not there


class LevelStore:
    """A LevelDB database. Opening it repairs nothing, and makes nothing that `must_exist`."""

    def __init__(
        self, directory: str, *, must_exist: bool = False, cache_bytes: int = CACHE_BYTES
    ) -> None:
        try:
            database = plyvel.DB(
                directory,
                create_if_missing=not must_exist,
                paranoid_checks=True,
                write_buffer_size=WRITE_BUFFER_BYTES,
                lru_cache_size=cache_bytes,
                bloom_filter_bits=BLOOM_BITS,
            )
        except plyvel.Error as error:
            raise opening_error(directory, error) from error
        self._database = database
        self._get = database.get
        self._failure: StoreError | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value at `key`, or None."""
        if self._failure is not None:
            raise self._refusal()
        try:
            return self._get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise store_error("read", error) from error

    def keys(self, start: bytes, stop: bytes, *, limit: int) -> list[bytes]:
        """The first keys of a range."""
        if self._failure is not None:
            raise self._refusal()
        found: list[bytes] = []
        try:
            iterator = self._database.iterator(
                start=start, include_value=False, verify_checksums=True
            )
            for key in islice(iterator, limit):
                if key >= stop:
                    break
                found.append(key)
            else:
                if len(found) < limit:
                    self._check_end(found[-1] if found else start)
            iterator.close()
        except plyvel.Error as error:
            raise store_error("read", error) from error
        return found

    def scan(
        self, start: bytes, stop: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """The first keys of a range and their values, or the last ones backwards."""
        if self._failure is not None:
            raise self._refusal()
        if reverse:
            return self._scan_back(start, stop, limit)
        found: list[tuple[bytes, bytes]] = []
        try:
            iterator = self._database.iterator(start=start, verify_checksums=True)
            for item in islice(iterator, limit):
                if item[0] >= stop:
                    break
                found.append(item)
            else:
                if len(found) < limit:
                    self._check_end(found[-1][0] if found else start)
            iterator.close()
        except plyvel.Error as error:
            raise store_error("read", error) from error
        return found

    def _scan_back(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        try:
            # Not told where to start: plyvel would leave out `start` itself when no other key of
            # the range is there.
            iterator = self._database.iterator(stop=stop, reverse=True, verify_checksums=True)
            for item in islice(iterator, limit):
                if item[0] < start:
                    break
                found.append(item)
            else:
                if not found and limit:
                    self._check_begin(stop)
            iterator.close()
        except plyvel.Error as error:
            raise store_error("read", error) from error
        return found

    def _check_end(self, last: bytes) -> None:
        """Ask whether there is really nothing behind `last`."""
        iterator = self._database.raw_iterator(verify_checksums=True)
        iterator.seek(last)
        if iterator.valid():
            iterator.next()
        iterator.close()

    def _check_begin(self, stop: bytes) -> None:
        """Ask whether there is really nothing before `stop`."""
        iterator = self._database.raw_iterator(verify_checksums=True)
        iterator.seek(stop)
        if iterator.valid():
            iterator.prev()
        else:
            iterator.seek_to_last()
        iterator.close()

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Carry out all changes in one step. Never raises `StoreFull`: see above."""
        if self._failure is not None:
            raise self._refusal()
        try:
            batch = self._database.write_batch()
            put, delete = batch.put, batch.delete
            for key, value in changes.items():
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            batch.write()
        except plyvel.Error as error:
            raise self._end("write", error) from error

    def sync(self) -> None:
        """Make every write before this durable.

        A synced write would not do: LevelDB changes its log file now and then, and does not sync
        the old one. So everything goes into tables, which it does sync. No key is empty, so the
        range has nothing in it, and no table is merged for its sake.

        May run on another thread beside writes, but then it may do nothing: LevelDB takes the order
        to flush for an empty write, and may join it to one that is being held up. Whoever needs to
        know looks at what the tables hold.
        """
        if self._failure is not None:
            raise self._refusal()
        try:
            self._database.compact_range(start=b"", stop=b"")
            self._database.write_batch(sync=True).write()
        except plyvel.Error as error:
            raise self._end("sync", error) from error

    def tables(self) -> list[str]:
        """The files that hold everything but what is still in memory, and its log."""
        listed = self._database.get_property(b"leveldb.sstables")
        assert listed is not None, "LevelDB knows this property"
        # A level's heading is "--- level 0 ---"; a table is " number:size[first key .. last key]".
        lines = [line for line in listed.split(b"\n") if line.startswith(b" ")]
        return [f"{int(line.partition(b':')[0]):06}.ldb" for line in lines]

    def close(self) -> None:
        """Let go of everything.

        Waits for the work in the background and *holds the interpreter lock* all the while, so
        every thread of the process waits too (195 ms measured with a full buffer of 64 MiB).
        """
        self._database.close()

    def _refusal(self) -> StoreFailed:
        return StoreFailed(f"the store is of no more use: {self._failure}")

    def _end(self, what: str, error: plyvel.Error) -> StoreFailed:
        self._failure = StoreFailed(f"cannot {what}: {error}")
        return self._failure


def store_error(what: str, error: plyvel.Error) -> StoreError:
    """What a read ran into. A table that lost its end or its name is damage, not a failing disk."""
    told = str(error)
    is_short = "No such file" in told or "Invalid argument" in told
    if isinstance(error, plyvel.CorruptionError) or is_short:
        return StoreDamaged(f"cannot {what}: {told}")
    return StoreFailed(f"cannot {what}: {told}")


def opening_error(directory: str, error: plyvel.Error) -> StoreError:
    """What opening ran into: it writes, but nothing that was there before is lost by it."""
    told = f"cannot open {directory}: {error}"
    if "No space left" in str(error) or "quota exceeded" in str(error):
        return StoreFull(told)
    if "lock" in str(error):
        return StoreRefused(told)
    if isinstance(error, plyvel.IOError):
        return StoreFailed(told)
    return StoreDamaged(told)
