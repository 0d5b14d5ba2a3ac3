"""Finding a route: exact paths first, braces for one segment, and nothing else."""

import re
from functools import reduce
from operator import or_

import pytest

from corvo.router.api import Api
from corvo.router.auth.rights import RESULT, found_by_path
from corvo.router.http.messages import Request, Response
from corvo.router.routes import Action, Route, Routes
from corvo.router.table import ROUTES as TABLE


async def nothing(_: Api, __: Request) -> Response:
    return Response()


def row(method: str, path: str) -> Route:
    rights = reduce(or_, map(found_by_path, re.findall(r"{(\w+)}", path)), RESULT)
    return Route(
        method=method,
        path=path,
        endpoint=nothing,
        action=Action.READ,
        rights=rights,
        tag="Tests",
        summary=path,
        description=path,
    )


ROUTES = Routes(
    [
        row("GET", "/jobs/{id}"),
        row("DELETE", "/jobs/{id}"),
        row("POST", "/jobs/bulk-get"),
        row("POST", "/jobs/{id}/retry"),
        row("POST", "/queues/{name}/pause"),
        row("GET", "/queues/{name}/jobs/{id}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "route", "params"),
    [
        ("GET", "/jobs/s01_job_x", "/jobs/{id}", {"id": "s01_job_x"}),
        ("DELETE", "/jobs/a", "/jobs/{id}", {"id": "a"}),
        ("POST", "/jobs/bulk-get", "/jobs/bulk-get", {}),
        ("POST", "/jobs/bulk-get/retry", "/jobs/{id}/retry", {"id": "bulk-get"}),
        ("POST", "/queues/a%2Fb%20c/pause", "/queues/{name}/pause", {"name": "a/b c"}),
        ("POST", "/queues/%C3%A9/pause", "/queues/{name}/pause", {"name": "é"}),
        ("POST", "/queues/%7Bname%7D/pause", "/queues/{name}/pause", {"name": "{name}"}),
        ("GET", "/queues/pause/jobs/a", "/queues/{name}/jobs/{id}", {"name": "pause", "id": "a"}),
    ],
)
def test_found(method: str, path: str, route: str, params: dict[str, str]) -> None:
    found = ROUTES.find(method, path)

    assert found is not None
    assert (found.route.path, found.params) == (route, params)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/"),
        ("GET", "/jobs"),
        ("GET", "/jobs/a/"),
        ("GET", "/jobs/a/b"),
        ("PUT", "/jobs/a"),
        ("GET", "/jobs/bulk-get"),
        ("get", "/jobs/a"),
        ("POST", "//jobs/bulk-get"),
        ("POST", "/jobs/../jobs/bulk-get"),
        ("POST", ""),
        ("POST", "*"),
        ("GET", "/queues//jobs/a"),
        ("GET", "/queues/a/jobs/"),
        ("GET", "/queues/a/jobs"),
        ("POST", "/queues/a/jobs/b"),
        ("GET", "/nowhere/%ff"),
        ("GET", "/jobs/%ff/nothing"),
    ],
)
def test_not_found(method: str, path: str) -> None:
    assert ROUTES.find(method, path) is None


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_path_that_is_no_text_is_told_apart(method: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        ROUTES.find(method, "/queues/%ff/pause")
    with pytest.raises(UnicodeDecodeError):
        ROUTES.methods("/queues/%ff/pause")


def test_a_path_says_what_it_is_for() -> None:
    assert ROUTES.methods("/jobs/a") == ["DELETE", "GET"]
    assert ROUTES.methods("/jobs/bulk-get") == ["POST"]
    assert ROUTES.methods("/nowhere") == []


def test_two_rows_for_one_thing_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Routes([row("GET", "/a"), row("GET", "/a")])
    with pytest.raises(AssertionError, match="twice"):
        Routes([row("GET", "/a/{id}"), row("GET", "/a/{name}")])


def test_every_row_of_the_table_is_found_by_its_path() -> None:
    for each in TABLE.rows:
        names = re.findall(r"{(\w+)}", each.path)
        found = TABLE.find(each.method, re.sub(r"{(\w+)}", r"a-\1", each.path))
        assert found is not None
        assert (found.route, found.params) == (each, {name: f"a-{name}" for name in names})
