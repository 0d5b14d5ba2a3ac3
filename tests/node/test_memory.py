"""The run that shows the memory of each process does the work that it says."""

from pathlib import Path

from tests.node import memory
from tests.support.links import on_sockets


@on_sockets
async def test_each_process_and_the_disk_are_looked_at(tmp_path: Path) -> None:
    seen = await memory.run(tmp_path, seconds=2, every_s=0.5)

    assert seen.jobs > 0
    assert seen.memory.keys() == {"node", "router", "mirror", *(f"shard-{n}" for n in range(4))}
    for looks in seen.memory.values():
        assert all(look.rss >= look.pss >= look.own > 0 for look in looks)
    assert seen.files[-1].mirror > 0
