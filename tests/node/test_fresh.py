"""A search finds what its client did just before, although the mirror follows the shards."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.node.fresh import Searcher
from tests.node.http import Client
from tests.node.nodes import house_in
from tests.support.links import on_sockets

_READS_MIN: Final = 50


@pytest.mark.parametrize("shards", [1, 4])
@on_sockets
async def test_a_search_without_any_header_finds_what_its_client_just_did(
    tmp_path: Path, shards: int
) -> None:
    house = await house_in(
        tmp_path, shards=str(shards), limits__search_wait_ms="1m", limits__search_ms_max="1m"
    )

    async with house.open():
        with closing(Client(house.address)) as client:
            searcher = Searcher(client, Random(shards))
            await searcher.run()

    assert searcher.behind == 0


@on_sockets
async def test_a_search_that_could_not_wait_so_long_says_so(tmp_path: Path) -> None:
    house = await house_in(tmp_path, shards="4", limits__search_wait_ms="1ms")

    async with house.open():
        with closing(Client(house.address)) as client:
            searcher = Searcher(client, Random(3))
            await searcher.run()

    assert searcher.reads > _READS_MIN
