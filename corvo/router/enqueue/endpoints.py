"""Endpoints of producers: enqueue one job, many, or from a webhook."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from corvo import clock
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, NewJob, untraced
from corvo.protocol.ops.workflow import NewBatch
from corvo.router.api import Api
from corvo.router.auth.rights import in_body, queue_in_path
from corvo.router.caller import Caller
from corvo.router.enqueue.bodies import (
    EnqueueAnswer,
    EnqueueBatchAnswer,
    EnqueueBatchBody,
    EnqueueBody,
    EnqueueItem,
    PartialAnswer,
    batch_answer,
    batches_of_batch,
    batches_of_item,
    check_batch,
    decode_enqueue,
    decode_enqueue_batch,
    enqueue_answer,
    jobs_of_batch,
    jobs_of_item,
    moved,
    new_batch,
    new_job,
    new_jobs,
    plan,
    queues_of_batch,
    queues_of_item,
    webhook_item,
)
from corvo.router.enqueue.known import enqueue_op, known, read_enqueued
from corvo.router.enqueue.signatures import check_signature, secrets_of
from corvo.router.http.bodies import alone, body_of
from corvo.router.http.messages import Problem, Request, Response, bad_field, json_response
from corvo.router.http.request_keys import NO_KEY, OwnedKey, request_key
from corvo.router.routes import Action, Parameter, Route
from corvo.router.shards.fan_out import About, FanOut, Part, digest_of, together
from corvo.trace_context import TraceContext, context_of

_ITEMS_AT_A_TIME: Final = 250
"""Items that are looked at before others have their turn: some milliseconds."""
_CHAINS_AT_ONCE: Final = 256
"""Queues of one request with a key, or shards, to which parts are under way."""
_COMPARED_AT_ONCE: Final = 50
"""Jobs that have moved to other shards, and are looked for there at the same time."""


async def enqueue(api: Api, request: Request) -> Response:
    """Make one job."""
    body = body_of(request, decode_enqueue)
    return await _enqueue_one(api, request, body, request_key(request, body.request_key))


async def webhook(api: Api, request: Request) -> Response:
    """Make a job of whatever somebody's webhook sends."""
    queue, body = request.params["queue"], request.body
    secrets = secrets_of(queue, api.config.webhooks.secrets)
    check_signature(request.headers, body, secrets, clock.now_ns())
    item = webhook_item(queue, request.query, body)
    return await _enqueue_one(api, request, item, request_key(request))


async def _enqueue_one(api: Api, request: Request, item: EnqueueItem, key: OwnedKey) -> Response:
    job = new_job(item, trace_of(request, api) if "traceparent" in request.headers else None)
    shard = shard_of_queue(job.queue, len(api.shards))
    op = key.on(enqueue_op([job], request.caller.signature), "queue", 0, job.queue)
    try:
        answer = await api.shards[shard].submit(op)
    except Problem as problem:
        raise alone(problem) from None
    made = read_enqueued(answer.body).jobs[0]
    if made.unique_existing and job.id is not None:
        made = await known(api, request.caller, job, made, key=key)
    api.metrics.throughput.enqueued(not made.unique_existing)
    return json_response(
        enqueue_answer(made, job.queue),
        status=200 if made.unique_existing else 201,
        reached={shard: answer.index},
    )


async def enqueue_batch(api: Api, request: Request) -> Response:
    """Make many jobs, in as many shards as they have queues in."""
    body = body_of(request, decode_enqueue_batch)
    api.charge(request.caller, Action.PRODUCE, items=len(body.jobs), charged=1)
    key = request_key(request, body.request_key)
    trace = trace_of(request, api)
    batch = new_batch(body.batch, trace)
    jobs = await _new_jobs(api, body, batch, trace)
    check_batch(batch, len(jobs))
    sending = _BatchFanOut(api, request.caller, jobs, batch, key=key)
    await sending.send_in_order(plan(jobs, len(api.shards), batch, by_queue=bool(key.name)))
    api.metrics.throughput.enqueued(sending.created)
    status, answer = batch_answer(sending.enqueued, sending.batch_id, request.id)
    return json_response(answer, status=status, reached=sending.positions)


def trace_of(request: Request, api: Api) -> TraceContext | None:
    """The trace context of a request's headers, for jobs without one of their own.

    It may come from a proxy and not from the producer. So it refuses nothing: while a node of the
    cluster is older, and cannot keep it, it is left out.
    """
    traceparent = request.headers.get("traceparent")
    if traceparent is None or api.topology.map.op_version < TraceContext.SINCE:
        return None
    return context_of(traceparent, request.headers.get("tracestate", ""))


