"""HTTP/2 in bad hands, where it is switched on: floods of frames, and answers that are not read."""

from typing import Final

import h2.errors
import h2.events
import h2.settings
import pytest
import trio
import trio.testing

from corvo.router.config import Limits
from corvo.router.http.connections import Stage
from tests.router.lanes import Client, Street, post
from tests.router.test_lanes import Http2Client, run

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
LIMITS: Final = Limits(http2_control_max=50)


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


OPEN: Final = frame(1, b"\x83\x86\x84\x41\x01a", 4, 1)
"""POST of / on stream 1, without its body."""

FLOODS: Final = {
    "data": OPEN + frame(0, stream=1) * 200,
    "priority": b"".join(
        frame(2, bytes(4) + b"\1", stream=number) for number in range(3, 4_003, 2)
    ),
    "rst_stream": OPEN + frame(3, bytes(4), stream=1) * 200,
    "settings": frame(4, b"\0\4\0\0\xff\xff") * 200,
    "ping": frame(6, bytes(8)) * 200,
    "window_update": OPEN + frame(8, b"\0\0\0\1") * 200,
    "continuation": frame(1, b"\x83\x86\x84", 0, 1) + frame(9, stream=1) * 60,
    "unknown": frame(77, b"abc") * 200,
}


async def ending(client: Client) -> h2.events.ConnectionTerminated | None:
    """Why the server ended a connection of HTTP/2."""
    http2 = Http2Client(client)
    ended = None
    while True:
        try:
            data = bytes(await client.stream.receive_some(1 << 16))
        except trio.BrokenResourceError:
            return ended
        for event in http2.connection.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                ended = event
        if not data or ended is not None:
            return ended


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_control_frames_ends_its_connection(kind: str) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(PREFACE + FLOODS[kind])
            ended = await ending(client)
            assert ended is not None
            assert ended.error_code == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
            assert b"limits.http2_control_max" in (ended.additional_data or b"")
            await street.until_stages(Stage.LINGERING)
            street.pass_time(3)
            await street.until_stages()
        assert street.server.lane.slow.aborts == {kind: 1}
        assert (await street.ask(post("/hot"))).status == 200
        assert not any(b"connection.failed" in line for line in street.said)

    run(scene, limits=LIMITS)


def test_priorities_of_a_long_connection_are_no_flood() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            for number in range(1_200):
                stream = http2.connection.get_next_available_stream_id()
                http2.connection.prioritize(stream, depends_on=stream + 4_000)
                await http2.ask("/hot")
                if number % 50 == 49:
                    await http2.finish()
        assert set(http2.statuses.values()) == {200}
        assert street.endpoints.calls == 1_200

    run(scene, limits=Limits(http2_control_max=50))


def test_websocket_is_not_available_over_http2() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            await http2.flush()
            await http2.hear()
            assert http2.connection.remote_settings.enable_connect_protocol == 0
            more = {":protocol": "websocket", "sec-websocket-version": "13"}
            stream = await http2.ask("/api/v1/stream", method="CONNECT", more=more, end=False)
            await http2.finish()
        assert http2.statuses[stream] == 501
        assert b"use HTTP/1.1" in http2.bodies[stream]

    run(scene)


# Answers that are not read.


def without_window(client: Client) -> Http2Client:
    http2 = Http2Client(client)
    http2.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    return http2


def test_reads_wait_for_answers_that_are_not_read() -> None:
    async def scene(street: Street) -> None:
        street.endpoints.answer_bytes = 100_000
        async with street.client() as client:
            http2 = without_window(client)
            for _ in range(50):
                await http2.ask("/large", method="GET")
            await street.endpoints.until(lambda: street.endpoints.larges == 3)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert street.endpoints.larges == 3
            hot = await http2.ask("/hot")  # what changes something goes on
            await street.endpoints.until(lambda: street.endpoints.calls == 1)
            http2.connection.update_settings(
                {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20}
            )
            await http2.flush()
            await http2.finish()
        assert http2.statuses.pop(hot) == 200
        assert {len(http2.bodies[stream]) for stream in http2.statuses} == {100_000}
        assert len(http2.statuses) == 50
        assert street.endpoints.given_back == 0
        assert not street.server.lane.slow.aborts

    run(scene, limits=Limits(http2_answers_bytes=250_000))


def test_answers_beyond_all_bounds_are_aborted_and_taken_back() -> None:
    async def scene(street: Street) -> None:
        street.endpoints.answer_bytes = 100_000
        async with street.client() as client:
            http2 = without_window(client)
            for _ in range(20):
                await http2.ask("/large")
            await street.endpoints.until(lambda: street.endpoints.given_back == 12)
            assert street.server.lane.slow.aborts == {"answer_bytes": 12}
            http2.connection.update_settings(
                {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20}
            )
            await http2.flush()
            await http2.finish()
        whole = [stream for stream, body in http2.bodies.items() if len(body) == 100_000]
        assert len(whole) == 8
        assert street.endpoints.given_back == 12

    run(scene, limits=Limits(http2_answers_bytes=100_000))


def test_one_answer_may_be_of_any_size() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            for _ in range(2):
                await http2.ask("/large")
                await http2.finish()
        assert [len(body) for body in http2.bodies.values()] == [10 << 20] * 2

    run(scene, limits=Limits(http2_answers_bytes=1))


@pytest.mark.parametrize("path", ["/nowhere", "/refused", "/hot"])
def test_a_small_answer_without_progress_is_aborted(path: str) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = without_window(client)
            await http2.ask(path)
            await http2.ask(path, more={"expect": "nothing"})
            await http2.finish()
            assert street.server.lane.slow.aborts == {"stalled": 2}

    run(scene, limits=Limits(send_ms=100))


def test_an_answer_without_progress_is_aborted_and_the_connection_goes_on() -> None:
    async def scene(street: Street) -> None:
        street.endpoints.answer_bytes = 50_000
        async with street.client() as client:
            http2 = without_window(client)
            stuck = await http2.ask("/large")
            await http2.finish()
            assert http2.bodies[stuck] == b""
            assert street.server.lane.slow.aborts == {"stalled": 1}
            await street.endpoints.until(lambda: street.endpoints.given_back == 1)
            http2.connection.update_settings(
                {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20}
            )
            after = await http2.ask("/large")
            await http2.finish()
            assert len(http2.bodies[after]) == 50_000
        assert street.endpoints.given_back == 1

    run(scene, limits=Limits(send_ms=100))
