"""A server that answers by a script: each request takes the next step, in a thread of its own."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

CLOSE: Final = b""
"""Close the connection without an answer."""


class Asked(NamedTuple):
    """A request that has arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def answer(status: int, body: object, *headers: str, closes: bool = False) -> bytes:
    """An answer in JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *headers]
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + data


def problem(status: int, code: str, outcome: str = "not_applied", **more: object) -> bytes:
    """An error, as the server writes it."""
    return answer(status, {"error": code.lower(), "code": code, "outcome": outcome, **more})


class Scripted:
    """A server and what it was asked."""

    def __init__(self, listener: socket.socket, steps: Sequence[bytes]) -> None:
        self._listener = listener
        self._steps = list(steps)
        self.asked: list[Asked] = []
        self.connections = 0
        self.closed = threading.Event()
        """Set whenever this end has closed a connection."""

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    def serve(self) -> None:
        """Take one connection after the other, until the listener is shut down."""
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with taken, taken.makefile("rb") as reader:
                while self._steps and self._take(taken, reader.readline, reader.read):
                    pass
            self.closed.set()

    def _take(self, taken: socket.socket, line: object, read: object) -> bool:
        """One request; whether the connection stays open."""
        assert callable(line)
        assert callable(read)
        try:
            first = line().decode().split()
            if not first:
                return False
            headers = {}
            while (text := line().decode().strip()) != "":
                name, _, value = text.partition(": ")
                headers[name.lower()] = value
            body = read(int(headers.get("content-length", "0")))
        except ConnectionError:
            return False
        self.asked.append(Asked(first[0], first[1], headers, body))
        step = self._steps.pop(0)
        taken.sendall(step)
        return step != CLOSE and b"Connection: close" not in step


@contextmanager
def scripted(*steps: bytes) -> Iterator[Scripted]:
    """A server with these answers. It ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Scripted(listener, steps)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
