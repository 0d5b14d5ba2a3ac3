"""`corvo` as a program against a real server: in a pipe, and on a terminal."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

ADMIN: Final = "rook-and-raven"
"""API key of the server for tests."""
ROOT: Final = Path(__file__).parents[2]
T = TypeVar("T")


class Done(msgspec.Struct, frozen=True):
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self, kind: type[T]) -> T:
        """Its output as one JSON document."""
        return msgspec.json.decode(self.out, type=kind)

    def lines(self, kind: type[T]) -> list[T]:
        """Its output as JSON lines."""
        return [msgspec.json.decode(line, type=kind) for line in self.out.splitlines()]


class Terminal:
    """A shell command on a terminal of its own, on which keys can be typed."""

    def __init__(self, command: str, environment: dict[str, str]) -> None:
        self._ours, theirs = os.openpty()
        # With a terminal of its own, Ctrl-C reaches every command of the pipe.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "sh", "-c", command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm"},
        )
        os.close(theirs)
        self.said = ""

    def read_to(self, words: str) -> None:
        """Wait until the terminal has shown some words."""
        while words not in self.said:
            data = os.read(self._ours, 1 << 16)
            assert data, self.said
            self.said += data.decode().replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        """Type keys, such as byte 3 for Ctrl-C."""
        os.write(self._ours, keys)

    def read_all(self) -> int:
        """Wait for the end of the command; its exit code."""
        with suppress(OSError):  # Linux reports the end of a terminal as an error
            while data := os.read(self._ours, 1 << 16):
                self.said += data.decode().replace("\r\n", "\n")
        return self._process.wait()

    def close(self) -> None:
        """End the command, if it still runs."""
        os.close(self._ours)  # which hangs up
        self._process.wait()


class Server:
    """A server that runs, and the command line against it."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self.url: Final = url
        self.api_key: Final = api_key

    def environment(self, **more: str) -> dict[str, str]:
        """Of a command."""
        return {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            "CORVO_SERVER": self.url,
            "CORVO_API_KEY": self.api_key,
            "XDG_CONFIG_HOME": "/nowhere",
            **more,
        }

    def corvo(self, *words: str, given: str | None = None, **environment: str) -> Done:
        """Run a command in a pipe."""
        done = subprocess.run(
            [sys.executable, "-m", "corvo", *words],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            env=self.environment(**environment),
            check=False,
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a command in a pipe, to be ended by the test."""
        return subprocess.Popen(
            [sys.executable, "-m", "corvo", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(**environment),
            text=True,
        )

    def on_terminal(self, *words: str, typed: bytes = b"", **environment: str) -> Done:
        """Run a command whose stdin, stdout and stderr are a terminal; all it wrote is in `out`."""
        ours, theirs = os.openpty()
        os.write(ours, typed)
        process = subprocess.Popen(
            [sys.executable, "-m", "corvo", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self.environment(TERM="xterm", **environment),
        )
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 1 << 16):
                said += data
        except OSError:
            pass  # Linux reports the end of a terminal as an error
        finally:
            os.close(ours)
        return Done(process.wait(), said.decode().replace("\r\n", "\n"), "")

    def enqueue(self, queue: str, count: int = 1, *flags: str) -> list[str]:
        """Enqueue jobs whose payloads are numbers; their ids."""
        payloads = "".join(f"{number}\n" for number in range(count))
        done = self.corvo("enqueue", queue, "-", "-o", "id", *flags, given=payloads)
        assert done.code == 0, done.err
        return done.out.split()
