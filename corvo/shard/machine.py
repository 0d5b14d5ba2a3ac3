"""The state machine: applies a log entry to the store, and returns the answers of its ops.

`apply` is a function of the state and the entry alone, and so every replica comes to the same
state. An op that is refused leaves nothing behind; an exception is a bug, and ends the process
before anything of the entry is written.
"""

from collections.abc import Sequence

import msgspec

from corvo import __version__
from corvo.errors import NewerEntry
from corvo.kv.feed import FEED_BYTES_MAX
from corvo.kv.store import Store
from corvo.kv.tables import CACHE_BYTES_MAX, read_meta
from corvo.protocol import wire
from corvo.protocol.ops import NAMES
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.shard.ops import APPLY, DECODE
from corvo.shard.state import lifecycle, requests
from corvo.shard.state.entry import Stamp, decode
from corvo.shard.state.tx import Tx


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one op came to."""

    code: str  # empty when it was done; else why it was refused
    body: bytes  # JSON


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """An entry's stamp, and its ops with their numbers."""

    stamp: Stamp
    ops: Sequence[tuple[int, Op]]


class Machine:
    """One shard's state, and how it changes."""

    def __init__(
        self,
        store: Store,
        *,
        shard: int,
        shards: int,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        feed_bytes_max: int = FEED_BYTES_MAX,
    ) -> None:
        self.store = store
        self.tx = Tx(
            store,
            read_meta(store),
            shard=shard,
            shards=shards,
            cache_bytes_max=cache_bytes_max,
            feed_bytes_max=feed_bytes_max,
        )

    @property
    def applied(self) -> int:
        """The index of the last entry applied."""
        return self.tx.meta.applied

    @property
    def now_ns(self) -> int:
        """The state's own time."""
        return self.tx.meta.now_ns

    @property
    def digest(self) -> int:
        """Stands for every write there ever was: equal wherever `applied` is equal."""
        return self.tx.meta.digest

    def apply(
        self, *, index: int, term: int, data: bytes, decoded: Decoded | None = None
    ) -> list[Answer]:
        """Take in the entry behind `applied`; answers come in the order of its ops.

        `decoded` is what `data` holds, where that is known.
        """
        if decoded is None:
            decoded = decode_entry(data)
        tx = self.tx
        tx.start(index=index, term=term, stamp=decoded.stamp)
        answers = [self._apply(number, op) for number, op in decoded.ops]
        tx.commit()
        return answers

    def skip(self, *, index: int, term: int) -> None:
        """Take in an entry that is not ours: Raft's own."""
        self.tx.begin(index=index, term=term, stamp_ns=0)
        self.tx.commit()

    def _apply(self, number: int, op: Op) -> Answer:
        tx = self.tx
        tx.by = op.by
        if op.request_key:
            answer = Answer(*requests.once(tx, number, op))
        else:
            result = APPLY[number](op, tx)
            answer = Answer(
                result.code if isinstance(result, Rejected) else "", encode_json(result)
            )
        if tx.doomed:
            lifecycle.remove_doomed(tx)
        return answer


def decode_entry(data: bytes) -> Decoded:
    """What an entry holds. Raises `BadEntry`, and `NewerEntry` for one of a later release."""
    stamp, records = decode(data)
    return Decoded(stamp, [(number, _decode_op(number, body)) for number, body in records])


def _decode_op(number: int, body: bytes) -> Op:
    known = DECODE.get(number)
    what = f"op {number}, which is unknown"
    if known is not None:
        try:
            return known(body)
        except msgspec.ValidationError as error:  # it was valid for the replica that proposed it
            what = f"op {NAMES[number]} with {error}"
    raise NewerEntry(
        f"the log of the shard has an entry of a newer release ({what}), and this is corvo"
        f" {__version__} with op version {wire.OP_VERSION}: install the release that this node, or"
        " the other nodes of the cluster, had last"
    )
