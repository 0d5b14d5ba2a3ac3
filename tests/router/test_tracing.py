"""Spans of requests: which requests have one, what it says, and how it comes to a receiver."""

import math
from typing import Final

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.otel_settings import Sampler, TraceSettings
from corvo.router.http.messages import Request
from corvo.router.server.door import Door
from corvo.router.table import ROUTES
from corvo.router.tracing import exporter as exporting
from corvo.router.tracing.attributes import OPERATIONS
from corvo.router.tracing.exporter import Exporter
from corvo.router.tracing.otlp import request_of
from corvo.router.tracing.spans import LINKS_MAX, Span, is_recorded
from corvo.router.tracing.tracer import ids_of
from corvo.telemetry import Level, Log, Style
from corvo.trace_context import TraceContext
from tests.router.nests import Nest, run
from tests.router.test_door import ROUTES as FALLING
from tests.support.otlp import Receiver, answer, decode, receiving
from tests.support.otlp import Span as Sent

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED: Final = f"00-{TRACE}-b7ad6b7169203331-00"
OTHER: Final = "00-1bf7651916cd43dd8448eb211c80319d-c8ad6b7169203332-00"
SETTINGS: Final = TraceSettings(endpoint="http://127.0.0.1:1/v1/traces", delay_ms=1)
TRACE_SETTINGS: Final = replace(SETTINGS, resource={"service.name": "jobs"})


