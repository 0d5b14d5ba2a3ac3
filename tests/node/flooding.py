"""Thousands of clients who mean no good, and what two who do notice of them."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from tests.node.gauges import cpu_s
from tests.node.http import Address, Client, Lost
from tests.node.nodes import house_in, pid_of
from tests.support.nodes import ROOT

_BREATH_S = 0.005


class Seen(msgspec.Struct):
    """What the good clients saw."""

    kept_s: list[float] = []
    """How long an enqueue took on a connection that is kept."""
    fresh_s: list[float] = []
    """The same with a connection of its own, made for it."""
    refused: dict[str, int] = {}
    came: int = 0
    """How often one of the crowd was let in."""
    router_cpu: float = 0.0
    """Of a core."""


class Flooding:
    """One run."""

    def __init__(self, address: Address) -> None:
        self.seen = Seen()
        self._address = address

    async def run(self, seconds: float, count: int) -> None:
        """Be two good clients for so long, and for so many questions at least."""
        began = trio.current_time()
        kept, seen = Client(self._address), self.seen
        fewest = 0
        while trio.current_time() < began + seconds or fewest < count:
            await self._ask(kept, seen.kept_s)
            fresh = Client(self._address)
            await self._ask(fresh, seen.fresh_s)
            fresh.close()
            fewest += 1
            await trio.sleep(_BREATH_S)
        kept.close()

    async def _ask(self, client: Client, took_s: list[float]) -> None:
        began = trio.current_time()
        try:
            answer = await client.ask("POST", "/api/v1/enqueue", b'{"queue": "good"}')
        except Lost as lost:
            self._refuse(f"lost: {lost}")
            return
        if answer.status == 201:
            took_s.append(trio.current_time() - began)
        else:
            self._refuse(f"{answer.status} {answer.body[:60]!r}")

    def _refuse(self, what: str) -> None:
        self.seen.refused[what] = self.seen.refused.get(what, 0) + 1


@asynccontextmanager
async def crowd(kind: str, count: int, port: int) -> AsyncIterator[list[int]]:
    """So many bad clients, from when all are there. Behind the block, how often one came."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.node.flood", kind, str(count), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    came: list[int] = []
    try:
        said = bytes(await process.stdout.receive_some())
        assert said == b"full\n", said
        yield came
        await process.stdin.aclose()
        said = bytes(await process.stdout.receive_some())
        came.append(int(said.split()[1]))
        await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


async def run(
    directory: Path, kind: str, *, count: int, seconds: float, questions: int = 0, room: int = 100
) -> Seen:
    """Flood a node that has room for so many more than come."""
    house = await house_in(directory, limits__connections_max=str(count + room))
    flooding = Flooding(house.address)
    async with house.open() as node:
        async with crowd(kind, count, house.address[1]) as came:
            router, began = pid_of(node, "router"), trio.current_time()
            before = cpu_s(router)
            await flooding.run(seconds, questions)
            taken = cpu_s(router) - before
            flooding.seen.router_cpu = taken / (trio.current_time() - began)
        flooding.seen.came = came[0]
        code = await node.end()
    assert code == 0, code
    return flooding.seen
