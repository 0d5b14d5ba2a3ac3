"""Several real processes of one shard: how they elect, copy, and tell each other apart."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
import trio

from corvo import child as child_process
from corvo.child import Notice, Update
from corvo.connections import accept_link
from corvo.link import Link, LinkClient, LinkRefused
from corvo.peer_security import PeerSecurity
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, RemovedNode
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Move
from corvo.protocol.ops.queues import Pause
from corvo.protocol.queries import GetQueue, QueueView
from corvo.shard.config import ShardConfig
from tests.shard.groups import (
    calling_from_elsewhere,
    group,
    group_in,
    leader_of,
    map_of,
    ports_of,
    started,
)
from tests.shard.processes import (
    Child,
    ask,
    calling,
    launch,
    put,
    result,
    status,
    submit,
    wait_until_leading,
)
from tests.support.links import on_sockets
from tests.support.ports import free_ports

JOB = NewJob(queue="mail")
dice = Random(7)


async def counts(client: LinkClient, queue: str = "mail") -> dict[str, int]:
    view = result(await ask(client, GetQueue(queue=queue)), QueueView)
    return {state: count for state, count in view.counts.items() if count}


@on_sockets
async def test_three_processes_elect_a_leader_and_go_on_without_it(tmp_path: Path) -> None:
    configs = group_in(tmp_path, map_of(free_ports(3)))

    async with group(configs) as children:
        first = await leader_of(configs)
        async with calling_from_elsewhere(first) as client:
            await put(client, JOB, JOB)
        await children[first.node - 1].kill()
        rest = [config for config in configs if config != first]
        second = await leader_of(rest)
        async with calling(second) as client:
            await put(client, JOB)
            seen = await counts(client)
        [third] = [config for config in rest if config != second]
        async with calling(third) as client:
            refused = await submit(client, Pause(queue="mail"))
            follower_sees = await counts(client)

    assert seen == {"pending": 3}
    assert isinstance(refused, wire.NotLeader)
    assert refused.leader == second.node
    assert follower_sees == {"pending": 3}


@on_sockets
async def test_a_follower_that_lags_behind_gets_a_snapshot(tmp_path: Path) -> None:
    configs = group_in(
        tmp_path,
        map_of(free_ports(3)),
        checkpoint_entries=20,
        keep_entries=2,
        segment_bytes=2_048,
    )

    async with group(configs) as children:
        leader = await leader_of(configs)
        [lagging, _] = [config for config in configs if config != leader]
        await children[lagging.node - 1].kill()
        async with calling(leader) as client:
            goal = (await status(client)).last_index + 10  # more than it has
            while (await status(client)).first_index <= goal:
                await put(client, JOB)
            told = await counts(client)
        async with started([lagging]) as [late]:
            async with calling(leader) as client:
                there = await status(client)
            async with calling(lagging) as client:
                here = await status(client)
                while here.applied < there.applied:
                    here = await status(client)
                follower_sees = await counts(client)
            assert await late.stop() == child_process.OK

    assert here.first_index > goal
    assert follower_sees == told


@on_sockets
async def test_ops_are_carried_out_while_a_snapshot_is_copied(tmp_path: Path) -> None:
    known = map_of(free_ports(3))
    configs = group_in(
        tmp_path,
        known,
        checkpoint_entries=20,
        keep_entries=2,
        segment_bytes=2_048,
        snapshot_bytes_per_second=1 << 20,
        election_ticks=60,  # this test is not about the loss of a leader on a busy machine
    )
    large = NewJob(queue="mail", payload=msgspec.Raw(msgspec.json.encode(dice.randbytes(50_000))))

    async with ports_of(configs), started(configs[:2]) as children:
        leader = await leader_of(configs[:2])
        # If another node were the first, it would hand over to it ten seconds later.
        others = [config.node for config in configs if config.node != leader.node]
        stays = placed(known, leader.node, *others)
        for config, child in zip(configs, children, strict=False):
            await update(child, Update(map=stays, sockets=config.sockets))
        async with calling(leader) as client:
            made = 0
            while (await status(client)).first_index <= 60:  # some 4 MB
                await put(client, large)
                made += 1
            meanwhile = 0
            async with started(configs[2:]), calling(configs[2]) as late:
                there = await status(client)
                while (await status(late)).applied < there.applied:
                    await put(client, JOB)
                    meanwhile += 1
                told = await counts(client)
                goal = (await status(client)).applied
                while (await status(late)).applied < goal:
                    assert (await status(client)).role == "leader"
                late_sees = await counts(late)

    assert meanwhile > 50
    assert told == late_sees == {"pending": made + meanwhile}


@on_sockets
async def test_a_replica_sends_nothing_to_a_node_that_answers_for_another(tmp_path: Path) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    ports = [*free_ports(1), listener.socket.getsockname()[1]]
    config = group_in(tmp_path, map_of(ports))[0]
    received: list[wire.Peer] = []

    child = await launch(config)
    async with listener:
        async with accepted(await listener.accept(), config, node=2) as link:
            received += await link.receive(wire.BETWEEN_REPLICAS)
        with pytest.raises(LinkRefused, match="node 3 answers at the address of node 2"):
            async with accepted(await listener.accept(), config, node=3):
                pytest.fail("it was dialled as node 2")
    await child.kill()

    assert received


@asynccontextmanager
async def accepted(
    stream: trio.SocketStream, config: ShardConfig, *, node: int
) -> AsyncIterator[Link]:
    """A link to a replica that has dialled, as the replica of that node."""
    replica = msgspec.structs.replace(config, node=node)
    hello = wire.make_hello(replica, wire.REPLICA, shard=config.shard)
    await answer_preamble(stream)
    async with accept_link(stream, hello, security=PeerSecurity()) as link:
        yield link


async def answer_preamble(stream: trio.SocketStream) -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += bytes(await stream.receive_some(1))
    assert line == b"corvo-peer 1 shard-0\n"
    await stream.send_all(b"ok\n")


@on_sockets
async def test_nodes_that_are_not_in_the_map_any_more_are_refused(tmp_path: Path) -> None:
    first = map_of(free_ports(1))
    gone = RemovedNode(number=2, name="crow", instance="", reason="its disk burned", removed_ns=1)
    known = msgspec.structs.replace(first, version=7, last_number=4, removed=(gone,))
    config = group_in(tmp_path, known, voters=[1])[0]
    refusals = []

    async with group([config]):
        for node in (2, 3):
            with pytest.raises(LinkRefused) as refused:
                async with calling_from_elsewhere(config, node=node):
                    pytest.fail("it belongs to the cluster no more")
            refusals.append(str(refused.value))
        async with calling_from_elsewhere(config, node=5) as client:  # the map may be older
            await status(client)

    assert "node 2 (crow) was removed from the cluster: its disk burned" in refusals[0]
    assert "node 3 is not in the cluster any more" in refusals[1]


async def update(child: Child, news: Update) -> None:
    """Tell a process what has changed, as its node does."""
    assert child.process.stdin is not None
    await child.process.stdin.send_all(msgspec.json.encode(news) + b"\n")


def placed(known: ClusterMap, *place: int) -> ClusterMap:
    """The next map, with another place of shard 0."""
    return msgspec.structs.replace(known, version=known.version + 1, places=(place,))


@on_sockets
async def test_a_shard_moves_to_other_nodes_with_all_it_has(tmp_path: Path) -> None:
    known = placed(map_of(free_ports(6)), 1, 2, 3)
    configs = group_in(tmp_path, known, voters=[1, 2, 3], checkpoint_entries=20, keep_entries=0)
    configs[3:] = [msgspec.structs.replace(it, voters=[], is_new_member=True) for it in configs[3:]]
    moved = placed(known, 4, 5, 6)

    async with ports_of(configs), started(configs) as children:
        leader = await leader_of(configs)
        async with calling(leader) as client:
            for _ in range(30):
                await put(client, JOB)
        for config, child in zip(configs, children, strict=True):
            await update(child, Update(map=moved, sockets=config.sockets))
        notices = [await next_notice(child) for child in children[:3]]
        last = await leader_of(configs[3:])
        async with calling(last) as client:
            seen = await status(client)
            told = await counts(client)

    assert notices == [Notice(unneeded=0)] * 3
    assert (seen.voters, seen.learners) == ((4, 5, 6), ())
    assert told == {"pending": 30}


@on_sockets
async def test_a_leader_sends_nothing_to_replicas_that_are_too_old_for_the_cluster(
    tmp_path: Path,
) -> None:
    known = map_of(free_ports(3))
    configs = group_in(tmp_path, known)
    raised = msgspec.structs.replace(known, version=1, op_version=wire.OP_VERSION + 1)

    async with group(configs) as children:
        leader = await leader_of(configs)
        child = children[configs.index(leader)]
        others = [config for config in configs if config is not leader]
        assert child.process.stdin is not None
        await update(child, Update(map=raised, sockets=leader.sockets))

        # Without links, its followers elect another one of them.
        with trio.fail_after(60):
            assert await leader_of(others) in others
        with pytest.raises(LinkRefused, match=f"needs {wire.OP_VERSION + 1} or later; upgrade"):
            async with calling_from_elsewhere(leader, node=others[0].node):
                pass


@on_sockets
async def test_effects_follow_the_leader_of_another_shard_from_node_to_node(tmp_path: Path) -> None:
    known = msgspec.structs.replace(
        map_of(free_ports(4), shards=2), version=1, places=((1,), (2, 3, 4))
    )
    [source, *_] = group_in(tmp_path, known, voters=[1])
    targets = group_in(tmp_path, known, shard=1, voters=[2, 3, 4])[1:]
    near, far = (queue_of(shard) for shard in (0, 1))

    async with group([source, *targets]) as children, calling(source) as client:
        await wait_until_leading(client)
        first = await leader_of(targets)
        await move_to(client, near, far, first, count=1)
        await children[first.node - 1].kill()
        rest = [config for config in targets if config != first]
        await move_to(client, near, far, await leader_of(rest), count=2)


async def move_to(
    client: LinkClient, near: str, far: str, target: ShardConfig, *, count: int
) -> None:
    """Move a job into another shard, and wait until that one has so many."""
    [job_id] = await put(client, NewJob(queue=near))
    answer = await submit(client, Move(job_ids=[job_id], queue=far))
    assert isinstance(answer, wire.Reply)
    assert not answer.code
    async with calling(target) as other:
        while (await counts(other, far)).get("pending") != count:
            assert (await status(other)).role == "leader"


def queue_of(shard: int) -> str:
    """A queue that lives in one of two shards."""
    return next(name for name in ("a", "b", "c") if shard_of_queue(name, 2) == shard)


async def next_notice(child: Child) -> Notice:
    """What a process tells its node next: it may say the same again before it is read."""
    assert child.process.stdout is not None
    lines = b""
    while b"\n" not in lines:
        data = await child.process.stdout.receive_some()
        assert data, await child.last_words()
        lines += data
    return msgspec.json.decode(lines.partition(b"\n")[0], type=Notice)
