"""Notifications to systemd: ready, status, stopping, watchdog.

See sd_notify(3). Without `NOTIFY_SOCKET`, none is sent.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables that no child inherits, because it could send notifications for the node."""

_BLOCKED_S: Final = 1.0


class Notifier:
    """Sends notifications to the service manager."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s: Final = _watchdog_s(environment) if address else None
        """Interval of watchdog notifications; None if they are not requested."""

    def say(self, *lines: str) -> None:
        """Send lines. An error is ignored: the node runs without a service manager, too.

        It blocks while the queue of the service manager is full, for a moment: it is never told
        again that the node is ready.
        """
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with socket.socket(socket.AF_UNIX, kind) as speaking, suppress(OSError):
            speaking.settimeout(_BLOCKED_S)
            speaking.sendto("\n".join(lines).encode(), self._address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    told = environment.get("WATCHDOG_USEC", "")
    if not told.isdecimal() or int(told) == 0:
        return None
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(told) / 2e6  # twice as often as is asked for, as the manual advises
