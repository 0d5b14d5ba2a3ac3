"""The stream over a real socket, with a real shard behind it: handshake, formats, and its end."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio
from wsproto.events import TextMessage

from corvo import telemetry
from corvo.router.api import Api
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Request
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.serving import Server
from corvo.router.stream.stream import run_stream
from corvo.router.table import ROUTES
from tests.router.stream_client import Client, Closed, Refused, Reply, connected
from tests.shard.processes import config_in, running

ADMIN: Final = "a key that only the operator has"


class House:
    """A router that serves."""

    def __init__(self, api: Api, port: int, stop: trio.Event) -> None:
        self.api = api
        self.port = port
        self._stop = stop

    def stop(self) -> None:
        self.api.stop()
        self._stop.set()


@asynccontextmanager
async def house(
    tmp_path: Path, *, limits: Limits | None = None, admin_key: str = ""
) -> AsyncIterator[House]:
    """A router and a shard process, until the block ends."""
    shard = config_in(tmp_path)
    config = RouterConfig(
        cluster=shard.cluster,
        node=1,
        shards=1,
        sockets=dict(enumerate([shard.socket])),
        listen=[0],
        is_open=not admin_key,
        admin_key=admin_key,
        limits=limits or Limits(),
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    said: list[bytes] = []
    log = telemetry.Log(said.append, "router", telemetry.Style(is_text=True), telemetry.Level.INFO)
    api = Api(config)
    door = Door(api, ROUTES, on_bug=_no_bugs)
    server = Server(door, App(door, run_stream), config, log)
    stop = trio.Event()
    async with running(shard), trio.open_nursery() as links:
        links.start_soon(api.shards.run)
        links.start_soon(api.keeper.run, log)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, [listener], stop)
            made = House(api, listener.getsockname()[1], stop)
            try:
                yield made
            finally:
                made.stop()
        links.cancel_scope.cancel()
    assert said == []


def _no_bugs(request: Request, error: BaseException) -> None:
    raise AssertionError(request.path) from error


def jobs_of(reply: Reply) -> list[Reply]:
    return msgspec.convert(reply["jobs"], list[Reply])


async def closed(client: Client) -> Closed:
    """How the server ends the stream."""
    with pytest.raises(Closed) as raised:
        await client.receive()
    return raised.value


async def until(condition: Callable[[], bool]) -> None:
    """Let everybody go on until something is so."""
    with trio.fail_after(60):
        while not condition():
            await trio.lowlevel.checkpoint()


def test_a_job_goes_through_in_both_formats(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as served, connected(served.port) as client:
            given = await client.ask(
                {
                    "id": 1,
                    "enqueues": [{"queue": "mail", "payload": b'{"to": [1, "\xc3\xa9"]}'}],
                    "fetch": {"queues": ["mail"]},
                },
                packed=True,
            )
            [job] = jobs_of(given)
            done = await client.ask(
                {
                    "id": 2,
                    "acks": [{"job_id": job["job_id"], "lease_token": job["lease_token"]}],
                    "enqueues": [{"queue": "mail", "payload": {"n": 1}}],
                    "fetch": {"queues": ["mail"]},
                }
            )
            await client.close()

            assert job["payload"] == b'{"to": [1, "\xc3\xa9"]}'
            assert done["acked"] == [{"job_id": job["job_id"], "status": "completed"}]
            assert jobs_of(done)[0]["payload"] == {"n": 1}

    trio.run(main)


def test_frames_may_come_in_fragments_and_pings_are_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as served, connected(served.port) as client:
            for part, is_last in (('{"id"', False), (": 4", False), ("1}", True)):
                event = TextMessage(part, message_finished=is_last)
                await client.stream.send_all(client._connection.send(event))
                await client.ping()

            assert await client.receive() == {"id": 41}
            while client.pongs < 3:
                await client._read()

    trio.run(main)


@pytest.mark.parametrize(
    ("message", "code"),
    [("hello", 1007), ("", 1007), (b"\xc1", 1007), ("x" * 5_000, 1009), (b"x" * 5_000, 1009)],
)
def test_what_is_no_frame_ends_the_stream(tmp_path: Path, message: bytes | str, code: int) -> None:
    async def main() -> None:
        limits = Limits(body_bytes_max=4_000)
        async with house(tmp_path, limits=limits) as served, connected(served.port) as client:
            await client.send_message(message)

            assert (await closed(client)).code == code

    trio.run(main)


def test_a_stream_needs_a_key_where_requests_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, admin_key=ADMIN) as served:
            with pytest.raises(Refused) as refused:
                async with connected(served.port):
                    pass
            async with connected(served.port, [("authorization", f"Bearer {ADMIN}")]) as client:
                fine = await client.ask({"id": 1, "enqueues": [{"queue": "mail"}]})

            assert refused.value.status == 401
            assert msgspec.json.decode(refused.value.body)["code"] == "UNAUTHORIZED"
            assert "error" not in fine

    trio.run(main)


def test_a_stream_has_no_parameters(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as served:
            with pytest.raises(Refused) as refused:
                async with connected(served.port, query="?api_key=sk_1"):
                    pass

            assert refused.value.status == 400
            assert msgspec.json.decode(refused.value.body)["field"] == "api_key"

    trio.run(main)


def test_a_page_from_elsewhere_opens_no_stream(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as served:
            with pytest.raises(Refused) as refused:
                async with connected(served.port, [("origin", "https://evil.example")]):
                    pass

            assert refused.value.status == 403

    trio.run(main)


def test_no_stream_is_opened_beyond_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            house(tmp_path, limits=Limits(streams_max=1)) as served,
            connected(served.port) as first,
        ):
            await first.ask({"id": 1})
            async with connected(served.port) as second:
                assert (await closed(second)).code == 1013
            assert await first.ask({"id": 2}) == {"id": 2}

    trio.run(main)


def test_a_wait_ends_with_a_client_that_is_cut_off_and_the_job_goes_to_another(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        waiting = {"id": 1, "fetch": {"queues": ["mail"], "wait_ms": 30_000}}
        async with house(tmp_path) as served:
            async with connected(served.port) as gone:
                await gone.send(waiting)
                await until(lambda: served.api.fetching.parked == 1)
            await until(lambda: served.api.streams == 0)

            async with connected(served.port) as client:
                await client.send(waiting)
                await client.send({"id": 2, "enqueues": [{"queue": "mail"}]})
                replies = [await client.receive(), await client.receive()]

            assert {reply["id"] for reply in replies} == {1, 2}
            assert [len(jobs_of(reply)) for reply in replies if "jobs" in reply] == [1]

    trio.run(main)


def test_a_server_that_stops_ends_waits_and_streams(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as served, connected(served.port) as client:
            await client.send({"id": 1, "fetch": {"queues": ["mail"], "wait_ms": 30_000}})
            await until(lambda: served.api.fetching.parked == 1)

            served.stop()

            assert jobs_of(await client.receive()) == []
            assert (await closed(client)).code == 1001

    trio.run(main)


def test_a_router_without_a_shard_answers_frames_with_what_is_wrong(tmp_path: Path) -> None:
    async def main() -> None:
        limits = Limits(leader_wait_ms=1_000)
        async with house(tmp_path, limits=limits) as served, connected(served.port) as client:
            await client.ask({"id": 1})
            served.api.shards[0]._links.leader = None  # as when the link is lost

            reply = await client.ask(
                {"id": 2, "enqueues": [{"queue": "mail"}], "fetch": {"queues": ["mail"]}}
            )

            [made] = msgspec.convert(reply["enqueued"], list[Reply])
            assert made["code"] == "LEADER_UNAVAILABLE"
            assert msgspec.convert(reply["fetch_error"], Reply)["code"] == "LEADER_UNAVAILABLE"

    trio.run(main)
