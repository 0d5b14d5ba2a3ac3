"""The executor of bulk operations: does each of them page by page, under a lease.

Shards that are away, and a mirror that is, are waited for: a bulk fails only when what was asked
can never be done. Each op names some jobs of one shard, and the next goes out when it is answered,
so that a bulk has no more of a shard than one producer has.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec
import trio

from corvo import clock
from corvo.model import STATES, Priority, State
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import ITEMS_MAX, Json, Op, Rejected
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Fail,
    FailItem,
    Fetch,
    Heartbeat,
    Release,
    ReleaseItem,
)
from corvo.protocol.queries import (
    Active,
    Form,
    GetActive,
    GetJobs,
    GetMoment,
    Moment,
)
from corvo.protocol.questions import Count, Counted, Filter, Select, Selected
from corvo.protocol.words import state_words
from corvo.router.api import Api
from corvo.router.ask import count_by_queue
from corvo.router.bulk.requests import (
    CRASHES_MAX,
    NOWHERE,
    QUEUE,
    SOMEWHERE,
    TAKEOVERS_MAX,
    Mark,
    Order,
    Pace,
    Result,
    bulk_id_of,
    caller_of,
    check_whole,
    is_direct,
    key_of,
    mark_of,
    op_jobs,
    op_of,
    page_jobs,
    page_of,
    read_order,
)
from corvo.router.caller import Caller
from corvo.router.http import positions
from corvo.router.http.messages import Problem, encode_json
from corvo.router.http.problems import missing
from corvo.router.jobs.bodies import read_jobs, read_stored
from corvo.router.shards.addressing import whereabouts
from corvo.router.shards.fan_out import send_to_job, together
from corvo.router.shards.outcomes import Outcome, read_results
from corvo.scopes import is_reserved
from corvo.telemetry import Log

SIDE_BY_SIDE: Final = 2
"""Bulks that one router works off at a time; others wait."""
AT_ONCE: Final = 2
"""Ops of one bulk that are under way, over all shards: others are to have their turn in between."""
REST_S_MAX: Final = 0.005
"""Behind each op a bulk rests for as long as that took, so long at most: so others have half of a
shard that is quick, and one that is slow is not kept from coming to an end."""
LEASE_MS: Final = 15_000
"""How long a bulk stands still at most when its router is killed and no other takes its place."""
BEAT_S: Final = 4.0
DIRECT_WAIT_S: Final = 10.0
"""How long a client waits for a shard that is away, in a bulk that is done at once."""
_PAUSE_S: Final = 0.25
"""Before something that could not be done is tried again, at least."""
_FETCH_S: Final = 60.0
_LEAVE_S: Final = 1.0
"""How long a router that leaves tries to give its bulks back."""
_LOOK_S: Final = 0.5
"""How long a shard is asked how far it has come."""
_PASSING: Final = (429, 503)
"""Statuses of problems that pass."""

_decode_counted: Final = msgspec.json.Decoder(Counted).decode
_decode_selected: Final = msgspec.json.Decoder(Selected).decode
_decode_moment: Final = msgspec.json.Decoder(Moment).decode
_decode_made: Final = msgspec.json.Decoder(EnqueueResults).decode


class Hands:
    """An action, and what does it to jobs."""

    def __init__(
        self, api: Api, order: Order, *, name: str, by: str, may_wait: Callable[[], bool]
    ) -> None:
        """`name` is that of the bulk; `may_wait` is asked when something is away for now."""
        self.reached: Final[dict[int, int]] = {}
        """How far the shards have come."""
        self._api = api
        self._order = order
        self._name = name
        self._by = by
        self._may_wait = may_wait
        self._pace = Pace(order.rate)
        self._free = trio.Semaphore(AT_ONCE)

    async def do(self, page: Sequence[tuple[str, int]]) -> list[tuple[str, Result]]:
        """Do it to jobs. What cannot be done is an outcome, and no exception."""
        outcomes: list[tuple[str, Result]] = []
        by_shard: dict[int, list[str]] = {}
        for job_id, shard in page:
            by_shard.setdefault(shard, []).append(job_id)

        async def work_off(shard: int, ids: list[str]) -> None:
            if shard == NOWHERE:
                outcomes.extend((job_id, missing(job_id)) for job_id in ids)
                return
            # An op's key is that of its jobs together. Which of those that are looked for go in one
            # op depends on what is remembered, so there each has one of its own.
            step = 1 if shard == SOMEWHERE else op_jobs(self._order.rate)
            for start in range(0, len(ids), step):
                some = ids[start : start + step]
                await trio.sleep(self._pace.take(len(some), trio.current_time()))
                outcomes.extend(await self._carry(shard, some))

        await together([partial(work_off, shard, ids) for shard, ids in by_shard.items()])
        return outcomes

    async def _carry(self, shard: int, ids: list[str]) -> list[tuple[str, Result]]:
        """Until each of them was done or refused, or it is not waited for any longer."""
        outcomes: list[tuple[str, Result]] = []
        turn = 0
        while ids:
            left_out: list[str] = []
            while ids:
                away: list[str] = []
                pause_s = _PAUSE_S
                async with self._free:
                    began = trio.current_time()
                    results = await self._send(shard, ids, turn)
                    await trio.sleep(min(trio.current_time() - began, REST_S_MAX))
                for job_id, result in zip(ids, results, strict=True):
                    if isinstance(result, Rejected) and result.code == "entry_full":
                        left_out.append(job_id)
                    elif isinstance(result, Problem) and _passes(result) and self._may_wait():
                        away.append(job_id)
                        pause_s = max(pause_s, result.retry_after_ms / 1_000)
                    else:
                        outcomes.append((job_id, result))
                if away:
                    await trio.sleep(pause_s)
                ids = away
            ids = left_out
            turn += 1
        return outcomes

    async def _send(self, shard: int, ids: list[str], turn: int) -> Sequence[Result]:
        """Send the op to the shard in which the jobs were found, or look for the one job.

        A job that has left its shard has changed, if a filter meant it; one that was named is
        followed.
        """
        order = self._order
        if shard == SOMEWHERE:
            return [await self._send_to_job(job_id, turn) for job_id in ids]
        since_ns = 0 if order.filter is None else order.bounds[shard]
        try:
            answer = await self._api.shards[shard].submit(self._op(ids, turn, since_ns))
        except Problem as problem:
            return [problem] * len(ids)
        positions.merge(self.reached, {shard: answer.index})
        results: list[Result] = [*read_results(answer.body)]
        for place, result in enumerate(results):
            if isinstance(result, Rejected) and result.code == "job_moved" and order.filter is None:
                results[place] = await self._send_to_job(ids[place], turn)
        return results

    async def _send_to_job(self, job_id: str, turn: int) -> Result:
        api, op = self._api, self._op([job_id], turn)
        try:
            sent = await send_to_job(api.shards, api.addresses, job_id, op)
        except Problem as problem:
            return problem
        positions.merge(self.reached, sent.positions)
        return sent.outcome

    def _op(self, ids: list[str], turn: int, since_ns: int = 0) -> Op:
        key = key_of(self._name, turn, ids)
        return op_of(self._order, ids, by=self._by, key=key, since_ns=since_ns)


def _passes(problem: Problem) -> bool:
    return problem.status in _PASSING


# Looking.


async def fix(api: Api, order: Order, caller: Caller) -> tuple[Order, Counted]:
    """Fix what an order means: its jobs as they are now. Raises `Problem`.

    *Now* is by the shards: the mirror may lag behind, and then only the count is not exact, and is
    that of the shards where they keep one. Nothing is selected before the mirror has come so far.
    """
    assert order.filter is not None
    bounds, seen = await _look_up(api)
    fixed = msgspec.structs.replace(order, seen=seen)
    question = Count(filter=order.filter)
    is_behind = False
    try:
        answer = await api.mirror.ask(question, _having_seen(caller, seen))
    except Problem as problem:
        if problem.code != "NOT_CAUGHT_UP":
            raise
        is_behind = True
        answer = await api.mirror.ask(question, caller)
    counted = _decode_counted(answer.body)
    check_whole(counted.as_of, len(counted.bounds), len(api.shards))
    if is_behind:
        with suppress(Problem):
            counted = await _counted_by_shards(api, caller, order.filter, counted)
    return msgspec.structs.replace(
        fixed,
        bounds={**counted.bounds, **bounds},
        total=counted.total,
        is_exact=counted.is_exact and not is_behind,
    ), counted


async def _counted_by_shards(api: Api, caller: Caller, given: Filter, counted: Counted) -> Counted:
    """The counts that the shards keep, if a filter asks for these. Raises `Problem`."""
    is_hidden = given.queue is not None and not caller.scope.covers(given.queue)
    if is_hidden or msgspec.structs.replace(given, queue=None, state=None) != type(given)():
        return counted
    words = [state.value for state in STATES] if given.state is None else state_words(given.state)
    states: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for word in dict.fromkeys(words):
        by_shard = await count_by_queue(api, caller, State(word), given.queue)
        for queue, number in (each for counts in by_shard.values() for each in counts.items()):
            if number and not is_reserved(queue):
                states[word] += number
                queues[queue] += number
    return msgspec.structs.replace(
        counted, total=states.total(), states=dict(states), queues=dict(queues.most_common(100))
    )


async def _look_up(api: Api) -> tuple[dict[int, int], dict[int, int]]:
    """The times of the shards and their places there; those that are away are left out."""
    times: dict[int, int] = {}
    places: dict[int, int] = {}

    async def look(shard: int) -> None:
        with trio.move_on_after(_LOOK_S), suppress(Problem):
            answer = await api.shards[shard].ask(GetMoment())
            times[shard] = _decode_moment(answer.body).now_ns
            places[shard] = answer.index

    await together([partial(look, shard.number) for shard in api.shards])
    return times, places


def _having_seen(caller: Caller, seen: dict[int, int]) -> Caller:
    """The same caller, whose reads wait for these positions as well."""
    wanted = dict(caller.min_seq)
    positions.merge(wanted, seen)
    return caller.as_of(wanted)


async def _select(api: Api, order: Order, after: str) -> Selected:
    """The next jobs that an order means. Raises `Problem`."""
    assert order.filter is not None
    question = Select(
        filter=order.filter, bounds=order.bounds, after=after, limit=page_jobs(order.rate)
    )
    answer = await api.mirror.ask(question, caller_of(order))
    selected = _decode_selected(answer.body)
    check_whole(selected.as_of, len(order.bounds), len(api.shards))
    return selected


async def locate(api: Api, job_ids: Sequence[str]) -> list[tuple[str, int]]:
    """In which shard each of them is, as far as that can be known now."""
    found: dict[str, int] = {}
    by_shard: dict[int, list[str]] = {}
    for job_id in job_ids:
        for shard in api.addresses.candidates(job_id):
            by_shard.setdefault(shard, []).append(job_id)

    async def look(shard: int, ids: list[str]) -> None:
        """What a shard that is away may have is somewhere."""
        for start in range(0, len(ids), ITEMS_MAX):
            some = ids[start : start + ITEMS_MAX]
            try:
                seen = await whereabouts(api.shards[shard], some)
            except Problem:
                for job_id in some:
                    found.setdefault(job_id, SOMEWHERE)
                continue
            for job_id in seen.moved:
                found.setdefault(job_id, SOMEWHERE)
            found.update(dict.fromkeys(seen.queues, shard))

    await together([partial(look, shard, ids) for shard, ids in by_shard.items()])
    return [(job_id, found.get(job_id, NOWHERE)) for job_id in job_ids]


# While the client waits.


async def do_now(api: Api, order: Order, *, name: str, by: str) -> tuple[Mark, dict[int, int]]:
    """Carry a small order out; what became of it, and how far the shards have come.

    Raises `Problem` when nothing of it was done because the mirror or all shards are away.
    """
    until_s = trio.current_time() + DIRECT_WAIT_S
    hands = Hands(api, order, name=name, by=by, may_wait=lambda: trio.current_time() < until_s)
    mark = Mark()
    while not mark.is_last:
        if order.filter is None:
            page = await locate(api, order.job_ids)
            mark.is_last = True
        else:
            selected = await _select_in_time(api, order, mark, until_s)
            if isinstance(selected, Problem):
                mark.give_up(order, selected)
                break
            page = page_of(selected.members)
            mark.after, mark.is_last = selected.after, not selected.after
        outcomes = await hands.do(page)
        _raise_if_away(outcomes, mark)
        mark.note(outcomes)
    mark.settle(order)
    return mark, hands.reached


async def _select_in_time(api: Api, order: Order, mark: Mark, until_s: float) -> Selected | Problem:
    """The next page, or why there is none. Raises `Problem` when nothing was done before."""
    while True:
        try:
            return await _select(api, order, mark.after)
        except Problem as problem:
            if not mark.processed:
                raise
            if not _passes(problem) or trio.current_time() >= until_s:
                return problem
            await trio.sleep(max(_PAUSE_S, problem.retry_after_ms / 1_000))


def _raise_if_away(outcomes: Sequence[tuple[str, Result]], mark: Mark) -> None:
    """Nothing was done, and it is known why: that is a problem of the whole."""
    problems = [result for _, result in outcomes if isinstance(result, Problem)]
    if problems and len(problems) == len(outcomes) and not mark.processed:
        raise problems[0]


# As a job.


async def enqueue(
    api: Api, order: Order, job_id: str | None, *, is_waited_for: bool = False
) -> tuple[Enqueued, int]:
    """Put an order into the queue; the job that it is, and where its shard stands.

    Raises `Problem`. With an id that was chosen, the same again is the same job.
    """
    job = NewJob(
        queue=QUEUE,
        payload=msgspec.Raw(encode_json(order)),
        id=job_id,
        kind=order.action,
        max_retries=CRASHES_MAX,
        max_crashes=CRASHES_MAX,
        priority=Priority.HIGH if is_waited_for else Priority.NORMAL,
    )
    answer = await api.shards[home(api)].submit(Enqueue(jobs=[job], by=order.by))
    [made] = _decode_made(answer.body).jobs
    return made, answer.index


def home(api: Api) -> int:
    """The shard in which bulk operations wait."""
    return shard_of_queue(QUEUE, len(api.shards))


async def run(api: Api, log: Log) -> None:
    """Work bulk operations off as they come, until this router leaves."""
    slots = trio.Semaphore(SIDE_BY_SIDE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave, api, nursery.cancel_scope)
        for claim in await _left_behind(api):
            slots.acquire_nowait()
            nursery.start_soon(_work_off, api, claim, slots, log)
        while True:
            await slots.acquire()
            claim = await _fetch(api)
            nursery.start_soon(_work_off, api, claim, slots, log)


async def _leave(api: Api, scope: trio.CancelScope) -> None:
    await api.stopping.wait()
    scope.cancel()


class Lease(NamedTuple):
    """A bulk that is ours to work off."""

    job_id: str
    lease_token: int
    payload: Json
    checkpoint: Json
    is_ours: bool = False
    """Whether it was ours before: of a router that was killed."""


_decode_active: Final = msgspec.json.Decoder(Active).decode


async def _left_behind(api: Api) -> list[Lease]:
    """The bulks that the router had in whose place this one is: the leases go on.

    A node has one router, which is started when the one before has ended.
    """
    shard = api.shards[home(api)]
    while True:
        try:
            active = _decode_active((await shard.ask(GetActive(queue=QUEUE))).body).job_ids
            if not active:
                return []
            found = read_jobs((await shard.ask(GetJobs(job_ids=active, form=Form.STORED))).body)
            views = [read_stored(job.json) for job in found.jobs]
        except Problem:
            await trio.sleep(1)
            continue
        ours = [
            Lease(view.job.id, view.job.lease_token, view.payload, view.checkpoint, is_ours=True)
            for view in views
            if view.job.hostname == _name(api)
        ]
        return ours[:SIDE_BY_SIDE]


def _name(api: Api) -> str:
    return f"router of node {api.config.node}"


async def _fetch(api: Api) -> Lease:
    # Without the name of a worker: what a router does for itself is nobody's to list.
    fetch = Fetch(queues=[QUEUE], hostname=_name(api), lease_ms=LEASE_MS)
    while True:
        try:
            fetched = await api.fetching.fetch(fetch, _FETCH_S, is_own=True)
        except Problem:
            await trio.sleep(1)
            continue
        for claim in fetched.claims:
            return Lease(claim.job_id, claim.lease_token, claim.payload, claim.checkpoint)


async def _work_off(api: Api, claim: Lease, slots: trio.Semaphore, log: Log) -> None:
    try:
        await Run(api, claim, log).run()
    except Exception as error:  # noqa: BLE001 -- of a bug in one bulk, others know nothing
        # Its lease is left to run out. When that has happened too often, it is held.
        log.bug("bulk.bug", error, bulk=bulk_id_of(claim.job_id))
    finally:
        slots.release()


class _Lost(Exception):
    """The lease is over: somebody else has the bulk now."""


class Run:
    """One bulk, while its lease is ours."""

    def __init__(self, api: Api, claim: Lease, log: Log) -> None:
        self._api = api
        self._claim = claim
        self._log = log
        self._home = home(api)
        self._stops = False
        """Whether it was asked to stop."""
        self._ahead: Selected | Problem | None = None
        """The page behind the one that is being done."""

    async def run(self) -> None:
        """Go on where it stands. Returns when it has ended, or is not ours any more."""
        is_over = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, nursery.cancel_scope)
                try:
                    await self._work()
                except _Lost:
                    self._log.warning("bulk.lost", bulk=bulk_id_of(self._claim.job_id))
                is_over = True
                nursery.cancel_scope.cancel()
        finally:
            # After a bug it is not given back: a bulk that ends its router again and again is to be
            # counted out by the leases that it loses.
            if not is_over and self._api.stopping.is_set():
                with trio.move_on_after(_LEAVE_S, shield=True):
                    await self._give_back()

    async def _keep(self, scope: trio.CancelScope) -> None:
        """Hold on to the lease, also while everything is waited for."""
        while True:
            await trio.sleep(BEAT_S)
            try:
                await self._beat(None)
            except _Lost:
                scope.cancel()
                return

    # From page to page.

    async def _work(self) -> None:
        claim = self._claim
        try:
            self.order: Order = read_order(bytes(claim.payload or b"{}"))
            self.mark: Mark = mark_of(claim.checkpoint)
        except msgspec.DecodeError as error:
            await self._fail(f"this release cannot read it: {error}")
            return
        order, mark = self.order, self.mark
        self._api.bulks_waited_for.discard(claim.job_id)
        bulk_id = bulk_id_of(claim.job_id)
        self._log.info("bulk.begun", bulk=bulk_id, action=order.action, processed=mark.processed)
        self._hands = Hands(
            self._api,
            order,
            name=bulk_id,
            by=f"{order.by} by {bulk_id}" if order.by else bulk_id,
            may_wait=self._goes_on,
        )
        try:
            await self._take_over()
            if mark.page:  # whoever had it before has written down that it would do these
                await self._do_page()
            while not mark.is_last and self._goes_on():
                await self._turn_page()
                if mark.page and self._goes_on():
                    await self._do_page()
                # After a page, so that it comes further however many go before it. Those that a
                # client waits for are small, and come first.
                if self._gives_way():
                    await self._say(self._release("a small one goes first", self._checkpoint()))
                    return
            await self._end()
        except Problem as problem:
            with suppress(Problem):  # which may be that this cannot be written down
                await self._beat(mark)
            await self._fail(problem.error)
        self._log.info("bulk.ended", bulk=bulk_id, processed=mark.processed)

    async def _take_over(self) -> None:
        """Go on at once with what a router had that was killed, but not for ever."""
        if not self._claim.is_ours:
            return
        if self.mark.takeovers == TAKEOVERS_MAX:
            raise _Lost  # it is left to its lease
        self.mark.takeovers += 1
        await self._beat(self.mark)

    def _goes_on(self) -> bool:
        return not self._stops

    async def _turn_page(self) -> None:
        """Write down which jobs come next."""
        order, mark = self.order, self.mark
        if order.filter is None:
            place = mark.place
            mark.place = min(place + page_jobs(order.rate), len(order.job_ids))
            mark.page = await locate(self._api, order.job_ids[place : mark.place])
            mark.is_last = mark.place == len(order.job_ids)
        else:
            if self._ahead is None:
                await self._look_ahead()
            ahead, self._ahead = self._ahead, None
            if ahead is None:
                return  # it was asked to stop while it looked
            if isinstance(ahead, Problem):
                raise ahead
            mark.page = page_of(ahead.members)
            mark.after, mark.is_last = ahead.after, not ahead.after
        mark.pages += 1
        mark.takeovers = 0
        await self._beat(mark)

    async def _look_ahead(self) -> None:
        """Find the next page, however long the mirror is away."""
        while self._goes_on():
            try:
                self._ahead = await _select(self._api, self.order, self.mark.after)
            except Problem as problem:
                if not _passes(problem) or not self._api.mirror.is_there:
                    self._ahead = problem
                    return
                await trio.sleep(max(_PAUSE_S, problem.retry_after_ms / 1_000))
            else:
                return

    async def _do_page(self) -> None:
        mark = self.mark
        async with trio.open_nursery() as nursery:
            if self.order.filter is not None and not mark.is_last:
                nursery.start_soon(self._look_ahead)
            outcomes = await self._hands.do(mark.page)
        mark.note(outcomes)
        positions.merge(mark.reached, self._hands.reached)
        mark.page = []

    # What the shard is told of it.

    async def _beat(self, mark: Mark | None) -> None:
        """Say that it goes on, and write down how far it has come. Raises `_Lost`."""
        claim = self._claim
        item = BeatItem(job_id=claim.job_id, lease_token=claim.lease_token, is_own=True)
        if mark is not None:
            item = msgspec.structs.replace(
                item, checkpoint=self._checkpoint(), progress=self._progress()
            )
        if await self._say(Heartbeat(jobs=[item], by=self._by)) == "cancel":
            self._stops = True

    async def _end(self) -> None:
        """Everything was done, or it was asked to stop."""
        mark, job_id, token = self.mark, self._claim.job_id, self._claim.lease_token
        if self._stops:
            mark.page = []  # written down, and not begun
            await self._say(self._release("", self._checkpoint()))
            return
        mark.settle(self.order)
        result = encode_json({"affected": mark.affected, "skipped_total": mark.skipped_total})
        done = AckItem(
            job_id=job_id,
            lease_token=token,
            is_own=True,
            checkpoint=self._checkpoint(),
            result=msgspec.Raw(result),
        )
        await self._say(Ack(acks=[done], by=self._by))

    async def _fail(self, error: str) -> None:
        fail = FailItem(
            job_id=self._claim.job_id,
            lease_token=self._claim.lease_token,
            is_own=True,
            error=error,
            retryable=False,
        )
        await self._say(Fail(fails=[fail], by=self._by))

    def _gives_way(self) -> bool:
        is_over = self.mark.is_last or not self._goes_on()
        return bool(self._api.bulks_waited_for) and not is_over and not is_direct(self.order)

    async def _give_back(self) -> None:
        """Let the next router go on at once. What was not written down is done again, as once."""
        try:
            await self._api.shards[self._home].submit(self._release("the router leaves"))
        except Problem:
            return  # its lease will end by itself

    def _release(self, why: str, checkpoint: Json = msgspec.UNSET) -> Release:
        item = ReleaseItem(
            job_id=self._claim.job_id,
            lease_token=self._claim.lease_token,
            is_own=True,
            why=why,
            checkpoint=checkpoint,
        )
        return Release(jobs=[item], by=self._by)

    async def _say(self, op: Op) -> str:
        """Have it heard, however long that takes; what is answered.

        Raises `_Lost`, and `Problem` for what is not taken at all.
        """
        while True:
            try:
                answer = await self._api.shards[self._home].submit(op)
            except Problem as problem:
                if not _passes(problem):
                    raise
                await trio.sleep(max(_PAUSE_S, problem.retry_after_ms / 1_000))
                continue
            [result] = read_results(answer.body)
            if isinstance(result, Outcome):
                return result.status
            if result.code != "entry_full":
                raise _Lost

    @property
    def _by(self) -> str:
        return _name(self._api)

    def _checkpoint(self) -> msgspec.Raw:
        self.mark.at_ns = clock.now_ns()
        return msgspec.Raw(encode_json(self.mark))

    def _progress(self) -> msgspec.Raw:
        current, total = self.mark.processed, max(self.order.total, self.mark.processed)
        return msgspec.Raw(encode_json({"current": current, "total": total}))
