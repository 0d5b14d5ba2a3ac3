"""What the log says of repairs: when one begins, is taken up again after a restart, and has ended.

A repair begins when damaged data were set aside at a start (`corvo.shard.driver.disk`), or when the
leader shows that this replica confirmed entries that it does not have: see
`corvo.raft.state.Repair`. Until its end the replica neither votes nor leads.
"""

from corvo.raft import Node
from corvo.telemetry import Log


class RepairLog:
    """Logs each change once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._is_repairing = False

    def look(self, node: Node) -> None:
        """Compare with the last look."""
        if node.is_repairing == self._is_repairing:
            return
        self._is_repairing = node.is_repairing
        seen = node.statistics()
        if not node.is_repairing:
            self._log.info("replica.repaired", last_index=seen.last_index)
            return
        self._log.warning(
            "replica.repairing",
            last_index=seen.last_index,
            why="this replica's data lacks entries that it has confirmed: damage was set aside, its"
            " directory is an older copy, or its disk lost what was synced",
            then="it copies the state from the leader, and neither votes nor leads until then",
        )
