"""A disk in memory that does what real disks do to what was not synced.

Each file has what is durable, what a reader sees, and the changes in between; so have the names.
`power_loss` decides for every change by itself whether it was kept, lost, or (writes) torn at 512
bytes. `process_crash` loses nothing: the page cache outlives a process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from corvo.raft.disk.filesystem import DirectoryRefused
from corvo.raft.errors import DiskFull, LogFailed

SECTOR: Final = 512
"""What a disk writes in one step."""

Fate = Literal["kept", "lost", "torn"]


class Crashed(BaseException):
    """The process ended here. Like a real end, nothing catches it."""


@dataclass
class Extent:
    """Bytes at an offset, written and not synced."""

    offset: int
    data: bytes


@dataclass
class Cut:
    """A file cut to a size, not synced."""

    size: int


@dataclass
class Inode:
    """One file, whatever its name."""

    durable: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    changes: list[Extent | Cut] = field(default_factory=list)


@dataclass
class Naming:
    """`source` (if any) stops to be a name, `target` (if any) becomes one; not synced."""

    source: str | None
    target: str | None
    inode: Inode | None


@dataclass
class Disk:
    """What outlives a process."""

    durable: dict[str, Inode | None] = field(default_factory=dict)
    seen: dict[str, Inode | None] = field(default_factory=dict)
    changes: list[Naming] = field(default_factory=list)
    holder: "MemoryFiles | None" = None


@dataclass(frozen=True)
class Step:
    """One operation that changes the disk, or makes it durable."""

    action: str
    name: str


class MemoryFiles:
    """`Files` in memory. A directory is a name whose inode is None.

    Faults, all of them optional:

    - `crash_at`: (number of the step, before or after it) at which `Crashed` is raised; after that
      every call raises it, until `process_crash` or `power_loss`;
    - `fail_sync(n, ...)`: the nth sync from now on fails, and what it covered is lost or still due;
    - `room`: the bytes that files may still grow by, None for no limit;
    - `flip`, `blank`, `cut`, `remove`: damage at rest.

    Fates of changes at a loss of power are drawn from `random`, or from the one handed to
    `power_loss`.
    """

    def __init__(self, random: Random | None = None) -> None:
        self.random = random if random is not None else Random(0)
        self.steps: list[Step] = []
        """Everything done so far that a crash could come before or after."""
        self.crash_at: tuple[int, Literal["before", "after"]] | None = None
        self.room: int | None = None
        self.reads: dict[str, list[tuple[int, int]]] | None = None
        """Set it to a dict to have every read noted: from offset to offset, by name."""
        self._disk = Disk()
        self._dead = False
        self._failing_sync: tuple[int, bool] | None = None

    # What `Files` promises.

    def lock(self) -> None:
        self._alive()
        if self._disk.holder not in (None, self):
            raise DirectoryRefused("the directory is in use by another process")
        self._disk.holder = self

    def names(self, directory: str = "") -> list[str]:
        self._alive()
        start = f"{directory}/" if directory else ""
        rest = [name.removeprefix(start) for name in self._disk.seen if name.startswith(start)]
        return sorted(name for name in rest if "/" not in name)

    def size(self, name: str) -> int:
        self._alive()
        return len(self._inode(name).seen)

    def create(self, name: str) -> None:
        assert name not in self._disk.seen, f"{name} exists"
        self._change("create", name, lambda: self._rename(None, name, Inode()))

    def read(self, name: str, offset: int, length: int) -> bytes:
        self._alive()
        if self.reads is not None:
            self.reads.setdefault(name, []).append((offset, offset + length))
        return bytes(self._inode(name).seen[offset : offset + length])

    def write(self, name: str, offset: int, data: bytes) -> None:
        self._change("write", name, lambda: self._write(self._inode(name), offset, data))

    def truncate(self, name: str, size: int) -> None:
        def cut() -> None:
            inode = self._inode(name)
            assert size <= len(inode.seen), "cut, not stretched"
            if self.room is not None:
                self.room += len(inode.seen) - size
            del inode.seen[size:]
            inode.changes.append(Cut(size))

        self._change("truncate", name, cut)

    def sync(self, name: str) -> None:
        def sync() -> None:
            inode = self._inode(name)
            self._maybe_fail(name, lambda: self._lose(inode))
            for change in inode.changes:
                apply(inode.durable, change)
            inode.changes.clear()

        self._change("sync", name, sync)

    def sync_names(self, directory: str = "") -> None:
        def sync() -> None:
            # A disk that fails to write its own journal stops; it does not go on without a part.
            self._maybe_fail(directory, lambda: None)
            due = [change for change in self._disk.changes if touches(change, directory)]
            for change in due:
                rename(self._disk.durable, change)
            self._disk.changes = [change for change in self._disk.changes if change not in due]

        self._change("sync_names", directory, sync)

    def rename(self, source: str, target: str) -> None:
        inode = self._inode(source)
        self._change("rename", target, lambda: self._rename(source, target, inode))

    def unlink(self, name: str) -> None:
        inode = self._inode(name)

        def unlink() -> None:
            if self.room is not None:
                self.room += len(inode.seen)
            self._rename(name, None, None)

        self._change("unlink", name, unlink)

    def make_directory(self, name: str) -> None:
        self._change("make_directory", name, lambda: self._rename(None, name, None))

    def close(self) -> None:
        self._alive()
        self._disk.holder = None

    # What happens to it.

    def process_crash(self) -> None:
        """The process ends and another begins; the machine stays up and forgets nothing."""
        self._dead = False
        self.crash_at = None
        self._failing_sync = None
        self._disk.holder = None

    def power_loss(self, random: Random | None = None, *, garbled: str | None = None) -> None:
        """The machine ends: of what was not synced, each change has its own fate.

        A disk may do worse than promised: in the file `garbled`, torn sectors come out as noise.
        """
        random = random if random is not None else self.random
        disk = self._disk
        inodes = {id(inode): inode for inode in (*disk.durable.values(), *disk.seen.values())}
        noisy = disk.seen.get(garbled) if garbled is not None else None
        for change in disk.changes:
            if random.random() < 0.5:
                rename(disk.durable, change)
            inodes[id(change.inode)] = change.inode
        for inode in inodes.values():
            if inode is not None:
                lose_power(inode, random, garbles=inode is noisy)
        disk.seen = dict(disk.durable)
        disk.changes.clear()
        self.process_crash()

    def fail_sync(self, nth: int = 1, *, lost: bool) -> None:
        """Let the nth sync from now on fail. With `lost` the page cache lies about it."""
        self._failing_sync = (nth, lost)

    def flip(self, name: str, offset: int, mask: int) -> None:
        """Change bits of a byte at rest."""
        inode = self._inode(name)
        inode.seen[offset] ^= mask
        inode.durable = bytearray(inode.seen)
        inode.changes.clear()

    def blank(self, name: str, start: int, stop: int) -> None:
        """Let bytes at rest read as zeros."""
        content = self.contents()[name]
        self.put(name, content[:start] + bytes(stop - start) + content[stop:])

    def cut(self, name: str, size: int) -> None:
        """Lose the end of a file at rest."""
        inode = self._inode(name)
        del inode.seen[size:]
        inode.durable = bytearray(inode.seen)
        inode.changes.clear()

    def remove(self, name: str) -> None:
        """Lose a file at rest."""
        del self._disk.seen[name]
        self._disk.durable = dict(self._disk.seen)
        self._disk.changes.clear()

    def put(self, name: str, data: bytes) -> None:
        """Place a file at rest."""
        self._disk.seen[name] = Inode(bytearray(data), bytearray(data))
        self._disk.durable = dict(self._disk.seen)
        self._disk.changes.clear()

    def copy(self) -> "MemoryFiles":
        """Another disk in the same state, with no faults planned and nobody in it."""
        twin = MemoryFiles(Random(0))
        inodes: dict[int, Inode | None] = {id(None): None}

        def of(inode: Inode | None) -> Inode | None:
            if id(inode) not in inodes:
                assert inode is not None
                inodes[id(inode)] = Inode(
                    bytearray(inode.durable), bytearray(inode.seen), list(inode.changes)
                )
            return inodes[id(inode)]

        old, new = self._disk, twin._disk
        new.durable = {name: of(inode) for name, inode in old.durable.items()}
        new.seen = {name: of(inode) for name, inode in old.seen.items()}
        new.changes = [
            Naming(change.source, change.target, of(change.inode)) for change in old.changes
        ]
        return twin

    def another_process(self) -> "MemoryFiles":
        """A second process that looks at the same disk."""
        other = MemoryFiles(Random(0))
        other._disk = self._disk
        return other

    def contents(self) -> dict[str, bytes]:
        """Every file that a reader sees, with all its bytes."""
        return {
            name: bytes(inode.seen)
            for name, inode in sorted(self._disk.seen.items())
            if inode is not None
        }

    # How it is done.

    def _alive(self) -> None:
        if self._dead:
            raise Crashed

    def _change(self, action: str, name: str, change: Callable[[], None]) -> None:
        self._alive()
        number = len(self.steps)
        if self.crash_at == (number, "before"):
            self._die()
        self.steps.append(Step(action, name))
        change()
        if self.crash_at == (number, "after"):
            self._die()

    def _die(self) -> None:
        self._dead = True
        raise Crashed

    def _inode(self, name: str) -> Inode:
        inode = self._disk.seen[name]
        assert inode is not None, f"{name} is a directory"
        return inode

    def _rename(self, source: str | None, target: str | None, inode: Inode | None) -> None:
        change = Naming(source, target, inode)
        rename(self._disk.seen, change)
        self._disk.changes.append(change)

    def _write(self, inode: Inode, offset: int, data: bytes) -> None:
        growth = max(0, offset + len(data) - len(inode.seen))
        is_full = self.room is not None and growth > self.room
        if self.room is not None:
            if is_full:
                data = data[: max(0, len(inode.seen) + self.room - offset)]
                growth = max(0, offset + len(data) - len(inode.seen))
            self.room -= growth
        extent = Extent(offset, data)
        apply(inode.seen, extent)
        inode.changes.append(extent)
        if is_full:
            raise DiskFull("no room")

    def _maybe_fail(self, name: str, lose: Callable[[], None]) -> None:
        if self._failing_sync is None:
            return
        nth, lost = self._failing_sync
        self._failing_sync = (nth - 1, lost)
        if nth == 1:
            self._failing_sync = None
            if lost:
                lose()
            raise LogFailed(f"cannot sync {name or 'the directory'}: input/output error")

    @staticmethod
    def _lose(inode: Inode) -> None:
        """The page cache keeps what it shows, takes it for written, and never writes it."""
        inode.changes.clear()


def apply(content: bytearray, change: Extent | Cut) -> None:
    """Carry out a change; what lies between the end and an offset beyond it reads as zeros."""
    if isinstance(change, Cut):
        del content[change.size :]
        return
    if not change.data:
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


def rename(names: dict[str, Inode | None], change: Naming) -> None:
    """Carry out a change of names."""
    if change.source is not None:
        names.pop(change.source, None)
    if change.target is not None:
        names[change.target] = change.inode


def touches(change: Naming, directory: str) -> bool:
    """Whether a change of names is durable once that directory is: the one where a name arrives."""
    name = change.target if change.target is not None else change.source
    assert name is not None
    return name.rpartition("/")[0] == directory


def lose_power(inode: Inode, random: Random, *, garbles: bool = False) -> None:
    """Decide what became of each unsynced change of a file."""
    for change in inode.changes:
        fate: Fate = "torn" if garbles else random.choice(("kept", "lost", "torn"))
        if isinstance(change, Cut):
            if fate == "kept":
                apply(inode.durable, change)
            continue
        if fate == "kept":
            apply(inode.durable, change)
        elif fate == "torn":
            for piece in sectors(change):
                if random.random() < 0.5:
                    apply(inode.durable, piece)
                elif garbles:
                    apply(inode.durable, Extent(piece.offset, random.randbytes(len(piece.data))))
    inode.changes.clear()
    inode.seen = bytearray(inode.durable)


def sectors(extent: Extent) -> list[Extent]:
    """The pieces that a disk writes each in one step."""
    pieces = []
    start, end = extent.offset, extent.offset + len(extent.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        pieces.append(Extent(start, extent.data[start - extent.offset : stop - extent.offset]))
        start = stop
    return pieces
