"""A node at one address, that may be ended and started again under its clients."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from corvo.plans import Programs
from tests.node.http import Address
from tests.support.nodes import Running, running
from tests.support.ports import free_ports

REAL: Final = Programs()
OK: Final = 0


class House:
    """Where a node lives, whether or not it runs."""

    def __init__(self, directory: Path, port: int, settings: dict[str, str]) -> None:
        self.address: Final[Address] = ("127.0.0.1", port)
        self.data: Final = directory / "data"
        self.settings: Final = {
            "data_dir": str(self.data),
            "bind": f"127.0.0.1:{port}",
            "shards": "2",
            "log_level": "info",
            **settings,
        }

    @property
    def shards(self) -> int:
        """How many it has."""
        return int(self.settings["shards"])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Running]:
        """Run it, from when it is ready."""
        async with running(self.settings, REAL) as node:
            await node.hear("node.ready")
            yield node


async def house_in(directory: Path, **settings: str) -> House:
    """A new house. A setting's dot is written as two underscores."""
    [port] = free_ports(1)
    return House(directory, port, {key.replace("__", "."): settings[key] for key in settings})


def pid_of(node: Running, name: str) -> int:
    """The process that has the name now."""
    return int(str(node.find("process.ready", name=name)[-1]["pid"]))


async def kill(node: Running, name: str) -> None:
    """Kill a process of a node, and wait until it is there again."""
    count = len(node.find("process.ready", name=name))
    os.kill(pid_of(node, name), signal.SIGKILL)
    await node.hear("process.ready", count + 1, name=name)
