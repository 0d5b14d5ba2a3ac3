"""Endpoints of searches, full text, timelines and the summary."""

from collections.abc import Iterator
from typing import Final

import msgspec

from corvo import clock
from corvo.protocol.queries import Form
from corvo.protocol.questions import (
    LIMIT_MAX,
    TEXT_BYTES_MAX,
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
from corvo.router.auth.rights import RESULT, Rights, found_by_path
from corvo.router.caller import Caller
from corvo.router.http import params, positions
from corvo.router.http.bodies import read_body
from corvo.router.http.messages import Request, Response, json_response, raw_response
from corvo.router.jobs.bodies import read_stored
from corvo.router.jobs.find import find_job
from corvo.router.jobs.timeline import Timeline, timeline
from corvo.router.queues.endpoints import all_queues
from corvo.router.routes import Endpoint, Parameter, Route
from corvo.router.search import bodies
from corvo.router.search.bodies import QUERY_TEXT_MAX, FoundBody, TextFoundBody
from corvo.router.summary import (
    SummaryBody,
    SummaryShard,
    mirror_status,
    queues_at_a_glance,
    summary_queues,
    totals,
)
from corvo.router.texts.fields import FIELDS, key_of
from corvo.router.workers.endpoints import count_workers
from corvo.scopes import is_reserved
from corvo.times import format_time

_PATIENCE_S: Final = 1.0
"""How long a summary waits for the mirror before it is made without it."""
_read_search: Final = msgspec.json.Decoder(SearchBody).decode
_read_summary: Final = msgspec.json.Decoder(Told).decode


# Searches.


async def search(api: Api, request: Request) -> Response:
    """Search jobs."""
    wanted = read_body(_read_search, request.body or b"{}")
    return _pass_on(await api.mirror.ask(Search(search=wanted), request.caller))


async def list_jobs(api: Api, request: Request) -> Response:
    """The same, with the filter in the query."""
    wanted = bodies.read_query(request.query)
    return _pass_on(await api.mirror.ask(Search(search=wanted), request.caller))


async def full_text(api: Api, request: Request) -> Response:
    """Jobs that have words in their id, queue, payload or tags."""
    text = params.text_of(request, "q", at_most=TEXT_BYTES_MAX)
    limit = params.number_of(request, "limit", default=50, at_most=LIMIT_MAX)
    return _pass_on(await api.mirror.ask(FullText(q=text, limit=limit), request.caller))


def _pass_on(answer: MirrorAnswer) -> Response:
    """An answer of the mirror as it is, and the positions that it is of."""
    seq = positions.render(answer.positions)
    return raw_response(answer.body, seq=seq)


# One job.


async def get_timeline(api: Api, request: Request) -> Response:
    """Read the history of a job with durations."""
    job, _, seen = await find_job(api, request.caller, params.job_id_of(request), Form.STORED)
    return json_response(
        timeline(read_stored(job.json), clock.now_ns()), seq=positions.render(seen)
    )


# The summary.


async def summary(api: Api, caller: Caller) -> SummaryBody:
    """Everything at a glance that the caller's scope has. Raises `Problem`.

    While the mirror is away, the shards are asked, which know no rates.
    """
    answer = await api.mirror.ask_now(GetSummary(), caller, patience_s=_PATIENCE_S)
    told = _read_summary(answer.body) if answer is not None else Told(queues=[])
    queues = summary_queues(told.queues)
    if answer is None:
        queues = queues_at_a_glance(await all_queues(api, caller))
    shown = [
        queue for queue in queues if caller.scope.covers(queue.name) and not is_reserved(queue.name)
    ]
    return SummaryBody(
        at=format_time(clock.now_ns()),
        queues=shown,
        totals=totals(shown),
        workers=await count_workers(api, caller),
        shards=[
            SummaryShard(
                shard=shard.number,
                status="up" if shard.is_up else "away",
                leader=shard.leader,
                mirror=mirror_status(told.as_of, shard.number),
            )
            for shard in api.shards
        ],
        source="mirror" if answer is not None else "shards",
        as_of=told.as_of,
    )


async def get_summary(api: Api, request: Request) -> Response:
    """Everything at a glance, for a dashboard."""
    told = await summary(api, request.caller)
    return json_response(told, seq=positions.render(positions_of(told.as_of)))


_WRITTEN: Final = {
    "state": ("state", "States, separated by commas."),
    "tags": ("tag", "One tag, as `tenant:acme`."),
}
"""Filters that a query writes otherwise than a body: the parameter and its description."""


def _filters() -> Iterator[Parameter]:
    """Every field of a search as a parameter of the query: see `seeing.read_query`."""
    kinds = msgspec.inspect.type_info(SearchBody)
    assert isinstance(kinds, msgspec.inspect.StructType)
    for field in kinds.fields:
        assert isinstance(field.type, msgspec.inspect.UnionType)
        about = FIELDS[key_of("SearchBody", field.name)].about
        name, about = _WRITTEN.get(field.name, (field.name, about))
        kind = field.type.types[0]
        match kind:
            case msgspec.inspect.BoolType():
                yield Parameter(name, "boolean", about)
            case msgspec.inspect.IntType():
                most = kind.le if kind.lt is None else kind.lt - 1
                yield Parameter(name, "integer", about, kind.ge, most)
            case _:
                yield Parameter(name, "string", about, None, QUERY_TEXT_MAX)


def _row(
    method: str,
    path: str,
    endpoint: Endpoint,
    summary: str,
    gives: type,
    *query: Parameter,
    takes: type[msgspec.Struct] | None = None,
    problems: tuple[int, ...] = (501,),
    rights: Rights = RESULT,
) -> Route:
    return Route(
        method=method,
        path=path,
        endpoint=endpoint,
        action=Action.READ,
        rights=rights,
        summary=summary,
        takes=takes,
        gives={200: gives},
        query=query,
        problems=problems,
        has_min_seq=True,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _row(
        "POST",
        "/api/v1/jobs/search",
        search,
        "Search jobs",
        FoundBody,
        takes=SearchBody,
    ),
    _row(
        "GET",
        "/api/v1/jobs",
        list_jobs,
        "Search jobs, with the filter in the query",
        FoundBody,
        *_filters(),
    ),
    _row(
        "GET",
        "/api/v1/search/fulltext",
        full_text,
        "Search jobs by words in id, queue, payload or tags",
        TextFoundBody,
        Parameter("q", "string", "The words to search for. Required.", 1, TEXT_BYTES_MAX),
        Parameter("limit", "integer", "Number of jobs on a page. Default: 50.", 1, LIMIT_MAX),
    ),
    _row(
        "GET",
        "/api/v1/jobs/{id}/timeline",
        get_timeline,
        "Read the history of a job with durations",
        Timeline,
        problems=(404, 413),
        rights=found_by_path("id"),
    ),
    _row(
        "GET",
        "/api/v1/summary",
        get_summary,
        "Read queues, workers and shards at a glance",
        SummaryBody,
    ),
)
