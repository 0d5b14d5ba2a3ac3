"""Services of a compose file as processes: their commands, variables, secrets and health checks.

Docker gives a service the names of the others, an address of its own, volumes and secrets. Here
names become loopback addresses, and paths become those of a scratch directory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from tests.deploy.scripts import ROOT, image_variables
from tests.helm.charts import Container
from tests.helm.pods import Process, address, on_host, replaced

COMPOSE: Final = ROOT / "deploy" / "compose"
FILES: Final = sorted(COMPOSE.glob("*.yaml"))
SECRET: Final = "a secret of the tests"  # noqa: S105 -- of no server


class HealthCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test: list[str]
    interval: str
    timeout: str
    retries: int
    start_period: str


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service, with every field that the files use: a new one must be looked at here."""

    image: str
    restart: str
    read_only: bool
    cap_drop: list[str]
    security_opt: list[str]
    stop_grace_period: str
    command: list[str] = []
    environment: dict[str, str] = {}
    secrets: list[str] = []
    ports: list[str] = []
    expose: list[str] = []
    volumes: list[str] = []
    tmpfs: list[str] = []
    ulimits: dict[str, int] = {}
    depends_on: list[str] = []
    healthcheck: HealthCheck | None = None

    @property
    def is_node(self) -> bool:
        """Whether it is a node, and no other program."""
        return self.image.startswith("corvo/corvo:")

    @property
    def variables(self) -> dict[str, str]:
        """Its environment, with that of the image."""
        return {**image_variables(), **self.environment}


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: str


class Project(msgspec.Struct, frozen=True):
    """A compose file. Other names on its first level are parts that services share."""

    name: str
    services: dict[str, Service]
    volumes: dict[str, dict[str, str]]
    secrets: dict[str, Secret]

    @property
    def nodes(self) -> dict[str, Service]:
        """The services that are nodes."""
        return {name: one for name, one in self.services.items() if one.is_node}


def project(path: Path) -> Project:
    """The content of a file."""
    return msgspec.convert(yaml.safe_load(path.read_text()), Project)


def processes(of: Project, directory: Path) -> dict[str, Process]:
    """The nodes as processes, each with a directory of its own for its volume."""
    hosts = {name: address(number) for number, name in enumerate(of.nodes)}
    # Only where a port follows it is a name that of a host, and not of a node.
    names = {
        f"{name}:{port}": f"{host}:{port}" for name, host in hosts.items() for port in (8080, 9400)
    }
    return {
        name: process_of(name, service, hosts[name], names, directory / name)
        for name, service in of.nodes.items()
    }


def process_of(
    name: str, service: Service, host: str, names: Mapping[str, str], directory: Path
) -> Process:
    """One node."""
    places = {"/opt/corvo/healthy.py": str(ROOT / "deploy" / "image" / "healthy.py")}
    for volume in service.volumes:
        source, there = volume.split(":")[:2]
        places[there] = str(directory / source)
        (directory / source).mkdir(parents=True)
    for secret in service.secrets:
        places[f"/run/secrets/{secret}"] = str(directory / secret)
        (directory / secret).write_text(f"{SECRET}\n")
    variables = {
        variable: on_host(replaced(value, {**names, **places}), host)
        for variable, value in service.variables.items()
        if variable.startswith("CORVO_")
    }
    container = Container(
        name=name, image=service.image, command=["corvo"], args=service.command or ["server"]
    )
    return Process(name, host, container, variables, places)
