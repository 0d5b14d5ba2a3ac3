"""The door: checks API key, role, rate and rights of a request, and calls its endpoint.

    caller and role  ->  room  ->  queues and jobs  ->  the endpoint  ->  what every answer has

What an endpoint raises as a `Problem` is an answer. Anything else that comes out of one is a bug:
the client is told so without a word of what went wrong inside, and the log has the rest.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

from corvo import clock
from corvo.router.api import Api
from corvo.router.http import positions
from corvo.router.http.messages import (
    UNKNOWN,
    Problem,
    Request,
    Response,
    add_warnings,
    bad_field,
    overloaded,
    problem_response,
)
from corvo.router.http.params import check_parameters, unknown_parameters
from corvo.router.http.unknown_fields import unread_body, warn
from corvo.router.metrics import OTHER
from corvo.router.routes import Action, Found, Route, Routes

_REQUEST_ID: Final = re.compile("[A-Za-z0-9_.:=+/-]{1,128}")
_QUERY_FIELDS_MAX: Final = 100
_NAME_SHOWN: Final = 60
_CORS_HEADERS: Final = (
    "authorization, content-type, idempotency-key, corvo-min-seq, x-api-key"
    ", traceparent, tracestate"
)
_CORS_EXPOSED: Final = "corvo-seq, corvo-warnings, retry-after, server-timing, x-request-id"

OnBug = Callable[[Request, BaseException], None]


class Door:
    """Where requests come in."""

    def __init__(self, api: Api, routes: Routes, *, on_bug: OnBug) -> None:
        self.api: Final = api
        self.routes: Final = routes
        self.in_flight = 0
        self._on_bug = on_bug
        self._ids = f"{secrets.randbits(40):010x}"  # so that two routers give different ids
        self._last_id = 0
        self._is_strict = api.config.api.strict == "on"
        self._origins = frozenset(api.config.cors_origins)
        api.metrics.read("corvo_http_requests_in_flight", lambda: self.in_flight)

    def find(self, method: str, path: str) -> Found | None:
        """The route of a request; HEAD takes that of GET. Answer a request without a route, too."""
        try:
            found = self.routes.find(method, path)
            if found is None and method == "HEAD":
                found = self.routes.find("GET", path)
        except UnicodeDecodeError:
            return None
        return found

    def name(self, headers: Mapping[str, str]) -> str:
        """The id of a request: the client's own, if it sent one that can stand in a log."""
        given = headers.get("x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        self._last_id += 1
        return f"{self._ids}-{self._last_id:x}"

    # The answer.

    async def answer(self, request: Request) -> Response:
        """Find the route of a request that has come in whole, and answer it: see `answer_at`."""
        return await self.answer_at(self.find(request.method, request.path), request)

    async def answer_at(self, found: Found | None, request: Request) -> Response:
        """Answer a request, whose route `find` has found. Raises nothing but `Cancelled`."""
        api, began_ns = self.api, clock.steady_ns()
        if not request.id:
            request.id = self.name(request.headers)
        span = None if api.tracer is None else api.tracer.begin(request)
        route_path = OTHER
        try:
            if found is None:
                response = self._answer_without_route(request)
            else:
                route, request.params = found.route, found.params
                route_path = route.path
                if route.action is not Action.OPEN:
                    request.caller = await api.who(request)
                    api.admit(request.caller, route.action)
                if self.in_flight >= api.limits.in_flight_max:
                    raise overloaded(
                        f"{self.in_flight} requests are running, the limit (limits.in_flight_max)"
                    )
                counts = not route.is_parked
                self.in_flight += counts
                try:
                    response = await self.call(found, request)
                finally:
                    self.in_flight -= counts
        except Problem as problem:
            response = self.refuse(problem, request)
        if request.warnings:
            api.metrics.ignore(route_path, request.ignored)
            add_warnings(response, request.warnings)
        took_ns = clock.steady_ns() - began_ns
        if span is not None and api.tracer is not None:
            api.tracer.end(span, request, route_path, response, took_ns)
        took_s = took_ns / 1e9
        self._finish(request, response, took_s)
        api.metrics.observe(request.method, route_path, response.status, took_s)
        return response

    def turn_away(self, problem: Problem, request: Request) -> Response:
        """The answer to a request that did not come in whole, or cannot be read."""
        request.id = request.id or self.name(request.headers)
        response = self.refuse(problem, request)
        self._finish(request, response, 0.0)
        self.api.metrics.observe(request.method, OTHER, response.status, 0.0)
        return response

    def refuse(self, problem: Problem, request: Request) -> Response:
        """A problem as an answer; with 405, what the path is for."""
        self.api.metrics.refuse(problem.code)
        response = problem_response(problem, request.id)
        if problem.status == 405:
            methods = ", ".join(self.routes.methods(request.path))
            response.headers = [*response.headers, ("allow", methods)]
        return response

    async def call(self, found: Found, request: Request) -> Response:
        """Check the caller's scope, and run the endpoint. Raises `Problem`."""
        route, api = found.route, self.api
        try:
            if self._is_strict:
                request.is_strict = True
            if request.query or (request.body and route.takes is None):
                _check_names(route, request)
            await api.authorise(request, route.rights)
            header = request.headers.get("corvo-min-seq")
            if header is not None and route.has_min_seq:
                request.caller = request.caller.as_of(_read_positions(header, len(api.shards)))
            response = await route.endpoint(api, request)
            assert response.stream is None or route.is_streamed, "its row does not say so"
            return response
        except Problem:
            raise
        except Exception as error:  # noqa: BLE001 -- a bug in one request must not end the others
            self._on_bug(request, error)
            raise Problem(
                500,
                "INTERNAL_ERROR",
                f"error in the server; the log has details under request {request.id}",
                outcome=UNKNOWN,
            ) from None

    # What every answer has.

    def _finish(self, request: Request, response: Response, took_s: float) -> None:
        headers = [
            *response.headers,
            ("server-timing", f"proc;dur={took_s * 1e3:.3f}"),
            ("x-request-id", request.id),
        ]
        if self._origins:
            headers += self._cors(request)
        response.headers = headers

    def _cors(self, request: Request) -> list[tuple[str, str]]:
        origin = request.headers.get("origin")
        if origin is None or not ("*" in self._origins or origin in self._origins):
            return [("vary", "origin")]
        return [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", _CORS_EXPOSED),
            ("vary", "origin"),
        ]

    # Requests without a route.

    def _answer_without_route(self, request: Request) -> Response:
        """Answer OPTIONS. Raises `Problem` for every other method, and where no path is."""
        method, path = request.method, request.path
        try:
            methods = self.routes.methods(path)
        except UnicodeDecodeError:
            raise bad_field("path", "the path is not valid UTF-8") from None
        if methods and method == "OPTIONS":
            return self._preflight(request, methods)
        if methods:
            allowed = ", ".join(methods)
            raise Problem(
                405, "METHOD_NOT_ALLOWED", f"method {method} is not allowed here; use {allowed}"
            )
        raise Problem(404, "NOT_FOUND", f"no such path: {unquote(path)[:200]}")

    def _preflight(self, request: Request, methods: list[str]) -> Response:
        """The methods of a path, and what a browser asks before a page may send a request."""
        allowed = ", ".join([*methods, "OPTIONS"])
        headers = [("allow", allowed)]
        if self._origins and "access-control-request-method" in request.headers:
            headers += [
                ("access-control-allow-methods", allowed),
                ("access-control-allow-headers", _CORS_HEADERS),
                ("access-control-max-age", "600"),
            ]
        return Response(status=204, headers=headers)


def _check_names(route: Route, request: Request) -> None:
    """Refuse or note parameters, and a body, that a route does not read. Raises `Problem`."""
    known = frozenset(each.name for each in route.query)
    if route.is_filtered:
        check_parameters(request.query, known)
    elif route.changes:
        warn(request, unknown_parameters(request.query, known))
        if route.takes is None and not route.takes_any:
            warn(request, unread_body(request.body))


def _read_positions(header: str, shards: int) -> dict[int, int]:
    try:
        return positions.parse(header, shards)
    except ValueError as error:
        raise bad_field(
            "Corvo-Min-Seq",
            f"Corvo-Min-Seq: expected a position such as s0=1042; got {str(error)[:40]!r}",
        ) from None


def read_query(query: str) -> dict[str, str]:
    """What stands behind the `?`. Raises `Problem`."""
    if not query:
        return {}
    try:
        fields = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise bad_field("query", f"the query is invalid: {error}") from None
    read = dict(fields)
    if len(read) < len(fields):
        names = [name for name, _ in fields]
        twice = next(name for name in names if names.count(name) > 1)[:_NAME_SHOWN]
        raise bad_field(
            twice, f"{twice}: expected once in the query; separate several values by commas"
        )
    return read
