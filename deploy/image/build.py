"""Build the container image: `make image`, or `python deploy/image/build.py --help`.

It is the same build with docker, podman or buildah. Options after `--` are those of the tool.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "corvo/corvo"
PYTHON: Final = "3.11"
"""The version of the base, for which wheels are downloaded."""
TOOLS: Final = ("docker", "podman", "buildah")


def main(words: Sequence[str]) -> int:
    """Build it; returns the exit code."""
    parser = argparse.ArgumentParser("build.py", description=__doc__)
    parser.add_argument(
        "--tool", default="", help="docker, podman or buildah, perhaps with options"
    )
    parser.add_argument(
        "--base", default="", help="image with Python, if not that of the Dockerfile"
    )
    parser.add_argument("--tag", default=version(), help="tag of the image")
    parser.add_argument("--wheels", action="store_true", help="download the packages before it")
    parser.add_argument("options", nargs="*", help="options of the tool, after --")
    read = parser.parse_args(words)
    tool = shlex.split(read.tool) or [found_tool()]
    if not tool[0]:
        print(f"one of {', '.join(TOOLS)} is needed, with a daemon that runs for docker")
        return 1
    if read.wheels:
        download(ROOT / "wheels")
    command = [*tool, "build", *options(Path(tool[0]).name, read.base, read.tag), *read.options]
    print(shlex.join([*command, "."]), flush=True)
    return subprocess.run([*command, "."], cwd=ROOT, check=False).returncode


def found_tool() -> str:
    """The first tool that works here; empty without one."""
    for tool in TOOLS:
        if shutil.which(tool) is not None:
            # A client of docker without its daemon is of no use.
            asked = subprocess.run([tool, "info"], check=False, capture_output=True)
            if asked.returncode == 0:
                return tool
    return ""


def options(tool: str, base: str, tag: str) -> list[str]:
    """The options of a build."""
    arguments = {"VERSION": version(), "REVISION": git("%H"), "CREATED": git("%cI")}
    if base:
        arguments["BASE"] = base
    found = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    if tool != "docker":
        found.append("--format=docker")  # that of OCI has no health check
    return [*found, f"--tag={NAME}:{tag}"]


def version() -> str:
    """The version of the package."""
    [found] = re.findall(r'__version__ = "(.+)"', (ROOT / "corvo" / "__init__.py").read_text())
    return str(found)


def git(form: str) -> str:
    """A value of the last commit; empty outside of a checkout."""
    command = ["git", "-c", "safe.directory=*", "show", "--no-patch", f"--format={form}", "HEAD"]
    try:
        return subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""


def download(directory: Path) -> None:
    """Put the wheels of all packages into a directory, for a build without a network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
         f"--python-version={PYTHON}", "--constraint=requirements/constraints.txt",
         f"--dest={directory}", *needed],
        cwd=ROOT,
        check=True,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
