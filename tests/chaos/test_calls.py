"""A client records every attempt with its outcome, and repeats it at another node."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import trio

from chaos import history
from chaos.calls import Client
from chaos.history import Item, NewJob, Op
from chaos.http import Site
from chaos.recording import Recorder
from tests.support.links import on_sockets

REFUSED = (503, {"code": "LEADER_UNAVAILABLE", "outcome": "not_applied"})
LOST = (503, {"code": "OUTCOME_UNKNOWN", "outcome": "unknown"})
CREATED = (201, {"job_id": "s00_job_1", "status": "pending"})
HANG_UP: tuple[int, dict[str, str]] = (0, {})


class Server:
    """A node that gives the next of its answers to each request."""

    def __init__(self, answers: list[tuple[int, dict[str, str]]]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            data = b""
            while chunk := await stream.receive_some():
                data += chunk
                head, found, body = data.partition(b"\r\n\r\n")
                if not found or len(body) < _length(head):
                    continue
                self.requests.append(data)
                data = b""
                status, said = self.answers.pop(0)
                if not status:
                    return
                text = msgspec.json.encode(said)
                seq = b"corvo-seq: s0=5\r\n" if status < 300 else b""
                await stream.send_all(
                    b"HTTP/1.1 %d x\r\n%scontent-length: %d\r\n\r\n%s"
                    % (status, seq, len(text), text)
                )


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


@asynccontextmanager
async def client_of(directory: Path, *servers: Server) -> AsyncIterator[Client]:
    async with trio.open_nursery() as nursery:
        sites = []
        for number, server in enumerate(servers):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, server.serve, [listener])
            sites.append(Site(chr(97 + number), "127.0.0.1", port, socket.socket))
        recorder = Recorder(directory)
        client = Client("c", sites, recorder, Random(1))
        yield client
        client.close()
        recorder.close()
        nursery.cancel_scope.cancel()


def ops_in(directory: Path) -> list[Op]:
    return [record for record in history.read(directory) if isinstance(record, Op)]


@on_sockets
async def test_a_refused_call_is_repeated_with_the_same_request_key_and_body(
    tmp_path: Path,
) -> None:
    server = Server([REFUSED, CREATED])
    async with client_of(tmp_path, server) as client:
        op = await client.enqueue([NewJob(queue="mail")])

    first, second = ops_in(tmp_path)
    assert (first.type, first.outcome, first.try_) == ("fail", "not_applied", 1)
    assert (second.type, second.op_id, second.try_) == ("ok", first.op_id, 2)
    assert second == op
    assert op.seq == {"0": 5}
    one, other = server.requests
    assert one.partition(b"\r\n\r\n")[2] == other.partition(b"\r\n\r\n")[2]
    assert b"idempotency-key: c-1" in other


@on_sockets
async def test_a_lost_answer_is_recorded_as_unknown_and_another_node_is_asked(
    tmp_path: Path,
) -> None:
    answers = [HANG_UP, CREATED]
    async with client_of(tmp_path, Server(answers), Server(answers)) as client:
        await client.enqueue([NewJob(queue="mail")])

    first, second = ops_in(tmp_path)
    assert (first.type, first.t_ret, first.http) == ("info", None, 0)
    assert second.type == "ok"
    assert {first.node, second.node} == {"a", "b"}


@on_sockets
async def test_a_call_whose_outcome_stays_unknown_ends_the_session(tmp_path: Path) -> None:
    server = Server([LOST, LOST, CREATED])
    async with client_of(tmp_path, server) as client:
        await client.finish("ack", Item("s00_job_1", 7), tries=2)
        await client.enqueue([NewJob(queue="mail")])

    *lost, last = ops_in(tmp_path)
    assert [op.type for op in lost] == ["info", "info"]
    assert lost[-1].session != last.session


@on_sockets
async def test_a_fetch_is_not_repeated(tmp_path: Path) -> None:
    async with client_of(tmp_path, Server([LOST])) as client:
        assert await client.fetch(["mail"], 1) == ()

    (op,) = ops_in(tmp_path)
    assert (op.type, op.keyed) == ("info", False)
