"""Clients who mean no good do not keep the others from their work."""

from pathlib import Path

import pytest

from tests.node import flooding
from tests.node.flood import KINDS
from tests.node.http import Client
from tests.node.nodes import OK, house_in
from tests.support.links import on_sockets


@pytest.mark.parametrize("kind", KINDS)
@on_sockets
async def test_a_flood_harms_nobody(tmp_path: Path, kind: str) -> None:
    seen = await flooding.run(tmp_path, kind, count=500, seconds=0, questions=50)

    assert seen.refused == {}
    assert (len(seen.kept_s), len(seen.fresh_s)) == (50, 50)


@on_sockets
async def test_beyond_the_bound_the_longest_idle_client_makes_room(tmp_path: Path) -> None:
    house = await house_in(tmp_path, limits__connections_max="5")
    async with house.open() as node:
        clients = [Client(house.address) for _ in range(7)]

        statuses = [(await client.ask("GET", "/livez")).status for client in clients]

        ends = [await (await client.connect()).receive_some(1) for client in clients[:2]]
        for client in clients:
            client.close()
        code = await node.end()

    assert statuses == [200] * 7
    assert ends == [b"", b""]
    assert code == OK
