"""The protocol between a process of a node and the process that started it.

A process reads its config as one line of JSON from stdin, writes `ready` to stdout when it can be
reached, and exits when stdin closes, so that it does not outlive its parent. Its exit code tells
whether a restart can help.
"""

import gc
import os
import sys
from typing import Final, NoReturn

import trio

OK: Final = 0
FAILED: Final = 70
"""A failure that a restart can repair."""
DAMAGED: Final = 71
"""Damage, or an entry that ends the process each time: a restart does not help."""
MISCONFIGURED: Final = 72
"""A config that cannot work, for this process or any other."""

LEAVE: Final = b"leave\n"
"""The line that a running parent writes before it closes stdin."""

_GC_AFTER: Final = (50_000, 20, 50)
"""Documents are many and have no cycles: looking for cycles every 700 objects is a waste."""


def collect_seldom() -> None:
    """Look for cyclic garbage as seldom as suits a process that keeps many documents."""
    gc.set_threshold(*_GC_AFTER)


def say_ready() -> None:
    """Tell the parent that this process can be reached.

    All that is there by now stays for good, and is never searched for garbage again.
    """
    gc.collect()
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def wait_for_parent() -> bool:
    """Wait until stdin closes. Returns whether the parent asked for it, and did not just end."""
    said = b""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while data := await stdin.receive_some():
            said = (said + data)[-len(LEAVE) :]
    return said == LEAVE


def exit_now() -> NoReturn:
    """End this process as `kill -9` does: its parent is gone, and waits for nothing."""
    os._exit(FAILED)


def first_of(error: BaseException) -> BaseException:
    """What ended a nursery, out of the groups that nurseries wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def complain(name: str, code: int, what: str, error: BaseException) -> int:
    """Write the reason why this process ends to stderr. Returns the exit code."""
    sys.stderr.write(f"corvo {name}: {what}: {error}\n")
    return code
