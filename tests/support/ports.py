"""TCP ports on loopback for servers that are told where to listen, and that may start again there.

A port that the kernel has chosen is free only at that moment: before the server listens, or while
it is stopped, another process may get the same one. So these are below the ports that the kernel
chooses, and each process of a test run takes them from a block of its own. As long as the process
lives, it listens at the first port of the block.
"""

import os
import socket
from typing import Final

_FIRST: Final = 20_000
_BLOCK: Final = 128
_BLOCKS: Final = 90
"""The last port is 31,519. The kernel of Linux chooses from 32,768 on."""


class _Ports:
    """The block of this process."""

    def __init__(self) -> None:
        self._owner: socket.socket | None = None
        self._pid = 0
        self._next = 0

    def take(self) -> int:
        """The next port at which no server listens; behind the last one is the first."""
        if self._owner is None or self._pid != os.getpid():
            self._owner, self._pid, self._next = _own_block(), os.getpid(), 0
        first = int(self._owner.getsockname()[1])
        for _ in range(_BLOCK):
            self._next = self._next % (_BLOCK - 1) + 1
            if _is_free(first + self._next):
                return first + self._next
        raise AssertionError(f"servers listen at all ports from {first} to {first + _BLOCK - 1}")


_PORTS: Final = _Ports()


def free_ports(count: int) -> list[int]:
    """Ports at which no server listens, and that no other process of a test run gets."""
    return [_PORTS.take() for _ in range(count)]


def _own_block() -> socket.socket:
    """A socket at the first port of a block that no other process has."""
    for number in range(_BLOCKS):
        first = _FIRST + (os.getpid() + number) % _BLOCKS * _BLOCK
        try:
            return socket.create_server(("127.0.0.1", first))
        except OSError:
            continue  # another process has it
    raise AssertionError(f"{_BLOCKS} processes have ports already")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
