"""Endpoints of jobs: read, explain, retry, cancel, move, hold and others; dead jobs."""

from functools import partial
from typing import Final, Protocol

import msgspec

from corvo.model import State
from corvo.protocol.jobs import JobBody
from corvo.protocol.ops.base import NAME_BYTES_MAX, Rejected
from corvo.protocol.ops.jobs import (
    Approve,
    Cancel,
    ChangePriority,
    Delete,
    Expedite,
    Hold,
    JobsOp,
    Move,
    Reject,
    Requeue,
    Retry,
)
from corvo.protocol.queries import (
    QUEUES_MAX,
    Counts,
    Explain,
    FoundJob,
    ListDead,
    QueueView,
)
from corvo.router.api import Api
from corvo.router.ask import ask_each, count_by_queue
from corvo.router.auth import keyring
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT, found_by_path, in_body, job_in_path, queue_in_query
from corvo.router.caller import Caller
from corvo.router.http import params
from corvo.router.http.bodies import Body, body_of, not_reserved, read_priority
from corvo.router.http.messages import Problem, Request, Response, json_response, raw_response
from corvo.router.http.problems import problem_of
from corvo.router.http.request_keys import request_key
from corvo.router.jobs.bodies import (
    PAGE,
    PAGE_MAX,
    BulkGet,
    DeadJobs,
    ExplainBody,
    HoldJob,
    JobDone,
    JobList,
    MoveJob,
    SetPriority,
    Why,
    dead_entries,
    explain_body,
    read_dead,
    read_explanation,
)
from corvo.router.jobs.find import find_job, find_jobs
from corvo.router.newest import ROUNDS_MAX, Newest, Source
from corvo.router.routes import EXAMPLE_ID, READS, Endpoint, Parameter, Route
from corvo.router.shards.fan_out import send_to_job

SOURCES_MAX: Final = 16
"""Questions that one page of dead jobs asks at once: of 16,000 queues, four shards' together."""

_read_bulk_get: Final = Body(BulkGet)
_read_why: Final = Body(Why)
_read_hold: Final = Body(HoldJob)
_read_move: Final = Body(MoveJob)
_read_priority: Final = Body(SetPriority)
_read_counts: Final = msgspec.json.Decoder(Counts).decode
_read_queue: Final = msgspec.json.Decoder(QueueView).decode


# Looking.


async def get_job(api: Api, request: Request) -> Response:
    """One job."""
    caller = params.reader_of(request)
    response = await read_job(api, caller, params.job_id_of(request))
    return params.with_contact(response, caller)


async def read_job(api: Api, caller: Caller, job_id: str) -> Response:
    """One job, as a caller sees it."""
    job, _, seen = await find_job(api, caller, job_id)
    return raw_response(job.json, seen)


async def bulk_get(api: Api, request: Request) -> Response:
    """Many jobs, in the order asked for, without those that are not there."""
    wanted = body_of(request, _read_bulk_get)
    ids = list(dict.fromkeys(wanted.job_ids))
    found = await find_jobs(api, request.caller, ids)
    jobs = [found.jobs[job_id].json for job_id in ids if job_id in found.jobs]
    return json_response({"jobs": jobs}, reached=found.positions)


async def explain_job(api: Api, request: Request) -> Response:
    """Explain why no worker has the job."""
    job_id, caller = params.job_id_of(request), params.reader_of(request)
    job, shard, _ = await find_job(api, caller, job_id)
    answer = await api.ask(shard, Explain(job_id=job_id), caller)
    explained = explain_body(job, read_explanation(answer.body))
    response = json_response(explained, reached={shard: answer.index})
    return params.with_contact(response, caller)


# Changing.


class _MakeOp(Protocol):
    def __call__(self, *, job_ids: list[str], by: str, scope: tuple[str, ...]) -> JobsOp: ...


