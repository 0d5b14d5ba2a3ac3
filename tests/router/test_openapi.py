"""The OpenAPI document and its page: whole, honest, and the same as what is answered."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from corvo.model import State
from corvo.protocol.ops.jobs import Hold
from corvo.protocol.ops.work import Fail, FailItem
from corvo.router.auth.actions import Action
from corvo.router.http.messages import Response
from corvo.router.openapi import document, pages
from corvo.router.openapi.document import operation_id, problems_of
from corvo.router.routes import Route
from corvo.router.table import ROUTES
from corvo.router.texts import texts
from tests.router.nests import Nest, header, queue_of, run
from tests.router.schemas import Schema, breaches, resolve, unknown_fields

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "http.md"
TABLE: Final = re.compile(
    r"(?<=<!-- routes: `make docs` writes this -->\n).*?(?=<!-- /routes -->)", re.DOTALL
)

WRITTEN: Final = document.document(ROUTES, "1.2.3")
DOCUMENT: Final = msgspec.json.decode(WRITTEN, type=dict[str, object])
ROWS: Final = {operation_id(row): row for row in ROUTES.rows}
REQUESTS: Final = {
    name: row.takes_example for name, row in ROWS.items() if row.takes_example is not None
}
ANSWERS: Final = {
    name: row.gives_example for name, row in ROWS.items() if row.gives_example is not None
}
A: Final = queue_of(0)


def of(*path: str, within: Schema = DOCUMENT) -> Schema:
    """A part of the document."""
    found: object = within
    for name in path:
        found = cast("Schema", found)[name]
    return cast("Schema", found)


def operation(row: Route) -> Schema:
    return of("paths", row.path, row.method.lower())


# What a row has to say.


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_it_is_for(name: str) -> None:
    row = ROWS[name]

    assert row.summary
    assert len(row.summary) <= 100
    assert row.gives


def test_no_two_rows_have_one_name() -> None:
    assert len(ROWS) == len(ROUTES.rows)


def test_what_a_row_answers_is_json_unless_it_is_known_not_to_be() -> None:
    without = sorted(
        f"{row.path} {status}"
        for row in ROUTES.rows
        for status, gives in row.gives.items()
        if gives is None and status not in {204, 304}
    )

    assert without == [
        "/api/v1/admin/backup 200",
        "/api/v1/bulk/{id}/progress 200",
        "/api/v1/metrics 200",
        "/docs 200",
        "/docs.css 200",
        "/metrics 200",
        "/openapi.json 200",
    ]


def test_every_group_has_its_routes() -> None:
    used = {row.tag for row in ROUTES.rows}

    assert used == texts().tags.keys()


# The document.


def test_every_reference_leads_somewhere() -> None:
    references = set(re.findall(rb'"\$ref": "([^"]+)"', WRITTEN))

    assert references
    for reference in references:
        assert resolve(DOCUMENT, reference.decode())


def test_milliseconds_are_whole_numbers() -> None:
    """A client in a typed language declares an integer, and fails at the first fraction."""

    def is_whole(property_: Schema) -> bool:
        kinds = [property_, *cast("list[Schema]", property_.get("anyOf", []))]
        inner = cast("Schema", property_.get("additionalProperties") or {})
        return "number" not in {kind.get("type") for kind in [*kinds, inner]}

    schemas = cast("dict[str, Schema]", of("components", "schemas"))
    fractions = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, property_ in cast("dict[str, Schema]", schema.get("properties", {})).items()
        if (field == "ms" or field.endswith("_ms")) and not is_whole(property_)
    ]

    assert not fractions


def test_every_schema_is_used() -> None:
    used = set(re.findall(r"#/components/(\w+)/([\w.-]+)", WRITTEN.decode()))
    made = {
        (kind, name)
        for kind in ("schemas", "responses", "headers", "links")
        for name in of("components", kind)
    }

    assert used == made


def test_what_stands_in_braces_is_a_parameter_and_nothing_else_is() -> None:
    for row in ROUTES.rows:
        parameters = cast("list[Schema]", operation(row).get("parameters", []))
        named = [each["name"] for each in parameters if each["in"] == "path"]

        assert named == re.findall(r"\{(\w+)\}", row.path)
        assert all(each["required"] for each in parameters if each["in"] == "path")


def test_a_request_key_may_go_with_all_that_changes_something_and_with_nothing_else() -> None:
    with_key = {
        name
        for name, row in ROWS.items()
        if "Idempotency-Key" in str(operation(row).get("parameters"))
    }

    expected = {
        name
        for name, row in ROWS.items()
        if row.method != "GET" and row.action not in {Action.READ, Action.OPEN}
    }
    assert with_key == expected
    assert with_key == {name for name, row in ROWS.items() if 422 in problems_of(row)}
    assert "post_jobs_bulk_get" not in with_key


def test_open_routes_say_that_they_need_no_key_and_have_no_problem_with_one() -> None:
    for name, row in ROWS.items():
        is_open = row.action is Action.OPEN
        statuses = of("responses", within=operation(row))

        assert (operation(row).get("security") == []) is is_open, name
        assert ("401" in statuses) is not is_open, name


def test_a_status_that_is_an_answer_and_a_problem_may_be_either() -> None:
    rows = [row for row in ROUTES.rows if row.gives.keys() & set(problems_of(row))]

    assert rows, "the batch of which a part was done"
    for row in rows:
        for status in row.gives.keys() & set(problems_of(row)):
            path = ("responses", str(status), "content", "application/json", "schema")
            schema = of(*path, within=operation(row))
            assert len(cast("list[object]", schema["anyOf"])) == 2


def test_a_body_that_needs_one_of_two_fields_says_so() -> None:
    schema = of("components", "schemas", "SetThrottleBody")

    assert not list(breaches(DOCUMENT, schema, {"rate": 1, "window_ms": 5}))
    assert not list(breaches(DOCUMENT, schema, {"rate": 1, "window": "5s"}))
    assert not list(breaches(DOCUMENT, schema, {"rate": 1, "period": "5s"}))
    assert not list(breaches(DOCUMENT, schema, {"rate": 1, "period": "5s", "window_ms": None}))
    for wrong in ({"rate": 1}, {"rate": 1, "window_ms": None}, {"rate": 1, "period": "0s"}):
        assert list(breaches(DOCUMENT, schema, wrong)), wrong
    assert list(breaches(DOCUMENT, schema, {"rate": 1, "window_ms": 5, "period": "5s"}))


def test_an_answer_with_a_jobs_id_leads_on_to_what_can_be_done_with_it() -> None:
    links = of("components", "links")
    led = {
        (cast("Schema", link)["operationId"], parameter)
        for link in links.values()
        for parameter in cast("Schema", cast("Schema", link)["parameters"])
    }

    assert {("get_jobs_id", "id"), ("post_ack_job_id", "job_id")} <= led
    for name, parameter in led:
        assert f"{{{parameter}}}" in ROWS[str(name)].path


def test_the_document_is_the_same_every_time() -> None:
    assert document.document(ROUTES, "1.2.3") == WRITTEN


# Examples.


@pytest.mark.parametrize("name", REQUESTS)
def test_an_example_of_a_request_is_one(name: str) -> None:
    row = ROWS[name]
    assert row.takes is not None
    [content] = of("requestBody", "content", within=operation(row)).values()
    schema = of("schema", within=cast("Schema", content))

    msgspec.json.decode(msgspec.json.encode(REQUESTS[name]), type=row.takes)

    assert not list(breaches(DOCUMENT, schema, REQUESTS[name]))
    assert not list(unknown_fields(DOCUMENT, schema, REQUESTS[name]))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_example_of_an_answer_is_one(name: str) -> None:
    row = ROWS[name]
    kind = row.gives[200]
    assert kind is not None

    read: object = msgspec.json.Decoder(kind).decode(msgspec.json.encode(ANSWERS[name]))

    written: object = msgspec.json.decode(msgspec.json.encode(read))
    assert written == ANSWERS[name], "it is all that we would write"


# What is answered.


def judge(row: Route, answer: Response) -> list[str]:
    """What the document did not say of an answer."""
    statuses = of("responses", within=operation(row))
    if str(answer.status) not in statuses:
        return [f"{answer.status} is none of {sorted(statuses)}"]
    response = of(str(answer.status), within=statuses)
    if "$ref" in response:
        response = resolve(DOCUMENT, str(response["$ref"]))
    content = response.get("content")
    if content is None:
        return []
    schema = of("application/json", "schema", within=cast("Schema", content))
    value: object = msgspec.json.decode(answer.body)
    wrong = list(breaches(DOCUMENT, schema, value))
    return wrong + [f"{name} is unknown" for name in unknown_fields(DOCUMENT, schema, value)]


def settle(nest: Nest) -> dict[str, str]:
    """Jobs of all kinds in queue A; one of each state, by the state."""
    later_ns = nest[A].clock_ns + 10**12
    made = {"scheduled": nest.put(A, scheduled_ns=later_ns, priority=0, kind="k")}
    for state in ("dead", "held", "active", "pending"):
        made[state] = nest.put(A, tags={"a": "b"}, max_retries=2)
    shard = nest[A]
    shard.do(Hold(job_ids=[made["held"]], reason="look"))
    shard.fetch(A)
    failed = FailItem(job_id=made["dead"], error="no", backtrace="b", retryable=False)
    shard.do(Fail(fails=[failed]))
    shard.fetch(A)
    assert [shard.state(made[state]).value for state in made] == list(made)
    return made


@pytest.mark.parametrize("state", ["dead", "held", "active", "pending", "scheduled", "nobody"])
@pytest.mark.parametrize(
    "name", [name for name, row in ROWS.items() if row.path.startswith("/api/v1/jobs/{id}")]
)
def test_what_a_route_on_a_job_answers_is_what_the_document_says(name: str, state: str) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = settle(nest).get(state, "nobody")
        row = ROWS[name]
        path = row.path.replace("{id}", job_id)

        answer = await nest.ask(row.method, path, REQUESTS.get(name, b""))

        assert judge(row, answer) == []

    run(main)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in ROWS.items()
        if row.path.startswith(("/api/v1/queues", "/api/v1/workers", "/api/v1/dead"))
    ],
)
@pytest.mark.parametrize("queue", [A, "nobody"])
def test_what_a_route_on_a_queue_answers_is_what_the_document_says(name: str, queue: str) -> None:
    async def main() -> None:
        nest = Nest()
        settle(nest)
        row = ROWS[name]
        path = row.path.replace("{name}", queue)

        answer = await nest.ask(row.method, path, REQUESTS.get(name, b""))
        wrong = await nest.ask(row.method, path, b"[", query={"limit": "x", "cursor": "x"})

        assert judge(row, answer) == []
        assert judge(row, wrong) == []

    run(main)


def test_what_is_answered_to_producers_and_workers_is_what_the_document_says() -> None:
    async def main() -> None:
        nest = Nest()
        settle(nest)
        new = {"queue": A, "payload": 1, "unique_key": "u", "chain": {"steps": []}}
        asked: list[tuple[str, object]] = [
            ("post_enqueue", {"queue": A, "unique_key": "u"}),
            ("post_enqueue", {"queue": A, "unique_key": "u"}),
            ("post_enqueue", new),
            ("post_enqueue_batch", {"jobs": [{"queue": A}, {"queue": "sms"}], "batch": {}}),
            ("post_fetch", {"queues": [A]}),
            ("post_fetch", {"queues": []}),
            ("post_fetch_batch", {"queues": [A], "count": 2}),
            ("post_heartbeat", {"jobs": {"nobody": {}}}),
            ("post_ack_batch", {"acks": [{"job_id": "nobody"}]}),
            ("post_fail_batch", {"fails": [{"job_id": "nobody", "error": "no"}]}),
            ("post_jobs_bulk_get", {"job_ids": ["nobody"]}),
        ]
        for name, body in asked:
            row = ROWS[name]
            answer = await nest.ask(row.method, row.path, body)

            assert judge(row, answer) == [], name

    run(main)


def test_the_judge_sees_what_is_wrong() -> None:
    row = ROWS["get_jobs_id"]
    good = cast("Schema", ANSWERS["get_jobs_id"])

    def judged(**changes: object) -> list[str]:
        return judge(row, Response(body=msgspec.json.encode({**good, **changes})))

    assert judged() == []
    assert judged(state="lost")
    assert judged(created_at="yesterday")
    assert judged(lease_token=1) == ["$.lease_token is unknown"]
    assert judge(row, Response(status=418))


# The routes of the documents themselves.


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "application/json"),
        ("/openapi.json", "application/json"),
        ("/docs", "text/html; charset=utf-8"),
        ("/docs.css", "text/css; charset=utf-8"),
    ],
)
def test_a_document_is_given_once_and_then_only_said_to_be_the_same(
    path: str, content_type: str
) -> None:
    async def main() -> None:
        nest = Nest()

        first = await nest.ask("GET", path)
        tag = header(first, "etag")
        again = await nest.ask("GET", path, if_none_match=f'"other", W/{tag}')
        other = await nest.ask("GET", path, if_none_match='"other"')

        assert (first.status, first.content_type) == (200, content_type)
        assert header(first, "cache-control") == "max-age=300"
        assert header(first, "content-security-policy").startswith("default-src 'none';")
        assert (again.status, again.body, header(again, "etag")) == (304, b"", tag)
        assert other.body == first.body

    run(main)


def test_the_root_says_where_to_go() -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/")

        start = msgspec.json.decode(answer.body, type=dict[str, str])
        assert (start.pop("name"), start.pop("api")) == ("corvo", "/api/v1")
        assert {"docs", "openapi", "ready", "metrics"} < start.keys()
        assert [path for path in start.values() if "GET" not in ROUTES.methods(path)] == []

    run(main)


def test_the_document_speaks_of_itself_too() -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/openapi.json")

        written = msgspec.json.decode(answer.body, type=dict[str, object])
        assert {"/openapi.json", "/docs", "/docs.css"} < of("paths", within=written).keys()

    run(main)


# The page.


class Reader(HTMLParser):
    """What is in a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith(("on", "style"))
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src"}:
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_every_route_and_needs_nothing_from_elsewhere() -> None:
    page = Reader(pages.page(WRITTEN))

    assert set(ROWS) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "img", "iframe", "form", "style"} & set(page.tags)
    for link in page.links:
        assert link in {"/docs.css", "/openapi.json"} or link.removeprefix("#") in page.ids, link
    assert "1.2.3" in page.text
    assert "Creates a job and answers 201." in page.text
    assert "Default: 3. Example: 3" in page.text
    assert "curl -X POST http://127.0.0.1:8080/api/v1/queues/mail/throttle" in page.text


