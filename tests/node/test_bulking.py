"""A bulk operation goes on where its router was killed, and does nothing twice."""

from pathlib import Path

from tests.node import bulking
from tests.support.links import on_sockets


@on_sockets
async def test_a_bulk_whose_router_is_killed_does_every_job_once_and_counts_it(
    tmp_path: Path,
) -> None:
    seen = await bulking.run(tmp_path, jobs=3_000, kills=1)

    assert seen.wrongs == []
    assert seen.jobs == 6_000
