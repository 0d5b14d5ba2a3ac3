"""Notifications reach a service manager that is busy, and none that is gone stops a node."""

import socket
import threading
from pathlib import Path

import pytest

from corvo import notify
from corvo.notify import Notifier


def full(path: Path) -> tuple[socket.socket, int]:
    """A service manager that has not read yet, and how many datagrams wait for it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    count = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as speaking:
        while True:
            try:
                speaking.sendto(b"WATCHDOG=1", str(path))
            except BlockingIOError:
                return listening, count
            count += 1


def test_a_notification_waits_while_the_queue_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_BLOCKED_S", 100.0)
    listening, count = full(tmp_path / "n")
    with listening:
        listening.settimeout(100)
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
        saying = threading.Thread(target=notifier.say, args=("STATUS=well", "READY=1"))
        saying.start()
        saying.join(0.2)
        assert saying.is_alive(), "it waits, however long it took to begin"
        received = [listening.recv(4096) for _ in range(count + 1)]
        saying.join()

    assert received[-1] == b"STATUS=well\nREADY=1"


def test_a_service_manager_that_does_not_read_or_is_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_BLOCKED_S", 0.01)
    listening, count = full(tmp_path / "n")
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
    with listening:
        notifier.say("READY=1")
        assert [listening.recv(4096) for _ in range(count)] == [b"WATCHDOG=1"] * count
    notifier.say("READY=1")
    Notifier({}).say("READY=1")
