"""Trace contexts over HTTP: by header or in the body, for each job, and back at every door."""

from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.workflow import NewBatch
from corvo.router.enqueue.bodies import plan
from corvo.router.http.messages import Response
from corvo.trace_context import TraceContext
from tests.router.nests import Nest, problem, queue_of, run
from tests.router.streaming import Node as StreamNode
from tests.router.streaming import fetch, jobs_of, stream_to
from tests.support.links import jumping

HEADER: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"
BODY: Final = "00-1bf7651916cd43dd8448eb211c80319d-c8ad6b7169203332-00"
STATE: Final = "vendor=1"
JSON = dict[str, object]


def read(response: Response) -> JSON:
    return msgspec.json.decode(response.body, type=JSON)


def context(job: object) -> tuple[object, object]:
    assert isinstance(job, dict)
    return job.get("traceparent", ""), job.get("tracestate", "")


async def enqueued(nest: Nest, body: JSON, path: str = "/api/v1/enqueue", **headers: str) -> JSON:
    """The job, as its worker gets it."""
    made = await nest.ask("POST", path, body, query=None, **headers)
    assert made.status == 201, made.body
    return read(await nest.ask("POST", "/api/v1/fetch", {"queues": ["mail"], "wait_ms": 0}))


@pytest.mark.parametrize(
    ("headers", "body", "kept"),
    [
        ({}, {}, ("", "")),
        ({"traceparent": HEADER}, {}, (HEADER, "")),
        ({"traceparent": HEADER, "tracestate": STATE}, {}, (HEADER, STATE)),
        ({"traceparent": HEADER, "tracestate": STATE}, {"kind": "a"}, (HEADER, STATE)),
        ({"traceparent": HEADER, "tracestate": STATE}, {"traceparent": BODY}, (BODY, "")),
        ({}, {"traceparent": BODY, "tracestate": STATE}, (BODY, STATE)),
        ({"traceparent": HEADER}, {"traceparent": "", "tracestate": ""}, (HEADER, "")),
        ({"traceparent": HEADER}, {"traceparent": None, "tracestate": None}, (HEADER, "")),
        # What is invalid in a header is ignored.
        ({"traceparent": "00-abc"}, {}, ("", "")),
        ({"traceparent": f"{HEADER}, {HEADER}"}, {}, ("", "")),
        ({"tracestate": STATE}, {}, ("", "")),
        ({"traceparent": HEADER, "tracestate": "A=b"}, {}, (HEADER, "")),
        ({"traceparent": HEADER, "tracestate": "a=" + "x" * 600}, {}, (HEADER, "")),
    ],
)
def test_the_body_wins_over_the_header(
    headers: dict[str, str], body: JSON, kept: tuple[str, str]
) -> None:
    async def main() -> None:
        job = await enqueued(Nest(), {"queue": "mail", **body}, **headers)

        assert context(job) == kept

    run(main)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"traceparent": "00-abc"}, "traceparent"),
        ({"traceparent": HEADER.upper()}, "traceparent"),
        ({"traceparent": HEADER, "tracestate": "A=b"}, "tracestate"),
        ({"tracestate": STATE}, "tracestate"),
    ],
)
def test_an_invalid_context_in_a_body_is_refused_with_its_field(fields: JSON, field: str) -> None:
    async def main() -> None:
        nest = Nest()
        job = {"queue": "mail", **fields}

        alone = await nest.ask("POST", "/api/v1/enqueue", job)
        body: JSON = {"jobs": [{"queue": "mail"}, job]}
        in_batch = await nest.ask("POST", "/api/v1/enqueue/batch", body)
        body = {"jobs": [{"queue": "mail"}], "batch": fields}
        of_batch = await nest.ask("POST", "/api/v1/enqueue/batch", body)

        assert problem(alone) == (400, "VALIDATION_ERROR", problem(alone)[2], field)
        assert problem(in_batch)[::3] == (400, f"jobs[1].{field}")
        assert problem(of_batch)[::3] == (400, f"batch.{field}")
        for answer in (alone, in_batch, of_batch):
            assert "send" in str(read(answer)["error"])

    run(main)


def test_each_job_of_a_request_has_the_header_or_its_own() -> None:
    async def main() -> None:
        nest = Nest()
        jobs = [{"queue": "mail"}, {"queue": "mail", "traceparent": BODY}]
        body = {"jobs": jobs, "batch": {"callback_queue": "done"}}
        await nest.ask("POST", "/api/v1/enqueue/batch", body, traceparent=HEADER, tracestate=STATE)
        asked = {"queues": ["mail"], "count": 5, "wait_ms": 0}
        given = read(await nest.ask("POST", "/api/v1/fetch/batch", asked))["jobs"]
        assert isinstance(given, list)
        for job in given:
            ack = {"lease_token": job["lease_token"]}
            await nest.ask("POST", f"/api/v1/ack/{job['job_id']}", ack)
        nest.deliver()
        done = {"queues": ["done"], "wait_ms": 0}
        callback = read(await nest.ask("POST", "/api/v1/fetch", done))
        shown = read(await nest.ask("GET", f"/api/v1/jobs/{given[0]['job_id']}"))

        assert [context(job) for job in given] == [(HEADER, STATE), (BODY, "")]
        assert context(callback) == context(shown) == (HEADER, STATE)

    run(main)


