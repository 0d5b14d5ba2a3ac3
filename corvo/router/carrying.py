"""Carrying a frame of a stream out: its parts brought to the shards, and their answers to its own.

All parts are sent, in order, before any answer is waited for. So what goes to one shard goes there
in one piece, its acks come before its fetch, and mostly they share an entry of the shard's log.

Each item is by itself: one that cannot be done is answered with its problem, and holds up no other.
Only what makes a whole frame suspect refuses all of it, and then nothing was done.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec
import trio

from corvo.ids import shard_of
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Json, Op, Rejected
from corvo.protocol.ops.checks import bad_json
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Claim,
    Fail,
    FailItem,
    Fetch,
    Heartbeat,
    LeaseItem,
)
from corvo.protocol.ops.workflow import bad_batch_id
from corvo.router import keys
from corvo.router.actions import Action
from corvo.router.addressing import missing, together
from corvo.router.api import Api
from corvo.router.caller import Caller
from corvo.router.frames import BeatResult, FetchPart, Frame, Reply
from corvo.router.http import UNKNOWN, Problem, problem_body
from corvo.router.positions import render
from corvo.router.problems import problem_of
from corvo.router.producing import LIMITS, BatchedJob, EnqueueItem, batched, new_job, queues_of
from corvo.router.shards import Begun
from corvo.router.words import key_of, not_reserved
from corvo.router.working import (
    AckEntry,
    BeatEntry,
    FailEntry,
    ItemAnswer,
    Outcome,
    ack_item,
    beat_answer,
    beat_item,
    fail_item,
    fetched_job,
    item_answer,
    parts_of,
    read_results,
)

_ITEMS_AT_A_TIME: Final = 250
"""Items that are read before others have their turn: some milliseconds."""

EntryT = TypeVar("EntryT")
ItemT = TypeVar("ItemT", bound=msgspec.Struct)
WordT = TypeVar("WordT", bound=LeaseItem[object])
DoneT = TypeVar("DoneT")

_decode_enqueued: Final = msgspec.json.Decoder(EnqueueResults).decode


class Carrier:
    """One frame."""

    def __init__(self, api: Api, caller: Caller, frame: Frame, size: int) -> None:
        self.api: Final = api
        self.frame: Final = frame
        self.size: Final = size
        """How many bytes the frame came in."""
        self.positions: dict[int, int] = {}
        """How far the shards had come that answered."""
        self.claims: list[Claim] = []
        """What is the client's once it has the answer."""
        self._caller = caller
        self.by: Final = caller.signature
        self._fetch_problem: Problem | None = None

    async def carry(self, begun: Callable[[], None]) -> Reply:
        """Do it. Raises `Problem` when nothing of it was done.

        `begun` is called when all is as good as sent: what is sent behind it comes behind it.
        """
        frame = self.frame
        self._admit()
        acks = _Words(self, await _read(frame.acks, _read_ack), self._ack)
        fails = _Words(self, await _read(frame.fails, _read_fail), self._fail)
        beats = _Words(self, await _read(frame.heartbeats, _read_beat), self._beat)
        births = _Births(self, await _read(frame.enqueues, _read_job))
        if not self._caller.scope.has_everything:
            await self._allow(births)
        # Up to here nothing was sent. From here on nobody else has a turn until all of it is: what
        # is awaited goes on without a pause until it has to wait for something itself.
        parts = [part for part in (acks, fails, beats, births) if part.items]
        for part in parts:
            part.begin()
        begun()
        if frame.fetch is not None:
            await self._fetch(frame.fetch, 0 if parts else frame.fetch.wait_ms)
        for part in parts:
            await part.finish()
        if frame.fetch is not None and parts and frame.fetch.wait_ms and not self.claims:
            # Only now: what else the frame has must not wait for work to turn up.
            await self._fetch(frame.fetch, frame.fetch.wait_ms)
        return self._reply(acks, fails, beats, births)

    # May it?

    def _admit(self) -> None:
        frame = self.frame
        words = len(frame.acks) + len(frame.fails) + len(frame.heartbeats)
        if words or frame.fetch is not None:
            keys.allow(self._caller, Action.WORK)
        for queue in frame.fetch.queues if frame.fetch is not None else ():
            not_reserved("fetch.queues", queue)
        if frame.enqueues:
            keys.allow(self._caller, Action.PRODUCE)
        wanted = frame.fetch.count if frame.fetch is not None else 0
        items = max(1, words + len(frame.enqueues) + wanted)
        self.api.charge(self._caller, Action.WORK, items=items)

    async def _allow(self, births: "_Births") -> None:
        """Raise `Problem` unless the key is for all queues of the frame."""
        frame = self.frame
        jobs = [item for item in births.items if isinstance(item, NewJob)]
        queues = dict.fromkeys(queue for job in jobs for queue in queues_of(job))
        if frame.fetch is not None:
            queues |= dict.fromkeys(frame.fetch.queues)
        job_ids = [entry.job_id for entry in frame.acks]
        job_ids += [entry.job_id for entry in frame.fails]
        job_ids += [entry.job_id for entry in frame.heartbeats]
        job_ids += [job_id for job in jobs for job_id in job.depends_on]
        await self.api.allow(self._caller, queues, job_ids)

    # What is sent.

    def _ack(self, items: list[AckItem]) -> Op:
        return Ack(acks=items, by=self.by)

    def _fail(self, items: list[FailItem]) -> Op:
        return Fail(fails=items, by=self.by)

    def _beat(self, items: list[BeatItem]) -> Op:
        return Heartbeat(jobs=items, by=self.by)

    async def _fetch(self, part: FetchPart, wait_ms: int) -> None:
        # Without the request key: what a lost connection did not deliver was given back, and the
        # same frame again is to fetch anew.
        fetch = Fetch(
            by=self.by,
            queues=list(dict.fromkeys(part.queues)),
            worker_id=part.worker_id,
            hostname=part.hostname,
            count=part.count,
            lease_ms=part.lease_ms,
        )
        wait_s = min(wait_ms / 1_000, self.api.limits.fetch_wait_s_max)
        try:
            fetched = await self.api.fetching.fetch(fetch, wait_s)
        except Problem as problem:
            self._fetch_problem = problem
            return
        self.claims = fetched.claims
        self.note(fetched.positions)
        for claim in fetched.claims:
            if shard_of(claim.job_id) is None:
                shard = shard_of_queue(claim.queue, len(self.api.shards))
                self.api.addresses.remember(claim.job_id, shard)

    # What is answered.

    def note(self, positions: Mapping[int, int]) -> None:
        """Shards have come so far."""
        for shard, index in positions.items():
            self.positions[shard] = max(index, self.positions.get(shard, 0))

    def _reply(
        self,
        acks: "_Words[AckItem]",
        fails: "_Words[FailItem]",
        beats: "_Words[BeatItem]",
        births: "_Births",
    ) -> Reply:
        frame, problem = self.frame, self._fetch_problem
        throughput = self.api.metrics.throughput
        throughput.completed(_done_count(acks.outcomes))
        throughput.failed(_done_count(fails.outcomes))
        return Reply(
            id=frame.id,
            acked=_item_answers(frame.acks, acks.outcomes, "ACK_ERROR") if frame.acks else None,
            failed=(
                _item_answers(frame.fails, fails.outcomes, "FAIL_ERROR", is_fail=True)
                if frame.fails
                else None
            ),
            heartbeats=(
                _beat_results(frame.heartbeats, beats.outcomes) if frame.heartbeats else None
            ),
            enqueued=births.answers() if frame.enqueues else None,
            jobs=[fetched_job(claim) for claim in self.claims] if frame.fetch is not None else None,
            fetch_error=problem_body(problem) if problem is not None else None,
            seq=render(self.positions),
        )


