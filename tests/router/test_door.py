"""The one way in: what it lets pass, and what every answer has, whatever the endpoint does."""

import msgspec
import pytest
import trio
import trio.testing

from corvo.router.api import Api
from corvo.router.auth.rights import NODE, found_by_path
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, ProblemBody, Request, Response
from corvo.router.routes import Action, Route, Routes
from corvo.router.server.door import Door, read_query

CONFIG = RouterConfig(
    cluster="rookery",
    node=1,
    shards=1,
    sockets=dict(enumerate(["/nowhere"])),
    listen=[0],
    is_open=True,
)
OPEN = msgspec.structs.replace(CONFIG, is_auth_off=True)


async def echo(_: Api, request: Request) -> Response:
    return Response(body=request.params["name"].encode(), headers=[("corvo-seq", "s0=1")])


async def refuse(_: Api, __: Request) -> Response:
    raise Problem(409, "RETRY_ERROR", "it is pending", reason="bad_state", job_id="s00_job_x")


async def overload(_: Api, __: Request) -> Response:
    raise Problem(429, "OVERLOADED", "too much", retry_after_ms=1_200)


async def fall(_: Api, __: Request) -> Response:
    raise ZeroDivisionError("a secret of the inside")


async def wait(_: Api, __: Request) -> Response:
    await trio.sleep_forever()
    raise AssertionError


ROUTES = Routes(
    Route(
        method=method,
        path=path,
        endpoint=endpoint,
        action=action,
        rights=found_by_path("name") if "{name}" in path else NODE,
        tag="Tests",
        summary=path,
        description=path,
    )
    for method, path, endpoint, action in (
        ("GET", "/jobs/{name}", echo, Action.READ),
        ("DELETE", "/jobs/{name}", refuse, Action.OPERATE),
        ("POST", "/overload", overload, Action.READ),
        ("POST", "/fall", fall, Action.READ),
        ("POST", "/wait", wait, Action.READ),
        ("GET", "/open/{name}", echo, Action.OPEN),
    )
)


