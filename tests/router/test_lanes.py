"""Two lanes, one behaviour: an answer is the same, byte for byte, on both lanes."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
import trio
import trio.testing
import wsproto
from wsproto import events as ws

from corvo.router.config import Limits
from corvo.router.http.connections import Stage
from tests.router.lanes import Answer, Client, Street, get, post, serving

LANES: Final = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
Scene = Callable[[Street], Awaitable[None]]


def run(
    scene: Scene,
    *,
    fast: bool = True,
    limits: Limits | None = None,
    told: Mapping[str, object] | None = None,
) -> None:
    """A scene on a street of its own."""

    async def main() -> None:
        with trio.fail_after(60):
            async with serving(fast=fast, limits=limits, told=told) as street:
                await scene(street)

    trio.run(main)


def plain(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs between two of the same."""
    headers = dict(answer.headers)
    assert len(headers) == len(answer.raw_headers), "a header came twice"
    assert re.fullmatch(r"proc;dur=[0-9]+\.[0-9]{3}", headers.pop("server-timing"))
    assert headers.pop("date").endswith("GMT")
    name = headers.pop("x-request-id").encode()
    body = answer.body.replace(name, b"NAME")
    if name in answer.body:
        headers["content-length"] = str(len(body))
    return answer.status, headers, body


