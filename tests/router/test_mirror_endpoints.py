"""What a node says of its mirror: to admins, at a glance, and in its metrics; and a real one."""

import http.client
import os
import signal
import time
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.protocol.questions import Beats, GetBeats, GetStanding, ShardStanding, Standing
from corvo.router.node.health import ClusterStatus, MirrorBody, MirrorGlance, Ready, Runtime
from corvo.router.search.bodies import FoundBody
from tests.cluster.nodes import PATIENCE_S
from tests.node.nodes import House, house_in, kill, pid_of
from tests.router.mirrors import ScriptedMirror
from tests.router.test_metrics import standing
from tests.router.test_node_endpoints import Node, serving
from tests.support.links import on_sockets

MIRROR: Final = "/api/v1/admin/mirror"
STATUS: Final = "/api/v1/cluster/status"


def mirrored(here: Node, told: Standing | None) -> ScriptedMirror:
    """A mirror for a router that has real shards; None is away."""
    mirror = ScriptedMirror(here.api.config)
    here.api.mirror = mirror
    if told is None:
        mirror.is_away = True
    else:
        mirror.answers = {GetStanding: told, GetBeats: Beats(workers=[])}
    return mirror


def of_shard(told: Standing, **changed: object) -> Standing:
    shard: ShardStanding = msgspec.structs.replace(told.shards[0], **changed)  # type: ignore[arg-type]
    return msgspec.structs.replace(told, shards=[shard])


