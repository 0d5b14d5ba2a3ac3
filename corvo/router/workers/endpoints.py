"""Workers: those that fetched lately, each with its health."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import trio

from corvo import clock
from corvo.model import Worker
from corvo.protocol.queries import GetWorkers, Workers
from corvo.protocol.questions import Beats, GetBeats
from corvo.router.api import Api
from corvo.router.ask import read_lists
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import RESULT
from corvo.router.caller import ROUTER, Caller
from corvo.router.http.messages import Request, Response, json_response
from corvo.router.queues.bodies import PAGE_MAX
from corvo.router.routes import Route
from corvo.router.summary import SummaryWorkers
from corvo.router.worker_health import (
    ALIVE,
    NOT_FETCHING,
    STEP,
    KnownWorker,
    WorkerState,
    gather_by_steps,
    in_order,
)
from corvo.router.workers.bodies import WorkerBody, worker_body
from corvo.scopes import is_reserved

_read_workers: Final = msgspec.json.Decoder(Workers).decode
_read_beats: Final = msgspec.json.Decoder(Beats).decode


async def list_workers(api: Api, request: Request) -> Response:
    """Workers that were heard of within the last day, the one heard of last first."""
    lists = await read_lists(
        api, request.caller, GetWorkers, _read_workers, after="", limit=PAGE_MAX
    )
    known = (worker for page in lists.pages for worker in page.workers)
    classified = await classify_workers(api, known)
    shown: list[msgspec.Struct] = []
    tells_jobs = classified.knows_jobs and request.caller.scope.has_everything
    for count, (heard, state) in enumerate(classified.workers, start=1):
        names = _names_for(request.caller, heard)
        if names:
            active = heard.active if tells_jobs else None
            shown.append(worker_body(heard, names, state, active=active))
        if count % STEP == 0:
            await trio.lowlevel.checkpoint()
    return json_response(shown[:PAGE_MAX], reached=lists.seen)


def _names_for(caller: Caller, heard: KnownWorker) -> list[str]:
    """The queues of a worker that the caller's scope has."""
    return [
        name for name in sorted(heard.queues) if caller.scope.covers(name) and not is_reserved(name)
    ]


class ClassifiedWorkers(NamedTuple):
    """Workers with their states, and whether the mirror told which jobs they hold."""

    workers: list[tuple[KnownWorker, WorkerState]]
    knows_jobs: bool
    knows_all: bool
    """Whether each worker that fetches now is among them."""


async def classify_workers(api: Api, workers: Iterable[Worker]) -> ClassifiedWorkers:
    """States of workers: of those that shards know, that hold jobs, or that this router saw."""
    # For all queues: how many jobs a worker holds must not depend on the caller.
    answer = await api.mirror.ask_now(GetBeats(), ROUTER)
    told = _read_beats(answer.body) if answer is not None else Beats(workers=[])
    knows_jobs = answer is not None and all(place.is_whole for place in told.as_of.values())
    elsewhere = await api.peers.ask(api.peers.workers)
    seen_elsewhere = [each for told in elsewhere.by_node.values() for each in told.workers]
    now_ns = clock.now_ns()
    heard: dict[str, KnownWorker] = {}
    for _ in gather_by_steps(heard, workers, told.workers, api.sightings, now_ns, seen_elsewhere):
        await trio.lowlevel.checkpoint()
    classified: list[tuple[KnownWorker, WorkerState]] = []
    for each in in_order(heard.values()):
        state = api.worker_health.state(
            each, now_ns, knows_jobs=knows_jobs, knows_all=elsewhere.is_whole
        )
        classified.append((each, state))
        if len(classified) % STEP == 0:
            await trio.lowlevel.checkpoint()
    knows_all = elsewhere.is_whole and api.worker_health.knows(now_ns)
    return ClassifiedWorkers(classified, knows_jobs, knows_all)


class CountedWorkers(NamedTuple):
    """Numbers of workers."""

    by_state: SummaryWorkers
    by_queue: Counter[str] | None
    """Workers that fetch from each queue; None while there may be others."""


async def count_workers(api: Api, caller: Caller) -> CountedWorkers:
    """How many workers there are that fetch from a queue of the caller's scope."""
    return await counted(await classify_workers(api, ()), caller)


async def counted(classified: ClassifiedWorkers, caller: Caller) -> CountedWorkers:
    """How many of these workers fetch from a queue of the caller's scope."""
    states: Counter[WorkerState] = Counter()
    queues: Counter[str] = Counter()
    for count, (heard, state) in enumerate(classified.workers, start=1):
        names = _names_for(caller, heard)
        if names:
            states[state] += 1
        if state == ALIVE:
            queues.update(names)
        if count % STEP == 0:
            await trio.lowlevel.checkpoint()
    by_state = SummaryWorkers(alive=states[ALIVE], not_fetching=states[NOT_FETCHING])
    return CountedWorkers(by_state, queues if classified.knows_all else None)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/v1/workers",
        endpoint=list_workers,
        tag="Workers",
        action=Action.READ,
        rights=RESULT,
        summary="List workers of the last 24 hours, the most recent first",
        description="Lists the workers of the last 24 hours, the most recent first.",
        gives={200: list[WorkerBody]},
        gives_example=[
            {
                "id": "worker-1",
                "hostname": "rook",
                "queues": '["mail","sms"]',
                "queue_names": ["mail", "sms"],
                "last_heartbeat": "2026-02-20T10:00:00Z",
                "started_at": "2026-02-20T08:00:00Z",
                "state": "alive",
                "waiting": True,
                "last_asked_at": "2026-02-20T10:00:00Z",
                "active": 1,
            }
        ],
        has_min_seq=True,
    ),
)
