"""Where a job is, by its id, and bringing an op on many jobs to all the shards that have them.

An id that a shard made names that shard. An id that a client chose does not: it is remembered from
when the job went by, and else every shard is asked. A job that has moved is found behind the
pointer that it left.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import trio

from corvo.ids import shard_of
from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.queries import GetWhereabouts, Whereabouts
from corvo.router.http import Problem
from corvo.router.shards import Answer, Shards

REMEMBERED_MAX: Final = 100_000
"""Chosen ids whose shard is known."""
HOPS_MAX: Final = 8
"""How often one request follows a job that moves."""
LOOKS_MAX: Final = 20
"""How often it is looked whether a job has come to where it was sent."""
_TRAVEL_S: Final = 0.05
"""Between two looks: a job travels for a few milliseconds."""

R = TypeVar("R")


class Results(NamedTuple, Generic[R]):
    """What became of each job, in order, and how far the shards have come.

    It was done, it was refused, or its shard could not be asked.
    """

    outcomes: list[R | Rejected | Problem]
    positions: dict[int, int]


class Addresses:
    """The shards of ids."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._remembered: dict[str, int] = {}

    def remember(self, job_id: str, shard: int) -> None:
        """A job was seen in a shard, and its id does not say so."""
        self._remembered.pop(job_id, None)
        self._remembered[job_id] = shard
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def candidates(self, job_id: str) -> list[int]:
        """The shards that may have a job, the likeliest first; none if we have no such shard."""
        shard = shard_of(job_id)
        if shard is not None:
            return [shard] if shard < self._shards else []
        likely = self._remembered.get(job_id)
        others = [number for number in range(self._shards) if number != likely]
        return others if likely is None else [likely, *others]


class _Search:
    """One job that is looked for."""

    __slots__ = ("candidates", "home", "hops", "is_followed", "shard")

    def __init__(self, candidates: list[int]) -> None:
        self.candidates = candidates
        self.hops = 0
        self.home = -1
        self.is_followed = False
        """Whether a pointer of `home` says that it is in `shard`, and it was not looked yet."""
        self.shard = candidates.pop(0) if candidates else -1

    def goes_on(self, refused: Rejected) -> bool:
        """Whether it may be elsewhere; then `shard` is where."""
        if refused.code == "job_moved" and refused.shard >= 0 and self.hops < HOPS_MAX:
            self.hops += 1
            self.home, self.shard = self.shard, refused.shard
            self.is_followed = True
            return True
        if refused.code == "job_not_found" and self.candidates:
            self.shard = self.candidates.pop(0)
            return True
        return False


async def to_jobs(
    shards: Shards,
    addresses: Addresses,
    job_ids: Sequence[str],
    make: Callable[[list[int]], Op],
    read: Callable[[bytes], Sequence[R | Rejected]],
) -> Results[R]:
    """Carry an op out on jobs, wherever they are.

    `make` makes the op for some of them, by their places in `job_ids`; `read` reads its answer.
    """
    outcomes: list[R | Rejected | Problem] = [missing(job_id) for job_id in job_ids]
    positions: dict[int, int] = {}
    searches = [_Search(addresses.candidates(job_id)) for job_id in job_ids]
    open_ = [place for place, search in enumerate(searches) if search.shard >= 0]

    async def ask(shard: int, places: list[int]) -> None:
        try:
            answer: Answer = await shards[shard].submit(make(places))
        except Problem as problem:
            for place in places:
                outcomes[place] = problem
                searches[place].shard = -1
            return
        positions[shard] = max(answer.index, positions.get(shard, 0))
        for place, outcome in zip(places, read(answer.body), strict=True):
            outcomes[place] = outcome
            search = searches[place]
            if isinstance(outcome, Rejected) and search.goes_on(outcome):
                continue
            if not isinstance(outcome, Rejected) and shard_of(job_ids[place]) is None:
                addresses.remember(job_ids[place], shard)
            search.shard = -1

    async def land(place: int) -> None:
        search = searches[place]
        search.is_followed = False
        try:
            search.shard = await _landed(shards, job_ids[place], search.home, search.shard)
        except Problem as problem:
            outcomes[place] = problem
            search.shard = -1
        else:
            if search.shard < 0:
                outcomes[place] = missing(job_ids[place])

    while open_:
        followed = [place for place in open_ if searches[place].is_followed]
        if followed:
            await together([partial(land, place) for place in followed])
            open_ = [place for place in open_ if searches[place].shard >= 0]
        by_shard: dict[int, list[int]] = {}
        for place in open_:
            by_shard.setdefault(searches[place].shard, []).append(place)
        if by_shard:
            await together([partial(ask, shard, places) for shard, places in by_shard.items()])
        open_ = [place for place in open_ if searches[place].shard >= 0]
    return Results(outcomes, positions)


async def _landed(shards: Shards, job_id: str, home: int, shard: int) -> int:
    """Where a job is that has moved, once it is there; -1 when it is nowhere any more.

    It is looked for before the op is sent: under a request key the op's answer is kept, and that a
    job was not there *yet* must not be. Only the home's word that there is no such job is final.
    """
    for _ in range(LOOKS_MAX):
        if job_id in (await _look(shards, job_id, shard)).here:
            return shard
        pointed = (await _look(shards, job_id, home)).moved.get(job_id)
        if pointed is None:
            return -1
        shard = pointed
        await trio.sleep(_TRAVEL_S)
    raise Problem(
        503,
        "JOB_MOVING",
        f"job {job_id[:140]} is being moved to another queue: nothing was changed; try again",
        retry_after_ms=1_000,
    )


class _Seen(NamedTuple):
    here: set[str]
    moved: dict[str, int]


async def _look(shards: Shards, job_id: str, shard: int) -> _Seen:
    answer = _decode_whereabouts((await shards[shard].ask(GetWhereabouts(job_ids=[job_id]))).body)
    return _Seen(set(answer.queues), answer.moved)


_decode_whereabouts: Final = msgspec.json.Decoder(Whereabouts).decode


async def together(tasks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """All of them at once. One alone needs no nursery. Raises the first `Problem` of any."""
    if len(tasks) == 1:
        await tasks[0]()
        return
    problems: list[Problem] = []

    async def note(task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Problem as problem:
            problems.append(problem)

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(note, task)
    if problems:
        raise problems[0]


def missing(job_id: str) -> Rejected:
    """There is no such job."""
    return Rejected("job_not_found", f'job "{job_id[:140]}" not found', job_id=job_id[:140])
