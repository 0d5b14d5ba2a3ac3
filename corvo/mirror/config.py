"""The config of the mirror process: one line of JSON on its stdin."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from corvo.errors import CorvoError
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap

CHECKPOINT_PAGES: Final = 4_096


class BadMirrorConfig(CorvoError):
    """The mirror was told something that cannot work."""


Count = Annotated[int, msgspec.Meta(ge=1)]
Amount = Annotated[int, msgspec.Meta(ge=0)]


class MirrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the mirror, each declared once: `corvo.config` shows them as `mirror.NAME`."""

    readers: Annotated[
        int,
        Meta(ge=1, le=64, description="searches that run at the same time"),
    ] = 4
    questions_max: Annotated[
        Count, Meta(description="searches that run or wait; more are rejected")
    ] = 256
    pause_ms: Annotated[
        int,
        Meta(
            ge=0, le=60_000, description="time that changes are collected before they are written"
        ),
    ] = 50
    wal_bytes_max: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description="size of SQLite's write-ahead log above which new searches wait"
            " until it is emptied",
        ),
    ] = 256 << 20
    room_bytes_min: Annotated[
        Amount, Meta(description="free disk space below which the mirror stops writing")
    ] = 128 << 20
    niceness: Annotated[
        int,
        Meta(
            ge=0,
            le=19,
            description="nice value of the mirror's process: 0 is normal, 19 the lowest priority;"
            " with less, searches wait less while all processors are busy, and jobs wait longer",
        ),
    ] = 10


class MirrorConfig(MirrorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mirror. Every field can be given; those without a default must be."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    node: Count
    shards: Count
    sockets: dict[int, str]
    """Of the replicas on this node, by shard."""
    map: ClusterMap | None = None
    """The cluster map as the node knows it; None for a cluster of this node alone."""
    security: PeerSecurity = PeerSecurity()
    instance: str = ""
    """The number of the node's data directory; empty for a server that runs alone."""
    data_dir: str
    """The mirror's own directory; made if it is not there."""
    socket: str
    """Where routers of this node come in."""
    catch_up_ms: Amount = 2_000
    """How long a question waits for the mirror to come as far as it has to."""
    keys_max: Count = 4_000
    """Documents of one page of changes."""
    scan_keys_max: Count = 1_000
    """Documents of one page of a full pass: changes wait while it is written."""
    checkpoint_pages: Count = CHECKPOINT_PAGES
    """Of SQLite's log, 32 MiB, after which what is in it is brought to its place, and it is used
    again. With fewer, pages that many jobs share are copied again and again; with more, much waits
    to go to the disk at once."""
    log_level: str = "info"
    log_format: str = "json"

    def check(self) -> None:
        """Raise `BadMirrorConfig` naming the first key that cannot work."""
        if self.map is not None and len(self.map.places) != self.shards:
            raise BadMirrorConfig(
                f"map: of {len(self.map.places)} shards, and there are {self.shards}"
            )
        if self.map is None and len(self.sockets) != self.shards:
            raise BadMirrorConfig(
                f"sockets: {len(self.sockets)}, and there are {self.shards} shards"
            )


def read_config(line: bytes) -> MirrorConfig:
    """The config in a line of JSON. Raises `BadMirrorConfig`."""
    try:
        config = msgspec.json.decode(line, type=MirrorConfig)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadMirrorConfig(str(error)) from error
    config.check()
    return config
