"""One real server for all tests of commands in this process, and `corvo` run against it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.client_commands.running import ADMIN, ROOT, Server


class _Ready(msgspec.Struct):
    event: str = ""
    listening: list[str] = []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two shards with an empty directory."""
    directory: Path = tmp_path_factory.mktemp("server")
    command = ["server", "--data-dir", str(directory / "d"), "--bind", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "corvo", *command, "--shards", "2", "--log-format", "json"],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "CORVO_ADMIN_KEY": ADMIN},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        url = ""
        seen = []
        for line in process.stderr:
            seen.append(line)
            said = msgspec.json.decode(line, type=_Ready)
            if said.event == "node.ready":
                url = said.listening[0]
                break
        assert url, seen
        reader = threading.Thread(target=process.stderr.read)  # its pipe must not become full
        reader.start()
        yield Server(url, ADMIN)
    finally:
        process.terminate()
        process.wait()
    reader.join()
    process.stderr.close()