def test_the_callback_of_a_batch_may_have_a_context_of_its_own() -> None:
    async def main() -> None:
        nest = Nest()
        batch = {"callback_queue": "mail", "traceparent": BODY, "tracestate": STATE}
        body = {"jobs": [{"queue": queue_of(1), "id": "a"}], "batch": batch}
        await nest.ask("POST", "/api/v1/enqueue/batch", body, traceparent=HEADER)
        await nest.ask("DELETE", f"/api/v1/jobs/{queue_of(1)}~a")
        nest.deliver()
        asked = {"queues": ["mail"], "wait_ms": 0}

        callback = read(await nest.ask("POST", "/api/v1/fetch", asked))

        assert context(callback) == (BODY, STATE)

    run(main)


def test_a_webhook_brings_the_context_of_its_sender() -> None:
    async def main() -> None:
        job = await enqueued(Nest(), {"any": 1}, "/api/v1/webhooks/mail", traceparent=HEADER)

        assert context(job) == (HEADER, "")

    run(main)


def test_a_request_that_is_repeated_in_another_span_has_no_second_effect() -> None:
    async def main() -> None:
        nest = Nest()
        body = {"queue": "mail", "id": "a"}

        first = await nest.ask(
            "POST", "/api/v1/enqueue", body, traceparent=HEADER, idempotency_key="k"
        )
        again = await nest.ask(
            "POST", "/api/v1/enqueue", body, traceparent=BODY, idempotency_key="k"
        )
        by_id = await nest.ask("POST", "/api/v1/enqueue", body, traceparent=BODY)
        shown = read(await nest.ask("GET", "/api/v1/jobs/mail~a"))

        assert (first.status, again.status, by_id.status) == (201, 201, 200)
        assert read(again) == read(first)
        assert context(shown) == (HEADER, "")

    run(main)


def test_many_jobs_have_the_same_parts_and_digests_in_whatever_span() -> None:
    payload = b'"' + b"x" * 10_000 + b'"'
    jobs = [NewJob(queue="mail", payload=msgspec.Raw(payload)) for _ in range(1_500)]
    contexts = [TraceContext(HEADER, STATE), TraceContext(BODY, "a=" + "x" * 300)]

    planned = [
        plan([replace(job, trace=trace) for job in jobs], 3, NewBatch(trace=trace), by_queue=True)
        for trace in contexts
    ]

    assert planned[0] == planned[1]
    assert len(planned[0][0]) > 3


def test_a_header_is_left_out_while_a_node_of_the_cluster_is_older() -> None:
    async def main() -> None:
        nest = Nest()
        topology = nest.api.topology
        topology.map = replace(topology.map, op_version=TraceContext.SINCE - 1)
        job = await enqueued(nest, {"queue": "mail"}, traceparent=HEADER)

        topology.map = replace(topology.map, op_version=TraceContext.SINCE)
        later = await enqueued(nest, {"queue": "mail"}, traceparent=HEADER)

        assert context(job) == ("", "")
        assert context(later) == (HEADER, "")

    run(main)


def test_a_schedule_has_no_context() -> None:
    async def main() -> None:
        nest = Nest()
        body = {"name": "n", "queue": "mail", "cron": "@daily", "traceparent": BODY}

        made = await nest.ask("POST", "/api/v1/schedules", body, traceparent=HEADER)

        assert made.status == 201
        warnings = read(made)["warnings"]
        assert isinstance(warnings, list)
        assert [warning["field"] for warning in warnings] == ["traceparent"]

    run(main)


@jumping
async def test_a_stream_takes_a_context_with_each_job_and_gives_it_back() -> None:
    async with stream_to(StreamNode(), traceparent=HEADER) as line:
        jobs = [
            {"queue": "mail", "payload": 0},
            {"queue": "mail", "payload": 1, "traceparent": BODY, "tracestate": STATE},
            {"queue": "mail", "payload": 2, "traceparent": "00-abc"},
        ]
        made = await line.ask(enqueues=jobs)
        given = await line.ask(fetch=fetch("mail", count=5))

        answers = made["enqueued"]
        assert isinstance(answers, list)
        assert [answer.get("code", "") for answer in answers] == ["", "", "VALIDATION_ERROR"]
        assert [context(job) for job in jobs_of(given)] == [("", ""), (BODY, STATE)]
