"""Clients that are slow, greedy, broken or mean: each is told why, if it listens, and sent away."""

import errno
import socket
import struct
from typing import Final

import pytest
import trio
import trio.testing

from corvo.router.config import Limits
from corvo.router.http.connections import CUTS_MAX, Stage
from corvo.router.http.rendering import CONTINUE
from tests.router.lanes import Answer, Client, Gone, Street, get, post
from tests.router.test_lanes import LANES, Http2Client, run
from tests.router.test_parsing import REFUSED

PATHS: Final = pytest.mark.parametrize("path", ["/hot", "/streamed", "/nowhere"])
"""What is refused while it is read is refused alike, whatever it would have become."""


async def last_answer(client: Client) -> Answer:
    """What a client is told before it is sent away."""
    answer = await client.read()
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].encode() in answer.body
    assert await client.is_closed()
    return answer


# Slow clients.


@PATHS
def test_headers_that_drip_are_given_up(path: str) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(get(path)[:-2])
            await street.until_stages(Stage.HEAD)
            street.pass_time(11)
            answer = await last_answer(client)
            assert answer.status == 408
            assert b'"code":"REQUEST_TIMEOUT"' in answer.body

    run(scene)


@PATHS
@pytest.mark.parametrize("beginning", [b"", b"x"])
def test_a_body_that_drips_is_given_up(path: str, beginning: bytes) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post(path, b"x" * 1_000)[:-1_000] + beginning)
            await street.until_stages(Stage.BODY)
            street.pass_time(6)
            assert (await last_answer(client)).status == 408

    run(scene)


def test_a_client_that_says_nothing_is_closed_without_a_word() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as served, street.client() as silent:
            await served.ask(post("/hot"))
            await street.until_stages(Stage.IDLE, Stage.IDLE)
            street.pass_time(76)
            assert await silent.is_closed()
            assert await served.is_closed()

    run(scene)


