"""What the router process is told: one line of JSON on its stdin, as a shard is."""

from typing import Annotated

import msgspec

from corvo.errors import CorvoError


class BadRouterConfig(CorvoError):
    """The router was told something that cannot work."""


Count = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is allowed at the door. Every one has its line in `docs/config.md`."""

    body_bytes_max: Count = 8 << 20
    """Of a request's body."""
    bodies_bytes_max: Count = 256 << 20
    """Of all bodies together that are still coming in: each may be large, and not all at once."""
    header_bytes_max: Count = 16 << 10
    """Of a request's line and headers together."""
    headers_max: Count = 100
    connections_max: Count = 10_000
    """Open at a time; beyond it one that is slow or idle is closed, or else the newcomer."""
    idle_ms: Count = 75_000
    """How long a connection may be quiet between two requests."""
    header_ms: Count = 10_000
    """From the first byte of a request to the end of its headers."""
    body_grace_ms: Count = 5_000
    """How long a body may take whatever its size is."""
    body_rate_min: Count = 1_024
    """Bytes in a second that a body has to bring once its grace is over."""
    send_ms: Count = 10_000
    """How long an answer may wait for a client that does not read."""
    in_flight_max: Count = 10_000
    """Requests being answered at a time; parked fetches are not counted."""
    parked_max: Count = 20_000
    """Fetches that wait for work."""
    fetch_wait_s_max: Count = 60
    batch_jobs_max: Count = 10_000
    """Jobs of one `enqueue/batch`."""
    leader_wait_ms: Annotated[int, msgspec.Meta(ge=0)] = 3_000
    """How long a request waits for a shard that has no leader."""
    search_ms_max: Count = 1_000
    """How long the mirror may look for an answer."""
    listeners_max: Count = 1_000
    """Clients that events are sent to as they happen."""
    streams_max: Count = 1_000
    stream_frames_max: Count = 64
    """Frames of one stream that are being answered."""
    read_rate: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests that read, of one client, in a second; 0 is no limit."""
    read_burst: Count = 4_000
    write_rate: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests that change something, of one client, in a second; 0 is no limit."""
    write_burst: Count = 2_000


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One router. Every field can be given; those without a default must be."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    node: Annotated[int, msgspec.Meta(ge=1)]
    shards: Count
    sockets: list[str]
    """Of the replica of each shard on this node, by the shard's number."""
    mirror_socket: str = ""
    """Of the mirror of this node; empty where it has none."""
    listen: list[int]
    """Descriptors of listening sockets, inherited: a router that is started again finds those who
    came in between waiting there."""
    tls_cert: str = ""
    tls_key: str = ""
    admin_key: str = ""
    is_open: bool = False
    """Whether anybody may do anything: no key is set and only this machine can reach us, or the
    operator has said so."""
    is_auth_off: bool = False
    """Whether the operator has said so, and keys are not asked for even where there are some."""
    cors_origins: list[str] = []
    """Pages that may call from a browser; `*` is any."""
    durability: str = "sync"
    log_level: str = "info"
    log_format: str = "json"
    drain_ms: Count = 1_500
    """How long requests under way have to end once we are told to stop."""
    limits: Limits = Limits()

    def check(self) -> None:
        """Raise `BadRouterConfig` naming the first key that cannot work."""
        if len(self.sockets) != self.shards:
            raise BadRouterConfig(
                f"sockets: {len(self.sockets)}, and there are {self.shards} shards"
            )
        if not self.listen:
            raise BadRouterConfig("listen: there is nothing to listen on")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadRouterConfig("tls_cert and tls_key: one goes only with the other")


def read_config(line: bytes) -> RouterConfig:
    """The config in a line of JSON. Raises `BadRouterConfig`."""
    try:
        config = msgspec.json.decode(line, type=RouterConfig)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadRouterConfig(str(error)) from error
    config.check()
    return config
