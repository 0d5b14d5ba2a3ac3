"""The protocol between a process of a node and the process that started it.

A process reads its config as one line of JSON from stdin, writes `ready` to stdout when it can be
reached, and exits when stdin closes, so that it does not outlive its parent. Its exit code tells
whether a restart can help. What changes while it runs is another line of JSON on its stdin, an
`Update`; what a process has to say to the node is a line of JSON on its stdout, a `Notice`.
"""

import gc
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
import trio

from corvo.protocol.cluster import ClusterMap

OK: Final = 0
FAILED: Final = 70
"""A failure that a restart can repair."""
DAMAGED: Final = 71
"""Damage, or an entry that ends the process each time: a restart does not help."""
MISCONFIGURED: Final = 72
"""A config that cannot work, for this process or any other."""

READY: Final = b"ready"
"""The line of a process that can be reached."""
LEAVE: Final = b"leave\n"
"""The line that a running parent writes before it closes stdin."""

PREPARE: Final = b"prepare\n"
"""The line of a parent that stops this process soon. Until then the process works as before."""

_GC_AFTER: Final = (50_000, 20, 50)
"""Documents are many and have no cycles: looking for cycles every 700 objects is a waste."""
_READ_BYTES: Final = 64 << 10


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What a running process is told: all of it, each time."""

    map: ClusterMap
    sockets: dict[int, str]
    """Of the replicas on this node, by their shards."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process tells its node."""

    map: ClusterMap | None = None  # a newer cluster map
    unneeded: int | None = None
    """A shard whose replica on this node does not belong to the shard any more."""


class Parent:
    """The process that started this one, at the other end of stdin."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor: Final = descriptor
        self._held = b""
        """Read, and not yet used: lines may come together."""

    def read_line(self) -> bytes:
        """The first line, the config; shorter when stdin has closed. Blocks."""
        while b"\n" not in self._held:
            data = os.read(self._descriptor, _READ_BYTES)
            if not data:
                break
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line

    async def wait(
        self,
        updated: Callable[[Update], None] = lambda _: None,
        prepared: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until stdin closes, and pass on updates, and that the end comes soon.

        Returns whether the parent asked for the end, and did not just end.
        """
        is_asked = self._take(b"", updated, prepared)
        async with trio.lowlevel.FdStream(os.dup(self._descriptor)) as stdin:
            while data := await stdin.receive_some(_READ_BYTES):
                is_asked = self._take(data, updated, prepared) or is_asked
        return is_asked

    def _take(
        self, data: bytes, updated: Callable[[Update], None], prepared: Callable[[], None]
    ) -> bool:
        """Use the lines that are whole; returns whether one was `LEAVE`."""
        *lines, self._held = (self._held + data).split(b"\n")
        is_asked = False
        for line in lines:
            if line + b"\n" == LEAVE:
                is_asked = True
            elif line + b"\n" == PREPARE:
                prepared()
            else:
                updated(_decode_update(line))
        return is_asked


_decode_update: Final = msgspec.json.Decoder(Update).decode


def collect_seldom() -> None:
    """Look for cyclic garbage as seldom as suits a process that keeps many documents."""
    gc.set_threshold(*_GC_AFTER)


def say_ready() -> None:
    """Tell the parent that this process can be reached.

    All that is there by now stays for good, and is never searched for garbage again.
    """
    gc.collect()
    gc.freeze()
    _say(READY)


def tell(notice: Notice) -> None:
    """Tell the node something."""
    _say(msgspec.json.encode(notice))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


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
