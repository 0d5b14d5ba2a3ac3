"""Endpoints of searches, full text, timelines and the summary."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo import clock
from corvo.protocol.queries import Form
from corvo.protocol.questions import (
    LIMIT_MAX,
    SUMMARY_MINUTES_MAX,
    TEXT_BYTES_MAX,
    Freshness,
    FullText,
    GetSummary,
    MirrorAnswer,
    Search,
    SearchBody,
    positions_of,
)
from corvo.protocol.questions import Summary as Told
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT, found_by_path
from corvo.router.caller import Caller
from corvo.router.cluster.asking import reachable
from corvo.router.http import params
from corvo.router.http.bodies import Body, body_of
from corvo.router.http.messages import Request, Response, json_response, raw_response
from corvo.router.jobs.bodies import read_stored
from corvo.router.jobs.find import find_job
from corvo.router.jobs.timeline import Timeline, timeline
from corvo.router.queues.endpoints import all_queues
from corvo.router.routes import CONSISTENCY, EXAMPLE_ID, READS, Parameter, Route
from corvo.router.search import bodies
from corvo.router.search.bodies import QUERY_TEXT_MAX, FoundBody, TextFoundBody
from corvo.router.summary import (
    NOTHING_TOLD,
    SummaryBody,
    SummaryCluster,
    SummaryShard,
    continued,
    mirror_status,
    queues_at_a_glance,
    summary_cluster,
    totals,
    with_workers,
)
from corvo.router.workers.endpoints import count_workers
from corvo.scopes import is_reserved
from corvo.times import format_time

_PATIENCE_S: Final = 1.0
"""How long a summary waits for the mirror before it is made without it."""
_read_search: Final = Body(SearchBody)
_read_summary: Final = msgspec.json.Decoder(Told).decode


# Searches.


async def search(api: Api, request: Request) -> Response:
    """Search jobs."""
    return await _search(api, request.caller, body_of(request, _read_search))


async def list_jobs(api: Api, request: Request) -> Response:
    """The same, with the filter in the query."""
    return await _search(api, request.caller, bodies.read_query(request.query))


async def _search(api: Api, caller: Caller, wanted: SearchBody) -> Response:
    shards = api.shards_of(caller.scope, wanted.queue)
    freshness = await api.freshness(caller, wanted.consistency, shards)
    # A cursor belongs to a filter, whether or not its page waits.
    question = Search(search=replace(wanted, consistency=None))
    return _pass_on(await api.mirror.ask(question, caller, freshness=freshness))


async def full_text(api: Api, request: Request) -> Response:
    """Jobs that have words in their id, queue, payload or tags."""
    text = params.text_of(request, "q", at_most=TEXT_BYTES_MAX)
    limit = params.number_of(request, "limit", default=50, at_most=LIMIT_MAX)
    consistency, caller = params.consistency_of(request), request.caller
    freshness = await api.freshness(caller, consistency, api.shards_of(caller.scope))
    question = FullText(q=text, limit=limit)
    return _pass_on(await api.mirror.ask(question, caller, freshness=freshness))


def _pass_on(answer: MirrorAnswer) -> Response:
    """An answer of the mirror as it is, and the positions that it is of."""
    return raw_response(answer.body, answer.positions)


# One job.


async def get_timeline(api: Api, request: Request) -> Response:
    """Read the history of a job with durations."""
    caller = params.reader_of(request)
    job, _, seen = await find_job(api, caller, params.job_id_of(request), Form.STORED)
    response = json_response(timeline(read_stored(job.json), clock.now_ns()), reached=seen)
    return params.with_contact(response, caller)


# The summary.


async def summary(
    api: Api, caller: Caller, freshness: Freshness | None = None, *, minutes: int = 0
) -> SummaryBody:
    """Everything at a glance that the caller's scope has. Raises `Problem`.

    While the mirror is away, the shards are asked, which know no rates.
    """
    last = api.summaries.last(caller)
    question = GetSummary(minutes=minutes, known=last.mark, known_minute=last.minute)
    answer = await api.mirror.ask_now(question, caller, freshness=freshness, patience_s=_PATIENCE_S)
    told = continued(last, _read_summary(answer.body)) if answer is not None else NOTHING_TOLD
    queues = told.queues
    if answer is None:
        queues = queues_at_a_glance(await all_queues(api, caller))
    workers = await count_workers(api, caller)
    shown = with_workers(
        [
            queue
            for queue in queues
            if caller.scope.covers(queue.name) and not is_reserved(queue.name)
        ],
        workers.by_queue,
    )
    if answer is not None and not minutes:
        api.summaries.keep(caller, replace(told, queues=shown))
    return SummaryBody(
        at=format_time(clock.now_ns()),
        minute=told.minute or msgspec.UNSET,
        queues=shown,
        totals=totals(shown),
        workers=workers.by_state,
        shards=[
            SummaryShard(
                shard=shard.number,
                status="up" if shard.is_up else "away",
                leader=shard.leader,
                term=shard.led_term,
                mirror=mirror_status(told.as_of, shard.number),
            )
            for shard in api.shards
        ],
        cluster=_cluster(api),
        source="mirror" if answer is not None else "shards",
        as_of=told.as_of,
        is_behind=told.is_behind,
    )


def _cluster(api: Api) -> SummaryCluster | msgspec.UnsetType:
    if api.config.map is None:
        return msgspec.UNSET
    return summary_cluster(
        api.topology.map,
        own=api.config.node,
        reachable=reachable(api),
        voters={shard: each.voters for shard, each in api.history.members.items()},
    )


async def get_summary(api: Api, request: Request) -> Response:
    """Everything at a glance, for a dashboard."""
    consistency, caller = params.consistency_of(request), request.caller
    minutes = params.number_of(request, "minutes", default=0, at_most=SUMMARY_MINUTES_MAX)
    if consistency == "stale" and not (minutes or caller.min_seq):
        told = await api.summaries.get(caller, partial(summary, api))
    else:
        freshness = await api.freshness(caller, consistency, api.shards_of(caller.scope))
        told = await summary(api, caller, freshness, minutes=minutes)
    return json_response(told, reached=positions_of(told.as_of))


_WRITTEN: Final = {
    "tags": ("tag", "One tag, as `tenant:acme`."),
}
"""Filters that a query writes otherwise than a body: the parameter and its description."""


def _filters() -> Iterator[Parameter]:
    """Every field of a search as a parameter of the query: see `seeing.read_query`."""
    kinds = msgspec.inspect.type_info(SearchBody)
    assert isinstance(kinds, msgspec.inspect.StructType)
    for field in kinds.fields:
        assert isinstance(field.type, msgspec.inspect.UnionType)
        name, about = _WRITTEN.get(field.name, (field.name, ""))
        kind = field.type.types[0]
        match kind:
            case msgspec.inspect.BoolType():
                yield Parameter(name, "boolean", about, of="SearchBody")
            case msgspec.inspect.IntType():
                most = kind.le if kind.lt is None else kind.lt - 1
                yield Parameter(name, "integer", about, kind.ge, most, of="SearchBody")
            case msgspec.inspect.LiteralType():
                yield CONSISTENCY
            case _:
                yield Parameter(name, "string", about, None, QUERY_TEXT_MAX, of="SearchBody")


_row: Final = partial(
    Route,
    tag="Jobs",
    action=Action.READ,
    rights=RESULT,
    problems=(501,),
    has_min_seq=True,
)
_AS_OF: Final = {"s2": {"index": 1_042, "at": "2026-02-20T10:00:07.25Z", "is_whole": True}}
_PAGE: Final[dict[str, object]] = {
    "jobs": [
        {
            "id": EXAMPLE_ID,
            "queue": "mail",
            "state": "dead",
            "payload": {"to": "ada@example.org"},
            "priority": 2,
            "attempt": 5,
            "max_retries": 5,
            "tags": {"tenant": "acme"},
            "created_at": "2026-02-20T09:59:59.5Z",
            "failed_at": "2026-02-20T10:00:00.123456789Z",
            "finished_at": "2026-02-20T10:00:00.123456789Z",
            "last_error": "the server said 450",
            "failures": 5,
            "changed_at": "2026-02-20T10:00:00.123456789Z",
        }
    ],
    "total": 128,
    "total_is_exact": True,
    "cursor": "eyJhdCI6IjIwMjYifQ",
    "has_more": True,
    "duration_ms": 1,
    "as_of": _AS_OF,
    "is_behind": False,
}

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        method="POST",
        path="/api/v1/jobs/search",
        endpoint=search,
        summary="Search jobs",
        description=(
            "Searches jobs with the filter in the body. The mirror answers; `as_of` says how far"
            " it has read each shard."
        ),
        takes=SearchBody,
        takes_example={
            "queue": "mail",
            "state": ["dead", "retrying"],
            "tags": {"tenant": "acme"},
            "created_after": "2026-02-20T00:00:00Z",
            "sort": "created_at",
            "order": "desc",
            "limit": 50,
        },
        gives={200: FoundBody},
        gives_example=_PAGE,
    ),
    _row(
        method="GET",
        path="/api/v1/jobs",
        endpoint=list_jobs,
        summary="Search jobs, with the filter in the query",
        description=(
            "Searches jobs with the filter in the query. The mirror answers; `as_of` says how far"
            " it has read each shard."
        ),
        gives={200: FoundBody},
        gives_example=_PAGE,
        query=tuple(_filters()),
    ),
    _row(
        method="GET",
        path="/api/v1/search/fulltext",
        endpoint=full_text,
        summary="Search jobs by words in id, queue, payload or tags",
        description=(
            "Finds jobs that contain all of the words in id, queue, payload or tags. Supports"
            ' "phrases", prefixes (`wel*`) and exclusion (`-test`).'
        ),
        gives={200: TextFoundBody},
        gives_example={
            "q": "ada example",
            "results": [
                {
                    "id": EXAMPLE_ID,
                    "queue": "mail",
                    "state": "dead",
                    "payload": '{"to":"ada@example.org"}',
                    "tags": '{"tenant":"acme"}',
                    "created_at": "2026-02-20T09:59:59.5Z",
                }
            ],
            "duration_ms": 2,
            "as_of": _AS_OF,
            "is_behind": False,
        },
        query=(
            Parameter("q", "string", "The words to search for. Required.", 1, TEXT_BYTES_MAX),
            Parameter("limit", "integer", "Number of jobs on a page. Default: 50.", 1, LIMIT_MAX),
            CONSISTENCY,
        ),
    ),
    _row(
        method="GET",
        path="/api/v1/jobs/{id}/timeline",
        endpoint=get_timeline,
        query=(READS,),
        rights=found_by_path("id"),
        summary="Read the history of a job with durations",
        description=(
            "Lists the events and errors of a job in order, and how long it was in each phase."
        ),
        gives={200: Timeline},
        gives_example={
            "job_id": EXAMPLE_ID,
            "queue": "mail",
            "state": "retrying",
            "moments": [
                {
                    "at": "2026-02-20T09:59:59.5Z",
                    "what": "enqueued",
                    "by": "shop",
                    "phase": "queued",
                    "ms": 500,
                },
                {
                    "at": "2026-02-20T10:00:00Z",
                    "what": "started",
                    "by": "worker-1",
                    "phase": "running",
                    "ms": 123,
                },
                {
                    "at": "2026-02-20T10:00:00.123456789Z",
                    "what": "failed",
                    "by": "worker-1",
                    "why": "the server said 450",
                    "phase": "retrying",
                    "ms": 2000,
                    "error": {
                        "id": 1,
                        "job_id": EXAMPLE_ID,
                        "attempt": 1,
                        "error": "the server said 450",
                        "worker_id": "worker-1",
                        "created_at": "2026-02-20T10:00:00.123456789Z",
                    },
                },
            ],
            "phases_ms": {"queued": 500, "running": 123, "retrying": 2000},
        },
        problems=(404, 413),
    ),
    _row(
        method="GET",
        path="/api/v1/summary",
        endpoint=get_summary,
        tag="Queues",
        summary="Read queues, workers and shards at a glance",
        description="Reads queues, workers and shards for a dashboard in one request.",
        gives={200: SummaryBody},
        query=(
            Parameter(
                "minutes",
                "integer",
                "Number of last whole minutes that `minutes` of each queue has. Default: 0.",
                1,
                SUMMARY_MINUTES_MAX,
            ),
            CONSISTENCY,
        ),
        gives_example={
            "at": "2026-02-20T10:00:07.5Z",
            "minute": "2026-02-20T10:00:00Z",
            "queues": [
                {
                    "name": "mail",
                    "paused": False,
                    "counts": {
                        "pending": 4,
                        "active": 1,
                        "dead": 2,
                    },
                    "workers": 3,
                    "enqueued_1m": 60,
                    "completed_1m": 58,
                    "failed_1m": 3,
                    "enqueued_this_minute": 8,
                    "completed_this_minute": 7,
                    "failed_this_minute": 0,
                    "oldest_pending_at": "2026-02-20T09:59:59.5Z",
                }
            ],
            "totals": {"pending": 4, "active": 1, "dead": 2},
            "workers": {"alive": 3, "not_fetching": 0},
            "shards": [
                {
                    "shard": 2,
                    "status": "up",
                    "leader": 1,
                    "term": 3,
                    "mirror": "following",
                }
            ],
            "source": "mirror",
            "as_of": _AS_OF,
            "is_behind": False,
        },
    ),
)
