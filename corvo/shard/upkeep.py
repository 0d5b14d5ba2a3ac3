"""Ops that a leader should propose by itself now, and the time of the next look.

Due things have timers in the state, and the first of each kind is read here. Retention and rate
limits are not urgent and have no timers: the queues are walked, a few at a time. In shard 0, the
cluster map says whether new places of replicas have to be computed, and whether the op version of
the cluster can be raised.
"""

from collections.abc import Iterator
from typing import Final

from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import Queue
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.base import Op
from corvo.replica_placement import Candidate, place
from corvo.shard.firing import Firing
from corvo.shard.ops import upkeep as ops
from corvo.shard.ops.cluster import Place, RaiseOpVersion
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
PLACE_AGAIN_NS: Final = 1_000_000_000
"""Pause until places, or an op version, are proposed for the same map again, as after a change of
leader."""
_NEVER_NS: Final = 1 << 63
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

    def __init__(self, *, retention_ms: int, op_version: int = wire.OP_VERSION) -> None:
        """`op_version` is the greatest that this process knows."""
        self._retention_ms = retention_ms
        self._op_version = op_version
        self._walk_from = _FIRST
        self._walk_at_ns = 0
        # Timers change only when an entry is applied, and are read far more often.
        self._seen: tuple[Tx, int] | None = None
        self._dues: list[tuple[int, Timer]] = []
        self._first_ns = 0
        """Time at which the first of them is due, schedules left out."""
        self._schedule_ns = 0
        """Time at which the first schedule is due."""
        self._firing = Firing()
        self._placed_version = 0
        """The version of the map for which places were proposed last."""
        self._place_again_ns = 0
        self._raise_to = (0, 0)
        """A version of the map, and the op version to which that can be raised; 0 for none."""
        self._raised_version = 0
        """The version of the map for which a raise was proposed last."""
        self._raise_again_ns = 0

    def due(self, tx: Tx, now_ns: int) -> list[Op]:
        """Ops to propose now: at most one of each kind, all of them bounded."""
        if now_ns < self.next_ns(tx):
            return []
        ops = [
            self._op_for(tx, timer)
            for due_ns, timer in self._dues
            if due_ns <= now_ns and timer is not Timer.SCHEDULE
        ]
        ops += self._of_schedules(tx, now_ns)
        if now_ns >= self._walk_at_ns:
            ops += self._walk(tx, now_ns)
        if tx.cluster_map is not None and self._place_ns(tx) <= now_ns:
            self._placed_version = tx.cluster_map.version
            self._place_again_ns = now_ns + PLACE_AGAIN_NS
            ops.append(placed_anew(tx.cluster_map))
        if tx.cluster_map is not None and self._raise_ns(tx) <= now_ns:
            version = self._raised_version = tx.cluster_map.version
            self._raise_again_ns = now_ns + PLACE_AGAIN_NS
            ops.append(RaiseOpVersion(base=version, op_version=self._raise_to[1]))
        return ops

    def took_over(self) -> None:
        """The replica leads: schedules may have been planned by a leader of another release."""
        self._firing.begin()

    def next_ns(self, tx: Tx) -> int:
        """Time of the next look, if no entry is applied before."""
        seen, applied = self._seen, tx.meta.applied
        if seen is None or seen[0] is not tx or seen[1] != applied:
            self._dues = first_timers(tx)
            dues = dict.fromkeys(Timer, _NEVER_NS) | {timer: ns for ns, timer in self._dues}
            self._schedule_ns = dues.pop(Timer.SCHEDULE)
            self._first_ns = min(dues.values())
            self._seen = tx, applied
        return min(
            self._walk_at_ns,
            self._first_ns,
            self._firing.next_ns(self._schedule_ns),
            self._firing.walk_ns,
            self._place_ns(tx),
            self._raise_ns(tx),
        )

    def _of_schedules(self, tx: Tx, now_ns: int) -> Iterator[Op]:
        """Schedules that are due, and a step of the walk over all of them."""
        if self._schedule_ns <= now_ns:
            op = self._firing.op(tx, now_ns)
            if op is not None:
                yield op
        if self._firing.walk_ns <= now_ns:
            op = self._firing.walk(tx, now_ns)
            if op is not None:
                yield op

    def _place_ns(self, tx: Tx) -> int:
        """Time at which places are to be proposed."""
        known = tx.cluster_map
        if known is None or known.is_placed:
            return _NEVER_NS
        # Places for an earlier map were refused, so new ones are proposed at once.
        return self._place_again_ns if known.version == self._placed_version else 0

    def _raise_ns(self, tx: Tx) -> int:
        """Time at which a greater op version of the cluster is to be proposed."""
        known = tx.cluster_map
        if known is None:
            return _NEVER_NS
        if self._raise_to[0] != known.version:
            self._raise_to = known.version, raisable(known, own=self._op_version)
        if not self._raise_to[1]:
            return _NEVER_NS
        return self._raise_again_ns if known.version == self._raised_version else 0

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


def placed_anew(known: ClusterMap) -> Place:
    """The op with places for the nodes of now."""
    carriers = known.carriers
    candidates = [
        Candidate(node.number, node.zone) for node in known.nodes if node.number in carriers
    ]
    places = place(candidates, known.places, shards=len(known.places), replicas=known.replicas)
    return Place(base=known.version, places=places)


def raisable(known: ClusterMap, *, own: int) -> int:
    """The op version to which the cluster's can be raised; 0 if it cannot.

    `own` is that of the process that asks: its node may have announced another release before.
    """
    lowest = min(own, *(node.op_version for node in known.nodes))
    return lowest if lowest > known.op_version else 0


def first_timers(tx: Tx) -> list[tuple[int, Timer]]:
    """Time at which the first timer of each kind is due, if there is one."""
    found = []
    for timer, group in TIMERS.items():
        first = tx.head(group).keys
        if first:
            at = len(group.prefix)
            due_ns = int.from_bytes(first[0][at : at + 8], "big")
            # No lease ends in a time of grace.
            found.append(
                (max(due_ns, tx.grace.until_ns) if timer is Timer.LEASE else due_ns, timer)
            )
    return found
