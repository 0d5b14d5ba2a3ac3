"""What must be in the end: everything that was begun is over, and all agree."""

from collections import Counter
from typing import TYPE_CHECKING

from corvo.kv.feed import FED
from corvo.kv.keys import prefix_end
from corvo.kv.store import Store
from corvo.shard.state import outbox
from corvo.shard.state.tables import JOBS
from corvo.shard.upkeep import placed_anew
from tests.shard.shard import wrong_in
from tests.sim.failures import Violation

if TYPE_CHECKING:
    from tests.sim.clusters.process import Process
    from tests.sim.clusters.world import ClusterWorld


def missing(world: "ClusterWorld") -> str:
    """What is not as it must be yet; empty when everything is."""
    if not world.operator.is_idle or world.clients.waits:
        return f"{world.clients.waits} requests wait, operator {world.operator.is_idle}"
    leaders = [world.leader(shard) for shard in range(world.options.shards)]
    home = leaders[0]
    if home is None or home.replica.machine.tx.cluster_map is None:
        return "shard 0 is not led"
    known = home.replica.machine.tx.cluster_map
    if not known.is_placed:
        return "the map is not placed"
    for machine in world.machines.values():
        if machine.is_wanted and not machine.refused:
            if not machine.is_serving or known.node(machine.number) is None:
                return f"machine {machine.id} is not a node"
            if machine.topology.map != known:
                return f"node {machine.number} has another map"
    for shard, leader in enumerate(leaders):
        if leader is None:
            return f"shard {shard} is not led"
        reason = _of_shard(world, shard, leader, known.places[shard])
        if reason:
            return f"shard {shard}: {reason}"
    return ""


def _of_shard(world: "ClusterWorld", shard: int, leader: "Process", place: tuple[int, ...]) -> str:
    group = leader.replica.node.membership
    if {*group.voters} != {*place} or group.learners or group.outgoing:
        return f"{group} is not {place}"
    applied = leader.replica.machine.applied
    if leader.replica.node.statistics().last_index != applied:
        return "entries wait"
    numbers = outbox.numbers(leader.replica.machine.tx)
    if any(given != removed for given, removed in numbers.values()):
        return f"effects wait: {numbers}"
    for machine in world.machines.values():
        process = machine.processes.get(shard)
        is_placed = machine.number in place and bool(machine.number)
        if not machine.is_wanted or machine.refused:
            continue
        if (process is None) == is_placed:
            return f"node {machine.number} has {process}, and the place is {place}"
        if process is not None and process.replica.machine.applied != applied:
            return f"node {machine.number} has applied {process.replica.machine.applied}"
        rows = machine.directory.mirror.get(shard)
        if rows is None or not rows.cursor.is_whole or rows.cursor.index != applied:
            return f"the mirror of node {machine.number} is at {rows and rows.cursor}"
        if rows.cursor.through > applied:
            return f"the mirror of node {machine.number} has rows of {rows.cursor.through}"
    return ""


def check(world: "ClusterWorld") -> None:
    """All agree. Raises `Violation`."""
    home = world.leader(0)
    assert home is not None
    known = home.replica.machine.tx.cluster_map
    assert known is not None
    if placed_anew(known).places != known.places:
        raise Violation("places", f"{known.places} could be better")
    count = min(known.replicas, len(known.carriers))
    if any(len(place) != count for place in known.places):
        raise Violation("places", f"{known.places} are not of {count} nodes each")
    loads = Counter(number for place in known.places for number in place)
    counts = [loads[number] for number in known.carriers]
    if max(counts) - min(counts) > 1 and len({node.zone for node in known.nodes}) == 1:
        raise Violation("places", f"{known.places} are not balanced")
    for machine in world.machines.values():
        if machine.refused and not machine.may_be_refused:
            raise Violation("refused", f"machine {machine.id}: {machine.refused}")
        if machine.may_be_refused and machine.is_serving and known.node(machine.number) is None:
            raise Violation("not-refused", f"machine {machine.id} runs as node {machine.number}")
    found: Counter[str] = Counter()
    for shard in range(world.options.shards):
        leader = world.leader(shard)
        assert leader is not None
        _check_copies(world, shard, leader)
        tx = leader.replica.machine.tx
        found.update(job for job in world.clients.acknowledged if JOBS.get(tx, job) is not None)
    for job in world.clients.acknowledged:
        if found[job] != 1:
            raise Violation("jobs", f"{job} was acknowledged and is there {found[job]} times")


def _check_copies(world: "ClusterWorld", shard: int, leader: "Process") -> None:
    """Every replica and every mirror has what the leader has."""
    damaged = wrong_in(leader.replica.machine.store, shard=shard, shards=world.options.shards)
    if damaged:
        raise Violation("recount", f"shard {shard}: {damaged[:5]}")
    documents = documents_of(leader.replica.machine.store)
    digest = leader.replica.machine.digest
    for machine in world.machines.values():
        process = machine.processes.get(shard)
        if process is not None and process.replica.machine.digest != digest:
            raise Violation("digest", f"shard {shard} on node {machine.number} at the end")
        if process is not None:
            world.counts["replicas compared"] += 1
        if not machine.is_wanted or machine.refused:
            continue
        rows = machine.directory.mirror[shard].documents
        if rows != documents:
            keys = {**rows, **documents}
            wrong = sorted(key for key in keys if rows.get(key) != documents.get(key))
            raise Violation("mirror", f"shard {shard} at node {machine.number}: {wrong[:5]}")
        world.counts["mirrors compared"] += 1


def documents_of(store: Store) -> dict[bytes, bytes]:
    """All documents that a follower is told of."""
    return {
        key: data
        for prefix in FED
        for key, data in store.scan(prefix, prefix_end(prefix), limit=1_000_000)
    }
