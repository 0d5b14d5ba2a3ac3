"""`corvo dev`: a server for trying things out, with data that are removed at its end."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from corvo import __version__
from corvo.client.servers import PORT
from corvo.client_commands.options import Parser, natural, positive
from corvo.command_table import COMMANDS

_LOG: Final = "server.log"
_TAIL_BYTES: Final = 4_000


class _Said(msgspec.Struct, frozen=True):
    """A line of the server's log."""

    event: str = ""
    listening: list[str] = []


class _Options(argparse.Namespace):
    port: int | None
    shards: int
    keep: str | None
    log: bool


def main(arguments: Sequence[str]) -> int:
    """`corvo dev`."""
    got = _Options(**vars(_parser().parse_args(arguments)))
    port = got.port if got.port is not None else free_port(PORT)
    if got.keep is not None:
        directory = Path(got.keep)
        directory.mkdir(parents=True, exist_ok=True)
        return _run(directory, port, got)
    with tempfile.TemporaryDirectory(prefix="corvo-dev-") as made:
        return _run(Path(made), port, got)


def _parser() -> Parser:
    summary = COMMANDS["dev"].summary
    parser = Parser(
        "corvo dev", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
    )
    parser.add_argument(
        "--port", type=natural, metavar="N", help=f"port (default: {PORT}, or a free one)"
    )
    parser.add_argument("--shards", type=positive, default=1, metavar="N", help="default: 1")
    parser.add_argument("--keep", metavar="DIR", help="keep the data in this directory")
    parser.add_argument("--log", action="store_true", help="show the log of the server")
    return parser


def free_port(wanted: int) -> int:
    """A port of this machine; the wanted one, if nothing listens there."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            number: int = probe.getsockname()[1]
            return number
    raise AssertionError("there is a free port")


def _run(directory: Path, port: int, got: _Options) -> int:
    """Run the server until it ends; a signal is passed on to it."""
    command = ["server", "--data-dir", str(directory / "data"), "--bind", f"127.0.0.1:{port}"]
    command += ["--shards", str(got.shards), "--log-format", "json"]
    # The node leads a session of its own, so that Ctrl-C reaches it once: from here.
    process = subprocess.Popen(  # noqa: S603 -- this program, with options of its own
        [sys.executable, "-m", "corvo", *command],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=directory,
        env={name: text for name, text in os.environ.items() if not name.startswith("CORVO_")},
        start_new_session=True,
    )
    asked = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        asked.set()
        process.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _follow(process, directory / _LOG, is_shown=got.log)
    finally:
        process.terminate()
        code = process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked.is_set():
        kept = f"the data are in {directory}" if got.keep is not None else "its data are removed"
        sys.stderr.write(f"\nstopped; {kept}\n")
        return 0
    sys.stderr.write(f"error: the server ended with exit code {code}\n")
    sys.stderr.write((directory / _LOG).read_text(encoding="utf-8")[-_TAIL_BYTES:])
    return code or 1


def _follow(process: "subprocess.Popen[bytes]", log: Path, *, is_shown: bool) -> None:
    """Write the log to its file, and the first screen when the server is ready."""
    assert process.stderr is not None
    with log.open("ab", buffering=0) as file:
        for line in process.stderr:
            file.write(line)
            if is_shown:
                sys.stderr.write(line.decode(errors="replace"))
            try:
                said = msgspec.json.decode(line, type=_Said)
            except msgspec.DecodeError:
                continue
            if said.event == "node.ready":
                sys.stdout.write(first_screen(said.listening[0], log))
                sys.stdout.flush()


def first_screen(url: str, log: Path) -> str:
    """The address, and what to type next in another terminal."""
    server = "" if url == f"http://127.0.0.1:{PORT}" else f"  export CORVO_SERVER={url}\n"
    return (
        f"Corvo {__version__} is ready: {url}\n"
        f"HTTP API: {url}/docs   log: {log}\n"
        "\n"
        "In another terminal:\n"
        f"{server}"
        '  corvo enqueue mail \'{"to": "ada"}\'       a job\n'
        "  corvo worker mail --exec cat            a worker that completes it\n"
        "  corvo events -f                         events as they happen\n"
        "  corvo status                            the queues\n"
        "\n"
        "Ctrl-C stops the server.\n"
    )