@on_sockets
async def test_an_admin_sees_how_far_the_mirror_is_behind_each_shard(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        told = standing(1)
        await here.put("mail", "mail")
        mirrored(here, of_shard(told, index=1))
        behind = await here.told(MIRROR, MirrorBody)
        mirrored(here, of_shard(told, index=1_000))
        ahead = await here.told(MIRROR, MirrorBody)
        status = await here.told(STATUS, ClusterStatus)
        runtime = await here.told("/api/v1/debug/runtime", Runtime)

    [late], [at_end] = behind.shards, ahead.shards
    assert late.lag_entries is not None
    assert late.lag_ms is not None
    assert late.lag_entries > 0
    assert late.lag_ms > 0
    assert (at_end.lag_entries, at_end.lag_ms) == (0, 0.0)
    assert (behind.status, behind.rebuilds, behind.questions) == ("following", 2, 11)
    assert behind.write_lag is not None
    assert (behind.write_lag.count, behind.write_lag.p50) == (4, 0.01)
    assert status.sqlite_mirror == MirrorGlance(status="following", lag=0, lag_ms=0)
    assert runtime.processes["mirror"].resident_bytes == told.rss_bytes


@on_sockets
async def test_what_is_wrong_with_the_mirror_is_one_word_and_the_node_is_well(
    tmp_path: Path,
) -> None:
    words: list[tuple[str, str]] = []
    async with serving(tmp_path) as here:
        without = await here.told(MIRROR, MirrorBody)
        for told in (
            of_shard(standing(1), is_whole=False),
            of_shard(standing(1), is_linked=False, is_whole=False),
            None,
        ):
            mirrored(here, told)
            body = await here.told(MIRROR, MirrorBody)
            status = await here.told(STATUS, ClusterStatus)
            ready = await here.told("/readyz", Ready)
            assert isinstance(status.sqlite_mirror, MirrorGlance)
            assert status.sqlite_mirror.status == body.status
            words.append((body.status, body.why))
            assert (status.status, ready.status) == ("healthy", "ok")

    assert without == MirrorBody(status="none")
    assert words == [
        ("catching up", ""),
        ("cut off", ""),
        ("away", "not connected yet"),
    ]


@on_sockets
async def test_metrics_tell_of_the_mirror_as_far_as_it_is_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        without = await here.metrics()
        mirrored(here, None)
        away = await here.metrics()
        mirrored(here, of_shard(standing(1), index=0))
        there = await here.metrics()

    assert not [name for name in without if "mirror" in name and "http" not in name]
    assert away["corvo_mirror_up"] == 0
    assert there["corvo_mirror_up"] == 1
    assert there['corvo_mirror_lag_entries{shard="0"}'] > 0


# A real one.


class Visitor:
    """Somebody who asks a node, one request at a time."""

    def __init__(self, house: House) -> None:
        self._address = house.address
        self.position = ""
        """What was told last of where things stand."""

    async def ask(
        self, method: str, path: str, body: object = None, *, waits: bool = True
    ) -> bytes:
        """What is answered, when all is well."""
        return await trio.to_thread.run_sync(self._ask, method, path, body, waits)

    def _ask(self, method: str, path: str, body: object, waits: bool) -> bytes:
        headers = {"corvo-min-seq": self.position} if waits and self.position else {}
        data = msgspec.json.encode(body) if body is not None else None
        began = time.monotonic()
        while True:
            connection = http.client.HTTPConnection(*self._address, timeout=60)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            read = answer.read()
            connection.close()
            # A mirror that was killed is started again only after a while.
            if answer.status != 503 or time.monotonic() > began + PATIENCE_S:
                break
        assert answer.status in {200, 201, 202, 204}, (path, answer.status, read)
        self.position = answer.headers.get("corvo-seq", self.position)
        return read

    async def found(self, wanted: dict[str, object]) -> FoundBody:
        """A page of jobs."""
        return msgspec.json.decode(
            await self.ask("POST", "/api/v1/jobs/search", wanted), type=FoundBody
        )

    async def rows(self, path: str) -> list[dict[str, object]]:
        """A list."""
        return msgspec.json.decode(
            await self.ask("GET", path, waits=False), type=list[dict[str, object]]
        )


@on_sockets
async def test_what_was_changed_is_found_at_once_also_by_a_mirror_that_was_killed_meanwhile(
    tmp_path: Path,
) -> None:
    house = await house_in(tmp_path)
    async with house.open() as node:
        visitor = Visitor(house)
        for number in range(1, 6):
            if number == 3:
                await kill(node, "mirror")
            if number == 4:
                os.kill(pid_of(node, "mirror"), signal.SIGKILL)
            job = {"queue": "mail", "payload": {"to": "ada"}, "tags": {"number": str(number)}}
            await visitor.ask("POST", "/api/v1/enqueue", job)

            page = await visitor.found({"queue": "mail"})
            tagged = await visitor.found({"tags": {"number": str(number)}})

            assert (page.total, page.total_is_exact) == (number, True)
            assert [found.tags for found in tagged.jobs] == [{"number": str(number)}]
        fetched = {"queues": ["mail"], "worker_id": "w", "wait_seconds": 0}
        await visitor.ask("POST", "/api/v1/fetch", fetched)
        active = await visitor.found({"state": ["active"], "worker_id": "w"})
        with trio.fail_after(PATIENCE_S):  # both lists do without a mirror that is slow
            while (worker := (await visitor.rows("/api/v1/workers"))[0]).get("active") != 1:
                pass
            while "rates" not in (await visitor.rows("/api/v1/queues"))[0]:
                pass

        assert [found.state.value for found in active.jobs] == ["active"]
        assert (worker["id"], worker["state"]) == ("w", "alive")
        assert await node.end() == 0


@on_sockets
async def test_while_the_mirror_stands_still_a_node_does_all_that_does_not_need_it(
    tmp_path: Path,
) -> None:
    house = await house_in(tmp_path)
    async with house.open() as node:
        visitor = Visitor(house)
        mirror = pid_of(node, "mirror")
        os.kill(mirror, signal.SIGSTOP)
        try:
            made = await visitor.ask("POST", "/api/v1/enqueue", {"queue": "mail"})
            job_id = msgspec.json.decode(made, type=dict[str, object])["job_id"]
            [queue] = await visitor.rows("/api/v1/queues")
            await visitor.ask("GET", f"/api/v1/jobs/{job_id}")
            await visitor.ask("GET", f"/api/v1/jobs/{job_id}/timeline")
            summary = await visitor.ask("GET", "/api/v1/summary")
            await visitor.ask("GET", "/readyz")
        finally:
            os.kill(mirror, signal.SIGCONT)
        page = await visitor.found({"queue": "mail"})

        assert "rates" not in queue
        assert b'"source":"shards"' in summary
        assert [found.id for found in page.jobs] == [job_id]
        assert await node.end() == 0
