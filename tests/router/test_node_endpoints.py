"""The node's own routes, over real shard processes, through the door."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import trio

from corvo import __version__, clock
from corvo.placement import shard_of_queue
from corvo.protocol.numbers import ClockNumbers, Numbers
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.work import Fetch
from corvo.protocol.queries import GetNumbers, Query
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.caller import Caller
from corvo.router.config import Limits, RouterConfig
from corvo.router.enqueue import endpoints as producing
from corvo.router.http.messages import ProblemBody, Request, Response
from corvo.router.leases import endpoints as working
from corvo.router.node import endpoints as node
from corvo.router.node.health import (
    Alive,
    Check,
    ClusterStatus,
    Health,
    Info,
    Ready,
    Runtime,
    ShardClock,
    warnings_of,
)
from corvo.router.routes import Routes
from corvo.router.search.bodies import MinuteView
from corvo.router.server.door import Door
from corvo.router.shards.links import Answer
from corvo.scopes import Scope
from corvo.time_zones import tz_version
from tests.router.test_metrics import numbers
from tests.shard.inside import Inside
from tests.shard.processes import Child, config_in, put, running
from tests.support.links import on_sockets

T = TypeVar("T")
JSON = dict[str, object]
SCOPED: Final = Caller(name="mail only", role="readonly", scope=Scope(("mail*",)))


class Node:
    """A door with only these routes, and the shards behind it."""

    def __init__(self, api: Api, shards: list[Child]) -> None:
        self.api = api
        self.shards = shards
        rows = (*node.ROUTES, *producing.ROUTES, *working.ROUTES)
        self._door = Door(api, Routes(rows), on_bug=on_bug)

    async def get(self, path: str, *, verbose: bool = False) -> Response:
        query = {"verbose": ""} if verbose else {}
        return await self._door.answer(Request(method="GET", path=path, query=query))

    async def post(self, path: str, body: object) -> JSON:
        request = Request(method="POST", path=path, body=msgspec.json.encode(body))
        answer = await self._door.answer(request)
        return msgspec.json.decode(answer.body, type=JSON)

    async def told(self, path: str, kind: type[T], *, status: int = 200) -> T:
        answer = await self.get(path, verbose=path.endswith("z"))  # a probe
        assert answer.status == status, answer.body
        return msgspec.json.decode(answer.body, type=kind)

    async def metrics(self) -> dict[str, float]:
        """Each line of the page."""
        answer = await self.get("/metrics")
        assert answer.status == 200, answer.body
        assert answer.content_type.startswith("text/plain; version=0.0.4")
        return lines_of(answer)

    async def put(self, *queues: str) -> None:
        for queue in queues:
            await self.api.shards.of_queue(queue).submit(Enqueue(jobs=[NewJob(queue=queue)]))


def lines_of(answer: Response) -> dict[str, float]:
    lines = answer.body.decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


def on_bug(request: Request, error: BaseException) -> None:
    raise AssertionError(f"a bug at {request.path}") from error


def config_of(directory: Path, count: int, **changed: object) -> RouterConfig:
    told = RouterConfig(
        cluster="rookery",
        node=1,
        shards=count,
        sockets=dict(enumerate([str(directory / str(shard) / "s") for shard in range(count)])),
        listen=[0],
        is_open=True,
        is_auth_off=True,
        limits=Limits(leader_wait_ms=1_000),
    )
    return msgspec.structs.replace(told, **changed)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(directory: Path, *, shards: int = 1, **changed: object) -> AsyncIterator[Node]:
    """A router in this process, and shards in theirs, each with a leader."""
    async with AsyncExitStack() as stack:
        children = []
        for shard in range(shards):
            (directory / str(shard)).mkdir(exist_ok=True)
            config = config_in(directory / str(shard), shard=shard, shards=shards)
            children.append(await stack.enter_async_context(running(config)))
        api = Api(config_of(directory, shards, **changed))
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(api.shards.run)
        while not all(shard.is_up for shard in api.shards):
            await trio.lowlevel.checkpoint()
        for queue in one_queue_each(shards):
            await api.shards.of_queue(queue).ask(GetNumbers())
        yield Node(api, children)
        nursery.cancel_scope.cancel()


def one_queue_each(shards: int) -> list[str]:
    """For each shard a queue that it owns."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        queue = f"queue-{number}"
        found.setdefault(shard_of_queue(queue, shards), queue)
        number += 1
    return [found[shard] for shard in range(shards)]


