"""A small file that is written and synced at an even pace, beside a cluster on the same disk.

`python -m tests.cluster.syncing FILE PERIOD` does it until its stdin closes, and prints the times.
It is a process of its own, so that it waits for the disk alone.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import trio

from tests.cluster.figures import Times

PERIOD_S: Final = 0.02
_BYTES: Final = b"\0" * 4096


class BareSyncs:
    """The syncs, once the block of `bare_syncs` was left."""

    def __init__(self) -> None:
        self.times = Times()


@asynccontextmanager
async def bare_syncs(directory: Path, period_s: float = PERIOD_S) -> AsyncIterator[BareSyncs]:
    """Sync a file in the directory until the block is left."""
    syncs = BareSyncs()
    words = [sys.executable, "-m", "tests.cluster.syncing", str(directory / "bare"), str(period_s)]
    process = await trio.lowlevel.open_process(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield syncs
        await process.stdin.aclose()
        told = b"".join([data async for data in process.stdout])
        syncs.times.taken = msgspec.json.decode(told, type=list[tuple[float, float]])
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def sync_until_closed(place: Path, period_s: float) -> list[tuple[float, float]]:
    """Append to a file and sync it, until stdin closes; when each sync began, and its seconds."""
    taken: list[tuple[float, float]] = []

    async def keep_syncing() -> None:
        with place.open("wb", buffering=0) as opened:
            while True:
                began = monotonic()
                opened.write(_BYTES)
                os.fdatasync(opened.fileno())
                taken.append((began, monotonic() - began))
                await trio.sleep(period_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_syncing)
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as parent:
            while await parent.receive_some():
                pass
        nursery.cancel_scope.cancel()
    return taken


if __name__ == "__main__":
    told = trio.run(sync_until_closed, Path(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.buffer.write(msgspec.json.encode(told))
