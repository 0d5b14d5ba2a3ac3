"""Ops that a leader should propose by itself now, and the time of the next look.

Due things have timers in the state, and the first of each kind is read here. Retention and rate
limits are not urgent and have no timers: the queues are walked, a few at a time.
"""

from typing import Final

from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.protocol.ops.base import Op
from corvo.shard.ops import upkeep as ops
from corvo.shard.state.tables import QUEUES, TIMERS, Timer, queue_keys
from corvo.shard.state.tx import Tx

BATCH: Final = 256
"""Limit of one op of upkeep: some milliseconds of work."""
WALK_EVERY_NS: Final = 1_000_000_000
"""Interval between steps of the walk over the queues."""
WALK_QUEUES: Final = 64
WALK_AGAIN_NS: Final = 60_000_000_000
"""Pause after all queues were walked."""
_MS: Final = 1_000_000
_TIMERS: Final = tuple(Timer)
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
        match timer:
            case Timer.PROMOTE:
                return ops.Promote(limit=BATCH)
            case Timer.LEASE:
                return ops.Reclaim(limit=BATCH)
            case Timer.EXPIRE:
                return ops.Expire(limit=BATCH)
            case Timer.UNIQUE:
                return ops.CleanUnique(limit=BATCH)
            case Timer.REQUEST:
                return ops.CleanRequests(limit=BATCH)
            case Timer.ENDING:
                return ops.Tell(limit=BATCH)
            case Timer.WORKER:
                return ops.CleanWorkers(limit=BATCH)
            case Timer.SWEEP:
                first = tx.head(TIMERS[timer]).keys[0]
                _, _, queue = keys.TIMER.parse(first)
                assert isinstance(queue, str)
                return ops.Sweep(queue=queue, limit=BATCH)

    def _walk(self, tx: Tx, now_ns: int) -> list[Op]:
        """Look at the next few queues."""
        names = tx.keys(self._walk_from, _END, limit=WALK_QUEUES)
        ops: list[Op] = []
        has_more = False
        for name in names:
            queue = name[len(_FIRST) :].decode()
            due = [*self._purge(tx, queue, now_ns), *self._rate_limits(tx, queue, now_ns)]
            has_more = has_more or bool(due)
            ops += due
        if has_more:
            self._walk_at_ns = now_ns + WALK_EVERY_NS // 20  # the same queues, until they are done
        elif len(names) < WALK_QUEUES:
            self._walk_from = _FIRST
            self._walk_at_ns = now_ns + WALK_AGAIN_NS
        else:
            self._walk_from = names[-1] + b"\0"
            self._walk_at_ns = now_ns + WALK_EVERY_NS
        return ops

    def _purge(self, tx: Tx, queue: str, now_ns: int) -> list[Op]:
        document = QUEUES.get(tx, queue)
        keep_ms = (document.retention_ms if document is not None else 0) or self._retention_ms
        prefix = queue_keys(queue).finished
        first = tx.keys(prefix, prefix_end(prefix), limit=1)
        if not first:
            return []
        finished_ns = int.from_bytes(first[0][len(prefix) : len(prefix) + 8], "big")
        if finished_ns + keep_ms * _MS > now_ns:
            return []
        return [ops.Purge(queue=queue, keep_ms=self._retention_ms, limit=BATCH)]

    def _rate_limits(self, tx: Tx, queue: str, now_ns: int) -> list[Op]:
        document = QUEUES.get(tx, queue)
        prefix = queue_keys(queue).rate
        first = tx.keys(prefix, prefix_end(prefix), limit=1)
        if not first:
            return []
        fetched_ns = int.from_bytes(first[0][len(prefix) : len(prefix) + 8], "big")
        window_ms = document.rate_window_ms if document is not None else 0
        if fetched_ns + window_ms * _MS > now_ns:
            return []
        return [ops.CleanRateLimits(queue=queue, limit=BATCH)]


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
