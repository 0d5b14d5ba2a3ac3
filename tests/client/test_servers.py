"""Addresses of servers, as people write them."""

import pytest

from corvo.client.errors import BadClientOption
from corvo.client.servers import parse_server, parse_servers


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("queue", "http://queue:8080"),
        ("http://queue/", "http://queue:8080"),
        ("https://queue.example.net", "https://queue.example.net:443"),
        ("HTTPS://Queue:1/ops/corvo/", "https://queue:1/ops/corvo"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address(text: str, url: str) -> None:
    assert parse_server(text).url == url


@pytest.mark.parametrize(
    "text",
    ["", "ftp://a", "a:port", "a:99999", "http://", "http://u:secret@a", "a?x=1", "a b:1", "a\n:1"],
)
def test_what_is_no_address_is_rejected_without_its_secrets(text: str) -> None:
    with pytest.raises(BadClientOption) as error:
        parse_server(text)

    assert "expected" in error.value.message or "use printable" in error.value.message
    assert "secret" not in error.value.message


def test_several_addresses_are_separated_by_commas_and_counted_once() -> None:
    found = parse_servers(["a:1, b:2,", "http://a:1"])

    assert [server.url for server in found] == ["http://a:1", "http://b:2"]
    with pytest.raises(BadClientOption):
        parse_servers([","])