@LANES
def test_a_client_that_does_not_read_is_cut_off(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(receive_bytes=4_096) as client:
            await client.send(post("/large"))
            await street.until_stages(Stage.SENDING)
            await trio.testing.wait_all_tasks_blocked(0.01)
            street.pass_time(11)
            await street.endpoints.until(lambda: street.endpoints.given_back == 1)

    run(scene, fast=fast)


@LANES
def test_a_request_that_waits_for_its_answer_is_not_slow(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post("/parked"))
            await street.endpoints.until(lambda: street.endpoints.parked == 1)
            street.pass_time(1_000_000)
            street.endpoints.release.set()
            assert (await client.read()).status == 200

    run(scene, fast=fast)


# Greedy clients.


@PATHS
def test_a_body_that_is_too_large_is_refused_while_it_is_sent(path: str) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            question = post(path, b"x" * 1_000_000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send, question)
                answer = await client.read()
            assert answer.status == 413
            assert b'"code":"PAYLOAD_TOO_LARGE"' in answer.body
        assert street.endpoints.calls == 0

    run(scene, limits=Limits(body_bytes_max=100_000))


@PATHS
def test_a_body_in_chunks_that_is_too_large_is_refused(path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: corvo\r\ntransfer-encoding: chunked\r\n\r\n".encode()

    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(head + (b"1000\r\n" + b"x" * 0x1000 + b"\r\n") * 3)
            assert (await client.read()).status == 413

    run(scene, limits=Limits(body_bytes_max=10_000))


@PATHS
def test_a_flood_of_headers_is_refused(path: str) -> None:
    async def scene(street: Street) -> None:
        for question in (
            get(path, *[f"h{number}: x" for number in range(101)]),
            get(path, f"x: {'y' * 20_000}"),
            get(path + "?" + "x" * 20_000),
        ):
            answer = await street.ask(question)
            assert answer.status == 431
            assert b'"code":"HEADERS_TOO_LARGE"' in answer.body

    run(scene)


def test_all_bodies_together_are_bounded() -> None:
    head = post("/hot", b"x" * 90_000)[:-40_000]

    async def scene(street: Street) -> None:
        async with street.client() as first, street.client() as second:
            await first.send(head)
            while street.server.connections.body_bytes < 50_000:
                await trio.lowlevel.checkpoint()
            await second.send(head + b"x" * 39_999)
            refused = await second.read()
            await first.send(b"x" * 40_000)
            taken = await first.read()
            assert street.server.connections.body_bytes == 0

        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert taken.status == 200

    run(scene, limits=Limits(bodies_bytes_max=100_000))


def test_who_has_been_idle_for_the_longest_makes_room() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as first, street.client() as second, street.client() as third:
            for client in (second, first, third, second):
                await client.ask(post("/hot"))
            async with street.client() as fourth:
                assert (await fourth.ask(post("/hot"))).status == 200
                assert await first.is_closed()
                assert (await second.ask(post("/hot"))).status == 200

    run(scene, limits=Limits(connections_max=3))


def test_where_nobody_is_idle_a_newcomer_is_told_so() -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as first, street.client() as second:
            for client in (first, second):
                await client.send(post("/parked"))
            await endpoints.until(lambda: endpoints.parked == 2)
            async with street.client() as third:
                answer = await third.read()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert b'"code":"OVERLOADED"' in answer.body
                assert await third.is_closed()
            endpoints.release.set()
            assert (await first.read()).status == 200
        assert sum(b"connections.full" in line for line in street.said) == 1

    run(scene, limits=Limits(connections_max=2))


def test_a_crowd_of_newcomers_is_sent_away_and_not_all_of_it_with_a_word() -> None:
    heard: list[int] = []
    all_heard = trio.Event()

    async def come(street: Street) -> None:
        async with street.client() as client:
            try:
                heard.append((await client.read()).status)
            except Gone:
                heard.append(0)
            if len(heard) == 100:
                all_heard.set()
            await all_heard.wait()

    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as first:
            await first.send(post("/parked"))
            await endpoints.until(lambda: endpoints.parked == 1)
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(come, street)
            endpoints.release.set()
            assert (await first.read()).status == 200

    run(scene, limits=Limits(connections_max=1))

    assert set(heard) == {0, 503}


class FullTable(socket.socket):
    """A listening socket of a process that may have no more of them."""

    refusals = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_where_there_are_no_descriptors_idle_clients_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            assert (await client.ask(post("/hot"))).status == 200
        assert any(b"Too many open files" in line for line in street.said)

    monkeypatch.setattr("tests.router.lanes.socket.socket", FullTable)
    run(scene)


# Broken clients.


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
@LANES
def test_what_could_be_read_in_two_ways_is_refused(fast: bool, data: bytes) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(data.replace(b" / ", b" /hot ") + post("/hot", b"smuggled"))
            answer = await client.read()
            if data.startswith(get("/")):
                assert answer.status == 200
                answer = await client.read()
            assert answer.status == 400
            assert answer.body.startswith(b"{")
            assert b'"outcome":"not_applied"' in answer.body
            assert await client.is_closed()
        assert street.endpoints.calls == data.startswith(get("/"))

    run(scene, fast=fast)


@pytest.mark.parametrize("cut", [1, 20, 60, -1])
@PATHS
def test_a_client_that_goes_in_the_middle_of_a_request_leaves_nothing(path: str, cut: int) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post(path, b"x" * 100)[:cut])
        async with street.client() as client:
            await client.send(post(path, b"x" * 100)[:cut])
            assert isinstance(client.stream, trio.SocketStream)
            await client.stream.send_eof()
            assert await client.is_closed()
        assert street.endpoints.calls == 0

    run(scene)


@LANES
def test_a_client_that_sends_without_end_and_never_reads_is_held_up(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(receive_bytes=4_096) as client, trio.open_nursery() as nursery:
            nursery.start_soon(_send_without_end, client)
            await street.until_stages(Stage.SENDING)
            await trio.testing.wait_all_tasks_blocked(0.01)
            street.pass_time(11)

    run(scene, fast=fast)


async def _send_without_end(client: Client) -> None:
    try:
        while True:
            await client.send(post("/large") * 1_000)
    except trio.BrokenResourceError:
        return


def test_a_header_that_cannot_be_sent_ends_one_connection_and_is_logged() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(post("/split"))
            assert await client.is_closed()
        assert (await street.ask(post("/hot"))).status == 200
        assert street.endpoints.given_back == 1
        assert any(b"connection.failed" in line for line in street.said)

    run(scene)


# Odd requests.


@LANES
def test_heads_and_gets_that_come_together_are_told_apart(fast: bool) -> None:
    methods = ("HEAD", "GET", "HEAD", "HEAD", "GET")

    async def scene(street: Street) -> None:
        async with street.client() as client:
            for path in ("/hot", "/streamed", "/nowhere"):
                await client.send(b"".join(get(path, method=method) for method in methods))
                answers = [await client.read(method.encode()) for method in methods]
                assert [bool(answer.body) for answer in answers] == [
                    False,
                    True,
                    False,
                    False,
                    True,
                ]
                assert len({answer.status for answer in answers}) == 1

    run(scene, fast=fast)


@LANES
def test_a_head_of_a_large_answer_brings_its_length_alone(fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            for _ in range(2):
                head = await client.ask(get("/large", method="HEAD"), b"HEAD")
                assert head.headers["content-length"] == str(10 << 20)
                assert head.body == b""
            assert (await client.ask(post("/hot"))).status == 200
        assert street.endpoints.given_back == 0

    run(scene, fast=fast)


@LANES
@pytest.mark.parametrize("close", ["connection: close", "HTTP/1.0"])
def test_a_head_that_is_the_last_ends_the_connection(fast: bool, close: str) -> None:
    question = get("/hot", close, method="HEAD")
    if close == "HTTP/1.0":
        question = b"HEAD /hot HTTP/1.0\r\n\r\n"

    async def scene(street: Street) -> None:
        async with street.client() as client:
            head = await client.ask(question + get("/hot"), b"HEAD")
            assert (head.status, head.headers["connection"]) == (200, "close")
            assert await client.is_closed()
        assert street.endpoints.calls == 1

    run(scene, fast=fast)


@LANES
def test_a_head_of_what_waits_waits(fast: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            await client.send(get("/parked", method="HEAD"))
            await endpoints.until(lambda: endpoints.parked == 1)
            endpoints.release.set()
            head = await client.read(b"HEAD")
            assert (head.status, head.headers["content-length"], head.body) == (200, "3", b"")
            endpoints.release = trio.Event()
            await client.send(get("/parked", method="HEAD"))
            await endpoints.until(lambda: endpoints.parked == 2)
        await endpoints.until(lambda: endpoints.were_cancelled == 1)

    run(scene, fast=fast)


@LANES
def test_a_head_that_is_refused_while_it_is_read_has_no_body(fast: bool) -> None:
    async def scene(street: Street) -> None:
        too_large = get("/hot", "content-length: 20000", method="HEAD")
        async with street.client() as client:
            head = await client.ask(too_large, b"HEAD")
            assert (head.status, head.body) == (413, b"")
            assert head.headers["content-length"] != "0"
            assert await client.is_closed()
        async with street.client() as client:
            assert (await client.ask(get("/hot", method="HEAD"), b"HEAD")).status == 200
            refused = await client.ask(b"GET /hot HTTP/1.1\nhost: corvo\r\n\r\n")
            assert (refused.status, refused.body[:1]) == (400, b"{")

    run(scene, fast=fast, limits=Limits(body_bytes_max=10_000))


@LANES
@PATHS
def test_nobody_is_asked_for_a_body_that_would_be_too_large(fast: bool, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: corvo\r\nexpect: 100-continue\r\n".encode()

    async def scene(street: Street) -> None:
        async with street.client() as client:
            answer = await client.ask(head + b"content-length: 20000\r\n\r\n")
            assert answer.status == 413
            assert await client.is_closed()
        async with street.client() as client:
            for _ in range(2):
                await client.send(head + b"content-length: 2\r\n\r\n")
                assert bytes(await client.stream.receive_some(25)) == CONTINUE
                answer = await client.ask(b"{}")
                assert answer.status == (404 if path == "/nowhere" else 200)

    run(scene, fast=fast, limits=Limits(body_bytes_max=10_000))


@LANES
@PATHS
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_a_body_in_chunks_is_read_whatever_the_method(fast: bool, path: str, method: str) -> None:
    head = f"{method} {path} HTTP/1.1\r\nhost: corvo\r\ntransfer-encoding: chunked\r\n\r\n".encode()

    async def scene(street: Street) -> None:
        async with street.client() as client:
            for _ in range(2):
                await client.send(head + b"5\r\nGET /\r\n")
                await client.send(b"3\r\nabc\r\n0\r\ntrailer: x\r\n\r\n")
                answer = await client.read(method.encode())
                assert answer.status == (404 if path == "/nowhere" else 200)
                if answer.status == 200 and method != "HEAD":
                    assert b'"body":"GET /abc"' in answer.body

    run(scene, fast=fast)


@LANES
@pytest.mark.parametrize("abruptly", [True, False])
def test_an_answer_that_is_under_way_goes_on_without_its_client(fast: bool, abruptly: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client() as client:
            await client.send(post("/slow"))
            await endpoints.until(lambda: endpoints.parked == 1)
            if abruptly:
                linger = struct.pack("ii", 1, 0)  # so that a reset is sent
                client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert street.server.lane.door.in_flight == 1
        endpoints.release.set()
        while street.server.connections.seats:
            await trio.lowlevel.checkpoint()
        assert endpoints.were_cancelled == 0
        assert street.server.lane.door.in_flight == 0
        assert not any(b"failed" in line for line in street.said)

    run(scene, fast=fast)


@LANES
def test_a_wish_for_another_protocol_is_ignored_whatever_the_method(fast: bool) -> None:
    wish = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAM")

    async def scene(street: Street) -> None:
        async with street.client() as client:
            for path in ("/hot", "/streamed", "/nowhere"):
                for method in ("GET", "HEAD", "OPTIONS"):
                    await client.send(get(path, *wish, method=method) + get("/hot"))
                    answer = await client.read(method.encode())
                    assert answer.status in {200, 204, 404}
                    assert (await client.read()).status == 200

    run(scene, fast=fast)


# HTTP/2 in bad hands.


def test_a_flood_of_http2_beginnings_ends_with_their_idleness() -> None:
    async def scene(street: Street) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CUTS_MAX):
                nursery.start_soon(_only_begin, street)
            await street.until_stages(*[Stage.IDLE] * CUTS_MAX)
            await trio.testing.wait_all_tasks_blocked(0.01)
            street.pass_time(76)

    run(scene)


async def _only_begin(street: Street) -> None:
    async with street.client() as client:
        await Http2Client(client).flush()
        with pytest.raises(Gone):
            await _hear_all(client)


async def _hear_all(client: Client) -> None:
    try:
        while await client.stream.receive_some(1 << 16):
            pass
    except trio.BrokenResourceError:
        pass
    raise Gone


@pytest.mark.parametrize(
    "nonsense",
    [b"\xff" * 100, b"\0\0\x05\x09\x05\0\0\0\x01xxxxx", get("/")],
    ids=["a frame of 16 MiB", "the middle of headers", "HTTP/1.1"],
)
def test_nonsense_behind_the_beginning_of_http2_ends_it(nonsense: bytes) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await Http2Client(client).flush()
            await client.send(nonsense)
            with pytest.raises(Gone):
                await _hear_all(client)
        assert (await street.ask(post("/hot"))).status == 200

    run(scene)


def test_a_bug_of_hypercorn_ends_one_connection_and_is_logged() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            await http2.ask("/h\xf6t")  # hypercorn believes that paths are ASCII
            while await http2.hear():
                pass
        assert (await street.ask(post("/hot"))).status == 200
        assert any(b"connection.failed" in line for line in street.said)

    run(scene)


def test_a_body_over_http2_that_is_too_large_is_refused() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/hot", b"x" * 200_000)
            await http2.finish()
            assert http2.statuses[stream] == 413
            assert b'"code":"PAYLOAD_TOO_LARGE"' in http2.bodies[stream]
            again = await http2.ask("/hot")
            await http2.finish()
            assert http2.statuses[again] == 200

    run(scene, limits=Limits(body_bytes_max=10_000))


def test_a_body_over_http2_that_says_it_is_too_large_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corvo.router.server.app.LINGER_S", 0.04)

    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/hot", b"x", end=False, more={"content-length": "30000"})
            await http2.finish()
            assert http2.statuses[stream] == 413
            # What comes nevertheless concerns nobody, and no other request.
            head = (1).to_bytes(3, "big") + b"\0\0" + stream.to_bytes(4, "big")
            await client.send((head + b"x") * 3)
            after = await http2.ask("/hot")
            await http2.finish()
            assert http2.statuses[after] == 200
        assert not any(b"connection.failed" in line for line in street.said)

    run(scene, limits=Limits(body_bytes_max=10_000))


def test_bodies_over_http2_are_counted_with_all_others() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            first = await http2.ask("/hot", b"x" * 50_000)
            await http2.finish()
            assert street.server.connections.body_bytes == 0
            second = await http2.ask("/hot", b"x" * 51_000)
            await http2.finish()
            assert http2.statuses == {first: 200, second: 503}

    run(scene, limits=Limits(bodies_bytes_max=50_000))


def test_a_body_over_http2_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corvo.router.server.app.LINGER_S", 0.04)

    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            stream = await http2.ask("/hot", b"x", end=False)
            await http2.finish()
            assert http2.statuses[stream] == 408

    run(scene, limits=Limits(body_grace_ms=40))


def _headers(count: int, value: str) -> dict[str, str]:
    return {f"h{number}": value for number in range(count)}


def test_too_many_headers_over_http2_are_refused() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            many = await http2.ask("/hot", more=_headers(101, "x"))
            long = await http2.ask("/hot", more=_headers(60, "x" * 500))
            await http2.finish()
            assert http2.statuses == {many: 431, long: 431}
            await http2.ask("/hot", more=_headers(200, "x" * 500))
            with pytest.raises(Gone):
                await _hear_all(client)
        assert street.endpoints.calls == 0

    run(scene)


def test_a_client_that_resets_streams_without_end_is_sent_away() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            with pytest.raises(trio.BrokenResourceError):
                await _reset_without_end(http2)
        assert street.server.lane.slow.aborts == {"rst_stream": 1}

    run(scene, limits=Limits(http2_control_max=10))


async def _reset_without_end(http2: Http2Client) -> None:
    while True:
        stream = await http2.ask("/parked")
        http2.connection.reset_stream(stream)
        await http2.flush()


def test_streams_that_are_reset_as_soon_as_they_are_opened_leave_nothing() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            for _ in range(300):
                stream = await http2.ask("/parked")
                http2.connection.reset_stream(stream)
                http2.open.discard(stream)
                await http2.flush()
            last = await http2.ask("/hot")
            await http2.finish()
            assert http2.statuses[last] == 200
        assert street.endpoints.parked == street.endpoints.were_cancelled

    run(scene, limits=Limits(http2_control_max=1_000))
