"""Tables: documents, and the index keys that follow from them.

A table says which keys a document in its present state should have; writing a document puts the
difference between before and after. So no op can leave a stale key behind, and every index can be
made again from the documents and compared.

A `Transaction` is one log entry's view of a store. Ops read and write through it, each seeing what
those before it did; `commit` hands everything to the store in one write, the applied index with it.
There is no going back: an op decides first, and writes only when nothing can be refused any more.
With it goes a row of the feed: which documents changed, and what happened (`corvo.kv.feed`).
What is kept in memory between entries (documents, heads, counts) is bounded and derived: losing it
costs time and changes no answer.
"""

import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from corvo.errors import StoreDamaged
from corvo.kv.feed import FEED_BYTES_MAX, Feed, Told
from corvo.kv.heads import Head
from corvo.kv.keys import COUNTS, META, prefix_end
from corvo.kv.store import Store

CACHE_BYTES_MAX: Final = 32 << 20
"""Documents kept decoded, by the size of their encoding; two generations of half of it."""
HELD_BYTES: Final = 1_000
"""What a document takes in memory beside its own bytes, about."""
HEADS_MAX: Final = 1_024
"""Indexes whose heads are kept; each has at most some 50 KiB, most of them much less."""
COUNTS_MAX: Final = 10_000
"""Queues whose counts are kept."""
CLASSES: Final = 16
"""Of a group; the last is nobody's own: see `Transaction.came`."""
_CAME: Final = 2 * CLASSES - 1
_META_KEY: Final = META.build("applied")


class Group(msgspec.Struct, frozen=True, gc=False):
    """An index whose smallest keys are asked for: what `Head`s are made of."""

    prefix: bytes
    cursor: bytes = b""
    """Where `Head.start` is written, for an index that many are taken from; empty for nowhere."""


IndexKey: TypeAlias = tuple[bytes, bytes, Group | None]
"""The key, its value, and the group whose head shows it."""


class Meta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a store says of itself, written with every entry."""

    applied: int = 0
    term: int = 0
    now_ns: int = 0  # no stamp and no place in a queue was ever greater
    digest: int = 0  # a checksum over every write since the beginning: replicas compare it


Tally: TypeAlias = tuple[str, int]
"""The group, and the class in it, that a document is counted in."""

D = TypeVar("D", bound=msgspec.Struct)


class Table(Generic[D]):
    """Documents of one type."""

    def __init__(
        self,
        name: str,
        prefix: bytes,
        document: type[D],
        *,
        key: Callable[[D], str],
        indexes: Callable[[D], tuple[IndexKey, ...]] | None = None,
        tally: Callable[[D], Tally] | None = None,
        check: Callable[[D, D], None] | None = None,
        is_cold: Callable[[D], bool] | None = None,
        is_fed: bool = False,
        tell: Callable[["Transaction", D | None, D], None] | None = None,
        tell_gone: Callable[["Transaction", D, str, str], None] | None = None,
        json: bool = False,
        longer: type[D] | None = None,
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.document = document
        self.key = key
        self.indexes = indexes
        self.tally = tally  # the group and the class that a document is counted in
        self.check = check  # asserts that one document may follow another
        self.is_cold = is_cold
        """Says that hardly anybody will ask for the document again: it is not kept in memory, where
        what is asked for has the room, and the memory of what is gone is used again while it is
        still in the processor's caches."""
        self.is_fed = is_fed  # whether followers are told of its documents
        self.tell = tell
        """Adds to `Transaction.told` what happened, where a document follows another or none."""
        self.tell_gone = tell_gone  # the same where one is removed: what that is called, and why
        self.encode: Callable[[D], bytes] = (
            msgspec.json.Encoder().encode if json else msgspec.msgpack.Encoder().encode
        )
        self._decode: Callable[[bytes], D] = (
            msgspec.json.Decoder(document).decode
            if json
            else msgspec.msgpack.Decoder(document).decode
        )
        if longer is not None:
            assert not json, "JSON without a field needs no type of its own"
            self._decode = _by_length(document, longer)

    def decode(self, data: bytes) -> D:
        """The document that `encode` wrote."""
        try:
            return self._decode(data)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(f"a document of {self.name} cannot be read: {error}") from error

    def get(self, tx: "Transaction", identifier: str) -> D | None:
        """The document, or None."""
        held = self.find(tx, identifier)
        return held.document if held is not None else None

    def find(self, tx: "Transaction", identifier: str) -> "Held[D] | None":
        """The document with its keys, to be changed by `change`; or None."""
        key = self.prefix + identifier.encode()
        found = tx.cache.young.get(key)
        if found is None:
            return tx.held(self, key)
        assert found.table is self, "a key belongs to one table"
        return found  # type: ignore[return-value]  # its table is this one

    def change(self, tx: "Transaction", held: "Held[D]", document: D) -> D:
        """Write a document over the one that was found."""
        tx.place(self, held.key, held, document)
        return document

    def put(self, tx: "Transaction", document: D) -> D:
        """Write a document, over the one with its key if there is one."""
        key = self.prefix + self.key(document).encode()
        tx.place(self, key, tx.held(self, key), document)
        return document

    def insert(self, tx: "Transaction", document: D) -> D:
        """Write a document whose key is known to be new, without looking."""
        tx.place(self, self.prefix + self.key(document).encode(), None, document)
        return document

    def remove(
        self, tx: "Transaction", identifier: str, *, what: str = "deleted", why: str = ""
    ) -> None:
        """Remove a document that is there; followers are told what that was, and why."""
        key = self.prefix + identifier.encode()
        held = tx.held(self, key)
        assert held is not None, f"{self.name} {identifier} is there"
        if self.tell_gone is not None:
            self.tell_gone(tx, held.document, what, why)
        tx.displace(key, held)


