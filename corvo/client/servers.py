"""Addresses of servers, as people write them: `127.0.0.1:8080`, `https://queue.example.net`."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from corvo.client.errors import BadClientOption

DEFAULT: Final = "http://127.0.0.1:8080"
PORT: Final = 8080
_PORTS: Final = {"http": PORT, "https": 443}
_FORM: Final = "expected HOST:PORT, http://HOST:PORT or https://HOST"


class Server(msgspec.Struct, frozen=True):
    """One address of a server, or of one node of a cluster."""

    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""
    """Path before those of the API, for a server below a path of a proxy."""

    @property
    def url(self) -> str:
        """The address, as it is shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.is_tls}://{host}:{self.port}{self.prefix}"


def parse_server(text: str) -> Server:
    """One address. Raises `BadClientOption`."""
    given = text.strip()
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port
    except ValueError as error:
        raise BadClientOption(f"server {text!r} is invalid: {_FORM}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadClientOption(f"server {text!r} is invalid: {_FORM}")
    if parts.username is not None or parts.query or parts.fragment:
        raise BadClientOption(
            f"server {parts.hostname!r} has more than an address: {_FORM}",
            "pass the API key with:   CORVO_API_KEY, or --api-key",
        )
    if not given.isascii() or not given.isprintable() or " " in given:
        raise BadClientOption(f"server {text!r} is invalid: use printable ASCII without spaces")
    return Server(
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        is_tls=parts.scheme == "https",
        prefix=parts.path.rstrip("/"),
    )


def parse_servers(texts: Iterable[str]) -> list[Server]:
    """Addresses, each of which may be several with commas. Raises `BadClientOption`."""
    named = [one for text in texts for one in text.split(",") if one.strip()]
    servers = list(dict.fromkeys(map(parse_server, named)))
    if not servers:
        raise BadClientOption(f"no server is named: {_FORM}")
    return servers
