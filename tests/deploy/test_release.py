"""A release: its version, its packages, and a server out of them, in an environment of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest
import trio

from corvo import __version__
from tests.deploy.scripts import ROOT, script
from tests.helm.pods import address
from tests.node.http import Client
from tests.support.links import on_sockets
from tests.test_docs import pyproject
from tests.test_tidy import paths_by_git

PATIENCE_S: Final = 60.0
CONSTRAINTS: Final = ROOT / "requirements" / "constraints.txt"
_BUILD: Final = """
import sys
from hatchling.build import build_sdist, build_wheel
{"sdist": build_sdist, "wheel": build_wheel}[sys.argv[1]](sys.argv[2])
"""


# ---- The version.

Versions = Callable[[Path], dict[str, list[str]]]


def test_every_file_has_the_version_of_the_package() -> None:
    versions = cast("Versions", script("changes/release.py")["versions"])(ROOT)

    assert {one for found in versions.values() for one in found} == {__version__}
    assert all(versions.values())


def test_a_release_writes_its_version_everywhere(tmp_path: Path) -> None:
    release = script("changes/release.py")
    places = cast("tuple[tuple[str, str], ...]", release["PLACES"])
    for path, _ in places:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)

    cast("Callable[[Path, str], None]", release["set_version"])(tmp_path, "7.8.9rc1")

    found = cast("Versions", release["versions"])(tmp_path)
    assert {one for each in found.values() for one in each} == {"7.8.9rc1"}
    assert not [path for path, _ in places if __version__ in (tmp_path / path).read_text()]


@pytest.mark.parametrize("version", ["0.2", "v0.2.0", "0.2.0+local", ""])
def test_a_version_that_is_no_tag_is_refused(version: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "changes" / "release.py"), version],
        check=False,
        capture_output=True,
    )

    assert done.returncode == 1
    assert b"expected a version such as" in done.stderr


# ---- The bill of materials.

Bill = dict[str, object]


class Component(msgspec.Struct, rename={"bom_ref": "bom-ref"}):
    """A package in the SBOM, with the fields that a reader looks for."""

    name: str
    version: str
    purl: str
    bom_ref: str
    licenses: list[dict[str, object]] = []
    hashes: list[dict[str, str]] = []


def bill_of(names: Mapping[tuple[str, str], str]) -> Bill:
    """The SBOM of this environment."""
    found = script("changes/sbom.py")["bill_of"]
    make = cast("Callable[[Iterator[Distribution], Mapping[tuple[str, str], str]], Bill]", found)
    return make(iter(distributions()), names)


def test_the_bill_has_every_package_once_with_its_licence() -> None:
    bill = bill_of({("trio", version_of("trio")): "f" * 64})

    components = msgspec.convert(bill["components"], list[Component])
    by_name = {one.name.lower().replace("_", "-"): one for one in components}
    assert len({one.purl for one in components}) == len(components)
    assert {name.lower() for name in pyproject().packages} - {"hatchling"} <= by_name.keys()
    runtime = {re.split(r"[\W]", one, maxsplit=1)[0] for one in needs_of("corvo")}
    assert all(by_name[name].licenses for name in runtime if name in by_name)
    assert by_name["trio"].hashes == [{"alg": "SHA-256", "content": "f" * 64}]
    assert bill == bill_of({("trio", version_of("trio")): "f" * 64}), "it is deterministic"
    refs = {one.bom_ref for one in components}
    edges = msgspec.convert(bill["dependencies"], list[dict[str, object]])
    assert {str(edge["ref"]) for edge in edges} == {*refs, f"pkg:pypi/corvo@{__version__}"}


def version_of(name: str) -> str:
    return Distribution.from_name(name).version


def needs_of(name: str) -> list[str]:
    return [one for one in Distribution.from_name(name).requires or [] if "extra" not in one]


# ---- The packages.


class Built(msgspec.Struct, frozen=True):
    """What was built, and where."""

    wheel: Path
    sdist: Path
    python: Path
    """Of an environment with Corvo and nothing else."""


def environment_in(directory: Path) -> Path:
    """A new environment; its Python."""
    venv.create(directory, with_pip=True)
    return directory / "bin" / "python"


def install(python: Path, *words: str) -> None:
    """Install packages. What cannot be downloaded is no fault of the release."""
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS), *words],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 and "hatchling" in words:
        pytest.skip(f"hatchling cannot be downloaded: {done.stderr.splitlines()[-1:]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    directory = tmp_path_factory.mktemp("release")
    builder = environment_in(directory / "builder")
    install(builder, "hatchling")

    def build(kind: str, source: Path, into: Path) -> Path:
        into.mkdir()
        subprocess.run([builder, "-c", _BUILD, kind, into], cwd=source, check=True)
        [made] = into.iterdir()
        return made

    sdist = build("sdist", ROOT, directory / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    [unpacked] = (directory / "unpacked").iterdir()
    wheel = build("wheel", ROOT, directory / "wheel")
    again = build("wheel", unpacked, directory / "again")
    assert again.read_bytes() == wheel.read_bytes(), "the sdist makes another wheel"
    python = environment_in(directory / "clean")
    install(python, str(wheel))
    return Built(wheel, sdist, python)


def test_the_wheel_has_all_files_of_the_package_and_no_others(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        notes = [name for name in archive.namelist() if ".dist-info/" in name]

    tracked = [path for path in paths_by_git() if path.startswith("corvo/")]
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "corvo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(names) == sorted(tracked or there)
    assert {"corvo/py.typed", "corvo/router/texts.toml"} <= {*names}
    assert any(note.endswith("/licenses/LICENSE") for note in notes)


def test_the_sdist_has_what_a_distributor_needs(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"LICENSE", "README.md", "Dockerfile", "deploy/systemd/corvo.service"} <= names
    assert {"tests/test_tidy.py", "requirements/constraints.txt", "PKG-INFO"} <= names
    ignored = (".venv", "wheels/", "build/", "data/")
    assert not [name for name in names if name.startswith(ignored) or "__pycache__" in name]


def test_the_installed_package_is_whole_and_says_its_version(built: Built) -> None:
    command = built.python.parent / "corvo"

    said = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    checked = subprocess.run(
        [built.python, "-m", "pip", "check"], check=False, capture_output=True, text=True
    )
    listed = subprocess.run(
        [built.python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True
    )

    assert said.stdout == f"corvo {__version__}\n"
    assert checked.returncode == 0, checked.stdout
    names = {str(one["name"]).lower() for one in json.loads(listed.stdout)}
    assert not names & {"pytest", "mypy", "ruff", "hypothesis"}, "tools are no dependency"


def test_the_bill_of_the_installed_package_has_the_wheels_hash(built: Built) -> None:
    words = (built.python, ROOT / "changes" / "sbom.py", "--wheels", built.wheel.parent)
    command = [str(word) for word in words]

    bills = [subprocess.run(command, check=True, capture_output=True).stdout for _ in range(2)]

    assert bills[0] == bills[1]
    root = json.loads(bills[0])["metadata"]["component"]
    assert (root["name"], root["version"]) == ("corvo", __version__)
    assert len(root["hashes"]) == 1
    assert root["licenses"] == [{"expression": "Apache-2.0"}]


@on_sockets
async def test_the_installed_package_serves(built: Built, tmp_path: Path) -> None:
    host = address(0)
    command = [
        *(str(built.python.parent / "corvo"), "server", "--bind", f"{host}:8080"),
        *("--data-dir", str(tmp_path / "data"), "--set", "log_format=json"),
    ]
    process = await trio.lowlevel.open_process(
        command, env={"PATH": os.defpath}, cwd=tmp_path, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    log = b""
    try:
        with trio.fail_after(PATIENCE_S):
            while b'"node.ready"' not in log:
                data = await process.stderr.receive_some()
                assert data, log
                log += data
            client = Client((host, 8080))
            body = b'{"queue": "mail", "payload": {}}'
            made = await client.ask("POST", "/api/v1/enqueue", body)
            pages = {
                path: (await client.ask("GET", path)).status
                for path in ("/", "/docs", "/openapi.json", "/metrics", "/api/v1/queues")
            }
            client.close()
            process.send_signal(signal.SIGTERM)
            while await process.stderr.receive_some():
                pass
            code = await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()

    assert made.status == 201
    assert set(pages.values()) == {200}, pages
    assert code == 0


def test_the_scripts_need_no_package() -> None:
    for name in ("release", "sbom"):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _IMPORT, str(ROOT / "changes" / f"{name}.py")],
            check=False,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr


_IMPORT: Final = "import runpy, sys; runpy.run_path(sys.argv[1])"
