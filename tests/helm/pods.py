"""The pods of the chart as processes: the command, variables and files that the chart renders.

Kubernetes gives a pod four things that a process lacks: the names of DNS, an address of its own,
mounted volumes, and variables out of Secrets and fields. Here names become loopback addresses,
one for each pod, and paths become those of a scratch directory. Nothing else is changed.
"""

import base64
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.helm.charts import Container, Done, Object, Objects, Variable, Volume
from tests.support.nodes import Running

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.05
_ANY: Final = re.compile(r"^:(\d+)$")


class Release:
    """The pods of a release, with what is on their disks."""

    def __init__(
        self, objects: Objects, directory: Path, secrets: Mapping[str, Mapping[str, str]]
    ) -> None:
        """`secrets` are those that exist already."""
        self.objects: Final = objects
        self._directory: Final = directory
        self._secrets: Final = dict(secrets)
        for one in objects.of("Secret"):
            self._secrets[one.meta.name] = {
                key: base64.b64decode(value).decode() for key, value in one.data.items()
            }
        self._maps: Final = {one.meta.name: one.data for one in objects.of("ConfigMap")}
        self.server: Final = objects.one("StatefulSet")

    def pod(self, number: int) -> "Process":
        """A pod of the StatefulSet, by its number."""
        return self._process(self.server, f"{self.server.meta.name}-{number}", number)

    def test(self) -> "Process":
        """The pod of `helm test`."""
        found = self.objects.one("Pod")
        return self._process(found, found.meta.name, 0)

    def worker(self) -> "Process":
        """A pod of the Deployment."""
        found = self.objects.one("Deployment")
        return self._process(found, f"{found.meta.name}-x", 0)

    def values(self, of: Object, name: str) -> dict[str, str]:
        """The environment of the first container of a pod, as Kubernetes sets it."""
        environment: dict[str, str] = {}
        for variable in of.the_pod.server.env:
            environment[variable.name] = self._value(variable, name, environment)
        return environment

    def mounts(self, of: Object, name: str) -> dict[str, Path]:
        """The files and directories of that container on this disk, by their paths in it."""
        pod = of.the_pod
        return {
            mount.mount_path: self._volume(pod.volumes, mount.name, name) / mount.sub_path
            for mount in pod.server.volume_mounts
        }

    def _process(self, of: Object, name: str, number: int) -> "Process":
        host = address(number)
        places = {there: str(path) for there, path in self.mounts(of, name).items()}
        names = self._names(number)
        environment = {
            variable: on_host(replaced(value, {**names, **places}), host)
            for variable, value in self.values(of, name).items()
        }
        container = of.the_pod.server
        return Process(name, host, container, environment, {**places, **names, "127.0.0.1": host})

    def _names(self, number: int) -> dict[str, str]:
        """The address of each name that DNS has. The service for clients leads to one pod."""
        headless = str(self.server.at("spec", "serviceName"))
        domain = f"{headless}.shop.svc.cluster.local"
        nodes = {f"{self.server.meta.name}-{one}.{domain}": address(one) for one in range(8)}
        return {**nodes, f"{self.server.meta.name}.shop.svc": address(number)}

    def _value(self, variable: Variable, name: str, before: Mapping[str, str]) -> str:
        source = variable.value_from
        if source is None:
            return re.sub(r"\$\((\w+)\)", lambda found: before[found[1]], variable.value)
        if source.secret_key_ref is not None:
            return self._secrets[source.secret_key_ref.name][source.secret_key_ref.key]
        assert source.field_ref is not None
        assert source.field_ref.field_path == "metadata.name"
        return name

    def _volume(self, volumes: Sequence[Volume], name: str, pod: str) -> Path:
        """The directory of a volume of a pod, with its files."""
        directory = self._directory / pod / name
        directory.mkdir(parents=True, exist_ok=True)
        # One that no volume of the pod has is a claim, and keeps what is there.
        found = next((one for one in volumes if one.name == name), Volume(name))
        files: Mapping[str, str] = {}
        if found.config_map is not None:
            files = self._maps[found.config_map.name]
        elif found.secret is not None:
            files = self._secrets[found.secret.secret_name]
        for file, text in files.items():
            (directory / file).write_text(text)
        return directory


class Process(msgspec.Struct, frozen=True):
    """A pod that can be started."""

    name: str
    host: str
    container: Container
    environment: dict[str, str]
    places: dict[str, str]

    def words(self, command: Sequence[str]) -> list[str]:
        """A command of the container, as it is run here."""
        program, *arguments = (replaced(word, self.places) for word in command)
        start = {"corvo": [sys.executable, "-m", "corvo"], "python3": [sys.executable]}[program]
        return [*start, *arguments]

    @property
    def _variables(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **self.environment}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """The container. In every case it ends with the block."""
        process = await trio.lowlevel.open_process(
            self.words([*self.container.command, *self.container.args]),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._variables,
        )
        started = Running(process)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(started.listen)
                yield started
                process.kill()
                await started.silent.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                if not started.silent.is_set():
                    await started.drain()
                await process.wait()

    async def execute(self, command: Sequence[str]) -> Done:
        """A command inside of the container."""
        with trio.fail_after(PATIENCE_S):
            done = await trio.run_process(
                self.words(command),
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=self._variables,
            )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def corvo(self, *words: str) -> Done:
        """A command of Corvo inside of the container."""
        key = self.environment.get("CORVO_ADMIN_KEY", "")
        server = f"http://{self.host}:8080"
        return await self.execute(["corvo", *words, "--server", server, "--api-key", key])


def replaced(text: str, names: Mapping[str, str]) -> str:
    """A text with other names and paths, in one pass: a new path may contain an old one."""
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)({longest_first})(?![\w.-])", lambda found: names[found[1]], text)


def on_host(value: str, host: str) -> str:
    """An address to listen on, of this host if it is one of all addresses."""
    return _ANY.sub(rf"{host}:\1", value)


def address(number: int) -> str:
    """The loopback address of a pod. Each process of the tests has others."""
    own = os.getpid()
    return f"127.{1 + own % 250}.{1 + own // 250 % 250}.{10 + number}"
