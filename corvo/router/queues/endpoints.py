"""Endpoints of queues: list, read, pause, limits, retention, clear and delete."""

from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from corvo.protocol.ops.base import NAME_BYTES_MAX
from corvo.protocol.ops.queues import (
    Clear,
    DeleteQueue,
    Drain,
    Pause,
    QueueDone,
    QueueOp,
    RemoveThrottle,
    Resume,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.protocol.queries import GetQueue, GetQueues, Queues, QueueView
from corvo.protocol.questions import GetRates
from corvo.router.api import Api
from corvo.router.ask import PART, Lists, read_lists
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT, queue_in_path
from corvo.router.caller import Caller
from corvo.router.http import params
from corvo.router.http.bodies import Body, body_of, not_reserved
from corvo.router.http.messages import Problem, Request, Response, json_response
from corvo.router.http.request_keys import request_key
from corvo.router.queues.bodies import (
    PAGE_MAX,
    QueueBody,
    QueueDoneBody,
    QueueRates,
    SetConcurrencyBody,
    SetRetentionBody,
    SetThrottleBody,
    queue_body,
    read_rates,
)
from corvo.router.routes import Endpoint, Parameter, Route
from corvo.scopes import RESERVED, Scope, is_reserved

_NAMED_MAX: Final = 100
"""Queues that the mirror is asked for by their names; for more it tells all."""
_QUIET: Final = QueueRates()

_read_concurrency: Final = Body(SetConcurrencyBody)
_read_throttle: Final = Body(SetThrottleBody)
_read_retention: Final = Body(SetRetentionBody)
_read_view: Final = msgspec.json.Decoder(QueueView).decode
_read_views: Final = msgspec.json.Decoder(Queues).decode
_read_done: Final = msgspec.json.Decoder(QueueDone).decode


# Looking.


async def list_queues(api: Api, request: Request) -> Response:
    """All queues, by name. What is beyond the limit is behind the link `next`."""
    limit = params.number_of(request, "limit", default=PAGE_MAX, at_most=PAGE_MAX)
    behind: str | None = params.after_of(request)
    caller = request.caller
    shows_reserved = request.query.get("reserved") == "true"
    found: list[QueueView] = []
    seen: dict[int, int] = {}
    following = ""
    # Where a page ends is told, so it is a queue that may be seen. What may not be is passed over
    # here, from one name of the scope to the next: there are no more parts than a scope has names.
    while behind is not None:
        part = limit if not seen else min(limit, PART)
        lists = await read_lists(api, caller, GetQueues, _read_views, after=behind, limit=part)
        seen = {**lists.seen, **seen}
        found += _visible(caller, lists, shows_reserved=shows_reserved)
        if len(found) > limit:
            following = found[limit - 1].queue.name
            break
        behind = _skip(lists.reached, caller.scope, shows_reserved=shows_reserved)
        if behind == lists.reached:
            following = behind
            break
    shown = found[:limit]
    rates = await _rates(api, caller, [view.queue.name for view in shown])
    headers = _told_without(rates)
    if following:
        url = f"/api/v1/queues?after={quote(following, safe='')}&limit={limit}"
        url += "&reserved=true" if shows_reserved else ""
        headers.append(("link", f'<{url}>; rel="next"'))
    bodies = [queue_body(view, _rates_of(rates, view)) for view in shown]
    return json_response([*bodies], reached=seen, headers=headers)


def _visible(caller: Caller, lists: Lists[Queues], *, shows_reserved: bool) -> list[QueueView]:
    """The queues of the caller's scope, by name, as far as all lists were read."""
    found = [
        view
        for page in lists.pages
        for view in page.queues
        if (not lists.reached or view.queue.name <= lists.reached)
        and view.exists
        and caller.scope.covers(view.queue.name)
        and (shows_reserved or not is_reserved(view.queue.name))
    ]
    return sorted(found, key=lambda view: view.queue.name)


def _skip(name: str, scope: Scope, *, shows_reserved: bool) -> str | None:
    """A name behind which the next queue is that may be seen: this one, if it may be itself.

    None when there is none behind it, or this is the end.
    """
    if not name:
        return None
    if is_reserved(name) and not shows_reserved:
        return RESERVED + _BEHIND_ALL
    if scope.covers(name):
        return name
    beginnings = (one.removesuffix("*") for one in scope.names)
    following = min((one for one in beginnings if one > name), default=None)
    return None if following is None else _ahead_of(following)


_BEHIND_ALL: Final = "\U0010ffff" * (NAME_BYTES_MAX // 4 + 1)
"""Longer than a name may be, and of the last letter there is."""


def _ahead_of(name: str) -> str:
    """A text with no name of a queue between it and this one."""
    last = ord(name[-1])
    # Surrogates are no letters of a text, and what is before a blank is none of a name.
    return name[:-1] + chr(0xD7FF if last == 0xE000 else last - 1) + _BEHIND_ALL


async def all_queues(api: Api, caller: Caller) -> list[QueueView]:
    """The queues of all shards, as many as one answer lists. Raises `Problem`."""
    lists = await read_lists(api, caller, GetQueues, _read_views, after="", limit=PAGE_MAX)
    views = [view for page in lists.pages for view in page.queues]
    return sorted(views, key=lambda view: view.queue.name)[:PAGE_MAX]


async def _rates(api: Api, caller: Caller, names: list[str]) -> dict[str, QueueRates] | None:
    """What went on in queues; None while nobody can say it at once."""
    wanted = tuple(names) if len(names) <= _NAMED_MAX else ()
    answer = await api.mirror.ask_now(GetRates(queues=wanted), caller.as_of({}))
    return read_rates(answer.body) if answer is not None else None


def _rates_of(rates: dict[str, QueueRates] | None, view: QueueView) -> QueueRates | None:
    return None if rates is None else rates.get(view.queue.name, _QUIET)


def _told_without(rates: dict[str, QueueRates] | None) -> list[tuple[str, str]]:
    return [] if rates is not None else [("corvo-left-out", "rates")]


async def get_queue(api: Api, request: Request) -> Response:
    """One queue."""
    name = params.queue_of(request)
    shard = api.shards.of_queue(name).number
    answer = await api.ask(shard, GetQueue(queue=name), request.caller)
    view = _read_view(answer.body)
    if not view.exists:
        raise Problem(404, "NOT_FOUND", f"queue {name!r} not found")
    rates = await _rates(api, request.caller, [name])
    body = queue_body(view, _rates_of(rates, view))
    reached = {shard: answer.index}
    return json_response(body, reached=reached, headers=_told_without(rates))


# Changing.


class _MakeOp(Protocol):
    def __call__(self, *, queue: str, by: str) -> QueueOp: ...


def changing(op: type[QueueOp]) -> Endpoint:
    """The endpoint of an op on one queue that needs no body."""

    async def change(api: Api, request: Request) -> Response:
        return await _change(api, request, op)

    return change


async def set_concurrency(api: Api, request: Request) -> Response:
    """Limit how many jobs may be active; 0 and less is no limit."""
    body = body_of(request, _read_concurrency)
    make = partial(SetConcurrency, max=max(0, body.max))
    return await _change(api, request, make, body.request_key)


async def set_throttle(api: Api, request: Request) -> Response:
    """Limit how many jobs may be fetched within a window."""
    body = body_of(request, _read_throttle)
    make = partial(SetThrottle, rate=body.rate, window_ms=body.span_ms)
    return await _change(api, request, make, body.request_key)


async def set_retention(api: Api, request: Request) -> Response:
    """Say how long finished jobs are kept."""
    body = body_of(request, _read_retention)
    make = partial(SetRetention, retention_ms=body.span_ms)
    return await _change(api, request, make, body.request_key)


async def _change(api: Api, request: Request, make: _MakeOp, key: str | None = None) -> Response:
    """Carry an op out on the queue in the path, which comes into being where it is not there.

    `key` is the request key in the body.
    """
    name = params.queue_of(request)
    not_reserved("name", name)
    op = request_key(request, key).on(make(queue=name, by=request.caller.name), "queue", 0, name)
    shard = api.shards.of_queue(name)
    answer = await shard.submit(op)
    body = QueueDoneBody(status=_read_done(answer.body).status, queue=name)
    return json_response(body, reached={shard.number: answer.index})


_QUEUE: Final = "/api/v1/queues/{name}"
_NAMED: Final = queue_in_path("name")


_change_row: Final = partial(
    Route,
    method="POST",
    tag="Queues",
    action=Action.OPERATE,
    rights=_NAMED,
    gives={200: QueueDoneBody},
)
_read_row: Final = partial(Route, method="GET", tag="Queues", action=Action.READ, has_min_seq=True)

ROUTES: Final[tuple[Route, ...]] = (
    _read_row(
        path="/api/v1/queues",
        endpoint=list_queues,
        rights=RESULT,
        summary="List queues with settings, job counts and rates",
        description=(
            "Lists queues by name with their settings, job counts and rates. Beyond `limit`,"
            " follow the `Link` header."
        ),
        gives={200: list[QueueBody]},
        gives_example=[
            {
                "name": "mail",
                "paused": False,
                "pending": 4,
                "active": 1,
                "held": 0,
                "completed": 120,
                "dead": 2,
                "scheduled": 0,
                "retrying": 1,
                "cancelled": 0,
                "enqueued": 128,
                "failed": 3,
                "created_at": "2026-02-20T09:00:00Z",
                "max_concurrency": 20,
                "oldest_pending_at": "2026-02-20T09:59:59.5Z",
                "rates": {
                    "enqueued_1m": 60,
                    "started_1m": 61,
                    "completed_1m": 58,
                    "failed_1m": 3,
                    "enqueued_5m": 290,
                    "started_5m": 295,
                    "completed_5m": 281,
                    "failed_5m": 14,
                },
            }
        ],
        query=(
            Parameter(
                "after",
                "string",
                "Queues after this name. Default: from the first.",
                0,
                NAME_BYTES_MAX,
            ),
            Parameter("limit", "integer", f"Number of queues. Default: {PAGE_MAX:,}.", 1, PAGE_MAX),
            Parameter(
                "reserved",
                "boolean",
                "Whether to include the queues of the server. Default: false.",
            ),
        ),
    ),
    _read_row(
        path=_QUEUE,
        endpoint=get_queue,
        rights=_NAMED,
        summary="Read a queue with settings and job counts",
        description="Reads one queue.",
        gives={200: QueueBody},
        problems=(404,),
    ),
    _change_row(
        path=f"{_QUEUE}/pause",
        endpoint=changing(Pause),
        summary="Pause a queue",
        description="Fetches get no jobs from the queue until it is resumed.",
        gives_example={"status": "paused", "queue": "mail"},
    ),
    _change_row(
        path=f"{_QUEUE}/resume",
        endpoint=changing(Resume),
        summary="Resume a queue",
        description="Fetches get jobs from the queue again.",
    ),
    _change_row(
        path=f"{_QUEUE}/drain",
        endpoint=changing(Drain),
        summary="Pause a queue until its active jobs have ended (drain)",
        description=(
            "Pauses the queue. Active jobs continue; the queue is drained when none is left."
        ),
    ),
    _change_row(
        path=f"{_QUEUE}/clear",
        endpoint=changing(Clear),
        summary="Delete the pending, scheduled and retrying jobs of a queue",
        description="Deletes the pending, scheduled and retrying jobs of a queue.",
    ),
    _change_row(
        path=f"{_QUEUE}/concurrency",
        endpoint=set_concurrency,
        summary="Limit the active jobs of a queue",
        description="Limits how many jobs of the queue are active at a time.",
        takes=SetConcurrencyBody,
        takes_example={"max": 20},
    ),
    _change_row(
        path=f"{_QUEUE}/throttle",
        endpoint=set_throttle,
        summary="Set the rate limit of a queue",
        description="Limits how many jobs of the queue are fetched in any window of time.",
        takes=SetThrottleBody,
        takes_example={"rate": 100, "window": "1m"},
    ),
    _change_row(
        method="DELETE",
        path=f"{_QUEUE}/throttle",
        endpoint=changing(RemoveThrottle),
        summary="Remove the rate limit",
        description="Removes the rate limit of the queue.",
    ),
    _change_row(
        path=f"{_QUEUE}/retention",
        endpoint=set_retention,
        summary="Set how long a queue keeps finished jobs",
        description=(
            "Sets how long finished jobs of the queue are kept. 0 means the server's setting"
            " `retention`."
        ),
        takes=SetRetentionBody,
        takes_example={"retention": "168h"},
    ),
    _change_row(
        method="DELETE",
        path=_QUEUE,
        endpoint=changing(DeleteQueue),
        summary="Delete a queue with its settings and all its jobs",
        description="Deletes a queue with its settings and all of its jobs.",
    ),
)
