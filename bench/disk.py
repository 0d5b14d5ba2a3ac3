"""The disk by itself, beside whatever else is being measured.

A server whose every answer waits for a sync cannot be quicker than its disk, and disks stand still
at times for reasons of their own: most of all those that many machines share. So what a stall was
is told by a file of ours, to which nobody else has anything to write.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

_BLOCK: Final = b"\0" * 4_096
_BLOCKS: Final = 64
_EVERY_S: Final = 0.01


@contextmanager
def probing(directory: Path) -> Iterator[list[float]]:
    """While the block runs: the seconds that each sync of one block took, 100 a second at most."""
    took: list[float] = []
    is_over = threading.Event()
    path = directory / "probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # All of it is there before, so that a sync is a write to the disk and nothing else.
        os.write(descriptor, _BLOCK * _BLOCKS)
        os.fsync(descriptor)
        thread = threading.Thread(target=_probe, args=(descriptor, took, is_over))
        thread.start()
        try:
            yield took
        finally:
            is_over.set()
            thread.join()
    finally:
        os.close(descriptor)
        path.unlink()


def _probe(descriptor: int, took: list[float], is_over: threading.Event) -> None:
    number = 0
    while not is_over.wait(_EVERY_S):
        number = (number + 1) % _BLOCKS
        begun = perf_counter()
        os.pwrite(descriptor, _BLOCK, number * len(_BLOCK))
        os.fdatasync(descriptor)
        took.append(perf_counter() - begun)
