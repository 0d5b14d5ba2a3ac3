"""The present positions of the shards, for searches that have to see all changes before them.

Only a shard's leader knows them, for other nodes have routers, too. One small query to each shard
serves all searches that came before it was sent; those that come while it is under way share the
next one. So a shard has one such query at a time, however many searches there are.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from corvo.protocol.queries import GetMoment
from corvo.protocol.questions import Freshness
from corvo.router.http.messages import Problem
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Shards

_SILENT_S: Final = 1.0
"""How long a shard that did not answer in time is not asked. Searches that come meanwhile do not
wait for it, and say so."""


class PresentPositions:
    """The present positions of all shards."""

    def __init__(self, shards: Shards) -> None:
        self._shards: Final = shards
        self._questions: Final = [_Question() for _ in shards]

    async def read(self, numbers: Iterable[int], wait_s: float) -> Freshness:
        """Where shards stand now. The answer is to wait as long as the time that is left.

        Shards are unknown that have no leader, refuse, or do not answer in time.
        """
        until = trio.current_time() + wait_s
        positions: dict[int, int] = {}
        wanted = tuple(numbers)
        asked = [number for number in wanted if self._can_be_asked(number)]

        async def look(number: int) -> None:
            with suppress(Problem):
                positions[number] = await self._ask(number)
            heard.append(number)

        heard: list[int] = []
        with trio.move_on_at(until):
            await together([partial(look, number) for number in asked])
        now = trio.current_time()
        for number in set(asked).difference(heard):
            self._questions[number].silent_until = now + _SILENT_S
        return Freshness(
            positions=positions,
            unknown=tuple(number for number in wanted if number not in positions),
            wait_ms=max(0, round((until - now) * 1_000)),
        )

    def _can_be_asked(self, number: int) -> bool:
        is_silent = trio.current_time() < self._questions[number].silent_until
        return self._shards[number].is_up and not is_silent

    async def _ask(self, number: int) -> int:
        """Where a shard stands, as of a query that was sent after this call. Raises `Problem`."""
        question = self._questions[number]
        sent_before = question.sent
        async with question.turn:
            if question.answered <= sent_before:
                question.sent += 1
                answer = await self._shards[number].ask(GetMoment())
                question.answered, question.index = question.sent, answer.index
            return question.index


class _Question:
    """The query to one shard."""

    def __init__(self) -> None:
        self.turn: Final = trio.Lock()
        self.sent = 0
        """How many were sent."""
        self.answered = 0
        """The number of the last that was answered."""
        self.index = 0
        self.silent_until = 0.0