def acting(op: type[JobsOp], *, conflict: str, word: str = "") -> Endpoint:
    """The endpoint of an op on one job that needs no body. See `_change`."""

    async def act(api: Api, request: Request) -> Response:
        return await _change(api, request, op, conflict=conflict, word=word)

    return act


def acting_with_why(op: type[Cancel | Reject], *, conflict: str) -> Endpoint:
    """The endpoint of an op on one job whose body may have a reason."""

    async def act(api: Api, request: Request) -> Response:
        body = body_of(request, _read_why)
        make = partial(op, why=body.why or body.reason or "")
        return await _change(api, request, make, body.request_key, conflict=conflict)

    return act


async def move_job(api: Api, request: Request) -> Response:
    """Move a job to another queue."""
    body = body_of(request, _read_move)
    queue = params.checked_queue("queue", body.queue)
    not_reserved("queue", queue)
    make = partial(Move, queue=queue, reset_attempts=body.reset_attempts or False)
    return await _change(api, request, make, body.request_key, conflict="MOVE_ERROR")


async def hold_job(api: Api, request: Request) -> Response:
    """Let a job wait for somebody's word. A worker may hold what it has; others operate."""
    body = body_of(request, _read_hold)
    if body.lease_token is None:
        keyring.allow(request.caller, Action.OPERATE)
    make = partial(Hold, reason=body.reason or "", lease_token=body.lease_token)
    return await _change(api, request, make, body.request_key, conflict="HOLD_ERROR")


async def change_priority(api: Api, request: Request) -> Response:
    """Let a job be given out sooner or later."""
    body = body_of(request, _read_priority)
    make = partial(ChangePriority, priority=read_priority(body.priority))
    conflict = "PRIORITY_ERROR"
    return await _change(api, request, make, body.request_key, conflict=conflict, word="ok")


async def _change(
    api: Api,
    request: Request,
    make: _MakeOp,
    key: str | None = None,
    *,
    conflict: str,
    word: str = "",
) -> Response:
    """Carry an op out on the job in the path; `key` is the request key in the body.

    `conflict` is the code when the job's state does not do, and `word` the original's, where the
    shard's is not.
    """
    job_id, caller = params.job_id_of(request), request.caller
    op = make(
        job_ids=[job_id],
        by=caller.name,
        # The job may leave the caller's scope after it was checked: the shard checks it once more.
        scope=caller.scope.stored(),
    )
    sent = await send_to_job(api.shards, api.addresses, job_id, op, request_key(request, key))
    if isinstance(sent.outcome, Rejected):
        raise problem_of(sent.outcome, conflict)
    done = JobDone(status=word or sent.outcome.status, job_id=job_id)
    return json_response(done, reached=sent.positions)


# Dead jobs.


async def list_dead(api: Api, request: Request) -> Response:
    """Dead jobs of all queues, or of one, the newest first."""
    limit = params.number_of(request, "limit", default=PAGE, at_most=PAGE_MAX)
    before = params.read_cursor(request)
    queue = request.query.get("queue")
    if queue is not None:
        params.checked_queue("queue", queue)
    counts = await count_by_queue(api, request.caller, State.DEAD, queue)
    newest = Newest[FoundJob](_sources(counts, before), limit)
    for _ in range(ROUNDS_MAX):
        asked = newest.next()
        if not asked:
            break
        questions = [(source.shard, _question(source, limit)) for source in asked]
        answers = await ask_each(api, request.caller, questions)
        for source, answer in zip(asked, answers, strict=True):
            dead = read_dead(answer.body)
            reached = params.Place(dead.before_ns, dead.before_id) if dead.before_id else None
            newest.hear(source, dead_entries(dead), reached)
    shown, place = newest.page()
    return json_response(
        {
            "jobs": [job.json for job in shown],
            "total": sum(sum(queues.values()) for queues in counts.values()),
            "has_more": place is not None,
            **({"cursor": params.write_cursor(place)} if place is not None else {}),
        }
    )