@pytest.fixture(autouse=True)
def _patient_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters that stop wait for their last answers, however slow the machine is."""
    monkeypatch.setattr(exporting, "_LAST_S", math.inf)


def waiting(exporter: Exporter) -> list[Sent]:
    """The spans that wait, as a receiver reads them."""
    spans = exporter.waiting()
    return decode(request_of(spans, {})).spans


def spans_of(nest: Nest) -> list[Sent]:
    assert nest.api.tracer is not None
    return waiting(nest.api.tracer.exporter)


# Which.


@pytest.mark.parametrize(
    ("sampler", "parent", "recorded"),
    [
        (Sampler("always_on"), "", True),
        (Sampler("always_on"), UNSAMPLED, False),
        (Sampler("always_off"), "", False),
        (Sampler("always_off"), PARENT, True),
        (Sampler("always_on", follows_parent=False), UNSAMPLED, True),
        (Sampler("always_off", follows_parent=False), PARENT, False),
        (Sampler("traceidratio", 1.0), "", True),
        (Sampler("traceidratio", 0.0), "", False),
        (Sampler("traceidratio", 0.5), PARENT, True),
        (Sampler("traceidratio", 0.53, follows_parent=False), PARENT, True),
        (Sampler("traceidratio", 0.51, follows_parent=False), PARENT, False),
    ],
)
def test_a_sampler_decides_by_the_sender_or_by_the_trace_id(
    sampler: Sampler, parent: str, recorded: bool
) -> None:
    assert is_recorded(sampler, TRACE, parent) is recorded


def test_without_settings_there_is_no_tracer() -> None:
    async def main() -> None:
        nest = Nest()
        await nest.ask("POST", "/api/v1/enqueue", {"queue": "mail"}, traceparent=PARENT)

        assert nest.api.tracer is None
        assert "corvo_trace_spans_exported_total" not in nest.api.metrics.readings

    run(main)


def test_only_requests_that_the_sampler_chooses_have_a_span() -> None:
    async def main() -> None:
        nest = Nest(traces=replace(SETTINGS, sampler=Sampler("always_off")))
        await nest.ask("GET", "/livez")
        await nest.ask("GET", "/livez", traceparent=UNSAMPLED)
        await nest.ask("GET", "/livez", traceparent=PARENT, tracestate="a=b")
        [span] = spans_of(nest)

        assert span.trace_id == TRACE
        assert span.parent_span_id == "b7ad6b7169203331"
        assert span.trace_state == "a=b"
        assert span.flags == 0x301

    run(main)


# What they say.


def test_a_span_has_the_route_and_no_id_in_its_name() -> None:
    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        job_id = nest.put("mail")
        await nest.ask("GET", f"/api/v1/jobs/{job_id}", host="localhost:8080", user_agent="curl")
        await nest.ask("GET", "/nowhere")
        await nest.ask("BREW", "/livez", x_request_id="mine")
        found, missing, odd = spans_of(nest)

        assert found.name == "GET /api/v1/jobs/{id}"
        assert found.kind == 2
        assert found.parent_span_id == ""
        assert found.flags == 0x101
        assert found.status.code == 0
        request_id = found.says["messaging.corvo.request.id"]
        assert found.says == {
            "http.request.method": "GET",
            "http.route": "/api/v1/jobs/{id}",
            "url.path": f"/api/v1/jobs/{job_id}",
            "http.response.status_code": 200,
            "server.address": "localhost",
            "server.port": 8080,
            "user_agent.original": "curl",
            "messaging.corvo.request.id": request_id,
        }
        assert (missing.name, odd.name) == ("GET", "HTTP")
        assert missing.says["http.response.status_code"] == 404
        assert missing.status.code == 0, "an error of the client is not one of the server"
        assert odd.says["http.request.method"] == "_OTHER"
        assert odd.says["messaging.corvo.request.id"] == "mine"

    run(main)


def test_a_failure_of_the_server_is_an_error_of_the_span() -> None:
    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        for shard in nest.shards:
            shard.is_away = True
        await nest.ask("POST", "/api/v1/fetch", {"queues": ["mail"], "wait_ms": 0})
        await nest.ask("GET", "/api/v1/jobs/s00_job_01HF7YAT000000000003800000")
        span = spans_of(nest)[-1]

        assert span.status.code == 2
        assert span.says["error.type"] == "503"

    run(main)


def test_the_life_of_a_job_in_the_words_of_messaging() -> None:
    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        job = {"queue": "mail", "traceparent": OTHER, "tracestate": "a=b"}
        await nest.ask("POST", "/api/v1/enqueue", job, traceparent=PARENT)
        asked = {"queues": ["sms", "mail"], "worker_id": "w1", "wait_ms": 0}
        given = await nest.ask("POST", "/api/v1/fetch", asked)
        claim = msgspec.json.decode(given.body)
        token = {"lease_token": claim["lease_token"]}
        await nest.ask("POST", f"/api/v1/ack/{claim['job_id']}", token)
        enqueue, fetch, ack = spans_of(nest)

        def messaging(span: Sent) -> dict[str, object]:
            prefix = "messaging."
            return {
                name.removeprefix(prefix): value
                for name, value in span.says.items()
                if name.startswith(prefix) and "corvo" not in name
            }

        job_id = claim["job_id"]
        mail = {"system": "corvo", "destination.name": "mail", "message.id": job_id}
        sent = {"operation.name": "enqueue", "operation.type": "send"}
        received = {"operation.name": "fetch", "operation.type": "receive", "client.id": "w1"}
        settled = {"operation.name": "ack", "operation.type": "settle", "message.id": job_id}
        assert messaging(enqueue) == mail | sent
        assert messaging(fetch) == mail | received
        assert messaging(ack) == {"system": "corvo"} | settled
        assert enqueue.trace_id == TRACE
        for span in (enqueue, fetch):
            [link] = span.links
            assert f"00-{link.trace_id}-{link.span_id}-00" == OTHER
            assert (link.flags, link.trace_state) == (0x300, "a=b")
        assert ack.links == []

    run(main)


def test_a_batch_has_the_number_of_its_jobs_and_a_bounded_number_of_links() -> None:
    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        contexts = [f"00-{TRACE}-{number:016x}-01" for number in range(1, LINKS_MAX + 9)]
        jobs = [{"queue": "mail", "traceparent": each} for each in contexts]
        await nest.ask("POST", "/api/v1/enqueue/batch", {"jobs": jobs})
        asked = {"queues": ["mail"], "count": 300, "wait_ms": 0}
        given = await nest.ask("POST", "/api/v1/fetch/batch", asked)
        acks = [
            {"job_id": job["job_id"], "lease_token": job["lease_token"]}
            for job in msgspec.json.decode(given.body)["jobs"]
        ]
        await nest.ask("POST", "/api/v1/ack/batch", {"acks": acks})
        spans = spans_of(nest)

        counts = [span.says["messaging.batch.message_count"] for span in spans]
        assert counts == [len(contexts)] * 3
        assert [len(span.links) for span in spans] == [LINKS_MAX, LINKS_MAX, 0]
        assert spans[0].says["messaging.destination.name"] == "mail"

    run(main)


def test_every_operation_is_of_a_route_that_there_is() -> None:
    assert {*OPERATIONS} <= {row.path for row in ROUTES.rows}


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"jobs": 7}', b'{"jobs": [7]}', b"{"])
def test_no_body_is_too_odd_for_a_span(body: bytes) -> None:
    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        for path in ("/api/v1/enqueue", "/api/v1/enqueue/batch", "/api/v1/ack/batch"):
            await nest.ask("POST", path, body, traceparent=PARENT, host=":", tracestate="\xff")
        await nest.ask("GET", "/%ff", host="[::1]:x")

        assert len(spans_of(nest)) == 4

    run(main)


def test_a_log_line_has_the_ids_of_the_request() -> None:
    assert ids_of(Request(method="GET", path="/")) == {}
    request = Request(method="GET", path="/", headers={"traceparent": PARENT})
    assert ids_of(request) == {"trace_id": TRACE, "span_id": "b7ad6b7169203331"}


def test_the_log_line_of_a_bug_has_the_ids_of_the_span_of_its_request() -> None:
    seen: list[dict[str, str]] = []

    async def main() -> None:
        nest = Nest(traces=SETTINGS)
        door = Door(nest.api, FALLING, on_bug=lambda request, _: seen.append(ids_of(request)))
        for path in ("/fall", "/overload"):
            headers = {"traceparent": PARENT}
            await door.answer(Request(method="POST", path=path, headers=headers))
        fallen, _ = spans_of(nest)

        assert seen == [{"trace_id": TRACE, "span_id": fallen.span_id}]
        assert fallen.says["error.type"] == "500"

    run(main)


# How they are sent.


def span_of(number: int = 1) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=f"{number:016x}",
        name="n",
        began_ns=1,
        ended_ns=2,
        attributes={"i": 1 << 60, "b": True, "t": ("a", "b"), "s": "é"},
        links=(TraceContext(OTHER),),
    )


def of(receiver: Receiver, **changes: object) -> Exporter:
    """An exporter to a receiver."""
    settings = replace(TRACE_SETTINGS, endpoint=f"{receiver.url}/v1/traces", **changes)  # type: ignore[arg-type]
    return Exporter(settings, {"service.version": "1", "service.name": "corvo"})


def test_spans_arrive_in_batches_with_the_resource_and_the_headers() -> None:
    async def main() -> None:
        async with receiving() as receiver, trio.open_nursery() as nursery:
            exporter = of(receiver, batch_max=2, headers=(("authorization", "Bearer a"),))
            for number in range(1, 6):
                exporter.add(span_of(number))
            nursery.start_soon(exporter.run)
            spans = await receiver.take(5)
            await exporter.stop()

            assert [len(request.spans) for request in receiver.requests] == [2, 2, 1]
            assert [int(span.span_id, 16) for span in spans] == [1, 2, 3, 4, 5]
            assert spans[0].says == {"i": 1 << 60, "b": True, "t": ["a", "b"], "s": "é"}
            assert {*receiver.targets} == {"POST /v1/traces"}
            assert receiver.headers[0]["content-type"] == "application/json"
            assert receiver.headers[0]["authorization"] == "Bearer a"
            [of_resource] = receiver.requests[0].resource_spans
            resource = {each.key: each.value.value for each in of_resource.resource.attributes}
            assert resource == {"service.version": "1", "service.name": "jobs"}
            assert (exporter.exported, exporter.dropped) == (5, 0)

    trio.run(main)


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_is_too_odd_for_a_receiver(text: str) -> None:
    span = replace(span_of(), attributes={"s": text, "t": (text,)})

    [sent] = decode(request_of([span], {"s": text})).spans

    assert sent.says["s"] == text.encode(errors="replace").decode()


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    exporter = Exporter(replace(SETTINGS, queue_max=2), {})

    for _ in range(5):
        exporter.add(span_of())

    assert exporter.dropped == 3
    assert len(exporter.waiting()) == 2


@pytest.mark.parametrize("status", ["429 Slow", "502 Bad", "503 Away", "504 Late"])
def test_a_batch_is_sent_again_when_that_may_help(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    monkeypatch.setattr(exporting, "_FIRST_PAUSE_S", 0.0)

    async def main() -> None:
        async with receiving() as receiver, trio.open_nursery() as nursery:
            receiver.answers = [answer(status), answer(status)]
            exporter = of(receiver)
            exporter.add(span_of())
            lines: list[bytes] = []
            log = Log(lines.append, "router", Style(is_text=False), Level.INFO)
            nursery.start_soon(exporter.run, log)
            await receiver.take(1)
            await exporter.stop()

            assert len(receiver.targets) == 3
            assert (exporter.exported, exporter.dropped) == (1, 0)
            [line] = [msgspec.json.decode(each) for each in lines]
            assert (line["event"], line["status"]) == ("traces.not_sent", int(status[:3]))

    trio.run(main)


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Where", "500 Oops"])
def test_a_batch_that_is_refused_is_dropped(status: str) -> None:
    async def main() -> None:
        async with receiving() as receiver, trio.open_nursery() as nursery:
            receiver.answers = [answer(status)]
            exporter = of(receiver)
            exporter.add(span_of())
            nursery.start_soon(exporter.run)
            await receiver.asked(1)
            await exporter.stop()

            assert len(receiver.targets) == 1
            assert (exporter.exported, exporter.dropped) == (0, 1)

    trio.run(main)


def test_spans_that_the_receiver_did_not_take_are_counted() -> None:
    async def main() -> None:
        async with receiving() as receiver, trio.open_nursery() as nursery:
            told = b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}'
            receiver.answers = [answer("200 OK", told)]
            exporter = of(receiver)
            exporter.add(span_of(1))
            exporter.add(span_of(2))
            nursery.start_soon(exporter.run)
            await receiver.take(2)
            await exporter.stop()

            assert (exporter.exported, exporter.dropped) == (1, 1)

    trio.run(main)


@pytest.mark.parametrize(
    "answered",
    [b"", b"HTTP/1.1 200", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"],
)
def test_a_broken_answer_ends_nothing_but_the_batch(
    monkeypatch: pytest.MonkeyPatch, answered: bytes
) -> None:
    monkeypatch.setattr(exporting, "_FIRST_PAUSE_S", 0.0)

    async def main() -> None:
        async with receiving() as receiver, trio.open_nursery() as nursery:
            receiver.answers = [answered or b"\r\n"] * exporting.TRIES
            exporter = of(receiver)
            nursery.start_soon(exporter.run)
            exporter.add(span_of(1))
            await receiver.asked(exporting.TRIES)
            exporter.add(span_of(2))
            await receiver.take(1)
            await exporter.stop()

            assert receiver.spans[-1].span_id == f"{2:016x}"
            assert exporter.dropped == 1

    trio.run(main)


def test_the_rest_is_sent_when_the_router_stops_without_a_receiver_that_is_there() -> None:
    async def main() -> None:
        async with receiving() as receiver:
            exporter = of(receiver, delay_ms=1_000_000)
        async with trio.open_nursery() as nursery:
            exporter.add(span_of())
            nursery.start_soon(exporter.run)
            await exporter.stop()

        assert exporter.dropped == 1

    trio.run(main)
