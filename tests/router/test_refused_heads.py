"""Requests whose headers ask for what no server here does: refused before their body is read."""

import gzip
from typing import Final

import pytest

from corvo.router.config import Limits
from corvo.router.http.parsing import Reader
from tests.router.lanes import Street, get, post
from tests.router.test_lanes import LANES, Http2Client, run

TARGETS: Final = {
    "the same host": (b"GET http://a/t HTTP/1.1\r\nhost: a\r\n\r\n", "/t", ""),
    "in other letters": (b"GET HTTP://A.example/t HTTP/1.1\r\nhost: a.EXAMPLE\r\n\r\n", "/t", ""),
    "the same port": (b"GET http://a:81/t HTTP/1.1\r\nhost: a:81\r\n\r\n", "/t", ""),
    "the usual port": (b"GET http://a:80/t HTTP/1.1\r\nhost: a\r\n\r\n", "/t", ""),
    "the usual port of TLS": (b"GET https://a/t HTTP/1.1\r\nhost: a:443\r\n\r\n", "/t", ""),
    "no path": (b"GET http://a HTTP/1.1\r\nhost: a\r\n\r\n", "/", ""),
    "a query and no path": (b"GET http://a?b=c/d HTTP/1.1\r\nhost: a\r\n\r\n", "/", "b=c/d"),
    "a scheme in the query": (
        b"GET /t?u=http://b/c HTTP/1.1\r\nhost: a\r\n\r\n",
        "/t",
        "u=http://b/c",
    ),
    "an address": (b"GET http://[::1]:8080/t HTTP/1.1\r\nhost: [::1]:8080\r\n\r\n", "/t", ""),
}
STRANGE_TARGETS: Final = {
    "another host": b"GET http://b/t HTTP/1.1\r\nhost: a\r\n\r\n",
    "another port": b"GET http://a:81/t HTTP/1.1\r\nhost: a:82\r\n\r\n",
    "the usual port of another scheme": b"GET http://a:443/t HTTP/1.1\r\nhost: a\r\n\r\n",
    "no host in the target": b"GET http:///t HTTP/1.1\r\nhost: a\r\n\r\n",
    "a user": b"GET http://a@b/t HTTP/1.1\r\nhost: b\r\n\r\n",
    "another scheme": b"GET ftp://a/t HTTP/1.1\r\nhost: a\r\n\r\n",
    "nearly a scheme": b"GET httpx://a/t HTTP/1.1\r\nhost: a\r\n\r\n",
    "a scheme and no host": b"GET http:t HTTP/1.1\r\nhost: a\r\n\r\n",
    "everything, of a method that has it not": b"GET * HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.parametrize(("data", "path", "query"), TARGETS.values(), ids=TARGETS)
def test_a_target_may_name_the_host_as_the_header_does(data: bytes, path: str, query: str) -> None:
    reader = Reader(Limits())
    reader.feed(data)

    [message] = reader.ready
    assert (message.request.path, message.query) == (path, query)


def test_without_the_header_the_host_is_that_of_the_target() -> None:
    reader = Reader(Limits())
    reader.feed(b"GET http://evil.example/t HTTP/1.0\r\n\r\n")

    [message] = reader.ready
    assert message.request.headers["host"] == "evil.example"


@LANES
@pytest.mark.parametrize("data", STRANGE_TARGETS.values(), ids=STRANGE_TARGETS)
def test_a_target_of_another_host_is_refused(fast: bool, data: bytes) -> None:
    async def scene(street: Street) -> None:
        answer = await street.ask(data)

        assert answer.status == 400
        assert b'"code":"' in answer.body
        assert answer.headers["connection"] == "close"
        assert street.endpoints.calls == 0

    run(scene, fast=fast)


@LANES
@pytest.mark.parametrize("path", ["/hot", "/streamed", "/nowhere"])
@pytest.mark.parametrize("value", ["200-ok", "100-continue, 200-ok", "", "100"])
def test_an_expectation_that_is_not_met_is_told_before_the_body(
    fast: bool, path: str, value: str
) -> None:
    async def scene(street: Street) -> None:
        answer = await street.ask(post(path, b"x" * 10_000, f"expect: {value}")[:-10_000])

        assert answer.status == 417
        assert b'"code":"EXPECTATION_FAILED"' in answer.body
        assert b'"outcome":"not_applied"' in answer.body
        assert street.endpoints.calls == 0

    run(scene, fast=fast)


def test_a_client_of_the_old_version_is_not_told_to_continue() -> None:
    reader = Reader(Limits())
    reader.feed(b"POST /t HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")

    assert reader.refusal is None
    assert not reader.wants_continue


BOMB: Final = gzip.compress(bytes(4 << 20))
"""4 MiB of zeros in 4 KiB."""


@LANES
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "identity, gzip", "nothing"])
def test_an_encoded_body_is_refused_and_not_read(fast: bool, encoding: str) -> None:
    async def scene(street: Street) -> None:
        question = post("/hot", BOMB, f"content-encoding: {encoding}")
        answer = await street.ask(question[: -len(BOMB)])

        assert answer.status == 415
        assert b'"code":"UNSUPPORTED_ENCODING"' in answer.body
        assert answer.headers["accept-encoding"] == "identity"
        assert (await street.ask(question)).status == 415
        assert street.endpoints.calls == 0

    run(scene, fast=fast)


@LANES
def test_a_body_that_says_it_is_as_it_is_is_read(fast: bool) -> None:
    async def scene(street: Street) -> None:
        for encoding in ("identity", "Identity", ""):
            answer = await street.ask(post("/hot", b"{}", f"content-encoding: {encoding}"))
            assert answer.status == 200

    run(scene, fast=fast)


def test_over_http2_the_same_is_refused() -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            http2 = Http2Client(client)
            encoded = await http2.ask("/hot", BOMB, more={"content-encoding": "gzip"})
            expecting = await http2.ask("/hot", b"{}", more={"expect": "200-ok"})
            fine = await http2.ask(
                "/hot", b"{}", more={"expect": "100-continue", "content-encoding": "identity"}
            )
            await http2.finish()

        assert http2.statuses == {encoded: 415, expecting: 417, fine: 200}
        assert http2.headers[encoded]["accept-encoding"] == "identity"
        assert street.endpoints.calls == 1

    run(scene)


def test_a_get_says_nothing_of_a_body() -> None:
    async def scene(street: Street) -> None:
        assert (await street.ask(get("/hot", "accept-encoding: gzip"))).status == 200

    run(scene)
