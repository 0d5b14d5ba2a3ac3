"""Listening sockets: opened once by the node, and passed to each router process."""

import errno
import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.config import Address
from corvo.errors import CorvoError

BACKLOG: Final = 4_096
"""Connections that wait while a router starts again."""
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ListenFailed(CorvoError):
    """Nothing can listen where it was told to."""


class Place(msgspec.Struct, frozen=True):
    """One address that a name stands for, as the kernel takes it."""

    family: int
    host: str
    zone: int = 0

    def at(self, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
        """The same with a port."""
        is_v6 = self.family == socket.AF_INET6
        return (self.host, port, 0, self.zone) if is_v6 else (self.host, port)


async def listen(wanted: Sequence[Address]) -> list[socket.socket]:
    """Sockets that listen at each address a name stands for. Raises `ListenFailed`."""
    with ExitStack() as undo:
        opened: list[socket.socket] = []
        for address in wanted:
            port = address.port
            for place in await _places(address):
                listening = _open(place, port, address)
                if listening is not None:
                    undo.callback(listening.close)
                    opened.append(listening)
                    port = port_of(listening)  # a port that the kernel chose is one for all
        if not opened:
            raise ListenFailed("no address to listen on")
        undo.pop_all()
    return opened


async def _places(address: Address) -> list[Place]:
    flags = socket.AI_PASSIVE
    try:
        found = await trio.socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=flags
        )
    except OSError as error:
        raise ListenFailed(f"{shown(address)}: no such host: {error.strerror}") from error
    places = []
    for family, _, _, _, where in found:
        if family == socket.AF_INET6 and len(where) == 4:
            places.append(Place(family, str(where[0]), where[3]))
        elif family == socket.AF_INET:
            places.append(Place(family, str(where[0])))
    # The same address may stand there twice, as it does for `localhost` in many a hosts file.
    return list(dict.fromkeys(places))


def _open(place: Place, port: int, address: Address) -> socket.socket | None:
    """A socket that listens; None when this machine has no addresses of that kind."""
    try:
        opened = socket.socket(place.family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno in _NO_SUCH_FAMILY:
            return None
        raise
    with ExitStack() as undo:
        undo.callback(opened.close)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if place.family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            opened.bind(place.at(port))
            opened.listen(BACKLOG)
        except OSError as error:
            is_one_of_many = address.host in {"", "localhost"}
            if is_one_of_many and error.errno in _NO_SUCH_FAMILY:
                return None
            raise _why(error, address) from error
        opened.setblocking(False)
        undo.pop_all()
    return opened


def _why(error: OSError, address: Address) -> ListenFailed:
    match error.errno:
        case errno.EADDRINUSE:
            why = "something else listens there already: stop it, or choose another --bind"
        case errno.EACCES:
            why = "ports below 1024 are for root: choose another --bind"
        case errno.EADDRNOTAVAIL:
            why = "this machine has no such address: choose another --bind"
        case _:
            why = str(error.strerror)
    return ListenFailed(f"{shown(address)}: {why}")


def check_certificate(certificate: str, key: str) -> None:
    """Look whether files can be what TLS needs. Raises `ListenFailed` when they cannot."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise ListenFailed(f"{name}: {path}: {error.strerror}") from error
    try:
        # Without a password at hand, OpenSSL would ask for it at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ListenFailed(
            f"tls_cert, tls_key: expected a certificate and its private key, in PEM and without a"
            f" password, in {certificate} and {key}: {error}"
        ) from error


def port_of(listening: socket.socket) -> int:
    """The port a socket listens at."""
    port: int = listening.getsockname()[1]
    return port


def host_of(listening: socket.socket) -> str:
    """The address a socket listens at."""
    host: str = listening.getsockname()[0]
    return host


def shown(address: Address) -> str:
    """An address as it is written."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
