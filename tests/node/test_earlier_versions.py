"""A data directory that an earlier version wrote, opened by a node.

`directory_version_1.tar.xz` has a directory of two shards whose processes were killed, and
`told.json`: what that version answered about it. Its jobs are in every state that time alone does
not change; there are a chain, a batch, agents, moved and deleted jobs, API keys, settings of queues
and a bulk operation. `directory_version_1_effects.tar.xz` has jobs and steps of chains on their way
from one shard to the other. Archives are added, and never changed.
"""

import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.mirror.follow.writing import BOOT_ID
from tests.node.http import Client
from tests.node.nodes import House, house_in
from tests.router.feeds import Ear
from tests.support.links import on_sockets
from tests.support.nodes import Running

ARCHIVE: Final = Path(__file__).parent / "directory_version_1.tar.xz"
WITH_EFFECTS: Final = Path(__file__).parent / "directory_version_1_effects.tar.xz"


class Told(msgspec.Struct):
    """What the version that wrote the directory answered."""

    last_event_id: str
    events: list[tuple[int, int, int, str, str]]
    """Those after that id: shard, entry, number, type and job."""
    answers: dict[str, tuple[int, object]]
    """By path, status and body; of a refusal only the code."""
    found: list[str]
    """The ids of all jobs."""


class Event(msgspec.Struct):
    shard: int
    seq: int
    number: int
    type: str
    job_id: str = ""


class Named(msgspec.Struct):
    id: str


class Found(msgspec.Struct):
    jobs: list[Named]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """The directory is unpacked as `tmp_path / "data"`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return msgspec.json.decode((tmp_path / "told.json").read_bytes(), type=Told)


def mark_boot(directory: Path, boot_id: str) -> None:
    """Let the directory have been written in this boot of the machine."""
    marks = list(directory.rglob("running"))
    assert len(marks) == 3, "two shards and a mirror"
    for mark in marks:
        mark.write_text(boot_id)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[House, Running]]:
    house = await house_in(directory, auth="off", retention="876000h")
    async with house.open() as node:
        yield house, node
        assert await node.end() == 0


async def answers(house: House, told: Told) -> dict[str, tuple[int, object]]:
    client = Client(house.address)
    found: dict[str, tuple[int, object]] = {}
    for path in told.answers:
        answer = await client.ask("GET", path)
        body = msgspec.json.decode(answer.body)
        found[path] = answer.status, body if answer.status == 200 else {"code": body["code"]}
    client.close()
    return found


async def events(house: House, told: Told) -> list[tuple[int, int, int, str, str]]:
    """The events after the id of then, as far as the logs of then go.

    Later entries are of this node: jobs that have become due since are promoted at once.
    """
    last = {shard: max(seq for at, seq, *_ in told.events if at == shard) for shard in (0, 1)}
    ear = Ear(house.address[1])
    found: list[tuple[int, int, int, str, str]] = []
    await ear.ask(last_id=told.last_event_id)
    while len(found) < len(told.events):
        await ear.read()
        for event in ear.source.events:
            one = msgspec.json.decode(event.data, type=Event)
            if one.seq <= last[one.shard]:
                found.append((one.shard, one.seq, one.number, one.type, one.job_id))
        ear.source.events.clear()
    ear.close()
    return found


async def search(house: House, count: int) -> list[str]:
    """The ids of all jobs, once the mirror has so many."""
    client = Client(house.address)
    while True:
        answer = await client.ask("GET", "/api/v1/jobs?limit=1000")
        if answer.status == 200:
            found = sorted(job.id for job in answer.read(Found).jobs)
            if len(found) >= count:
                client.close()
                return found


def shown_now(answer: tuple[int, object]) -> tuple[int, object]:
    """An answer of then with the fields that are made of the same documents since."""
    status, body = answer
    if not isinstance(body, dict):
        return answer
    if body.get("state") == "dead":
        return status, {**body, "dlq_reason": "no_attempts_left"}
    if body.get("state") != "cancelled":
        return answer
    text = "cancelled by anonymous: no"
    reason = {
        "id": 0,
        "job_id": body["id"],
        "attempt": body["attempt"],
        "error": text,
        "error_class": "cancelled",
        "created_at": body["finished_at"],
    }
    return status, {**body, "last_error": text, "errors": [reason]}


@pytest.mark.parametrize("crash", ["process", "machine"])
@on_sockets
async def test_a_directory_of_an_earlier_version_is_opened_as_it_was(
    told: Told, tmp_path: Path, crash: str
) -> None:
    this_boot = BOOT_ID.read_text().strip()
    mark_boot(tmp_path / "data", this_boot if crash == "process" else "another boot")

    async with opened(tmp_path) as (house, node):
        shown = {path: shown_now(answer) for path, answer in told.answers.items()}
        assert await answers(house, told) == shown
        assert sorted(await events(house, told)) == sorted(told.events)
        assert await search(house, len(told.found)) == told.found

    assert len(node.find("mirror.made_anew")) == (0 if crash == "process" else 1)


class OnTheirWay(msgspec.Struct):
    """What was on its way when the processes were killed."""

    source: str
    """The queue that the jobs were moved from, whose shard had the outbox."""
    target: str
    moved: list[str]
    steps: int
    """Chains whose next step was on its way."""


class Counted(msgspec.Struct):
    """Jobs of a queue. One was fetched when the processes were killed, and its lease goes on."""

    pending: int
    active: int


@pytest.mark.parametrize("crash", ["process", "machine"])
@on_sockets
async def test_what_was_on_its_way_in_an_earlier_version_arrives_once(
    tmp_path: Path, crash: str
) -> None:
    with tarfile.open(WITH_EFFECTS) as archive:
        archive.extractall(tmp_path, filter="data")
    told = msgspec.json.decode((tmp_path / "told.json").read_bytes(), type=OnTheirWay)
    mark_boot(tmp_path / "data", BOOT_ID.read_text().strip() if crash == "process" else "another")
    due = len(told.moved) + told.steps

    for _ in range(2):
        async with opened(tmp_path) as (house, _):
            client = Client(house.address)
            there = 0
            while there < due:
                answer = await client.ask("GET", f"/api/v1/queues/{told.target}")
                if answer.status == 200:
                    counted = answer.read(Counted)
                    there = counted.pending + counted.active
            assert there == due
            for job_id in told.moved:
                answer = await client.ask("GET", f"/api/v1/jobs/{job_id}")
                assert answer.status == 200
                assert msgspec.json.decode(answer.body)["queue"] == told.target
            client.close()
