"""A shell in a pseudo-terminal, and a scripted server, for `corvo top` as a program."""

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from tests.support.ports import free_ports
from tests.tui.documents import SUMMARY

ROOT: Final = Path(__file__).parents[2]
PYTHON: Final = shlex.quote(sys.executable)
ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HANGS_S: Final = 60.0
"""Not a bound of how fast something is: a test that waits so long would wait for ever."""
ENVIRONMENT: Final = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm",
    "PS1": "$ ",
}


class Shell:
    """A shell in a pseudo-terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._said = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def run(self, *words: str) -> None:
        self.type(" ".join([PYTHON, *words]) + '; echo "rc""=$?"\n')

    def run_with_id(self, *words: str, environment: str = "") -> int:
        """Run a program whose process id is known."""
        command = " ".join([environment, "exec", PYTHON, *words])
        inner = shlex.quote(f'echo id""=$$; {command}')
        self.type(f'sh -c {inner}; echo "rc""=$?"\n')
        found = re.search(r"id=(\d+)", self.wait(r"id=\d+\r"))
        assert found is not None
        return int(found[1])

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait(self, pattern: str) -> str:
        """Read until the output since the last wait matches; returns what came until then."""
        until = monotonic() + _HANGS_S
        while (found := re.search(pattern, self._said)) is None:
            ready, _, _ = select.select([self._fd], [], [], _HANGS_S)
            is_over = not ready or monotonic() > until
            assert not is_over, f"no {pattern!r} in {self._said[-3_000:]!r}"
            self._said += os.read(self._fd, 1 << 16).decode(errors="replace")
        before, self._said = self._said[: found.end()], self._said[found.end() :]
        return before

    def is_plain(self) -> None:
        """The terminal is as shells leave it: lines are edited and echoed."""
        self.type("stty -a; echo do''ne\n")
        settings = self.wait(r"done\r")
        assert re.search(r"\sicanon\s", settings), settings
        assert re.search(r"\secho\s", settings), settings
        assert re.search(r"\sisig\s", settings), settings


@contextmanager
def shell() -> Iterator[Shell]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        ["/bin/sh", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=ENVIRONMENT,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- no threads fork
    )
    os.close(theirs)
    try:
        opened = Shell(ours)
        opened.wait(r"\$ ")
        yield opened
    finally:
        process.send_signal(signal.SIGHUP)
        process.kill()
        process.wait()
        os.close(ours)


class Fake:
    """A server that has the fixed summary."""

    def __init__(self) -> None:
        self.body = msgspec.json.encode(SUMMARY)
        self.status = 200
        self.refused = ""
        """A part of paths that are refused, as an older server does."""
        self.paths: list[str] = []
        """That were asked for."""
        self.answers: Final = threading.Event()
        """While it is not set, requests have no answer."""
        self.answers.set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.paths.append(self.path)
                fake.answers.wait()
                body, status = fake.body, fake.status
                if fake.refused and fake.refused in self.path:
                    body, status = b'{"error": "not known here"}', 400
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name there
                pass

        self._handler = Handler
        self._port = free_ports(1)[0]
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None


@contextmanager
def faking() -> Iterator[Fake]:
    """A server that ends with the block."""
    server = Fake()
    server.start()
    try:
        yield server
    finally:
        server.answers.set()
        server.stop()


def without_styles(text: str) -> str:
    """A text of a terminal without the sequences of styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def top(url: str, *words: str) -> list[str]:
    """The words of a command."""
    return ["-m", "corvo", "top", "--server", url, "-d", "500ms", *words]


def corvo(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "corvo", "top", *words],
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )
