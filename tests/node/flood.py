"""A crowd that means no good, in a process of its own.

    python -m tests.node.flood KIND COUNT PORT

Each of COUNT connections does what KIND says, and comes again when it is turned out. It says `full`
once so many have been let in, and ends when its stdin closes, saying how often somebody was.
"""

import heapq
import resource
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from random import Random
from typing import Final

KINDS: Final = ("silent", "dripping", "garbage")
_CONNECTING_MAX: Final = 256
_PER_SOURCE: Final = 5_000
_DRIP: Final = b"GET /api/v1/queues HTTP/1.1\r\nhost: 127.0.0.1\r\nx-filler: " + b"x" * 4_000
_BEAT_S: Final = 1.0
_AWAY_S: Final = 10.0
"""How long somebody stays away who was turned out, on average: they do not come in waves."""
_GARBAGE_BYTES: Final = 200


class Guest:
    """One of them."""

    __slots__ = ("due", "is_open", "said", "socket", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.socket: socket.socket | None = None
        self.is_open = False
        self.said = 0
        self.due = 0.0


class Flood:
    """All of them."""

    def __init__(self, kind: str, count: int, port: int) -> None:
        self._kind = kind
        self._port = port
        self._dice = Random(count)
        self._epoll = select.epoll()
        self._by_fd: dict[int, Guest] = {}
        self._guests = [Guest(f"127.0.1.{1 + n // _PER_SOURCE}") for n in range(count)]
        self._outside: list[tuple[float, int, Guest]] = [
            (0.0, number, guest) for number, guest in enumerate(self._guests)
        ]
        self._beats: deque[Guest] = deque()
        self._connecting = 0
        self.came = 0
        """How often somebody was let in."""

    def run(self) -> None:
        """Go on until stdin closes."""
        self._epoll.register(0, select.EPOLLIN)
        is_said = False
        while True:
            now = time.monotonic()
            self._come(now)
            self._beat(now)
            for fd, happened in self._epoll.poll(0.02):
                if fd == 0:
                    return
                self._handle(self._by_fd[fd], happened)
            if not is_said and self.came >= len(self._guests):
                is_said = True
                say("full")

    def _come(self, now: float) -> None:
        while self._outside and self._connecting < _CONNECTING_MAX:
            if self._outside[0][0] > now:
                return
            _, _, guest = heapq.heappop(self._outside)
            guest.socket = made = socket.socket()
            made.setblocking(False)
            made.bind((guest.source, 0))
            with suppress(BlockingIOError):
                made.connect(("127.0.0.1", self._port))
            self._by_fd[made.fileno()] = guest
            self._epoll.register(made.fileno(), select.EPOLLOUT | select.EPOLLIN)
            self._connecting += 1

    def _handle(self, guest: Guest, happened: int) -> None:
        client = guest.socket
        assert client is not None
        if not guest.is_open:
            self._connecting -= 1
            if client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._leave(guest)
                return
            guest.is_open = True
            guest.said = 0
            self.came += 1
            self._epoll.modify(client.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
            guest.due = 0.0
            self._speak(guest, time.monotonic())
            return
        try:
            data = client.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(guest)

    def _leave(self, guest: Guest) -> None:
        client = guest.socket
        assert client is not None
        del self._by_fd[client.fileno()]
        client.close()  # which takes it out of the epoll, too
        guest.socket = None
        guest.is_open = False
        due = time.monotonic() + self._dice.uniform(0, 2 * _AWAY_S)
        heapq.heappush(self._outside, (due, id(guest), guest))

    def _beat(self, now: float) -> None:
        while self._beats and self._beats[0].due <= now:
            guest = self._beats.popleft()
            if guest.is_open:
                self._speak(guest, now)

    def _speak(self, guest: Guest, now: float) -> None:
        client = guest.socket
        assert client is not None
        with suppress(OSError):
            if self._kind == "garbage":
                client.send(self._dice.randbytes(_GARBAGE_BYTES))
            elif self._kind == "dripping":
                client.send(_DRIP[guest.said : guest.said + 1])
                guest.said += 1
                guest.due = now + _BEAT_S
                self._beats.append(guest)


def say(word: str) -> None:
    """In one piece."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    kind, count, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    assert kind in KINDS, kind
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    flood = Flood(kind, count, port)
    flood.run()
    say(f"came {flood.came}")


if __name__ == "__main__":
    main()
