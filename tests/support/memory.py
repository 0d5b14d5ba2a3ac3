"""`Store` and `States` in memory, for tests and the simulator.

Values are in a dict. Keys are beside it in order, in a row of short lists, so that adding one moves
a few kilobytes and not all of them: 300,000 keys cost little more a write than 300 do.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from struct import Struct
from typing import Final
from zlib import crc32

from corvo.errors import StoreDamaged, StoreError, StoreFailed, StoreFull
from corvo.kv import sums
from corvo.kv.store import Store
from corvo.kv.streams import PIECE_BYTES_MAX, Source, Unpacking, pack
from corvo.kv.sums import Sum

_CHUNK_KEYS: Final = 512  # measured: 256 to 2,048 make no difference, beyond that moving shows
_PAIR: Final = Struct(">II")


class SortedKeys:
    """Distinct keys in order: chunks of sorted keys, and a lower bound of each to find it by."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [
            ordered[start : start + _CHUNK_KEYS] for start in range(0, len(ordered), _CHUNK_KEYS)
        ] or [[]]
        # The first chunk takes whatever is small, and stays when it is empty.
        self._bounds = [b"", *(chunk[0] for chunk in self._chunks[1:])]

    def add(self, key: bytes) -> None:
        """Add a key that is not here."""
        at = bisect_right(self._bounds, key) - 1
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * _CHUNK_KEYS:
            self._chunks[at : at + 1] = [chunk[:_CHUNK_KEYS], chunk[_CHUNK_KEYS:]]
            self._bounds.insert(at + 1, chunk[_CHUNK_KEYS])

    def remove(self, key: bytes) -> None:
        """Remove a key that is here."""
        at = bisect_right(self._bounds, key) - 1
        chunk = self._chunks[at]
        position = bisect_left(chunk, key)
        assert chunk[position] == key, "what is removed is here"
        del chunk[position]
        if not chunk and at:
            del self._chunks[at], self._bounds[at]

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """The least keys from `start` on and below `stop`."""
        found: list[bytes] = []
        at = bisect_right(self._bounds, start) - 1
        while len(found) < limit and at < len(self._chunks) and self._bounds[at] < stop:
            chunk = self._chunks[at]
            begin = bisect_left(chunk, start)
            end = min(bisect_left(chunk, stop), begin + limit - len(found))
            found += chunk[begin:end]
            at += 1
        return found

    def last(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """The greatest keys from `start` on and below `stop`, the greatest first."""
        found: list[bytes] = []
        at = bisect_left(self._bounds, stop) - 1
        while len(found) < limit and at >= 0:
            chunk = self._chunks[at]
            end = bisect_left(chunk, stop)
            begin = max(bisect_left(chunk, start), end - limit + len(found))
            found += reversed(chunk[begin:end])
            if self._bounds[at] <= start:
                break
            at -= 1
        return found


class MemoryStore:
    """A `Store` that a power loss takes back to its last `sync`.

    Set `failing` to have the next write raise it; as with a disk, the object is then of no more
    use, until `crash`.
    """

    def __init__(self, content: Mapping[bytes, bytes] | None = None) -> None:
        # None stands for a key that is just being removed: see `write`.
        self._values: dict[bytes, bytes | None] = dict(content or {})
        self._order: SortedKeys | None = None
        self._ended: StoreError | None = None
        self._is_closed = False
        self.failing: StoreError | None = None
        self._synced: dict[bytes, bytes] = dict(content or {})

    def get(self, key: bytes) -> bytes | None:
        """The value at `key`, or None."""
        self._check()
        return self._values.get(key)

    def keys(self, start: bytes, stop: bytes, *, limit: int) -> list[bytes]:
        """The first keys of a range."""
        self._check()
        return self._sorted().first(start, stop, limit)

    def scan(
        self, start: bytes, stop: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """The first keys of a range and their values, or the last ones backwards."""
        self._check()
        order = self._sorted()
        keys = order.last(start, stop, limit) if reverse else order.first(start, stop, limit)
        values = self._values
        found = []
        for key in keys:
            value = values[key]
            assert value is not None, "a key in order has a value"
            found.append((key, value))
        return found

    def close(self) -> None:
        """Let go of everything."""
        self._is_closed = True
        self._values = {}
        self._order = None

    def _check(self) -> None:
        assert not self._is_closed, "nobody uses what was closed"
        if self._ended is not None:
            raise StoreFailed(f"a write had failed before: {self._ended}")

    def _sorted(self) -> SortedKeys:
        if self._order is None:
            self._order = SortedKeys(self._values)
        return self._order

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Carry out all changes in one step."""
        self._check()
        if self.failing is not None:
            self._ended, self.failing = self.failing, None
            raise self._ended
        order = self._sorted()
        values = self._values
        changes = dict(changes)
        added = [key for key, value in changes.items() if value is not None and key not in values]
        removed = [key for key, value in changes.items() if value is None and key in values]
        # One step of the interpreter: another thread that copies sees all of it or nothing.
        values.update(changes)
        for key, value in changes.items():
            if value is None:
                del values[key]
        for key in removed:
            order.remove(key)
        for key in added:
            order.add(key)

    def sync(self) -> None:
        """Make every write before this survive `crash`."""
        self._check()
        self._synced = self.content()

    def content(self) -> dict[bytes, bytes]:
        """A copy of everything, in no order. Another thread may ask for it."""
        copied = self._values.copy()
        return {key: value for key, value in copied.items() if value is not None}

    def crash(self) -> None:
        """Lose power and start again: only what was synced is there."""
        self._values = dict(self._synced)
        self._order = None
        self._ended = None
        self.failing = None
        self._is_closed = False


class MemoryCopy:
    """A `Copy` in memory: one file."""

    def __init__(self, index: int, data: bytes) -> None:
        self.index = index
        self.sums = sums.encode({"memory": Sum(len(data), crc32(data))})
        self._data: bytes | None = data

    def read(self, name: str, offset: int) -> bytes:
        """A piece of the file."""
        assert self._data is not None, "nothing is read of what was let go"
        return {"memory": self._data}[name][offset : offset + PIECE_BYTES_MAX]

    def close(self) -> None:
        """Let go of it."""
        self._data = None


class MemoryStates:
    """A `States` that outlives its process: `crash` ends one and starts the next.

    Set `is_full` to have a checkpoint find no room.
    """

    def __init__(self, *, applied: Callable[[Store], int]) -> None:
        self.is_full = False
        self._applied = applied
        self._store = MemoryStore()
        self._checkpoint: dict[bytes, bytes] = {}
        self._checkpointed = 0
        self._received = MemoryStore()
        self._is_clean = False
        self._is_distrusted = False

    @property
    def store(self) -> MemoryStore:
        """The live store. It is another one after `install` and `crash`."""
        return self._store

    @property
    def checkpointed(self) -> int:
        """The applied index of the newest checkpoint; 0 when there is none."""
        return self._checkpointed

    def checkpoint(self) -> int:
        """Remember what is written now."""
        if self.is_full:
            raise StoreFull("no room for a checkpoint")
        content = self._store.content()
        applied = self._applied(MemoryStore(content))
        assert applied >= max(1, self._checkpointed), "what was applied is not taken back"
        self._checkpoint, self._checkpointed = content, applied
        return applied

    def pin(self) -> MemoryCopy:
        """The newest checkpoint."""
        assert self._checkpointed, "there is a checkpoint to be copied"
        return MemoryCopy(self._checkpointed, b"".join(_encode(self._checkpoint)))

    def stream(self) -> Generator[bytes, None, None]:
        """The newest checkpoint of now, whatever is made or installed while it is read."""
        assert self._checkpointed, "there is a checkpoint to be streamed"
        content = self._checkpoint
        size = sum(_PAIR.size + len(key) + len(value) for key, value in content.items())
        return (piece for piece in pack([Source("memory", size, lambda: _encode(content))]))

    def install(self, stream: Iterable[bytes]) -> None:
        """Become what a `stream` describes, once all of it proved to be right."""
        self.become(self.receive(stream))

    def receive(self, stream: Iterable[bytes]) -> int:
        """Keep what a `stream` describes, once all of it proved to be right."""
        content = _decode(stream)
        self._received = MemoryStore(content)
        return self._applied(self._received)

    def become(self, received: int) -> None:
        """Become what was received."""
        self._checkpoint, self._checkpointed = self._received.content(), received
        self._replace(self._received)

    def distrust(self) -> None:
        """Have the next start begin with the checkpoint."""
        self._is_distrusted = True

    def close(self) -> None:
        """Stop cleanly: whatever ends after this, nothing is lost, unless it is distrusted."""
        if not self._is_distrusted:
            self._store.sync()
            self._is_clean = True
        self._store.close()

    def crash(self, *, power_loss: bool) -> None:
        """End the process or the machine, and start again."""
        if self._is_clean:
            self._store.crash()
        else:
            goes_back = power_loss or self._is_distrusted
            self._replace(MemoryStore(self._checkpoint if goes_back else self._store.content()))
        self._is_clean = self._is_distrusted = False

    def _replace(self, store: MemoryStore) -> None:
        self._store.close()
        self._store = store


def _encode(content: dict[bytes, bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for key in sorted(content):
        value = content[key]
        piece += _PAIR.pack(len(key), len(value)) + key + value
        if len(piece) >= PIECE_BYTES_MAX:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _decode(stream: Iterable[bytes]) -> dict[bytes, bytes]:
    unpacking = Unpacking(stream)
    found = unpacking.following()
    if found is None or found[0] != "memory":
        raise StoreDamaged("this checkpoint is not one of a store in memory")
    data = b"".join(unpacking.data())
    if unpacking.following() is not None:
        raise StoreDamaged("this checkpoint is not one of a store in memory")
    content = {}
    at = 0
    while at < len(data):
        key_length, value_length = _PAIR.unpack_from(data, at)
        middle = at + _PAIR.size + key_length
        content[data[at + _PAIR.size : middle]] = data[middle : middle + value_length]
        at = middle + value_length
    assert at == len(data), "what was checked is what was encoded"
    return content
