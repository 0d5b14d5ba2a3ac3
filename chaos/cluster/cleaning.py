"""Removal of what runs left behind: namespaces, mounts and processes of runs that were killed."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

from chaos.cluster.namespaces import FOLDER

PREFIX: Final = "chaos-"
_NAME: Final = re.compile(r"chaos-(\d+)-")
_MOUNTS: Final = Path("/proc/self/mounts")


def run_name(pid: int) -> str:
    """The name of the run of a process; all that it makes begins with it."""
    return f"{PREFIX}{pid}"


def scratch(pid: int) -> Path:
    """The folder of the data of a run."""
    return Path("/tmp") / f"corvo-{run_name(pid)}"  # noqa: S108 -- the pid makes it the run's own


def left_behind() -> dict[int, list[str]]:
    """The namespaces of runs whose process is gone, by its pid."""
    found: dict[int, list[str]] = {}
    if FOLDER.exists():
        for path in sorted(FOLDER.iterdir()):
            if (match := _NAME.match(path.name)) and not _runs(pid := int(match[1])):
                found.setdefault(pid, []).append(path.name)
    for folder in sorted(Path("/tmp").glob(f"corvo-{PREFIX}*")):  # noqa: S108 -- see `scratch`
        pid = int(folder.name.rpartition("-")[2])
        if not _runs(pid):
            found.setdefault(pid, [])
    return found


def clean() -> list[str]:
    """Remove what runs left behind; a line for each thing that was removed."""
    done = []
    for pid, namespaces in left_behind().items():
        for name in namespaces:
            for each in _processes(name):
                done.append(f"ended process {each} of {name}")
                os.kill(each, signal.SIGKILL)
        for name in namespaces:
            subprocess.run(["ip", "netns", "delete", name], check=True)
            done.append(f"removed the namespace {name}")
        folder = scratch(pid)
        for mount in mounts(folder):
            subprocess.run(["umount", "--lazy", mount], check=True)
            done.append(f"unmounted {mount}")
        if folder.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
            done.append(f"removed {folder}")
    return done


def _runs(pid: int) -> bool:
    """Whether a process runs. A process of another user does, too."""
    return Path(f"/proc/{pid}").exists()


def _processes(namespace: str) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True
    )
    return [int(line) for line in found.stdout.split()]


def mounts(folder: Path) -> list[str]:
    """The places below a folder where something is mounted."""
    places = [line.split()[1] for line in _MOUNTS.read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]
