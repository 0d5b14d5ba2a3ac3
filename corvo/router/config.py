"""The config of the router process: one line of JSON on its stdin."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from corvo.errors import CorvoError
from corvo.otel_settings import TraceSettings
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap, ClusterNode


class BadRouterConfig(CorvoError):
    """The router was told something that cannot work."""


Count = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the router, each declared once: `corvo.config` shows them as `limits.NAME`."""

    body_bytes_max: Annotated[Count, Meta(description="size of a request's body")] = 8 << 20
    bodies_bytes_max: Annotated[
        Count, Meta(description="size of all bodies together that are being received")
    ] = 256 << 20
    header_bytes_max: Annotated[
        Count, Meta(description="size of a request's line and headers together")
    ] = 16 << 10
    headers_max: Annotated[Count, Meta(description="number of headers in a request")] = 100
    connections_max: Annotated[
        Count, Meta(description="open connections; above it, an idle or slow one is closed")
    ] = 10_000
    idle_ms: Annotated[
        Count, Meta(description="time that a connection may be idle between two requests")
    ] = 75_000
    header_ms: Annotated[
        Count, Meta(description="time from the first byte of a request to the end of its headers")
    ] = 10_000
    body_grace_ms: Annotated[
        Count,
        Meta(
            description="time before the minimum upload speed (`limits.body_rate_min`) is enforced"
        ),
    ] = 5_000
    body_rate_min: Annotated[
        Count, Meta(description="minimum upload speed of a body, in bytes a second")
    ] = 1_024
    send_ms: Annotated[
        Count, Meta(description="time that an answer waits for a client that does not read it")
    ] = 10_000
    turn_events_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="requests or frames of one connection that are handled in one go, if it"
            " sends many at once; then it pauses for a millisecond",
        ),
    ] = 4
    http2_control_max: Annotated[
        Count,
        Meta(
            description="frames that one HTTP/2 connection may send in a second without a part of a"
            " request (PING, SETTINGS, resets); above it, it is closed"
        ),
    ] = 200
    http2_answers_bytes: Annotated[
        Count,
        Meta(
            description="size of answers that one HTTP/2 connection has not read yet; above it,"
            " its further reading requests wait, and above eight times as much, answers are aborted"
        ),
    ] = 1 << 20
    in_flight_max: Annotated[
        Count,
        Meta(description="requests that are answered at the same time, without waiting fetches"),
    ] = 10_000
    parked_max: Annotated[
        Count, Meta(description="fetches that wait for a job at the same time")
    ] = 20_000
    fetch_wait_s_max: Annotated[Count, Meta(description="time that a fetch may wait for a job")] = (
        60
    )
    batch_jobs_max: Annotated[Count, Meta(description="jobs in one `enqueue/batch`")] = 10_000
    leader_wait_ms: Annotated[
        int,
        Meta(ge=0, description="time that a request waits for a shard that has no leader"),
    ] = 3_000
    search_ms_max: Annotated[
        Count,
        Meta(description="time that a search may take; then it answers with what it has found"),
    ] = 1_000
    search_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="time that a search waits for changes that came before it; 0 never waits",
        ),
    ] = 250
    listeners_max: Annotated[
        Count, Meta(description="clients that follow events at the same time")
    ] = 1_000
    streams_max: Annotated[Count, Meta(description="open streams (`/api/v1/stream`)")] = 1_000
    stream_frames_max: Annotated[
        Count, Meta(description="frames of one stream that are answered at the same time")
    ] = 64
    guess_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="longest delay of the answer to a wrong API key; 0 is no delay",
        ),
    ] = 2_000
    read_rate: Annotated[
        int,
        Meta(ge=0, description="reading requests of one client in a second; 0 is no limit"),
    ] = 0
    read_burst: Annotated[
        Count, Meta(description="reading requests that one client may send at once")
    ] = 4_000
    write_rate: Annotated[
        int,
        Meta(ge=0, description="changing requests of one client in a second; 0 is no limit"),
    ] = 0
    write_burst: Annotated[
        Count, Meta(description="changing requests that one client may send at once")
    ] = 2_000


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are read, each declared once: `corvo.config` shows them as `api.NAME`."""

    strict: Annotated[
        Literal["on", "off"],
        Meta(
            description="`on`: a changing request with an unknown field or query parameter is"
            " rejected; `off`: it is taken, and its answer names them in `warnings`"
        ),
    ] = "off"


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How webhooks are taken, each declared once: `corvo.config` shows them as `webhooks.NAME`."""

    secrets: Annotated[
        tuple[str, ...],
        Meta(
            description="secrets of queues that take only signed webhooks, as QUEUE=SECRET; a"
            " queue with two entries takes both secrets"
        ),
    ] = ()


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One router. Every field can be given; those without a default must be."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    node: Annotated[int, msgspec.Meta(ge=1)]
    shards: Count
    sockets: dict[int, str]
    """Of the replicas on this node, by shard."""
    map: ClusterMap | None = None
    """The cluster map as the node knows it; None for a cluster of this node alone."""
    security: PeerSecurity = PeerSecurity()
    instance: str = ""
    """The number of the node's data directory; empty for a server that runs alone."""
    own: ClusterNode | None = None
    clock_offset_max_ms: int = 500
    """This node, as it announces itself to the cluster; None for a server that runs alone."""
    peer_socket: str = ""
    """Where the node hands over connections of nodes that join; empty for a server alone."""
    mirror_socket: str = ""
    """Of the mirror of this node; empty where it has none."""
    listen: list[int]
    """Descriptors of listening sockets, inherited: a router that is started again finds those who
    came in between waiting there."""
    tls_cert: str = ""
    tls_key: str = ""
    has_http2: bool = False
    """Whether HTTP/2 is spoken beside HTTP/1.1."""
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
    api: ApiSettings = ApiSettings()
    webhooks: WebhookSettings = WebhookSettings()
    traces: TraceSettings | None = None
    """Where spans are sent; None if traces are off."""

    def check(self) -> None:
        """Raise `BadRouterConfig` naming the first key that cannot work."""
        if self.map is not None and len(self.map.places) != self.shards:
            raise BadRouterConfig(
                f"map: of {len(self.map.places)} shards, and there are {self.shards}"
            )
        if self.map is None and len(self.sockets) != self.shards:
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
