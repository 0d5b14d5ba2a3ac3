"""The processes of a node: their commands and configs, and updates while they run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from corvo.child import Update
from corvo.config import Config, accepted_losses
from corvo.datadir import DataDir, Identity, mirror_socket, peer_socket
from corvo.forming import describe
from corvo.mirror.config import MirrorConfig
from corvo.notify import VARIABLES
from corvo.otel_settings import trace_settings
from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.router.config import RouterConfig
from corvo.shard.config import ShardConfig
from corvo.supervisor import Plan, Stage
from corvo.topology import NODE, shard_target

_PACKAGES: Final = Path(__file__).parents[1]


class Programs(msgspec.Struct, frozen=True):
    """The commands of the processes; tests replace them."""

    shard: tuple[str, ...] = (sys.executable, "-P", "-m", "corvo", "shard")
    router: tuple[str, ...] = (sys.executable, "-P", "-m", "corvo", "router")
    mirror: tuple[str, ...] = (sys.executable, "-P", "-m", "corvo", "mirror")


class OpenedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose directory and sockets are open: what the configs of its processes need."""

    directory: DataDir
    identity: Identity
    map: ClusterMap
    there: frozenset[int]
    """Shards of which this node has data; those that the map places here come on top."""
    is_new: bool = False  # whether the cluster is as new as this node
    lock: int
    sockets: list[str]  # of the shards, by their numbers
    listening: list[int]
    environment: dict[str, str]
    log_form: str
    programs: Programs


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the processes: without the node's own variables, with its code's path."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("CORVO_") and name not in VARIABLES
    }
    path = kept.get("PYTHONPATH", "")
    kept["PYTHONPATH"] = f"{_PACKAGES}{os.pathsep}{path}" if path else str(_PACKAGES)
    return kept


def shards_here(opened: OpenedNode) -> list[int]:
    """The shards that this node has a replica of, or is to have."""
    return sorted({*opened.map.shards_of(opened.identity.node), *opened.there})


def sockets_here(opened: OpenedNode) -> dict[int, str]:
    """Where these replicas are reached on this node."""
    return {number: opened.sockets[number] for number in shards_here(opened)}


def plans_of(config: Config, opened: OpenedNode) -> list[Plan]:
    """The processes of a node, in the order in which they start."""
    programs, lock = opened.programs, opened.lock
    update = msgspec.json.encode(Update(map=opened.map, sockets=sockets_here(opened)))

    def plan(
        name: str, command: tuple[str, ...], settings: msgspec.Struct, stage: Stage, *inherited: int
    ) -> Plan:
        return Plan(
            name=name,
            command=command,
            config=msgspec.json.encode(settings),
            descriptors=(lock, *inherited),
            environment=opened.environment,
            is_vital=stage is Stage.ROUTER,
            stage=stage,
            update=update,
        )

    plans = [
        plan(shard_name(number), programs.shard, shard_config(config, opened, number), Stage.OTHERS)
        for number in shards_here(opened)
    ]
    router = router_config(config, opened)
    plans.append(plan("router", programs.router, router, Stage.ROUTER, *opened.listening))
    if config.mirror.enabled == "on":
        plans.append(plan("mirror", programs.mirror, mirror_config(config, opened), Stage.OTHERS))
    return plans


def shard_config(config: Config, opened: OpenedNode, number: int) -> ShardConfig:
    """The config of a shard. Raises `BadConfig`."""
    made = ShardConfig(
        cluster=opened.identity.cluster,
        node=opened.identity.node,
        shard=number,
        shards=opened.identity.shards,
        data_dir=str(opened.directory.shard(number)),
        known=str(opened.directory.known(number)),
        accept_loss=accepted_losses(config.accept_loss).get(number, -1),
        sockets=sockets_here(opened),
        map=opened.map if config.cluster.is_clustered else None,
        security=config.cluster.security,
        instance=opened.identity.instance if config.cluster.is_clustered else "",
        peer_socket=peer_socket(opened.sockets, shard_target(number))
        if config.cluster.is_clustered
        else "",
        is_new_member=opened.map.version > 0 and number not in opened.there,
        has_left=opened.directory.has_left(number),
        relaxed=config.durability == "relaxed",
        retention_ms=config.retention_ms,
        limits=config.jobs,
        log_level=config.log_level,
        log_format=opened.log_form,
        **msgspec.structs.asdict(config.shard),
    )
    made.check()
    return made


def mirror_config(config: Config, opened: OpenedNode) -> MirrorConfig:
    """The config of the mirror. Raises `BadMirrorConfig`."""
    keys = msgspec.structs.asdict(config.mirror)
    del keys["enabled"]
    made = MirrorConfig(
        cluster=opened.identity.cluster,
        node=opened.identity.node,
        shards=opened.identity.shards,
        sockets=sockets_here(opened),
        map=opened.map if config.cluster.is_clustered else None,
        security=config.cluster.security,
        instance=opened.identity.instance if config.cluster.is_clustered else "",
        data_dir=str(opened.directory.mirror),
        socket=mirror_socket(opened.sockets),
        log_level=config.log_level,
        log_format=opened.log_form,
        **keys,
    )
    made.check()
    return made


def router_config(config: Config, opened: OpenedNode) -> RouterConfig:
    """The config of the router. Raises `BadRouterConfig`."""
    made = RouterConfig(
        cluster=opened.identity.cluster,
        node=opened.identity.node,
        shards=opened.identity.shards,
        sockets=sockets_here(opened),
        map=opened.map if config.cluster.is_clustered else None,
        security=config.cluster.security,
        instance=opened.identity.instance if config.cluster.is_clustered else "",
        peer_socket=peer_socket(opened.sockets, NODE) if config.cluster.is_clustered else "",
        own=own_node(config, opened) if config.cluster.is_clustered else None,
        clock_offset_max_ms=config.cluster.clock_offset_max_ms,
        mirror_socket=mirror_socket(opened.sockets) if config.mirror.enabled == "on" else "",
        listen=opened.listening,
        tls_cert=config.tls_cert,
        tls_key=config.tls_key,
        has_http2=config.http2 == "on",
        admin_key=config.admin_key,
        is_open=config.is_open,
        is_auth_off=config.auth == "off",
        cors_origins=list(config.cors_origins),
        durability=config.durability,
        log_level=config.log_level,
        log_format=opened.log_form,
        drain_ms=config.drain_ms,
        limits=config.limits,
        api=config.api,
        webhooks=config.webhooks,
        traces=trace_settings(opened.environment),
    )
    made.check()
    return made


def shard_name(number: int) -> str:
    """The name of a shard's process."""
    return f"shard-{number}"


def own_node(config: Config, opened: OpenedNode) -> ClusterNode:
    """This node, as it announces itself."""
    identity = opened.identity
    return describe(
        config.cluster, number=identity.node, name=identity.name, instance=identity.instance
    )