QUESTIONS: Final = {
    "a post": post("/hot?a=1&b=%20c", b'{"x":1}', "x-a: b", "Content-Type: application/json"),
    "a get": get("/hot"),
    "a name in the path": post("/hot/a%20b%2Fc", b"{}"),
    "a get that is streamed": get("/streamed?a=b"),
    "a head": get("/hot", method="HEAD"),
    "a head that is streamed": get("/streamed", method="HEAD"),
    "a head of what is only posted": get("/none", method="HEAD"),
    "a head of nothing": get("/nowhere", "x-request-id: a", method="HEAD"),
    "a head with a body": get("/hot", "content-length: 2", method="HEAD") + b"{}",
    "a get with a body": get("/hot", "content-length: 2") + b"{}",
    "a target with another host": get("http://corvo:8080/hot?a=b"),
    "a lone question mark": get("/hot?"),
    "no answer": post("/none"),
    "a stream of a row that has none": post("/unended"),
    "a problem": post("/refused", b"{}"),
    "a bug": post("/broken"),
    "nothing there": post("/nowhere"),
    "another method": get("/hot", method="PUT"),
    "what is allowed": get("/hot", method="OPTIONS"),
    "what a page may": get(
        "/hot", "origin: http://a", "access-control-request-method: POST", method="OPTIONS"
    ),
    "a page": get("/hot", "origin: http://a"),
    "a stranger's page": get("/hot", "origin: http://b"),
    "a path that is not text": post("/hot/%ff"),
    "a path with a slash too many": post("//hot"),
    "a path that ends with a slash": post("/hot/"),
    "a query that is not text": post("/hot?a=%ff"),
    "a query without end": post("/hot?" + "&".join("a" * 200)),
    "chunks": (
        b"POST /hot HTTP/1.1\r\nhost: corvo\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nx: y\r\n\r\n"
    ),
    "HTTP/1.0": b"POST /hot HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}",
    "the last one": post("/hot", b"{}", "Connection: close"),
    "a header twice": post("/hot", b"", "x: 1", "X: 2"),
    "bytes in a header": post("/hot", b"", "x: \xe9"),
    "a strange host": get("/hot").replace(b"corvo", b"a b/<c>"),
    "a host in the target": get("http://corvo/hot?x=y"),
    "everything": get("*", method="OPTIONS"),
    "a wish for HTTP/2": post("/hot", b"{}", "connection: upgrade", "upgrade: h2c"),
    "bad bytes in the body": post("/hot", bytes(range(256))),
    "a large body": post("/hot", b"x" * 300_000),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_both_lanes_give_the_same_answer(question: bytes) -> None:
    answers = []

    async def scene(street: Street) -> None:
        answers.append(plain(await street.ask(question, question.partition(b" ")[0])))

    run(scene, fast=True, told={"cors_origins": ["http://a"]})
    run(scene, fast=False, told={"cors_origins": ["http://a"]})

    fast, slow = answers
    assert fast == slow


def test_the_answers_are_those_that_are_meant() -> None:
    async def scene(street: Street) -> None:
        asked = {
            name: await street.ask(question, question.partition(b" ")[0])
            for name, question in QUESTIONS.items()
        }
        statuses = {name: answer.status for name, answer in asked.items()}
        assert statuses == {
            **dict.fromkeys(QUESTIONS, 200),
            "a head of what is only posted": 405,
            "a head of nothing": 404,
            "no answer": 204,
            "a stream of a row that has none": 500,
            "a problem": 429,
            "a target with another host": 400,
            "a bug": 500,
            "nothing there": 404,
            "another method": 405,
            "what is allowed": 204,
            "what a page may": 204,
            "a path that is not text": 400,
            "a path with a slash too many": 404,
            "a path that ends with a slash": 404,
            "a query that is not text": 400,
            "a query without end": 400,
            "everything": 404,
        }
        assert asked["a problem"].headers["retry-after"] == "2"
        assert asked["another method"].headers["allow"] == "GET, POST"
        assert asked["HTTP/1.0"].headers["connection"] == "close"
        assert asked["a post"].headers["corvo-seq"] == "s0=7"

    run(scene)


@LANES
def test_one_connection_serves_many_requests_in_both_lanes(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            for _ in range(3):
                assert (await client.ask(post("/hot", b"{}"))).status == 200
                assert (await client.ask(get("/nowhere"))).status == 404
                assert (await client.ask(post("/streamed", b"{}"))).status == 200
                assert (await client.ask(get("/hot", method="HEAD"), b"HEAD")).status == 200
        assert street.endpoints.calls == 9

    run(scene, fast=fast)


@LANES
def test_requests_that_come_together_are_answered_in_their_order(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            ways = ("hot", "no", "streamed")
            paths = [f"/{ways[number % 3]}/{number}" for number in range(60)]
            await client.send(b"".join(post(path, b"{}") for path in paths))
            answers = [await client.read() for _ in paths]

        for path, answer in zip(paths, answers, strict=True):
            assert path.encode() in answer.body

    run(scene, fast=fast)


@LANES
def test_a_request_can_come_byte_by_byte(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            for byte in post("/hot", b"{}"):
                await client.send(bytes([byte]))
            assert (await client.read()).status == 200

    run(scene, fast=fast)


@LANES
@pytest.mark.parametrize("close", ["connection: close", ""])
def test_a_connection_is_closed_when_that_is_wanted(fast: bool, close: str) -> None:
    question = post("/hot", b"", close) if close else b"GET /hot HTTP/1.0\r\n\r\n"

    async def scene(street: Street) -> None:
        async with street.client() as client:
            answer = await client.ask(question)
            assert answer.headers["connection"] == "close"
            assert await client.is_closed()

    run(scene, fast=fast)


@LANES
def test_a_client_that_asks_before_it_sends_its_body_is_asked_for_it(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            head = b"POST /hot HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
            await client.send(head + b"content-length: 2\r\n\r\n")
            heard = bytes(await client.stream.receive_some(25))
            assert heard == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert (await client.ask(b"{}")).status == 200

    run(scene, fast=fast)


@LANES
def test_a_client_that_has_said_all_it_wants_to_is_answered(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post("/slow"))
            await street.endpoints.until(lambda: street.endpoints.parked == 1)
            assert isinstance(client.stream, trio.SocketStream)
            await client.stream.send_eof()
            street.endpoints.release.set()
            assert (await client.read()).status == 200
            assert await client.is_closed()
        assert not street.endpoints.were_cancelled

    run(scene, fast=fast)


@LANES
def test_both_lanes_say_the_reason_behind_a_status(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post("/refused"))
            heard = bytes(await client.stream.receive_some(36))
            assert heard == b"HTTP/1.1 429 Too Many Requests\r\n" + heard[32:]

    run(scene, fast=fast)


# Waiting for long.


@LANES
@pytest.mark.parametrize("abruptly", [True, False])
def test_a_parked_request_ends_with_its_client(fast: bool, abruptly: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            await client.send(post("/parked", b"{}") + get("/behind"))
            await endpoints.until(lambda: endpoints.parked == 1)
            if not abruptly:
                assert isinstance(client.stream, trio.SocketStream)
                await client.stream.send_eof()
                await endpoints.until(lambda: endpoints.were_cancelled == 1)
        await endpoints.until(lambda: endpoints.were_cancelled == 1)

    run(scene, fast=fast)


@LANES
def test_a_parked_request_is_answered(fast: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            for number in range(1, 4):
                await client.send(post("/parked", b"{}"))
                await endpoints.until(lambda number=number: endpoints.parked == number)  # type: ignore[misc]
                endpoints.release.set()
                assert (await client.read()).status == 200
                endpoints.release = trio.Event()

    run(scene, fast=fast)


@LANES
@pytest.mark.parametrize("abruptly", [True, False])
def test_what_was_claimed_while_the_client_went_is_taken_back(fast: bool, abruptly: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            await client.send(post("/claimed"))
            await endpoints.until(lambda: endpoints.parked == 1)
            if abruptly:
                client.close()
            else:
                assert isinstance(client.stream, trio.SocketStream)
                await client.stream.send_eof()
            while street.server.lane.hangups._watched:
                await trio.lowlevel.checkpoint()
            endpoints.release.set()
            await endpoints.until(lambda: endpoints.given_back == 1)
            assert abruptly or await client.is_closed()

    run(scene, fast=fast)


@LANES
def test_an_answer_that_cannot_arrive_is_taken_back(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(receive_bytes=4_096) as client:
            await client.send(post("/large"))
            await client.stream.receive_some(100)
        await street.endpoints.until(lambda: street.endpoints.given_back == 1)

    run(scene, fast=fast)


@LANES
def test_an_answer_that_arrived_is_not_taken_back(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            for _ in range(3):
                assert len((await client.ask(post("/large"))).body) == 10 << 20
        assert street.endpoints.given_back == 0

    run(scene, fast=fast)


# Other protocols.


class Http2Client:
    """As little of HTTP/2 as a test needs."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.connection = h2.connection.H2Connection(
            h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False)
        )
        self.connection.initiate_connection()
        self.statuses: dict[int, int] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.open: set[int] = set()

    async def ask(
        self,
        path: str,
        body: bytes = b"",
        *,
        end: bool = True,
        more: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> int:
        stream = self.connection.get_next_available_stream_id()
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "a")]
        headers = [*pseudo, *(more or {}).items()]
        self.connection.send_headers(stream, headers, end_stream=end and not body)
        for at in range(0, len(body), 16_384):
            piece = body[at : at + 16_384]
            while self.connection.local_flow_control_window(stream) < len(piece):
                await self.hear()
            self.connection.send_data(stream, piece)
            await self.flush()
        if end and body:
            self.connection.end_stream(stream)
        self.bodies[stream] = b""
        self.open.add(stream)
        await self.flush()
        return stream

    async def flush(self) -> None:
        await self.client.send(self.connection.data_to_send())

    async def hear(self) -> bool:
        """Take what has come; False when nothing more will."""
        try:
            data = bytes(await self.client.stream.receive_some(1 << 16))
        except trio.BrokenResourceError:
            return False
        for event in self.connection.receive_data(data) if data else []:
            if isinstance(event, h2.events.ResponseReceived):
                pairs = [(str(name), str(value)) for name, value in event.headers]
                self.headers[event.stream_id] = headers = dict(pairs)
                self.statuses[event.stream_id] = int(headers.pop(":status"))
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                self.open.discard(event.stream_id)
        await self.flush()
        return bool(data)

    async def finish(self) -> None:
        while self.open:
            assert await self.hear(), "the server has gone"


@LANES
def test_http2_that_is_off_is_refused_in_its_own_words(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            await http2.flush()
            data = bytes(await client.stream.receive_some(1 << 16))
            events = http2.connection.receive_data(data)
            assert await client.is_closed()
        [ended] = [each for each in events if isinstance(each, h2.events.ConnectionTerminated)]
        assert ended.error_code == h2.errors.ErrorCodes.HTTP_1_1_REQUIRED
        assert b"use HTTP/1.1" in (ended.additional_data or b"")

    run(scene, fast=fast, told={"has_http2": False})


def test_http2_is_spoken_on_the_same_port() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            first = await http2.ask("/hot?a=b", b"{}", more={"x-request-id": "me"})
            second = await http2.ask("/nowhere")
            third = await http2.ask("/large")
            await http2.finish()

        assert http2.statuses == {first: 200, second: 404, third: 200}
        assert b'"query":{"a":"b"}' in http2.bodies[first]
        assert http2.headers[first]["x-request-id"] == "me"
        assert b'"code":"NOT_FOUND"' in http2.bodies[second]
        assert len(http2.bodies[third]) == 10 << 20
        assert street.endpoints.given_back == 0

    run(scene)


def test_a_parked_request_ends_with_its_http2_stream() -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/parked")
            await endpoints.until(lambda: endpoints.parked == 1)
            http2.connection.reset_stream(stream)
            await http2.flush()
            await endpoints.until(lambda: endpoints.were_cancelled == 1)
            second = await http2.ask("/hot")
            http2.open.discard(stream)
            await http2.finish()
            assert http2.statuses[second] == 200

    run(scene)


def test_a_stream_that_is_reset_does_not_break_the_others() -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client(receive_bytes=4_096) as client:
            http2 = Http2Client(client)
            http2.connection.update_settings(
                {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 25}
            )
            http2.connection.increment_flow_control_window(1 << 25)
            large = await http2.ask("/large")
            seats = street.server.connections.seats
            while [seat.stage for seat in seats] != [Stage.SENDING]:
                await trio.lowlevel.checkpoint()
            # Its headers wait behind the large answer, and have changed how later ones are packed.
            reset = await http2.ask("/hot")
            await endpoints.until(lambda: endpoints.calls == 1)
            http2.connection.reset_stream(reset)
            await http2.flush()
            await trio.testing.wait_all_tasks_blocked(0.01)
            last = await http2.ask("/hot")
            http2.open.discard(reset)
            await http2.finish()

        assert http2.statuses == {large: 200, last: 200}
        assert len(http2.bodies[large]) == 10 << 20
        assert http2.headers[last]["corvo-seq"] == "s0=7"

    run(scene)


def test_a_parked_http2_stream_is_not_idle() -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/parked")
            await endpoints.until(lambda: endpoints.parked == 1)
            street.pass_time(1_000)
            endpoints.release.set()
            await http2.finish()
            assert http2.statuses[stream] == 200
            await street.until_stages(Stage.IDLE)
            street.pass_time(76)
            while await http2.hear():  # now it is
                pass

    run(scene)


class WebsocketClient:
    """As little of WebSocket as a test needs."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)

    async def say(self, event: ws.Event) -> None:
        await self.client.send(self.connection.send(event))

    async def hear(self) -> ws.Event:
        for event in self.connection.events():
            return event
        while True:
            data = bytes(await self.client.stream.receive_some(1 << 16))
            self.connection.receive_data(data or None)
            for event in self.connection.events():
                return event

    async def hear_message(self) -> bytes | str:
        text, data = "", b""
        while True:
            event = await self.hear()
            if isinstance(event, ws.TextMessage):
                text += event.data
            else:
                assert isinstance(event, ws.BytesMessage)
                data += event.data
            if event.message_finished:
                return text if isinstance(event, ws.TextMessage) else data

    async def open(self, path: str = "/api/v1/stream") -> ws.Event:
        await self.say(ws.Request(host="localhost:80", target=path))
        return await self.hear()


def test_a_websocket_carries_messages_of_both_kinds() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            websocket = WebsocketClient(client)
            assert isinstance(await websocket.open(), ws.AcceptConnection)
            for text in ("hello", ""):
                await websocket.say(ws.TextMessage(text))
                assert await websocket.hear_message() == text
            for data in (b"\x00", b""):
                await websocket.say(ws.BytesMessage(data))
                assert await websocket.hear_message() == data
            await websocket.say(ws.TextMessage("bye"))
            assert isinstance(await websocket.hear(), ws.CloseConnection)

    run(scene)


def test_a_websocket_that_once_was_slow_goes_on() -> None:
    async def scene(street: Street) -> None:
        async with street.client(receive_bytes=4_096) as client:
            websocket = WebsocketClient(client)
            await websocket.open()
            await websocket.say(ws.BytesMessage(b"x" * 5_000_000))
            assert len(await websocket.hear_message()) == 5_000_000
            await street.until_stages(Stage.ANSWERING)
            street.pass_time(1_000)
            await websocket.say(ws.TextMessage("still there?"))
            assert await websocket.hear_message() == "still there?"

    run(scene)


@pytest.mark.parametrize("path", ["/hot", "/nowhere"])
def test_a_websocket_is_for_the_stream_alone(path: str) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            answer = await WebsocketClient(client).open(path)
            assert isinstance(answer, ws.RejectConnection)
            assert answer.status_code == (404 if path == "/nowhere" else 200)

    run(scene)


def test_a_page_of_somebody_else_may_not_open_a_stream() -> None:
    async def scene(street: Street) -> None:
        wish = (
            *("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"),
            *("sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", "origin: http://elsewhere"),
        )
        answer = await street.ask(get("/api/v1/stream", *wish))
        assert answer.status == 403
        assert b'"code":"FORBIDDEN"' in answer.body

    run(scene)


# The end.


@LANES
def test_what_is_under_way_is_answered_before_the_end(fast: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as busy, street.client() as idle:
            await idle.ask(post("/hot"))
            await busy.send(post("/slow"))
            await endpoints.until(lambda: endpoints.parked == 1)
            street.stop.set()
            assert await idle.is_closed()
            endpoints.release.set()
            answer = await busy.read()
            assert answer.status == 200
            if fast:  # hypercorn had promised to go on before it was told to stop
                assert answer.headers["connection"] == "close"
            assert await busy.is_closed()
            await street.ended.wait()

    run(scene, fast=fast, told={"drain_ms": 40_000})


def test_http2_ends_with_what_is_under_way() -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/slow")
            await endpoints.until(lambda: endpoints.parked == 1)
            street.stop.set()
            endpoints.release.set()
            await http2.finish()
            assert http2.statuses[stream] == 200
            while await http2.hear():
                pass
            await street.ended.wait()

    run(scene, told={"drain_ms": 40_000})


@LANES
def test_who_is_not_answered_in_time_is_not_told_anything(fast: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            await client.send(post("/slow"))
            await endpoints.until(lambda: endpoints.parked == 1)
            street.stop.set()
            assert await client.is_closed()
        assert endpoints.were_cancelled == 1

    run(scene, fast=fast, told={"drain_ms": 50})


@LANES
def test_clients_that_do_not_read_do_not_hold_up_the_end(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with trio.open_nursery() as nursery:
            reached = 0

            async def stall() -> None:
                nonlocal reached
                async with street.client(receive_bytes=4_096) as client:
                    await client.send(post("/large"))
                    await client.stream.receive_some(100)
                    reached += 1
                    if reached == 50:
                        street.stop.set()
                    await street.ended.wait()

            for _ in range(50):
                nursery.start_soon(stall)
        assert street.endpoints.given_back == 50

    run(scene, fast=fast, limits=Limits(send_ms=300_000), told={"drain_ms": 50})


@LANES
def test_a_server_that_is_cancelled_does_not_wait_for_anybody(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(receive_bytes=4_096) as client:
            await client.send(post("/large"))
            await client.stream.receive_some(100)
            street.scope.cancel()
            await street.ended.wait()
        assert street.endpoints.given_back == 1

    run(scene, fast=fast, limits=Limits(send_ms=300_000))
