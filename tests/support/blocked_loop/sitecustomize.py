"""Event loops that can be blocked from outside: Python imports this first, in every process.

On SIGUSR2 the main thread does nothing for a while, and with it the event loop. Other threads run,
so the watchdog sees it.
"""

import signal
from threading import Event

_BLOCKED_S = 0.6


def _block(*_: object) -> None:
    Event().wait(_BLOCKED_S)


signal.signal(signal.SIGUSR2, _block)
