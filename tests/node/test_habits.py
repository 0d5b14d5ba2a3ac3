"""Programs written with the libraries of the original meet nothing that they cannot bear."""

from pathlib import Path

import pytest

from tests.node import habits
from tests.node.nodes import house_in
from tests.support.links import on_sockets


@pytest.mark.parametrize("shards", ["1", "4"])
@on_sockets
async def test_each_library_does_all_that_it_can(tmp_path: Path, shards: str) -> None:
    house = await house_in(
        tmp_path, shards=shards, limits__search_wait_ms="1m", limits__search_ms_max="1m"
    )

    async with house.open():
        statuses = await habits.use_all(house.address)

    assert statuses.keys() <= {200, 201, 202, 204}
