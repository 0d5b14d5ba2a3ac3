"""`corvo top` as a program: in a pseudo-terminal with a shell, and with pipes."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import pytest

from bench.server import Server, serving
from corvo.client.calls import Client
from corvo.tui import plain
from tests.tui.documents import SUMMARY

ROOT: Final = Path(__file__).parents[2]
ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HANGS_S: Final = 60.0
"""Not a bound of how fast something is: a test that waits so long would wait for ever."""
_ENVIRONMENT: Final = {
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
        self.type(" ".join([sys.executable, *words]) + '; echo "rc""=$?"\n')

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
        env=_ENVIRONMENT,
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
        body = msgspec.json.encode(SUMMARY)
        self.answers: Final = threading.Event()
        """While it is not set, requests have no answer."""
        self.answers.set()
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answers.wait()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name there
                pass

        self._handler = Handler
        self._port = 0
        self._server: HTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = HTTPServer(("127.0.0.1", self._port), self._handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    server.start()
    yield server
    server.answers.set()
    server.stop()


def top(url: str, *words: str) -> list[str]:
    return ["-m", "corvo", "top", "--server", url, "-d", "500ms", *words]


# On a terminal.


def test_a_node_is_shown_and_changed_with_keys(tmp_path: Path) -> None:
    def prepare(server: Server) -> None:
        jobs = [{"queue": "mail", "payload": {}}, {"queue": "sms", "payload": {}}]
        with Client([server.url]) as client:
            client.change("POST", "/api/v1/enqueue/batch", {"jobs": jobs * 3})

    with serving(tmp_path) as server, shell() as terminal:
        prepare(server)
        terminal.run(*top(server.url))
        assert ENTER in terminal.wait(r"mail .*idle +3 ")
        terminal.type("2")
        terminal.wait("no worker has sent a request")
        terminal.type("3")
        terminal.wait(r"up\x1b.* node 1")
        terminal.type("1")
        terminal.wait(r">mail")
        terminal.type("p")
        terminal.wait(r"Pause mail\? 3 pending stay, 0 active finish\.")
        terminal.wait(r"\[y/N\]")
        terminal.type("y")
        terminal.wait("mail is paused")
        terminal.wait(r"mail .*‖ paused")
        terminal.type("\x1b[B\r")
        terminal.wait("> sms")
        terminal.type("\x1b")
        terminal.wait(r">sms")
        terminal.resize(50, 10)
        terminal.wait(r"pend 6 act 0 dead 0 in")
        terminal.resize(120, 40)
        terminal.wait("failing now")
        terminal.type("q")
        terminal.wait(re.escape(LEAVE))
        terminal.wait("rc=0")
        terminal.is_plain()


def test_a_suspended_program_leaves_the_terminal_and_comes_back(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("emails.send")
        terminal.type("\x1a")
        terminal.wait(re.escape(LEAVE))
        terminal.wait(r"\$ ")
        terminal.is_plain()
        terminal.type("fg\n")
        terminal.wait(re.escape(ENTER))
        terminal.wait("emails.send")
        terminal.type("j")
        terminal.wait(r">emails.bulk")
        terminal.type("q")
        terminal.wait("\\$ ")
        terminal.is_plain()


@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("q", 0)])
def test_the_end_restores_the_terminal_once(typed: str, code: int, fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("emails.send")
        terminal.type(typed)
        until = terminal.wait(f"rc={code}")
        assert until.count(LEAVE) == 1
        assert "Traceback" not in until
        terminal.is_plain()


def test_a_crash_restores_the_terminal_before_it_is_shown(fake: Fake) -> None:
    code = (
        "import corvo.cli, corvo.tui.command as c; c.frame = lambda *_: 1 / 0;"
        f"corvo.cli.main(['top', '--server', '{fake.url}'])"
    )
    with shell() as terminal:
        terminal.run("-c", f'"{code}"')
        until = terminal.wait("rc=1")
        assert until.index(LEAVE) < until.index("ZeroDivisionError")
        terminal.is_plain()


def test_a_server_that_is_gone_is_reported_and_one_that_is_back_is_shown(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("live")
        fake.stop()
        terminal.wait("no answer for .*, retrying: no answer from http")
        terminal.type("j")
        terminal.wait(">emails.bulk")
        fake.start()
        terminal.wait("live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_a_server_that_does_not_answer_stops_no_keys_and_is_reported(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("live")
        fake.answers.clear()
        terminal.wait("no answer for .*, retrying: .* has not answered yet")
        terminal.type("j")
        terminal.wait(">emails.bulk")
        fake.answers.set()
        terminal.wait("live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_a_count_ends_the_program(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url, "-n", "2"))
        terminal.wait("rc=0")


def test_colours_can_be_switched_off(fake: Fake) -> None:
    coloured = re.compile("\x1b\\[[0-9;]*3[0-7]m")
    with shell() as terminal:
        terminal.run(*top(fake.url, "-n", "1"))
        assert coloured.search(terminal.wait("rc=0"))
        for words in (["--no-color"], ["--no-color", "--ascii"]):
            terminal.run(*top(fake.url, "-n", "1", *words))
            shown = terminal.wait("rc=0")
            assert not coloured.search(shown)
            assert ("--ascii" not in words) or shown.partition(ENTER)[2].isascii()


# With pipes.


def corvo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "corvo", "top", *words],
        stdin=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )


def test_without_a_terminal_all_rows_are_printed_once(fake: Fake) -> None:
    done = corvo("--server", fake.url, "--once=instant")

    first, titles, *rows = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith("corvo 2026-11-18T10:42:07.25Z nodes=2/3 can_lose=0 shards=2/3")
    assert titles.split() == [
        *("QUEUE", "STATE", "PENDING", "ACTIVE", "SCHED", "RETRY", "HELD", "DEAD", "OLDEST")
    ]
    assert len(rows) == len(SUMMARY.queues)
    assert "1234567" in rows[0]
    assert "\x1b" not in done.stdout


def test_rows_can_be_filtered_and_sorted(fake: Fake) -> None:
    done = corvo("--server", fake.url, "--once=instant", "--sort", "name:desc", "emails")

    assert [row.split()[0] for row in done.stdout.splitlines()[2:]] == [
        "emails.send",
        "emails.bulk",
    ]


def test_json_is_a_document_and_jsonl_one_on_each_line(fake: Fake) -> None:
    once = corvo("--server", fake.url, "--json", "--once=instant")
    stream = corvo("--server", fake.url, "--jsonl", "-d", "1ms", "-n", "3")

    assert len(once.stdout.splitlines()) == 1
    document = msgspec.json.decode(once.stdout, type=plain.Document)
    assert document.summary == SUMMARY
    assert document.rates.enqueued is None
    assert len(stream.stdout.splitlines()) == 3


@pytest.mark.parametrize("words", [["--once"], ["--json"], ["--jsonl"], []])
def test_a_server_that_cannot_be_reached_ends_it_with_6(words: list[str]) -> None:
    done = corvo("--server", "127.0.0.1:1", *words)

    assert done.returncode == 6
    assert "UNREACHABLE" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words", [["--sort", "nothing"], ["--sort", "name:up"], ["--view", "x"], ["-n", "-1"]]
)
def test_invalid_options_are_refused(words: list[str]) -> None:
    assert corvo("--server", "127.0.0.1:1", *words).returncode == 2
