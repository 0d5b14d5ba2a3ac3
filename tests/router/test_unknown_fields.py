"""Fields of a body that nothing knows or keeps: taken, named in the answer, counted, or refused."""

import re
from typing import Final, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.router.enqueue.bodies import EnqueueBatchBody, decode_enqueue_batch
from corvo.router.http.messages import Request, Response
from corvo.router.http.unknown_fields import JSON as FORMAT
from corvo.router.http.unknown_fields import form_of
from corvo.router.routes import Route
from corvo.router.table import ROUTES
from tests.router.nests import JSON, Nest, header, problem, run

WITH_BODY: Final = [
    row
    for row in ROUTES.rows
    if row.takes is not None and row.changes and not row.is_filtered and row.method == "POST"
]
WITHOUT_BODY: Final = [
    row for row in ROUTES.rows if row.takes is None and row.changes and not row.takes_any
]
BODIES: Final[dict[str, JSON]] = {
    "/api/v1/fetch": {"queues": ["q"], "wait_seconds": 0},
    "/api/v1/fetch/batch": {"queues": ["q"], "wait_seconds": 0},
    "/api/v1/release/batch": {"jobs": [{"job_id": "a"}]},
    "/api/v1/auth/keys": {"name": "a", "role": "admin"},
}
"""In the place of examples that wait, or that are none."""


def name_of(row: Route) -> str:
    return f"{row.method} {row.path}"


def warnings(answer: Response) -> list[tuple[str, str]]:
    """The fields that an answer names, and what it says of each."""
    told = msgspec.json.decode(answer.body).get("warnings", [])
    return [(each["field"], each["warning"]) for each in told]


async def ask(nest: Nest, path: str, body: object, **query: str) -> Response:
    return await nest.ask("POST", f"/api/v1/{path}", body, query=query)


@pytest.mark.parametrize("row", WITH_BODY, ids=name_of)
def test_every_request_that_changes_something_names_an_unknown_field(row: Route) -> None:
    async def main() -> None:
        nest = Nest()
        path = re.sub(r"{\w+}", "a", row.path)
        body = BODIES.get(row.path, row.takes_example)
        assert body is not None

        clean = await nest.ask(row.method, path, body)
        answer = await nest.ask(row.method, path, {**body, "zzzzzz": 1})

        assert clean.status not in {400, 500}
        assert b"warnings" not in clean.body
        assert answer.status // 100 == clean.status // 100
        told = header(answer, "corvo-warnings") or answer.body.decode()
        assert '{"field":"zzzzzz","warning":"unknown field"}' in told

    run(main)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (
            "enqueue",
            {"queue": "a", "retires": 3},
            [("retires", "unknown field; did you mean max_retries?")],
        ),
        (
            "enqueue",
            {"queue": "a", "agent": {"max_iteration": 3}},
            [("agent.max_iteration", "unknown field; did you mean max_iterations?")],
        ),
        (
            "enqueue",
            {
                "queue": "a",
                "chain": {
                    "steps": [{"queue": "a"}, {"queue": "b", "delay": "5s"}],
                    "on_exit": {"queue": "c", "parent": "a"},
                },
            },
            [
                ("chain.steps[1].delay", "unknown field; did you mean retry_max_delay?"),
                ("chain.on_exit.parent", "unknown field"),
            ],
        ),
        (
            "enqueue",
            {"queue": "a", "chain_config": {"steps": [{"queue": "a"}, {"queue": "b", "x": 1}]}},
            [("chain_config.steps[1].x", "unknown field")],
        ),
        (
            "enqueue/batch",
            {"jobs": [{"queue": "a"}, {"queue": "a", "prio": 1}], "batch": {"callback": "b"}},
            [
                ("jobs[1].prio", "unknown field; did you mean priority?"),
                ("batch.callback", "unknown field; did you mean callback_queue?"),
            ],
        ),
        ("ack/batch", {"acks": [{"job_id": "a", "exit": 1}]}, [("acks[0].exit", "unknown field")]),
        (
            "heartbeat",
            {"jobs": {"a": {"proggress": 1}}},
            [("jobs.a.proggress", "unknown field; did you mean progress?")],
        ),
        (
            "heartbeat",
            {"jobs": [{"job_id": "a", "proggress": 1}]},
            [("jobs[0].proggress", "unknown field; did you mean progress?")],
        ),
        (
            "fetch/batch",
            {"queues": ["a"], "wait_seconds": 0, "counts": 2},
            [("counts", "unknown field; did you mean count?")],
        ),
        (
            "queues/a/retention",
            {"retention": "1h", "retention_s": 2},
            [("retention_s", "unknown field; did you mean retention_ms?")],
        ),
    ],
)
def test_the_answer_names_the_place_and_the_nearest_name(
    path: str, body: JSON, named: list[tuple[str, str]]
) -> None:
    async def main() -> None:
        answer = await ask(Nest(), path, body)

        assert answer.status in {200, 201}, answer.body
        assert warnings(answer) == named

    run(main)


