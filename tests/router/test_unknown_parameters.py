"""Parameters of a query that a route does not declare: refused, with the nearest known name."""

import re

import msgspec
import pytest

from corvo.router.routes import Route
from corvo.router.table import ROUTES
from tests.router.nests import Nest, problem, run

READING = [
    row
    for row in ROUTES.rows
    if row.method == "GET" and (row.query or row.path.startswith("/api/v1/"))
]
FILTERED = [row for row in ROUTES.rows if row.path in {"/api/v1/jobs/search", "/api/v1/jobs/bulk"}]


def name_of(row: Route) -> str:
    return f"{row.method} {row.path}"


@pytest.mark.parametrize("row", READING + FILTERED, ids=name_of)
def test_a_read_a_search_and_a_bulk_refuse_a_parameter_that_they_do_not_have(row: Route) -> None:
    async def main() -> None:
        nest = Nest()
        path = re.sub(r"{\w+}", "a", row.path)

        for method in (row.method, *(["HEAD"] if row.method == "GET" else [])):
            answer = await nest.ask(method, path, query={"zzzzzz": "1"})

            assert problem(answer) == (400, "VALIDATION_ERROR", "", "zzzzzz")

    run(main)


@pytest.mark.parametrize(
    ("path", "name", "error"),
    [
        ("/api/v1/jobs", "statee", "unknown parameter 'statee'; did you mean state?"),
        ("/api/v1/jobs", "tags", "unknown parameter 'tags'; did you mean tag?"),
        ("/api/v1/dead", "limits", "unknown parameter 'limits'; did you mean limit?"),
        (
            "/api/v1/dead",
            "zzzz",
            "unknown parameter 'zzzz'; this request has cursor, limit and queue",
        ),
        (
            "/api/v1/metrics/throughput",
            "q" * 500,
            f"unknown parameter '{'q' * 60}'; this request has queue",
        ),
        ("/api/v1/info", "a", "unknown parameter 'a'; this request has no parameters"),
        ("/readyz", "verbos", "unknown parameter 'verbos'; did you mean verbose?"),
    ],
)
def test_the_refusal_names_the_nearest_parameter_or_all_of_them(
    path: str, name: str, error: str
) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", path, query={name: ""})

        assert msgspec.json.decode(answer.body)["error"] == error

    run(main)


def test_a_declared_parameter_beside_an_unknown_one_does_not_help() -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/api/v1/dead", query={"queue": "a", "sort": "asc"})

        assert problem(answer)[3] == "sort"

    run(main)


@pytest.mark.parametrize("path", ["/livez", "/openapi.json", "/docs"])
def test_a_probe_and_a_page_without_parameters_do_not_look_at_the_query(path: str) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", path, query={"_": "1730000000"})

        assert answer.status == 200

    run(main)


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("search", {"stat": ["dead"]}, "the body: unknown field stat; did you mean state?"),
        ("search", {"filter": {}}, "the body: unknown field filter"),
        ("bulk-get", {"job_ids": [], "ids": ["a"]}, "the body: unknown field ids"),
        (
            "bulk",
            {"action": "retry", "filter": {"quue": "a"}},
            "filter: unknown field quue; did you mean queue?",
        ),
    ],
)
def test_a_search_refuses_a_field_that_it_does_not_have(
    path: str, body: dict[str, object], error: str
) -> None:
    async def main() -> None:
        answer = await Nest().ask("POST", f"/api/v1/jobs/{path}", body)

        told = msgspec.json.decode(answer.body)
        assert (answer.status, told["code"]) == (400, "VALIDATION_ERROR")
        assert told["error"].startswith(error)

    run(main)
