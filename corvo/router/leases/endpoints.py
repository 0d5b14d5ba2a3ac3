"""Endpoints of workers: fetch, and the operations on leased jobs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from corvo import clock
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.router.api import Api
from corvo.router.auth.rights import in_body, job_in_path
from corvo.router.http.bodies import Body, alone, body_of
from corvo.router.http.messages import Problem, Request, Response, bad_field, json_response
from corvo.router.http.problems import problem_of
from corvo.router.http.request_keys import request_key
from corvo.router.leases.fan_out import LeaseFanOut
from corvo.router.leases.fetch import (
    FetchBatchAnswer,
    FetchBatchBody,
    FetchBody,
    FetchedJob,
    decode_fetch,
    decode_fetch_batch,
    fetch_op,
    fetched_job,
    wait_s,
)
from corvo.router.leases.verbs import (
    BATCH_MAX,
    BEATS_MAX,
    HEARTBEAT,
    LIMITS,
    VERBS,
    HeartbeatAnswer,
    HeartbeatBody,
    Lease,
    LeaseEntry,
    LeaseVerb,
    RoutedVerb,
    beat_items,
    check_count,
    decode_heartbeat,
    entries_of,
    heartbeat_answer,
)
from corvo.router.routes import EXAMPLE_ID, Action, Route
from corvo.router.shards.fan_out import send_to_job
from corvo.router.shards.long_poll import Fetched
from corvo.router.shards.outcomes import Outcome

# Jobs to be worked on.


async def fetch(api: Api, request: Request) -> Response:
    """Fetch a job, and wait if none is available."""
    body = body_of(request, decode_fetch)
    fetched = await _fetch(api, request, body, 1)
    if not fetched.claims:
        return Response(status=204)
    return _given(api, fetched, fetched_job(fetched.claims[0]))


async def fetch_batch(api: Api, request: Request) -> Response:
    """Fetch many jobs, and wait if none is available."""
    body = body_of(request, decode_fetch_batch)
    fetched = await _fetch(api, request, body, body.count)
    return _given(api, fetched, FetchBatchAnswer([fetched_job(claim) for claim in fetched.claims]))


async def _fetch(api: Api, request: Request, body: FetchBody, count: int | None) -> Fetched:
    op = fetch_op(body, request.caller.signature, count)
    op = request_key(request, body.request_key).on(op, "fetch", *op.queues)
    return await api.fetching.fetch(op, wait_s(body, api.limits.fetch_wait_s_max))


def _given(api: Api, fetched: Fetched, answer: FetchedJob | FetchBatchAnswer) -> Response:
    for claim in fetched.claims:
        api.addresses.remember(claim.job_id, shard_of_queue(claim.queue, len(api.shards)))
    response = json_response(answer, reached=fetched.positions)
    if fetched.claims:
        response.undelivered = partial(api.fetching.give_back, fetched.claims)
    return response


# Operations on leased jobs.


class LeaseEndpoints:
    """The endpoints of one operation: for one job, and for a batch."""

    def __init__(self, verb: RoutedVerb) -> None:
        self._verb: Final = verb
        self._body: Final = Body(verb.body)
        self._batch: Final = Body(verb.batch)

    async def one(self, api: Api, request: Request) -> Response:
        """Do it to one job."""
        verb = self._verb
        body = body_of(request, self._body)
        job_id = request.params["job_id"]
        item = body.item(job_id)
        key = request_key(request, body.request_key)
        op = verb.op.of([item], by=body.worker_id or request.caller.signature)
        try:
            sent = await send_to_job(api.shards, api.addresses, job_id, op, key)
        except Problem as problem:
            raise alone(problem) from None
        if isinstance(sent.outcome, Rejected):
            raise alone(problem_of(sent.outcome, verb.conflict))
        verb.count(api.metrics.throughput)
        return json_response(verb.one.of(sent.outcome), reached=sent.positions)

    async def batch(self, api: Api, request: Request) -> Response:
        """Do it to many jobs, each by itself."""
        verb, field = self._verb, self._verb.op.ITEMS
        body = body_of(request, self._batch)
        entries = entries_of(body, field)
        check_count(f"{verb.name} batch", field, len(entries), BATCH_MAX)
        api.charge(request.caller, Action.WORK, items=len(entries), charged=1)
        items = [_read(verb, f"{field}[{place}]", entry) for place, entry in enumerate(entries)]
        job_ids = [entry.job_id for entry in entries]
        results = await _send(api, request, verb, job_ids, items, body.request_key)
        answers = [verb.answer(*each) for each in zip(job_ids, results.outcomes, strict=True)]
        count = sum(isinstance(outcome, Outcome) for outcome in results.outcomes)
        verb.count(api.metrics.throughput, count)
        return json_response(verb.many(count, answers), reached=results.positions)

    def _ids(self, body: msgspec.Struct) -> list[str]:
        """The jobs of a batch; the endpoint refuses one with more than are listed here."""
        return [entry.job_id for entry in entries_of(body, self._verb.op.ITEMS)[:BATCH_MAX]]

    def routes(self) -> tuple[Route, Route]:
        """The rows of its endpoints."""
        verb = self._verb
        return (
            _row(
                path=f"/api/v1/{verb.name}/{{job_id}}",
                endpoint=self.one,
                rights=job_in_path("job_id"),
                summary=verb.summary,
                description=verb.description,
                takes=verb.body,
                takes_example=verb.example,
                gives={200: verb.one},
                problems=(404, 409, 413, 422),
            ),
            _row(
                path=f"/api/v1/{verb.name}/batch",
                endpoint=self.batch,
                rights=in_body(self._batch, jobs=self._ids),
                summary=verb.batch_summary,
                description=verb.batch_description,
                takes=verb.batch,
                takes_example=verb.batch_example,
                gives={200: verb.many},
                problems=(413, 422),
            ),
        )


async def heartbeat(api: Api, request: Request) -> Response:
    """Renew leases; the answer has the jobs whose worker is asked to stop."""
    body = body_of(request, decode_heartbeat)
    check_count("heartbeat", "jobs", len(body.jobs), BEATS_MAX)
    beats = beat_items(body)
    if body.worker_id:
        api.sightings.beats(body.worker_id, clock.now_ns())
    if not beats:
        return json_response(heartbeat_answer((), ()))
    job_ids = [beat.job_id for beat in beats]
    items = [beat.check(f"jobs[{place}]", LIMITS) or beat for place, beat in enumerate(beats)]
    results = await _send(api, request, HEARTBEAT, job_ids, items, body.request_key)
    answer = heartbeat_answer(job_ids, results.outcomes)
    return json_response(answer, reached=results.positions)


def _beat_ids(body: HeartbeatBody) -> list[str]:
    if isinstance(body.jobs, dict):
        return [*body.jobs][:BEATS_MAX]
    return [entry.job_id for entry in body.jobs[:BEATS_MAX]]


class _Results(NamedTuple):
    """An outcome for each item, in order, and the positions of the shards that answered."""

    outcomes: Sequence[Outcome | Rejected | Problem]
    positions: Mapping[int, int]


def _read(verb: LeaseVerb, field: str, entry: LeaseEntry) -> Lease | Rejected:
    try:
        return verb.read(field, entry)
    except Problem as problem:
        raise bad_field(f"{field}.{problem.field}", f"{field}: {problem.error}") from None


async def _send(
    api: Api,
    request: Request,
    verb: LeaseVerb,
    job_ids: Sequence[str],
    items: Sequence[Lease | Rejected],
    key: str | None,
) -> _Results:
    """Send items, as many ops as there have to be."""
    owned, by = request_key(request, key), request.caller.signature
    [item, *others] = items
    if not others and not isinstance(item, Rejected):
        op = verb.op.of([item], by=by)
        try:
            sent = await send_to_job(api.shards, api.addresses, item.job_id, op, owned)
        except Problem as problem:
            return _Results([problem], {})
        return _Results([sent.outcome], sent.positions)
    fan_out = LeaseFanOut(
        api.shards, api.addresses, verb, items, len(request.body), key=owned, by=by
    )
    await fan_out.send()
    return _Results(fan_out.outcomes, fan_out.positions)


_row: Final = partial(Route, method="POST", tag="Working", action=Action.WORK)

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        path="/api/v1/fetch",
        endpoint=fetch,
        rights=in_body(decode_fetch, queues=lambda body: body.queues),
        summary="Fetch a job, and wait if none is available",
        description=(
            "Leases the next job of the given queues to the worker. If no job is available, the"
            " request waits up to `wait_seconds` and then answers 204."
        ),
        takes=FetchBody,
        takes_example={"queues": ["mail", "sms"], "worker_id": "worker-1", "timeout": 30},
        gives={200: FetchedJob, 204: None},
        is_parked=True,
        problems=(422,),
    ),
    _row(
        path="/api/v1/fetch/batch",
        endpoint=fetch_batch,
        rights=in_body(decode_fetch_batch, queues=lambda body: body.queues),
        summary="Fetch many jobs, and wait if none is available",
        description=(
            "Leases up to `count` jobs of the given queues to the worker. If no job is available,"
            " the request waits up to `wait_seconds` for the first one."
        ),
        takes=FetchBatchBody,
        takes_example={"queues": ["mail"], "worker_id": "worker-1", "count": 10},
        gives={200: FetchBatchAnswer},
        is_parked=True,
        problems=(422,),
    ),
    _row(
        path="/api/v1/heartbeat",
        endpoint=heartbeat,
        rights=in_body(decode_heartbeat, jobs=_beat_ids),
        summary="Renew leases (heartbeat)",
        description=(
            "Renews the leases of up to 1,000 jobs, and can store progress and checkpoints. The"
            " answer lists the jobs that the worker should stop."
        ),
        takes=HeartbeatBody,
        takes_example={"jobs": {EXAMPLE_ID: {"progress": {"current": 3, "total": 9}}}},
        gives={200: HeartbeatAnswer},
        problems=(413, 422),
    ),
    *(
        row
        for verb in VERBS
        if isinstance(verb, RoutedVerb)
        for row in LeaseEndpoints(verb).routes()
    ),
)
