"""Rights: where the requests of a route name queues and jobs, so that one place can check them.

Every row of the route table declares it. `corvo.router.api.Api.authorise` checks a request by the
declaration before its endpoint runs: a caller whose scope has every queue passes, any other has to
have each queue that is named, and the queue of each job. A row that names nothing says why: its
answer has nothing of queues, is filtered where it is made, or is only for callers with every queue.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, TypeAlias, TypeVar

import msgspec

from corvo.ids import queue_of_id
from corvo.router.http import params
from corvo.router.http.bodies import Body, body_of
from corvo.router.http.messages import Request

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
Names: TypeAlias = Callable[[Request], Iterable[str]]
"""Queues or jobs that a request names. Raises `Problem` for an invalid name."""


class Where(Enum):
    """A part of a request, or the reason why there is none to check."""

    PATH = "path"
    QUERY = "query"
    BODY = "body"
    RESULT = "result"
    """The answer: the endpoint leaves out, or refuses, what the caller's scope does not have."""
    NODE = "node"
    """Nowhere: neither request nor answer have anything of a queue or job."""
    EVERYTHING = "everything"
    """Everywhere: only callers whose scope has every queue may ask."""


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request names the queues, jobs and batches that must be in its caller's scope."""

    where: frozenset[Where]
    queues: tuple[Names, ...] = ()
    jobs: tuple[Names, ...] = ()
    batches: tuple[Names, ...] = ()
    names: frozenset[str] = frozenset()
    """The names in the route's path, and the parameters of its query, that are declared."""

    def __or__(self, other: "Rights") -> "Rights":
        return Rights(
            where=self.where | other.where,
            queues=self.queues + other.queues,
            jobs=self.jobs + other.jobs,
            batches=self.batches + other.batches,
            names=self.names | other.names,
        )

    @property
    def needs_everything(self) -> bool:
        """Whether only callers whose scope has every queue may ask."""
        return Where.EVERYTHING in self.where

    def queues_of(self, request: Request) -> list[str]:
        """The queues that a request names. Raises `Problem`."""
        return list(dict.fromkeys(queue for names in self.queues for queue in names(request)))

    def jobs_of(self, request: Request) -> list[str]:
        """The jobs that a request names. Raises `Problem`."""
        return list(dict.fromkeys(job_id for names in self.jobs for job_id in names(request)))

    def batches_of(self, request: Request) -> list[str]:
        """The batches that a request names. Raises `Problem`."""
        return list(dict.fromkeys(each for names in self.batches for each in names(request)))


NODE: Final = Rights(where=frozenset({Where.NODE}))
EVERYTHING: Final = Rights(where=frozenset({Where.EVERYTHING}))
RESULT: Final = Rights(where=frozenset({Where.RESULT}))


def queue_in_path(name: str) -> Rights:
    """The queue of this name in the path."""

    def queues(request: Request) -> Sequence[str]:
        return (params.checked_queue(name, request.params[name]),)

    return Rights(where=frozenset({Where.PATH}), queues=(queues,), names=frozenset({name}))


def job_in_path(name: str) -> Rights:
    """The job of this name in the path, which is changed."""

    def jobs(request: Request) -> Sequence[str]:
        return (params.checked_job_id(request.params[name]),)

    return Rights(where=frozenset({Where.PATH}), jobs=(jobs,), names=frozenset({name}))


def found_by_path(name: str) -> Rights:
    """What this name in the path stands for is read, and its queue is checked when it is found."""
    return Rights(where=frozenset({Where.RESULT}), names=frozenset({name}))


def queue_of_id_in_path(name: str) -> Rights:
    """The queue that is part of the id of this name in the path: `mail~nightly`."""

    def queues(request: Request) -> Sequence[str]:
        queue = queue_of_id(params.checked_job_id(request.params[name]))
        return (queue,) if queue else ()

    return Rights(where=frozenset({Where.PATH}), queues=(queues,), names=frozenset({name}))


def queue_in_query(name: str) -> Rights:
    """The queue in the query, where one is given."""

    def queues(request: Request) -> Sequence[str]:
        queue = request.query.get(name)
        return () if not queue else (params.checked_queue(name, queue),)

    return Rights(where=frozenset({Where.QUERY}), queues=(queues,), names=frozenset({name}))


def in_body(
    body: Body[BodyT],
    *,
    queues: Callable[[BodyT], Iterable[str]] | None = None,
    jobs: Callable[[BodyT], Iterable[str]] | None = None,
    batches: Callable[[BodyT], Iterable[str]] | None = None,
) -> Rights:
    """Queues, jobs and batches in the body, which is read as the endpoint does."""

    def in_request(names: Callable[[BodyT], Iterable[str]]) -> Names:
        return lambda request: names(body_of(request, body))

    return Rights(
        where=frozenset({Where.BODY}),
        queues=() if queues is None else (in_request(queues),),
        jobs=() if jobs is None else (in_request(jobs),),
        batches=() if batches is None else (in_request(batches),),
    )
