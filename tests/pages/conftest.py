"""One server for all pages of this process, without an API key; the programs in Go."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.pages.languages import EXAMPLES, build_go
from tests.support.pages import ROOT


class _Ready(msgspec.Struct):
    event: str = ""
    listening: list[str] = []


@pytest.fixture(scope="session")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Port of a server of two shards."""
    directory = tmp_path_factory.mktemp("s")
    command = ["server", "--data-dir", str(directory / "d"), "--bind", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "corvo", *command, "--shards", "2", "--log-format", "json"],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    found = ""
    log: list[bytes] = []
    while not found:
        line = process.stderr.readline()
        assert line, log
        log.append(line)
        said = msgspec.json.decode(line, type=_Ready)
        found = said.listening[0].rpartition(":")[2] if said.event == "node.ready" else ""
    reader = threading.Thread(target=process.stderr.read)  # its pipe must not become full
    reader.start()
    yield found
    process.terminate()
    process.wait()
    reader.join()
    process.stderr.close()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs in Go. The first build takes long, so no time limit of a test includes it."""
    folder: Path = tmp_path_factory.mktemp("go")
    build_go(EXAMPLES / "go", folder)
    return folder