def _by_length(document: type[D], longer: type[D]) -> Callable[[bytes], D]:
    """Decodes arrays with more fields than a document has as its longer type, which few are.

    So a document without these fields keeps its bytes, and replicas of older releases the digest.
    """
    last = b"\xdc" + len(document.__struct_fields__).to_bytes(2, "big")
    decode = msgspec.msgpack.Decoder(document).decode
    decode_longer = msgspec.msgpack.Decoder(longer).decode
    return lambda data: decode(data) if data[:3] <= last else decode_longer(data)


class Held(Generic[D]):
    """A document in memory, with the keys that are in the store for it."""

    __slots__ = ("document", "indexed", "key", "size", "table", "tally")

    def __init__(
        self, table: Table[D], key: bytes, document: D, indexed: tuple[IndexKey, ...], size: int
    ) -> None:
        self.table = table
        self.key = key
        self.document = document
        self.indexed = indexed
        self.size = size
        self.tally: Tally | None = None


AnyHeld: TypeAlias = "Held[msgspec.Struct]"


class Cache:
    """Documents that were used lately, in two generations: the older one is dropped as a whole."""

    def __init__(self, bytes_max: int) -> None:
        self._half = bytes_max // 2
        self.size = 0
        self.young: dict[bytes, AnyHeld] = {}
        self.old: dict[bytes, AnyHeld] = {}

    def settle(self) -> None:
        """Keep the bound. Called between entries, never while documents wait to be written."""
        if self.size > self._half:
            self.old, self.young, self.size = self.young, {}, 0

    def add(self, key: bytes, held: AnyHeld) -> None:
        """Keep a document."""
        self.size += held.size + HELD_BYTES
        self.young[key] = held

    def drop(self, key: bytes) -> None:
        """Forget one that is gone, or not wanted any more."""
        held = self.young.pop(key, None)
        if held is not None:
            self.size -= held.size + HELD_BYTES
        self.old.pop(key, None)