async def _new_jobs(
    api: Api, body: EnqueueBatchBody, batch: NewBatch | None, trace: TraceContext | None
) -> list[NewJob]:
    """All of them are looked at before any is sent, and others have their turn in between."""
    jobs_max = api.limits.batch_jobs_max
    if len(body.jobs) > jobs_max:
        raise bad_field("jobs", f"jobs: expected at most {jobs_max} items; got {len(body.jobs)}")
    jobs: list[NewJob] = []
    for first in range(0, len(body.jobs), _ITEMS_AT_A_TIME):
        if first:
            await trio.lowlevel.checkpoint()
        items = body.jobs[first : first + _ITEMS_AT_A_TIME]
        jobs += new_jobs(items, first=first, has_own_batch=batch is not None, trace=trace)
    return jobs


class EnqueueFanOut(FanOut[NewJob, Enqueued]):
    """Jobs to be created, each in the shard of its queue."""

    def __init__(
        self,
        api: Api,
        caller: Caller,
        items: Sequence[NewJob | Rejected | Problem],
        body_bytes: int,
        *,
        key: OwnedKey = NO_KEY,
    ) -> None:
        super().__init__(api.shards, api.addresses, items, body_bytes, key=key, by=caller.signature)
        self._api: Final = api
        self._caller: Final = caller
        self._shard_count: Final = len(api.shards)
        self._known: list[int] = []
        """Places of jobs whose id is that of a job that exists."""

    @property
    def created(self) -> int:
        """Jobs that did not exist before."""
        return sum(
            isinstance(each, Enqueued) and not each.unique_existing for each in self.outcomes
        )

    async def finish(self) -> None:
        """Wait for all answers, and compare jobs with those that have their ids."""
        await super().finish()
        await self._compare()

    async def _compare(self) -> None:
        places, self._known = self._known, []
        for first in range(0, len(places), _COMPARED_AT_ONCE):
            some = places[first : first + _COMPARED_AT_ONCE]
            await together([partial(self._compare_one, place) for place in some])

    async def _compare_one(self, place: int) -> None:
        made = self.outcomes[place]
        assert isinstance(made, Enqueued)
        try:
            self.outcomes[place] = await known(
                self._api,
                self._caller,
                self._item(place),
                made,
                key=self.key,
                field=f"jobs[{place}].id",
            )
        except Problem as problem:
            self.outcomes[place] = problem

    def _settle(self, place: int, _: int, outcome: Enqueued | Rejected | Problem) -> None:
        self.outcomes[place] = outcome
        if isinstance(outcome, Enqueued) and outcome.unique_existing and self._item(place).id:
            self._known.append(place)

    def _shard_of(self, item: NewJob) -> int:
        return shard_of_queue(item.queue, self._shard_count)

    def _about(self, item: NewJob) -> About:
        return "queue", item.queue

    def _whole(self, _: About, places: Sequence[int], parts: int) -> str:
        return digest_of(untraced([self._item(place) for place in places])) if parts > 1 else ""

    def _op(self, items: list[NewJob]) -> Enqueue:
        return enqueue_op(items, self._by)

    def _read(self, body: bytes) -> Sequence[Enqueued]:
        return read_enqueued(body).jobs


class _BatchFanOut(EnqueueFanOut):
    """The jobs of one request, in the order of their parts."""

    def __init__(
        self,
        api: Api,
        caller: Caller,
        jobs: Sequence[NewJob],
        batch: NewBatch | None,
        *,
        key: OwnedKey,
    ) -> None:
        super().__init__(api, caller, jobs, 0, key=key)
        self.batch_id = ""
        self._batch = batch

    @property
    def enqueued(self) -> list[Enqueued | Problem]:
        """The outcomes: an enqueue is rejected as a whole, which is a problem."""
        return [each for each in self.outcomes if not isinstance(each, Rejected)]

    async def send_in_order(self, planned: list[list[Part]]) -> None:
        """Send all parts: those of one shard in order, the shards at the same time.

        A batch is created by the first part, with the number of all its jobs: it cannot end before
        the last of them has come.
        """
        if self._batch is not None:
            (first, *rest), *others = planned
            if not await self._finish(self._begin(first)):
                for part in (part for parts in (rest, *others) for part in parts):
                    self._leave_out(part, after=first)
                return
            planned = [rest, *others]
        for at in range(0, len(planned), _CHAINS_AT_ONCE):
            some = planned[at : at + _CHAINS_AT_ONCE]
            await together([partial(self._send_in_order, parts) for parts in some if parts])
        await self._compare()

    async def _send_in_order(self, parts: Sequence[Part]) -> None:
        first, *rest = parts
        await self._finish_all(self._begin(first)._replace(rest=rest))

    def _op(self, items: list[NewJob]) -> Enqueue:
        op = super()._op(items)
        if self._batch is None:
            return op
        if not self.batch_id:
            first = self._item(0).queue
            return replace(op, batch=replace(self._batch, total=len(self.items), queue=first))
        jobs = [replace(job, batch_id=self.batch_id) for job in op.jobs]
        return replace(op, jobs=jobs, is_announced=True)

    def _read(self, body: bytes) -> Sequence[Enqueued]:
        results = read_enqueued(body)
        self.batch_id = self.batch_id or results.batch_id
        return results.jobs

    def _fail(self, part: Part, problem: Problem) -> None:
        super()._fail(part, moved(problem, part))