# Reading items.


async def _read(
    entries: Sequence[EntryT], read: Callable[[int, EntryT], ItemT]
) -> list[ItemT | Problem]:
    """Items as the ops have them, or what is wrong with each."""
    items: list[ItemT | Problem] = []
    for number, entry in enumerate(entries):
        if number and number % _ITEMS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        try:
            items.append(read(number, entry))
        except Problem as problem:
            items.append(problem)
    return items


def _read_ack(number: int, entry: AckEntry) -> AckItem:
    item = ack_item(entry.job_id, entry)
    _check_json(f"acks[{number}].result", item.result, LIMITS.result_bytes_max)
    _check_json(f"acks[{number}].checkpoint", item.checkpoint, LIMITS.checkpoint_bytes_max)
    return item


def _read_fail(_: int, entry: FailEntry) -> FailItem:
    return fail_item(entry.job_id, entry)


def _read_beat(number: int, entry: BeatEntry) -> BeatItem:
    item = beat_item(entry.job_id, entry)
    _check_json(f"heartbeats[{number}].progress", item.progress, LIMITS.progress_bytes_max)
    _check_json(f"heartbeats[{number}].checkpoint", item.checkpoint, LIMITS.checkpoint_bytes_max)
    return item


def _check_json(field: str, value: Json, bytes_max: int) -> None:
    refused = bad_json(field, value, bytes_max)
    if refused is not None:
        raise problem_of(refused)


