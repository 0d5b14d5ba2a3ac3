"""Queries to several shards at once, and the merging of their lists."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from corvo.model import State
from corvo.protocol.queries import (
    CountJobs,
    Counts,
    GetQueue,
    GetQueues,
    GetWorkers,
    Query,
    QueueView,
)
from corvo.router.api import Api
from corvo.router.caller import Caller
from corvo.router.http.messages import Problem
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Answer, Shard

PART: Final = 250
"""Queues that one question asks for: 4 ms of a shard's loop."""

Q_co = TypeVar("Q_co", bound=Query, covariant=True)


async def ask_each(api: Api, caller: Caller, questions: Sequence[tuple[int, Q_co]]) -> list[Answer]:
    """Ask shards at once; their answers in the order of the questions. Raises `Problem`."""
    answers: dict[int, Answer | Problem] = {}

    async def ask(place: int) -> None:
        shard, query = questions[place]
        try:
            answers[place] = await api.ask(shard, query, caller)
        except Problem as problem:
            answers[place] = problem

    await together([partial(ask, place) for place in range(len(questions))])
    given: list[Answer] = []
    for place in range(len(questions)):
        answer = answers[place]
        if isinstance(answer, Problem):
            raise answer
        given.append(answer)
    return given


class Page(Protocol):
    """A part of a shard's list."""

    @property
    def after(self) -> str:
        """The name after which the next part begins; empty at the end."""


P_co = TypeVar("P_co", bound=Page, covariant=True)


class Read(NamedTuple, Generic[P_co]):
    """A page, and the shard that answered."""

    shard: int
    page: P_co
    position: int
    """How far the shard had come."""


async def read_pages(
    api: Api,
    caller: Caller,
    question: Callable[[str], Query],
    read: Callable[[bytes], P_co],
    *,
    after: str = "",
    shards: Iterable[Shard] | None = None,
    pages_max: int | None = None,
) -> AsyncIterator[list[Read[P_co]]]:
    """The lists of shards after a name, one page of each at a time. Raises `Problem`.

    `question` asks for the page after a name. A shard whose list has ended is asked no more, nor
    one that gave `pages_max`.
    """
    following = {shard.number: after for shard in (api.shards if shards is None else shards)}
    for _ in count() if pages_max is None else range(pages_max):
        if not following:
            return
        questions = [(shard, question(name)) for shard, name in following.items()]
        answers = await ask_each(api, caller, questions)
        pages = [
            Read(shard, read(answer.body), answer.index)
            for shard, answer in zip(following, answers, strict=True)
        ]
        following = {each.shard: each.page.after for each in pages if each.page.after}
        yield pages


async def count_by_queue(
    api: Api, caller: Caller, state: State, queue: str | None = None
) -> dict[int, dict[str, int]]:
    """By shard, the queues of the caller's scope that have jobs of a state, and how many.

    A `queue` that is named is there in any case, and its caller has been checked. Raises `Problem`.
    """
    if queue is not None:
        shard = api.shards.of_queue(queue).number
        answer = await api.ask(shard, GetQueue(queue=queue), caller)
        return {shard: {queue: _read_queue(answer.body).counts[state.value]}}
    counts: dict[int, dict[str, int]] = {}
    async for pages in read_pages(
        api, caller, lambda after: CountJobs(state=state, after=after), _read_counts
    ):
        for each in pages:
            visible = [count for count in each.page.queues if caller.scope.covers(count[0])]
            counts.setdefault(each.shard, {}).update(visible)
    return counts


_read_queue: Final = msgspec.json.Decoder(QueueView).decode
_read_counts: Final = msgspec.json.Decoder(Counts).decode


class Lists(NamedTuple, Generic[P_co]):
    """Lists of all shards, as far as they were read."""

    pages: list[P_co]
    reached: str
    """Up to this name all of them were; empty when that is to the end."""
    seen: dict[int, int]
    """How far the shards had come."""


async def read_lists(
    api: Api,
    caller: Caller,
    question: type[GetQueues | GetWorkers],
    read: Callable[[bytes], P_co],
    *,
    after: str,
    limit: int,
) -> Lists[P_co]:
    """The lists of all shards after a name, up to `limit` of each."""
    part = min(limit, PART)
    pages: list[P_co] = []
    seen: dict[int, int] = {}
    reached: list[str] = []

    def ask(name: str) -> Query:
        return question(after=name, limit=part)

    rounds = -(-limit // part)
    async for now in read_pages(api, caller, ask, read, after=after, pages_max=rounds):
        pages.extend(each.page for each in now)
        seen.update((each.shard, each.position) for each in now)
        reached = [each.page.after for each in now if each.page.after]
    return Lists(pages, min(reached, default=""), seen)
