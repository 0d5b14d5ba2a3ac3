"""Running a frame of a stream: its parts are sent to the shards, and their answers make the reply.

All parts are sent, in order, before any answer is waited for. So what goes to one shard goes there
in one piece, its acks come before its fetch, and mostly they share an entry of the shard's log.

Each item is by itself: one that cannot be done is answered with its problem, and stops no other.
Only what makes a whole frame suspect refuses all of it, and then nothing was done.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
import trio

from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.work import Claim, Fetch
from corvo.router.api import Api
from corvo.router.auth import keyring
from corvo.router.auth.actions import Action
from corvo.router.caller import Caller
from corvo.router.enqueue.bodies import EnqueueItem, batched, check_job, new_job, queues_of
from corvo.router.enqueue.endpoints import EnqueueFanOut
from corvo.router.http import positions
from corvo.router.http.bodies import not_reserved
from corvo.router.http.messages import Problem, problem_body
from corvo.router.http.problems import problem_of
from corvo.router.http.request_keys import OwnedKey
from corvo.router.leases.fan_out import LeaseFanOut
from corvo.router.leases.fetch import fetched_job
from corvo.router.leases.verbs import VERBS, entries_of
from corvo.router.shards.outcomes import Outcome
from corvo.router.stream.frames import FetchPart, Frame, Reply

_ITEMS_AT_A_TIME: Final = 250
"""Items that are read before other tasks have their turn: some milliseconds."""

EntryT = TypeVar("EntryT")
ItemT = TypeVar("ItemT", bound=msgspec.Struct)
_set: Final = msgspec.structs.force_setattr


class FrameRun:
    """One frame under way."""

    def __init__(self, api: Api, caller: Caller, frame: Frame, size: int) -> None:
        """`size` is how many bytes the frame came in."""
        self.claims: list[Claim] = []
        """What is the client's once it has the reply."""
        self._api = api
        self._frame = frame
        self._size = size
        self._caller = caller
        self._by = caller.signature
        self._leases = [
            (verb, entries) for verb in VERBS if (entries := entries_of(frame, verb.part))
        ]
        self._positions: dict[int, int] = {}
        self._fetch_problem: Problem | None = None

    async def run(self, begun: Callable[[], None]) -> Reply:
        """Run it. Raises `Problem` when nothing of it was done.

        `begun` is called when all is as good as sent: what is sent after it arrives after it.
        """
        frame, api = self._frame, self._api
        self._admit()
        leases = [
            LeaseFanOut(
                api.shards,
                api.addresses,
                verb,
                await _read(verb.part, entries, verb.read),
                self._size,
                by=self._by,
            )
            for verb, entries in self._leases
        ]
        jobs = EnqueueFanOut(
            api,
            self._caller,
            await _read("enqueues", frame.enqueues, _read_job),
            self._size,
            key=OwnedKey(frame.request_key, self._caller.key_hash),
        )
        if not self._caller.scope.has_everything:
            await self._allow(jobs)
        # Up to here nothing was sent. From here on no other task has a turn until all of it is:
        # what is awaited goes on without a pause until it has to wait for something itself.
        parts: list[LeaseFanOut | EnqueueFanOut] = [*leases]
        if jobs.items:
            parts.append(jobs)
        for part in parts:
            part.begin()
        begun()
        if frame.fetch is not None:
            await self._fetch(frame.fetch, 0 if parts else frame.fetch.waits_ms)
        for part in parts:
            await part.finish()
            positions.merge(self._positions, part.positions)
        if frame.fetch is not None and parts and frame.fetch.waits_ms and not self.claims:
            # Only now: what else the frame has must not wait for work to turn up.
            await self._fetch(frame.fetch, frame.fetch.waits_ms)
        return self._reply(leases, jobs)

    # May it?

    def _admit(self) -> None:
        frame = self._frame
        leases = sum(len(entries) for _, entries in self._leases)
        if leases or frame.fetch is not None:
            keyring.allow(self._caller, Action.WORK)
        for queue in frame.fetch.queues if frame.fetch is not None else ():
            not_reserved("fetch.queues", queue)
        if frame.enqueues:
            keyring.allow(self._caller, Action.PRODUCE)
        wanted = frame.fetch.count if frame.fetch is not None else 0
        items = max(1, leases + len(frame.enqueues) + wanted)
        self._api.charge(self._caller, Action.WORK, items=items)

    async def _allow(self, created: EnqueueFanOut) -> None:
        """Raise `Problem` unless the key is for all queues of the frame."""
        frame = self._frame
        jobs = [item for item in created.items if isinstance(item, NewJob)]
        queues = dict.fromkeys(queue for job in jobs for queue in queues_of(job))
        if frame.fetch is not None:
            queues |= dict.fromkeys(frame.fetch.queues)
        job_ids = [entry.job_id for _, entries in self._leases for entry in entries]
        job_ids += [job_id for job in jobs for job_id in job.depends_on]
        batch_ids = [job.batch_id for job in jobs if job.batch_id]
        await self._api.allow(self._caller, queues, job_ids, batch_ids)

    # Fetching.

    async def _fetch(self, part: FetchPart, wait_ms: int) -> None:
        # Without the request key: what a lost connection did not deliver was given back, and the
        # same frame again is to fetch anew.
        fetch = Fetch(
            by=self._by,
            queues=list(dict.fromkeys(part.queues)),
            worker_id=part.worker_id,
            hostname=part.hostname,
            count=part.count,
            lease_ms=part.leases_ms,
        )
        wait_s = min(wait_ms / 1_000, self._api.limits.fetch_wait_s_max)
        try:
            fetched = await self._api.fetching.fetch(fetch, wait_s)
        except Problem as problem:
            self._fetch_problem = problem
            return
        self.claims = fetched.claims
        positions.merge(self._positions, fetched.positions)
        for claim in fetched.claims:
            shard = shard_of_queue(claim.queue, len(self._api.shards))
            self._api.addresses.remember(claim.job_id, shard)

    # The reply.

    def _reply(self, leases: Sequence[LeaseFanOut], jobs: EnqueueFanOut) -> Reply:
        frame, problem = self._frame, self._fetch_problem
        throughput = self._api.metrics.throughput
        enqueued = [
            batched(problem_of(outcome) if isinstance(outcome, Rejected) else outcome)
            for outcome in jobs.outcomes
        ]
        created = jobs.created
        if created:
            throughput.enqueued(created)
        reply = Reply(
            id=frame.id,
            enqueued=enqueued if frame.enqueues else None,
            jobs=[fetched_job(claim) for claim in self.claims] if frame.fetch is not None else None,
            fetch_error=problem_body(problem) if problem is not None else None,
            seq=positions.render(self._positions),
        )
        for fan_out, (verb, entries) in zip(leases, self._leases, strict=True):
            outcomes = fan_out.outcomes
            verb.count(throughput, sum(isinstance(outcome, Outcome) for outcome in outcomes))
            pairs = zip(entries, outcomes, strict=True)
            _set(reply, verb.result, [verb.answer(entry.job_id, each) for entry, each in pairs])
        return reply


async def _read(
    part: str, entries: Sequence[EntryT], read: Callable[[str, EntryT], ItemT | Rejected]
) -> list[ItemT | Rejected | Problem]:
    """Entries as the ops have them, or the reason why one cannot be sent."""
    items: list[ItemT | Rejected | Problem] = []
    for number, entry in enumerate(entries):
        if number and number % _ITEMS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        try:
            items.append(read(f"{part}[{number}]", entry))
        except Problem as problem:
            items.append(problem)
    return items


def _read_job(field: str, item: EnqueueItem) -> NewJob | Rejected:
    job = new_job(item)
    return check_job(field, job) or job
