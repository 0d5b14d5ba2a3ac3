"""One real server for all tests of commands in this process, and `corvo` run against it."""

from collections.abc import Iterator

import pytest

from tests.client_commands.nodes import Node
from tests.client_commands.running import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two shards with an empty directory."""
    node = Node(tmp_path_factory.mktemp("server"))
    try:
        yield node.start()
    finally:
        node.stop()
