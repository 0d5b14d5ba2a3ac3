"""Watching the cluster: what changes is put into this router's history.

Links and map say by themselves when something changes. Who belongs to the group of a shard is asked
of this node's own replicas, now and then; and the other routers show their wall clocks.
"""

from typing import Final

import trio

from corvo import clock
from corvo.clock_offsets import judge
from corvo.router.api import Api
from corvo.router.cluster.asking import has_replica_here, own_numbers, reachable
from corvo.router.cluster.overview import group_of
from corvo.router.history import Leadership, Members, Observed
from corvo.router.http.messages import Problem
from corvo.telemetry import SILENT, Log
from corvo.time_zones import tz_version

GROUPS_S: Final = 10.0
"""Between two looks at the groups of the shards: a replica takes longer to be moved."""

CLOCKS_S: Final = 5.0
"""Between two looks at the clocks of the other nodes. A clock drifts by less than a millisecond."""


async def run(api: Api, log: Log = SILENT) -> None:
    """Watch until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_links, api)
        nursery.start_soon(_watch_map, api)
        if api.config.map is not None:
            nursery.start_soon(_watch_groups, api)
            nursery.start_soon(_watch_clocks, api, log)


async def _watch_links(api: Api) -> None:
    while True:
        changed = api.cluster_changed
        observe(api)
        await changed.wait()


async def _watch_map(api: Api) -> None:
    while True:
        await api.topology.changes()
        observe(api)


async def _watch_groups(api: Api) -> None:
    while True:
        await trio.sleep(GROUPS_S)
        members = dict(api.history.members)
        for shard in api.shards:
            if has_replica_here(api, shard):
                try:
                    numbers = await own_numbers(api, shard)
                except Problem:
                    continue  # the group is as it was known last
                members[shard.number] = Members(
                    frozenset(numbers.voters), frozenset(group_of(numbers)), numbers.last_index
                )
        observe(api, members)


async def _watch_clocks(api: Api, log: Log) -> None:
    bound_ns = api.config.clock_offset_max_ms * 1_000_000
    while True:
        readings = await api.peers.read_clocks()
        before, own = api.clocks, api.config.node
        api.clocks = judge(readings, own=own, bound_ns=bound_ns, tz_version=tz_version())
        wrong = api.clocks.wrong_ns
        for node in sorted(wrong.keys() - before.wrong_ns.keys()):
            log.warning(
                "cluster.clock_off",
                node=node,
                ahead_s=round(wrong[node] / 1e9, 3),
                do="set the clock of this node, and keep it right with NTP",
            )
        for node in sorted(before.wrong_ns.keys() - wrong.keys()):
            log.info("cluster.clock_right", node=node)
        await trio.sleep(CLOCKS_S)


def observe(api: Api, members: dict[int, Members] | None = None) -> None:
    """Put into the history what is different now."""
    observed = Observed(
        map=api.topology.map,
        leaders={
            shard.number: Leadership(shard.leader, shard.led_term)
            for shard in api.shards
            if shard.leader is not None or shard.term
        },
        reachable={
            node: is_up
            for node, is_up in reachable(api).items()
            if is_up or node in api.history.reached
        },
        members=api.history.members if members is None else members,
    )
    api.history.observe(observed, clock.now_ns())
