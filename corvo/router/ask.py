"""Asking several shards at once, and reading the lists that each of them has a part of."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from corvo.protocol.queries import Query
from corvo.router.api import Api
from corvo.router.caller import Caller
from corvo.router.http.messages import Problem
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Answer

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


class _Page(Protocol):
    """A part of a shard's list."""

    @property
    def after(self) -> str:
        """Behind what the next part begins; empty at the end."""


P_co = TypeVar("P_co", bound=_Page, covariant=True)


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
    question: Callable[[str, int], Query],
    read: Callable[[bytes], P_co],
    *,
    after: str,
    limit: int,
) -> Lists[P_co]:
    """The lists of all shards behind a name, up to `limit` of each.

    `question` asks for so many behind a name.
    """
    part = min(limit, PART)
    following = {shard.number: after for shard in api.shards}
    pages: list[P_co] = []
    seen: dict[int, int] = {}
    for _ in range(-(-limit // part)):
        if not following:
            break
        questions = [(shard, question(name, part)) for shard, name in following.items()]
        answers = await ask_each(api, caller, questions)
        following = {}
        for (shard, _query), answer in zip(questions, answers, strict=True):
            page = read(answer.body)
            pages.append(page)
            seen[shard] = answer.index
            if page.after:
                following[shard] = page.after
    return Lists(pages, min(following.values(), default=""), seen)
