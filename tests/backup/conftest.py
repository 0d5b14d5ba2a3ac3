"""A server with jobs of all kinds, a backup of it, and empty servers for what comes back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corvo import cli
from tests.client_commands.nodes import Node
from tests.client_commands.running import Done, Server
from tests.verify.filling import fill


class Corvo:
    """Runs commands in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str | Path, server: Server | None = None) -> Done:
        all_words = [str(word) for word in words]
        if server is not None:
            all_words += ["--server", server.url, "--api-key", server.api_key]
        try:
            code = cli.main(all_words)
        except SystemExit as ended:
            code = int(str(ended.code))
        said = self._capfd.readouterr()
        return Done(code, said.out, said.err)


@pytest.fixture
def corvo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Corvo:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CORVO_SERVER", "CORVO_API_KEY", "CORVO_PROFILE", "CORVO_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    return Corvo(capfd)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs, with jobs of all kinds."""
    node = Node(tmp_path_factory.mktemp("source"))
    try:
        server = node.start()
        fill(server)
        yield server
    finally:
        node.stop()


@pytest.fixture(scope="session")
def backups(source: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one backup of it. Tests copy it."""
    folder = tmp_path_factory.mktemp("backups")
    words = ["backup", "--to", str(folder), "-o", "json"]
    assert cli.main([*words, "--server", source.url, "--api-key", source.api_key]) == 0
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Callable[[int], Server]]:
    """Starts an empty server with so many shards."""
    nodes: list[Node] = []

    def start(shards: int) -> Server:
        directory = tmp_path / f"empty-{len(nodes)}"
        directory.mkdir()
        nodes.append(Node(directory, shards=shards))
        return nodes[-1].start()

    try:
        yield start
    finally:
        for node in nodes:
            node.stop()
