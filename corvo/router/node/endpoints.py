"""Endpoints of the node: metrics, probes, versions, the state of shards and mirror.

Nothing here waits for a shard longer than `_DEADLINE_S`: whoever asks how a node is has to be told,
above all when it is not well.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Final

import msgspec
import trio

from corvo import clock
from corvo.measures import ProcessStats
from corvo.process_stats import ProcessStatsReader
from corvo.protocol.numbers import (
    PAGE_NUMBERS_MAX,
    Numbers,
    QueueCountersPage,
    QueuePage,
    WorkerPage,
)
from corvo.protocol.ops.base import NAME_BYTES_MAX
from corvo.protocol.queries import GetQueueCounters, GetQueueNumbers, GetWorkerNumbers
from corvo.protocol.questions import GetStanding, GetThroughput, Rebuild, Rebuilding, Standing
from corvo.router.api import Api
from corvo.router.ask import read_pages
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import EVERYTHING, NODE, RESULT, queue_in_query
from corvo.router.caller import ROUTER
from corvo.router.cluster.asking import (
    has_replica_here,
    look,
    own_answer,
    own_numbers,
    reachable,
)
from corvo.router.cluster.overview import overview
from corvo.router.http import params
from corvo.router.http.messages import Problem, Request, Response, json_response
from corvo.router.http.request_keys import request_key
from corvo.router.node.certificates import certificate_file
from corvo.router.node.exposition import CONTENT_TYPE
from corvo.router.node.families import render
from corvo.router.node.health import (
    Alive,
    Check,
    ClusterStatus,
    Health,
    Info,
    MirrorBody,
    Ready,
    Runtime,
    ShardReach,
    cluster_status,
    draining_warnings,
    excused,
    health,
    info,
    mirror_body,
    mirror_glance,
    readiness,
    warnings_of,
    why_not_member,
)
from corvo.router.node.scrape import (
    ClusterScrape,
    ProcessScrape,
    Queues,
    Scrape,
    ShardScrape,
    as_known,
    counters_of,
)
from corvo.router.routes import Parameter, Route
from corvo.router.search.bodies import MinuteView, minute_view, read_minutes
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Shard
from corvo.router.worker_health import NOT_FETCHING
from corvo.router.workers.endpoints import classify_workers, counted

_DEADLINE_S: Final = 1.0
"""How long shards have to answer."""
_PROBE_DEADLINE_S: Final = 0.25
"""The same, for the warnings of a probe. A prober waits for a second as a rule."""
_WARNINGS_S: Final = 1.0
"""How long warnings are kept: probes have no API key, and must not keep shards busy."""

_decode_counters: Final = msgspec.json.Decoder(QueueCountersPage).decode
_decode_queues: Final = msgspec.json.Decoder(QueuePage).decode
_decode_standing: Final = msgspec.json.Decoder(Standing).decode
_decode_rebuilding: Final = msgspec.json.Decoder(Rebuilding).decode
_decode_workers: Final = msgspec.json.Decoder(WorkerPage).decode


@cache
def _stats_reader() -> ProcessStatsReader:
    """This process's; it holds a descriptor, and so there is one."""
    return ProcessStatsReader()


# Asking the shards.


async def _each(
    api: Api,
    ask: Callable[[Shard], Awaitable[None]],
    *others: Callable[[], Awaitable[None]],
    deadline_s: float = _DEADLINE_S,
) -> None:
    """Ask all shards at once, and others. Those that do not answer in time are given up."""

    async def dare(shard: Shard) -> None:
        try:
            await ask(shard)
        except Problem:
            return  # whoever asks says what is missing

    with trio.move_on_after(deadline_s):
        await together([*(partial(dare, shard) for shard in api.shards), *others])


async def _standing(api: Api) -> Standing | None:
    """What the mirror says of itself, if it does so in time."""
    answer = await api.mirror.ask_now(GetStanding(), ROUTER, patience_s=_DEADLINE_S)
    return _decode_standing(answer.body) if answer is not None else None


async def _node(api: Api) -> tuple[dict[int, Numbers], Standing | None]:
    """The numbers of this node's replicas that answer in time, and the mirror's."""
    told: list[Standing | None] = []

    async def ask_mirror() -> None:
        told.append(await _standing(api))

    found = await _numbers(api, ask_mirror)
    return found, told[0] if told else None


async def _numbers(
    api: Api, *others: Callable[[], Awaitable[None]], deadline_s: float = _DEADLINE_S
) -> dict[int, Numbers]:
    """The numbers of this node's replicas that answer in time."""
    found: dict[int, Numbers] = {}

    async def ask(shard: Shard) -> None:
        if has_replica_here(api, shard):
            found[shard.number] = await own_numbers(api, shard)

    await _each(api, ask, *others, deadline_s=deadline_s)
    return found


