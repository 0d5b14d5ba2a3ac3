"""A whole node to be measured: `corvo server` as users start it, and what its processes use."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from bench.shard_process import processor_seconds

SHARDS: Final = 4
LOG: Final = "server.log"
START_S_MAX: Final = 60.0
LEAVE_S_MAX: Final = 30.0
_LOOK_S: Final = 0.05
_ROOT: Final = Path(__file__).parents[1]


class Used(NamedTuple):
    """Seconds of a processor."""

    router: float
    shards: float
    client: float
    """Of this process, and of those of its children that have ended."""

    def since(self, earlier: "Used") -> "Used":
        """What came on top of it."""
        return Used(*(now - then for now, then in zip(self, earlier, strict=True)))


class Server(NamedTuple):
    """A node that serves."""

    port: int
    router: int
    """A process."""
    shards: tuple[int, ...]
    """By number; only those of which the node has a replica."""
    mirror: int = 0
    """0 when it has none."""
    others: tuple["Server", ...] = ()
    """The other nodes of its cluster."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def used(self) -> Used:
        """What the processes of all nodes and ours have had so far."""
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        nodes = (self, *self.others)
        return Used(
            sum(processor_seconds(node.router) for node in nodes),
            sum(processor_seconds(shard) for node in nodes for shard in node.shards),
            sum(use.ru_utime + use.ru_stime for use in ours),
        )


class _Event(msgspec.Struct):
    """A line of the node's log, as far as it matters here."""

    event: str
    name: str = ""
    pid: int = 0
    listening: list[str] = []


@contextmanager
def serving(directory: Path, *more: str) -> Iterator[Server]:
    """A new node on a free port, with its data in `directory`; it ends with the block.

    `more` are flags of its own.
    """
    command = [sys.executable, "-m", "corvo", "server", "--bind", "127.0.0.1:0"]
    flags = ["--data-dir", "data", "--shards", str(SHARDS), "--durability", "sync"]
    # No setting of whoever measures: neither a variable, nor a corvo.toml that lies about here.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORVO_")}
    said = directory / LOG
    with said.open("wb") as log:
        process = subprocess.Popen(
            [*command, *flags, "--log-format", "json", *more],
            cwd=directory,
            env=kept | {"PYTHONPATH": str(_ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield _once_ready(process, said)
    finally:
        process.terminate()
        code = process.wait(LEAVE_S_MAX)
    assert code == 0, f"the node left with {code}"


def _once_ready(process: "subprocess.Popen[bytes]", said: Path) -> Server:
    deadline = monotonic() + START_S_MAX
    while (server := server_of(said)) is None:
        words = said.read_text()
        assert process.poll() is None, f"the node has ended: {words}"
        assert monotonic() < deadline, f"the node does not begin: {words}"
        sleep(_LOOK_S)
    return server


def server_of(said: Path) -> Server | None:
    """The node that has written this log, with the processes that it has now; once it is ready."""
    decode = msgspec.json.Decoder(_Event).decode
    whole = said.read_bytes().rpartition(b"\n")[0]
    events = [decode(line) for line in whole.splitlines()]
    ready = [event for event in events if event.event == "node.ready"]
    if not ready:
        return None
    pids = {event.name: event.pid for event in events if event.event == "process.ready"}
    processes = {name: pid for name, pid in pids.items() if Path(f"/proc/{pid}").exists()}
    port = urlsplit(ready[0].listening[0]).port
    assert port is not None
    names = [f"shard-{number}" for number in range(SHARDS)]
    shards = tuple(processes[name] for name in names if name in processes)
    return Server(port, processes["router"], shards, processes.get("mirror", 0))