class Transaction:
    """A store as the op at hand sees it."""

    # With more than thirty attributes, its heirs' included, an object without slots becomes slow.
    __slots__ = (
        "_get",
        "_store",
        "by",
        "cache",
        "changed_bytes",
        "counted",
        "counts",
        "dirty",
        "feed",
        "heads",
        "index",
        "meta",
        "moved",
        "noted",
        "now_ns",
        "order_ns",
        "ran_ns",
        "term",
        "told",
        "waited_ns",
        "writes",
    )

    def __init__(
        self,
        store: Store,
        meta: Meta,
        *,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        feed_bytes_max: int = FEED_BYTES_MAX,
    ) -> None:
        self._store = store
        self._get = store.get
        self.meta = meta
        self.feed = Feed(store, applied=meta.applied, digest=meta.digest, bytes_max=feed_bytes_max)
        self.by = ""  # who asked for the op at hand
        self.told: list[Told] = []  # what happened in this entry, in order
        self.waited_ns: list[int] = []
        """How long each thing waited that was begun in this entry. Only metrics are made of it."""
        self.ran_ns: list[int] = []  # the same: how long each thing ran that was ended
        self.noted: dict[bytes, None] = {}
        """Keys of fed documents that the entry removes, or that are in no table."""
        self.cache = Cache(cache_bytes_max)
        self.writes: dict[bytes, bytes | None] = {}
        """What the entry changes: index keys, and documents that were removed."""
        self.dirty: dict[bytes, AnyHeld] = {}
        """Documents that the entry changes, encoded when it is committed."""
        self.heads: dict[bytes, Head] = {}
        self.moved: dict[bytes, Group] = {}  # groups with a cursor that the entry touched
        self.counts: dict[str, list[int]] = {}
        self.counted: dict[str, None] = {}  # groups whose counts the entry changed
        self.changed_bytes = 0
        """How large the stored documents are that the entry changes: what it will write anew."""
        self.index = meta.applied
        self.term = meta.term
        self.now_ns = meta.now_ns
        self.order_ns = meta.now_ns  # the last place that was given out

    # Documents.

    def held(self, table: Table[D], key: bytes) -> Held[D] | None:
        """The document at a key, from memory or the store."""
        cache = self.cache
        found = cache.young.get(key)
        if found is None:
            found = self.dirty.get(key)
            if found is None:
                found = cache.old.get(key)
            if found is not None:
                cache.add(key, found)
        if found is not None:
            assert found.table is table, "a key belongs to one table"
            return found  # type: ignore[return-value]  # its table is this one
        if key in self.writes:
            return None  # removed by this entry
        data = self._get(key)
        if data is None:
            return None
        document = table.decode(data)
        indexed = table.indexes(document) if table.indexes is not None else ()
        held = Held(table, key, document, indexed, len(data))
        held.tally = table.tally(document) if table.tally is not None else None
        cache.add(key, held)  # type: ignore[arg-type]  # a cache holds documents of all tables
        return held

    def place(self, table: Table[D], key: bytes, before: Held[D] | None, document: D) -> None:
        """Write a document and what follows from it."""
        tell = table.tell
        indexed = table.indexes(document) if table.indexes is not None else ()
        if before is None:
            held = Held(table, key, document, indexed, 0)
            self.cache.add(key, held)  # type: ignore[arg-type]  # as in `held`
            self.writes.pop(key, None)
            if tell is not None:
                tell(self, None, document)
            for entry in indexed:
                self._set(entry)
        else:
            held = before
            old = before.indexed
            if key not in self.dirty:
                self.changed_bytes += before.size
            if table.check is not None:
                table.check(before.document, document)
            if tell is not None:
                tell(self, before.document, document)
            held.document = document
            held.indexed = indexed
            # A key that only gets another value is removed first and then written.
            for entry in old:
                if entry not in indexed:
                    self._unset(entry)
            for entry in indexed:
                if entry not in old:
                    self._set(entry)
        self.dirty[key] = held  # type: ignore[assignment]  # of all tables, too
        if table.tally is not None:
            self._tally(held, table.tally(document))

    def _tally(self, held: Held[D], tally: Tally) -> None:
        """Count a document where it belongs now, and no longer where it belonged."""
        was = held.tally
        if was == tally:
            return
        held.tally = tally
        group, number = tally
        if was is not None and was[0] == group:
            counts = self.count(group)
            counts[was[1]] -= 1
            counts[number] += 1
            counts[number + CLASSES] += 1
            assert counts[was[1]] >= 0, f"there are no fewer than none in {group}"
            self.counted[group] = None
        else:
            if was is not None:
                self._count(was, -1)
            self._count(tally, 1)
            if was is None:
                self.counts[group][_CAME] += 1

    def displace(self, key: bytes, held: Held[D]) -> None:
        """Remove a document and what followed from it."""
        for entry in held.indexed:
            self._unset(entry)
        if held.tally is not None:
            self._count(held.tally, -1)
        self.dirty.pop(key, None)
        self.cache.drop(key)
        self.writes[key] = None
        if held.table.is_fed:
            self.noted[key] = None

    def _set(self, entry: IndexKey) -> None:
        key, value, group = entry
        if group is not None:
            head = self.heads.get(group.prefix)
            if group.cursor:
                head = self._moving(group, head)
            if head is not None:
                head.add(key)
        self.writes[key] = value

    def _unset(self, entry: IndexKey) -> None:
        key, _, group = entry
        if group is not None:
            head = self.heads.get(group.prefix)
            if group.cursor:
                head = self._moving(group, head)
            if head is not None:
                head.discard(key)
        self.writes[key] = None

    def _moving(self, group: Group, head: Head | None) -> Head:
        """The head of an index whose cursor is about to change.

        It is always there, and filled, so that where the cursor goes does not depend on what this
        replica happens to have in memory.
        """
        self.moved[group.prefix] = group
        return head if head is not None and head.keys else self.head(group)

    # Keys that are no document and follow from none.

    def set_key(self, key: bytes, value: bytes) -> None:
        """Write a key."""
        self.writes[key] = value

    def remove_key(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        self.writes[key] = None

    def note(self, key: bytes) -> None:
        """Followers are to be told of a key that is in no table, and is written or removed."""
        self.noted[key] = None

    def get_key(self, key: bytes) -> bytes | None:
        """Read a key that is no document."""
        if key in self.writes:
            return self.writes[key]
        return self._get(key)

    # Order.

    def head(self, group: Group) -> Head:
        """The first keys of an index; at least one, unless it is empty."""
        head = self.heads.get(group.prefix)
        if head is None:
            head = self.heads[group.prefix] = self._new_head(group)
        if not head.keys:
            head.fill()
        return head

    def _new_head(self, group: Group) -> Head:
        start = group.prefix
        if group.cursor:
            start = self.get_key(group.cursor) or start
        stop = prefix_end(group.prefix)
        return Head(start, lambda first, limit: self.keys(first, stop, limit=limit))

    def keys(self, start: bytes, stop: bytes, *, limit: int) -> list[bytes]:
        """Keys from `start` on and below `stop`, in order, with what this entry changed.

        Documents that this entry added are seen by their index keys, not here.
        """
        assert limit > 0
        changed = sorted(key for key in self.writes if start <= key < stop)
        if not changed:
            return self._store.keys(start, stop, limit=limit)
        writes = self.writes
        gone = sum(writes[key] is None for key in changed)
        stored = self._store.keys(start, stop, limit=limit + gone)
        is_whole = len(stored) < limit + gone
        merged = [key for key in stored if writes.get(key, b"") is not None]
        end = None if is_whole else stored[-1]
        for key in changed:
            if writes[key] is None or (end is not None and key > end):
                continue
            at = bisect_left(merged, key)
            if at == len(merged) or merged[at] != key:
                merged.insert(at, key)
        return merged[:limit]

    def last_keys(self, start: bytes, stop: bytes, *, limit: int) -> list[bytes]:
        """Keys from `start` on and below `stop`, the greatest first. Only between entries."""
        assert not self.writes, "what an entry changes is not looked for here"
        return [key for key, _ in self._store.scan(start, stop, limit=limit, reverse=True)]

    def next_order_ns(self) -> int:
        """A place in a queue behind every place there ever was in this shard."""
        order_ns = self.order_ns + 1
        self.order_ns = order_ns
        return order_ns

    # Counts.

    def count(self, group: str) -> list[int]:
        """How many documents of a group are in each class. Not to be changed.

        Behind that, for `came`, how many came into each from another since this was last asked.
        """
        counts = self.counts.get(group)
        if counts is None:
            data = self._get(COUNTS.prefix + group.encode())
            counts = msgspec.msgpack.decode(data, type=list[int]) if data is not None else []
            counts += [0] * (2 * CLASSES - len(counts))
            self.counts[group] = counts
        return counts

    def came(self, group: str) -> list[int]:
        """How many documents of a group came into each class from another, and last, from nowhere.

        In this entry, and since this was called before; however many have left again.
        """
        counts = self.count(group)
        came = counts[CLASSES:]
        counts[CLASSES:] = _NONE
        return came

    def _count(self, tally: Tally, change: int) -> None:
        group, number = tally
        counts = self.counts.get(group)
        if counts is None:
            counts = self.count(group)
        counts[number] += change
        assert counts[number] >= 0, f"there are no fewer than none in {group}"
        self.counted[group] = None

    # One entry.

    def begin(self, *, index: int, term: int, stamp_ns: int) -> None:
        """The entry behind `applied` begins. Its time is its leader's, and never goes backwards."""
        assert index == self.meta.applied + 1, "entries are applied in order, each once"
        self.index = index
        self.term = term
        self.now_ns = max(stamp_ns, self.meta.now_ns + 1)
        self.order_ns = self.now_ns - 1
        self.changed_bytes = 0
        self.waited_ns = []
        self.ran_ns = []

    def commit(self) -> None:
        """Hand everything that the entry changed to the store."""
        writes = self.writes
        noted = self.noted
        encoded = 0
        for key, held in self.dirty.items():
            table, document = held.table, held.document
            data = table.encode(document)
            encoded += len(data) - held.size
            held.size = len(data)
            writes[key] = data
            if table.is_cold is not None and table.is_cold(document):
                self.cache.drop(key)
            if table.is_fed:
                noted[key] = None
        self.cache.size += encoded
        for group in self.moved.values():
            head = self.heads.get(group.prefix)
            assert head is not None, "heads are dropped between entries only"
            writes[group.cursor] = head.start
        for name in self.counted:
            counts = self.counts[name][:CLASSES]
            key = COUNTS.prefix + name.encode()
            writes[key] = _encode(counts) if any(counts) else None
            noted[key] = None
        digest = zlib.crc32(b"".join(writes), self.meta.digest)
        values = writes.values()
        digest = zlib.crc32(bytes([value is None for value in values]), digest)
        digest = zlib.crc32(b"".join(filter(None, values)), digest)
        self.meta = Meta(self.index, self.term, max(self.now_ns, self.order_ns), digest)
        writes[_META_KEY] = _encode(self.meta)
        # Where a feed begins differs between replicas: what it writes is in no digest.
        self.feed.append(writes, self.index, digest, self.now_ns, tuple(noted), self.told)
        self._store.write(writes)
        self._settle()

    def rest(self) -> None:
        """Keep the bounds of what is in memory also when it was only read. Only between entries."""
        assert not self.writes, "an entry is under way"
        assert not self.dirty, "an entry is under way"
        self._settle()

    def _settle(self) -> None:
        self.writes = {}
        self.dirty = {}
        self.moved = {}
        self.counted = {}
        self.told = []
        self.noted = {}
        self.cache.settle()
        if len(self.heads) > HEADS_MAX:
            self.heads = {}
        if len(self.counts) > COUNTS_MAX:
            self.counts = {}


_NONE: Final = [0] * CLASSES
_encode: Final = msgspec.msgpack.Encoder().encode


def read_meta(store: Store) -> Meta:
    """What a store says of itself; the beginning for an empty one."""
    data = store.get(_META_KEY)
    if data is None:
        return Meta()
    try:
        return msgspec.msgpack.decode(data, type=Meta)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the state's own record cannot be read: {error}") from error
