"""Check of the feed: rows of all entries since its begin, each after the one before."""

import msgspec

from corvo.errors import CorvoError
from corvo.kv.feed import ROW_BYTES, Begin, Row, row_key
from corvo.kv.keys import EVENT, EVENT_CURSOR, SPACES, prefix_end
from corvo.kv.store import Store
from corvo.kv.tables import Meta
from corvo.shard.recount.rows import Tell, Wrong, rows

_decode_row = msgspec.msgpack.Decoder(Row).decode
_decode_begin = msgspec.msgpack.Decoder(Begin).decode
_PREFIXES = frozenset(space.prefix for space in SPACES)


def check_feed(store: Store, meta: Meta, tell: Tell) -> int:
    """Check every row; returns how many there are."""
    data = store.get(EVENT_CURSOR.prefix)
    begin = None
    if data is not None:
        try:
            begin = _decode_begin(data)
        except msgspec.MsgspecError as error:
            tell(Wrong(EVENT_CURSOR.name, EVENT_CURSOR.prefix, f"cannot be read: {error}"))
            return 0
    count = 0
    due = begin.index + 1 if begin is not None else 0
    total = begin.bytes_total if begin is not None else 0
    now_ns = 0
    digest = begin.digest if begin is not None else 0
    for key, value in rows(store, EVENT.prefix, prefix_end(EVENT.prefix)):
        count += 1
        try:
            [index] = EVENT.parse(key)
            assert isinstance(index, int)
            row = _decode_row(value)
        except (CorvoError, msgspec.MsgspecError) as error:
            tell(Wrong(EVENT.name, key, f"cannot be read: {error}"))
            due += 1
            continue
        if begin is None:
            tell(Wrong(EVENT_CURSOR.name, EVENT_CURSOR.prefix, "is missing, and there are rows"))
            return count
        if index < begin.index + 1:
            if not begin.stale or index < begin.stale:
                tell(Wrong(EVENT.name, key, f"is before the begin, entry {begin.index}"))
            continue
        if index != due:
            tell(Wrong(EVENT.name, row_key(due), f"is missing: the next row is of entry {index}"))
        elif row.bytes_total != total:
            tell(Wrong(EVENT.name, key, f"has {row.bytes_total} bytes before it, not {total}"))
        if row.now_ns < now_ns:
            tell(Wrong(EVENT.name, key, "has an earlier time than the entry before it"))
        unknown = [one for one in row.keys if one[: one.find(b"|") + 1] not in _PREFIXES]
        if unknown:
            tell(Wrong(EVENT.name, key, f"names a key of no known kind: {unknown[0]!r}"))
        due, total, now_ns = index + 1, row.bytes_total + len(value) + ROW_BYTES, row.now_ns
        digest = row.digest
    if begin is None:
        return count
    if due != meta.applied + 1:
        tell(
            Wrong(EVENT.name, row_key(due), f"is missing: the last entry applied is {meta.applied}")
        )
    elif digest != meta.digest:
        at = row_key(meta.applied) if meta.applied > begin.index else EVENT_CURSOR.prefix
        tell(Wrong(EVENT.name, at, f"has digest {digest:x}, and the state {meta.digest:x}"))
    if now_ns > meta.now_ns:
        tell(Wrong(EVENT.name, row_key(due - 1), "is newer than the state"))
    return count
