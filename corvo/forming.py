"""How a node comes to its cluster: as the first one, as one of several first ones, or by joining.

A directory that has an identity keeps it; what the settings say about forming is for an empty one.

    nothing, or bootstrap     a new cluster of this node alone
    initial_nodes             a new cluster of all that are named: each computes the same identity
    join, discover            a number in the cluster of the node that is asked

A node that is among the initial nodes first asks the others. When they belong to a cluster that was
formed before, it joins that one: its own list may be longer than the one that the others had. It
also joins when its cluster has removed it, because its number is not given to a node again.
"""

import hashlib
import secrets
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import trio

from corvo import __version__, clock_offsets
from corvo.clock_offsets import Reading
from corvo.clock_readings import read_clock_of
from corvo.cluster_settings import ClusterSettings, is_local
from corvo.config import Config
from corvo.connections import PeerAddress, TcpAddress, dial
from corvo.datadir import DataDir, DirectoryUnfit, Identity
from corvo.errors import WireError
from corvo.link import LinkLost, LinkRefused, open_client
from corvo.protocol import wire
from corvo.protocol.cluster import (
    OP_VERSION_FIRST,
    ClusterMap,
    ClusterNode,
    first_map,
    split_address,
)
from corvo.protocol.ops import NUMBERS
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import Announce, Announced, announcement
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetMap, MapFound
from corvo.protocol.routers import UNAVAILABLE
from corvo.protocol.versions import too_old
from corvo.telemetry import Log
from corvo.topology import NODE, refusal_of

_RETRY_S: Final = 1.0
_ASK_S: Final = 2.0
"""How long other nodes have for an answer. Where none runs, there is no wait."""


class JoinRefused(DirectoryUnfit):
    """The cluster does not take this node."""


class Formed(msgspec.Struct, frozen=True):
    """A node that knows its cluster."""

    identity: Identity
    map: ClusterMap
    is_new: bool  # whether it has become a node of the cluster right now


class Joiner(msgspec.Struct, frozen=True):
    """A node without a cluster, as its hello has it."""

    cluster: str = ""
    node: int = 0
    shards: int = 0
    instance: str = ""


class Found(msgspec.Struct, frozen=True):
    """A cluster, as one of its nodes describes it."""

    address: str
    cluster: str
    shards: int
    map: ClusterMap | None  # None while no node of it has been announced
    clock: Reading | None  # None of a release that does not show it


def default_name() -> str:
    """The name of a node that was given none."""
    return socket.gethostname().partition(".")[0] or "node"


def describe(settings: ClusterSettings, *, number: int, name: str, instance: str) -> ClusterNode:
    """This node, as the map is to have it."""
    return ClusterNode(
        number=number,
        name=name,
        address=advertised(settings, name),
        zone=settings.zone,
        instance=instance,
        version=__version__,
        op_version=wire.OP_VERSION,
        wire_version=wire.WIRE_VERSION,
    )


def advertised(settings: ClusterSettings, name: str) -> str:
    """The address at which other nodes reach this one; empty for a server that runs alone."""
    return settings.advertise or settings.first_nodes().get(name, "") or settings.bind


async def form(directory: DataDir, config: Config, log: Log, *, are_shards_given: bool) -> Formed:
    """The node's cluster: the one of its directory, or a new one, or that of others.

    Waits until a node that is to be joined answers. Raises `DirectoryUnfit` and
    `DirectoryDamaged`.
    """
    settings = config.cluster
    directory.check_release(has=wire.OP_VERSION, release=__version__)
    found = directory.identity()
    if found is not None:
        return await _known(directory, found, config, log, are_shards_given=are_shards_given)
    name = settings.node_id or (default_name() if settings.is_clustered else "")
    instance = directory.instance()
    first = settings.first_nodes()
    if name in first:
        others = [address for other, address in first.items() if other != name]
        cluster = cluster_of(settings, config.shards)
        there = await _ask_any(others, settings, log)
        if there is None or (there.cluster == cluster and not _has_lost(there.map, name)):
            if there is not None and there.map is not None:
                _refuse_stranger(there.map, there.map.named(name), instance)
            return _first_of_several(directory, config, name, instance, cluster)
        return await _join(directory, config, name, instance, there, are_shards_given, log)
    if settings.join or settings.discover == "dns" or first:
        return await _join_any(directory, config, name, instance, are_shards_given, log)
    return _alone(directory, config, name, instance)


def _has_lost(known: ClusterMap | None, name: str) -> bool:
    """Whether a cluster had a node of this name among its first ones, and has removed it."""
    return known is not None and known.named(name) is None


# A directory that has an identity.


