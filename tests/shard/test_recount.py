"""The recount finds nothing in a state that ops have made, and every key that is lost or changed.

That it finds nothing is held after each entry of `tests.shard.test_model` and of other tests: they
use it as their check. Here single keys are damaged at the end of random histories.
"""

import zlib
from typing import Final

import msgspec
from hypothesis import settings

from corvo.kv import keys
from corvo.kv.keys import SPACES, Space
from corvo.kv.store import Store
from corvo.shard.recount.multiset import Multiset
from corvo.shard.recount.recounting import DERIVED
from corvo.shard.recount.rows import rows
from corvo.shard.state.tables import JOBS
from tests.shard import test_model
from tests.shard.shard import wrong_in
from tests.support.memory import MemoryStore

TRIED: Final = 40
"""Keys that are damaged after each history."""

LOST_UNSEEN: Final = {
    keys.RATE_LIMIT: "nothing else counts fetches",
    keys.THROUGHPUT: "nothing else has these counts",
    keys.QUEUE_CURSOR: "a hint where a scan begins",
    keys.INBOX: "the other shard knows it: `corvo.verify.shards` compares both",
    keys.FORWARD: "the other shard knows it, as before",
    keys.WATCHER: "as before",
    keys.WATCHED: "as before",
}
"""Spaces in which one shard alone does not miss a key."""
LOST_META: Final = ("grace", "epochs", "epochs of 1", "sweep ", "outbox", "cluster_map")
"""Of what there is one of, the keys that it does not miss; `outbox` without effects on the way."""
CHECKED_VALUES: Final = (*DERIVED, keys.COUNTS)
"""Spaces in which each bit of each value follows from documents."""
_SPACES: Final = {space.prefix: space for space in SPACES}


def space_of(key: bytes) -> Space:
    return _SPACES[key[: key.find(b"|") + 1]]


def damaged(content: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> bool:
    """Whether a recount finds a change."""
    after = {**content, **changes}
    store = MemoryStore({key: value for key, value in after.items() if value is not None})
    return bool(wrong_in(store, shard=0, shards=2))


def may_be_lost(key: bytes, content: dict[bytes, bytes]) -> bool:
    """Whether one shard alone does not miss a key."""
    space = space_of(key)
    if space is keys.BATCH:
        # Its members may be in another shard, or not have come.
        jobs = [JOBS.decode(it) for one, it in content.items() if space_of(one) is keys.JOB]
        name = key.removeprefix(keys.BATCH.prefix).decode()
        return not any(job.batch_id == name and job.born_in < 0 for job in jobs)
    if space is keys.META:
        name = key.removeprefix(keys.META.prefix).decode()
        if name == "outbox":
            return not any(one.startswith(keys.OUTBOX.prefix) for one in content)
        return name.startswith(LOST_META) or msgspec.msgpack.decode(content[key]) == 0
    return space in LOST_UNSEEN


class Damaged(test_model.Shard):
    """A history, at whose end keys are damaged."""

    def teardown(self) -> None:
        super().teardown()
        if self.has_failed:
            return
        content = dict(self.store.scan(b"", b"\xff", limit=1 << 30))
        # Any choice does, if it is the same for the same history.
        chosen = sorted(content, key=zlib.crc32)[:TRIED]
        for key in chosen:
            if not may_be_lost(key, content):
                assert damaged(content, {key: None}), f"{key!r} is lost, and not missed"
            space = space_of(key)
            if space in DERIVED:
                assert damaged(content, {key + b"x": content[key]}), f"{key!r}x is not seen"
            value = content[key]
            if space in CHECKED_VALUES and value:
                at = zlib.crc32(value) % (8 * len(value))
                flipped = bytearray(value)
                flipped[at // 8] ^= 1 << at % 8
                assert damaged(content, {key: bytes(flipped)}), f"bit {at} of {key!r}"


TestDamaged = Damaged.TestCase
TestDamaged.settings = settings(test_model.TestMemory.settings, max_examples=40)


def test_sets_of_pairs_are_equal_in_any_order_and_differ_by_any_pair() -> None:
    one, other = Multiset(), Multiset()
    for pair in ((b"a", b"1"), (b"b", b""), (b"", b"c")):
        one.add(*pair)
    for pair in ((b"", b"c"), (b"a", b"1"), (b"b", b"")):
        other.add(*pair)
    assert one == other

    other.add(b"b", b"")
    assert one != other
    one.add(b"", b"b")
    assert one != other


class _Counting(MemoryStore):
    """Notes how large the pages are that are read."""

    def __init__(self, content: dict[bytes, bytes]) -> None:
        super().__init__(content)
        self.largest = 0

    def scan(
        self, start: bytes, stop: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        found = super().scan(start, stop, limit=limit, reverse=reverse)
        self.largest = max(self.largest, sum(len(key) + len(value) for key, value in found))
        return found


def test_pages_are_small_whatever_the_size_of_documents() -> None:
    content = {b"k%05d" % n: b"x" * (100_000 if n > 3_000 else 10) for n in range(3_300)}
    store = _Counting(content)
    as_store: Store = store

    assert dict(rows(as_store, b"", b"\xff")) == content
    assert store.largest <= 64 * 100_010
