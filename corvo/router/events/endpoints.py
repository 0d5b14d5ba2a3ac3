"""The endpoint of `/api/v1/events`."""

import re
from typing import Final

from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT
from corvo.router.bulk.endpoints import read_bulk
from corvo.router.bulk.requests import job_id_of
from corvo.router.caller import Caller
from corvo.router.events.boards import Board
from corvo.router.events.cursors import Begin
from corvo.router.events.listening import GoneBody, Listener, PlaceGone
from corvo.router.events.topics import Topics, read_topics
from corvo.router.feeds.events import LiveEvent, read_filter
from corvo.router.http import sse
from corvo.router.http.messages import Request, Response, Sink, bad_field, encode_json
from corvo.router.jobs.endpoints import read_job
from corvo.router.routes import Parameter, Route
from corvo.router.search.endpoints import summary
from corvo.router.summary import SummaryBody
from corvo.times import MS


async def listen(api: Api, request: Request) -> Response:
    """Send what happens, from a place on or from now on."""
    event_filter, topics = read_filter(request.query), read_topics(request.query)
    # A browser that comes again has the newer one in the header, and asks by the same address.
    told_id = request.headers.get("last-event-id") or request.query.get("last_event_id", "")
    begin = read_begin(told_id, request.query.get("ids", ""), len(api.shards))
    headers = list(sse.HEADERS)
    if request.method == "HEAD":
        return Response(content_type=sse.CONTENT_TYPE, headers=headers, stream=_nothing)
    board = _board(api, topics) if topics is not None else None
    if board is not None and not board.has_tail:
        begin = Begin()  # how things are is told from the beginning anyway
    listener = Listener(api, request, event_filter, begin, board)
    listener.enter()
    is_ready = False
    try:
        await listener.settle()
        is_ready = True
    except PlaceGone as gone:
        api.metrics.refuse(gone.body.code)
        return Response(status=410, body=encode_json(gone.body) + b"\n")
    finally:
        if not is_ready:
            listener.leave()
    return Response(
        content_type=sse.CONTENT_TYPE,
        headers=headers,
        stream=listener.run,
        undelivered=listener.take_back,
    )


def read_begin(last_id: str, ids: str, shards: int) -> Begin:
    """Where a client goes on, and which ids it gets: those that it has, or asks for.

    Raises `Problem`.
    """
    if ids not in {"", "position", "number"}:
        raise bad_field("ids", f"unknown form of ids {ids[:80]!r}; expected position or number")
    if _NUMBER.fullmatch(last_id.strip()):
        since_ns = min(max(1, int(last_id) * MS), _LATEST_NS)
        return Begin(is_numbered=ids != "position", since_ns=since_ns)
    if ids == "number" and last_id:
        raise bad_field(
            "last_event_id",
            f"last_event_id: expected a number with ids=number, such as 1763490000000; got "
            f"{last_id[:40]!r}",
        )
    return Begin(sse.parse(last_id, shards), is_numbered=ids == "number")


_NUMBER: Final = re.compile("[0-9]{1,15}", re.ASCII)
_LATEST_NS: Final = (1 << 63) - 1


def _board(api: Api, topics: Topics) -> Board:
    async def sum_up(caller: Caller) -> SummaryBody:
        return await summary(api, caller)

    async def look(caller: Caller, thing: str) -> bytes:
        read = read_bulk if job_id_of(thing) else read_job
        return (await read(api, caller, thing)).body

    jobs = {job_id_of(thing) or thing: thing for thing in topics.watched}
    return Board(topics, api.summaries, sum_up, look, jobs)


async def _nothing(_: Sink) -> None:
    """For whoever wants to know only what it would be."""


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/events",
        endpoint=listen,
        tag="Events",
        action=Action.READ,
        rights=RESULT,
        summary="Follow events as server-sent events.",
        description=(
            "Sends events of jobs and queues as server-sent events, until the client disconnects."
            " A client continues with the id of the last event that it has."
        ),
        gives={200: LiveEvent, 410: GoneBody},
        content_type=sse.CONTENT_TYPE,
        is_streamed=True,
        is_parked=True,
        query=(
            Parameter(
                "queues",
                "string",
                "Events of these queues: names with commas between them. Default: all.",
            ),
            Parameter(
                "job_ids",
                "string",
                "Events of these jobs: ids with commas between them. Default: all.",
            ),
            Parameter(
                "types", "string", "Events of these types, with commas between them. Default: all."
            ),
            Parameter(
                "topics",
                "string",
                "For dashboards: `summary`, `events`, `watch:ID`, with commas between them.",
            ),
            Parameter(
                "ids",
                "string",
                "Form of the ids: `position`, or `number` for clients of numeric ids. Default:"
                " `number` if the last id is a number, else `position`.",
                pattern="^(position|number)?$",
            ),
            Parameter(
                "last_event_id",
                "string",
                "Resume after this event. The header `Last-Event-ID` takes precedence.",
            ),
        ),
    ),
)
