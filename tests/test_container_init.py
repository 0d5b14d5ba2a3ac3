"""Process 1 of a container: signals reach the command, and no orphan stays as a zombie.

The tests make no process 1: orphans come to the process under test as to a *subreaper* (see
prctl(2)), which is what process 1 is to a container.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from corvo import __version__

ROOT: Final = Path(__file__).parent.parent
_PATIENCE_S: Final = 60.0
_SUBREAPER: Final = """
import ctypes, os, signal, subprocess, sys
from corvo import cli
from corvo.container_init import run_below
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
"""


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SUBREAPER + program],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def finished(program: str) -> tuple[int, str]:
    process = started(program)
    out, _ = process.communicate(timeout=_PATIENCE_S)
    return process.returncode, out


def test_an_orphan_is_reaped_while_the_command_runs() -> None:
    code, out = finished("""
def run():
    shell = subprocess.run(["sh", "-c", "cat <&0 >/dev/null & echo $!"], input="", text=True,
                           capture_output=True)
    orphan = shell.stdout.strip()
    while os.path.exists(f"/proc/{orphan}"):
        os.sched_yield()
    print("reaped", flush=True)
    return 3
sys.exit(run_below(run))
""")

    assert (code, out) == (3, "reaped\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_reaches_the_command(number: signal.Signals) -> None:
    process = started(f"""
def run():
    signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])
    print("waits", flush=True)
    return signal.sigwait([{int(number)}]) + 100
sys.exit(run_below(run))
""")
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(number)
    process.communicate(timeout=_PATIENCE_S)

    assert process.returncode == number + 100


def test_a_signal_before_the_command_has_a_handler_ends_it() -> None:
    process = started("""
def run():
    print("starts", flush=True)
    signal.pause()
sys.exit(run_below(run))
""")
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=_PATIENCE_S)

    assert process.returncode == 128 + signal.SIGTERM


def test_ctrl_c_at_a_terminal_reaches_the_command_once() -> None:
    code, out = finished("""
import pty
def run():
    print(os.tcgetpgrp(0) == os.getpid(), flush=True)
    return 0
pid, terminal = pty.fork()
if pid == 0:
    sys.exit(run_below(run))
print(os.read(terminal, 100).decode().strip(), flush=True)
""")

    assert (code, out) == (0, "True\n"), "the command alone is the terminal's foreground group"


def test_a_terminal_that_is_not_that_of_the_session_is_left_alone() -> None:
    """As where a container's runtime passes a terminal on without making it the controlling one."""
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"{_SUBREAPER}sys.exit(run_below(lambda: 3))"],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            check=False,
            stdin=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=_PATIENCE_S,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert (done.returncode, done.stderr) == (3, b"")


def test_every_command_runs_below_process_1() -> None:
    code, out = finished("""
cli.is_first = lambda: True
before = os.getpid()
code = cli.main(["version"])
print("above" if os.getpid() == before else "below", flush=True)
sys.exit(code)
""")

    assert (code, out) == (0, f"corvo {__version__}\nbelow\nabove\n")