# Metrics.


class _Collection:
    """What is learned for one page of metrics."""

    def __init__(self, api: Api, request: Request) -> None:
        self._api = api
        self._caller = request.caller
        self._scope = request.caller.scope
        self.queues = Queues()
        self.workers: dict[str, int] = {}
        self.standing: Standing | None = None
        self.not_fetching: int | None = None
        self.workers_by_queue: Mapping[str, int] | None = None
        self.shards = {
            shard.number: ShardScrape(
                number=shard.number,
                calls_in_flight=shard.calls_in_flight,
                is_here=has_replica_here(api, shard),
            )
            for shard in api.shards
        }

    async def ask(self, shard: Shard) -> None:
        """Ask one shard for everything. What it told only in part is left out."""
        seen = self.shards[shard.number]
        began = trio.current_time()
        try:
            if seen.is_here:
                seen.numbers = await own_numbers(self._api, shard)
                with suppress(Problem):  # an older process counts nothing by queue
                    await self._ask_for_counters(shard, seen)
            clock_now = seen.numbers.clock if seen.numbers is not None else None
            ahead_ns = clock_now.ahead_ns if clock_now is not None else 0
            queues = await self._ask_for_queues(shard, ahead_ns)
            workers = await self._ask_for_workers(shard, ahead_ns)
        finally:
            seen.seconds = trio.current_time() - began
        seen.is_whole = True
        self.queues.merge(queues)
        for name, seen_ns in workers.items():
            self.workers[name] = max(seen_ns, self.workers.get(name, 0))

    async def ask_mirror(self) -> None:
        """Ask the mirror how it is, and of the workers that hold jobs."""
        self.standing = await _standing(self._api)
        classified = await classify_workers(self._api, ())
        if classified.knows_jobs:
            self.not_fetching = sum(state == NOT_FETCHING for _, state in classified.workers)
        self.workers_by_queue = (await counted(classified, self._caller)).by_queue

    async def _ask_for_counters(self, shard: Shard, seen: ShardScrape) -> None:
        counters: dict[str, tuple[int, ...]] = {}
        query = GetQueueCounters()
        while True:
            page = _decode_counters((await own_answer(self._api, shard, query)).body)
            counters.update((each.name, as_known(each.counts)) for each in page.queues)
            if not page.after:
                break
            query = GetQueueCounters(after=page.after)
        seen.others = as_known(page.others)
        seen.counters = counters

    async def _ask_for_queues(self, shard: Shard, ahead_ns: int) -> Queues:
        queues = Queues(ahead_ns=ahead_ns)

        def ask(after: str) -> GetQueueNumbers:
            if queues.is_full:
                return GetQueueNumbers(after=after, limit=PAGE_NUMBERS_MAX, is_brief=True)
            return GetQueueNumbers(after=after)

        async for [each] in read_pages(self._api, ROUTER, ask, _decode_queues, shards=[shard]):
            queues.add(queue for queue in each.page.queues if self._scope.covers(queue.name))
        return queues

    async def _ask_for_workers(self, shard: Shard, ahead_ns: int) -> dict[str, int]:
        workers: dict[str, int] = {}

        def ask(after: str) -> GetWorkerNumbers:
            return GetWorkerNumbers(after=after)

        async for [each] in read_pages(self._api, ROUTER, ask, _decode_workers, shards=[shard]):
            workers.update((name, seen_ns + ahead_ns) for name, seen_ns in each.page.workers)
        return workers


async def metrics(api: Api, request: Request) -> Response:
    """Read all metrics in Prometheus format."""
    collection = _Collection(api, request)
    await _each(api, collection.ask, collection.ask_mirror)
    shards = list(collection.shards.values())
    collection.queues.settle()
    counters: Mapping[str, Sequence[int]] = {}
    others = api.metrics.others if request.caller.scope.has_everything else None
    for found in counters_of(
        collection.queues, shards, lambda queue: api.shards.of_queue(queue).number, others
    ):
        counters = found
        await trio.lowlevel.checkpoint()
    api.metrics.errors += sum(not shard.is_whole for shard in shards)
    api.metrics.dropped += collection.queues.dropped
    loop = api.metrics.loop
    scrape = Scrape(
        now_ns=clock.now_ns(),
        metrics=api.metrics,
        config=api.config,
        process=ProcessScrape(
            name="router",
            stats=_stats_reader().read(),
            lag=loop.lag,
            loop=loop,
            tasks=trio.lowlevel.current_statistics().tasks_living,
        ),
        shards=shards,
        cluster=_cluster_scrape(api),
        queues=collection.queues,
        workers=collection.workers,
        has_mirror=api.mirror.is_there,
        mirror=collection.standing,
        not_fetching=collection.not_fetching,
        workers_by_queue=collection.workers_by_queue,
        counters=counters,
        is_ready=_ready(api).is_ready,
        certificate_ends_s=_certificate_ends_s(api),
    )
    pieces: list[bytes] = []
    for piece in render(scrape):
        pieces.append(piece)
        await trio.lowlevel.checkpoint()  # others have their turn between two pieces
    return Response(body=b"".join(pieces), content_type=CONTENT_TYPE)


