"""A node whose data directory was changed while it was stopped, in ways that no crash leaves."""

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.placement import shard_of_queue
from tests.node.crowd import Made
from tests.node.http import Answer, Client
from tests.node.nodes import OK, House, house_in
from tests.support.links import on_sockets
from tests.support.nodes import Running

SHARDS: Final = 3
QUEUES: Final = {shard_of_queue(f"q{n}", SHARDS): f"q{n}" for n in range(20)}
"""A queue of each shard."""


async def ask(house: House, method: str, path: str, body: object = None) -> Answer:
    with closing(Client(house.address)) as client:
        data = msgspec.json.encode(body) if body is not None else b""
        return await client.ask(method, path, data)


async def fill(house: House, count: int = 5) -> None:
    """Some jobs in a queue of each shard."""
    for queue in QUEUES.values():
        jobs = [{"queue": queue, "payload": {}}] * count
        answer = await ask(house, "POST", "/api/v1/enqueue/batch", {"jobs": jobs})
        assert answer.status < 300, answer


async def house_with_jobs(directory: Path) -> House:
    house = await house_in(directory, shards=str(SHARDS), mirror__enabled="off")
    async with house.open():
        await fill(house)
    return house


async def is_served(house: House, shard: int) -> bool:
    answer = await ask(house, "GET", f"/api/v1/queues/{QUEUES[shard]}")
    assert answer.status in {200, 404, 503}, answer
    return answer.status != 503


def refusal(node: Running) -> str:
    """The one line that says why the shard stays down."""
    [line] = [line for line in node.texts if "accept" in line or "belongs" in line]
    return line


def remove(data: Path) -> None:
    shutil.rmtree(data / "shard-1")


def empty(data: Path) -> None:
    shutil.rmtree(data / "shard-1")
    (data / "shard-1").mkdir()


def swap(data: Path) -> None:
    (data / "shard-1").rename(data / "aside")
    (data / "shard-2").rename(data / "shard-1")
    (data / "aside").rename(data / "shard-2")


@on_sockets
@pytest.mark.parametrize("change", [remove, empty])
async def test_a_shard_without_its_directory_stays_down(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    house = await house_with_jobs(tmp_path)
    change(house.data)

    async with house.open() as node:
        assert node.find("process.held", name="shard-1")

        assert "shard-1" in refusal(node)
        assert "--accept-loss shard-1:" in refusal(node)
        assert not await is_served(house, 1)
        assert await is_served(house, 0)
        assert await node.end() == OK


@on_sockets
async def test_two_shards_in_each_others_places_stay_down(tmp_path: Path) -> None:
    house = await house_with_jobs(tmp_path)
    swap(house.data)

    async with house.open() as node:
        held = {one["name"] for one in node.find("process.held")}

        assert held == {"shard-1", "shard-2"}
        assert any("shard-1: " in line and "belongs to shard-2" in line for line in node.texts)
        assert await is_served(house, 0)


@on_sockets
async def test_a_node_that_is_restored_as_a_whole_starts(tmp_path: Path) -> None:
    house = await house_with_jobs(tmp_path)
    shutil.copytree(house.data, tmp_path / "backup", ignore=shutil.ignore_patterns("run"))
    async with house.open():
        await fill(house)
    shutil.rmtree(house.data)
    (tmp_path / "backup").rename(house.data)

    async with house.open() as node:
        assert not node.find("process.held")
        assert [await is_served(house, shard) for shard in range(SHARDS)] == [True] * SHARDS


@on_sockets
async def test_an_accepted_loss_lets_the_shard_start(tmp_path: Path) -> None:
    house = await house_with_jobs(tmp_path)
    remove(house.data)
    async with house.open() as node:
        [accepted] = re.findall(r"shard-1:\d+", refusal(node))

    house.settings["accept_loss"] = accepted
    async with house.open():
        assert await is_served(house, 1)
    del house.settings["accept_loss"]
    async with house.open():
        assert await is_served(house, 1)


async def move(house: House, source: int, target: int) -> None:
    """Have a job moved to another shard, and wait until it is there."""
    body = {"queue": QUEUES[source], "payload": {}}
    made = (await ask(house, "POST", "/api/v1/enqueue", body)).read(Made)
    answer = await ask(house, "POST", f"/api/v1/jobs/{made.job_id}/move", {"queue": QUEUES[target]})
    assert answer.status == 200, answer
    answer = await ask(house, "GET", f"/api/v1/jobs/{made.job_id}")
    while answer.status != 200:
        assert answer.status == 503, answer
        answer = await ask(house, "GET", f"/api/v1/jobs/{made.job_id}")


async def move_about(house: House, count: int) -> None:
    """Have jobs moved from one shard to another, and from that one back."""
    for _ in range(count):
        await move(house, 0, 1)
        await move(house, 1, 0)


def forgotten(node: Running) -> set[tuple[object, ...]]:
    """By which shard effects of which one on which one were forgotten, and how many."""
    names = ("by", "of", "to", "count")
    return {tuple(one[name] for name in names) for one in node.find("effects.forgotten")}


BOTH_WAYS: Final = {("shard-1", "shard-1", "shard-0", 3), ("shard-1", "shard-0", "shard-1", 3)}


@on_sockets
async def test_effects_travel_on_after_an_accepted_loss(tmp_path: Path) -> None:
    house = await house_with_jobs(tmp_path)
    async with house.open() as node:
        await move_about(house, 3)
        assert await node.end() == OK
    remove(house.data)
    async with house.open() as node:
        [accepted] = re.findall(r"shard-1:\d+", refusal(node))

    house.settings["accept_loss"] = accepted
    async with house.open() as node:
        await move_about(house, 1)
        await node.hear("effects.forgotten", 2)

        assert forgotten(node) == BOTH_WAYS
        assert await node.end() == OK


@on_sockets
async def test_effects_travel_on_after_a_loss_that_is_not_recognised(tmp_path: Path) -> None:
    """The note about the shard is as old as the copy."""
    house = await house_with_jobs(tmp_path)
    parts = ("shard-1", "known")
    for part in parts:
        shutil.copytree(house.data / part, tmp_path / "backup" / part)
    async with house.open() as node:
        await move_about(house, 3)
        assert await node.end() == OK
    shutil.rmtree(house.data / "shard-1")
    (tmp_path / "backup" / "shard-1").rename(house.data / "shard-1")
    shutil.copy(tmp_path / "backup" / "known" / "shard-1.json", house.data / "known")

    async with house.open() as node:
        await move_about(house, 1)
        await node.hear("effects.forgotten", 2)

        assert forgotten(node) == BOTH_WAYS
        assert await node.end() == OK