def _read_job(number: int, item: EnqueueItem) -> NewJob:
    job = new_job(item)
    field = f"enqueues[{number}]"
    refused = job.check(field, LIMITS)
    if job.batch_id:
        refused = refused or bad_batch_id(f"{field}.batch_id", job.batch_id, has_own=False)
    if refused is not None:
        raise problem_of(refused)
    return job


# Items on their way.


class _Sent(msgspec.Struct, frozen=True):
    """Some items of a part, with a shard."""

    shard: int
    places: list[int]
    begun: Begun


class _Part(Generic[ItemT, DoneT]):
    """All items of one kind."""

    def __init__(self, carrier: Carrier, items: list[ItemT | Problem]) -> None:
        self.items: Final = items
        self.outcomes: list[DoneT | Rejected | Problem] = [_NOT_SENT] * len(items)
        self._carrier = carrier
        self._api = carrier.api
        self._sent: list[_Sent] = []

    def begin(self) -> None:
        """Send what can be sent."""
        by_shard: dict[int, tuple[list[int], list[ItemT]]] = {}
        for place, item in enumerate(self.items):
            if isinstance(item, Problem):
                self.outcomes[place] = item
                continue
            shard = self._shard_of(item)
            if isinstance(shard, Rejected):
                self.outcomes[place] = shard
                continue
            places, items = by_shard.setdefault(shard, ([], []))
            places.append(place)
            items.append(item)
        for shard, (places, items) in by_shard.items():
            for part in parts_of(items, self._carrier.size):
                theirs = places[part.start : part.stop]
                op = self._op(items[part.start : part.stop], theirs)
                self._sent.append(_Sent(shard, theirs, self._api.shards[shard].begin(op)))

    async def finish(self) -> None:
        """Wait for all answers."""
        shards = self._api.shards
        if all(shards[sent.shard].is_up for sent in self._sent):
            for sent in self._sent:
                await self._finish(sent)
        else:
            # Each that has to wait for a leader waits as long as any.
            await together([partial(self._finish, sent) for sent in self._sent])

    async def _finish(self, sent: _Sent) -> None:
        try:
            answer = await self._api.shards[sent.shard].finish(sent.begun)
        except Problem as problem:
            for place in sent.places:
                self.outcomes[place] = problem
            return
        self._carrier.note({sent.shard: answer.index})
        for place, outcome in zip(sent.places, self._results(answer.body), strict=True):
            self.outcomes[place] = outcome

    def _shard_of(self, item: ItemT) -> int | Rejected:
        """Where to send an item, or why it can be sent nowhere."""
        raise NotImplementedError

    def _op(self, items: list[ItemT], places: list[int]) -> Op:
        """The op on some items."""
        raise NotImplementedError

    def _results(self, body: bytes) -> Sequence[DoneT | Rejected]:
        """An answer, item by item."""
        raise NotImplementedError


