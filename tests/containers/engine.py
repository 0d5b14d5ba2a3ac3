"""buildah and podman with a store of their own, and the image built in it.

Nothing of the machine's own images, containers and networks is touched.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import trio

from corvo import __version__
from tests.helm.charts import Done
from tests.support import networks

ROOT: Final = Path(__file__).parents[2]
BASE: Final = "localhost/corvo-base:bookworm"
IMAGE: Final = f"localhost/corvo/corvo:{__version__}"
_DEBIAN: Final = "bookworm"
"""Its Python is 3.11, for which the wheels are."""
_PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"
_CONFIG: Final = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""Limits that need no right to raise them, and no systemd."""


def missing() -> list[str]:
    """What keeps this machine from running containers."""
    commands = ("buildah", "podman", "runc", "debootstrap")
    found = [f"the command {each}" for each in commands if shutil.which(each) is None]
    if not networks.is_possible():
        found.append("root, and the command ip")
    return found


class Engine:
    """The tools, with their store in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "containers.conf").write_text(_CONFIG)
        places = [f"--root={self._directory / 'store'}", f"--runroot={self._directory / 'run'}"]
        self.options: Final = (*places, "--storage-driver=overlay")

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self._directory / "containers.conf")}

    async def podman(self, *words: str, is_checked: bool = True) -> Done:
        """A command of podman. What it prints to stderr is shown when it fails."""
        return await self._run("podman", *self.options, *words, is_checked=is_checked)

    async def _run(self, *words: str, is_checked: bool = True) -> Done:
        ended = await trio.run_process(
            words,
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self._environment,
        )
        done = Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        assert done.code == 0 or not is_checked, (words, done)
        return done

    # The image.

    async def make_image(self, *, is_kept: bool) -> None:
        """Build the base, if it is not there, and the image; `is_kept`: if it is not there."""
        if (await self.podman("image", "exists", BASE, is_checked=False)).code != 0:
            await self._make_base()
        if is_kept and (await self.podman("image", "exists", IMAGE, is_checked=False)).code == 0:
            return
        tool = " ".join(["buildah", *self.options])
        script = str(ROOT / "deploy" / "image" / "build.py")
        command = [sys.executable, script, "--tool", tool, "--base", BASE, "--wheels"]
        built = ["--", "--isolation=chroot", "--pull-never"]
        await self._run(*command, *built)

    async def build(self, name: str, context: Path) -> None:
        """Build an image of a directory with a Dockerfile."""
        await self._buildah(
            "build", "--isolation=chroot", "--pull-never", f"--tag={name}", str(context)
        )

    async def _make_base(self) -> None:
        """An image of Debian with Python, as that of the Dockerfile is."""
        tree = self._directory / "rootfs"
        await self._run(
            "debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _DEBIAN, str(tree)
        )
        for each in ("proc", "sys"):  # debootstrap leaves them there
            await self._run("umount", str(tree / each), is_checked=False)
        container = (await self._buildah("from", "scratch")).strip()
        mounted = (await self._buildah("mount", container)).strip()
        await self._run("cp", "-a", f"{tree}/.", f"{mounted}/")
        await self._buildah("umount", container)
        await self._buildah("commit", container, BASE)
        await self._buildah("rm", container)
        await trio.to_thread.run_sync(shutil.rmtree, tree)

    async def _buildah(self, *words: str) -> str:
        return (await self._run("buildah", *self.options, *words)).out
