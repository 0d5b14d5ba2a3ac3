"""Dashboards on an event stream: the summary, and the jobs that a client watches.

It is asked for when it is due and sent at once; nothing of it waits for anybody. Whoever may see
the same queues shares one summary.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio

from corvo.router.caller import Caller
from corvo.router.events.topics import WATCH_S, AwayFrame, Changes, Topics, WatchFrame
from corvo.router.feeds.events import EventFilter
from corvo.router.http.messages import Problem, encode_json
from corvo.router.summary import SUMMARY_S, Summaries, SumUp

LOOK_S: Final = 1.0
"""How long one thing may take to be looked at, while the events of this client wait."""

Look: TypeAlias = Callable[[Caller, str], Awaitable[bytes]]


class Board:
    """What one client is shown."""

    def __init__(
        self, topics: Topics, summaries: Summaries, sum_up: SumUp, look: Look, jobs: dict[str, str]
    ) -> None:
        """`jobs` says which watched thing a job is."""
        self._topics = topics
        self._summaries = summaries
        self._sum_up = sum_up
        self._look = look
        self._jobs = jobs
        self._dirty: dict[str, None] = dict.fromkeys(topics.watched)
        self._changes = Changes()
        self._summed_at = self._looked_at = -SUMMARY_S

    @property
    def has_tail(self) -> bool:
        """Whether events are shown, too."""
        return self._topics.tail

    def event_filter(self, shown: EventFilter) -> EventFilter:
        """The events that it has to hear of, beside those that are shown."""
        if self._topics.tail:
            return EventFilter() if self._jobs else shown
        return EventFilter(job_ids=frozenset(self._jobs) or frozenset({""}))

    def note(self, job_id: str) -> None:
        """Something happened to a job."""
        thing = self._jobs.get(job_id)
        if thing is not None:
            self._dirty[thing] = None

    def note_all(self) -> None:
        """Nobody knows what happened meanwhile."""
        self._dirty = dict.fromkeys(self._topics.watched)

    def due(self) -> float:
        """When there is something to be told next."""
        summary = self._summed_at + SUMMARY_S if self._topics.summary else float("inf")
        watched = self._looked_at + WATCH_S if self._dirty else float("inf")
        return min(summary, watched)

    async def frames(self, caller: Caller) -> list[bytes]:
        """What is to be told now, as JSON."""
        now = trio.current_time()
        frames: list[bytes] = []
        if self._topics.summary and now >= self._summed_at + SUMMARY_S:
            self._summed_at = now
            frames.append(await self._summarise(caller))
        if self._dirty and now >= self._looked_at + WATCH_S:
            self._looked_at = now
            dirty, self._dirty = self._dirty, {}
            for thing in dirty:
                frames += await self._view(thing, caller)
        return frames

    async def _summarise(self, caller: Caller) -> bytes:
        error = "it takes too long"
        with trio.move_on_after(LOOK_S):
            try:
                told = await self._summaries.get(caller, self._sum_up)
                return encode_json(self._changes.next(told))
            except Problem as problem:
                error = problem.error
        return encode_json(AwayFrame(topic="summary", error=error))

    async def _view(self, thing: str, caller: Caller) -> list[bytes]:
        with trio.move_on_after(LOOK_S):
            try:
                seen = await self._look(caller, thing)
                return [encode_json(WatchFrame(id=thing, thing=msgspec.Raw(seen.strip())))]
            except Problem as problem:
                if problem.status in {403, 404}:
                    return [encode_json(WatchFrame(id=thing, gone=True))]
        self._dirty[thing] = None  # the shard is away: it is asked again
        return []
