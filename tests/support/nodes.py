"""Whole nodes for tests: real processes, with stand-ins for some of them, that say what they do.

`python -m tests.support.nodes TOLD` is the node: its settings and programs come as JSON.
"""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo import node
from corvo.config import Given, resolve
from corvo.plans import Programs
from tests.support import standins

ROOT: Final = Path(__file__).parents[2]


class Told(msgspec.Struct):
    """What a node for tests is told."""

    settings: dict[str, str]
    programs: Programs


class Running:
    """A node that was started, and what it has logged."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.events: list[dict[str, object]] = []
        self.texts: list[str] = []
        """Lines that are not of the node's own log, such as last words of a shard."""
        self.silent: Final = trio.Event()
        """Nobody who could write to its stderr is left: neither the node nor a process of it."""
        self._heard = trio.Event()

    def story(self) -> str:
        """All that it has said, whole: pytest shortens the texts of other objects."""
        return "\n".join(map(str, [*self.events, *self.texts]))

    async def listen(self) -> None:
        """Read the log to its end."""
        assert self.process.stderr is not None
        rest = b""
        while data := await self.process.stderr.receive_some():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(line)
            self._ring()
        self.silent.set()
        self._ring()

    async def drain(self) -> None:
        """Read what is left of the log, which is not kept, after `listen` was cancelled."""
        assert self.process.stderr is not None
        while await self.process.stderr.receive_some():
            pass
        self.silent.set()

    def _take(self, line: bytes) -> None:
        try:
            self.events.append(msgspec.json.decode(line, type=dict[str, object]))
        except msgspec.DecodeError:
            self.texts.append(line.decode())

    def _ring(self) -> None:
        self._heard.set()
        self._heard = trio.Event()

    def find(self, event: str, **fields: object) -> list[dict[str, object]]:
        """The events of a kind so far."""
        return [
            one
            for one in self.events
            if one["event"] == event and all(one.get(name) == fields[name] for name in fields)
        ]

    async def hear(self, event: str, count: int = 1, **fields: object) -> dict[str, object]:
        """Wait until an event was logged, so many times; the last of them."""
        while len(found := self.find(event, **fields)) < count:
            assert not self.silent.is_set(), f"no {event} {fields}: {self.story()}"
            await self._heard.wait()
        return found[count - 1]

    async def hear_any(self, *events: str) -> dict[str, object]:
        """Wait until one of these events was logged; the first of them."""
        while not (found := [one for event in events for one in self.find(event)]):
            assert not self.silent.is_set(), f"none of {events}: {self.story()}"
            await self._heard.wait()
        return found[0]

    async def read(self, words: str, count: int = 1) -> None:
        """Wait until somebody has said the words outside of the log, so many times."""
        while sum(words in line for line in self.texts) < count:
            assert not self.silent.is_set(), f"no {words}: {self.story()}"
            await self._heard.wait()

    async def url(self) -> tuple[str, int]:
        """Where it listens, once it is ready."""
        listening = (await self.hear("node.ready"))["listening"]
        assert isinstance(listening, list)
        host, _, port = str(listening[0]).removeprefix("http://").rpartition(":")
        return host, int(port)

    def send(self, number: signal.Signals) -> None:
        """Send the node a signal."""
        self.process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; the exit code, once all of the node is gone."""
        self.send(number)
        return await self.gone()

    async def gone(self) -> int:
        """The exit code, once all of the node is gone."""
        await self.silent.wait()
        return await self.process.wait()


@asynccontextmanager
async def running(
    settings: dict[str, str],
    programs: Programs,
    *,
    prefix: Sequence[str] = (),
    entry: Sequence[str] = ("tests.support.nodes",),
    **environment: str,
) -> AsyncIterator[Running]:
    """A node. In every case it ends with the block, and its processes with it.

    `prefix` is a command that becomes the node's; `entry` is a module with its first arguments.
    """
    told = Told({"bind": "127.0.0.1:0", "log_level": "debug", **settings}, programs)
    process = await trio.lowlevel.open_process(
        [*prefix, sys.executable, "-m", *entry, msgspec.json.encode(told).decode()],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    started = Running(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(started.listen)
            yield started
            process.kill()
            await started.silent.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            # The processes of the node have its stderr, and leave when their stdin closes: until
            # then they write into the data directory, which may be about to be removed.
            if not started.silent.is_set():
                await started.drain()
            await process.wait()


def stand_ins(
    journal: Path, *, router: str = "serve", shard: str = "serve", mirror: str = "serve"
) -> Programs:
    """Programs that write down what befalls them."""
    return Programs(
        router=standins.command("router", journal, router),
        shard=standins.command("shard", journal, shard),
        mirror=standins.command("mirror", journal, mirror),
    )


def main() -> int:
    told = msgspec.json.decode(sys.argv[1], type=Told)
    given = [Given(key, value, "the test") for key, value in told.settings.items()]
    return node.main(resolve(given), told.programs)


if __name__ == "__main__":
    sys.exit(main())