async def _known(
    directory: DataDir, found: Identity, config: Config, log: Log, *, are_shards_given: bool
) -> Formed:
    settings = config.cluster
    if are_shards_given and found.shards != config.shards:
        raise DirectoryUnfit(
            f"{directory.root} has {found.shards} shards, and the setting shards is"
            f" {config.shards}: the number cannot be changed after the first start. Remove the"
            " setting, or use another --data-dir"
        )
    if settings.node_id and found.name and found.name != settings.node_id:
        raise DirectoryUnfit(
            f"{directory.root} belongs to node {found.name}, and cluster.node_id is"
            f" {settings.node_id}: set it to {found.name}, or use another --data-dir"
        )
    known = directory.cluster_map()
    if known is not None and len(known.nodes) > 1 and not settings.is_clustered:
        raise DirectoryUnfit(
            f"{directory.root} belongs to node {found.name} of a cluster of {len(known.nodes)}"
            " nodes: set cluster.peer_bind (--peer-bind), so that they can reach it"
        )
    if settings.bootstrap == "on" and found.node != 1:
        raise DirectoryUnfit(
            f"{directory.root} belongs to node {found.name} of a cluster that it has joined:"
            " remove --bootstrap, or use another --data-dir for a new cluster"
        )
    others = [one.address for one in known.nodes if one.number != found.node] if known else []
    there = await _ask_any({*settings.join, *filter(None, others)}, settings, log)
    if there is not None and there.cluster != found.cluster:
        raise DirectoryUnfit(
            f"{directory.root} belongs to cluster {found.cluster}, and the node at"
            f" {there.address} to cluster {there.cluster}: remove --join, or use another"
            " --data-dir"
        )
    if there is not None and there.map is not None:
        _refuse_older(there.map)
        _refuse_removed(there.map, found)
        _refuse_stranger(there.map, there.map.node(found.node), found.instance)
    known = _newest(known, there)
    await _refuse_copy(directory, found, known, settings)
    if known is not None and known != directory.cluster_map():
        directory.keep_map(known)
    if not found.instance or (settings.is_clustered and not found.name):
        # Of a server of before clusters, or of one that ran alone until now.
        own = (settings.node_id or default_name()) if settings.is_clustered else ""
        found = msgspec.structs.replace(
            found,
            instance=found.instance or directory.instance(),
            name=found.name or own,
        )
        directory.settle(found)
    if known is None:
        node = describe(settings, number=found.node, name=_named(found), instance=found.instance)
        needs = directory.needed_release()
        op_version = needs.op_version if needs is not None else OP_VERSION_FIRST
        known = _map_of_one(node, config, found.shards, op_version)
    return Formed(found, known, is_new=False)


def _newest(known: ClusterMap | None, there: Found | None) -> ClusterMap | None:
    other = there.map if there is not None else None
    if known is None or (other is not None and other.version > known.version):
        return other
    return known


async def _refuse_copy(
    directory: DataDir, own: Identity, known: ClusterMap | None, settings: ClusterSettings
) -> None:
    """Raise `JoinRefused` when a node runs that has the same data directory: this, or a copy.

    Two replicas with one number would both vote. This node does not listen yet, so an answer at its
    address, or at the one that it had, is another one's.
    """
    node = known.node(own.node) if known is not None else None
    if node is None or not settings.is_clustered:
        return
    for address in {node.address, advertised(settings, node.name)} - {""}:
        if await _is_at(address, own, settings):
            raise JoinRefused(
                f"node {own.node} ({node.name}) runs at {address} already, and {directory.root} is"
                " a copy of its data directory: stop that node first, or let this one join with an"
                " empty directory and another name"
            )


async def _is_at(address: str, own: Identity, settings: ClusterSettings) -> bool:
    """Whether the node answers there whose data directory has this identity."""
    peer: wire.Hello | None = None
    with trio.move_on_after(_ASK_S), suppress(LinkLost, WireError):
        async with dial(_address(address, settings), _joiner_hello()) as link:
            peer = link.peer
    if peer is None:
        return False
    return (peer.cluster, peer.node, peer.instance) == (own.cluster, own.node, own.instance)


def _refuse_older(known: ClusterMap) -> None:
    """Raise `JoinRefused` when this release is too old for the cluster."""
    reason = too_old(known, has=wire.OP_VERSION, release=__version__)
    if reason:
        raise JoinRefused(reason)


def _refuse_removed(known: ClusterMap, own: Identity) -> None:
    """Raise `JoinRefused` when the node was removed from the cluster."""
    reason = refusal_of(known, own.node)
    if reason:
        raise JoinRefused(reason)


def _refuse_stranger(known: ClusterMap, found: ClusterNode | None, instance: str) -> None:
    """Raise `JoinRefused` when the cluster knows the node by another data directory."""
    if found is not None:
        reason = refusal_of(known, found.number, instance)
        if reason:
            raise JoinRefused(reason)


