"""A real Prometheus: of Debian's package, which `make test` installs if it may."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import pytest
import trio
import yaml

from tests.cluster.nodes import PATIENCE_S
from tests.node.http import Client, Lost
from tests.support.ports import free_ports

PROMETHEUS: Final = shutil.which("prometheus")
_LOOK_S: Final = 0.2

needs_prometheus: Final = pytest.mark.skipif(
    PROMETHEUS is None,
    reason="prometheus is not installed: alerts and dashboards are not evaluated",
)


class Sample(msgspec.Struct, frozen=True):
    """One series at one moment."""

    metric: dict[str, str]
    value: tuple[float, str]

    @property
    def number(self) -> float:
        """The value."""
        return float(self.value[1])


class Result(msgspec.Struct, frozen=True):
    result: list[Sample]


class Found(msgspec.Struct, frozen=True):
    data: Result


class Alert(msgspec.Struct, frozen=True):
    """An alert that Prometheus shows."""

    labels: dict[str, str]
    annotations: dict[str, str]
    state: str

    @property
    def name(self) -> str:
        """Which one it is."""
        return self.labels["alertname"]


class Alerts(msgspec.Struct, frozen=True):
    alerts: list[Alert]


class ShownAlerts(msgspec.Struct, frozen=True):
    data: Alerts


class Prometheus:
    """One that runs."""

    def __init__(self, port: int, log: Path) -> None:
        self._client = Client(("127.0.0.1", port))
        self._turn = trio.Lock()  # of those who use the connection
        self._log = log

    async def get(self, path: str) -> bytes:
        """The answer to a request, once it succeeds."""
        last: object = None
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    async with self._turn:
                        answer = await self._client.ask("GET", path)
                    if answer.status == 200:
                        return answer.body
                    last = answer.body
                    assert answer.status != 400, last
                except Lost as error:
                    last = error
                except OSError as error:  # it does not listen yet
                    last = error
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"{path}: {last}; {await trio.Path(self._log).read_text()}")

    async def query(self, expr: str) -> list[Sample]:
        """The series of an expression, now."""
        body = await self.get(f"/api/v1/query?query={quote(expr)}")
        return msgspec.json.decode(body, type=Found).data.result

    async def until(self, expr: str) -> list[Sample]:
        """The same, once there are any."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                if found := await self.query(expr):
                    return found
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"no series of {expr}")

    async def alerts(self) -> list[Alert]:
        """The alerts that fire or wait for their time."""
        return msgspec.json.decode(await self.get("/api/v1/alerts"), type=ShownAlerts).data.alerts

    async def firing(self, name: str, labels: Mapping[str, str], patience_s: float) -> Alert:
        """The first alert of a name and with some labels, once it fires."""
        seen: list[Alert] = []
        with trio.move_on_after(patience_s):
            while True:
                seen = await self.alerts()
                for one in seen:
                    is_it = one.name == name and labels.items() <= one.labels.items()
                    if is_it and one.state == "firing":
                        return one
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"{name} with {labels} does not fire: {seen}")

    async def calm(self, name: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until no alert of a name fires."""
        with trio.move_on_after(patience_s):
            while True:
                seen = await self.alerts()
                if not any(one.name == name and one.state == "firing" for one in seen):
                    return
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"{name} still fires")

    def close(self) -> None:
        """End the connection."""
        self._client.close()


@asynccontextmanager
async def prometheus_of(
    directory: Path, ports: Sequence[int], rules: str = "groups: []\n"
) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes servers on loopback every two seconds. It ends with the block."""
    assert PROMETHEUS is not None
    await trio.Path(directory).mkdir(parents=True)
    [port] = free_ports(1)
    config = {
        # A page waits for a second for a shard or mirror that does not answer.
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": "corvo",
                "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports]}],
            }
        ],
    }
    (directory / "rules.yaml").write_text(rules)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = directory / "log"
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            [
                PROMETHEUS,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    running = Prometheus(port, log)
    try:
        await running.get("/-/ready")
        yield running
    finally:
        running.close()
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