class _Births(_Part[NewJob, Enqueued]):
    """Jobs to be made."""

    async def finish(self) -> None:
        """Wait for all answers, and remember where jobs are that have ids of the client's own."""
        await super().finish()
        made = 0
        for item, outcome in zip(self.items, self.outcomes, strict=True):
            if isinstance(item, Problem) or not isinstance(outcome, Enqueued):
                continue
            made += not outcome.unique_existing
            if item.id is not None:
                self._api.addresses.remember(item.id, self._shard_of(item))
        self._api.metrics.throughput.enqueued(made)

    def _shard_of(self, item: NewJob) -> int:
        return shard_of_queue(item.queue, len(self._api.shards))

    def _op(self, items: list[NewJob], places: list[int]) -> Op:
        # Ops of other shards have other places, so that one key of the client's is none of ours
        # twice; and the same frame again has the same places.
        key = key_of(self._carrier.frame.request_key, places, len(self.items))
        return Enqueue(jobs=items, request_key=key, by=self._carrier.by)

    def _results(self, body: bytes) -> Sequence[Enqueued]:
        return _decode_enqueued(body).jobs

    def answers(self) -> list[BatchedJob]:
        """What the client hears of them."""
        return [
            batched(problem_of(outcome) if isinstance(outcome, Rejected) else outcome)
            for outcome in self.outcomes
        ]


class _Words(_Part[WordT, Outcome]):
    """What is said of jobs under their leases."""

    def __init__(
        self,
        carrier: Carrier,
        items: list[WordT | Problem],
        make: Callable[[list[WordT]], Op],
    ) -> None:
        super().__init__(carrier, items)
        self._make = make

    async def finish(self) -> None:
        """Wait for all answers, and say once more what may have to be."""
        await super().finish()
        again: list[tuple[int, WordT]] = []
        for place, (item, outcome) in enumerate(zip(self.items, self.outcomes, strict=True)):
            if isinstance(item, Problem):
                continue
            if isinstance(outcome, Outcome):
                if shard_of(item.job_id) is None:
                    self._api.addresses.remember(item.job_id, self._candidates(item)[0])
            elif self._may_help(item, outcome):
                again.append((place, item))
        if again:
            await self._say_again(again)

    def _may_help(self, item: WordT, outcome: Rejected | Problem) -> bool:
        """Whether a word may have another answer when it is said again."""
        if isinstance(outcome, Problem):
            # Under a lease's token the same word twice is as once, so it may just be said again.
            return outcome.outcome == UNKNOWN and item.lease_token is not None
        if outcome.code == "job_not_found":
            return len(self._candidates(item)) > 1
        return outcome.code == "job_moved"

    async def _say_again(self, again: list[tuple[int, WordT]]) -> None:
        """Say it to whichever shard has the job."""
        items = [item for _, item in again]
        results = await self._api.to_jobs(
            [item.job_id for item in items],
            lambda places: self._make([items[place] for place in places]),
            read_results,
        )
        self._carrier.note(results.positions)
        for (place, _), outcome in zip(again, results.outcomes, strict=True):
            self.outcomes[place] = outcome

    def _op(self, items: list[WordT], _: list[int]) -> Op:
        return self._make(items)

    def _shard_of(self, item: WordT) -> int | Rejected:
        candidates = self._candidates(item)
        return candidates[0] if candidates else missing(item.job_id)

    def _candidates(self, item: WordT) -> list[int]:
        return self._api.addresses.candidates(item.job_id)

    def _results(self, body: bytes) -> Sequence[Outcome | Rejected]:
        return read_results(body)


def _done_count(outcomes: Sequence[Outcome | Rejected | Problem]) -> int:
    return sum(isinstance(outcome, Outcome) for outcome in outcomes)


def _item_answers(
    entries: Sequence[AckEntry | FailEntry],
    outcomes: Sequence[Outcome | Rejected | Problem],
    conflict: str,
    *,
    is_fail: bool = False,
) -> list[ItemAnswer]:
    return [
        item_answer(entry.job_id, outcome, conflict, is_fail=is_fail)
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]


def _beat_results(
    entries: Sequence[BeatEntry], outcomes: Sequence[Outcome | Rejected | Problem]
) -> list[BeatResult]:
    results = []
    for entry, outcome in zip(entries, outcomes, strict=True):
        beat = beat_answer(outcome)
        results.append(
            BeatResult(
                job_id=entry.job_id,
                status=beat.status,
                lease_expires_at=beat.lease_expires_at,
                error=beat.error,
                code=beat.code,
                outcome=beat.outcome,
                reason=beat.reason,
            )
        )
    return results


_NOT_SENT: Final = Problem(500, "INTERNAL_ERROR", "it was not sent")
