"""Events of a whole node, whose processes are killed while clients listen and are cut off."""

from pathlib import Path

from tests.node import listening
from tests.support.links import on_sockets


@on_sockets
async def test_clients_that_are_cut_off_are_told_everything_once_and_in_order(
    tmp_path: Path,
) -> None:
    seen = await listening.run(tmp_path, reconnects=3)

    assert seen.wrongs == []
    assert min(seen.reconnects) >= 3
    assert min(seen.counts) > 0
    assert seen.kills > 0
