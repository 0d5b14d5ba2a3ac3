"""Ports of servers under test: no two processes of a test run get the same."""

import socket
import subprocess
import sys

from tests.support.ports import free_ports

_OTHER = """
from tests.support.ports import free_ports
print(*free_ports(200))
"""


def test_another_process_gets_other_ports() -> None:
    own = free_ports(200)
    other = subprocess.run(
        (sys.executable, "-c", _OTHER), capture_output=True, check=True, text=True
    )

    assert not {*own} & {*map(int, other.stdout.split())}


def test_a_port_comes_again_only_after_all_others() -> None:
    [first] = free_ports(1)

    assert first not in free_ports(100)


def test_a_port_at_which_a_server_listens_is_left_out() -> None:
    [taken] = free_ports(1)
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in free_ports(300)

    assert taken in free_ports(300)
