"""An empty node replaces a lost one whose jobs are only in snapshots, while jobs are put in."""

from pathlib import Path

from tests.cluster import snapshot
from tests.support.links import on_sockets


@on_sockets
async def test_an_empty_node_gets_snapshots_under_load(tmp_path: Path) -> None:
    seen = await snapshot.run(
        tmp_path,
        jobs=4_000,
        calm_s=0.5,
        shard__checkpoint_bytes="200KiB",
        shard__keep_entries="1",
    )

    assert seen.install_s > 0
    assert {"before", "during", "after"} <= seen.times.keys()
    assert all(seen.times[name].taken for name in ("before", "during", "after"))
    assert {name.split()[-1] for name in seen.rss_mib} == {"a", "b", "d"}
