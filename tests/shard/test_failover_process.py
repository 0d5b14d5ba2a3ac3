"""Real processes of one shard whose leader ends: at once, or in order."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import trio

from corvo import child as child_process
from corvo.link import LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.queries import GetQueue, QueueView
from corvo.shard.config import ShardConfig
from tests.shard.groups import group, group_in, leader_of, map_of, ports_of
from tests.shard.processes import Child, ask, calling, launch, result, status, submit
from tests.support.links import on_sockets
from tests.support.ports import free_ports

ENQUEUERS = 6
PATIENCE_S = 120.0
TIMEOUT_S = 60.0
"""Far longer than it takes to replace a leader, on a machine of any load."""


@on_sockets
async def test_a_leader_that_is_killed_is_replaced_before_the_election_timeout(
    tmp_path: Path,
) -> None:
    ticks = int(TIMEOUT_S * 50)
    configs = group_in(tmp_path, map_of(free_ports(3)), tick_ms=20, election_ticks=ticks)

    async with group(configs) as children:
        first = await leader_of(configs)
        await children[first.node - 1].kill()
        with trio.fail_after(TIMEOUT_S):
            second = await leader_of([config for config in configs if config != first])

    assert second != first


class Load:
    """Clients that enqueue a job after the other, each until it is acknowledged."""

    def __init__(self, configs: Sequence[ShardConfig]) -> None:
        self.configs = configs
        self.acknowledged: list[str] = []
        self.is_over = False
        self._keys = count(1)

    async def run(self) -> None:
        """Enqueue until it is over."""
        async with trio.open_nursery() as nursery:
            for first in range(ENQUEUERS):
                nursery.start_soon(self._enqueue, first % len(self.configs))

    async def _enqueue(self, at: int) -> None:
        key = ""
        while not self.is_over or key:
            config = self.configs[at % len(self.configs)]
            at += 1  # to the next replica, when this one cannot or does not lead
            with suppress(LinkLost):
                async with calling(config) as client:
                    while not self.is_over or key:
                        key = key or f"k{next(self._keys)}"
                        op = Enqueue(jobs=[NewJob(queue="mail")], request_key=key)
                        answer = await submit(client, op)
                        if not isinstance(answer, wire.Reply):
                            break
                        assert not answer.code, answer.body
                        self.acknowledged.append(key)
                        key = ""


@on_sockets
async def test_a_rolling_restart_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    configs = group_in(tmp_path, map_of(free_ports(3)), election_ticks=100)
    load = Load(configs)
    codes: list[int] = []

    async with ports_of(configs):
        children = {config.node: await launch(config) for config in configs}
        try:
            for child in children.values():
                assert await child.wait_until_ready()
            last = await leader_of(configs)
            with trio.move_on_after(PATIENCE_S) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(load.run)
                    for config in (*[it for it in configs if it != last], last):
                        enough = len(load.acknowledged) + 50
                        while len(load.acknowledged) < enough:
                            await trio.lowlevel.checkpoint()
                        codes.append(await children[config.node].stop_in_order())
                        children[config.node] = await launch(config)
                        assert await children[config.node].wait_until_ready()
                    load.is_over = True
            assert not scope.cancelled_caught, await told_by(configs, load)
            leader = await leader_of(configs)
            async with calling(leader) as client:
                view = result(await ask(client, GetQueue(queue="mail")), QueueView)
        finally:
            await kill_all([*children.values()])

    assert codes == [child_process.OK] * 3
    assert view.counts["pending"] == len(load.acknowledged) == len({*load.acknowledged})


async def told_by(configs: Sequence[ShardConfig], load: Load) -> str:
    """What is known of a load that does not end."""
    lines = [f"over: {load.is_over}, acknowledged: {len(load.acknowledged)}"]
    for config in configs:
        with trio.move_on_after(5.0), suppress(LinkLost):
            async with calling(config) as client:
                seen = await status(client)
                lines.append(
                    f"{seen.replica} is {seen.role} in term {seen.term}, led by {seen.leader}:"
                    f" commit {seen.commit}, applied {seen.applied}, last {seen.last_index},"
                    f" waiting {seen.waiting}, voters {seen.voters}, peers {seen.peers}"
                )
                continue
        lines.append(f"{config.node} says nothing")
    return "\n".join(lines)


async def kill_all(children: Sequence[Child]) -> None:
    for child in children:
        await child.kill()
