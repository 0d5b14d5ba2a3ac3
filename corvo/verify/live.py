"""Check of a running cluster over its HTTP API, at each address that was named."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

import msgspec

from corvo import clock
from corvo.client import cluster, jobs, queues
from corvo.client.calls import Client, read
from corvo.client.errors import ClientError, RequestFailed, Unreachable
from corvo.client_commands.tables import counted
from corvo.verify.report import REPLACE, Part, Report

TRIES: Final = 5
"""How often something is read again because it changed meanwhile."""
PAUSE_S: Final = 0.3
_STATES: Final = (
    *("pending", "active", "held", "completed", "retrying", "dead", "cancelled", "scheduled"),
)
_STATUS: Final = "see all nodes, shards and replicas:   corvo cluster status"
_AGAIN: Final = "repeat the command when fewer jobs change"
_STATES_DIFFER: Final = (
    "stop the node whose replica is wrong and check its directory:   corvo verify DIR. Then"
    f" {REPLACE}"
)
_COUNTS_DIFFER: Final = (
    "stop a node with the shard of the queue, and check its directory:   corvo verify DIR. It says"
    " whether the shard or the mirror is wrong"
)
NOT_VISIBLE: Final = (
    "A running cluster does not show its files, logs, checkpoints and indexes. To check those, stop"
    " one node at a time and run:   corvo verify DIR"
)


class _Replica(msgspec.Struct, frozen=True, kw_only=True):
    node: int
    is_reachable: bool
    is_voter: bool = True
    role: str = ""
    applied: int | msgspec.UnsetType = msgspec.UNSET
    digest: str | msgspec.UnsetType = msgspec.UNSET
    lag: int = 0
    is_repairing: bool = False
    reason: str = ""


class _Shard(msgspec.Struct, frozen=True, kw_only=True):
    shard: int
    status: str
    leader: int | msgspec.UnsetType = msgspec.UNSET
    placed_on: list[int]
    replicas: list[_Replica]
    reason: str = ""


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    map_version: int
    is_placed: bool = True
    nodes: list[cluster.Node]
    shards: list[_Shard]
    reasons: list[str] = []


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    shards: int = 1
    cluster: _Cluster | msgspec.UnsetType = msgspec.UNSET
    losses: list[msgspec.Raw] = []


class _Job(msgspec.Struct, frozen=True):
    queue: str
    state: str


class _Address(NamedTuple):
    """A node that answers."""

    name: str
    client: Client


def verify_cluster(
    connect: Callable[[str], Client], target: str, step: Callable[[int], None]
) -> Report:
    """Check everything that the HTTP API shows. Raises `ClientError` if no address answers."""
    began_ns = clock.steady_ns()
    report = Report(target, not_visible=[NOT_VISIBLE])
    with ExitStack() as undo:
        part = report.part("nodes")
        found: list[tuple[_Address, _Status]] = []
        failed: ClientError | None = None
        for name in target.split(","):
            client = undo.enter_context(connect(name))
            try:
                found.append((_Address(name, client), _status(client)))
            except (Unreachable, RequestFailed) as error:
                failed = error
                part.skipped(name, error.message, "; ".join(error.hints))
        if not found:
            assert failed is not None, "there is an address"
            raise failed
        _verify_nodes(found, part)
        _verify_shards(found[0][1], report.part("shards"))
        _verify_digests(found[0][0].client, report.part("replicas"))
        for address, _ in found:
            where = f"mirror of {address.name}" if len(found) > 1 else "queues and mirror"
            _verify_counts(address.client, report.part(where), step)
    report.settle()
    report.seconds = (clock.steady_ns() - began_ns) / 1e9
    return report


def _status(client: Client) -> _Status:
    return read(cluster.get_status(client), _Status)


# Nodes, shards and replicas.


def _verify_nodes(found: Sequence[tuple[_Address, _Status]], part: Part) -> None:
    """All nodes can be reached and know one map."""
    status = found[0][1]
    view = status.cluster
    for one in status.losses:
        part.remark("losses", f"a loss was accepted: {bytes(one).decode()}")
    if view is msgspec.UNSET:
        part.count(1, "node")
        if status.status != "healthy":
            part.skipped("the server", f"it is {status.status}", "see why:   corvo status")
        return
    part.count(len(view.nodes), "node")
    for node in view.nodes:
        if node.is_reachable is False:
            problem = f"it cannot be reached{f': {node.reason}' if node.reason else ''}"
            part.skipped(node.title, problem, _STATUS)
        elif node.state == "draining":
            part.remark(node.title, "it is draining")
    if not view.is_placed:
        part.remark("the cluster map", "new places of replicas are not computed yet")
    versions = {}
    for address, each in found:
        if each.cluster is not msgspec.UNSET:
            versions[address.name] = each.cluster.map_version
    if len({*versions.values()}) > 1:
        told = ", ".join(f"{name} has version {version}" for name, version in versions.items())
        part.skipped("the cluster map", f"nodes have different versions: {told}", _AGAIN)


def _verify_shards(status: _Status, part: Part) -> None:
    """Each shard has a leader and all of its replicas."""
    view = status.cluster
    if view is msgspec.UNSET:
        part.count(status.shards, "shard")
        return
    part.count(len(view.shards), "shard")
    part.count(sum(len(shard.replicas) for shard in view.shards), "replica")
    for shard in view.shards:
        where = f"shard {shard.shard}"
        if shard.leader is msgspec.UNSET:
            part.skipped(where, f"it has no leader{_because(shard.reason)}", _STATUS)
        elif shard.status != "healthy":
            part.skipped(where, f"it is {shard.status}{_because(shard.reason)}", _STATUS)
        there = {replica.node for replica in shard.replicas}
        if view.is_placed and there != {*shard.placed_on}:
            told = f"its replicas are on nodes {sorted(there)}, and belong on {shard.placed_on}"
            part.skipped(where, told, _STATUS)
        for replica in shard.replicas:
            on = f"{where} on node {replica.node}"
            if not replica.is_reachable:
                part.skipped(on, f"it cannot be reached{_because(replica.reason)}", _STATUS)
            elif replica.is_repairing:
                part.skipped(on, "it is under repair, and does not vote", _STATUS)
            elif replica.reason:
                part.remark(on, replica.reason)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _verify_digests(client: Client, part: Part) -> None:
    """Replicas at one position have one digest.

    Replicas of a busy shard are seldom at one position, so the status is read several times.
    """
    compared: dict[int, set[int]] = {}
    told: set[tuple[int, int]] = set()
    wanted: dict[int, int] = {}
    for number in range(TRIES):
        if number:
            client.pause(PAUSE_S)
        view = _status(client).cluster
        if view is msgspec.UNSET:
            part.remark("digests", "the server runs alone: there are no replicas to compare")
            return
        if not any(each.digest is not msgspec.UNSET for it in view.shards for each in it.replicas):
            part.remark("digests", "not compared: this version of the server does not show them")
            return
        for shard in view.shards:
            wanted[shard.shard] = sum(each.is_reachable for each in shard.replicas)
            for index, nodes in _differing(shard, compared.setdefault(shard.shard, set())):
                if (shard.shard, index) not in told:
                    told.add((shard.shard, index))
                    problem = f"replicas differ at entry {index}: {nodes}"
                    part.wrong(f"shard {shard.shard}", problem, _STATES_DIFFER)
        if all(len(compared[number]) >= count for number, count in wanted.items()):
            break
    part.count(sum(map(len, compared.values())), "digest")
    for number, count in wanted.items():
        if len(compared[number]) < count and count > 1:
            problem = f"{count - len(compared[number])} replicas were never at the same entry"
            part.skipped(f"shard {number}", problem, _AGAIN)


def _differing(shard: _Shard, compared: set[int]) -> Iterator[tuple[int, str]]:
    """Positions at which replicas have several digests; adds those that were compared."""
    at: dict[int, dict[int, str]] = {}
    for replica in shard.replicas:
        if replica.applied is not msgspec.UNSET and replica.digest is not msgspec.UNSET:
            at.setdefault(replica.applied, {})[replica.node] = replica.digest
    for index, digests in at.items():
        if len(digests) > 1 or len(shard.replicas) == 1:
            compared |= {*digests}
        if len({*digests.values()}) > 1:
            nodes = ", ".join(f"node {node} has {digest}" for node, digest in digests.items())
            yield index, nodes


# Queues and jobs.


class _Taken(NamedTuple):
    """What was read at one position."""

    counts: dict[str, dict[str, int]]
    """By queue and state; zeros are left out."""
    positions: Mapping[str, int]


def _verify_counts(client: Client, part: Part, step: Callable[[int], None]) -> None:
    """The counts that shards keep are those of the jobs that the mirror has."""
    why = ""
    for number in range(TRIES):
        if number:
            client.pause(PAUSE_S)
        before = _counted(client)
        recount = _recounted(client, step)
        if isinstance(recount, str):
            why = recount
            continue
        after = _counted(client)
        if before != after:
            why = "jobs changed while they were counted"
        elif recount.positions != before.positions:
            why = f"the mirror is at {_place(recount)}, and the shards are at {_place(before)}"
        else:
            _compare(before, recount, part)
            return
    part.skipped("counts of queues", why, _AGAIN)


def _counted(client: Client) -> _Taken:
    """The counts of the shards, and their positions."""
    counts: dict[str, dict[str, int]] = {}
    for page in queues.pages(client):
        for raw in page:
            queue = msgspec.json.decode(raw, type=queues.Queue)
            shown: dict[str, int] = {state: getattr(queue, state) for state in _STATES}
            found = {state: count for state, count in shown.items() if count}
            if found:
                counts[queue.name] = found
    header = client.get(queues.QUEUES, {"limit": 1}).headers.get("corvo-seq", "")
    return _Taken(counts, _positions(header))


def _positions(header: str) -> dict[str, int]:
    """By shard, the index in a header such as `s0=12,s1=40`."""
    found = {}
    for each in header.split(","):
        name, _, index = each.strip().partition("=")
        if index.isdigit():
            found[name] = int(index)
    return found


def _recounted(client: Client, step: Callable[[int], None]) -> _Taken | str:
    """The jobs of the mirror by queue and state; why not, if it is not of one position."""
    counts: dict[str, dict[str, int]] = {}
    seen: set[tuple[tuple[str, int], ...]] = set()
    positions: dict[str, int] = {}
    for page in jobs.pages(client, {}):
        if page.partial or page.is_behind or not all(it.is_whole for it in page.as_of.values()):
            return page.why_partial or "the mirror is behind"
        positions = {name: place.index for name, place in page.as_of.items()}
        seen.add(tuple(sorted(positions.items())))
        if len(seen) > 1:
            return "jobs changed while they were counted"
        for raw in page.jobs:
            job = msgspec.json.decode(raw, type=_Job)
            of_queue = counts.setdefault(job.queue, {})
            of_queue[job.state] = of_queue.get(job.state, 0) + 1
        step(len(page.jobs))
    return _Taken(counts, positions)


def _place(taken: _Taken) -> str:
    return ", ".join(f"{name}={index}" for name, index in sorted(taken.positions.items()))


def _compare(shards: _Taken, mirror: _Taken, part: Part) -> None:
    total = sum(sum(each.values()) for each in mirror.counts.values())
    part.checked.append(
        f"{counted(len(shards.counts), 'queue')} and {counted(total, 'job')} at {_place(shards)}"
    )
    for name in sorted({*shards.counts, *mirror.counts}):
        kept, found = shards.counts.get(name, {}), mirror.counts.get(name, {})
        for state in _STATES:
            one, other = kept.get(state, 0), found.get(state, 0)
            if one != other:
                problem = (
                    f"{one} {state} by the shard's counts, and {other} by its jobs in the mirror"
                )
                part.wrong(f"queue {name}", problem, _COUNTS_DIFFER)