def _certificate_ends_s(api: Api) -> dict[str, float]:
    """When the certificates in use end, by their use. Unix time."""
    paths = {"http": api.config.tls_cert, "peer": api.config.security.tls_cert}
    found = {use: certificate_file(path).end_s() for use, path in paths.items() if path}
    return {use: end_s for use, end_s in found.items() if end_s is not None}


def _cluster_scrape(api: Api) -> ClusterScrape | None:
    if api.config.map is None:
        return None
    return ClusterScrape(
        map=api.topology.map, reachable=reachable(api), clocks_ns=api.clocks.ahead_ns
    )


async def throughput(api: Api, request: Request) -> Response:
    """Read jobs per minute of the last 60 minutes."""
    queue = request.query.get("queue", "")
    if queue:
        params.checked_queue("queue", queue)
    if api.mirror.is_there or queue or not request.caller.scope.has_everything:
        answer = await api.mirror.ask(GetThroughput(queue=queue), request.caller)
        minutes = read_minutes(answer.body).minutes
        return json_response([*minutes], reached=answer.positions)
    # Without a mirror there is what went through this router, of all queues together.
    await trio.lowlevel.checkpoint()
    return json_response([minute_view(minute) for minute in api.metrics.throughput.minutes()])


# Probes.


async def livez(_: Api, __: Request) -> Response:
    """Check that the router's process runs (liveness)."""
    await trio.lowlevel.checkpoint()
    return json_response(Alive())


def _readiness(
    api: Api,
    shards: Sequence[ShardReach],
    others: Sequence[Check] = (),
    *,
    is_verbose: bool = False,
    warnings: Sequence[str] = (),
) -> Ready:
    return readiness(
        [*(each.check for each in shards), *others],
        is_verbose=is_verbose,
        warnings=warnings,
        excused=excused(shards, is_alone=len(api.topology.map.nodes) == 1),
    )


def _ready(api: Api, *, is_verbose: bool = False, warnings: Sequence[str] = ()) -> Ready:
    """Whether requests should be sent here."""
    shards = [_reach(shard, is_reached=shard.is_up) for shard in api.shards]
    checks = []
    if api.config.map is not None:
        why = why_not_member(
            api.topology.map, api.config.node, is_announced=api.map_keeper.is_announced
        )
        checks.append(Check("cluster", not why, why))
    leaving = api.is_leaving or api.stopping.is_set()
    checks.append(Check("router", not leaving, "the server is stopping" if leaving else ""))
    return _readiness(api, shards, checks, is_verbose=is_verbose, warnings=warnings)


def _probed(told: Ready) -> Response:
    return json_response(told, status=200 if told.is_ready else 503)


def _reach(shard: Shard, *, is_reached: bool) -> ShardReach:
    why = f"the shard is unavailable or has no leader: {shard.last_error}"
    return ShardReach(shard=shard.number, is_reached=is_reached, missing_s=shard.unled_s, why=why)


async def readyz(api: Api, request: Request) -> Response:
    """Check that requests can be sent here (readiness)."""
    await trio.lowlevel.checkpoint()
    warnings = await _warnings(api)
    return _probed(_ready(api, is_verbose="verbose" in request.query, warnings=warnings))


async def _warnings(api: Api) -> list[str]:
    """What an operator should look at, as of a second ago at most."""
    if trio.current_time() >= api.warnings_due:
        api.warnings_due = trio.current_time() + _WARNINGS_S
        api.warnings = [
            *draining_warnings(api.topology.map, api.config.node),
            *warnings_of(await _numbers(api, deadline_s=_PROBE_DEADLINE_S)),
        ]
    return api.warnings


async def startupz(api: Api, request: Request) -> Response:
    """Check that the start is complete."""
    await trio.lowlevel.checkpoint()
    shards = [_reach(shard, is_reached=shard.term > 0) for shard in api.shards]
    return _probed(_readiness(api, shards, is_verbose="verbose" in request.query))


