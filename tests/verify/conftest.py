"""One server that has done work of all kinds: while it runs, and its directory after its stop."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from corvo.client import jobs
from corvo.client.calls import Client
from tests.client_commands.nodes import Node
from tests.client_commands.running import Server
from tests.verify.filling import fill


class Work(NamedTuple):
    """A server with its work."""

    server: Server
    root: Path


def catch_up(server: Server) -> None:
    """Wait until the mirror has everything."""
    with Client([server.url], api_key=server.api_key) as client:
        assert list(jobs.pages(client, {}, is_patient=lambda: True))


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """A server that runs."""
    directory = tmp_path_factory.mktemp("running")
    node = Node(directory)
    try:
        server = node.start()
        fill(server)
        catch_up(server)
        yield Work(server, directory / "d")
    finally:
        node.stop()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that was stopped. Tests copy it."""
    directory = tmp_path_factory.mktemp("stopped")
    node = Node(directory, "shard.checkpoint_entries=8", "shard.keep_entries=4")
    try:
        server = node.start()
        fill(server)
        catch_up(server)
    finally:
        node.stop()
    # A process that takes too long to stop is killed, and leaves its mark.
    while list(directory.glob("d/shard-*/state/running")):
        node.start()
        node.stop()
    return directory / "d"


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "d"))
