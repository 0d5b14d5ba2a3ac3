"""Endpoints of bulk operations: begin, read, list, watch and cancel."""

from collections import Counter
from functools import partial
from secrets import token_hex
from typing import Final

import msgspec
import trio

from corvo import clock
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.jobs import Cancel
from corvo.protocol.queries import Form, GetJobs, GetNewest, Jobs, Newest, StoredJob
from corvo.protocol.questions import Counted
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT, found_by_path, in_body
from corvo.router.bulk import executor
from corvo.router.bulk.requests import (
    FINAL,
    LIST,
    LIST_MAX,
    QUEUE,
    BulkAnswer,
    BulkBegun,
    BulkBody,
    BulkList,
    BulkStatus,
    Mark,
    Order,
    answer_of,
    begun_of,
    bulk_id_of,
    chosen_id,
    decode_bulk,
    dry_run_of,
    event_of,
    is_direct,
    job_id_of,
    mark_of,
    may_watch,
    order_of,
    read_order,
    status_of,
)
from corvo.router.caller import Caller
from corvo.router.http import params, positions, sse
from corvo.router.http.bodies import body_of
from corvo.router.http.messages import (
    Problem,
    Request,
    Response,
    Sink,
    bad_field,
    json_response,
    overloaded,
)
from corvo.router.http.problems import problem_of
from corvo.router.http.request_keys import request_key
from corvo.router.jobs.bodies import read_jobs, read_stored
from corvo.router.jobs.find import find_jobs
from corvo.router.routes import Parameter, Route
from corvo.router.shards.outcomes import read_results

POLL_S: Final = 0.5
"""How often it is looked how far a bulk has come that somebody watches."""
KEEPALIVE_S: Final = 15.0
CHECK_S: Final = 5.0
"""How often it is looked up whether the key of somebody who watches is still good."""
WAIT_S: Final = 20.0
"""How long a client waits for a small bulk that was asked for under a request key."""
SAMPLES: Final = 10
"""Jobs that a dry run shows, of those that are named."""
_WAIT_POLL_S: Final = 0.05


_read_newest: Final = msgspec.json.Decoder(Newest).decode


# To begin one.


async def bulk(api: Api, request: Request) -> Response:
    """Do something to many jobs."""
    began_s = trio.current_time()
    body = body_of(request, decode_bulk)
    order = order_of(body, request.caller)
    key = request_key(request, body.request_key).of("bulk")
    counted: Counted | None = None
    if order.filter is None:
        api.charge(request.caller, Action.OPERATE, items=max(1, order.total), charged=1)
    else:
        order, counted = await _fix(api, order, request.caller)
    is_async = body.is_async or not is_direct(order)
    if body.dry_run:
        counted = counted or await _look(api, order, request.caller)
        would = dry_run_of(order, counted, is_async=is_async)
        return json_response(answer_of(Mark(), _since_ms(began_s), would))
    if is_async:
        return await _begin(api, order, key)
    if key:
        # The first answer has to be kept, and the request that it was for.
        return await _begin_and_wait(api, order, key)
    return await _do_now(api, order)


async def _fix(api: Api, order: Order, caller: Caller) -> tuple[Order, Counted]:
    try:
        return await executor.fix(api, order, caller)
    except Problem as problem:
        if problem.status == 400 and problem.field:
            raise bad_field(f"filter.{problem.field}", problem.error) from None
        raise


async def _look(api: Api, order: Order, caller: Caller) -> Counted:
    """Named jobs, as a count has those that a filter means."""
    jobs = (await find_jobs(api, caller, order.job_ids, Form.BRIEF)).jobs
    shown = (await find_jobs(api, caller, [*jobs][:SAMPLES], Form.SUMMARY)).jobs
    return Counted(
        total=len(jobs),
        is_exact=True,
        states=dict(Counter(job.state.value for job in jobs.values())),
        queues=dict(Counter(job.queue for job in jobs.values())),
        samples=[job.json for job in shown.values()],
        bounds={},
    )


async def _do_now(api: Api, order: Order) -> Response:
    began_s = trio.current_time()
    mark, reached = Mark(), dict[int, int]()
    if order.total:
        mark, reached = await executor.do_now(api, order, name=token_hex(16), by=order.by)
    answer = answer_of(mark, _since_ms(began_s))
    return json_response(answer, reached=reached)


def _since_ms(began_s: float) -> int:
    return round((trio.current_time() - began_s) * 1e3)


async def _begin(api: Api, order: Order, key: str, *, is_waited_for: bool = False) -> Response:
    """Put it into the queue; asked for again under its key, it is the one that is there."""
    try:
        made, index = await executor.enqueue(
            api, order, chosen_id(key) if key else None, is_waited_for=is_waited_for
        )
    except Problem as problem:
        if problem.code != "PAYLOAD_TOO_LARGE":
            raise
        raise Problem(
            413,
            "PAYLOAD_TOO_LARGE",
            "too many job ids for one bulk operation: send fewer in each request, or select the "
            "jobs by a filter",
            field="job_ids" if order.filter is None else "filter",
        ) from problem
    if made.unique_existing:
        order = await _asked_before(api, order, made.job_id)
    begun = begun_of(bulk_id_of(made.job_id), order)
    return json_response(begun, status=202, reached={executor.home(api): index})


