"""The chart as helm renders it: objects, and the parts of them that the tests look at."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import yaml

from tests.helm.values_reference import CHART

CI: Final = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES: Final = ("1.27", "1.30", "1.34", "1.37")
"""The oldest version that the chart is for, up to the newest with schemas."""


# ---- Parts of objects.


_WAY = ("spec", "template")
_WAYS: Final[dict[str, tuple[str, ...]]] = {
    "Pod": (),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""To the template of a pod, by kind of object."""


class Part(msgspec.Struct, rename="camel", frozen=True):
    """A part of an object, with the fields that a test looks at."""


class KeyRef(Part, frozen=True):
    name: str
    key: str


class FieldRef(Part, frozen=True):
    field_path: str


class Source(Part, frozen=True):
    secret_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None


class Variable(Part, frozen=True):
    name: str
    value: str = ""
    value_from: Source | None = None


class Port(Part, frozen=True):
    name: str = ""
    container_port: int = 0
    port: int = 0
    target_port: str | int = ""


class Security(Part, frozen=True):
    """The fields of the restricted Pod Security Standard."""

    run_as_non_root: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int | None = None
    seccomp_profile: dict[str, str] = {}
    allow_privilege_escalation: bool = True
    privileged: bool = False
    capabilities: dict[str, list[str]] = {}
    read_only_root_filesystem: bool = False


class Get(Part, frozen=True):
    path: str
    scheme: str = "HTTP"


class Probe(Part, frozen=True):
    http_get: Get | None = None
    period_seconds: int = 10
    failure_threshold: int = 3


class Exec(Part, frozen=True):
    command: list[str]


class Hook(Part, frozen=True):
    exec: Exec


class Lifecycle(Part, frozen=True):
    pre_stop: Hook | None = None


class Mount(Part, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class Container(Part, frozen=True):
    name: str
    image: str
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    ports: list[Port] = []
    security_context: Security = Security()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    volume_mounts: list[Mount] = []

    def variable(self, name: str) -> Variable | None:
        """A variable by its name."""
        return next((one for one in self.env if one.name == name), None)

    def text(self, name: str) -> str:
        """The value of a variable; empty if it is not there."""
        found = self.variable(name)
        return found.value if found is not None else ""


class Named(Part, frozen=True):
    """The source of a volume, by its name."""

    name: str = ""
    secret_name: str = ""
    claim_name: str = ""


class Volume(Part, frozen=True):
    name: str
    config_map: Named | None = None
    secret: Named | None = None
    empty_dir: dict[str, str] | None = None
    persistent_volume_claim: Named | None = None


class Pod(Part, frozen=True):
    containers: list[Container]
    init_containers: list[Container] = []
    volumes: list[Volume] = []
    security_context: Security = Security()
    automount_service_account_token: bool = True
    termination_grace_period_seconds: int = 30

    @property
    def server(self) -> Container:
        """The first container."""
        return self.containers[0]


class Meta(Part, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Object(NamedTuple):
    """One object."""

    kind: str
    meta: Meta
    doc: dict[str, object]

    def at(self, *path: str | int) -> object:
        """A part of the object; None if it is not there."""
        found: object = self.doc
        for step in path:
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return None
        return found

    @property
    def pod(self) -> Pod | None:
        """The pod that the object makes, or is."""
        found = self.at(*_WAYS.get(self.kind, _WAY), "spec")
        return msgspec.convert(found, Pod) if found is not None else None

    @property
    def the_pod(self) -> Pod:
        """The same, of an object that has one."""
        assert self.pod is not None
        return self.pod

    @property
    def pod_meta(self) -> Meta:
        """Labels and annotations of its pods."""
        found = self.at(*_WAYS.get(self.kind, _WAY))
        assert isinstance(found, dict)
        return msgspec.convert({"name": "", **found["metadata"]}, Meta)

    @property
    def ports(self) -> list[Port]:
        """The ports of a service."""
        return msgspec.convert(self.at("spec", "ports"), list[Port])

    @property
    def data(self) -> dict[str, str]:
        """The data of a ConfigMap or Secret."""
        return msgspec.convert(self.at("data"), dict[str, str])


class Objects(NamedTuple):
    """All objects of a release."""

    all: list[Object]

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind."""
        return [one for one in self.all if one.kind == kind]

    def one(self, kind: str, name: str = "") -> Object:
        """The only object of a kind, or the one with a name."""
        [found] = [one for one in self.of(kind) if name in {"", one.meta.name}]
        return found

    @property
    def pods(self) -> list[Object]:
        """The objects that make pods, hooks included."""
        return [one for one in self.all if one.pod is not None]


# ---- Helm.


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def helm(*words: str) -> Done:
    """Run helm: that of the virtual environment, or else that of the system."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("helm", path=places)
    assert found is not None, "helm is missing: it comes with the packages to develop"
    done = subprocess.run(
        [found, *words],
        check=False,
        capture_output=True,
        text=True,
        # No configuration of this machine, and no cluster that it may know.
        env={"HOME": "/nonexistent", "KUBECONFIG": "/nonexistent/config"},
    )
    return Done(done.returncode, done.stdout, done.stderr)


@cache
def rendered(
    *words: str, values: Path | None = None, kubernetes: str = "1.34", chart: Path = CHART
) -> Objects:
    """The objects of the release `jobs`, in the namespace `shop`."""
    files = ("-f", str(values)) if values is not None else ()
    done = template(chart, "--kube-version", kubernetes, *files, *words)
    assert done.code == 0, done.err
    return Objects([described(doc) for doc in documents(done.out)])


def template(chart: Path, *words: str) -> Done:
    """`helm template`, which may be refused."""
    return helm("template", "jobs", str(chart), "--namespace", "shop", *words)


def refused(*settings: str) -> str:
    """The message of values that are refused."""
    done = template(CHART, *sets(settings))
    assert done.code != 0, f"{settings} are not refused"
    return done.err


def sets(settings: Sequence[str]) -> Iterator[str]:
    """Values as options, each as NAME=VALUE."""
    for one in settings:
        yield from ("--set", one)


def documents(text: str) -> list[dict[str, object]]:
    """The documents of a text in YAML."""
    found = []
    for doc in yaml.safe_load_all(text):
        if doc is not None:
            assert isinstance(doc, dict)
            found.append(doc)
    return found


def described(doc: dict[str, object]) -> Object:
    """An object out of its document."""
    return Object(str(doc["kind"]), msgspec.convert(doc["metadata"], Meta), doc)
