"""What an op gets to work with: the tables' transaction, and what only a shard has.

Time, ids and places in a queue follow from the entry: its stamp, its index, and how much was made
in it before. Nothing else may be asked for them.
"""

import zlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.ids import Mint
from corvo.kv.feed import FEED_BYTES_MAX
from corvo.kv.keys import META
from corvo.kv.store import Store
from corvo.kv.tables import CACHE_BYTES_MAX, Meta, Transaction
from corvo.model import Epoch, Run
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.cluster import HOME as MAP_HOME
from corvo.shard.state.entry import Stamp
from corvo.shard.state.throughput import Minutes

ERRANDS_MAX: Final = 256
"""Jobs that are told in one entry of the end of another that they waited for; the leader has the
rest told in entries of their own."""
CHANGED_BYTES_MAX: Final = 64 << 20
"""Stored documents that one entry may write anew. An entry is small and may name thousands of large
ones; all that it changes is in memory at once, and written in one step."""
TOKEN_BITS: Final = 9
"""A job can be fetched, released and fetched again within one entry, once an op: 512 times."""

_GRACE_KEY: Final = META.build("grace")
_MAP_KEY: Final = META.build("cluster_map")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_number: Final = msgspec.msgpack.Decoder(int).decode


class Grace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A time in which leases do not end: those that had not ended by `since_ns`, until `until_ns`.

    It begins with a new leader. Heartbeats may not have got through before, and a worker must not
    lose a job because the shard was away.
    """

    since_ns: int = 0
    until_ns: int = 0


def _decode_map(saved: bytes | None) -> ClusterMap | None:
    return None if saved is None else msgspec.msgpack.decode(saved, type=ClusterMap)


class Tx(Transaction):
    """One entry's view of one shard."""

    __slots__ = (
        "cluster_map",
        "dice",
        "doomed",
        "epochs",
        "errands_left",
        "grace",
        "has_old_answers",
        "keys_changed",
        "map_changed",
        "mint",
        "minutes",
        "outbox",
        "rates",
        "runs",
        "seen",
        "shard",
        "shards",
        "taken_epochs",
        "token",
        "touched",
    )

    def __init__(
        self,
        store: Store,
        meta: Meta,
        *,
        shard: int,
        shards: int,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        feed_bytes_max: int = FEED_BYTES_MAX,
    ) -> None:
        super().__init__(
            store, meta, cache_bytes_max=cache_bytes_max, feed_bytes_max=feed_bytes_max
        )
        self.shard = shard
        self.shards = shards
        self.minutes = Minutes()
        self.outbox: dict[int, tuple[int, int]] | None = None
        """By shard, the last effect that was given to it, and the last that it has taken; None
        while nobody asked. See `corvo.shard.state.outbox`."""
        self.epochs: Mapping[int, Epoch] | None = None
        """By shard, the present epoch; None while nobody asked. See `corvo.shard.state.epochs`."""
        self.taken_epochs: dict[int, list[tuple[int, int]]] = {}
        """By shard, the epochs of its effects that were taken, as far as somebody asked."""
        self.seen = ""  # the worker whose fetch was remembered last, in this entry
        self.touched: dict[str, None] = {}
        """Queues that may have something to give since somebody looked and emptied this."""
        self.keys_changed = False
        """Whether an entry changed an API key since somebody looked and cleared this."""
        self.map_changed = False
        """Whether an entry changed the cluster map since this was cleared."""
        self.rates: dict[str, list[bytes]] = {}
        """Rows of the present window by queue with a rate limit: see `corvo.shard.state.limits`."""
        self.runs: list[tuple[Run, int | None]] = []
        """Due times of schedules that the entry has fired or skipped, each with the time from it to
        the entry; None for one that waited. Only metrics are made from it."""
        self.has_old_answers = False
        """Whether the op's answer is kept and is from before version 2 of the ops: a replay has to
        come to the same bytes."""
        self.doomed: list[str] = []
        """Jobs that were met while they are being swept, to be removed at the end of the op."""
        self.dice = 0  # drawn by the leader once for each entry
        self.errands_left = ERRANDS_MAX
        saved = store.get(_GRACE_KEY)
        self.grace = msgspec.msgpack.decode(saved, type=Grace) if saved is not None else Grace()
        self.cluster_map = _decode_map(store.get(_MAP_KEY)) if shard == MAP_HOME else None
        """None while there is none. Like the grace it is read once, because it is asked for at
        every turn of the leader."""

    def start(self, *, index: int, term: int, stamp: Stamp) -> None:
        """The entry behind the last one begins."""
        self.begin(index=index, term=term, stamp_ns=stamp.now_ns)
        self.dice = stamp.dice
        self.seen = ""
        self.runs = []
        self.minutes.happened = []
        self.errands_left = ERRANDS_MAX
        self.mint = Mint(self.shard, self.now_ns, index)
        self.token = index << TOKEN_BITS
        """Of a lease that begins in this entry, unless the job had one from it before."""

    def commit(self) -> None:
        """Count what happened, and hand everything that the entry changed to the store."""
        self.minutes.count(self)
        super().commit()
        self.minutes.settle()

    def number(self, key: bytes) -> int:
        """A number that a key has; 0 without the key."""
        data = self.get_key(key)
        return 0 if data is None else _decode_number(data)

    def set_number(self, key: bytes, number: int) -> None:
        """Write a number, of things that are counted."""
        assert number >= 0
        self.set_key(key, _encode(number))

    @property
    def is_full(self) -> bool:
        """Whether the entry changes so much that the rest of it is left for another."""
        return self.changed_bytes >= CHANGED_BYTES_MAX

    def dice_for(self, name: str) -> int:
        """A number from 0 to 65,535 that every replica draws alike."""
        return zlib.crc32(name.encode(), self.dice) & 0xFFFF

    def put_map(self, changed: ClusterMap) -> ClusterMap:
        """Write the cluster map, under its next version."""
        before = self.cluster_map
        written = replace(changed, version=before.version + 1 if before is not None else 1)
        self.cluster_map = written
        self.map_changed = True
        self.set_key(_MAP_KEY, _encode(written))
        return written

    def give_grace(self, until_ns: int) -> None:
        """A new leader took over: see `Grace`. One right behind another prolongs the first's."""
        before = self.grace
        is_running = self.meta.now_ns < before.until_ns
        since_ns = before.since_ns if is_running else self.meta.now_ns
        self.grace = Grace(since_ns, max(until_ns, before.until_ns))
        self.set_key(_GRACE_KEY, _encode(self.grace))
