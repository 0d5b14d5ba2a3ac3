"""A data directory of this release, stored for the tests of all later releases.

`python -m tests.node.storing` writes `tests/node/stored/VERSION.tar.xz`: the directory of a stopped
node with jobs in all states that time does not change, and `told.json`, what it answered about
them. An archive is added with each release, and never changed.
"""

import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import trio

from corvo import __version__
from tests.node.http import Client
from tests.node.nodes import House, house_in

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

STORED: Final = Path(__file__).parent / "stored"
BYTES_MAX: Final = 300_000
_FAR: Final = "2099-01-01T00:00:00Z"
_STEPS: Final = {"steps": [{"queue": "pages"}, {"queue": "pictures"}]}
_MADE: Final[tuple[Mapping[str, object], ...]] = (
    *({"queue": "mail", "id": f"m{number}", "payload": number} for number in range(12)),
    {"queue": "mail", "id": "urgent", "priority": "high", "tags": {"team": "a"}},
    {"queue": "later", "id": "far", "scheduled_at": _FAR, "unique_key": "one"},
    {"queue": "pages", "id": "chained", "chain": _STEPS, "payload": {"text": "Grüße"}},
    {"queue": "reports", "id": "waiting", "depends_on": ["mail~m11", "later~far"]},
    {"queue": "once", "id": "fails", "max_retries": 0},
)
_SETTINGS: Final[tuple[tuple[str, Json], ...]] = (
    ("/api/v1/queues/mail/concurrency", {"max": 50}),
    ("/api/v1/queues/later/throttle", {"rate": 10, "window": "1m"}),
    ("/api/v1/queues/reports/pause", {}),
    ("/api/v1/jobs/mail~m8/cancel", {}),
    ("/api/v1/jobs/mail~m9/hold", {"reason": "look at it"}),
    ("/api/v1/jobs/mail~m10/move", {"queue": "moved"}),
)
_LISTS: Final = ("/api/v1/batches", "/api/v1/schedules")


class Job(msgspec.Struct):
    job_id: str
    lease_token: int


async def fill(client: Client) -> list[str]:
    """Create what is stored; the paths to ask for it."""

    async def post(path: str, body: object) -> bytes:
        answer = await client.ask("POST", path, msgspec.json.encode(body))
        assert answer.status < 300, (path, answer)
        assert b'"warnings"' not in answer.body, (path, answer)
        return answer.body

    async def fetch(queue: str) -> Job:
        body = await post("/api/v1/fetch", {"queues": [queue], "worker_id": "w"})
        return msgspec.json.decode(body, type=Job)

    for job in _MADE:
        await post("/api/v1/enqueue", job)
    batch = {"callback_queue": "batch-done"}
    rows: list[Mapping[str, object]] = [
        {"queue": "rows", "id": f"r{number}"} for number in range(3)
    ]
    await post("/api/v1/enqueue/batch", {"jobs": rows, "batch": batch})
    schedule = {"name": "nightly", "cron": "0 3 * * *", "queue": "nightly", "timezone": "UTC"}
    await post("/api/v1/schedules", schedule)
    await post("/api/v1/schedules/nightly~nightly/pause", {})
    for queue in ("mail", "mail", "mail", "pages", "rows"):
        held = await fetch(queue)
        report = {"lease_token": held.lease_token, "result": {"by": "w"}}
        await post(f"/api/v1/ack/{held.job_id}", report)
    held = await fetch("once")
    await post(f"/api/v1/fail/{held.job_id}", {"lease_token": held.lease_token, "error": "no"})
    for path, body in _SETTINGS:
        await post(path, body)
    jobs = [f"/api/v1/jobs/{job['queue']}~{job['id']}" for job in (*_MADE, *rows)]
    queues = sorted({f"/api/v1/queues/{job['queue']}" for job in _MADE})
    return [*jobs, *queues, *_LISTS]


async def answers(house: House, paths: list[str]) -> dict[str, Json]:
    """What a node answers now."""
    client = Client(house.address)
    found: dict[str, Json] = {}
    for path in paths:
        answer = await client.ask("GET", path)
        assert answer.status == 200, (path, answer)
        found[path] = msgspec.json.decode(answer.body)
    client.close()
    return found


def common(one: Json, other: Json) -> Json:
    """The part of one answer that is in the other as well: a later release may add fields."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: common(one[key], other[key])
            for key in one
            if key in other and (one[key] == other[key] or isinstance(one[key], dict | list))
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [common(each, again) for each, again in zip(one, other, strict=True)]
    return other


async def stored_house(directory: Path) -> House:
    """A node of the directory. Finished jobs stay for a hundred years."""
    return await house_in(directory, auth="off", retention="876000h")


async def store(directory: Path) -> Path:
    """Write the archive; its path."""
    house = await stored_house(directory)
    async with house.open() as node:
        client = Client(house.address)
        paths = await fill(client)
        client.close()
        before = await answers(house, paths)
        assert await node.end() == 0
    async with house.open() as node:
        again = await answers(house, paths)
        assert await node.end() == 0
    # What differs after a restart, such as rates, is no promise.
    told = {path: common(before[path], again[path]) for path in paths}
    (directory / "told.json").write_bytes(msgspec.json.format(msgspec.json.encode(told)))
    STORED.mkdir(exist_ok=True)
    archive = STORED / f"{__version__}.tar.xz"
    with tarfile.open(archive, "x:xz") as packed:
        packed.add(directory / "told.json", "told.json")
        packed.add(house.data, "data")
    assert archive.stat().st_size < BYTES_MAX
    return archive


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="storing-") as directory:
        print(trio.run(store, Path(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
