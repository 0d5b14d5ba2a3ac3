"""The limits and timings of one node, each with its reason."""

import msgspec

from corvo.raft.errors import InvalidSettings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is told once, when it is made. `check` refuses what cannot work."""

    replica: int  # who this is; 1 or more, and never given to another data directory
    instance: int = 0
    """This data directory: random, made once with it. 0 switches the amnesia guard off."""
    election_ticks: int = 10
    """Silence after which a follower campaigns: each time between this and twice this."""
    heartbeat_ticks: int = 1
    entry_bytes_max: int = 8 << 20  # one entry: half of what a frame may have
    append_bytes_max: int = 1 << 20
    """Entries in one append: what one peer is busy with before it can answer."""
    window_messages_max: int = 64
    window_bytes_max: int = 8 << 20
    """What may be under way to one peer: a round trip's worth, bounded when the peer stops."""
    uncommitted_bytes_max: int = 64 << 20
    """Proposals without a commit: what a leader cut off from its group may pile up."""
    page_bytes_max: int = 4 << 20
    """Committed entries handed out at once: what is applied between two looks at the world."""
    chunk_bytes_max: int = 1 << 20  # one piece of a snapshot stream
    reads_waiting_max: int = 10_000  # reads that wait for proof of leadership
    promotion_lag_max: int = 1_000  # how many entries a learner may lack and still be made a voter

    def check(self) -> None:
        """Raise `InvalidSettings` naming the first setting that is out of bounds."""
        if self.replica < 1:
            raise InvalidSettings(f"replica is {self.replica}; ids start at 1")
        if self.instance < 0:
            raise InvalidSettings(f"instance is {self.instance}; it cannot be negative")
        if self.heartbeat_ticks < 1:
            raise InvalidSettings(f"heartbeat_ticks is {self.heartbeat_ticks}; at least 1")
        if self.election_ticks <= self.heartbeat_ticks:
            raise InvalidSettings(
                f"election_ticks is {self.election_ticks}; it must be more than heartbeat_ticks,"
                f" which is {self.heartbeat_ticks}"
            )
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise InvalidSettings(f"{name} is {getattr(self, name)}; at least 1")
        if self.promotion_lag_max < 0:
            raise InvalidSettings(f"promotion_lag_max is {self.promotion_lag_max}; at least 0")


_POSITIVE = (
    "entry_bytes_max",
    "append_bytes_max",
    "window_messages_max",
    "window_bytes_max",
    "uncommitted_bytes_max",
    "page_bytes_max",
    "chunk_bytes_max",
    "reads_waiting_max",
)
