"""A real server for tests of commands, which can be killed and started again at its address."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from tests.client_commands.running import ADMIN, ROOT, Server
from tests.support.ports import free_ports


class _Logged(msgspec.Struct):
    event: str = ""
    listening: list[str] = []


class Node:
    """A server with a directory of its own."""

    def __init__(self, directory: Path, *settings: str, shards: int = 2) -> None:
        self._directory: Final = directory
        self._shards: Final = shards
        self._settings: Final = settings
        self._bind = f"127.0.0.1:{free_ports(1)[0]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread()

    def start(self) -> Server:
        """Start it; returns once it is ready. It keeps its address from the first start on."""
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "corvo",
                    "server",
                    "--data-dir",
                    str(self._directory / "d"),
                ),
                *("--bind", self._bind, "--shards", str(self._shards), "--log-format", "json"),
                *(word for setting in self._settings for word in ("--set", setting)),
            ],
            cwd=self._directory,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "CORVO_ADMIN_KEY": ADMIN},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._process = process
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            logged = msgspec.json.decode(line, type=_Logged)
            if logged.event == "node.ready":
                url = logged.listening[0]
                break
        else:
            raise AssertionError(seen)
        self._bind = url.removeprefix("http://")
        self._reader = threading.Thread(target=process.stderr.read)  # its pipe must not become full
        self._reader.start()
        return Server(url, ADMIN)

    def kill(self) -> None:
        """Kill all of its processes at the same time."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        self._process.wait()
        self._reader.join()  # the last process that could write to the log is gone
        self._process.stderr.close()
