"""What producers ask for: jobs to be put into queues, one, many, or by somebody's webhook."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from corvo.placement import shard_of_queue
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.protocol.ops.workflow import NewBatch
from corvo.router import field_texts
from corvo.router.addressing import together
from corvo.router.api import Api
from corvo.router.http import Problem, Request, Response, json_response
from corvo.router.positions import render
from corvo.router.producing import (
    EnqueueAnswer,
    EnqueueBatchAnswer,
    EnqueueBatchBody,
    EnqueueBody,
    EnqueueItem,
    Part,
    PartialAnswer,
    batch_answer,
    check_batch,
    decode_enqueue,
    decode_enqueue_batch,
    enqueue_answer,
    home_batch,
    jobs_of_batch,
    jobs_of_item,
    join,
    moved,
    new_batch,
    new_job,
    new_jobs,
    plan,
    queues_of_batch,
    queues_of_item,
    webhook_item,
)
from corvo.router.rights import in_body, queue_in_path
from corvo.router.routes import Action, Parameter, Route
from corvo.router.words import alone, bad_field, body_of, key_of, request_key

_ITEMS_AT_A_TIME: Final = 250
"""Items that are looked at before others have their turn: some milliseconds."""

_decode_results: Final = msgspec.json.Decoder(EnqueueResults).decode


async def enqueue(api: Api, request: Request) -> Response:
    """Make one job."""
    body = body_of(request, decode_enqueue)
    return await _enqueue_one(api, request, body, request_key(request, body.request_key))


async def webhook(api: Api, request: Request) -> Response:
    """Make a job of whatever somebody's webhook sends."""
    item = webhook_item(request.params["queue"], request.query, request.body)
    return await _enqueue_one(api, request, item, request_key(request))


async def _enqueue_one(api: Api, request: Request, item: EnqueueItem, key: str) -> Response:
    job = new_job(item)
    shard = shard_of_queue(job.queue, len(api.shards))
    op = Enqueue(jobs=[job], request_key=key, by=request.caller.signature)
    try:
        answer = await api.shards[shard].submit(op)
    except Problem as problem:
        raise alone(problem) from None
    made = _decode_results(answer.body).jobs[0]
    api.metrics.throughput.enqueued(not made.unique_existing)
    if job.id is not None:
        api.addresses.remember(job.id, shard)
    return json_response(
        enqueue_answer(made, job.queue),
        status=200 if made.unique_existing else 201,
        seq=render({shard: answer.index}),
    )


async def enqueue_batch(api: Api, request: Request) -> Response:
    """Make many jobs, in as many shards as they have queues in."""
    body = body_of(request, decode_enqueue_batch)
    api.charge(request.caller, Action.PRODUCE, items=len(body.jobs), charged=1)
    key = request_key(request, body.request_key)
    batch = new_batch(body.batch)
    jobs = await _new_jobs(api, body, batch)
    check_batch(batch, len(jobs))
    sending = _Sending(api, key, request.caller.signature, len(jobs))
    await sending.send(plan(jobs, len(api.shards), batch), batch)
    answer = batch_answer(sending.outcomes, sending.batch_id, request.id)
    return json_response(
        answer,
        status=201 if isinstance(answer, EnqueueBatchAnswer) else 503,
        seq=render(sending.positions),
    )


async def _new_jobs(api: Api, body: EnqueueBatchBody, batch: NewBatch | None) -> list[NewJob]:
    """All of them are looked at before any is sent, and others have their turn in between."""
    jobs_max = api.limits.batch_jobs_max
    if len(body.jobs) > jobs_max:
        raise bad_field("jobs", f"jobs: expected at most {jobs_max} items; got {len(body.jobs)}")
    jobs: list[NewJob] = []
    for first in range(0, len(body.jobs), _ITEMS_AT_A_TIME):
        if first:
            await trio.lowlevel.checkpoint()
        items = body.jobs[first : first + _ITEMS_AT_A_TIME]
        jobs += new_jobs(items, first=first, has_own_batch=batch is not None)
    return jobs


