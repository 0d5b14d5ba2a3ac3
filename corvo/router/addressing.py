"""Where a job is, by its id, and bringing an op on many jobs to all the shards that have them.

An id that a shard made names that shard. An id that a client chose does not: it is remembered from
when the job went by, and else every shard is asked. A job that has moved is found behind the
pointer that it left.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from corvo.ids import shard_of
from corvo.router.http import Problem
from corvo.router.shards import Answer, Shards
from corvo.shard.ops.base import Op, Rejected

REMEMBERED_MAX: Final = 100_000
"""Chosen ids whose shard is known."""
HOPS_MAX: Final = 8
"""How often one request follows a job that moves."""

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

    __slots__ = ("candidates", "hops", "shard")

    def __init__(self, candidates: list[int]) -> None:
        self.candidates = candidates
        self.hops = 0
        self.shard = candidates.pop(0) if candidates else -1

    def goes_on(self, refused: Rejected) -> bool:
        """Whether it may be elsewhere; then `shard` is where."""
        if refused.code == "job_moved" and refused.shard >= 0 and self.hops < HOPS_MAX:
            self.hops += 1
            self.shard = refused.shard
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

    while open_:
        by_shard: dict[int, list[int]] = {}
        for place in open_:
            by_shard.setdefault(searches[place].shard, []).append(place)
        await together([partial(ask, shard, places) for shard, places in by_shard.items()])
        open_ = [place for place in open_ if searches[place].shard >= 0]
    return Results(outcomes, positions)


async def together(tasks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """All of them at once. One alone needs no nursery."""
    if len(tasks) == 1:
        await tasks[0]()
        return
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)


def missing(job_id: str) -> Rejected:
    """There is no such job."""
    return Rejected("job_not_found", f'job "{job_id[:140]}" not found', job_id=job_id[:140])
