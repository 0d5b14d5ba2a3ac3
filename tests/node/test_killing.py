"""Each process of a node is killed under load, and no client is any the worse for it."""

import signal
from pathlib import Path

import trio

from tests.node import killing, stopping
from tests.node.nodes import house_in
from tests.support.links import on_sockets


@on_sockets
async def test_a_node_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seen = await killing.run(tmp_path)

    assert seen.wrongs == []
    assert [kill.victim for kill in seen.kills] == ["router", "shard-0", "shard-1", killing.NODE]


@on_sockets
async def test_a_router_whose_node_was_killed_waits_for_nobody(tmp_path: Path) -> None:
    house = await house_in(tmp_path, drain_ms="100s", limits__send_ms="100s")
    async with house.open() as node:
        stalled = await stopping.stall(house.address)

        with trio.fail_after(50):  # and not as long as it would give its clients otherwise
            code = await node.end(signal.SIGKILL)

        stalled.close()
    assert code == -signal.SIGKILL