class _Sending:
    """Many jobs on their way to their shards."""

    def __init__(self, api: Api, key: str, by: str, count: int) -> None:
        self.outcomes: list[Enqueued | Problem] = [_NOT_SENT] * count
        self.positions: dict[int, int] = {}
        self.batch_id = ""
        self._api = api
        self._key = key
        self._by = by

    async def send(self, planned: list[list[Part]], batch: NewBatch | None) -> None:
        """Send all parts: those of one shard in order, the shards at the same time.

        A batch is made by the first part, and knows of all the others from then on.
        """
        if batch is not None:
            home, *others = planned
            if not await self._send(home[0], home_batch(batch, planned)):
                return
            planned = [home[1:], *others]
        await together([partial(self._send_in_order, parts) for parts in planned])

    async def _send_in_order(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if not await self._send(part if not self.batch_id else join(part, self.batch_id)):
                return  # what comes behind it must not overtake it

    async def _send(self, part: Part, batch: NewBatch | None = None) -> bool:
        """Whether it was done."""
        key = key_of(self._key, part.places, len(self.outcomes))
        op = Enqueue(
            jobs=part.jobs,
            batch=batch,
            is_announced=bool(self.batch_id),
            request_key=key,
            by=self._by,
        )
        try:
            answer = await self._api.shards[part.shard].submit(op)
        except Problem as problem:
            problem = moved(problem, part)
            for place in part.places:
                self.outcomes[place] = problem
            return False
        results = _decode_results(answer.body)
        self.batch_id = self.batch_id or results.batch_id
        self.positions[part.shard] = answer.index
        new = sum(not made.unique_existing for made in results.jobs)
        self._api.metrics.throughput.enqueued(new)
        for place, job, made in zip(part.places, part.jobs, results.jobs, strict=True):
            self.outcomes[place] = made
            if job.id is not None:
                self._api.addresses.remember(job.id, part.shard)
        return True


_NOT_SENT: Final = Problem(
    503,
    "LEADER_UNAVAILABLE",
    "not sent, because an earlier part of the request failed",
    retry_after_ms=1_000,
)


_TAGS: Final = "^([A-Za-z0-9_.-]{1,64}:[^,:]{0,64}(,[A-Za-z0-9_.-]{1,64}:[^,:]{0,64}){0,31})?$"
"""What is read is more than this says; but all that it says is read."""


def _about(field: str) -> str:
    """The text of a field of an enqueue, for a parameter that is the same."""
    return field_texts.FIELDS[field_texts.key_of("EnqueueItem", field)].about


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/api/v1/enqueue",
        endpoint=enqueue,
        action=Action.PRODUCE,
        rights=in_body(decode_enqueue, queues=queues_of_item, jobs=jobs_of_item),
        summary="Enqueue a job",
        takes=EnqueueBody,
        gives={201: EnqueueAnswer, 200: EnqueueAnswer},
        problems=(404, 409, 413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/enqueue/batch",
        endpoint=enqueue_batch,
        action=Action.PRODUCE,
        rights=in_body(decode_enqueue_batch, queues=queues_of_batch, jobs=jobs_of_batch),
        summary="Enqueue many jobs",
        takes=EnqueueBatchBody,
        gives={201: EnqueueBatchAnswer, 503: PartialAnswer},
        problems=(404, 409, 413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/webhooks/{queue}",
        endpoint=webhook,
        action=Action.PRODUCE,
        rights=queue_in_path("queue"),
        summary="Enqueue a job whose payload is the request body",
        gives={201: EnqueueAnswer, 200: EnqueueAnswer},
        problems=(409, 413, 422),
        query=(
            Parameter("priority", "string", _about("priority")),
            Parameter("unique_key", "string", _about("unique_key")),
            Parameter("max_retries", "integer", _about("max_retries"), 0, 100_000),
            Parameter("scheduled_at", "string", _about("scheduled_at")),
            Parameter(
                "tags", "string", "Tags of the job, as `name:value,name:value`.", pattern=_TAGS
            ),
        ),
    ),
)
