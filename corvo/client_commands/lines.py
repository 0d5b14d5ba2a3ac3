"""Lines of stdin in batches of bounded size, as they arrive: for files and for endless pipes."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Final

from corvo.client_commands.failures import CommandFailed

LINE_BYTES_MAX: Final = 4 << 20
_READ_BYTES: Final = 1 << 16
_IDLE_MS: Final = 200
"""An incomplete batch is passed on when no more input has arrived for this long."""


class Line(bytes):
    """A line without its end, and its number, from 1."""

    number: int = 0


def _numbered(data: bytes, number: int) -> Line:
    line = Line(data)
    line.number = number
    return line


def batches(
    count_max: int,
    bytes_max: int,
    is_stopped: Callable[[], bool] = lambda: False,
    file: int | None = None,
) -> Iterator[list[Line]]:
    """Lines that are not empty. Raises `CommandFailed` for one that is too long."""
    descriptor = sys.stdin.fileno() if file is None else file
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found: list[Line] = []
    size, number, rest = 0, 0, b""
    while not is_stopped():
        if not poll.poll(_IDLE_MS):
            if found:
                yield found
                found, size = [], 0
            continue
        data = os.read(descriptor, _READ_BYTES)
        *ended, rest = (rest + data).split(b"\n") if data else (rest, b"")
        for each in ended:
            number += 1
            line = each.strip()
            if not line:
                continue
            if found and (len(found) == count_max or size + len(line) > bytes_max):
                yield found
                found, size = [], 0
                if is_stopped():
                    return
            found.append(_numbered(line, number))
            size += len(line)
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(
                "LINE_TOO_LONG", f"line {number + 1} of stdin is longer than {LINE_BYTES_MAX} bytes"
            )
        if not data:
            break
    if found and not is_stopped():
        yield found
