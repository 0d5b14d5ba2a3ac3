"""`Route`, a row of the route table, and `Routes`, which finds a row by method and path."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec

from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import Rights, Where
from corvo.router.http.messages import JSON, Request, Response

__all__ = ["CONSISTENCY", "Action", "Endpoint", "Found", "Parameter", "Route", "Routes"]

EXAMPLE_ID: Final = "s02_job_01HF7YAT000000000003800000"
"""A job's id in the examples of requests and answers."""

_API: Final = "/api/v1/"
"""Elsewhere are probes and pages, whose addresses get parameters of others."""

Endpoint: TypeAlias = Callable[[Api, Request], Awaitable[Response]]


class Parameter(msgspec.Struct, frozen=True):
    """One that may stand in the query."""

    name: str
    type: str
    """As JSON Schema names types."""
    description: str = ""
    """Empty for a parameter that is a field of a body, and has the text of that field."""
    minimum: int | None = None
    maximum: int | None = None
    """Of a number, or of the length of a text: what the endpoint really holds it to."""
    pattern: str = ""
    """Of a text."""
    of: str = ""
    """The schema of the body that has the field."""
    example: str = ""
    """Empty for a parameter that has the example of the field of its name."""


CONSISTENCY: Final = Parameter("consistency", "string", pattern="^(wait|stale)?$", of="SearchBody")
"""Of a read that the mirror answers: see `corvo.router.http.params.consistency_of`."""


READS: Final = Parameter(
    "consistency",
    "string",
    "`linearizable` (default): the answer includes all changes that were confirmed before."
    " `local`: any replica answers, that of this node if possible, also if the shard has no leader."
    " `Corvo-Seq` has its position, and `Corvo-Leader-Contact-Ms` its last contact to a leader.",
    pattern="^(linearizable|local)?$",
    example="local",
)
"""Of a read by id: see `corvo.router.http.params.reader_of`."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked for."""

    method: str
    path: str
    """A name in braces stands for one segment: `/api/v1/jobs/{id}/retry`."""
    endpoint: Endpoint
    action: Action
    rights: Rights
    """Where a request names the queues and jobs that must be in its caller's scope."""
    tag: str
    """The group that it is shown in."""
    summary: str
    """One line, for the page that lists all of them."""
    description: str
    """Sentences for the OpenAPI document."""
    id_of: str = "job"
    """What a name `{id}` in the path stands for."""
    is_streamed: bool = False
    """Whether an answer may have no end, and is sent piece by piece."""
    takes: type[msgspec.Struct] | None = None
    """The body, for the OpenAPI document; what reads it is the endpoint."""
    takes_example: dict[str, object] | None = None
    takes_any: bool = False
    """Whether the body is a payload, of any form."""
    gives: dict[int, type | None] = msgspec.field(default_factory=lambda: {200: None})
    """What is answered when all is well, by status; None is no body, or not JSON."""
    gives_example: dict[str, object] | list[object] | None = None
    """An answer when all is well."""
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

    @property
    def changes(self) -> bool:
        """Whether it changes something, and so may be sent under a request key."""
        return self.method != "GET" and self.action not in {Action.OPEN, Action.READ}

    @property
    def is_filtered(self) -> bool:
        """Whether a misspelt condition would select more than was meant: a read, or a bulk."""
        if self.method == "GET" or self.action is Action.READ:
            return bool(self.query) or self.path.startswith(_API)
        return self.takes is not None and self.takes.__struct_config__.forbid_unknown_fields


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
        self._first = _Step()
        for row in self.rows:
            if "{" not in row.path:
                assert (row.method, row.path) not in self._exact, f"{row.path} is there twice"
                self._exact[row.method, row.path] = Found(row, {})
            else:
                self._first.add(row)

    def find(self, method: str, path: str) -> Found | None:
        """The route for a path as it came, without its query. Raises `UnicodeDecodeError`."""
        found = self._exact.get((method, path))
        # A path that is written out is never taken for one with braces, whatever the method: a job
        # whose id somebody chose to be `bulk-get` cannot be had by it.
        if found is not None or path in self._written_out:
            return found
        return self._first.find(method, path)

    def methods(self, path: str) -> list[str]:
        """The methods that a path has, for 405 and OPTIONS. Raises `UnicodeDecodeError`."""
        methods = {row.method for row in self.rows}
        return sorted(method for method in methods if self.find(method, path) is not None)


class _Step:
    """The segments that may follow in paths with braces. A written-out segment wins over braces."""

    __slots__ = ("braces", "rows", "written_out")

    def __init__(self) -> None:
        self.written_out: dict[str, _Step] = {}
        self.braces: _Step | None = None
        self.rows: dict[str, tuple[Route, list[str]]] = {}
        """By method, the routes whose path ends here, and the names in their braces."""

    def add(self, row: Route) -> None:
        """Put in a route."""
        step, names = self, list[str]()
        for segment in row.path.split("/"):
            if segment[:1] == "{":
                names.append(segment[1:-1])
                step.braces = step.braces or _Step()
                step = step.braces
            else:
                step = step.written_out.setdefault(segment, _Step())
        assert row.method not in step.rows, f"{row.path} is there twice"
        step.rows[row.method] = row, names

    def find(self, method: str, path: str) -> Found | None:
        """The route for a path, and what stands in its braces. Raises `UnicodeDecodeError`."""
        step, values = self, list[str]()
        for segment in path.split("/"):
            following = step.written_out.get(segment)
            if following is None:
                following = step.braces if segment else None
                if following is None:
                    return None
                values.append(segment)
            step = following
        if not step.rows:
            return None
        if "%" in path:
            values = [unquote(value, errors="strict") for value in values]
        row = step.rows.get(method)
        return Found(row[0], dict(zip(row[1], values, strict=True))) if row is not None else None
