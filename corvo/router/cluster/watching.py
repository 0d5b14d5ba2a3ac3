"""Watching the cluster: what changes is put into this router's history.

Links and map say by themselves when something changes. Who belongs to the group of a shard is asked
of this node's own replicas, now and then.
"""

from typing import Final

import trio

from corvo import clock
from corvo.router.api import Api
from corvo.router.cluster.asking import has_replica_here, own_numbers, reachable
from corvo.router.cluster.overview import group_of
from corvo.router.history import Leadership, Members, Observed
from corvo.router.http.messages import Problem

GROUPS_S: Final = 10.0
"""Between two looks at the groups of the shards: a replica takes longer to be moved."""


async def run(api: Api) -> None:
    """Watch until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_links, api)
        nursery.start_soon(_watch_map, api)
        if api.config.map is not None:
            nursery.start_soon(_watch_groups, api)


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
                    frozenset(numbers.voters), frozenset(group_of(numbers))
                )
        observe(api, members)


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
