"""Answers without an end, over real sockets: piece by piece, and never kept for a slow client."""

import socket
from collections.abc import Awaitable, Callable
from typing import Final

import h2.settings
import h11
import pytest
import trio

from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import NODE
from corvo.router.config import Limits
from corvo.router.http.messages import ClientGone, Request, Response, Sink
from corvo.router.routes import Route, Routes
from tests.router.lanes import Client, Street, get, post, serving
from tests.router.test_lanes import Http2Client, plain

PIECE: Final = b"x" * 65_536


class Talker:
    """An endpoint that says what it is told to, and notes what became of it."""

    def __init__(self) -> None:
        self.begun = 0
        self.sent = 0
        self.ends: list[str] = []
        self.pieces: list[bytes] = []
        self.changed = trio.Event()
        self.taken_back = 0
        self.is_endless = False

    def say(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.note()

    def note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()

    async def answer(self, api: Api, _: Request) -> Response:
        async def stream(sink: Sink) -> None:
            self.begun += 1
            self.note()
            end = "cancelled"
            try:
                await self._talk(api, sink)
                end = "ended"
            except ClientGone:
                end = "gone"
                raise
            finally:
                self.ends.append(end)
                self.note()

        async def take_back() -> None:
            self.taken_back += 1

        return Response(
            content_type="text/plain", headers=[("x-a", "b")], stream=stream, undelivered=take_back
        )

    async def _talk(self, api: Api, sink: Sink) -> None:
        while self.is_endless:
            await sink.send(PIECE)
            self.sent += 1
            self.note()
        at = 0
        while not api.stopping.is_set():
            while at < len(self.pieces):
                if self.pieces[at] == b"end":
                    return
                await sink.send(self.pieces[at])
                at += 1
            changed = self.changed
            async with trio.open_nursery() as nursery:

                async def stop(scope: trio.CancelScope) -> None:
                    await api.stopping.wait()
                    scope.cancel()

                nursery.start_soon(stop, nursery.cancel_scope)
                await changed.wait()
                nursery.cancel_scope.cancel()
        await sink.send(b"bye")

    def routes(self) -> Routes:
        return Routes(
            Route(
                method=method,
                path="/talk",
                endpoint=self.answer,
                action=Action.OPEN,
                rights=NODE,
                tag="Tests",
                summary="for tests",
                description="for tests",
                is_streamed=True,
                is_parked=True,
            )
            for method in ("GET", "POST")
        )


Scene = Callable[[Street, Talker], Awaitable[None]]


def run(scene: Scene, *, limits: Limits | None = None, fast: bool = True) -> None:
    async def main() -> None:
        talker = Talker()
        with trio.fail_after(60):
            async with serving(limits=limits, routes=talker.routes(), fast=fast) as street:
                await scene(street, talker)

    trio.run(main)


class Reader:
    """Reads an answer over HTTP/1.1 as it comes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.h11 = h11.Connection(h11.CLIENT)
        self.head: h11.Response | None = None
        self.body = b""
        self.is_whole = False
        self.is_cut_off = False

    async def ask(self, data: bytes) -> None:
        self.h11.send(h11.Request(method="GET", target="/talk", headers=[("host", "x")]))
        self.h11.send(h11.EndOfMessage())
        await self.client.send(data)

    async def read(self) -> None:
        """Something more."""
        event = self.h11.next_event()
        while event is h11.NEED_DATA:
            try:
                self.h11.receive_data(bytes(await self.client.stream.receive_some(4_096)))
                event = self.h11.next_event()
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                self.is_cut_off = True
                return
        if isinstance(event, h11.Response):
            self.head = event
        elif isinstance(event, h11.Data):
            self.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.is_whole = True

    async def until(self, body: bytes) -> None:
        while self.body != body:
            assert body.startswith(self.body)
            await self.read()


def test_each_piece_comes_when_it_is_sent_and_not_later() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client:
            reader = Reader(client)
            await reader.ask(get("/talk"))
            while reader.head is None:
                await reader.read()  # before there is a piece
            for expected in (b"one", b"onetwo"):
                talker.say(expected[-3:])
                await reader.until(expected)
            talker.say(b"end")
            while not reader.is_whole:
                await reader.read()

        headers = dict(reader.head.headers)
        assert reader.head.status_code == 200
        assert headers[b"content-type"] == b"text/plain"
        assert headers[b"transfer-encoding"] == b"chunked"
        assert headers[b"x-a"] == b"b"
        assert b"content-length" not in headers
        assert talker.ends == ["ended"]
        assert talker.taken_back == 0
        assert street.server.lane.door.in_flight == 0

    run(scene)


@pytest.mark.parametrize(
    "question",
    [
        get("/talk"),
        get("/talk", "connection: close"),
        get("/talk", method="HEAD"),
        get("/talk").replace(b"HTTP/1.1", b"HTTP/1.0"),
        get("/talk", method="HEAD").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_a_stream_is_the_same_on_both_lanes(question: bytes) -> None:
    answers = []

    async def scene(street: Street, talker: Talker) -> None:
        for piece in (b"one", b"\r\n0\r\n\r\n", b"two", b"end"):
            talker.say(piece)
        answers.append(plain(await street.ask(question, question.partition(b" ")[0])))

    run(scene, fast=True)
    run(scene, fast=False)

    fast, slow = answers
    assert fast == slow
    assert fast[2] == (b"" if question.startswith(b"HEAD") else b"one\r\n0\r\n\r\ntwo")


def test_a_stream_over_http1_does_not_pass_hypercorn() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        street.server.lane.slow.protocol = None  # type: ignore[assignment, method-assign]
        talker.say(b"a")
        talker.say(b"end")
        assert (await street.ask(get("/talk"))).body == b"a"

    run(scene)


def test_a_connection_serves_others_behind_an_answer_that_has_ended() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        talker.say(b"a")
        talker.say(b"end")
        async with street.client() as client:
            first = await client.ask(get("/talk"))
            second = await client.ask(get("/talk"))

        assert first.body == second.body == b"a"

    run(scene)


def test_the_head_alone_begins_nothing() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client:
            head = await client.ask(get("/talk", method="HEAD"), b"HEAD")

        assert head.status == 200
        assert head.headers["content-type"] == "text/plain"
        assert head.body == b""
        assert talker.begun == 0

    run(scene)


def test_a_client_that_hangs_up_is_noticed_though_nothing_is_sent() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client:
            await client.send(get("/talk"))
            await talker.until(lambda: talker.begun == 1)
        await talker.until(lambda: bool(talker.ends))

        assert talker.ends == ["cancelled"]
        while street.server.connections.seats:
            await trio.lowlevel.checkpoint()
        assert talker.taken_back == 1

    run(scene)


def test_a_client_that_does_not_read_is_dropped_and_nothing_is_kept_for_it() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        talker.is_endless = True
        async with street.client(receive_bytes=4_096) as client:
            await client.send(get("/talk"))
            await talker.until(lambda: bool(talker.ends))
            reader = Reader(client)
            await reader.ask(b"")
            while not reader.is_cut_off:
                await reader.read()

        assert talker.ends[0] in {"gone", "cancelled"}
        assert not reader.is_whole
        # What the kernel took before it took no more.
        assert talker.sent * len(PIECE) < 16 << 20

    run(scene, limits=Limits(send_ms=200))


def test_a_client_that_reads_drop_by_drop_is_dropped() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        talker.is_endless = True
        async with street.client(receive_bytes=4_096) as client:
            client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            await client.send(get("/talk"))
            with trio.fail_after(30):
                while not talker.ends:
                    await client.stream.receive_some(1_024)
                    await trio.sleep(0.01)

        assert talker.ends[0] in {"gone", "cancelled"}

    run(scene, limits=Limits(send_ms=200))


def test_the_stop_ends_all_streams_in_order() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client:
            reader = Reader(client)
            await reader.ask(get("/talk"))
            await talker.until(lambda: talker.begun == 1)
            street.server.lane.door.api.stop()
            street.stop.set()
            while not reader.is_whole:
                await reader.read()
            await street.ended.wait()

        assert reader.body == b"bye"

    run(scene)


def test_http2_brings_pieces_side_by_side_with_other_answers() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            first = await http2.ask("/talk")
            await talker.until(lambda: talker.begun == 1)
            talker.say(b"one")
            while http2.bodies[first] != b"one":
                await http2.hear()
            second = await http2.ask("/nowhere")
            while second in http2.open:
                await http2.hear()
            http2.connection.reset_stream(first)
            await http2.flush()
            await talker.until(lambda: bool(talker.ends))

        assert http2.statuses == {first: 200, second: 404}
        assert talker.ends == ["cancelled"]

    run(scene)


def test_http2_clients_that_open_no_window_are_dropped() -> None:
    async def scene(street: Street, talker: Talker) -> None:
        talker.is_endless = True
        async with street.client() as client:
            http2 = Http2Client(client)
            http2.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
            await http2.ask("/talk")
            await http2.finish()  # the stream is reset
            assert talker.ends[0] in {"gone", "cancelled"}
            assert talker.sent <= 2
            other = await http2.ask("/nowhere")
            while other not in http2.statuses:
                assert await http2.hear()

    run(scene, limits=Limits(send_ms=200))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_parked_stream_is_not_among_the_requests_under_way(method: str) -> None:
    async def scene(street: Street, talker: Talker) -> None:
        async with street.client() as client, street.client() as other:
            await client.send(get("/talk") if method == "GET" else post("/talk"))
            await talker.until(lambda: talker.begun == 1)
            assert street.server.lane.door.in_flight == 0
            answer = await other.ask(get("/nowhere"))

        assert answer.status == 404

    run(scene, limits=Limits(in_flight_max=1))
