"""The Dockerfile says what is true, and its health check asks the right node."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Final, cast

import pytest

from corvo import __version__
from corvo.cluster_settings import PEER_PORT
from corvo.config import Given, addresses, resolve
from tests.deploy.scripts import ROOT, image_variables, script

DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
HEALTHY: Final = ROOT / "deploy" / "image" / "healthy.py"


def test_the_image_has_the_version_of_the_package() -> None:
    assert re.findall(r"^ARG VERSION=(.*)$", DOCKERFILE, re.MULTILINE) == [__version__]


def test_the_settings_of_the_image_are_real() -> None:
    found = {name: value for name, value in image_variables().items() if name.startswith("CORVO_")}
    given = [
        Given(name.removeprefix("CORVO_").lower(), value, name) for name, value in found.items()
    ]
    config = resolve([*given, Given("admin_key", "0123456789abcdef", "the test")]).config
    exposed = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    [volume] = re.findall(r"^VOLUME (.*)$", DOCKERFILE, re.MULTILINE)
    listened = addresses(config.bind)

    assert listened is not None
    assert exposed == [f"{listened[0].port} {PEER_PORT}"]
    assert not listened[0].is_loopback
    assert config.data_dir.startswith(f"{volume}/"), "no mount point is the data directory itself"


def test_every_file_of_the_build_reaches_it() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    used = {"corvo/__init__.py", "requirements/constraints.txt", "pyproject.toml", "LICENSE"}
    used |= {path for path in re.findall(r"[\w/.]+\.(?:py|txt)", DOCKERFILE) if path[0] != "/"}

    assert [path for path in allowed if path != "wheels" and not (ROOT / path).exists()] == []
    for path in used:
        assert (ROOT / path).exists(), path
        assert any(fnmatchcase(path, f"{one}*") for one in allowed), path


def test_the_user_of_the_image_is_that_of_the_chart() -> None:
    values = (ROOT / "helm" / "corvo" / "values.yaml").read_text()
    [user] = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)

    assert f"runAsUser: {user}\n" in values


@contextmanager
def answering(status: str) -> Iterator[tuple[int, list[str]]]:
    """A server of one answer: its port, and what it was asked."""
    asked: list[str] = []

    def serve() -> None:
        came, _ = listening.accept()
        with came:
            asked.append(came.recv(4096).decode().partition("\r\n")[0])
            came.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], asked
        thread.join()


@pytest.mark.parametrize(
    ("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1)], ids=["200", "503"]
)
def test_the_health_check_asks_the_node(status: str, code: int) -> None:
    with answering(status) as (port, asked):
        done = subprocess.run(
            [sys.executable, "-I", str(HEALTHY), "/readyz"],
            env={"CORVO_BIND": f":{port}"},
            check=False,
            capture_output=True,
            text=True,
        )

    assert (done.returncode, asked) == (code, ["GET /readyz HTTP/1.1"]), done


def test_the_health_check_fails_without_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-I", str(HEALTHY)],
        env={"CORVO_BIND": f"127.0.0.1:{port}"},
        check=False,
        capture_output=True,
    )

    assert done.returncode == 1


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "http://127.0.0.1:8080/livez"),
        ({"CORVO_BIND": ":9000, 10.0.0.1:80"}, "http://127.0.0.1:9000/livez"),
        ({"CORVO_BIND": "[::]:9000", "CORVO_TLS_CERT": "/c"}, "https://[::1]:9000/livez"),
        ({"CORVO_BIND": "10.0.0.1:80"}, "http://10.0.0.1:80/livez"),
    ],
    ids=str,
)
def test_the_health_check_finds_the_node(environment: dict[str, str], url: str) -> None:
    url_of = cast("Callable[[dict[str, str]], str]", script("deploy/image/healthy.py")["url_of"])

    assert url_of(environment) == url
