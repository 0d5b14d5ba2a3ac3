"""Clusters of one, three and five nodes on one machine: the parts of `bench.node`, by turns.

All clusters are there at the same time, and each part is measured at one after the other. So an
hour in which the disk is slow is one for all of them. The ratio of a row is to that of one node.
Clients use one node of each cluster; the leaders of the shards are spread over all of its nodes.

More nodes on one machine cannot be faster than one: each job is written three times, by the same
processors and to the same disk. What a cluster costs shows here, and not what it can do.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple
from urllib.request import urlopen

import msgspec

from bench import node
from bench.measure import Measurement
from bench.server import LOG, SHARDS, Server, server_of, serving
from bench.shard_process import syncs_per_second
from corvo.protocol.cluster import REPLICAS
from tests.support.ports import free_ports

COUNTS: Final = (1, 3, 5)
SETTLED_S_MAX: Final = 60.0
_LOOK_S: Final = 0.2

PARTS: Final[dict[str, node.Part]] = {
    "lone enqueues": partial(node.enqueue, plan=node.LONE),
    "16 enqueues": partial(node.enqueue, plan=node.SIXTEEN),
    **{name: node.PARTS[name] for name in ("enqueues", "cycles", "batches", "streams", "waking")},
}
_BYTES: Final = re.compile(rb"bytes_(?:sent|received):(\d+)")


class _Replica(msgspec.Struct):
    is_voter: bool


class _Shard(msgspec.Struct):
    replicas: list[_Replica]


class _View(msgspec.Struct):
    status: str
    shards: list[_Shard]


class _Status(msgspec.Struct):
    """The status of a cluster, as far as it matters here."""

    cluster: _View


class Cluster(NamedTuple):
    """A cluster, and the node of it that clients use."""

    nodes: int
    server: Server
    peer_ports: tuple[int, ...]

    def wire_bytes(self) -> int:
        """Bytes that went between its nodes, on the connections that are there."""
        if not self.peer_ports:
            return 0
        ports = " or ".join(f"sport = :{port}" for port in self.peer_ports)
        command = ["ss", "--tcp", "--info", "--numeric", "--no-header", "--oneline", f"( {ports} )"]
        said = subprocess.run(command, check=True, capture_output=True).stdout
        return sum(int(found) for found in _BYTES.findall(said))


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    for missing in (name for name in ("wrk", "ss") if shutil.which(name) is None):
        print(f"cluster: not covered, for there is no {missing} (Debian: wrk, iproute2)")
        return
    with ExitStack() as running:
        clusters = [_start(running, directory, count) for count in COUNTS]
        for name, part in PARTS.items():
            yield Measurement(f"disk before {name}", syncs_per_second(directory), "syncs/s", None)
            yield from _compared(part, clusters)


def _compared(part: node.Part, clusters: list[Cluster]) -> Iterator[Measurement]:
    alone: dict[str, float] = {}
    for cluster in clusters:
        before = cluster.wire_bytes()
        rows = list(part(cluster.server))
        for row in rows:
            first = alone.setdefault(row.name, row.value)
            ratio = row.value / first if first else None
            yield Measurement(_label(cluster, row.name), row.value, row.unit, ratio)
        if cluster.nodes > 1 and (jobs := _jobs(rows)):
            each = (cluster.wire_bytes() - before) / jobs
            yield Measurement(_label(cluster, "between nodes, about"), each, "bytes/job", None)


def _label(cluster: Cluster, name: str) -> str:
    return f"{cluster.nodes}: {name}"


def _jobs(rows: list[Measurement]) -> float:
    """Jobs of the part, warming up included; 0 for a part with a rate of its own."""
    rate = rows[0].value if rows[0].unit in {"jobs/s", "cycles/s"} else 0.0
    return rate * (node.WARMING_S + node.MEASURED_S)


def _start(running: ExitStack, directory: Path, count: int) -> Cluster:
    ports = free_ports(count) if count > 1 else []
    nodes: list[Server] = []
    for number in range(count):
        place = directory / f"{count}-{number}"
        place.mkdir()
        flags: list[str] = []
        if ports:
            flags = ["--node-id", f"n{number}", "--peer-bind", f"127.0.0.1:{ports[number]}"]
            flags += ["--join", f"127.0.0.1:{ports[0]}"] if number else ["--bootstrap"]
        nodes.append(running.enter_context(serving(place, *flags)))
    if count > 1:
        _settle(nodes[0])
    logs = [directory / f"{count}-{number}" / LOG for number in range(count)]
    first, *others = _processes(logs, replicas=SHARDS * min(count, REPLICAS))
    return Cluster(count, first._replace(others=tuple(others)), tuple(ports))


def _processes(logs: list[Path], *, replicas: int) -> list[Server]:
    """The nodes, once each replica that was moved away has ended."""
    deadline = monotonic() + SETTLED_S_MAX
    while True:
        nodes = [node for log in logs if (node := server_of(log)) is not None]
        if sum(len(node.shards) for node in nodes) == replicas:
            return nodes
        assert monotonic() < deadline, f"there are not {replicas} replicas: {nodes}"
        sleep(_LOOK_S)


def _settle(server: Server) -> None:
    """Wait until all replicas are where they are to be."""
    deadline = monotonic() + SETTLED_S_MAX
    while True:
        with urlopen(f"{server.url}/api/v1/cluster/status") as answer:  # noqa: S310 -- it is http
            seen = msgspec.json.decode(answer.read(), type=_Status).cluster
        voters = [sum(each.is_voter for each in shard.replicas) for shard in seen.shards]
        if seen.status == "healthy" and all(each == REPLICAS for each in voters):
            return
        assert monotonic() < deadline, f"the cluster does not settle: {seen}"
        sleep(_LOOK_S)
