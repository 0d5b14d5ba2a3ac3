"""Finding a route: exact paths first, braces for one segment, and nothing else."""

import pytest

from corvo.router.api import Api
from corvo.router.http import Request, Response
from corvo.router.rights import RESULT, found_by_path
from corvo.router.routes import Action, Route, Routes


async def nothing(_: Api, __: Request) -> Response:
    return Response()


def row(method: str, path: str) -> Route:
    rights = found_by_path("id") if "{id}" in path else found_by_path("name")
    return Route(
        method=method,
        path=path,
        endpoint=nothing,
        action=Action.READ,
        rights=rights if "{" in path else RESULT,
        summary=path,
    )


ROUTES = Routes(
    [
        row("GET", "/jobs/{id}"),
        row("DELETE", "/jobs/{id}"),
        row("POST", "/jobs/bulk-get"),
        row("POST", "/jobs/{id}/retry"),
        row("POST", "/queues/{name}/pause"),
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
    ],
)
def test_not_found(method: str, path: str) -> None:
    assert ROUTES.find(method, path) is None


def test_a_path_that_is_no_text_is_told_apart() -> None:
    with pytest.raises(UnicodeDecodeError):
        ROUTES.find("POST", "/queues/%ff/pause")


def test_a_path_says_what_it_is_for() -> None:
    assert ROUTES.methods("/jobs/a") == ["DELETE", "GET"]
    assert ROUTES.methods("/jobs/bulk-get") == ["POST"]
    assert ROUTES.methods("/nowhere") == []


def test_two_rows_for_one_thing_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Routes([row("GET", "/a"), row("GET", "/a")])
