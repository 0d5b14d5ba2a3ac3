"""A node of a run: the processes of `corvo server`, which are started, signalled and watched."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from chaos.cluster.disks import Disk
from chaos.http import Site

ROOT: Final = Path(__file__).parents[2]
STARTUP: Final = Path(__file__).parent / "startup"
NODE: Final = "node"
"""The name of the process that starts the others."""
_LOOK_S: Final = 0.02


class _Ready(msgspec.Struct):
    """The line of the log about a process that is ready."""

    event: str = ""
    name: str = ""
    pid: int = 0


class Node:
    """One node, whether or not it runs."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        site: Site,
        peer: str,
        prefix: tuple[str, ...] = (),
        disk: Disk | None = None,
    ) -> None:
        """`folder` is on the disk of the node; its logs and its clock are beside it."""
        self.name: Final = name
        self.site: Final = site
        self.peer: Final = peer
        self.data: Final = folder / "data"
        self.disk: Final = disk
        self.log: Final = folder.with_suffix(".log")
        self.clock: Final = folder.with_suffix(".clock")
        self.syncs: Final = folder.with_suffix(".syncs")
        self.settings: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.is_member = False
        """Whether the node belongs to the cluster; a removed one, or one in reserve, does not."""
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        self._pids: dict[str, int] = {}
        self._read_to = 0
        self.started_at = 0
        """Where in its log the newest start begins."""

    @property
    def is_running(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the processes, and wait for none of them."""
        assert not self.is_running, f"{self.name} runs"
        self.set_clock(self.clock_ahead_s)
        self._pids = {}
        with self.log.open("ab") as log:
            self._read_to = self.started_at = log.seek(0, os.SEEK_END)
            # In this thread: the node ends with the thread that started it.
            self._process = subprocess.Popen(
                [*_dies_with_parent(), *self._prefix, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=self._environment(),
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        words = [sys.executable, "-P", "-m", "corvo", "server"]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join((str(STARTUP), str(ROOT))),
            "WRONG_CLOCK": str(self.clock),
            **self.environment,
        }

    # Its processes.

    def pids(self) -> dict[str, int]:
        """The processes that run, by names such as `node`, `router`, `mirror` and `shard-0`."""
        if self._process is None:
            return {}
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                self._note(line)
        found = {NODE: self._process.pid} if self.is_running else {}
        found |= {name: pid for name, pid in self._pids.items() if _is_ours(pid)}
        return found

    def _note(self, line: bytes) -> None:
        if b"process.ready" not in line:
            return
        try:
            said = msgspec.json.decode(line, type=_Ready)
        except msgspec.DecodeError:
            return
        if said.event == "process.ready":
            self._pids[said.name] = said.pid

    def _nameless(self) -> list[int]:
        """All processes of the node by their environment.

        A process that starts has no name yet, and holds the node's sockets and locks all the same.
        """
        mark = b"\0WRONG_CLOCK=%s\0" % os.fsencode(self.clock)
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    variables = (path / "environ").read_bytes()
                except OSError:
                    continue  # it has just ended, or is of another user
                if mark in b"\0" + variables + b"\0":
                    found.append(int(path.name))
        return found

    def send(self, number: signal.Signals, names: set[str] | None = None) -> dict[str, int]:
        """Send a signal to processes, by default to all; those that got it."""
        sent = {}
        for name, pid in self.pids().items():
            if names is None or name in names:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
                sent[name] = pid
        return sent

    async def gone(self) -> None:
        """Wait until none of its processes runs."""
        while self.pids() or self._nameless():  # noqa: ASYNC110 -- processes that are not children of this one
            await trio.sleep(_LOOK_S)

    async def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to all processes, or SIGTERM to the first, and wait for their end."""
        # A stopped process takes no other signal than SIGKILL before it continues.
        self.send(signal.SIGCONT)
        self.send(number, {NODE} if number is signal.SIGTERM else None)
        if number is signal.SIGKILL:
            for pid in self._nameless():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        await self.gone()

    def log_bytes(self) -> int:
        """The size of its log: a place to search from."""
        return self.log.stat().st_size if self.log.exists() else 0

    def has_logged(self, text: bytes, start: int) -> bool:
        """Whether its log has a text after a place."""
        with self.log.open("rb") as log:
            log.seek(start)
            return text in log.read()

    # Its clock.

    clock_ahead_s = 0.0

    def set_clock(self, ahead_s: float) -> None:
        """Set its wall clock, whether or not it runs."""
        self.clock_ahead_s = ahead_s
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(ahead_s))
        fresh.rename(self.clock)


def _dies_with_parent() -> tuple[str, ...]:
    """The words before a command that ends it with this process, however that one ends."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL") if found else ()


def _is_ours(pid: int) -> bool:
    """Whether a process runs and is one of a node: the number may have gone to another."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"corvo" in words