async def healthz(api: Api, _: Request) -> Response:
    """Legacy health check; use /readyz and /livez."""
    found = await _numbers(api)
    if not found and any(shard.is_up for shard in api.shards if not has_replica_here(api, shard)):
        return json_response(health(["follower"]))  # a node without replicas serves as well
    if not found:
        raise Problem(503, "UNHEALTHY", "no shard of this node answers", retry_after_ms=1_000)
    return json_response(health([status.role for status in found.values()]))


# What this is, and how it is.


async def get_info(api: Api, request: Request) -> Response:
    """Read version and configuration."""
    is_known = False
    with suppress(Problem):
        await api.who(request)
        is_known = True
    return json_response(info(api.config, is_open=api.keyring.is_open, is_known=is_known))


async def get_status(api: Api, _: Request) -> Response:
    """Read the state of the shards."""
    if api.config.map is not None:
        return await _get_cluster_status(api)
    found, told = await _node(api)
    seen = [found.get(shard.number, shard.last_error) for shard in api.shards]
    mirror = mirror_glance(mirror_body(_said(api, told), found))
    return json_response(cluster_status(api.config, seen, mirror))


async def _get_cluster_status(api: Api) -> Response:
    """The same in a cluster, by the answers of all replicas."""
    own = api.config.node
    standings: list[Standing | None] = []

    async def ask_mirror() -> None:
        standings.append(await _standing(api))

    known, shards = await look(api, ask_mirror)
    seen = [shard.seen_from(own) for shard in shards]
    found = {number: numbers for number, numbers in enumerate(seen) if isinstance(numbers, Numbers)}
    told = standings[0] if standings else None
    mirror = mirror_glance(mirror_body(_said(api, told), found))
    view = overview(known, shards, own=own, clocks=api.clocks)
    return json_response(cluster_status(api.config, seen, mirror, view))


async def get_mirror(api: Api, _: Request) -> Response:
    """Read the state of the mirror."""
    found, told = await _node(api)
    return json_response(mirror_body(_said(api, told), found))


def _said(api: Api, told: Standing | None) -> Standing | str | None:
    """What the mirror said of itself, or why nothing."""
    if not api.mirror.is_there:
        return None
    return told or (_SILENT if api.mirror.is_up else api.mirror.last_error)


_SILENT: Final = "it did not answer in time"


async def rebuild(api: Api, request: Request) -> Response:
    """Make the mirror anew from the shards. It goes on answering meanwhile."""
    request_key(request)
    answer = await api.mirror.ask(Rebuild(), request.caller)
    return json_response(_decode_rebuilding(answer.body), status=202)


