"""How long entries take to be committed and applied, for metrics."""

from corvo.protocol.numbers import Counters


class CommitTimes:
    """The time from proposal to apply of the entries that this replica has proposed."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._proposed_ns: dict[int, int] = {}

    def proposed(self, index: int, ops: int, now_ns: int) -> None:
        """Note that an entry was proposed."""
        self._proposed_ns[index] = now_ns
        self._counters.batch.observe(ops)

    def applied(self, index: int, now_ns: int, *, is_ours: bool) -> None:
        """Count an applied entry; `is_ours` unless another leader's entry took its index."""
        self._counters.entries += 1
        proposed_ns = self._proposed_ns.pop(index, None)
        if proposed_ns is not None and is_ours:
            self._counters.commit.observe((now_ns - proposed_ns) / 1e9)

    def forget(self) -> None:
        """Drop all open proposals: they may never be applied on this replica."""
        self._proposed_ns.clear()
