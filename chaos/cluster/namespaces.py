"""Network namespaces: sockets and devices in a network of their own, which only root can make."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/run/netns")
"""Where `ip netns` keeps the names."""
DEVICE: Final = "net0"
_CLONE_NEWNET: Final = 0x40000000
_OWN: Final = Path("/proc/self/ns/net")
_TUN: Final = Path("/dev/net/tun")

# From linux/if_tun.h.
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Make the sockets and devices of this thread in a namespace. Raises `OSError`."""
    own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(FOLDER / name)
        try:
            yield
        finally:
            _set(own)
    finally:
        os.close(own)


def make_socket(name: str) -> socket.socket:
    """A TCP socket in a namespace, which stays there. Raises `OSError`."""
    with inside(name):
        return socket.socket()


def open_tun(name: str) -> int:
    """A network device in a namespace, whose packets this process reads and writes.

    The device is removed when the descriptor is closed. Raises `OSError`.
    """
    with inside(name):
        made = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)
        try:
            fcntl.ioctl(made, _TUNSETIFF, request)
        except OSError:
            os.close(made)
            raise
    return made


def _enter(path: Path) -> None:
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(there)
    finally:
        os.close(there)


def _set(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
