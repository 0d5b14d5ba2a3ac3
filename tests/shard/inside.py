"""A shard's process in this process, on a machine whose clocks the test has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import trio

from corvo.link import LinkClient
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard.config import ShardConfig
from corvo.shard.driver.disk import Disk, open_parts
from corvo.shard.driver.poison import Poison
from corvo.shard.driver.process import Process, open_clock_note
from corvo.telemetry import Level, Log, Style
from tests.shard.processes import calling, put, wait_until_leading

S: Final = 1_000_000_000
NOON: Final = 1_700_000_000 * S


class Inside:
    """The process, as often as it is started, and its machine."""

    def __init__(self, config: ShardConfig, *, wall_ns: int = NOON) -> None:
        self.config: Final = config
        self.elapsed_ns = 5 * S
        self.wall_ns = wall_ns
        self.logged: Final[list[dict[str, object]]] = []
        self._seen = trio.Event()

    def read(self) -> tuple[int, int]:
        return self.elapsed_ns, self.wall_ns

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LinkClient]:
        """The process, until it ends without being asked to; and a client of it."""
        log = Log(self._put, "shard-0", Style(is_text=False), Level.INFO)
        note = open_clock_note(self.config, Disk())
        parts = open_parts(self.config, Disk(), Random(1), clock_offset_ns=note.read())
        poison = Poison(Path(self.config.data_dir) / "poison")
        process = Process(self.config, parts, poison, note, log, read_clocks=self.read)
        is_ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: process.run(ready=is_ready.set))
            await is_ready.wait()
            async with calling(self.config) as client:
                await wait_until_leading(client)
                yield client
            nursery.cancel_scope.cancel()
        process.close()

    def _put(self, line: bytes) -> None:
        self.logged.append(msgspec.json.decode(line, type=dict[str, object]))
        self._seen.set()

    async def logs(self, event: str) -> dict[str, object]:
        """The first line of an event that is logged."""
        while True:
            found = [line for line in self.logged if line["event"] == event]
            if found:
                return found[0]
            self._seen = trio.Event()
            await self._seen.wait()

    async def run(self, client: LinkClient, seconds: int) -> None:
        """Let time pass, and have the shard do in every second what is due."""
        for _ in range(seconds):
            self.elapsed_ns += S
            self.wall_ns += S
            await put(client, NewJob(queue="other"))
