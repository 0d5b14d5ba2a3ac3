"""The unit of systemd: its settings are real, and a node started by it sends what it waits for."""

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest
import trio

from corvo.child import DAMAGED, MISCONFIGURED
from corvo.cli import BAD_USAGE
from corvo.config import given_by_environment, resolve
from corvo.supervisor import _OTHERS_GRACE_S, _ROUTER_GRACE_S
from tests.deploy.scripts import ROOT
from tests.helm.charts import Container
from tests.helm.pods import Process, address
from tests.support.links import on_sockets
from tests.support.pages import blocks

UNIT: Final = ROOT / "deploy" / "systemd" / "corvo.service"
EXPOSURE_MAX: Final = 2.0
"""Of 10; without the lines of the second half of the service it is above 8."""


def settings() -> dict[str, list[str]]:
    """The settings of the unit, each with its values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def one(name: str) -> str:
    """The value of a setting."""
    [value] = settings()[name]
    return value


def command() -> list[str]:
    """The command, without the directory of the environment."""
    program, *words = shlex.split(one("ExecStart"))
    assert program == "/opt/corvo/bin/corvo"
    return ["corvo", *words]


def test_the_page_has_the_unit_as_it_is() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()

    assert [each.text for each in blocks(page) if each.file == "corvo.service"] == [
        UNIT.read_text()
    ]
    assert one("EnvironmentFile") in page
    assert f"useradd --system --home /var/lib/{one('StateDirectory')} {one('User')}" in page


def test_a_restart_follows_where_it_can_help() -> None:
    assert one("Restart") == "on-failure"
    codes = {int(code) for code in one("RestartPreventExitStatus").split()}
    assert codes == {BAD_USAGE, DAMAGED, MISCONFIGURED}


def test_a_stop_has_the_time_that_it_needs() -> None:
    drain_s = resolve([]).config.drain_ms / 1_000

    assert int(one("TimeoutStopSec")) > drain_s + _ROUTER_GRACE_S + _OTHERS_GRACE_S
    # SIGTERM comes to the node alone, which stops its processes in their order.
    assert one("KillMode") == "mixed"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_the_service_confined() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(UNIT)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done
    [exposure] = re.findall(r"Overall exposure level for corvo.service: ([\d.]+)", done.stdout)
    assert float(exposure) <= EXPOSURE_MAX
    assert "Unknown" not in done.stderr, done.stderr


@on_sockets
async def test_a_node_of_the_unit_tells_systemd_that_it_is_ready_lives_and_stops(
    tmp_path: Path,
) -> None:
    host = address(0)
    environment = {
        "CORVO_BIND": f"{host}:8080",
        "CORVO_SHARDS": "2",
        "CORVO_ADMIN_KEY": "a key of the tests",
    }
    assert given_by_environment(environment)
    notify = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "50000"}
    container = Container(name="unit", image="", command=command())
    places = {"/var/lib/corvo": str(tmp_path / "data")}
    process = Process("unit", host, container, {**environment, **notify}, places)
    said: list[str] = []

    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as listening:
        await listening.bind(notify["NOTIFY_SOCKET"])
        async with process.running() as node:
            while not ("READY=1" in said and "WATCHDOG=1" in said[said.index("READY=1") :]):
                said += (await listening.recv(4096)).decode().split("\n")
            node.send(signal.SIGTERM)
            while "STOPPING=1" not in said:
                said += (await listening.recv(4096)).decode().split("\n")
            code = await node.gone()

    statuses = [line for line in said if line.startswith("STATUS=")]
    assert statuses[-1] == "STATUS=4 of 4 processes are ready"
    assert said.index(statuses[-1]) < said.index("READY=1") < said.index("STOPPING=1")
    assert code == 0