def test_what_a_document_says_is_text_to_the_page() -> None:
    evil = WRITTEN.replace(b"Resume a queue", b"<script>alert(1)</script> & 'more'")

    page = Reader(pages.page(evil))

    assert "script" not in page.tags
    assert "<script>alert(1)</script> & 'more'" in page.text


def test_an_example_in_a_shell_is_one_word_whatever_is_in_it() -> None:
    example = REQUESTS["post_jobs_id_cancel"]
    evil = WRITTEN.replace(str(example["why"]).encode(), b"it's '$(over)'")

    assert r"it'\''s '\''$(over)'\''" in Reader(pages.page(evil)).text


# The table in the documents.


def route_table() -> str:
    """The routes, in groups, as the page of the documents has them."""
    lines: list[str] = []
    for tag in texts().tags:
        rows = [row for row in ROUTES.rows if row.tag == tag]
        rows.sort(key=lambda row: (row.path, row.method))
        lines += ["", f"**{tag}**", "", "| | | needs |", "|---|---|---|"]
        lines += [
            f"| `{row.method} {row.path}` | {row.summary.rstrip('.')} | {row.action.value} |"
            for row in rows
        ]
    return "\n".join([*lines, "", ""])


def test_the_table_of_routes_in_the_documents_is_the_route_table() -> None:
    drawn = TABLE.search(PAGE.read_text())

    assert drawn is not None, "docs/http.md has lost its markers"
    assert drawn[0] == route_table(), f"run `make docs`, or paste this:\n\n{route_table()}"


QUART: Final = {"BODY_TIMEOUT", "MAX_CONTENT_LENGTH", "RESPONSE_TIMEOUT"}
"""Settings of a library, which look like codes."""


def test_every_code_of_a_problem_is_explained() -> None:
    page = PAGE.read_text()
    codes = {
        code
        for path in (ROOT / "corvo" / "router").rglob("*.py")
        for code in re.findall(r'"([A-Z]{3,}(?:_[A-Z]+)+)"', path.read_text())
    }

    assert "ACK_ERROR" in codes
    missing = sorted(code for code in codes - QUART if f"`{code}`" not in page)
    assert not missing, f"say in docs/http.md what these mean: {missing}"


def test_every_state_is_a_word_of_the_document() -> None:
    words = of("components", "schemas", "State")["enum"]

    assert sorted(cast("list[str]", words)) == sorted(state.value for state in State)


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: route_table(), PAGE.read_text()))