@asynccontextmanager
async def alone(directory: Path) -> AsyncIterator[Node]:
    """A router whose shards are not there."""
    api = Api(config_of(directory, 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api.shards.run)
        yield Node(api, [])
        nursery.cancel_scope.cancel()


# ---- Probes.


@on_sockets
async def test_a_node_with_all_its_shards_passes_every_probe(tmp_path: Path) -> None:
    async with serving(tmp_path, shards=2) as here:
        alive = await here.told("/livez", Alive)
        started = await here.told("/startupz", Ready)
        ready = await here.told("/readyz", Ready)
        brief = await here.get("/readyz")
        health = await here.told("/healthz", Health)

    assert alive == Alive("ok")
    assert started == Ready(status="ok", checks=[Check("shard-0", True), Check("shard-1", True)])
    assert ready.checks == [*started.checks, Check("router", True)]
    assert brief.body == b'{"status":"ok"}\n'
    assert health == Health("ok", "Leader", True)


@on_sockets
async def test_without_shards_a_node_is_alive_and_not_ready(tmp_path: Path) -> None:
    async with alone(tmp_path) as here:
        alive = await here.told("/livez", Alive)
        started = await here.told("/startupz", Ready, status=503)
        ready = await here.told("/readyz", Ready, status=503)
        unhealthy = await here.told("/healthz", ProblemBody, status=503)

    assert alive == Alive("ok")
    assert started.missing == ["shard-0", "shard-1"]
    assert (ready.code, ready.missing) == ("NOT_READY", ["shard-0", "shard-1"])
    assert "shard-1: the shard is unavailable" in ready.error
    assert [check.ok for check in ready.checks] == [False, False, True]
    assert unhealthy.code == "UNHEALTHY"


@on_sockets
async def test_a_shard_that_is_gone_is_named_and_the_node_had_started_all_the_same(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, shards=2) as here:
        await here.shards[1].kill()
        while here.api.shards[1].is_up:
            await trio.lowlevel.checkpoint()

        ready = await here.told("/readyz", Ready, status=503)
        started = await here.told("/startupz", Ready)
        health = await here.told("/healthz", Health)

    assert ready.missing == ["shard-1"]
    assert started.status == "ok"
    assert health.status == "ok"


@on_sockets
async def test_a_router_that_is_leaving_is_not_ready_and_alive(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        here.api.stop()

        ready = await here.told("/readyz", Ready, status=503)
        alive = await here.told("/livez", Alive)

    assert ready.missing == ["router"]
    assert alive.status == "ok"


@on_sockets
async def test_a_shard_whose_clock_is_apart_is_a_warning_and_no_failure(tmp_path: Path) -> None:
    config = config_in(tmp_path / "0", shards=2)
    (tmp_path / "0").mkdir()
    future = Inside(config, wall_ns=clock.now_ns() + 3_600_000_000_000)
    async with future.running() as client:
        await put(client, NewJob(queue=one_queue_each(2)[0]))
    (tmp_path / "0" / "data" / "clock").unlink()
    async with serving(tmp_path, shards=2) as here:
        probe = await here.get("/readyz")
        ready = msgspec.json.decode(probe.body, type=Ready)
        status = await here.told("/api/v1/cluster/status", ClusterStatus)
        seen = await here.metrics()

    assert (probe.status, ready.status, ready.missing) == (200, "ok", [])
    assert [warning.partition(":")[0] for warning in ready.warnings] == ["shard-0"]
    assert " s behind the shard's clock, which runs slower until" in ready.warnings[0]
    assert status.status == "healthy"
    clocks = [group.clock for group in status.groups]
    assert isinstance(clocks[0], ShardClock)
    assert isinstance(clocks[1], ShardClock)
    assert (clocks[0].course, clocks[1].course) == ("slower", "in_step")
    assert -3_600_000 <= clocks[0].wall_ahead_ms < -3_000_000
    assert seen['corvo_shard_clock_offset_seconds{shard="0"}'] < -3_000
    assert abs(seen['corvo_shard_clock_offset_seconds{shard="1"}']) < 1
    [oldest] = [value for name, value in seen.items() if name.startswith("corvo_queue_oldest")]
    assert oldest < 600


@on_sockets
async def test_probes_that_come_all_the_time_do_not_keep_shards_busy(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        shard = here.api.shards[0]
        asked, here.api.warnings_due = shard.ask, 0.0
        count = 0

        async def counting(query: Query) -> Answer:
            nonlocal count
            count += 1
            return await asked(query)

        shard.ask = counting  # type: ignore[method-assign]
        for _ in range(20):
            await here.get("/readyz")

    assert count <= 2  # more only if twenty probes take a second


def test_a_warning_names_the_side_and_what_follows() -> None:
    texts = [
        warnings_of({3: numbers_with(ClockNumbers(course, ahead_ns, 1))})
        for course, ahead_ns in (
            ("faster", 90_000_000_000),
            ("slower", -1_500_000_000),
            ("ignored", 90_000_000_000_000),
            ("in_step", 7),
        )
    ]

    assert texts[3] == []
    assert [text[0].partition(" the shard's clock")[0] for text in texts[:3]] == [
        "shard-3: the wall clock is 90.0 s ahead of",
        "shard-3: the wall clock is 1.5 s behind",
        "shard-3: the wall clock is 90000.0 s ahead of",
    ]
    assert "is ignored" in texts[2][0]
    assert warnings_of({0: numbers_with(None)}) == []


def numbers_with(clock: ClockNumbers | None) -> Numbers:
    told = numbers()
    quiet = msgspec.structs.replace(told.counted, effects=type(told.counted.effects)())
    return msgspec.structs.replace(told, clock=clock, counted=quiet)


# ---- Metrics.


@on_sockets
async def test_metrics_tell_of_router_shards_queues_and_processes(tmp_path: Path) -> None:
    async with serving(tmp_path, shards=2) as here:
        queues = one_queue_each(2)
        await here.put(*queues, queues[0])
        claim = Fetch(queues=[queues[0]], worker_id="w-1")
        await here.api.shards[0].submit(claim)
        await here.metrics()

        seen = await here.metrics()

    assert seen['corvo_jobs{state="pending"}'] == 2
    assert seen['corvo_jobs{state="active"}'] == 1
    assert seen[f'corvo_queue_jobs{{queue="{queues[0]}",state="active"}}'] == 1
    assert 0 < seen[f'corvo_queue_oldest_pending_seconds{{queue="{queues[1]}"}}'] < 3_600
    assert seen["corvo_workers_active"] == seen["corvo_workers_registered"] == 1
    assert seen['corvo_http_requests_total{method="GET",route="/metrics",code="200"}'] == 1
    assert seen["corvo_http_requests_in_flight"] == 1
    for shard in ("0", "1"):
        assert seen[f'corvo_shard_scrape_success{{shard="{shard}"}}'] == 1
        assert seen[f'corvo_raft_is_leader{{shard="{shard}"}}'] == 1
        assert seen[f'corvo_ops_total{{shard="{shard}",op="Enqueue"}}'] == 2 - int(shard)
        assert seen[f'corvo_raft_log_fsync_seconds_count{{shard="{shard}"}}'] >= 2
        assert seen[f'corvo_raft_log_bytes_total{{shard="{shard}"}}'] > 0
        assert seen[f'corvo_data_dir_free_bytes{{shard="{shard}"}}'] > 0
        assert seen[f'corvo_process_resident_memory_bytes{{process="shard-{shard}"}}'] > 1 << 20
    assert seen['corvo_process_resident_memory_bytes{process="router"}'] > 1 << 20
    assert seen["corvo_metrics_errors_total"] == 0


@on_sockets
async def test_a_shard_that_does_not_answer_costs_its_lines_and_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path, shards=2) as here:
        await here.put(*one_queue_each(2))
        await here.shards[1].kill()

        seen = await here.metrics()

    assert seen['corvo_shard_scrape_success{shard="0"}'] == 1
    assert seen['corvo_shard_scrape_success{shard="1"}'] == 0
    assert 'corvo_raft_term{shard="1"}' not in seen
    assert 'corvo_jobs{state="pending"}' not in seen
    assert seen["corvo_metrics_errors_total"] == 1


@on_sockets
async def test_both_ways_to_the_page_lead_to_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        standard = lines_of(await here.get("/metrics"))
        ours = lines_of(await here.get("/api/v1/metrics"))

    assert standard['corvo_raft_term{shard="0"}'] == ours['corvo_raft_term{shard="0"}']


@on_sockets
async def test_more_queues_than_fit_into_a_page_are_all_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        names = [f"queue-{number:04}" for number in range(1_100)]
        for start in range(0, len(names), 550):
            jobs = [NewJob(queue=name) for name in names[start : start + 550]]
            await here.api.shards[0].submit(Enqueue(jobs=jobs))

        seen = await here.metrics()

    shown = {
        found[1] for line in seen if (found := re.match(r'corvo_queue_jobs.queue="(.*?)"', line))
    }
    assert shown == {*names[:1_000], "other"}
    assert seen['corvo_queue_jobs{queue="other",state="pending"}'] == 100
    assert seen['corvo_jobs{state="pending"}'] == 1_100
    assert seen["corvo_queues"] == 1_100
    assert seen["corvo_metrics_series_dropped_total"] == 100


@on_sockets
async def test_a_key_for_some_queues_sees_no_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        await here.put("mail", "mail-eu", "payroll")

        request = Request(method="GET", path="/metrics", caller=SCOPED)
        seen = lines_of(await node.metrics(here.api, request))

    assert 'corvo_queue_jobs{queue="mail-eu",state="pending"}' in seen
    assert not any("payroll" in line for line in seen)
    assert seen["corvo_queues"] == 2


@on_sockets
async def test_throughput_has_an_hour_by_the_minute(tmp_path: Path) -> None:
    async with alone(tmp_path) as here:
        here.api.metrics.throughput.enqueued(3)
        here.api.metrics.throughput.completed()

        minutes = await here.told("/api/v1/metrics/throughput", list[MinuteView])

    assert len(minutes) == 60
    assert [each.minute for each in minutes] == sorted({each.minute for each in minutes})
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:00Z", each.minute) for each in minutes)
    assert sum(each.enqueued for each in minutes[-2:]) == 3
    assert sum(each.completed for each in minutes) == 1
    assert sum(each.failed for each in minutes) == 0


@on_sockets
async def test_every_way_in_counts_as_many_jobs_as_it_has_and_none_that_were_refused(
    tmp_path: Path,
) -> None:
    once = {"queue": "mail", "unique_key": "a"}
    async with serving(tmp_path, shards=2) as here:
        await here.post("/api/v1/enqueue", once)
        await here.post("/api/v1/enqueue", once)
        await here.post("/api/v1/enqueue", {"queue": ""})
        await here.post("/api/v1/enqueue/batch", {"jobs": [{"queue": "mail"}] * 4 + [once]})
        await here.post("/api/v1/webhooks/mail", {})
        told = await here.post("/api/v1/fetch/batch", {"queues": ["mail"], "count": 6})
        ids = [job["job_id"] for job in msgspec.convert(told["jobs"], list[JSON])]
        await here.post(f"/api/v1/ack/{ids[0]}", {})
        await here.post("/api/v1/ack/nobody", {})
        await here.post("/api/v1/ack/batch", {"acks": [{"job_id": id_} for id_ in ids[1:3]]})
        await here.post(f"/api/v1/fail/{ids[3]}", {"error": "no"})
        fails = [{"job_id": id_, "error": "no"} for id_ in (*ids[4:6], "nobody")]
        await here.post("/api/v1/fail/batch", {"fails": fails})

        seen = await here.metrics()

    assert len(ids) == 6
    assert seen["corvo_throughput_enqueued_total"] == 6
    assert seen["corvo_throughput_completed_total"] == 3
    assert seen["corvo_throughput_failed_total"] == 3


# ---- What it is, and how it is.


@on_sockets
async def test_info_tells_versions_and_promises(tmp_path: Path) -> None:
    async with alone(tmp_path) as here:
        off = await here.told("/api/v1/info", Info)
        keyed = Api(config_of(tmp_path, 2, is_open=False, durability="relaxed"))
        closed = await Node(keyed, []).told("/api/v1/info", Info)
        local = Api(config_of(tmp_path, 2, is_auth_off=False))
        local.keyring.replace([], now_s=trio.current_time())
        open_ = await Node(local, []).told("/api/v1/info", Info)

    assert (off.server_version, off.api_version) == (__version__, "0.3.0")
    assert off.tz_version == tz_version()
    assert (closed.server_version, closed.tz_version) == ("", "")
    assert (off.name, off.shards, off.durability) == ("corvo", 2, "sync")
    assert closed.durability == "relaxed"
    assert (open_.auth, closed.auth, off.auth) == ("open", "keys", "off")


@on_sockets
async def test_a_cluster_of_one_shard_is_told_as_the_original_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        await here.put("mail")

        status = await here.told("/api/v1/cluster/status", ClusterStatus)

    assert (status.mode, status.status, status.state) == ("cluster", "healthy", "Leader")
    assert (status.node_id, status.leader_id) == ("1", "1")
    assert int(status.applied_index) == int(status.commit_index) >= 2
    assert len(status.digest) == 8
    assert [(each.id, each.voter, each.role, each.self) for each in status.nodes] == [
        ("1", True, "leader", True)
    ]
    assert status.groups == []
    assert status.shard is msgspec.UNSET
    assert isinstance(status.commit_time_hist, msgspec.Struct)
    assert status.commit_time_hist.count >= 1


@on_sockets
async def test_a_cluster_of_several_tells_of_each_and_of_one_that_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, shards=2) as here:
        healthy = await here.told("/api/v1/cluster/status", ClusterStatus)
        await here.shards[1].kill()

        degraded = await here.told("/api/v1/cluster/status", ClusterStatus)

    assert (healthy.mode, healthy.status, healthy.shards) == ("multi-raft", "healthy", 2)
    assert [each.shard for each in healthy.groups] == [0, 1]
    assert degraded.status == "degraded"
    assert [each.status for each in degraded.groups] == ["healthy", "unreachable"]
    assert degraded.groups[1].error
    assert "state" not in msgspec.to_builtins(degraded.groups[1])


@on_sockets
async def test_the_runtime_of_every_process_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, shards=2) as here:
        runtime = await here.told("/api/v1/debug/runtime", Runtime)

    assert [*runtime.processes] == ["router", "shard-0", "shard-1"]
    assert runtime.heap_inuse_bytes == runtime.processes["router"].resident_bytes > 0
    assert runtime.goroutines > 1
    assert runtime.cpu_user_ns > 0


def test_who_may_ask_for_what() -> None:
    actions = {route.path: route.action for route in node.ROUTES}

    assert actions == {
        "/metrics": Action.READ,
        "/api/v1/metrics": Action.READ,
        "/api/v1/metrics/throughput": Action.READ,
        "/livez": Action.OPEN,
        "/readyz": Action.OPEN,
        "/startupz": Action.OPEN,
        "/healthz": Action.OPEN,
        "/api/v1/info": Action.OPEN,
        "/api/v1/cluster/status": Action.READ,
        "/api/v1/debug/runtime": Action.ADMIN,
        "/api/v1/admin/mirror": Action.ADMIN,
        "/api/v1/admin/rebuild-sqlite": Action.ADMIN,
    }
