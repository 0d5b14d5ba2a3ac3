"""The config of a shard process: one line of JSON on its stdin."""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from corvo.errors import CorvoError
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.base import Limits

SOCKET_BYTES_MAX: Final = 107
"""What the kernel takes as the path of a socket."""
OP_BYTES_MAX: Final = 4 << 20
"""An op is an entry of its own when it is large, and an entry has a limit."""
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Amount: TypeAlias = Annotated[int, Meta(ge=0)]


class BadConfig(CorvoError):
    """The process was told something that cannot work."""


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a shard, each declared once: `corvo.config` shows them as `shard.NAME`."""

    tick_ms: Annotated[Count, Meta(description="interval of a shard's Raft clock")] = 400
    election_ticks: Annotated[
        int,
        Meta(
            ge=2,
            description="ticks without a message of the leader, after which an election starts",
        ),
    ] = 4
    grace_ms: Annotated[
        Amount,
        Meta(description="after a start or change of leader, no lease expires for this long"),
    ] = 5_000
    clock_ahead_max_ms: Annotated[
        int,
        Meta(
            ge=3_600_000,
            le=100 * 365 * 86_400_000,
            description="at a start, a wall clock that is farther ahead of the last log entry is"
            " ignored",
        ),
    ] = 365 * 86_400_000
    segment_bytes: Annotated[int, Meta(ge=1 << 10, description="size of one log file")] = 64 << 20
    ballast_bytes: Annotated[
        Amount,
        Meta(
            description="size of a file that may be deleted when the disk is full (`log/ballast`)"
        ),
    ] = 0
    checkpoint_bytes: Annotated[
        Count, Meta(description="bytes of log after which a checkpoint is made")
    ] = 128 << 20
    checkpoint_entries: Annotated[
        Count, Meta(description="log entries after which a checkpoint is made")
    ] = 200_000
    keep_entries: Annotated[
        Amount, Meta(description="log entries that are kept before a checkpoint, for slow replicas")
    ] = 10_000
    snapshot_bytes_per_second: Annotated[
        Count,
        Meta(description="rate at which a snapshot is copied for a replica that lags behind"),
    ] = 64 << 20
    feed_bytes: Annotated[
        Count,
        Meta(description="size of the list of changes that is kept for the mirror and for events"),
    ] = 256 << 20
    room_bytes_min: Annotated[
        Amount, Meta(description="free disk space below which new jobs are rejected")
    ] = 64 << 20


class ShardConfig(ShardSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica of one shard. Every field can be given; those without a default must be."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    node: Annotated[int, msgspec.Meta(ge=1)]  # which node this is, and so which replica: 1 or more
    shard: Annotated[int, msgspec.Meta(ge=0)]
    shards: Annotated[int, msgspec.Meta(ge=1)]
    """How many shards the cluster has: fixed for ever at its first start."""
    data_dir: str  # this shard's own directory; made if it is not there
    sockets: dict[int, str]
    """Of the replicas on this node, by their shards. At its own, this replica listens for the other
    processes of the node."""
    map: ClusterMap | None = None
    """The cluster, as the node knows it now; None for a cluster of this node alone."""
    security: PeerSecurity = PeerSecurity()
    instance: str = ""
    """The number of the node's data directory; empty for a server that runs alone."""
    peer_socket: str = ""
    """Where the node hands over connections from other nodes; empty for a node that has none."""
    voters: list[int] = []
    """The first members of a new shard. When empty: the place in a map that is as new as the
    cluster, or this node if the cluster has never had another one."""
    is_new_member: bool = False
    """Whether the shard is older than this replica: it then belongs to nothing until it is added,
    and neither votes nor stands for election before. Without effect once there are data."""
    has_left: bool = False
    """Whether this node had a replica of the shard before, which left it. Its votes are forgotten,
    so a new replica does not vote before it has a state."""
    relaxed: bool = False
    """Answer before the disk has it. A machine that loses power then loses what was acknowledged in
    the last moments; nothing else ever does."""
    known: str = ""
    """A file outside of `data_dir`, in which is noted what this shard had; empty for no such file.
    See `corvo.shard.driver.known`."""
    accept_loss: int = -1  # the noted entry whose loss is accepted; -1 for none
    retention_ms: Annotated[int, msgspec.Meta(ge=0)] = 7 * 86_400_000
    limits: Limits = Limits()
    log_level: str = "info"
    log_format: str = "json"

    @property
    def socket(self) -> str:
        """Where the other processes of this node come in."""
        return self.sockets[self.shard]

    @property
    def is_alone(self) -> bool:
        """Whether the shard has no other replica, and never had one."""
        if self.voters or self.is_new_member:
            return False
        known = self.map
        return known is None or (
            known.nodes[0].number == known.last_number == self.node and not known.removed
        )

    @property
    def first_voters(self) -> list[int]:
        """The first members of a shard that is new; empty for a replica that waits to be added."""
        if self.is_new_member or self.voters:
            return [] if self.is_new_member else self.voters
        if self.is_alone:
            return [self.node]
        assert self.map is not None, "without a map, a node is alone"
        place = self.map.places[self.shard]
        # A map with a version may name those who came later: the first voters would be others.
        return [*place] if self.map.version == 0 and self.node in place else []

    def check(self) -> None:
        """Raise `BadConfig` naming the first key that cannot work."""
        if self.shard >= self.shards:
            raise BadConfig(f"shard is {self.shard}, and there are {self.shards}")
        if self.shard not in self.sockets:
            raise BadConfig(f"sockets: the socket of shard {self.shard}, this one, is missing")
        if self.voters and self.node not in self.voters and not self.is_new_member:
            raise BadConfig(f"voters: {self.voters}; node {self.node} is not among them")
        if self.map is not None and len(self.map.places) != self.shards:
            raise BadConfig(f"map: {len(self.map.places)} places, and there are {self.shards}")
        if len({*self.voters}) < len(self.voters):
            raise BadConfig(f"voters: {self.voters}; each is to be there once")
        for name, path in (("sockets", self.socket), ("peer_socket", self.peer_socket)):
            if len(path.encode()) > SOCKET_BYTES_MAX:
                raise BadConfig(f"{name}: a path of more than {SOCKET_BYTES_MAX} bytes")
        if self.limits.op_bytes_max > OP_BYTES_MAX:
            raise BadConfig(f"limits.op_bytes_max is more than {OP_BYTES_MAX}")


def read_config(line: bytes) -> ShardConfig:
    """The config in a line of JSON. Raises `BadConfig`."""
    try:
        config = msgspec.json.decode(line, type=ShardConfig)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadConfig(str(error)) from error
    config.check()
    return config
