"""Settings of a node in a cluster; `corvo.config` shows them as `cluster.NAME`."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import REPLICAS, REPLICAS_MAX, BadAddress, split_address

PEER_BIND: Final = "127.0.0.1:9400"
"""Where a node of a cluster listens for others, unless it is told."""
PEER_PORT: Final = 9400
SECRET_MIN: Final = 16
_EVERYWHERE: Final = {"", "0.0.0.0", "::", "*"}  # noqa: S104 -- what it is compared with


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node in its cluster. A server without any of these runs alone."""

    node_id: Annotated[
        str, Meta(description="name of this node, unique in the cluster; default: the host name")
    ] = ""
    peer_bind: Annotated[
        str,
        Meta(
            description="address and port to listen on for other nodes: HOST:PORT, or :PORT for all"
            f" addresses; default for a node of a cluster: {PEER_BIND}"
        ),
    ] = ""
    advertise: Annotated[
        str,
        Meta(
            description="HOST:PORT at which other nodes reach this one; default:"
            " `cluster.peer_bind`"
        ),
    ] = ""
    bootstrap: Annotated[
        Literal["on", "off"],
        Meta(
            description="`on`: with an empty data directory, start a new cluster that other nodes"
            " can join"
        ),
    ] = "off"
    join: Annotated[
        tuple[str, ...],
        Meta(
            description="with an empty data directory, join the cluster of one of these nodes, each"
            " as HOST:PORT"
        ),
    ] = ()
    join_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="time after which a start is refused if no node to join has answered"
            " (`cluster.join`, `cluster.discover`)",
        ),
    ] = 60_000
    discover: Annotated[
        Literal["off", "dns"],
        Meta(
            description="`dns`: find a node to join at the addresses of `cluster.discover_dns_name`"
        ),
    ] = "off"
    discover_dns_name: Annotated[
        str,
        Meta(
            description="DNS name of all nodes, such as that of a headless service; HOST or"
            " HOST:PORT"
        ),
    ] = ""
    initial_nodes: Annotated[
        tuple[str, ...],
        Meta(
            description="first nodes of a new cluster, each as NAME=HOST:PORT, the same list on"
            " each of them"
        ),
    ] = ()
    clock_offset_max_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="difference of the wall clocks of two nodes that is accepted. Above it, a"
            " node does not start, and one that runs is shown as degraded",
        ),
    ] = 500
    zone: Annotated[
        str,
        Meta(description="zone of this node; replicas of a shard are put into different zones"),
    ] = ""
    replicas: Annotated[
        int,
        Meta(ge=1, le=REPLICAS_MAX, description="replicas of each shard, in a new cluster"),
    ] = REPLICAS
    secret: Annotated[
        str,
        Meta(
            description="secret that all nodes of a cluster share, at least"
            f" {SECRET_MIN} characters; required unless all are on one machine"
        ),
    ] = ""
    secret_file: Annotated[
        str, Meta(description="file with the secret, instead of `cluster.secret`")
    ] = ""
    tls_cert: Annotated[
        str,
        Meta(description="file with the certificate of this node for links to other nodes, in PEM"),
    ] = ""
    tls_key: Annotated[str, Meta(description="file with the private key of that, in PEM")] = ""
    tls_ca: Annotated[
        str,
        Meta(description="file with the certificates that sign those of the other nodes, in PEM"),
    ] = ""

    @property
    def is_clustered(self) -> bool:
        """Whether the node can have others beside it."""
        forms = (self.peer_bind, self.advertise, self.join, self.initial_nodes)
        return any(forms) or self.bootstrap == "on" or self.discover != "off"

    @property
    def bind(self) -> str:
        """Where to listen for other nodes; empty for a server that runs alone."""
        return self.peer_bind or (PEER_BIND if self.is_clustered else "")

    @property
    def security(self) -> PeerSecurity:
        """What links between nodes need."""
        return PeerSecurity(
            secret=self.secret, tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca
        )

    @property
    def discover_name(self) -> tuple[str, int]:
        """The DNS name of the nodes, and their port. Raises `BadAddress`."""
        name = self.discover_dns_name
        return split_address(name) if ":" in name else (name, PEER_PORT)

    def first_nodes(self) -> dict[str, str]:
        """Addresses of the first nodes, by name."""
        return dict(one.partition("=")[::2] for one in self.initial_nodes)


def is_local(address: str) -> bool:
    """Whether only this machine can use an address."""
    try:
        host, _ = split_address(address)
    except BadAddress:
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def problems(settings: ClusterSettings) -> Iterator[tuple[str, str]]:
    """What cannot work: the setting, and a sentence that follows its name and source."""
    bind = settings.bind
    if not settings.is_clustered:
        return  # what is set beside has no effect, as the secret that all servers are given
    if bind.startswith(":") and bind[1:].isdigit():
        host = ""
    else:
        try:
            host, _ = split_address(bind)
        except BadAddress as error:
            yield "peer_bind", f"is wrong: {error}"
            return
    wrong = list(_bad_addresses(settings))
    yield from wrong
    if wrong:
        return
    ways = [settings.bootstrap == "on", bool(settings.join), settings.discover != "off"]
    if sum(ways) > 1:
        yield "bootstrap", "excludes cluster.join and cluster.discover: a node does one of these"
    if settings.bootstrap == "on" and settings.initial_nodes:
        yield "initial_nodes", "excludes cluster.bootstrap: remove one of the two"
    if (settings.discover == "dns") != bool(settings.discover_dns_name):
        yield "discover_dns_name", "and cluster.discover=dns belong together: set both or neither"
    try:
        _ = settings.discover_name
    except BadAddress as error:
        yield "discover_dns_name", f"is wrong: {error}"
    if not settings.advertise and host in _EVERYWHERE and not settings.initial_nodes:
        yield (
            "advertise",
            (
                f"is not set, and cluster.peer_bind is {bind}, which other nodes cannot"
                " connect to: set cluster.advertise to HOST:PORT of this node"
            ),
        )
    tls = (settings.tls_cert, settings.tls_key, settings.tls_ca)
    if any(tls) and not all(tls):
        yield "tls_cert", "needs cluster.tls_key and cluster.tls_ca: set all three or none"
    if settings.secret and settings.secret_file:
        yield "secret_file", "and cluster.secret are set: remove one of the two"
    if settings.secret and len(settings.secret) < SECRET_MIN:
        yield "secret", f"is too short: use at least {SECRET_MIN} characters"
    others = [settings.advertise, *settings.join, *settings.first_nodes().values()]
    is_reachable = host in _EVERYWHERE or not is_local(bind)
    is_wide = is_reachable or settings.discover != "off"
    is_wide = is_wide or not all(is_local(one) for one in others if one)
    if is_wide and not (settings.secret or settings.secret_file):
        yield (
            "secret",
            (
                "is not set, and other machines can reach this node's peer port: set"
                " CORVO_CLUSTER__SECRET (or cluster.secret_file) to the same value on all nodes"
            ),
        )


def _bad_addresses(settings: ClusterSettings) -> Iterator[tuple[str, str]]:
    named = [("advertise", one) for one in [settings.advertise] if one]
    named += [("join", one) for one in settings.join]
    for one in settings.initial_nodes:
        name, equals, address = one.partition("=")
        if not (name and equals):
            yield "initial_nodes", f"has {one!r}: expected NAME=HOST:PORT"
        else:
            named.append(("initial_nodes", address))
    if len(settings.first_nodes()) < len(settings.initial_nodes):
        yield "initial_nodes", "has a name twice"
    for name, address in named:
        try:
            split_address(address)
        except BadAddress as error:
            yield name, f"is wrong: {error}"
