"""Process 1 of a container: passes signals on to the command, and reaps orphans.

Every process whose parent has ended becomes a child of process 1, which must wait for it, or it
stays as a zombie. Health checks, `exec` and the commands of `corvo worker` leave such processes.
Besides, the kernel drops signals to process 1 that it has no handler for, so a SIGTERM before the
command has its own would be lost. Thus the command runs in a child, as below tini or `--init`.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_PASSED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_KILLED: Final = 128
"""An exit code above it is a signal, as in a shell."""


def is_first() -> bool:
    """Whether this process is process 1."""
    return os.getpid() == 1


def run_below(run: Callable[[], int]) -> int:
    """Run a command in a child; returns its exit code, there and here."""
    waited = {*_PASSED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if child == 0:
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return run()
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        # One SIGCHLD may stand for the ends of many.
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else _KILLED - code


def _take_terminal() -> None:
    """Have a process group of its own, so that Ctrl-C reaches the command once, and directly."""
    os.setpgid(0, 0)
    if os.isatty(0):
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):  # it is not the terminal of this session: Ctrl-C does not come here
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
