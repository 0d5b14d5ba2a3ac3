"""A node is away and catches up, and the comparison of replicas and mirrors finds a difference."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cluster import away
from tests.cluster.comparing import compare
from tests.cluster.nodes import as_initial, cluster_of, members_in
from tests.support.links import on_sockets

JOBS = 5


@on_sockets
async def test_a_node_that_was_away_has_all_again(tmp_path: Path) -> None:
    seen = await away.run(tmp_path, minutes=0.02, calm_s=0.5)

    assert seen.compared.differences == []
    assert seen.compared.replicas == 3 * away.SHARDS
    assert seen.compared.documents > seen.jobs > 0
    assert [each.shard for each in seen.caught_up] == [*range(away.SHARDS)]
    assert sum(each.lacked for each in seen.caught_up) > 0


@on_sockets
async def test_a_row_that_a_mirror_has_wrong_is_found(tmp_path: Path) -> None:
    [member] = members = await members_in(tmp_path, ["a"], shards="1")
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        for number in range(JOBS):
            job = {"queue": "mail", "payload": {"number": number}}
            await cluster.until(member, "POST", "/api/v1/enqueue", job, key=f"job-{number}")
        equal = await compare(members, 1)
        with (
            closing(sqlite3.connect(member.data / "mirror" / "mirror.db")) as connection,
            connection,
        ):
            connection.execute(
                "UPDATE jobs SET priority = 9 WHERE row = (SELECT min(row) FROM jobs)"
            )
        other = await compare(members, 1)

    assert (equal.replicas, equal.differences) == (1, [])
    assert equal.rows >= JOBS
    [difference] = other.differences
    assert difference.startswith(f"mirror of a: jobs: {JOBS} rows, and {JOBS} are expected")
