"""A directory on a real disk that can lose what was not synced.

`Crashes` stands between `corvo.kv.checkpoints` and `corvo.kv.directories`. It counts the steps that
change anything, ends the "process" before, amid or after one of them, and remembers what a loss of
power would take: names that were changed in the root since the root was synced, files without their
bytes, and files whose own directory was not synced.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from corvo.errors import StoreFull
from corvo.kv import checkpoints, directories
from corvo.kv.level import LevelStore
from corvo.kv.sums import Sum

When = Literal["before", "amid", "after"]
Result = TypeVar("Result")

_real_lock = directories.lock
_real_unlock = directories.unlock
_real_make = directories.make
_real_link = directories.link
_real_write = directories.write
_real_sync = directories.sync
_real_rename = directories.rename


class Crashed(BaseException):
    """The process ended here. Like a real end, nothing catches it."""


class Crashes:
    """Of one root. The steps go to the real disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, trash: Path) -> None:
        self.steps: list[str] = []
        self.crash_at: tuple[int, When] | None = None
        self.full_at: int | None = None
        self._root = root
        self._trash = trash
        self._numbers = count()
        self._dead = False
        self._locks: list[int] = []
        self._stores: list[LevelStore] = []
        self._undo: list[Callable[[], object]] = []
        self._dirty: set[int] = set()  # files whose bytes were not synced, by inode
        self._unnamed: dict[int, set[str]] = {}  # names not synced, by inode of the directory
        for name in (
            "lock",
            "unlock",
            "make",
            "link",
            "write",
            "sync",
            "rename",
            "remove",
            "remove_file",
        ):
            monkeypatch.setattr(directories, name, getattr(self, name))
        monkeypatch.setattr(checkpoints, "LevelStore", self.open)

    # What `directories` does, and what is remembered of it.

    def lock(self, directory: Path) -> int:
        descriptor = _real_lock(directory)
        self._locks.append(descriptor)
        return descriptor

    def unlock(self, descriptor: int) -> None:
        self._locks.remove(descriptor)
        _real_unlock(descriptor)

    def open(self, directory: str, *, must_exist: bool = False) -> LevelStore:
        self._step(f"open {Path(directory).name}", lambda: None, lambda: None)
        store = LevelStore(directory, must_exist=must_exist)
        self._stores.append(store)
        return store

    def make(self, directory: Path) -> None:
        self._step(f"make {directory.name}", lambda: None, partial(self._make, directory))

    def link(self, source: Path, target: Path) -> bool:
        def do() -> bool:
            linked = _real_link(source, target)
            if linked:
                self._name(target)
            return linked

        return self._step(f"link {target.name}", lambda: None, do)

    def write(self, path: Path, data: Iterator[bytes]) -> Sum:
        def half() -> None:
            whole = b"".join(data)
            _real_write(path, iter([whole[: len(whole) // 2]]))
            self._wrote(path)

        def do() -> Sum:
            written = _real_write(path, data)
            self._wrote(path)
            return written

        return self._step(f"write {path.name}", half, do)

    def sync(self, path: Path) -> None:
        def do() -> None:
            _real_sync(path)
            if path == self._root:
                self._undo.clear()
            elif path.is_dir():
                self._unnamed.pop(path.stat().st_ino, None)
            else:
                self._dirty.discard(path.stat().st_ino)

        self._step(f"sync {path.name if path != self._root else 'root'}", lambda: None, do)

    def rename(self, source: Path, target: Path) -> None:
        def do() -> None:
            replaced = target.read_bytes() if target.is_file() else None
            _real_rename(source, target)
            self._undo.append(partial(_take_back, source, target, replaced))

        self._step(f"rename {target.name}", lambda: None, do)

    def remove(self, path: Path) -> None:
        def half() -> None:
            for inside in sorted(path.iterdir())[::2] if path.is_dir() else []:
                inside.unlink()

        if path.exists():
            self._step(f"remove {path.name}", half, partial(self._drop, path))

    def remove_file(self, path: Path) -> None:
        remove = partial(self._drop, path) if path.parent == self._root else path.unlink
        self._step(f"remove {path.name}", lambda: None, remove)

    def begin(self) -> None:
        """Count from here, and take what was done so far for durable."""
        self.steps.clear()
        self._undo.clear()
        self._dirty.clear()
        self._unnamed.clear()

    # What happens to it.

    def process_crash(self) -> None:
        """The process ends; what it did stays done."""
        for store in self._stores:
            store.close()
        for descriptor in self._locks:
            os.close(descriptor)
        self._stores.clear()
        self._locks.clear()
        self._dead = False
        self.crash_at = None
        self.full_at = None

    def power_loss(self, *, kept: int) -> None:
        """Of the changes of names that were not synced, the first `kept` stay."""
        self.process_crash()
        for undo in reversed(self._undo[kept:]):
            undo()
        self._undo.clear()
        for directory in self._root.iterdir():
            if directory.is_dir():
                self._lose_files(directory)
        self._dirty.clear()
        self._unnamed.clear()
        if (self._root / "running").exists():
            for log in self._root.glob("live/*.log"):
                os.truncate(log, 0)

    @property
    def unsynced(self) -> int:
        """Changes of names that a loss of power may take back."""
        return len(self._undo)

    # How it is done.

    def _step(self, name: str, half: Callable[[], None], do: Callable[[], Result]) -> Result:
        if self._dead:
            raise Crashed
        number = len(self.steps)
        self.steps.append(name)
        if self.full_at == number:
            half()
            raise StoreFull(f"no room to {name}")
        at, when = self.crash_at or (None, None)
        if at == number and when != "after":
            if when == "amid":
                half()
            self._die()
        done = do()
        if at == number:
            self._die()
        return done

    def _die(self) -> None:
        self._dead = True
        raise Crashed

    def _wrote(self, path: Path) -> None:
        self._dirty.add(path.stat().st_ino)
        self._name(path)

    def _name(self, path: Path) -> None:
        if path.parent == self._root:
            self._undo.append(partial(self._throw, path))
        else:
            self._unnamed.setdefault(path.parent.stat().st_ino, set()).add(path.name)

    def _lose_files(self, directory: Path) -> None:
        unnamed = self._unnamed.get(directory.stat().st_ino, set())
        for path in directory.iterdir():
            if path.name in unnamed:
                path.unlink()
            elif path.stat().st_ino in self._dirty:
                os.truncate(path, 0)

    def _make(self, directory: Path) -> None:
        _real_make(directory)
        self._undo.append(partial(self._throw, directory))

    def _drop(self, path: Path) -> None:
        thrown = self._throw(path)
        self._undo.append(partial(thrown.rename, path))

    def _throw(self, path: Path) -> Path:
        thrown = self._trash / str(next(self._numbers))
        return path.rename(thrown)


def _take_back(source: Path, target: Path, replaced: bytes | None) -> None:
    target.rename(source)
    if replaced is not None:
        target.write_bytes(replaced)
