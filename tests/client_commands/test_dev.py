"""`corvo dev`: a server that can be used at once, and leaves nothing."""

import signal
import socket
from pathlib import Path

import pytest

from corvo.client_commands.dev import first_screen, free_port
from tests.client_commands.running import Server


def test_a_server_is_started_and_removed(tmp_path_factory: pytest.TempPathFactory) -> None:
    short = tmp_path_factory.mktemp("d")  # below it are sockets, whose paths have a limit
    here = {"TMPDIR": str(short)}
    with Server("").start("dev", "--port", "0", **here) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while lines[-1] and not lines[-1].startswith("Ctrl-C"):
            lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
        url = lines[0].split()[-1]
        made = Server(url).corvo("enqueue", "mail", "{}", "-o", "json")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

    assert f"  export CORVO_SERVER={url}\n" in lines
    assert made.code == 0
    assert (process.returncode, err) == (0, "\nstopped; its data are removed\n")
    assert not list(short.iterdir())


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = Server("").corvo("dev", "--port", port, "--keep", str(tmp_path / "kept"))

    assert done.code != 0
    assert done.err.startswith("error: the server ended with exit code ")
    assert port in done.err
    assert (tmp_path / "kept" / "server.log").exists()


def test_the_port_is_the_usual_one_if_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = free_port(port)

    assert other != port
    assert free_port(port) == port
    assert "export" not in first_screen("http://127.0.0.1:8080", Path("log"))