async def runtime(api: Api, _: Request) -> Response:
    """Read the resources of the node's processes."""
    found, told = await _node(api)
    stats, loop = _stats_reader().read(), api.metrics.loop
    processes: dict[str, ProcessStats] = {"router": stats}
    for number, numbers in sorted(found.items()):
        processes[f"shard-{number}"] = numbers.counted.stats
    if told is not None:
        processes["mirror"] = ProcessStats(
            resident_bytes=told.rss_bytes, cpu_user_s=told.cpu_seconds
        )
    return json_response(
        Runtime(
            goroutines=trio.lowlevel.current_statistics().tasks_living,
            gomaxprocs=1 + sum(has_replica_here(api, shard) for shard in api.shards),
            heap_inuse_bytes=stats.resident_bytes,
            gc_pause_p99_ns=_ns(loop.collections.quantile(0.99)),
            cpu_user_ns=_ns(stats.cpu_user_s),
            cpu_sys_ns=_ns(stats.cpu_system_s),
            loop_lag_p99_ns=_ns(loop.lag.quantile(0.99)),
            loop_stalls=loop.stalls,
            processes=processes,
        )
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


_VERBOSE: Final = Parameter(
    "verbose", "string", "Any value lists all checks. Default: only those that failed."
)


_get_row: Final = partial(Route, method="GET", tag="Node", rights=NODE)

ROUTES: Final[tuple[Route, ...]] = (
    *(
        _get_row(
            path=path,
            endpoint=metrics,
            action=Action.READ,
            rights=RESULT,
            summary="Read all metrics in Prometheus format.",
            description=(
                "All metrics in the text format of Prometheus. An API key with queues sees only"
                " those."
            ),
        )
        for path in ("/metrics", "/api/v1/metrics")
    ),
    _get_row(
        path="/api/v1/metrics/throughput",
        endpoint=throughput,
        action=Action.READ,
        rights=queue_in_query("queue") | RESULT,
        summary="Read jobs per minute of the last 60 minutes.",
        description=(
            "Reads how many jobs were enqueued, completed and failed in each of the last 60"
            " minutes."
        ),
        gives={200: list[MinuteView]},
        gives_example=[
            {
                "minute": "2026-02-20T09:59:00Z",
                "enqueued": 60,
                "completed": 58,
                "failed": 3,
                "started": 61,
                "dead": 1,
                "cancelled": 0,
            }
        ],
        query=(
            Parameter(
                "queue", "string", "Name of the queue. Default: all queues.", None, NAME_BYTES_MAX
            ),
        ),
        problems=(501,),
        has_min_seq=True,
    ),
    _get_row(
        path="/livez",
        endpoint=livez,
        action=Action.OPEN,
        summary="Check that the router's process runs (liveness).",
        description="200 while the router's process runs and its event loop turns.",
        gives={200: Alive},
    ),
    _get_row(
        path="/readyz",
        endpoint=readyz,
        action=Action.OPEN,
        summary="Check that requests can be sent here (readiness).",
        description=(
            "200 if requests can be sent here: this node reaches a leader of each shard, the"
            " server is not stopping, and the cluster has accepted the node. In a cluster, the"
            " answer is 200 with the status `degraded`, too, if the node reaches a leader of some"
            " shards, and the others have had none for 10 seconds; `missing` names them."
            " `warnings` names what an operator should look at meanwhile."
        ),
        gives={200: Ready},
        query=(_VERBOSE,),
        problems=(503,),
    ),
    _get_row(
        path="/startupz",
        endpoint=startupz,
        action=Action.OPEN,
        summary="Check that the start is complete.",
        description=(
            "200 if each shard has had a leader since the router started. In a cluster, one shard"
            " with a leader is enough after 10 seconds."
        ),
        gives={200: Ready},
        query=(_VERBOSE,),
        problems=(503,),
    ),
    _get_row(
        path="/healthz",
        endpoint=healthz,
        action=Action.OPEN,
        summary="Legacy health check; use /readyz and /livez.",
        description=(
            "Legacy health check: 200 if at least one shard answers. Use `/readyz` and `/livez`."
        ),
        gives={200: Health},
        problems=(503,),
    ),
    _get_row(
        path="/api/v1/info",
        endpoint=get_info,
        action=Action.OPEN,
        summary="Read version and configuration.",
        description=(
            "Reads version, number of shards, durability, and how requests show who they are."
        ),
        gives={200: Info},
    ),
    _get_row(
        path="/api/v1/cluster/status",
        endpoint=get_status,
        action=Action.READ,
        summary="Read the state of the shards and of the cluster.",
        description=(
            "Reads the state of each shard, as its replica on this node sees it. In a cluster,"
            " `cluster` has all nodes and replicas, and a reason for each that is not well."
        ),
        gives={200: ClusterStatus},
    ),
    _get_row(
        path="/api/v1/debug/runtime",
        endpoint=runtime,
        action=Action.ADMIN,
        rights=EVERYTHING,
        summary="Read the resources of the node's processes.",
        description="Reads memory, processor time and open files of each process of the node.",
        gives={200: Runtime},
    ),
    _get_row(
        path="/api/v1/admin/mirror",
        endpoint=get_mirror,
        action=Action.ADMIN,
        rights=EVERYTHING,
        summary="Read the state of the mirror.",
        description="Reads how far the mirror has read each shard, and what it costs.",
        gives={200: MirrorBody},
        gives_example={
            "status": "following",
            "shards": [
                {
                    "shard": 2,
                    "index": 1_042,
                    "at": "2026-02-20T10:00:07.25Z",
                    "lag_entries": 3,
                    "lag_ms": 12,
                    "is_linked": True,
                    "is_whole": True,
                    "passes": 0,
                    "changes": 51_200,
                }
            ],
            "file_bytes": 73_400_320,
            "jobs": 128,
            "questions": 9_301,
            "interrupted": 2,
            "schema": 1,
            "resident_bytes": 62_914_560,
            "cpu_seconds": 41.5,
        },
    ),
    Route(
        method="POST",
        path="/api/v1/admin/rebuild-sqlite",
        endpoint=rebuild,
        tag="Node",
        action=Action.ADMIN,
        rights=EVERYTHING,
        summary="Rebuild the mirror from the shards",
        description=(
            "Rebuilds the mirror from the shards. Searches continue meanwhile, with `is_whole`"
            " false."
        ),
        gives={202: Rebuilding},
        problems=(501,),
    ),
)
