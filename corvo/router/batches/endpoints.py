"""Endpoints of batches: read one, list all."""

from functools import partial
from typing import Final

from corvo.ids import shard_of, stand_in
from corvo.model import Batch
from corvo.protocol.queries import PAGE_MAX, GetBatch, ListBatches
from corvo.router.api import Api
from corvo.router.ask import ask_each
from corvo.router.auth import keyring
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT, found_by_path
from corvo.router.batches.bodies import (
    PAGE,
    BatchList,
    BatchView,
    batch_summary,
    batch_view,
    read_batch,
    read_batches,
)
from corvo.router.caller import Caller
from corvo.router.http import params
from corvo.router.http.messages import Request, Response, json_response
from corvo.router.newest import ROUNDS_MAX, Entry, Newest, Source
from corvo.router.routes import READS, Parameter, Route


async def get_batch(api: Api, request: Request) -> Response:
    """One batch."""
    batch_id, caller = params.job_id_of(request), params.reader_of(request)
    shard = shard_of(batch_id)
    if shard is None:
        raise keyring.no_batch(batch_id)
    shard = stand_in(shard, len(api.shards))
    answer = await api.ask(shard, GetBatch(batch_id=batch_id), caller)
    batch = read_batch(answer.body).batch
    if batch is None or not caller.scope.covers(batch.belongs_to):
        raise keyring.no_batch(batch_id)
    response = json_response(batch_view(batch, caller), reached={shard: answer.index})
    return params.with_contact(response, caller)


async def list_batches(api: Api, request: Request) -> Response:
    """Batches of all shards, the newest first."""
    limit = params.number_of(request, "limit", default=PAGE, at_most=PAGE_MAX)
    before = params.read_cursor(request)
    caller = request.caller
    newest = Newest[Batch]([Source(shard.number, before) for shard in api.shards], limit)
    for _ in range(ROUNDS_MAX):
        asked = newest.next()
        if not asked:
            break
        questions = [(source.shard, _question(source, caller, limit)) for source in asked]
        answers = await ask_each(api, caller, questions)
        for source, answer in zip(asked, answers, strict=True):
            page = read_batches(answer.body)
            found = [Entry(params.Place(one.created_ns, one.id), one, 0) for one in page.batches]
            reached = params.Place(page.before_ns, page.before_id)
            newest.hear(source, found, reached if page.before_ns else None)
    shown, place = newest.page()
    return json_response(
        BatchList(
            batches=[batch_summary(batch, caller) for batch in shown],
            has_more=place is not None,
            cursor=params.write_cursor(place) if place is not None else "",
        )
    )


def _question(source: Source, caller: Caller, limit: int) -> ListBatches:
    at_ns, batch_id = source.before or (0, "")
    return ListBatches(scope=caller.scope, before_ns=at_ns, before_id=batch_id, limit=limit)


_EXAMPLE: Final[dict[str, object]] = {
    "id": "s02_batch_01HF7YAT000000000003800000",
    "queue": "mail",
    "status": "open",
    "total": 3,
    "pending": 1,
    "succeeded": 2,
    "failed": 0,
    "cancelled": 0,
    "removed": 0,
    "callback_queue": "done",
    "created_at": "2026-02-20T09:59:59.5Z",
}

_row: Final = partial(
    Route, method="GET", tag="Jobs", action=Action.READ, id_of="batch", has_min_seq=True
)

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        path="/api/v1/batches",
        endpoint=list_batches,
        rights=RESULT,
        summary="List batches, newest first",
        description=(
            "Lists batches with the numbers of their jobs. A page may be short or empty: follow"
            " `cursor` until `has_more` is false."
        ),
        gives={200: BatchList},
        gives_example={"batches": [_EXAMPLE], "has_more": False},
        query=(
            Parameter(
                "limit", "integer", f"Number of batches on a page. Default: {PAGE}.", 1, PAGE_MAX
            ),
            Parameter("cursor", "string", "Cursor of the previous page. Default: the first page."),
        ),
    ),
    _row(
        path="/api/v1/batches/{id}",
        endpoint=get_batch,
        query=(READS,),
        rights=found_by_path("id"),
        summary="Read a batch",
        description="Reads one batch: how many of its jobs have ended, and its callback.",
        gives={200: BatchView},
        gives_example={**_EXAMPLE, "callback_payload": {"report": 7}},
        problems=(404,),
    ),
)
