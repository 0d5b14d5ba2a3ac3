"""The first line between nodes: what is taken, and what a stranger is told."""

import pytest

from corvo.errors import WireError
from corvo.peer_preamble import (
    LINE_MAX,
    OK,
    may_be_request,
    read_answer,
    read_request,
    refusal,
    request,
)


@pytest.mark.parametrize("target", ["node", "shard-0", "shard-63"])
def test_a_request_is_read_as_it_was_written(target: str) -> None:
    line = request(target)

    assert line.endswith(b"\n")
    assert read_request(line[:-1]) == target


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r",
        b"corvo-peer 1 ",
        b"corvo-peer 2 node",
        b"corvo-peer 1 ../mirror",
        b"corvo-peer 1 " + b"a" * 40,
        b"corvo-peer 1 sh\xc3\xa4rd-1",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_a_stranger_is_no_node(line: bytes) -> None:
    with pytest.raises(WireError, match="other nodes"):
        read_request(line)


def test_an_answer_says_why_or_nothing() -> None:
    assert read_answer(OK[:-1]) == ""
    assert read_answer(refusal("node 2 has no replica of shard 3")[:-1]) == (
        "node 2 has no replica of shard 3"
    )
    assert len(refusal("x" * 10_000)) <= LINE_MAX
    assert refusal("one\ntwo").count(b"\n") == 1
    with pytest.raises(WireError):
        read_answer(b"HTTP/1.1 400 Bad Request")


def test_the_beginning_of_a_request_is_known_at_each_byte() -> None:
    line = request("shard-3")

    assert all(may_be_request(line[:length]) for length in range(len(line) + 1))
    assert not any(may_be_request(said) for said in (b"G", b"\x16\x03", b"corvo-peer 2"))