def test_a_refusal_names_the_misspelt_field_beside_the_one_that_is_missing() -> None:
    async def main() -> None:
        answer = await ask(Nest(), "enqueue", {"quue": "a"})

        assert msgspec.json.decode(answer.body)["field"] == "queue"
        assert warnings(answer) == [("quue", "unknown field; did you mean queue?")]

    run(main)


def test_where_it_is_strict_an_unknown_field_is_refused_and_nothing_is_done() -> None:
    async def main() -> None:
        nest = Nest(strict=True)

        answer = await ask(nest, "enqueue/batch", {"jobs": [{"queue": "a", "retires": 1}]})
        left = await nest.ask("GET", "/api/v1/queues")

        assert problem(answer) == (400, "VALIDATION_ERROR", "", "jobs[0].retires")
        assert b"unknown field; did you mean max_retries?" in answer.body
        assert left.body == b"[]\n"

    run(main)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("fail/JOB", {"usage": {"input_tokens": 3}}),
        ("ack/JOB", {"usage": {"cost_usd": 0.5}}),
        ("heartbeat", {"jobs": {"JOB": {"usage": {}}}}),
        ("heartbeat", {"jobs": [{"job_id": "JOB", "usage": {}}]}),
        ("ack/batch", {"acks": [{"job_id": "JOB", "usage": {}}]}),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_usage_is_known_and_said_not_to_be_stored(path: str, body: JSON, *, strict: bool) -> None:
    async def main() -> None:
        nest = Nest(strict=strict)
        job_id = nest.put("a")
        nest["a"].fetch("a")
        text = msgspec.json.encode(body).replace(b"JOB", job_id.encode())

        answer = await ask(nest, path.replace("JOB", job_id), text)

        [(field, warning)] = warnings(answer)
        assert answer.status == 200
        assert field.endswith("usage")
        assert warning.startswith("usage is not stored yet")

    run(main)


@pytest.mark.parametrize("row", WITHOUT_BODY, ids=name_of)
def test_a_request_without_a_body_names_what_it_does_not_read(row: Route) -> None:
    async def main() -> None:
        nest = Nest()
        path = re.sub(r"{\w+}", "a", row.path)

        empty = [await nest.ask(row.method, path, body) for body in (b"", b"{}", b" null\n")]
        fields = await nest.ask(row.method, path, {"reason": "x"})
        other = await nest.ask(row.method, path, b"a=1")

        assert not any(b"warnings" in each.body for each in empty)
        assert warnings(fields) == [("reason", "unknown field")]
        assert warnings(other) == [("body", "this request takes no body")]

    run(main)


def test_a_parameter_of_a_change_is_named_or_refused() -> None:
    async def main() -> None:
        taken = await ask(Nest(), "webhooks/a", {}, bodySHA256="1", priorty="high")
        refused = await ask(Nest(strict=True), "webhooks/a", {}, priorty="high")

        assert taken.status == 201
        assert warnings(taken) == [
            ("bodySHA256", "unknown parameter"),
            ("priorty", "unknown parameter; did you mean priority?"),
        ]
        assert problem(refused)[3] == "priorty"

    run(main)


def test_a_few_are_named_and_all_are_counted() -> None:
    async def main() -> None:
        nest = Nest()

        answer = await ask(nest, "enqueue/batch", {"jobs": [{"queue": "a", "x": 1}] * 30})
        await ask(nest, "enqueue", {"queue": "a", "x": 1, "y" * 5_000: 1})

        assert [field for field, _ in warnings(answer)] == [f"jobs[{n}].x" for n in range(8)]
        assert nest.api.metrics.ignored == {"/api/v1/enqueue/batch": 30, "/api/v1/enqueue": 2}

    run(main)


def test_an_answer_without_a_body_names_them_in_a_header_of_ascii() -> None:
    async def main() -> None:
        answer = await ask(Nest(), "fetch", {"queues": ["a"], "wait_seconds": 0, "timé\r\n": 1})

        assert (answer.status, answer.body) == (204, b"")
        [told] = msgspec.json.decode(header(answer, "corvo-warnings"))
        assert told["field"] == "timé\r\n"
        assert header(answer, "corvo-warnings").isascii()
        assert header(answer, "corvo-warnings").isprintable()

    run(main)