class World:
    def __init__(self, config: RouterConfig = OPEN) -> None:
        self.api = Api(config)
        self.bugs: list[tuple[str, BaseException]] = []
        self.door = Door(
            self.api, ROUTES, on_bug=lambda request, error: self.bugs.append((request.id, error))
        )

    def ask(self, method: str, path: str, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(method=method, path=path, headers=named, peer="127.0.0.1")
        return trio.run(self.door.answer, request)


def header(response: Response, name: str) -> str | None:
    found = [value for key, value in response.headers if key == name]
    assert len(found) <= 1, f"{name} is there twice"
    return found[0] if found else None


def problem(response: Response) -> ProblemBody:
    return msgspec.json.decode(response.body, type=ProblemBody)


def test_an_answer_is_that_of_the_endpoint_and_has_what_every_answer_has() -> None:
    response = World().ask("GET", "/jobs/a%20b")

    assert (response.status, response.body) == (200, b"a b")
    assert header(response, "corvo-seq") == "s0=1"
    server_timing = header(response, "server-timing")
    assert server_timing is not None
    assert server_timing.startswith("proc;dur=")
    assert header(response, "x-request-id")
    assert header(response, "access-control-allow-origin") is None


def test_the_clients_request_id_comes_back_if_it_can_stand_in_a_log() -> None:
    world = World()

    kept = world.ask("GET", "/jobs/a", x_request_id="trace-17/b")
    made = world.ask("GET", "/jobs/a", x_request_id="line\nbreak")
    next_ = world.ask("GET", "/jobs/a", x_request_id="x" * 200)

    assert header(kept, "x-request-id") == "trace-17/b"
    assert header(made, "x-request-id") not in {None, "line\nbreak"}
    assert header(next_, "x-request-id") != header(made, "x-request-id")


def test_a_problem_says_what_was_done_and_why_not() -> None:
    response = World().ask("DELETE", "/jobs/a")

    told = problem(response)
    assert response.status == 409
    assert (told.code, told.reason, told.outcome) == ("RETRY_ERROR", "bad_state", "not_applied")
    assert told.request_id == header(response, "x-request-id")


def test_a_wait_is_told_in_whole_seconds_and_exactly_in_the_body() -> None:
    response = World().ask("POST", "/overload")

    assert header(response, "retry-after") == "2"
    assert problem(response).retry_after_ms == 1_200


def test_a_bug_is_told_without_a_word_of_the_inside_and_the_log_has_it() -> None:
    world = World()

    response = world.ask("POST", "/fall")

    told = problem(response)
    assert response.status == 500
    assert (told.code, told.outcome) == ("INTERNAL_ERROR", "unknown")
    assert b"secret" not in response.body
    assert b"Zero" not in response.body
    [(request_id, error)] = world.bugs
    assert request_id == told.request_id
    assert isinstance(error, ZeroDivisionError)


def test_nothing_at_a_path_is_404_and_another_method_405() -> None:
    world = World()

    nothing, other = world.ask("GET", "/nowhere"), world.ask("PUT", "/jobs/a")

    assert (nothing.status, problem(nothing).code) == (404, "NOT_FOUND")
    assert (other.status, problem(other).code) == (405, "METHOD_NOT_ALLOWED")
    assert header(other, "allow") == "DELETE, GET"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
def test_a_path_that_is_no_text_is_400(method: str) -> None:
    response = World().ask(method, "/jobs/%ff")

    assert (response.status, problem(response).field) == (400, "path")


def test_a_head_takes_the_route_of_its_get() -> None:
    world = World()

    assert world.door.find("HEAD", "/jobs/a") == world.door.find("GET", "/jobs/a")
    assert world.ask("HEAD", "/jobs/a").body == b"a"
    assert world.door.find("HEAD", "/overload") is None
    assert header(world.ask("HEAD", "/overload"), "allow") == "POST"


def test_a_key_is_asked_for_but_where_anybody_may() -> None:
    world = World(msgspec.structs.replace(CONFIG, is_open=False, admin_key="a-key-of-the-house"))
    world.api.keyring.replace([], now_s=trio_time())

    refused = world.ask("GET", "/jobs/a")
    allowed = world.ask("GET", "/jobs/a", x_api_key="a-key-of-the-house")
    open_ = world.ask("GET", "/open/a")

    assert (refused.status, header(refused, "www-authenticate")) == (401, "Bearer")
    assert (allowed.status, open_.status) == (200, 200)


def trio_time() -> float:
    async def now() -> float:
        return trio.current_time()

    return trio.run(now)


def test_beyond_the_requests_that_may_be_under_way_the_next_one_is_refused() -> None:
    limits = Limits(in_flight_max=1)
    world = World(msgspec.structs.replace(OPEN, limits=limits))

    async def two() -> Response:
        async with trio.open_nursery() as nursery:
            first = Request(method="POST", path="/wait")
            nursery.start_soon(world.door.answer, first)
            await trio.testing.wait_all_tasks_blocked()
            response = await world.door.answer(Request(method="GET", path="/jobs/a"))
            nursery.cancel_scope.cancel()
        return response

    refused = trio.run(two)

    assert (refused.status, problem(refused).code) == (429, "OVERLOADED")
    assert header(refused, "retry-after") == "1"
    assert world.door.in_flight == 0


def test_a_page_may_call_only_when_it_was_named() -> None:
    world = World(msgspec.structs.replace(OPEN, cors_origins=["https://board.example"]))

    named = world.ask("GET", "/jobs/a", origin="https://board.example")
    other = world.ask("GET", "/jobs/a", origin="https://elsewhere.example")
    asked = world.ask(
        "OPTIONS",
        "/jobs/a",
        origin="https://board.example",
        access_control_request_method="DELETE",
    )

    assert header(named, "access-control-allow-origin") == "https://board.example"
    assert header(other, "access-control-allow-origin") is None
    assert header(other, "vary") == "origin"
    assert asked.status == 204
    assert header(asked, "access-control-allow-methods") == "DELETE, GET, OPTIONS"
    allowed = header(asked, "access-control-allow-headers")
    assert allowed is not None
    assert {"idempotency-key", "traceparent", "tracestate"} <= set(allowed.split(", "))


def test_without_pages_that_may_call_a_preflight_allows_nothing() -> None:
    asked = World().ask(
        "OPTIONS", "/jobs/a", origin="https://x.example", access_control_request_method="GET"
    )

    assert header(asked, "allow") == "DELETE, GET, OPTIONS"
    assert not [name for name, _ in asked.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("", {}),
        ("a=1&b=", {"a": "1", "b": ""}),
        ("q=%C3%A9+x", {"q": "é x"}),
    ],
)
def test_a_query_is_read(query: str, fields: dict[str, str]) -> None:
    assert read_query(query) == fields


@pytest.mark.parametrize("query", ["a=%ff", "&".join(f"a{number}=1" for number in range(200))])
def test_a_query_that_cannot_be_read_is_a_problem(query: str) -> None:
    with pytest.raises(Problem) as caught:
        read_query(query)

    assert (caught.value.status, caught.value.field) == (400, "query")


def test_a_parameter_that_is_there_twice_is_a_problem() -> None:
    with pytest.raises(Problem) as caught:
        read_query("state=dead&limit=3&state=held")

    assert (caught.value.status, caught.value.field) == (400, "state")
    assert caught.value.error == (
        "state: expected once in the query; separate several values by commas"
    )
