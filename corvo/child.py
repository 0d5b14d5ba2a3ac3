"""What every process of a node has in common: it was started by somebody, and leaves with them.

It is told what it is by one line of JSON on stdin, says `ready` on stdout once it can be reached,
and leaves when stdin closes, so that nothing outlives its parent. Its exit code says what a restart
is good for.
"""

import os
import sys
from typing import Final, NoReturn

import trio

OK: Final = 0
FAILED: Final = 70
"""Something failed that a restart may mend."""
DAMAGED: Final = 71
"""Damage, or an entry that ends the process each time: a restart does not mend it."""
MISCONFIGURED: Final = 72
"""A config that cannot work, for this process or any other."""

LEAVE: Final = b"leave\n"
"""What is said to a process before its stdin closes, by a parent that is still there."""

GC_AFTER: Final = 50_000
"""Documents are many and have no cycles: looking for cycles every 700 objects is a waste."""


def say_ready() -> None:
    """Tell whoever started this process that it can be reached."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def wait_for_parent() -> bool:
    """Return when whoever started this process is gone, or wants it gone: whether it was asked."""
    said = b""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while data := await stdin.receive_some():
            said = (said + data)[-len(LEAVE) :]
    return said == LEAVE


def vanish() -> NoReturn:
    """End this process as `kill -9` does, for want of anybody who could wait for anything here."""
    os._exit(FAILED)


def first_of(error: BaseException) -> BaseException:
    """What ended a nursery, out of the groups that nurseries wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def complain(name: str, code: int, what: str, error: BaseException) -> int:
    """Say why this process ends, for people and for whoever started it. Returns the exit code."""
    sys.stderr.write(f"corvo {name}: {what}: {error}\n")
    return code
