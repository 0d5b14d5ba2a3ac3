"""What one shard process is told: one line of JSON on its stdin."""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.errors import CorvoError
from corvo.kv.feed import FEED_BYTES_MAX
from corvo.protocol.ops.base import Limits

SOCKET_BYTES_MAX: Final = 107
"""What the kernel takes as the path of a socket."""
OP_BYTES_MAX: Final = 4 << 20
"""An op is an entry of its own when it is large, and an entry has a limit."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class BadConfig(CorvoError):
    """The process was told something that cannot work."""


class Peer(msgspec.Struct, frozen=True):
    """Another replica of this shard."""

    node: int
    host: str
    port: Port


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica of one shard. Every field can be given; those without a default must be."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    node: Annotated[int, msgspec.Meta(ge=1)]
    """Which node this is, and so which replica: 1 or more."""
    shard: Annotated[int, msgspec.Meta(ge=0)]
    shards: Annotated[int, msgspec.Meta(ge=1)]
    """How many shards the cluster has: fixed for ever at its first start."""
    data_dir: str
    """This shard's own directory; made if it is not there."""
    socket: str
    """Where router and mirror of this node come in."""
    host: str = "127.0.0.1"
    port: Port = 0
    """Where the other replicas come in; 0 for a shard that has none."""
    peers: list[Peer] = []
    voters: list[int] = []
    """The first members of a new shard; this node alone when empty."""
    others: dict[int, str] = {}
    """Sockets of the other shards of this node, for effects that cross."""
    relaxed: bool = False
    """Answer before the disk has it. A machine that loses power then loses what was acknowledged in
    the last moments; nothing else ever does."""
    tick_ms: Annotated[int, msgspec.Meta(ge=1)] = 100
    election_ticks: Annotated[int, msgspec.Meta(ge=2)] = 15
    """With the tick, the silence after which another replica stands for election."""
    retention_ms: Annotated[int, msgspec.Meta(ge=0)] = 7 * 86_400_000
    grace_ms: Annotated[int, msgspec.Meta(ge=0)] = 5_000
    segment_bytes: Annotated[int, msgspec.Meta(ge=1 << 10)] = 64 << 20
    ballast_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    checkpoint_bytes: Annotated[int, msgspec.Meta(ge=1)] = 128 << 20
    """Log written since the last checkpoint after which the next is made: what a start may have to
    replay, and what the log takes on disk, is about this much."""
    checkpoint_entries: Annotated[int, msgspec.Meta(ge=1)] = 200_000
    keep_entries: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    """Entries left in the log behind a checkpoint, for followers that lag a little."""
    feed_bytes: Annotated[int, msgspec.Meta(ge=1)] = FEED_BYTES_MAX
    """Kept of what followers are told: how far behind one may be without a full pass."""
    room_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 64 << 20
    """With less room than this on the disk nothing new is taken. It is for what was taken before:
    a state that cannot be written any more ends the process."""
    limits: Limits = Limits()

    def check(self) -> None:
        """Raise `BadConfig` naming the first key that cannot work."""
        if self.shard >= self.shards:
            raise BadConfig(f"shard is {self.shard}, and there are {self.shards}")
        if self.peers and self.port == 0:
            raise BadConfig("port is 0, and the shard has peers who must find it")
        if self.voters and self.node not in self.voters and not self.peers:
            raise BadConfig("voters: this node is not among them and has no peers to ask")
        numbers = [peer.node for peer in self.peers]
        if self.node in numbers or len({*numbers}) < len(numbers):
            raise BadConfig(f"peers: {numbers}; each other node is to be there once, and not ours")
        if len({*self.voters}) < len(self.voters):
            raise BadConfig(f"voters: {self.voters}; each is to be there once")
        if len(self.socket.encode()) > SOCKET_BYTES_MAX:
            raise BadConfig(f"socket: a path of more than {SOCKET_BYTES_MAX} bytes")
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
