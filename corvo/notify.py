"""What systemd wants to hear: that the node is ready, what it does, that it stops, that it lives.

See sd_notify(3). Without `NOTIFY_SOCKET` nobody wants to hear anything, and nothing is said.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Ours alone: a child that inherited them could speak for us."""


class Notifier:
    """Speaks to whoever started the node."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s: Final = _watchdog_s(environment) if address else None
        """How often a sign of life is due; None when nobody waits for one."""

    def say(self, *lines: str) -> None:
        """Tell it. That nobody listens any more is no reason to stop."""
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, kind) as speaking, suppress(OSError):
            speaking.sendto("\n".join(lines).encode(), self._address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    told = environment.get("WATCHDOG_USEC", "")
    if not told.isdecimal() or int(told) == 0:
        return None
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(told) / 2e6  # twice as often as is asked for, as the manual advises