def _sources(counts: dict[int, dict[str, int]], before: params.Place | None) -> list[Source]:
    sources = [
        Source(shard, before, list(queues)[at : at + QUEUES_MAX])
        for shard, queues in sorted(counts.items())
        for at in range(0, len(queues), QUEUES_MAX)
    ]
    if len(sources) > SOURCES_MAX:
        raise Problem(
            400,
            "TOO_MANY_QUEUES",
            "too many queues have dead jobs: send `queue`",
            field="queue",
        )
    return sources


def _question(source: Source, limit: int) -> ListDead:
    at_ns, job_id = source.before or (0, "")
    return ListDead(queues=source.queues, before_ns=at_ns, before_id=job_id, limit=limit)


_JOB: Final = "/api/v1/jobs/{id}"
_NAMED: Final = job_in_path("id")
_READ: Final = found_by_path("id")
_TARGET: Final = in_body(_read_move, queues=lambda body: [body.queue])


_change_row: Final = partial(
    Route,
    method="POST",
    tag="Jobs",
    action=Action.OPERATE,
    rights=_NAMED,
    gives={200: JobDone},
    problems=(404, 409),
)
_read_row: Final = partial(Route, method="GET", tag="Jobs", action=Action.READ, has_min_seq=True)

ROUTES: Final[tuple[Route, ...]] = (
    _read_row(
        path=_JOB,
        endpoint=get_job,
        query=(READS,),
        rights=_READ,
        summary="Read a job with its errors and history",
        description="Reads a job with its payload, result, errors and history from its shard.",
        gives={200: JobBody},
        gives_example={
            "id": EXAMPLE_ID,
            "queue": "mail",
            "state": "retrying",
            "payload": {"to": "ada@example.org"},
            "priority": 1,
            "attempt": 1,
            "max_retries": 5,
            "retry_backoff": "exponential",
            "retry_base_delay_ms": 5_000,
            "retry_max_delay_ms": 600_000,
            "unique_key": "welcome-7",
            "tags": {"tenant": "acme"},
            "scheduled_at": "2026-02-20T10:00:05.123456789Z",
            "created_at": "2026-02-20T09:59:59.5Z",
            "started_at": "2026-02-20T10:00:00Z",
            "failed_at": "2026-02-20T10:00:00.123456789Z",
            "errors": [
                {
                    "id": 1,
                    "job_id": EXAMPLE_ID,
                    "attempt": 1,
                    "error": "the server said 450",
                    "worker_id": "worker-1",
                    "created_at": "2026-02-20T10:00:00.123456789Z",
                }
            ],
            "last_error": "the server said 450",
            "trail": [
                {
                    "at": "2026-02-20T09:59:59.5Z",
                    "what": "enqueued",
                    "by": "shop",
                },
                {
                    "at": "2026-02-20T10:00:00Z",
                    "what": "started",
                    "by": "worker-1",
                },
                {
                    "at": "2026-02-20T10:00:00.123456789Z",
                    "what": "failed",
                    "by": "worker-1",
                    "why": "the server said 450",
                },
            ],
        },
        problems=(404, 413),
    ),
    _read_row(
        path=f"{_JOB}/explain",
        endpoint=explain_job,
        query=(READS,),
        rights=_READ,
        summary="Explain why no worker has the job",
        description="Says why no worker has the job now, and until when, if known.",
        gives={200: ExplainBody},
        gives_example={
            "job_id": EXAMPLE_ID,
            "queue": "mail",
            "state": "pending",
            "code": "behind",
            "text": "3 jobs come before it",
            "ahead": 3,
        },
        problems=(404, 413),
    ),
    _read_row(
        method="POST",
        path="/api/v1/jobs/bulk-get",
        endpoint=bulk_get,
        rights=RESULT,
        summary="Read many jobs by id; unknown ids are left out",
        description="Reads up to 1,000 jobs. Unknown ids are left out of the answer.",
        takes=BulkGet,
        takes_example={"job_ids": [EXAMPLE_ID, "s02_job_01HF7YAT000000000003800001"]},
        gives={200: JobList},
    ),
    _change_row(
        path=f"{_JOB}/retry",
        endpoint=acting(Retry, conflict="RETRY_ERROR", word="retried"),
        summary="Retry a finished job, or start a scheduled one, with all attempts",
        description=(
            "Makes a completed, dead, cancelled or scheduled job pending with all of its attempts."
        ),
        gives_example={"status": "retried", "job_id": EXAMPLE_ID},
    ),
    _change_row(
        path=f"{_JOB}/cancel",
        endpoint=acting_with_why(Cancel, conflict="CANCEL_ERROR"),
        summary="Cancel a job; its worker is asked to stop",
        description=(
            "Cancels a job. If a worker has it, the worker is asked to stop with its next"
            " heartbeat, and `status` is `cancelling`."
        ),
        takes=Why,
        takes_example={"why": "the order was withdrawn"},
        gives_example={"status": "cancelled", "job_id": EXAMPLE_ID},
    ),
    _change_row(
        path=f"{_JOB}/move",
        endpoint=move_job,
        rights=_NAMED | _TARGET,
        summary="Move a job to another queue",
        description="Moves a job to the end of another queue.",
        takes=MoveJob,
        takes_example={"queue": "mail-slow", "reset_attempts": True},
    ),
    _change_row(
        path=f"{_JOB}/hold",
        endpoint=hold_job,
        action=Action.WORK,
        summary="Hold a job for approval",
        description=(
            "Holds a job until it is approved or rejected. A worker may hold a job that it has,"
            " with its `lease_token`."
        ),
        takes=HoldJob,
        takes_example={"reason": "needs a check"},
    ),
    _change_row(
        path=f"{_JOB}/approve",
        endpoint=acting(Approve, conflict="APPROVE_ERROR"),
        summary="Approve a held job (it becomes pending)",
        description="Makes a held job pending, at the end of its queue.",
    ),
    _change_row(
        path=f"{_JOB}/reject",
        endpoint=acting_with_why(Reject, conflict="REJECT_ERROR"),
        summary="Reject a held job (it becomes dead)",
        description="Makes a held job dead.",
        takes=Why,
        takes_example={"why": "it cannot be delivered"},
    ),
    _change_row(
        path=f"{_JOB}/requeue",
        endpoint=acting(Requeue, conflict="REQUEUE_ERROR"),
        summary="Retry a dead job with one more attempt",
        description="Makes a dead job pending with one more attempt.",
    ),
    _change_row(
        path=f"{_JOB}/expedite",
        endpoint=acting(Expedite, conflict="EXPEDITE_ERROR"),
        summary="Start a scheduled or retrying job now",
        description="Makes a scheduled or retrying job pending now.",
    ),
    _change_row(
        path=f"{_JOB}/priority",
        endpoint=change_priority,
        summary="Change a job's priority",
        description="Changes the priority of a pending, scheduled, retrying or held job.",
        takes=SetPriority,
        takes_example={"priority": "critical"},
    ),
    _change_row(
        method="DELETE",
        path=_JOB,
        endpoint=acting(Delete, conflict="DELETE_ERROR"),
        summary="Delete a job",
        description=(
            "Deletes a job with its payload, errors and history. If a worker has it, its lease"
            " ends."
        ),
    ),
    _read_row(
        path="/api/v1/dead",
        endpoint=list_dead,
        rights=queue_in_query("queue") | RESULT,
        summary="List dead jobs, newest first",
        description=(
            "Lists dead jobs. A page may be short or empty: follow `cursor` until `has_more` is"
            " false."
        ),
        gives={200: DeadJobs},
        query=(
            Parameter(
                "queue", "string", "Name of the queue. Default: all queues.", 1, NAME_BYTES_MAX
            ),
            Parameter(
                "limit", "integer", f"Number of jobs on a page. Default: {PAGE}.", 1, PAGE_MAX
            ),
            Parameter("cursor", "string", "Cursor of the previous page. Default: the first page."),
        ),
    ),
)
