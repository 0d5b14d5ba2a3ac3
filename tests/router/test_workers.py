"""Workers over HTTP: how they are, by what they ask for here and what the mirror says of them."""

from functools import partial
from typing import Final

import msgspec
import trio

from corvo.model import ApiKey
from corvo.protocol.questions import Beat, Beats, GetBeats
from corvo.router.api import Api
from corvo.router.worker_health import WorkerHealth
from corvo.scopes import EVERYTHING
from tests.router.mirrors import AS_OF, ScriptedMirror, give
from tests.router.nests import JSON, Nest, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
S: Final = 1_000_000_000
WORK: Final = {"worker_id": "w", "hostname": "rook", "wait_seconds": 0}


async def workers(nest: Nest, key: str = "") -> list[JSON]:
    return await nest.read(list[JSON], "/api/v1/workers", x_api_key=key)


async def fetch(nest: Nest, *queues: str, wait_s: float = 0) -> None:
    body = {**WORK, "queues": list(queues), "wait_seconds": wait_s}
    answer = await nest.ask("POST", "/api/v1/fetch", body)
    assert answer.status in {200, 204}, answer.body


def holds(mirror: ScriptedMirror, active: int, *, asked_ns: int, beat_ns: int) -> None:
    """Let the mirror say that the worker has jobs, since when, and when it renewed a lease."""
    beat = Beat(
        worker_id="w",
        hostname="rook",
        active=active,
        beat_ns=beat_ns,
        started_ns=asked_ns,
        queues=(A,),
    )
    mirror.answers[GetBeats] = Beats([beat] if active else [], as_of=AS_OF)


def ago(api: Api, seconds: float) -> int:
    """Let the worker have asked for work so long ago, and this router have been there before."""
    api.worker_health = WorkerHealth(wait_s_max=60, began_ns=0)
    [(_, sighting)] = api.sightings.all(0)
    sighting.asked_ns -= round(seconds * S)
    return sighting.asked_ns


def test_a_worker_that_has_found_nothing_yet_is_there() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)

        await fetch(nest, A, B)

        [row] = await workers(nest)
        assert (row["id"], row["hostname"], row["state"]) == ("w", "rook", "alive")
        assert row["queue_names"] == sorted([A, B])
        assert row["active"] == 0
        assert "waiting" not in row

    run(main)


def test_a_worker_whose_fetch_waits_is_shown_as_waiting() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(fetch, nest, A, wait_s=30))
            await trio.testing.wait_all_tasks_blocked()

            [waiting] = await workers(nest)
            nursery.cancel_scope.cancel()

        [left] = await workers(nest)
        assert waiting["waiting"] is True
        assert "waiting" not in left

    run(main)


def test_a_fetch_that_is_refused_makes_nobody_known() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)

        answer = await nest.ask("POST", "/api/v1/fetch", {**WORK, "queues": ["\x01"]})

        assert answer.status == 400
        assert await workers(nest) == []

    run(main)


def test_a_worker_that_beats_and_does_not_ask_is_not_fetching_unless_it_is_busy() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        nest.put(A)
        nest.put(A)
        await fetch(nest, A)
        await fetch(nest, A)
        asked_ns = ago(nest.api, 200)
        now_ns = asked_ns + 200 * S

        holds(mirror, 2, asked_ns=asked_ns, beat_ns=now_ns)
        [busy] = await workers(nest)
        holds(mirror, 1, asked_ns=asked_ns, beat_ns=now_ns)
        [idle] = await workers(nest)
        summed = await nest.read(JSON, "/api/v1/summary")
        mirror.is_away = True
        [unsure] = await workers(nest)
        mirror.is_away = False
        await fetch(nest, A)
        [awake] = await workers(nest)

        assert [row["state"] for row in (busy, idle, awake)] == ["alive", "not_fetching", "alive"]
        assert (busy["active"], idle["active"]) == (2, 1)
        assert summed["workers"] == {"alive": 0, "not_fetching": 1}
        assert (unsure["state"], "active" in unsure) == ("alive", False)

    run(main)


def test_a_heartbeat_without_jobs_says_that_a_worker_is_there() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)
        await fetch(nest, A)
        ago(nest.api, 200)

        await nest.ask("POST", "/api/v1/heartbeat", {"jobs": {}, "worker_id": "w"})
        await nest.ask("POST", "/api/v1/heartbeat", {"jobs": {}, "worker_id": "stranger"})

        assert [(row["id"], row["state"]) for row in await workers(nest)] == [("w", "not_fetching")]

    run(main)


def test_while_the_mirror_makes_a_full_pass_every_worker_with_jobs_is_alive() -> None:
    async def main() -> None:
        nest = Nest()
        mirror = give(nest.api)
        await fetch(nest, A)
        asked_ns = ago(nest.api, 200)
        await nest.ask("POST", "/api/v1/heartbeat", {"jobs": {}, "worker_id": "w"})
        place = msgspec.structs.replace(AS_OF["s0"], is_whole=False)
        mirror.answers[GetBeats] = Beats([], as_of={"s0": place})

        [row] = await workers(nest)

        assert asked_ns
        assert row["state"] == "alive"

    run(main)


def test_a_key_for_some_queues_sees_workers_of_those_and_not_how_many_jobs_they_have() -> None:
    async def main() -> None:
        scoped = ApiKey(key_hash="", name="scoped", role="readonly", queue_scope=(A,))
        free = ApiKey(key_hash="", name="free", role="worker")
        nest = Nest(keys={"s": scoped, "f": free})
        mirror = give(nest.api)
        for queues, worker in (([A, B], "both"), ([B], "other")):
            body = {**WORK, "queues": queues, "worker_id": worker}
            await nest.ask("POST", "/api/v1/fetch", body, x_api_key="f")

        [row] = await workers(nest, "s")

        assert (row["id"], row["queue_names"], "active" in row) == ("both", [A], False)
        assert mirror.last(GetBeats).scope == EVERYTHING
        assert len(await workers(nest, "f")) == 2

    run(main)


def test_workers_of_the_servers_own_queues_are_not_shown() -> None:
    async def main() -> None:
        nest = Nest()
        give(nest.api)
        sighting = nest.api.sightings.asks("own", "", ["_corvo.bulk"], 1)

        assert sighting is not None
        assert await workers(nest) == []

    run(main)
