"""Spans of a real node: by the standard variables alone, through all of its processes."""

from pathlib import Path
from typing import Final

import msgspec

from tests.node.http import Client
from tests.node.nodes import OK, REAL
from tests.support.links import on_sockets
from tests.support.nodes import running
from tests.support.otlp import Span, attributes_of, receiving

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"
_CHUNK: Final = 65_536


class Claim(msgspec.Struct):
    job_id: str
    lease_token: int
    traceparent: str


async def enqueue(client: Client, body: bytes) -> None:
    """Enqueue in a trace."""
    stream = await client.connect()
    head = f"POST /api/v1/enqueue HTTP/1.1\r\nhost: 127.0.0.1\r\ntraceparent: {PARENT}\r\n"
    await stream.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await stream.receive_some(_CHUNK)
    assert answer.startswith(b"HTTP/1.1 201"), answer
    client.close()


def inner(spans: list[Span], outer: Span) -> Span:
    """The span of the op inside that of its request."""
    [span] = [span for span in spans if span.parent_span_id == outer.span_id]
    assert (span.name, span.kind, span.trace_id) == ("raft.propose", 1, outer.trace_id)
    assert int(outer.start_time_unix_nano) <= int(span.start_time_unix_nano)
    return span


@on_sockets
async def test_the_spans_of_a_job_are_sent_at_the_latest_when_the_node_stops(
    tmp_path: Path,
) -> None:
    # A router that is late is not killed before it has sent them.
    settings = {"data_dir": str(tmp_path / "data"), "shards": "1", "drain_ms": "1m"}
    async with (
        receiving() as receiver,
        running(
            settings,
            REAL,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_SERVICE_NAME="jobs",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
            OTEL_BSP_SCHEDULE_DELAY="600000",
        ) as node,
    ):
        client = Client(await node.url())
        await enqueue(client, b'{"queue":"mail"}')
        given = await client.ask("POST", "/api/v1/fetch", b'{"queues":["mail"],"wait_ms":0}')
        claim = given.read(Claim)
        token = msgspec.json.encode({"lease_token": claim.lease_token})
        await client.ask("POST", f"/api/v1/ack/{claim.job_id}", token)
        metrics = await client.ask("GET", "/metrics")
        client.close()
        assert await node.end() == OK

        spans = receiver.spans
        [enqueued] = [span for span in spans if span.name == "POST /api/v1/enqueue"]
        [fetched] = [span for span in spans if span.name == "POST /api/v1/fetch"]
        [acked] = [span for span in spans if span.name == "POST /api/v1/ack/{job_id}"]
        [of_resource] = receiver.requests[0].resource_spans

    assert claim.traceparent == PARENT
    assert (enqueued.trace_id, enqueued.parent_span_id) == (TRACE, PARENT[36:52])
    assert [(link.trace_id, link.span_id) for link in fetched.links] == [(TRACE, PARENT[36:52])]
    for request, op in ((enqueued, "Enqueue"), (fetched, "Fetch"), (acked, "Ack")):
        says = inner(spans, request).says
        assert says["messaging.corvo.op"] == op
        assert says["messaging.destination.partition.id"] == "0"
        assert request.says["messaging.message.id"] == claim.job_id
    assert b"corvo_trace_spans_exported_total 0\n" in metrics.body
    resource = attributes_of(of_resource.resource.attributes)
    assert resource["service.name"] == "jobs"
    assert resource["service.instance.id"] == "1"
    assert resource["deployment.environment.name"] == "test"
    assert not node.find("traces.not_sent")


@on_sockets
async def test_a_receiver_that_is_away_delays_no_request_and_no_stop(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path / "data"), "shards": "1"}
    async with running(
        settings,
        REAL,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_HEADERS="authorization=hush-hush",
        OTEL_TRACES_SAMPLER="odd",
        OTEL_BSP_SCHEDULE_DELAY="1",
    ) as node:
        client = Client(await node.url())
        answer = await client.ask("POST", "/api/v1/enqueue", b'{"queue":"mail"}')
        await node.hear("traces.not_sent", endpoint="http://127.0.0.1:1/v1/traces")
        again = await client.ask("POST", "/api/v1/enqueue", b'{"queue":"mail"}')
        client.close()
        code = await node.end()

    assert (answer.status, again.status, code) == (201, 201, OK)
    assert len(node.find("traces.ignored_setting")) == 1
    assert len(node.find("traces.not_sent")) == 1
    assert "hush-hush" not in str([node.events, node.texts])
