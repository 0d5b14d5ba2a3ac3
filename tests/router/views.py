"""A mirror that is no mirror: it walks over the shards' jobs, and knows a few filters."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from corvo.model import Job
from corvo.protocol.questions import (
    Count,
    Counted,
    Filter,
    Freshness,
    Member,
    MirrorAnswer,
    Place,
    Question,
    Search,
    Select,
    Selected,
)
from corvo.router.caller import Caller
from corvo.router.http.messages import Problem
from corvo.router.shards.mirror import Mirror, unavailable
from corvo.shard.state.tables import JOBS
from tests.router.nests import Nest

_NAMES: Final = {0: "critical", 1: "high", 2: "normal"}


def _answer(found: object) -> MirrorAnswer:
    return MirrorAnswer(msgspec.json.encode(found))


class View(msgspec.Struct, frozen=True):
    """One shard as it was once."""

    jobs: list[Job]
    now_ns: int
    index: int


class WalkingMirror(Mirror):
    """Answers from the shards as they were when `look` was called, or as they are."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest.api.config)
        self._nest = nest
        self._views: list[View] | None = None
        self.is_away = False
        self.is_none = False
        self.is_whole = True
        self.asked: list[tuple[Question, Caller]] = []
        self.before: Callable[[], None] = lambda: None
        """Called before each answer."""
        self.follows: Callable[[], bool] = lambda: False
        """Whether a shard is followed in time, while a question waits for it."""
        vars(nest.api)["mirror"] = self

    @property
    def is_there(self) -> bool:
        return not self.is_none

    def look(self) -> None:
        """From here on it answers from the shards as they are now: it lags behind."""
        self._views = self._walk()

    def catch_up(self) -> None:
        """It does not lag behind any more."""
        self._views = None

    def _follow(self, freshness: Freshness) -> None:
        """Somebody waits: each shard is followed as far as it was to be, if `follows` says so."""
        if self._views is not None:
            for number, now in enumerate(self._walk()):
                is_due = self._views[number].index < freshness.positions.get(number, 0)
                if is_due and self.follows():
                    self._views[number] = now

    def _walk(self) -> list[View]:
        return [
            View(shard.machine.documents(JOBS), shard.machine.now_ns, shard.machine.machine.applied)
            for shard in self._nest.shards
        ]

    async def ask(
        self,
        question: Question,
        caller: Caller,
        *,
        freshness: Freshness | None = None,
        budget_ms: int | None = None,
        patience_s: float | None = None,
    ) -> MirrorAnswer:
        await trio.lowlevel.checkpoint()
        self.before()
        if self.is_none:
            raise unavailable("this node runs without one")
        if self.is_away:
            raise unavailable("away")
        if freshness is not None:
            self._follow(freshness)
        views = self._views if self._views is not None else self._walk()
        if any(views[number].index < index for number, index in caller.min_seq.items()):
            raise Problem(503, "NOT_CAUGHT_UP", "it lags behind", retry_after_ms=1_000)
        self.asked.append((question, caller))
        match question:
            case Count():
                return _answer(self._count(question, caller, views))
            case Select():
                return _answer(self._select(question, caller, views))
            case Search():
                found = self._found(question.search, caller, views)
                found.reverse()
                page: dict[str, object] = {
                    "jobs": [{"id": job.id} for _, job in found[: question.search.limit or 50]]
                }
                if freshness is not None:
                    page["is_behind"] = freshness.is_beyond(self._places(views))
                return _answer(page)
            case _:
                raise AssertionError(question)

    def _places(self, views: list[View]) -> dict[str, Place]:
        return {
            f"s{number}": Place(view.index, str(view.now_ns), self.is_whole)
            for number, view in enumerate(views)
        }

    def _found(self, filter_: Filter, caller: Caller, views: list[View]) -> list[tuple[int, Job]]:
        found = [
            (number, job)
            for number, view in enumerate(views)
            for job in view.jobs
            if means(filter_, job) and caller.scope.covers(job.queue)
        ]
        return sorted(found, key=lambda each: (each[1].created_ns, each[1].id, each[0]))

    def _count(self, question: Count, caller: Caller, views: list[View]) -> Counted:
        found = self._found(question.filter, caller, views)
        return Counted(
            total=min(len(found), question.exact_to),
            is_exact=len(found) <= question.exact_to,
            states=dict(Counter(job.state.value for _, job in found)),
            queues=dict(Counter(job.queue for _, job in found)),
            samples=[msgspec.Raw(msgspec.json.encode({"id": job.id})) for _, job in found[:10]],
            bounds={number: view.now_ns for number, view in enumerate(views)},
            as_of=self._places(views),
        )

    def _select(self, question: Select, caller: Caller, views: list[View]) -> Selected:
        found = [
            (number, job)
            for number, job in self._found(question.filter, caller, views)
            if number in question.bounds and job.trail[-1].at_ns <= question.bounds[number]
        ]
        keys = [f"{job.created_ns:020}/{job.id}/{number}" for number, job in found]
        page = [
            (key, Member(job.id, number, job.queue, job.state.value))
            for key, (number, job) in zip(keys, found, strict=True)
            if key > question.after
        ]
        shown = page[: question.limit]
        return Selected(
            members=[member for _, member in shown],
            after=shown[-1][0] if len(page) > len(shown) else "",
            as_of=self._places(views),
        )


def means(filter_: Filter, job: Job) -> bool:
    """Whether a job is meant, by the few conditions that are known here."""
    if filter_.queue == "?":
        raise Problem(400, "VALIDATION_ERROR", "queue: there is no such", field="queue")
    return (
        (filter_.queue is None or job.queue == filter_.queue)
        and (filter_.state is None or job.state.value in filter_.state)
        and (filter_.kind is None or job.kind == filter_.kind)
        and (filter_.priority is None or _NAMES[job.priority] == filter_.priority)
    )