def _named(identity: Identity) -> str:
    return identity.name or f"node-{identity.node}"


# A new cluster.


def _alone(directory: DataDir, config: Config, name: str, instance: str) -> Formed:
    identity = Identity(
        cluster=secrets.token_hex(16), node=1, shards=config.shards, name=name, instance=instance
    )
    node = describe(config.cluster, number=1, name=_named(identity), instance=instance)
    made = _map_of_one(node, config, config.shards, wire.OP_VERSION)
    if config.cluster.is_clustered:
        directory.keep_map(made)
    directory.settle(identity)
    return Formed(identity, made, is_new=True)


def _map_of_one(node: ClusterNode, config: Config, shards: int, op_version: int) -> ClusterMap:
    """The first map of a cluster of this node alone."""
    replicas = config.cluster.replicas
    return first_map([node], shards=shards, replicas=replicas, op_version=op_version)


def cluster_of(settings: ClusterSettings, shards: int) -> str:
    """The cluster's id, computed: equal on all nodes that are started with the same first nodes."""
    told = ["corvo first nodes", settings.secret, str(shards), *sorted(settings.initial_nodes)]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:32]


def _first_of_several(
    directory: DataDir, config: Config, name: str, instance: str, cluster: str
) -> Formed:
    settings = config.cluster
    first = sorted(settings.first_nodes().items())
    nodes = [
        ClusterNode(number=number, name=one, address=address)
        for number, (one, address) in enumerate(first, start=1)
    ]
    made = first_map(nodes, shards=config.shards, replicas=settings.replicas)
    own = made.named(name)
    assert own is not None, "it is among them"
    directory.keep_map(made)
    identity = Identity(
        cluster=cluster, node=own.number, shards=config.shards, name=name, instance=instance
    )
    directory.settle(identity)
    return Formed(identity, made, is_new=True)


# The cluster of others.


async def _join_any(
    directory: DataDir,
    config: Config,
    name: str,
    instance: str,
    are_shards_given: bool,
    log: Log,
) -> Formed:
    """Join whichever node answers; wait until one does. Raises `JoinRefused` when none has."""
    settings = config.cluster
    own = advertised(settings, name)
    waits_for: list[str] | None = None  # as it was logged
    ends_at = trio.current_time() + settings.join_wait_ms / 1_000
    while True:
        targets = [one for one in await _targets(settings) if one != own]
        if settings.join and not targets:
            raise JoinRefused(
                f"cluster.join is {own}, this node itself: name another node, or start a new"
                " cluster with --bootstrap"
            )
        there = await _ask_any(targets, settings, log)
        if there is not None:
            return await _join(directory, config, name, instance, there, are_shards_given, log)
        if targets != waits_for:
            waits_for = targets
            log.warning(
                "cluster.join_waits",
                asked=targets,
                why="no node of a cluster answers"
                if targets
                else f"{settings.discover_dns_name} has no address of another node",
                then="trying again; a new cluster is started with --bootstrap or --initial-nodes",
            )
        if trio.current_time() + _RETRY_S > ends_at:
            raise JoinRefused(_unanswered(targets, settings))
        await trio.sleep(_RETRY_S)


def _unanswered(targets: Sequence[str], settings: ClusterSettings) -> str:
    wait_s = settings.join_wait_ms / 1_000
    if not targets:
        return (
            f"{settings.discover_dns_name} has had no address of another node for {wait_s:g} s:"
            " check cluster.discover_dns_name, or start a new cluster with --bootstrap"
        )
    return (
        f"no node of a cluster has answered at {', '.join(targets)} for {wait_s:g} s: check the"
        " address and that a node runs there, or start a new cluster with --bootstrap"
    )


async def _targets(settings: ClusterSettings) -> list[str]:
    """The addresses of nodes that can be asked."""
    targets = [*settings.join, *settings.first_nodes().values()]
    if settings.discover == "dns":
        host, port = settings.discover_name
        try:
            answers = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            answers = []  # the name appears with the first node that has it
        for *_, where in answers:
            targets.append(str(TcpAddress(str(where[0]), int(where[1]))))
    return list(dict.fromkeys(targets))


async def _ask_any(targets: Iterable[str], settings: ClusterSettings, log: Log) -> Found | None:
    """What the first node that answers says of its cluster. Raises `JoinRefused`."""
    found: list[Found] = []
    refused: list[str] = []

    async def ask(address: str) -> None:
        try:
            found.append(await _ask(address, settings))
        except LinkRefused as error:
            refused.append(str(error))
        except (LinkLost, WireError) as error:
            log.debug("cluster.no_answer", address=address, reason=str(error))
        else:
            nursery.cancel_scope.cancel()

    with trio.move_on_after(_ASK_S):
        async with trio.open_nursery() as nursery:
            for address in targets:
                nursery.start_soon(ask, address)
    if not found and refused:
        raise JoinRefused(refused[0])
    if found:
        await _insist_on_clock(found[0], settings)
    return found[0] if found else None


