"""One connection to one server, kept open between requests: `http.client` with plain failures."""

import http.client
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from corvo.client.servers import Server

NO_ANSWER: Final = "no answer within"
"""How the reason begins when a server has taken a request, and its time limit is over."""
_READ_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 18


class NotSent(Exception):
    """The server was not reached. The request had no effect."""


class Lost(Exception):
    """The connection ended before the answer was complete. The outcome is unknown."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of a server, with any status."""

    status: int
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes


class Connection:
    """A connection that is opened when it is needed, and opened again after it was closed."""

    def __init__(self, server: Server) -> None:
        self.server: Final = server
        self._http: http.client.HTTPConnection | None = None

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        *,
        connect_s: float,
        timeout_s: float,
    ) -> Answer:
        """One request. Raises `NotSent` and `Lost`."""
        opened = self._opened(connect_s)
        is_done = False
        try:
            answer, is_done = _exchange(
                opened, method, self.server.prefix + path, body, headers, timeout_s
            )
            return answer
        except TimeoutError as error:
            raise Lost(f"{NO_ANSWER} {timeout_s:.3g} s") from error
        except http.client.BadStatusLine as error:
            # Also of a connection that is closed without an answer.
            is_closed = isinstance(error, http.client.RemoteDisconnected)
            why = "closed the connection" if is_closed else f"sent no HTTP: {str(error)[:60]!r}"
            raise Lost(f"the server {why}") from error
        except http.client.IncompleteRead as error:
            raise Lost("the connection ended in the middle of the answer") from error
        except http.client.HTTPException as error:
            raise Lost(f"the answer is no HTTP: {error!r}") from error
        except OSError as error:
            raise Lost(_reason(error)) from error
        finally:
            if not is_done:
                self.close()

    def lines(
        self, path: str, headers: dict[str, str], *, connect_s: float, silent_s: float
    ) -> Answer | Iterator[bytes]:
        """An answer that does not end, line by line; or the whole answer of another status.

        Raises `NotSent` and `Lost`, also while it is read: after `silent_s` without a byte.
        """
        got = self._begin("GET", path, None, headers, connect_s=connect_s, silent_s=silent_s)
        return got if isinstance(got, Answer) else self._bits(got.readline)

    def pieces(
        self,
        path: str,
        body: bytes,
        headers: dict[str, str],
        *,
        connect_s: float,
        silent_s: float,
    ) -> Answer | Iterator[bytes]:
        """A large answer to a POST, piece by piece; or the whole answer of another status.

        Raises as `lines`, and `Lost` for an answer that is cut short.
        """
        got = self._begin("POST", path, body, headers, connect_s=connect_s, silent_s=silent_s)
        return got if isinstance(got, Answer) else self._bits(partial(got.read, _PIECE_BYTES))

    def _begin(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        connect_s: float,
        silent_s: float,
    ) -> Answer | http.client.HTTPResponse:
        opened = self._opened(connect_s)
        opened.sock.settimeout(silent_s)
        try:
            opened.request(method, self.server.prefix + path, body, headers)
            response = opened.getresponse()
            if response.status != 200:
                named = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, named, response.read())
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise Lost(_reason_of(error)) from error
        return response

    def _bits(self, read: Callable[[], bytes]) -> Iterator[bytes]:
        try:
            while bit := read():
                yield bit
        except (http.client.HTTPException, OSError) as error:
            raise Lost(_reason_of(error)) from error
        finally:
            self.close()

    def abort(self) -> None:
        """End a request of another thread: it gets what has arrived, and then `Lost`."""
        opened = self._http
        if opened is not None and opened.sock is not None:
            with suppress(OSError):
                opened.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._http is not None:
            self._http.close()
        self._http = None

    def _opened(self, connect_s: float) -> http.client.HTTPConnection:
        if self._http is not None and _is_stale(self._http):
            self.close()
        if self._http is None:
            made = _connect(self.server, connect_s)
            self._http = made
        return self._http


def _connect(server: Server, connect_s: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if server.is_tls else http.client.HTTPConnection
    made = kind(server.host, server.port, timeout=connect_s)
    try:
        made.connect()
    except TimeoutError as error:
        made.close()
        raise NotSent(f"no connection within {connect_s:.3g} s") from error
    except (OSError, UnicodeError) as error:
        made.close()
        raise NotSent(_reason(error)) from error
    return made


def _is_stale(opened: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: it was closed by the server."""
    if opened.sock is None:
        return True
    poll = select.poll()  # unlike `select`, it takes a descriptor of any number
    poll.register(opened.sock, select.POLLIN)
    return bool(poll.poll(0))


def _exchange(
    opened: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    timeout_s: float,
) -> tuple[Answer, bool]:
    """A request and its answer, and whether the connection can be used again."""
    opened.sock.settimeout(timeout_s)
    cut: OSError | None = None
    try:
        opened.request(method, path, body or None, headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        cut = error  # a server that rejects a body may answer without reading it to its end
    response = opened.getresponse()
    data = response.read()
    named = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, named, data), cut is None and not response.will_close


def _reason_of(error: http.client.HTTPException | OSError) -> str:
    if isinstance(error, OSError):
        return _reason(error)
    return f"the answer ended: {type(error).__name__}"


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    text = error.strerror if isinstance(error, OSError) else "the host name is invalid"
    return (text or str(error) or type(error).__name__).lower()