async def _asked_before(api: Api, order: Order, job_id: str) -> Order:
    view = await _view(api, job_id)
    before = read_order(bytes(view.payload)) if view is not None else None
    if before is None or before.asked != order.asked:
        raise Problem(422, "REQUEST_KEY_REUSED", "the request key was used for a different request")
    return before


async def _begin_and_wait(api: Api, order: Order, key: str) -> Response:
    began_s = trio.current_time()
    job_id = chosen_id(key)
    api.bulks_waited_for.add(job_id)
    try:
        begun = await _begin(api, order, key, is_waited_for=True)
        return await _wait(api, job_id, began_s) or begun
    finally:
        api.bulks_waited_for.discard(job_id)


async def _wait(api: Api, job_id: str, began_s: float) -> Response | None:
    """What became of it; nothing when that takes too long, or it does not come to its end."""
    with trio.move_on_after(WAIT_S):
        while True:
            view = await _view(api, job_id)
            status = status_of(view).status if view is not None else ""
            if view is not None and status == "completed":
                mark = mark_of(view.checkpoint)
                return json_response(answer_of(mark, _since_ms(began_s)), reached=mark.reached)
            if view is None or status in FINAL:
                break
            if status != "queued":
                api.bulks_waited_for.discard(job_id)
            await trio.sleep(_WAIT_POLL_S)
    return None


# To see how far it has come.


async def get_bulk(api: Api, request: Request) -> Response:
    """One bulk operation."""
    return await read_bulk(api, request.caller, params.job_id_of(request))


async def read_bulk(api: Api, caller: Caller, bulk_id: str) -> Response:
    """One bulk operation, as a caller sees it."""
    view, index = await _find(api, caller, bulk_id)
    mark = mark_of(view.checkpoint)
    positions.merge(mark.reached, {executor.home(api): index})
    return json_response(status_of(view), reached=mark.reached)


async def list_bulks(api: Api, request: Request) -> Response:
    """List bulk operations, newest first."""
    limit = params.number_of(request, "limit", default=LIST, at_most=LIST_MAX)
    # The queue of bulk operations is in the scope of no key: their owners are looked at here.
    caller, shard = request.caller, executor.home(api)
    wanted = limit if caller.scope.has_everything else LIST_MAX
    # One that took long may be among those that finished last without being among the newest.
    newest = await api.ask(shard, GetNewest(queue=QUEUE, limit=2 * wanted), caller)
    ids = _read_newest(newest.body).job_ids
    views: list[StoredJob] = []
    while ids:
        read = await api.ask(shard, GetJobs(job_ids=ids, form=Form.STORED), caller)
        seen = read_jobs(read.body)
        views += [
            view for view in _stored(seen) if view.job.queue == QUEUE and may_watch(view, caller)
        ]
        assert seen.looked_at > 0
        ids = ids[seen.looked_at :]
    views.sort(key=lambda view: (view.job.created_ns, view.job.id), reverse=True)
    bulks = [status_of(view) for view in views[:limit]]
    return json_response(BulkList(bulks), reached={shard: newest.index})


async def _find(api: Api, caller: Caller, bulk_id: str) -> tuple[StoredJob, int]:
    """A bulk operation that a caller may see. Raises `Problem`."""
    job_id = job_id_of(bulk_id)
    if job_id:
        answer = await api.ask(
            executor.home(api), GetJobs(job_ids=[job_id], form=Form.STORED), caller
        )
        for view in _stored(read_jobs(answer.body)):
            if view.job.queue == QUEUE and may_watch(view, caller):
                return view, answer.index
    raise Problem(404, "NOT_FOUND", f'bulk operation "{bulk_id}" not found')


def _stored(found: Jobs) -> list[StoredJob]:
    return [read_stored(job.json) for job in found.jobs]


async def _view(api: Api, job_id: str) -> StoredJob | None:
    answer = await api.shards[executor.home(api)].ask(GetJobs(job_ids=[job_id], form=Form.STORED))
    views = [view for view in _stored(read_jobs(answer.body)) if view.job.queue == QUEUE]
    return views[0] if views else None


async def watch(api: Api, request: Request) -> Response:
    """One bulk operation, step by step."""
    view, _ = await _find(api, request.caller, params.job_id_of(request))
    if api.watchers >= api.limits.listeners_max:
        raise overloaded(f"{api.watchers} clients follow bulk operations, the limit")
    return Response(
        content_type=sse.CONTENT_TYPE,
        headers=[*sse.HEADERS],
        stream=partial(_tell, api, request, view),
    )


async def _tell(api: Api, request: Request, view: StoredJob, sink: Sink) -> None:
    api.watchers += 1
    try:
        await _tell_on(api, request, view, sink)
    finally:
        api.watchers -= 1


