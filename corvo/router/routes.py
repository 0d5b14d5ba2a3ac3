"""The rows of the route table, and how one is found. The table itself is `corvo.router.table`."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec

from corvo.router.actions import Action
from corvo.router.api import Api
from corvo.router.http import JSON, Request, Response
from corvo.router.rights import Rights, Where

__all__ = ["Action", "Endpoint", "Found", "Parameter", "Route", "Routes"]

Endpoint: TypeAlias = Callable[[Api, Request], Awaitable[Response]]


class Parameter(msgspec.Struct, frozen=True):
    """One that may stand in the query."""

    name: str
    type: str
    """As JSON Schema names types."""
    description: str
    minimum: int | None = None
    maximum: int | None = None
    """Of a number, or of the length of a text: what the endpoint really holds it to."""
    pattern: str = ""
    """Of a text."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked for."""

    method: str
    path: str
    """A name in braces stands for one segment: `/api/v1/jobs/{id}/retry`."""
    endpoint: Endpoint
    action: Action
    rights: Rights
    """Where a request names the queues and jobs that must be in its caller's scope."""
    summary: str
    """One line, for the page that lists all of them."""
    is_streamed: bool = False
    """Whether an answer may have no end, and is sent piece by piece: only the slow lane can."""
    takes: type[msgspec.Struct] | None = None
    """The body, for the OpenAPI document; what reads it is the endpoint."""
    gives: dict[int, type | None] = msgspec.field(default_factory=lambda: {200: None})
    """What is answered when all is well, by status; None is no body, or not JSON."""
    content_type: str = JSON
    """Of what is given."""
    problems: tuple[int, ...] = ()
    """Statuses of problems beside those that any route may have."""
    query: tuple[Parameter, ...] = ()
    is_parked: bool = False
    """Whether it may wait for long, and is not counted among the requests under way."""
    has_min_seq: bool = False
    """Whether it waits for the positions in the header `Corvo-Min-Seq`."""

    def __post_init__(self) -> None:
        rights, named = self.rights, set(re.findall(r"{(\w+)}", self.path))
        assert rights.where, f"{self.path} declares no rights"
        undeclared = set() if rights.needs_everything else named - rights.names
        assert not undeclared, f"{self.path} does not declare {undeclared}"
        assert rights.names <= named | {each.name for each in self.query}, self.path
        needs_body = Where.BODY in rights.where
        assert self.takes is not None or not needs_body, f"{self.path} takes no body"


class Found(msgspec.Struct, frozen=True):
    """A route, and what stands in its braces."""

    route: Route
    params: dict[str, str]


class Routes:
    """The table, made for finding."""

    def __init__(self, rows: Iterable[Route]) -> None:
        self.rows: Final = tuple(rows)
        self._exact: dict[tuple[str, str], Found] = {}
        self._written_out = {row.path for row in self.rows if "{" not in row.path}
        self._patterns: dict[tuple[str, int], list[tuple[tuple[str, ...], Route]]] = {}
        for row in self.rows:
            if "{" not in row.path:
                assert (row.method, row.path) not in self._exact, f"{row.path} is there twice"
                self._exact[row.method, row.path] = Found(row, {})
                continue
            segments = tuple(row.path.split("/"))
            rows_of_shape = self._patterns.setdefault((row.method, len(segments)), [])
            rows_of_shape.append((segments, row))

    def find(self, method: str, path: str) -> Found | None:
        """The route for a path as it came, without its query."""
        found = self._exact.get((method, path))
        # A path that is written out is never taken for one with braces, whatever the method: a job
        # whose id somebody chose to be `bulk-get` cannot be had by it.
        if found is not None or path in self._written_out:
            return found
        segments = path.split("/")
        for pattern, row in self._patterns.get((method, len(segments)), ()):
            params = _match(pattern, segments)
            if params is not None:
                return Found(row, params)
        return None

    def methods(self, path: str) -> list[str]:
        """The methods that a path has, for 405 and OPTIONS."""
        methods = {row.method for row in self.rows}
        return sorted(method for method in methods if self.find(method, path) is not None)


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted[:1] == "{":
            if not segment:
                return None
            params[wanted[1:-1]] = unquote(segment, errors="strict") if "%" in segment else segment
        elif wanted != segment:
            return None
    return params
