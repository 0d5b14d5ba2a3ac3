"""What workers ask for: jobs, and to be heard on what became of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from corvo import clock
from corvo.ids import shard_of
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Fail,
    FailItem,
    Heartbeat,
    LeaseItem,
    Release,
    ReleaseItem,
    Snooze,
    SnoozeItem,
)
from corvo.router.addressing import Results
from corvo.router.api import Api
from corvo.router.fetching import Fetched
from corvo.router.http import Request, Response, json_response
from corvo.router.positions import render
from corvo.router.rights import in_body, job_in_path
from corvo.router.routes import Action, Route
from corvo.router.words import body_of, key_of, read_body, request_key
from corvo.router.working import (
    ACKS_MAX,
    BEATS_MAX,
    AckAnswer,
    AckBatchAnswer,
    AckBatchBody,
    AckBody,
    AckEntry,
    FailAnswer,
    FailBatchAnswer,
    FailBatchBody,
    FailBody,
    FailEntry,
    FetchBatchAnswer,
    FetchBatchBody,
    FetchBody,
    FetchedJob,
    HeartbeatAnswer,
    HeartbeatBody,
    Outcome,
    ReleaseBatchAnswer,
    ReleaseBatchBody,
    ReleaseBody,
    ReleaseEntry,
    SnoozeBody,
    WordBody,
    ack_item,
    ack_items,
    beat_items,
    check_count,
    decode_ack,
    decode_ack_batch,
    decode_fail,
    decode_fail_batch,
    decode_fetch,
    decode_fetch_batch,
    decode_heartbeat,
    decode_release,
    decode_release_batch,
    decode_snooze,
    done,
    fail_answer,
    fail_item,
    fail_items,
    fetch_op,
    fetched_job,
    heartbeat_answer,
    item_answers,
    parts_of,
    read_results,
    release_item,
    sift,
    snooze_item,
    wait_s,
)

ItemT = TypeVar("ItemT", bound=LeaseItem[object])
AloneBody: TypeAlias = AckBody | ReleaseBody | SnoozeBody
Make = Callable[[Sequence[ItemT], str], Op]
"""The op on some items, under a request key."""

_EMPTY: Final = b"{}"


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
    op = fetch_op(body, request_key(request, body.request_key), request.caller.signature, count)
    return await api.fetching.fetch(op, wait_s(body, api.limits.fetch_wait_s_max))


def _given(api: Api, fetched: Fetched, answer: FetchedJob | FetchBatchAnswer) -> Response:
    for claim in fetched.claims:
        if shard_of(claim.job_id) is None:
            shard = shard_of_queue(claim.queue, len(api.shards))
            api.addresses.remember(claim.job_id, shard)
    response = json_response(answer, seq=render(fetched.positions))
    if fetched.claims:
        response.undelivered = partial(api.fetching.give_back, fetched.claims)
    return response


# What became of them.


async def ack(api: Api, request: Request) -> Response:
    """Complete a job."""
    body = read_body(decode_ack, request.body or _EMPTY)
    item = ack_item(request.params["job_id"], body)
    by = _by(request, body)
    response = await _say(
        api, request, body, item, lambda items, key: _ack(items, key, by), "ACK_ERROR"
    )
    api.metrics.throughput.completed()
    return response


async def release(api: Api, request: Request) -> Response:
    """Give a job back."""
    body = read_body(decode_release, request.body or _EMPTY)
    item = release_item(request.params["job_id"], body)
    by = _by(request, body)
    return await _say(
        api, request, body, item, lambda items, key: _release(items, key, by), "RELEASE_ERROR"
    )


async def snooze(api: Api, request: Request) -> Response:
    """Give a job back until later; the attempt does not count."""
    body = read_body(decode_snooze, request.body or _EMPTY)
    item = snooze_item(request.params["job_id"], body)
    by = _by(request, body)
    return await _say(
        api, request, body, item, lambda items, key: _snooze(items, key, by), "SNOOZE_ERROR"
    )


async def _say(
    api: Api, request: Request, body: AloneBody, item: ItemT, make: Make[ItemT], conflict: str
) -> Response:
    key = request_key(request, body.request_key)
    results = await _carry(api, request, [item], make, key)
    outcome = done(results.outcomes[0], conflict)
    return json_response(AckAnswer("ok", outcome.status), seq=render(results.positions))


async def fail(api: Api, request: Request) -> Response:
    """Report a failed attempt."""
    body = read_body(decode_fail, request.body or _EMPTY)
    item = fail_item(request.params["job_id"], body)
    by = _by(request, body)
    key = request_key(request, body.request_key)
    results = await _carry(api, request, [item], lambda items, key: _fail(items, key, by), key)
    answer = fail_answer(done(results.outcomes[0], "FAIL_ERROR"))
    api.metrics.throughput.failed()
    return json_response(answer, seq=render(results.positions))


async def ack_batch(api: Api, request: Request) -> Response:
    """Complete jobs: as many acks, each for itself."""
    body = body_of(request, decode_ack_batch)
    check_count("ack batch", "acks", len(body.acks), ACKS_MAX)
    api.charge(request.caller, Action.WORK, items=len(body.acks), charged=1)
    items = ack_items(body)
    key, by = request_key(request, body.request_key), request.caller.signature
    results = await _carry(api, request, items, lambda items, key: _ack(items, key, by), key)
    count, answers = item_answers(_ids(items), results.outcomes, "ACK_ERROR")
    api.metrics.throughput.completed(count)
    return json_response(AckBatchAnswer(count, answers), seq=render(results.positions))


async def fail_batch(api: Api, request: Request) -> Response:
    """Say of jobs that their attempts failed, each for itself."""
    body = body_of(request, decode_fail_batch)
    check_count("fail batch", "fails", len(body.fails), ACKS_MAX)
    api.charge(request.caller, Action.WORK, items=len(body.fails), charged=1)
    items = fail_items(body)
    key, by = request_key(request, body.request_key), request.caller.signature
    results = await _carry(api, request, items, lambda items, key: _fail(items, key, by), key)
    count, answers = item_answers(_ids(items), results.outcomes, "FAIL_ERROR", is_fail=True)
    api.metrics.throughput.failed(count)
    return json_response(FailBatchAnswer(count, answers), seq=render(results.positions))


async def release_batch(api: Api, request: Request) -> Response:
    """Give jobs back, each for itself."""
    body = body_of(request, decode_release_batch)
    check_count("release batch", "jobs", len(body.jobs), ACKS_MAX)
    api.charge(request.caller, Action.WORK, items=len(body.jobs), charged=1)
    items = [release_item(each.job_id, each) for each in body.jobs]
    key, by = request_key(request, body.request_key), request.caller.signature
    results = await _carry(api, request, items, lambda items, key: _release(items, key, by), key)
    count, answers = item_answers(_ids(items), results.outcomes, "RELEASE_ERROR")
    return json_response(ReleaseBatchAnswer(count, answers), seq=render(results.positions))


async def heartbeat(api: Api, request: Request) -> Response:
    """Say of jobs that they are being worked on, and hear which of them are to stop."""
    body = body_of(request, decode_heartbeat)
    check_count("heartbeat", "jobs", len(body.jobs), BEATS_MAX)
    items = beat_items(body)
    if body.worker_id:
        api.sightings.beats(body.worker_id, clock.now_ns())
    if not items:
        return json_response(heartbeat_answer((), ()))
    key, by = request_key(request, body.request_key), request.caller.signature
    results = await _carry(api, request, items, lambda items, key: _beat(items, key, by), key)
    answer = heartbeat_answer(_ids(items), results.outcomes)
    return json_response(answer, seq=render(results.positions))


async def _carry(
    api: Api, request: Request, items: Sequence[ItemT], make: Make[ItemT], key: str
) -> Results[Outcome]:
    """Carry an op out on items, in as many parts as there have to be."""
    ids = _ids(items)
    if len(items) == 1:
        return await api.to_jobs(ids, lambda _: make(items, key), read_results)
    good, refused = sift(items, lambda some: make(some, ""))
    whole: Results[Outcome] = Results(
        [refused.get(place, _UNSAID) for place in range(len(ids))], {}
    )
    for part in parts_of([items[place] for place in good], len(request.body)):
        places = good[part.start : part.stop]

        def make_part(theirs: list[int], places: list[int] = places) -> Op:
            named = [places[place] for place in theirs]
            return make([items[place] for place in named], key_of(key, named, len(items)))

        results = await api.to_jobs([ids[place] for place in places], make_part, read_results)
        for place, outcome in zip(places, results.outcomes, strict=True):
            whole.outcomes[place] = outcome
        whole.positions.update(results.positions)
    return whole


_UNSAID: Final = Rejected("unknown", "")
"""Where the word of a shard will stand."""


def _ack(items: Sequence[AckItem], key: str, by: str) -> Op:
    return Ack(acks=list(items), request_key=key, by=by)


def _fail(items: Sequence[FailItem], key: str, by: str) -> Op:
    return Fail(fails=list(items), request_key=key, by=by)


def _beat(items: Sequence[BeatItem], key: str, by: str) -> Op:
    return Heartbeat(jobs=list(items), request_key=key, by=by)


def _release(items: Sequence[ReleaseItem], key: str, by: str) -> Op:
    return Release(jobs=list(items), request_key=key, by=by)


def _snooze(items: Sequence[SnoozeItem], key: str, by: str) -> Op:
    return Snooze(jobs=list(items), request_key=key, by=by)


def _by(request: Request, body: WordBody) -> str:
    return body.worker_id or request.caller.signature


def _ids(items: Sequence[LeaseItem[object]]) -> list[str]:
    return [item.job_id for item in items]


_NAMED: Final = job_in_path("job_id")


def _entry_ids(
    entries: Sequence[AckEntry] | Sequence[FailEntry] | Sequence[ReleaseEntry],
) -> list[str]:
    """The jobs of a batch. The endpoint refuses one with more of them than are looked at here."""
    return [entry.job_id for entry in entries[:ACKS_MAX]]


def _beat_ids(body: HeartbeatBody) -> list[str]:
    if isinstance(body.jobs, dict):
        return [*body.jobs][:BEATS_MAX]
    return [entry.job_id for entry in body.jobs[:BEATS_MAX]]


_WORDS: Final = (404, 409, 413, 422)

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/api/v1/fetch",
        endpoint=fetch,
        action=Action.WORK,
        rights=in_body(decode_fetch, queues=lambda body: body.queues),
        summary="Fetch a job, and wait if none is available",
        is_parked=True,
        takes=FetchBody,
        gives={200: FetchedJob, 204: None},
        problems=(422,),
    ),
    Route(
        method="POST",
        path="/api/v1/fetch/batch",
        endpoint=fetch_batch,
        action=Action.WORK,
        rights=in_body(decode_fetch_batch, queues=lambda body: body.queues),
        summary="Fetch many jobs, and wait if none is available",
        is_parked=True,
        takes=FetchBatchBody,
        gives={200: FetchBatchAnswer},
        problems=(422,),
    ),
    Route(
        method="POST",
        path="/api/v1/ack/{job_id}",
        endpoint=ack,
        action=Action.WORK,
        rights=_NAMED,
        summary="Complete a job",
        takes=AckBody,
        gives={200: AckAnswer},
        problems=_WORDS,
    ),
    Route(
        method="POST",
        path="/api/v1/ack/batch",
        endpoint=ack_batch,
        action=Action.WORK,
        rights=in_body(decode_ack_batch, jobs=lambda body: _entry_ids(body.acks)),
        summary="Complete jobs",
        takes=AckBatchBody,
        gives={200: AckBatchAnswer},
        problems=(413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/fail/{job_id}",
        endpoint=fail,
        action=Action.WORK,
        rights=_NAMED,
        summary="Report a failed attempt",
        takes=FailBody,
        gives={200: FailAnswer},
        problems=_WORDS,
    ),
    Route(
        method="POST",
        path="/api/v1/fail/batch",
        endpoint=fail_batch,
        action=Action.WORK,
        rights=in_body(decode_fail_batch, jobs=lambda body: _entry_ids(body.fails)),
        summary="Report failed attempts (many jobs)",
        takes=FailBatchBody,
        gives={200: FailBatchAnswer},
        problems=(413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/heartbeat",
        endpoint=heartbeat,
        action=Action.WORK,
        rights=in_body(decode_heartbeat, jobs=_beat_ids),
        summary="Renew leases (heartbeat)",
        takes=HeartbeatBody,
        gives={200: HeartbeatAnswer},
        problems=(413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/release/{job_id}",
        endpoint=release,
        action=Action.WORK,
        rights=_NAMED,
        summary="Give a job back; the attempt does not count",
        takes=ReleaseBody,
        gives={200: AckAnswer},
        problems=_WORDS,
    ),
    Route(
        method="POST",
        path="/api/v1/release/batch",
        endpoint=release_batch,
        action=Action.WORK,
        rights=in_body(decode_release_batch, jobs=lambda body: _entry_ids(body.jobs)),
        summary="Give many jobs back; the attempts do not count",
        takes=ReleaseBatchBody,
        gives={200: ReleaseBatchAnswer},
        problems=(413, 422),
    ),
    Route(
        method="POST",
        path="/api/v1/snooze/{job_id}",
        endpoint=snooze,
        action=Action.WORK,
        rights=_NAMED,
        summary="Give a job back until later; the attempt does not count",
        takes=SnoozeBody,
        gives={200: AckAnswer},
        problems=_WORDS,
    ),
)
