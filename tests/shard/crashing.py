"""A shard process that ends itself at a chosen step, and a shadow of what a loss of power leaves.

A step is a call that changes names or makes something durable. `Steps` stands between the process
and its two doors to the disk (`RealFiles`, and the functions of `corvo.kv.directories`), counts the
steps of all threads one by one, and kills the process before or after one of them.

Beside it a shadow is kept: for every file the bytes that it had at its last sync, for every
directory the names that it had at its last. `rebuild` makes a directory out of the shadow: what a
machine finds that lost its power at that step. Of what was not synced each change is lost, or, as
chance decides, kept in part.
"""

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from random import Random
from typing import Final, Literal, Protocol

import msgspec

from corvo.kv import directories
from corvo.kv.level import LevelStore
from corvo.raft.disk.files import RealFiles
from corvo.shard.driver import disk, process

When = Literal["before", "after"]

CHANGES: Final = ("create", "rename", "unlink", "make_directory", "truncate")
"""What `RealFiles` does to names and sizes; what it syncs stands below."""
DIRECTORY_CHANGES: Final = ("make", "link", "rename", "remove_file", "remove")


class Call(Protocol):
    """A call of whatever kind."""

    def __call__(self, *args: object) -> object: ...


class Plan(msgspec.Struct, frozen=True):
    """What a process is to do to itself."""

    root: str
    shadow: str
    boot: str
    kill_at: int = 0
    """The step at which it ends; 0 for none."""
    when: When = "before"
    counted: str = ""
    """A file for the names of all steps."""


class Shadow:
    """What is durable. Files and directories go by their inodes, which renames do not change."""

    def __init__(self, root: Path, place: Path) -> None:
        self._root = root
        self._place = place
        self._kept_open: dict[int, int] = {}  # so that no inode's number is used again
        place.mkdir()
        for directory, _, names in os.walk(root):
            self.sync_names(Path(directory))
            for name in names:
                self.sync(Path(directory) / name)

    def sync(self, path: Path) -> None:
        """The bytes of a file are durable."""
        number = self._number(path)
        (self._place / f"{number}.bytes").write_bytes(path.read_bytes())

    def sync_names(self, directory: Path) -> None:
        """The names in a directory are durable."""
        number = self._number(directory)
        names = {path.name: (self._number(path), path.is_dir()) for path in _present(directory)}
        (self._place / f"{number}.names").write_text(json.dumps(names))
        if directory == self._root:
            (self._place / "root").write_text(str(number))

    def _number(self, path: Path) -> int:
        number = path.stat().st_ino
        if number not in self._kept_open:
            self._kept_open[number] = os.open(path, os.O_RDONLY)
        return number


def _present(directory: Path) -> list[Path]:
    """What is there; LevelDB removes and renames beside us."""
    return [path for path in sorted(directory.iterdir()) if path.exists() and not path.is_socket()]


class Steps:
    """Counts, kills and remembers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.RLock()
        self._count = 0
        self._counted = Path(plan.counted).open("a") if plan.counted else None  # noqa: SIM115
        self._shadow = Shadow(Path(plan.root), Path(plan.shadow)) if plan.shadow else None

    def stand_between(self) -> None:
        """Take the place of the real calls."""
        for name in CHANGES:
            self._wrap(RealFiles, name, f"log {name}")
        self._wrap(RealFiles, "sync", "log sync", self._log_synced)
        self._wrap(RealFiles, "sync_names", "log sync_names", self._log_named)
        for name in DIRECTORY_CHANGES:
            self._wrap(directories, name, f"state {name}")
        self._wrap(directories, "write", "state write")
        self._wrap(directories, "sync", "state sync", self._state_synced)
        self._wrap(LevelStore, "sync", "store sync")

    def _wrap(self, owner: object, name: str, step: str, noted: "Call" = lambda *_: None) -> None:
        real: Call = getattr(owner, name)

        def call(*args: object) -> object:
            with self._lock:
                self._count += 1
                number = self._count
                if self._counted is not None:
                    self._counted.write(f"{step}\n")
                    self._counted.flush()
                if (number, "before") == (self._plan.kill_at, self._plan.when):
                    _die()
                result = real(*args)
                if self._shadow is not None:
                    noted(*args)
                if (number, "after") == (self._plan.kill_at, self._plan.when):
                    _die()
                return result

        setattr(owner, name, call)

    def _log_synced(self, *args: object) -> None:
        assert self._shadow is not None
        self._shadow.sync(Path(self._plan.root) / "log" / str(args[1]))

    def _log_named(self, *args: object) -> None:
        assert self._shadow is not None
        self._shadow.sync_names(Path(self._plan.root) / "log" / "".join(map(str, args[1:])))

    def _state_synced(self, *args: object) -> None:
        assert self._shadow is not None
        [path] = args
        assert isinstance(path, Path)
        if not path.is_relative_to(self._plan.root):
            return
        if path.is_dir():
            self._shadow.sync_names(path)
        else:
            self._shadow.sync(path)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody outlives that")


def rebuild(root: Path, shadow: Path, random: Random | None) -> None:
    """Make `root` what a loss of power leaves of it. Without `random`, the least there can be."""
    after = root.with_name("after-power-loss")
    if (shadow / "root").exists():
        _rebuild(after, int((shadow / "root").read_text()), root, shadow, random)
    else:
        after.mkdir()
    shutil.rmtree(root)
    after.rename(root)


def _rebuild(target: Path, number: int, seen: Path, shadow: Path, random: Random | None) -> None:
    """One directory: the names that were synced, or all of those that were there."""
    target.mkdir()
    listed = shadow / f"{number}.names"
    names: dict[str, tuple[int, bool]] = json.loads(listed.read_text()) if listed.exists() else {}
    if random is not None and random.random() < 0.5 and seen.is_dir():
        names = {path.name: (path.stat().st_ino, path.is_dir()) for path in _present(seen)}
    by_number = {path.stat().st_ino: path for path in _present(seen)} if seen.is_dir() else {}
    for name, (inode, is_directory) in names.items():
        path = by_number.get(inode, seen / name)
        if is_directory:
            _rebuild(target / name, inode, path, shadow, random)
            continue
        kept = shadow / f"{inode}.bytes"
        data = kept.read_bytes() if kept.exists() else b""
        is_there = path.exists() and path.stat().st_ino == inode
        if random is not None and is_there and random.random() < 0.7:
            data = _torn(data, path.read_bytes(), random)
        (target / name).write_bytes(data)


def _torn(synced: bytes, written: bytes, random: Random) -> bytes:
    """Of the sectors that differ some were written, and the file has a length between the two."""
    length = random.choice((len(synced), len(written)))
    torn = bytearray()
    for start in range(0, length, 512):
        source = random.choice((synced, written))
        torn += source[start : min(start + 512, length)].ljust(min(512, length - start), b"\0")
    return bytes(torn)


def serve() -> None:
    """Start processes as they are asked for, each a copy of this one: `pipe plan` a line.

    A copy has read all code already, which is most of what a start takes.
    """
    for line in sys.stdin:
        place, _, told = line.strip().partition(" ")
        child = os.fork()
        if child == 0:
            _become(place, msgspec.json.decode(told, type=Plan))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(place: str, plan: Plan) -> None:
    for number, (suffix, flags) in enumerate((("in", os.O_RDONLY), ("out", os.O_WRONLY))):
        opened = os.open(f"{place}.{suffix}", flags)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(os.open(f"{place}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- another stdin than before
    Path(plan.root).mkdir(parents=True, exist_ok=True)
    Steps(plan).stand_between()
    code = process.main(disk.Disk(boot_id=lambda: plan.boot))
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