async def _tell_on(api: Api, request: Request, first: StoredJob, sink: Sink) -> None:
    """Send a frame whenever it has come further, until it has ended or we leave."""
    status, told = status_of(first), None
    quiet_since_s = checked_s = trio.current_time()
    while True:
        if status != told:
            event = event_of(status, is_first=told is None, now_ns=clock.now_ns())
            await sink.send(sse.frame(msgspec.json.encode(event), event=event.type))
            told, quiet_since_s = status, trio.current_time()
        elif trio.current_time() - quiet_since_s >= KEEPALIVE_S:
            await sink.send(sse.comment("keepalive"))
            quiet_since_s = trio.current_time()
        if status.status in FINAL:
            return
        with trio.move_on_after(POLL_S):
            await api.stopping.wait()
        if api.stopping.is_set():
            await sink.send(sse.comment("the server leaves: ask again"))
            return
        if trio.current_time() - checked_s >= CHECK_S:
            checked_s = trio.current_time()
            try:
                await _check(api, request, first)
            except Problem as problem:
                await sink.send(sse.comment(problem.error))
                return
        try:
            view = await _view(api, job_id_of(status.id))
        except Problem:
            continue  # its shard is away: it is asked again
        if view is None:
            await sink.send(sse.comment("it was removed"))
            return
        status = status_of(view)


async def _check(api: Api, request: Request, view: StoredJob) -> None:
    """Raise `Problem` when the key is not what it was: revoked, or for other queues."""
    caller = await api.reader(request)
    if not may_watch(view, caller):
        raise Problem(403, "FORBIDDEN", "the API key no longer has access to this bulk operation")


# To end it.


async def cancel_bulk(api: Api, request: Request) -> Response:
    """Let a bulk operation stop. What was done stays done."""
    view, _ = await _find(api, request.caller, params.job_id_of(request))
    cancel = Cancel(job_ids=[view.job.id], by=request.caller.name)
    op = request_key(request).on(cancel, "jobs", 0, view.job.id)
    answer = await api.shards[executor.home(api)].submit(op)
    [result] = read_results(answer.body)
    if isinstance(result, Rejected):
        raise problem_of(result, "CANCEL_ERROR")
    after = await _view(api, view.job.id)
    return json_response(status_of(after or view), reached={executor.home(api): answer.index})


_BULK: Final = "/api/v1/bulk/{id}"
_FOUND: Final = found_by_path("id")

_row: Final = partial(Route, tag="Node", id_of="bulk operation", has_min_seq=True)

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/api/v1/jobs/bulk",
        endpoint=bulk,
        tag="Jobs",
        action=Action.OPERATE,
        rights=in_body(
            decode_bulk,
            queues=lambda body: [body.move_to_queue] if body.move_to_queue else [],
            jobs=lambda body: body.job_ids or [],
        )
        | RESULT,
        summary="Run one action on many jobs (bulk operation)",
        description=(
            "Runs one action on all jobs that match a filter now, or on a list of jobs. Up to"
            " 10,000 jobs are changed before the answer; more run in the background and answer"
            " 202."
        ),
        takes=BulkBody,
        takes_example={
            "filter": {
                "queue": "mail",
                "state": ["dead"],
                "error_contains": "SMTP timeout",
            },
            "action": "retry",
            "rate": 200,
        },
        gives={200: BulkAnswer, 202: BulkBegun},
        has_min_seq=True,
        problems=(404, 409, 413, 422),
    ),
    _row(
        method="GET",
        path="/api/v1/bulk",
        endpoint=list_bulks,
        action=Action.READ,
        rights=RESULT,
        summary="List bulk operations, newest first",
        description="Lists bulk operations that run in the background, newest first.",
        gives={200: BulkList},
        query=(
            Parameter(
                "limit", "integer", f"Number of bulk operations. Default: {LIST}.", 1, LIST_MAX
            ),
        ),
    ),
    _row(
        method="GET",
        path=_BULK,
        endpoint=get_bulk,
        action=Action.READ,
        rights=_FOUND,
        summary="Read the progress of a bulk operation",
        description="Reads the progress and result of a bulk operation.",
        gives={200: BulkStatus},
        problems=(404,),
    ),
    _row(
        method="GET",
        path=f"{_BULK}/progress",
        endpoint=watch,
        action=Action.READ,
        rights=_FOUND,
        summary="Follow a bulk operation as server-sent events",
        description=(
            "Sends the progress of a bulk operation as server-sent events, until it has ended."
        ),
        gives={200: None},
        problems=(404,),
        is_streamed=True,
        is_parked=True,
    ),
    _row(
        method="POST",
        path=f"{_BULK}/cancel",
        endpoint=cancel_bulk,
        action=Action.OPERATE,
        rights=_FOUND,
        summary="Cancel a bulk operation; finished changes stay",
        description="Stops a bulk operation. Jobs that it has changed stay changed.",
        gives={200: BulkStatus},
        problems=(404, 409),
    ),
)
