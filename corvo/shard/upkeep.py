"""Ops that a leader should propose by itself now, and the time of the next look.

Due things have timers in the state, and the first of each kind is read here. Retention and rate
limits are not urgent and have no timers: the queues are walked, a few at a time.
"""

from collections.abc import Iterator
from typing import Final

from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import Queue
from corvo.protocol.ops.base import Op
from corvo.shard.ops import upkeep as ops
from corvo.shard.state.tables import QUEUES, TIMERS, Timer, queue_keys
from corvo.shard.state.tx import Tx
from corvo.times import MS

BATCH: Final = 256
"""Limit of one op of upkeep: some milliseconds of work."""
WALK_EVERY_NS: Final = 1_000_000_000
"""Interval between steps of the walk over the queues."""
WALK_QUEUES: Final = 64
WALK_AGAIN_NS: Final = 60_000_000_000
"""Pause after all queues were walked."""
_TIMERS: Final = tuple(Timer)
_OPS: Final[dict[Timer, type[ops.Upkeep]]] = {
    Timer.PROMOTE: ops.Promote,
    Timer.LEASE: ops.Reclaim,
    Timer.EXPIRE: ops.Expire,
    Timer.UNIQUE: ops.CleanUnique,
    Timer.REQUEST: ops.CleanRequests,
    Timer.ENDING: ops.Tell,
    Timer.WORKER: ops.CleanWorkers,
}
"""The op for what is due; of a queue that is swept, it names the queue."""
_FIRST: Final = keys.QUEUE_NAME.prefix
_END: Final = prefix_end(_FIRST)


class Upkeep:
    """The leader's own work: timers, and the walk over the queues."""

    def __init__(self, *, retention_ms: int) -> None:
        self._retention_ms = retention_ms
        self._walk_from = _FIRST
        self._walk_at_ns = 0
        # Timers change only when an entry is applied, and are read far more often.
        self._seen: tuple[Tx, int] | None = None
        self._seen_due_ns: int | None = None

    def due(self, tx: Tx, now_ns: int) -> list[Op]:
        """Ops to propose now: at most one of each kind, all of them bounded."""
        ops: list[Op] = []
        first_ns = self._first_due_ns(tx)
        if first_ns is not None and first_ns <= now_ns:
            for timer in _TIMERS:
                due_ns = next_due_ns(tx, timer)
                if due_ns is not None and due_ns <= now_ns:
                    ops.append(self._op_for(tx, timer))
        if now_ns >= self._walk_at_ns:
            ops += self._walk(tx, now_ns)
        return ops

    def next_ns(self, tx: Tx) -> int:
        """Time of the next look, if no entry is applied before."""
        first_ns = self._first_due_ns(tx)
        return self._walk_at_ns if first_ns is None else min(first_ns, self._walk_at_ns)

    def _first_due_ns(self, tx: Tx) -> int | None:
        """Time at which the first timer of any kind is due."""
        seen, applied = self._seen, tx.meta.applied
        if seen is None or seen[0] is not tx or seen[1] != applied:
            dues = [due_ns for timer in _TIMERS if (due_ns := next_due_ns(tx, timer)) is not None]
            self._seen_due_ns = min(dues, default=None)
            self._seen = tx, applied
        return self._seen_due_ns

    def _op_for(self, tx: Tx, timer: Timer) -> Op:
        if timer is not Timer.SWEEP:
            return _OPS[timer](limit=BATCH)
        _, _, queue = keys.TIMER.parse(tx.head(TIMERS[timer]).keys[0])
        assert isinstance(queue, str)
        return ops.Sweep(queue=queue, limit=BATCH)

    def _walk(self, tx: Tx, now_ns: int) -> list[Op]:
        """Look at the next few queues."""
        names = tx.keys(self._walk_from, _END, limit=WALK_QUEUES)
        ops = [op for name in names for op in self._of_queue(tx, name[len(_FIRST) :], now_ns)]
        if ops:
            self._walk_at_ns = now_ns + WALK_EVERY_NS // 20  # the same queues, until they are done
        elif len(names) < WALK_QUEUES:
            self._walk_from = _FIRST
            self._walk_at_ns = now_ns + WALK_AGAIN_NS
        else:
            self._walk_from = names[-1] + b"\0"
            self._walk_at_ns = now_ns + WALK_EVERY_NS
        return ops

    def _of_queue(self, tx: Tx, name: bytes, now_ns: int) -> Iterator[Op]:
        queue = name.decode()
        document = QUEUES.get(tx, queue) or Queue(name=queue)
        names = queue_keys(queue)
        keep_ms = document.retention_ms or self._retention_ms
        if _is_past(tx, names.finished, keep_ms, now_ns):
            yield ops.Purge(queue=queue, keep_ms=self._retention_ms, limit=BATCH)
        if _is_past(tx, names.rate, document.rate_window_ms, now_ns):
            yield ops.CleanRateLimits(queue=queue, limit=BATCH)


def _is_past(tx: Tx, prefix: bytes, keep_ms: int, now_ns: int) -> bool:
    """Whether the first key of an index, which begins with a time, is to be kept no longer."""
    first = tx.keys(prefix, prefix_end(prefix), limit=1)
    at = len(prefix)
    return bool(first) and int.from_bytes(first[0][at : at + 8], "big") + keep_ms * MS <= now_ns


def next_due_ns(tx: Tx, timer: Timer) -> int | None:
    """Time at which the first timer of a kind is due."""
    group = TIMERS[timer]
    first = tx.head(group).keys
    if not first:
        return None
    at = len(group.prefix)
    due_ns = int.from_bytes(first[0][at : at + 8], "big")
    # No lease ends in a time of grace.
    return max(due_ns, tx.grace.until_ns) if timer is Timer.LEASE else due_ns
