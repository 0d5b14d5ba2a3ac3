"""What this machine can do: each ability is tried, and the ones that it lacks have a reason."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from chaos.cluster import namespaces

NETWORK: Final = "network"
"""Cuts and delays between hosts: by namespaces, or otherwise by the relay."""
PACKETS: Final = "packets"
"""Lost, doubled and reordered packets: only by namespaces."""
DISK: Final = "disk"
POWER: Final = "power"
SYNCS: Final = "syncs"
CLOCK: Final = "clock"
PROCESSES: Final = "processes"


def _network() -> str:
    if reason := _root("ip"):
        return reason
    name = f"chaos-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", name)
        try:
            os.close(namespaces.open_tun(name))
        finally:
            _run("ip", "netns", "delete", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces or /dev/net/tun do not work: {_why(error)}"
    return ""


def _disk() -> str:
    if reason := _root("mount", "umount", "mkfs.ext4"):
        return reason
    return "" if Path("/dev/loop-control").exists() else "no loop devices"


def _syncs() -> str:
    return "" if shutil.which("cc") else "no C compiler (cc)"


def _root(*commands: str) -> str:
    if not sys.platform.startswith("linux"):
        return "only on Linux"
    if os.geteuid() != 0:
        return "only as root"
    missing = [name for name in commands if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return said.decode(errors="replace").strip() if said else str(error)


def _nothing() -> str:
    return ""


PROBES: Final[Mapping[str, Callable[[], str]]] = {
    PROCESSES: _nothing,
    CLOCK: _nothing,
    NETWORK: _nothing,
    PACKETS: _network,
    DISK: _disk,
    POWER: _disk,
    SYNCS: _syncs,
}
"""By the name of an ability: why this machine lacks it, or nothing."""


def probe() -> dict[str, str]:
    """The abilities that this machine lacks, each with the reason."""
    lacks = {name: why() for name, why in PROBES.items()}
    return {name: reason for name, reason in lacks.items() if reason}
