"""What a process of a node begins with, because Python imports this module before all else.

The wall clock of the node, its names of other nodes, and a bug that is planted in it.

The file that `WRONG_CLOCK` names has the seconds by which the clock is ahead. It is read again ten
times a second, so that a clock can jump while the node runs. `CHAOS_NAMES` has addresses of other
nodes, as `b.chaos=127.77.1.2`: where all nodes are on loopback, each one reaches another at an
address of its own.
"""

import json
import os
import socket
import time
from pathlib import Path

from chaos.planting import Change, plant

_LOOK_NS = 100_000_000

_real = time.time_ns
_monotonic = time.monotonic_ns
_file = Path(os.environ["WRONG_CLOCK"])
_ahead_ns = 0
_next_look = 0


def _wrong() -> int:
    global _ahead_ns, _next_look  # noqa: PLW0603 -- a module is all that can stand in for the clock
    if (now := _monotonic()) >= _next_look:
        _next_look = now + _LOOK_NS
        _ahead_ns = round(float(_file.read_text()) * 1e9)
    return _real() + _ahead_ns


time.time_ns = _wrong

_names = dict(each.split("=") for each in os.environ.get("CHAOS_NAMES", "").split())
_resolve = socket.getaddrinfo


def _known(host: bytes | str | None, *others: int, **named: int) -> object:
    text = host.decode() if isinstance(host, bytes) else host or ""
    return _resolve(_names.get(text, host), *others, **named)


if _names:
    vars(socket)["getaddrinfo"] = _known

if _bug := os.environ.get("CHAOS_BUG"):
    plant(Change(*each) for each in json.loads(_bug))