_TAGS: Final = "^([A-Za-z0-9_.-]{1,64}:[^,:]{0,64}(,[A-Za-z0-9_.-]{1,64}:[^,:]{0,64}){0,31})?$"
"""What is read is more than this says; but all that it says is read."""


_row: Final = partial(Route, method="POST", tag="Producing", action=Action.PRODUCE)

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        path="/api/v1/enqueue",
        endpoint=enqueue,
        rights=in_body(
            decode_enqueue, queues=queues_of_item, jobs=jobs_of_item, batches=batches_of_item
        ),
        summary="Enqueue a job",
        description=(
            "Creates a job and answers 201. If a job with this `id`, or an unfinished job with"
            " this `unique_key`, exists, no job is created and the answer is 200. If the job with"
            " this `id` differs from the one that was sent, the answer is 409 `ID_REUSED`."
        ),
        takes=EnqueueBody,
        takes_example={
            "queue": "mail",
            "payload": {"to": "ada@example.org"},
            "priority": "high",
            "unique_key": "welcome-7",
            "max_retries": 5,
            "tags": {"tenant": "acme"},
        },
        gives={201: EnqueueAnswer, 200: EnqueueAnswer},
        problems=(404, 409, 413, 422),
    ),
    _row(
        path="/api/v1/enqueue/batch",
        endpoint=enqueue_batch,
        rights=in_body(
            decode_enqueue_batch,
            queues=queues_of_batch,
            jobs=jobs_of_batch,
            batches=batches_of_batch,
        ),
        summary="Enqueue many jobs",
        description=(
            "Creates up to 10,000 jobs. All are checked first: if one is invalid, none is"
            " created. Jobs go to their shards separately, so an answer of 503 can mean that some"
            " were created. Send the same request with the same `Idempotency-Key` again to create"
            " the rest. If only some jobs are rejected, such as those with the `id` of another"
            " job, the others are created, and the error lists all of them."
        ),
        takes=EnqueueBatchBody,
        takes_example={
            "jobs": [{"queue": "mail", "payload": {"to": "ada@example.org"}}, {"queue": "sms"}],
            "batch": {"callback_queue": "done"},
        },
        gives={201: EnqueueBatchAnswer, 409: PartialAnswer, 422: PartialAnswer, 503: PartialAnswer},
        problems=(404, 409, 413, 422),
    ),
    _row(
        path="/api/v1/webhooks/{queue}",
        takes_any=True,
        endpoint=webhook,
        rights=queue_in_path("queue"),
        summary="Enqueue a job whose payload is the request body",
        description=(
            "Creates a job whose payload is the body of the request. JSON is kept as it is; any"
            " other text becomes a JSON string; an empty body becomes `{}`. If the queue has a"
            " secret in the setting `webhooks.secrets`, the body must be signed with it, in"
            " `X-Hub-Signature-256` or `Stripe-Signature`."
        ),
        gives={201: EnqueueAnswer, 200: EnqueueAnswer},
        problems=(409, 413, 422),
        query=(
            Parameter("priority", "string", of="EnqueueItem"),
            Parameter("unique_key", "string", of="EnqueueItem"),
            Parameter("max_retries", "integer", "", 0, 100_000, of="EnqueueItem"),
            Parameter("scheduled_at", "string", of="EnqueueItem"),
            Parameter(
                "tags", "string", "Tags of the job, as `name:value,name:value`.", pattern=_TAGS
            ),
        ),
    ),
)
