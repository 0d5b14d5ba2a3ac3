"""Each process of a node is killed under load, and no client is any the worse for it."""

from pathlib import Path

from tests.node import killing
from tests.support.links import on_sockets


@on_sockets
async def test_a_node_whose_processes_are_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seen = await killing.run(tmp_path)

    assert seen.wrongs == []
    assert [kill.victim for kill in seen.kills] == ["router", "shard-0", "shard-1", killing.NODE]
