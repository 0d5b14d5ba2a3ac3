"""A full disk is a pause: it is said so, reads go on, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.node import filling
from tests.node.crowd import Made
from tests.node.http import Client
from tests.node.nodes import OK, REAL, house_in
from tests.support.links import on_sockets
from tests.support.nodes import running


@pytest.fixture(name="disk")
def a_small_disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with filling.small_disk(tmp_path / "disk") as disk:
            yield disk
    except filling.NoMount as error:
        pytest.skip(str(error))


@on_sockets
async def test_a_full_disk_is_a_pause(disk: Path) -> None:
    house = await house_in(disk, **filling.SETTINGS)

    seen = await filling.Filling(house).run(rounds=3)

    assert seen.wrongs == []
    assert seen.refusals == ["DISK_FULL not_applied True"] * 4
    assert seen.reads == {200}
    assert len(seen.ends) == 2, seen.ends  # one was killed, and said what it waits for


@on_sockets
async def test_a_node_that_starts_on_a_full_disk_waits_for_room(disk: Path) -> None:
    house = await house_in(disk, **filling.SETTINGS)
    async with house.open() as node:
        client = Client(house.address)
        made = await client.ask("POST", "/api/v1/enqueue", b'{"queue": "mail"}')
        client.close()
        await node.end()
    filler = filling.fill(disk)

    async with running(house.settings, REAL) as node:
        await node.read("waiting for it")
        filler.unlink()
        await node.hear("node.ready")
        found = await client.ask("GET", f"/api/v1/jobs/{made.read(Made).job_id}")
        client.close()
        code = await node.end()

    assert found.status == 200
    assert node.find("process.ended") == []
    assert code == OK


@on_sockets
async def test_a_node_that_waits_for_room_can_be_stopped(disk: Path) -> None:
    house = await house_in(disk, **filling.SETTINGS)
    async with house.open() as node:
        await node.end()
    filling.fill(disk)

    async with running(house.settings, REAL) as node:
        await node.read("waiting for it")
        with trio.fail_after(30):
            code = await node.end()

    assert code == OK