async def _insist_on_clock(found: Found, settings: ClusterSettings) -> None:
    """Raise `JoinRefused` when the clock of this node differs from those of most others."""
    bound_ns = settings.clock_offset_max_ms * 1_000_000
    if found.clock is None or not found.clock.exceeds(bound_ns):
        return
    own = advertised(settings, settings.node_id or default_name())
    others = [one.address for one in found.map.nodes if one.address != own] if found.map else []
    readings = {found.address: found.clock}

    async def read(address: str) -> None:
        with suppress(LinkLost, WireError):
            other = await _ask(address, settings)
            if other.clock is not None:
                readings[address] = other.clock

    with trio.move_on_after(_ASK_S):
        async with trio.open_nursery() as nursery:
            for address in others:
                if address not in readings:
                    nursery.start_soon(read, address)
    nodes = len({*others, *readings})
    reason = clock_offsets.refusal(readings, nodes=nodes, bound_ns=bound_ns)
    if reason:
        raise JoinRefused(reason)


def _address(address: str, settings: ClusterSettings) -> PeerAddress:
    host, port = split_address(address)
    return PeerAddress(host, port, NODE, settings.security)


def _joiner_hello() -> wire.Hello:
    return wire.make_hello(Joiner(), wire.JOINER, shard=wire.ALL_SHARDS)


async def _ask(address: str, settings: ClusterSettings) -> Found:
    async with (
        dial(_address(address, settings), _joiner_hello()) as link,
        open_client(link) as client,
    ):
        answer = await client.ask(QUERY_NUMBERS[GetMap], encode_json(GetMap()))
        if not isinstance(answer, wire.Reply):
            raise LinkLost(f"the node at {address} is busy", was_sent=False)
        if answer.code:
            raise LinkLost(_read_rejected(answer.body).error, was_sent=False)
        known = msgspec.json.decode(answer.body, type=MapFound).map
        reading = await read_clock_of(client)
        return Found(address, link.peer.cluster, link.peer.shards, known, reading)


async def _join(
    directory: DataDir,
    config: Config,
    name: str,
    instance: str,
    found: Found,
    are_shards_given: bool,
    log: Log,
) -> Formed:
    """Get a number in a cluster."""
    settings = config.cluster
    if are_shards_given and found.shards != config.shards:
        raise JoinRefused(
            f"the cluster at {found.address} has {found.shards} shards, and the setting shards is"
            f" {config.shards}: remove the setting"
        )
    own = describe(settings, number=1, name=name, instance=instance)
    if found.map is not None:
        _refuse_older(found.map)
    is_far = found.map is not None and not all(is_local(one.address) for one in found.map.nodes)
    if is_far and is_local(own.address):
        raise JoinRefused(
            f"cluster.advertise is {own.address}, which other machines cannot reach: set it to"
            " HOST:PORT of this node"
        )
    announced = await _announce(directory, found.address, settings, own, log)
    directory.keep_map(announced.map)
    identity = Identity(
        cluster=found.cluster,
        node=announced.number,
        shards=found.shards,
        name=name,
        instance=instance,
    )
    directory.settle(identity)
    return Formed(identity, announced.map, is_new=True)


async def _announce(
    directory: DataDir, address: str, settings: ClusterSettings, own: ClusterNode, log: Log
) -> Announced:
    """Announce this node as a new one. Sent again until it is answered: the instance tells it."""
    directory.keep_instance(own.instance)
    is_first = True  # else an earlier try may have made it a node of the cluster
    op = announcement(own, number=0)
    hello = wire.make_hello(Joiner(), wire.JOINER, shard=wire.ALL_SHARDS)
    while True:
        try:
            async with (
                dial(_address(address, settings), hello) as link,
                open_client(link) as client,
            ):
                answer = await client.submit(NUMBERS[Announce], encode_json(op))
        except LinkRefused as error:
            if is_first:
                directory.forget_instance()
            raise JoinRefused(str(error)) from error
        except (LinkLost, WireError) as error:
            log.info("cluster.join_waits", asked=[address], reason=str(error))
        else:
            if isinstance(answer, wire.Reply) and not answer.code:
                return msgspec.json.decode(answer.body, type=Announced)
            if isinstance(answer, wire.Reply) and answer.code != UNAVAILABLE:
                if is_first:
                    directory.forget_instance()
                raise JoinRefused(_read_rejected(answer.body).error)
        is_first = False
        await trio.sleep(_RETRY_S)


_read_rejected: Final = msgspec.json.Decoder(Rejected).decode