@pytest.mark.parametrize(
    "body",
    [
        b'{"queue":"a","\xff":1}',
        b'{"queue":"a","x":1',
        b'{"x":1,"queue":}',
        b'{"x":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    ],
)
def test_an_unknown_field_does_not_let_anything_pass_that_is_not_json(body: bytes) -> None:
    async def main() -> None:
        assert problem(await ask(Nest(), "enqueue", body))[:2] == (400, "PARSE_ERROR")

    run(main)


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    async def main() -> None:
        nest = Nest()

        answer = await ask(nest, "enqueue", b'{"queue":"a","queue":"b","payload":{"x":1,"x":2}}')
        job = await nest.ask("GET", f"/api/v1/jobs/{msgspec.json.decode(answer.body)['job_id']}")

        assert msgspec.json.decode(job.body)["queue"] == "b"
        assert b'"payload":{"x":1,"x":2}' in job.body

    run(main)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ({"prio": 1}, [("jobs[1].prio", "unknown field")]),
        ({"agent": {"x": 1}}, [("jobs[1].agent.x", "unknown field")]),
    ],
)
def test_of_a_large_body_the_first_is_named(field: JSON, named: list[tuple[str, str]]) -> None:
    jobs = [{"queue": "a"}, {"queue": "a", **field}, *[{"queue": "a", "zz": 1}] * 10_000]

    async def main() -> None:
        answer = await ask(Nest(), "enqueue/batch", {"jobs": jobs[:9_000]})
        refused = await ask(Nest(strict=True), "enqueue/batch", {"jobs": jobs[:9_000]})

        assert answer.status == 201
        assert warnings(answer) == named
        assert problem(refused) == (400, "VALIDATION_ERROR", "", named[0][0])

    run(main)


def test_usage_in_a_large_body_is_named() -> None:
    async def main() -> None:
        acks = [{"job_id": "a", "usage": {}, "result": "x" * 1_000}] * 200

        answer = await ask(Nest(), "ack/batch", {"acks": acks})

        assert warnings(answer) == [("acks[0].usage", "this field is not stored yet")]

    run(main)


# The twin, and a walk over plain values that must find the same.

PLAIN: Final[st.SearchStrategy[object]] = st.sampled_from([0, "a", None])
NAMES: Final = st.sampled_from(["queue", "jobs", "agent", "chain", "steps", "payload", "x", "y"])
VALUES: Final = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)
ITEM: Final = st.fixed_dictionaries(
    {"queue": st.just("a")},
    optional={
        "payload": VALUES,
        "tags": st.just({"x": "y"}),
        "x": VALUES,
        "agent": st.dictionaries(st.sampled_from(["max_iterations", "x"]), st.just(1)),
        "chain": st.fixed_dictionaries(
            {
                "steps": st.lists(
                    st.fixed_dictionaries(
                        {"queue": st.just("a")}, optional={"payload": VALUES, "y": VALUES}
                    ),
                    min_size=2,
                    max_size=3,
                )
            },
            optional={"on_exit": st.just("b") | st.just({"queue": "b", "x": 1}), "y": VALUES},
        ),
    },
)
BATCH: Final = st.fixed_dictionaries(
    {"jobs": st.lists(ITEM, min_size=1, max_size=4)}, optional={"x": VALUES}
)


def walked(kind: object, value: object, path: str = "") -> set[str]:
    """The paths of unknown fields, found without any haste."""
    structs = [
        each
        for each in (kind, *get_args(kind))
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    if isinstance(value, list):
        return {
            found
            for number, item in enumerate(value)
            for each in get_args(kind)
            for found in walked(each, item, f"{path}[{number}]")
        }
    if not isinstance(value, dict) or not structs:
        return set()
    fields = {field.encode_name: field for field in msgspec.structs.fields(structs[0])}
    found = set()
    for name, one in value.items():
        at = f"{path}.{name}" if path else name
        if name not in fields:
            found.add(at)
            continue
        field_kind = fields[name].type
        for each in (field_kind, *get_args(field_kind)):
            found |= walked(each, one, at)
    return found


@given(BATCH, st.sampled_from([None, 2]))
def test_what_is_found_is_what_a_plain_walk_finds(body: JSON, indent: int | None) -> None:
    data = msgspec.json.encode(body)
    if indent is not None:
        data = b"\n " + msgspec.json.format(data, indent=indent)
    unknown = walked(EnqueueBatchBody, body)

    found = {one.path for one in form_of(EnqueueBatchBody).look(data.lstrip(), FORMAT)}
    request = Request(method="POST", path="", body=data)
    read = decode_enqueue_batch.read(request)

    assert found == unknown
    assert request.ignored == len(unknown)
    assert msgspec.json.encode(read) == msgspec.json.encode(decode_enqueue_batch.decode(data))
