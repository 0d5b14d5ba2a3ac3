"""A cluster of three is copied under load, and comes back to one with another number of shards."""

from pathlib import Path

from tests.cluster import backup
from tests.support.links import on_sockets


@on_sockets
async def test_a_backup_under_load_comes_back_to_another_number_of_shards(tmp_path: Path) -> None:
    seen = await backup.run(
        tmp_path, jobs=1_200, calm_s=0.5, shard__checkpoint_bytes="100KiB", shard__keep_entries="1"
    )

    assert seen.differing == []
    assert seen.back.jobs >= 1_200
    assert seen.back.existing == 0
    assert seen.times["backup"].taken
