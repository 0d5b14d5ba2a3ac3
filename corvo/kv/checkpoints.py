"""The state on disk: a live LevelDB, its checkpoints, and the recovery from them.

    running             the boot of the machine in which the live store is being written
    live/               a LevelDB, never synced while it runs
    checkpoint-1042/    its tables, MANIFEST and CURRENT as of some applied index, and their sums
    installed-2077/     a checkpoint that came from a peer and is about to replace all of the above
    *.unfinished        what counts for nothing, and is removed at the next start

A process that dies loses nothing that it wrote, so the live store goes on where it was. A machine
that dies may take any unsynced write with it, and LevelDB then opens with holes that nobody tells;
so when `running` names another boot, the live store is thrown away and the newest checkpoint takes
its place. A clean stop syncs it and removes `running`.

Tables never change, so a checkpoint shares them with the live store as hard links. MANIFEST is
appended to and CURRENT replaced, so these are copied. A checkpoint is never opened itself, because
LevelDB writes as it opens: a scratch copy is, made of links again.

Two renames decide, and each is followed by a sync of the names: to `checkpoint-…`, and to
`installed-…`. Everything before such a rename counts for nothing, and what follows the second is
done again by the next start if it was cut short.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, Literal, TypeVar
from zlib import crc32

import msgspec

from corvo.errors import StoreDamaged, StoreError, StoreFailed, StoreFull
from corvo.kv import directories, framing, sums
from corvo.kv.level import WRITE_BUFFER_BYTES, LevelStore
from corvo.kv.store import Store
from corvo.kv.streams import Source, Unpacking, pack
from corvo.kv.sums import Sum

T = TypeVar("T")
SUMS: Final = sums.NAME
_MARKER: Final = "running"
_UNFINISHED: Final = ".unfinished"
_FILE: Final = re.compile(r"CURRENT|MANIFEST-[0-9]{6,}|[0-9]{6,}\.ldb")
CHECKPOINT: Final = re.compile(r"checkpoint-([1-9][0-9]*)")
INSTALLED: Final = re.compile(r"installed-([1-9][0-9]*)")

# A listing is out of date when a compaction ended while the tables were linked: about one in ten
# under the heaviest writing.
TRIES_MAX: Final = 20

# A buffer that finds no room on its way into a table stops LevelDB for good, so there is to be room
# for it, and for the one that fills meanwhile, before anything is begun.
ROOM_BYTES_MIN: Final = 2 * WRITE_BUFFER_BYTES

Ending = Literal["nothing", "clean stop", "process crash", "machine crash", "distrust"]
"""How the process before this one came to its end."""

_DISTRUSTED: Final = b"distrusted"  # stands where the name of a boot would


class Recovery(msgspec.Struct, frozen=True):
    """How a start came by its live store."""

    after: Ending
    rebuilt: bool  # whether it is the newest checkpoint, or empty for want of one
    damage: str = ""  # why it was rebuilt, when it should have been intact


class Pinned:
    """A checkpoint whose files stay until this is closed, also when another one replaces it."""

    def __init__(self, root: Path, index: int) -> None:
        """`root` has the second names of its files."""
        self.index: Final = index
        self._root = root
        self.sums: Final = directories.read(root / SUMS)
        self._noted = sums.decode(self.sums)

    def read(self, name: str, offset: int) -> bytes:
        """Bytes of a file of the checkpoint; empty at its end. Raises `KeyError` for no file."""
        size = self._noted[name].size
        return directories.part(self._root / name, offset) if offset < size else b""

    def close(self) -> None:
        """Let go of the files."""
        directories.remove(self._root)


class LevelStates:
    """See above."""

    def __init__(self, root: Path, *, boot_id: str, applied: Callable[[Store], int]) -> None:
        """Start on the directory `root`, which must exist; `applied` reads a store's applied index.

        Raises `StoreRefused` when another process has it, and `StoreDamaged` when the newest
        checkpoint is needed and is not what was written.
        """
        assert boot_id.encode() not in (b"", _DISTRUSTED), "a boot has a name"
        self._root = root
        self._applied = applied
        self._streams = count()
        self._is_distrusted = False
        self._lock = directories.lock(root)
        try:
            # The live store is another one after `install`. `checkpointed` is the applied index of
            # the newest checkpoint; 0 when there is none.
            self.store, self.checkpointed, self.recovery = self._start(boot_id)
        except StoreError:
            directories.unlock(self._lock)
            raise

    # Starting.

    def _start(self, boot_id: str) -> tuple[LevelStore, int, Recovery]:
        for name in directories.names(self._root):
            if name.endswith(_UNFINISHED):
                directories.remove(self._root / name)
        after = ending(self._root, boot_id)
        for index in numbered(self._root, INSTALLED):
            self._settle(index)
        *older, checkpointed = [0, *numbered(self._root, CHECKPOINT)]
        for index in older[1:]:
            self._discard(f"checkpoint-{index}")
        if after in ("machine crash", "distrust"):
            # Not marked before it is replaced: another start in this boot would trust it.
            store = self._rebuild(checkpointed)
            self._mark(boot_id.encode())
            return store, checkpointed, Recovery(after, rebuilt=True)
        self._mark(boot_id.encode())
        damage = ""
        if directories.exists(self._live):
            try:
                return self._open_live(), checkpointed, Recovery(after, rebuilt=False)
            except StoreDamaged as error:
                damage = str(error)
        store = self._rebuild(checkpointed)
        return store, checkpointed, Recovery(after, rebuilt=after != "nothing", damage=damage)

    def _mark(self, text: bytes) -> None:
        unfinished = self._root / f"{_MARKER}{_UNFINISHED}"
        _put(unfinished, text)
        directories.sync(unfinished)
        directories.rename(unfinished, self._marker)
        directories.sync_names(self._root)

    def _open_live(self) -> LevelStore:
        check_live(self._live)
        store = LevelStore(str(self._live), must_exist=True)
        try:
            self._applied(store)
        except StoreError:
            store.close()
            raise
        return store

    def _rebuild(self, checkpointed: int, *, is_checked: bool = False) -> LevelStore:
        """A live store out of the newest checkpoint, or an empty one."""
        unfinished = self._root / f"live{_UNFINISHED}"
        checkpoint = self._root / f"checkpoint-{checkpointed}"
        if checkpointed:
            if not is_checked:
                _check(checkpoint)
            _copy(checkpoint, unfinished)
        else:
            LevelStore(str(unfinished)).close()
        self._discard("live")
        directories.rename(unfinished, self._live)
        store = LevelStore(str(self._live), must_exist=True)
        assert self._applied(store) == checkpointed, f"{checkpoint} is what its name says"
        return store

    # Checkpoints.

    def checkpoint(self) -> int:
        """Make a checkpoint. Tables are shared, so it costs what was written since the last one."""
        if directories.room(self._root) < ROOM_BYTES_MIN:
            raise StoreFull(f"no room for a checkpoint: {ROOM_BYTES_MIN} bytes are to be free")
        due = self._applied(self.store)
        assert due >= max(1, self.checkpointed), "what was applied is not taken back"
        unfinished = self._root / f"checkpoint{_UNFINISHED}"
        try:
            applied = self._collect(unfinished, due)
            assert applied >= due, "what was synced is in the tables"
            if applied != self.checkpointed:
                self._seal(unfinished)
                self._publish(unfinished, applied)
        finally:
            directories.remove(unfinished)
        return applied

    def _collect(self, target: Path, due: int) -> int:
        """Gather one consistent state of the live store, which is being written all the while."""
        problem = ""
        for _ in range(TRIES_MAX):
            self.store.sync()
            self._gather(target)
            try:
                applied = self._keep_needed(target)
            except StoreDamaged as error:
                problem = str(error)  # most likely a table that was gone before it was linked
            else:
                if applied >= due:
                    return applied
                problem = "LevelDB flushed nothing"  # see `LevelStore.sync`
            directories.remove(target)
        raise StoreFailed(f"no consistent checkpoint in {TRIES_MAX} tries: {problem}")

    def _gather(self, target: Path) -> None:
        """First what names the tables, then the tables: none that is named can be too new."""
        directories.make(target)
        current = directories.read(self._live / "CURRENT")
        manifest = current.decode().strip()
        _put(target / "CURRENT", current)
        _put(target / manifest, directories.read(self._live / manifest))
        for name in directories.names(self._live):
            if name.endswith(".ldb"):
                directories.link(self._live / name, target / name)

    def _look_into(self, checkpoint: Path) -> tuple[int, list[str]]:
        """The applied index in a checkpoint, and the tables that it needs."""
        return _look_into(checkpoint, lambda store: (self._applied(store), store.tables()))

    def _keep_needed(self, target: Path) -> int:
        """Drop the tables that do not count: some of them are still being written."""
        applied, tables = self._look_into(target)
        present = [name for name in directories.names(target) if name.endswith(".ldb")]
        for name in tables:
            if name not in present:
                raise StoreDamaged(f"{target / name} is missing")
        for name in present:
            if name not in tables:
                directories.remove_file(target / name)
        return applied

    def _seal(self, target: Path) -> None:
        """Note the sums, and make everything durable."""
        known = self._known_sums()
        noted = {}
        for name in directories.names(target):
            path = target / name
            noted[name] = known.get((name, directories.inode(path))) or directories.sum_up(path)
        _put(target / SUMS, sums.encode(noted))
        directories.sync_all(target)

    def _known_sums(self) -> dict[tuple[str, int], Sum]:
        """Those of the last checkpoint's tables: a table that is still the same is not read."""
        if not self.checkpointed:
            return {}
        checkpoint = self._root / f"checkpoint-{self.checkpointed}"
        try:
            noted = sums_of(checkpoint)
        except StoreDamaged:
            return {}  # the checkpoint that is about to replace it notes its own
        present = [name for name in directories.names(checkpoint) if name.endswith(".ldb")]
        return {
            (name, directories.inode(checkpoint / name)): noted[name]
            for name in present
            if name in noted
        }

    def _publish(self, finished: Path, applied: int) -> None:
        """The rename that decides; then the older ones are not needed any more."""
        directories.rename(finished, self._root / f"checkpoint-{applied}")
        directories.sync_names(self._root)
        self.checkpointed = applied
        for index in numbered(self._root, CHECKPOINT):
            if index != applied:
                self._discard(f"checkpoint-{index}")

    # Streams.

    def pin(self) -> Pinned:
        """The newest checkpoint, for a backup. It must not be replaced during this call."""
        assert self.checkpointed, "there is a checkpoint to be copied"
        pinned = self._root / f"backup-{next(self._streams)}{_UNFINISHED}"
        self._pin(pinned)
        return Pinned(pinned, self.checkpointed)

    def stream(self) -> Generator[bytes, None, None]:
        """The newest checkpoint of now. Close it, or read it to its end."""
        assert self.checkpointed, "there is a checkpoint to be streamed"
        pieces = self._stream()
        next(pieces)  # has begun, so that it cleans up whatever becomes of it
        return pieces

    def _stream(self) -> Generator[bytes, None, None]:
        pinned = self._root / f"stream-{next(self._streams)}{_UNFINISHED}"
        try:
            checkpoint = self._pin(pinned)
            yield b""
            noted = sums_of(pinned, told=checkpoint)
            yield from pack(
                Source(name, noted[name].size, partial(_checked, checkpoint, pinned, name, noted))
                for name in sorted(noted)
            )
        finally:
            directories.remove(pinned)

    def _pin(self, pinned: Path) -> Path:
        """Give the files second names, so that the checkpoint may go while they are read."""
        for _ in range(TRIES_MAX):
            directories.make(pinned)
            checkpoint = self._root / f"checkpoint-{self.checkpointed}"
            try:
                listed = directories.names(checkpoint)
            except StoreFailed:
                if directories.exists(checkpoint):
                    raise
                listed = []
            # One that is replaced meanwhile is renamed first, so all its names go at once.
            if listed and all(directories.link(checkpoint / it, pinned / it) for it in listed):
                return checkpoint
            directories.remove(pinned)
        raise StoreFailed(f"a checkpoint was replaced {TRIES_MAX} times while it was looked at")

    def install(self, stream: Iterable[bytes]) -> None:
        """Become what another's `stream` describes. Nobody may use the old `store` meanwhile."""
        self.become(self.receive(stream))

    def receive(self, stream: Iterable[bytes]) -> int:
        """Store what another's `stream` describes, beside the live store, which is not touched.

        Returns what `become` needs. May run on another thread; the checkpoint must stay the same.
        """
        unfinished = self._root / f"installed{_UNFINISHED}"
        try:
            self._receive(unfinished, stream)
            applied = self._keep_needed(unfinished)
            assert applied >= 1, "a checkpoint is of something"
            _check(unfinished)
            directories.sync_all(unfinished)
            arrived = self._root / f"arrived-{applied}{_UNFINISHED}"
            directories.remove(arrived)
            directories.rename(unfinished, arrived)
        finally:
            directories.remove(unfinished)
        return applied

    def become(self, applied: int) -> None:
        """Replace the state by what was received. The old `store` must not be used meanwhile."""
        arrived = self._root / f"arrived-{applied}{_UNFINISHED}"
        try:
            directories.rename(arrived, self._root / f"installed-{applied}")
        except StoreFull:
            directories.remove(arrived)
            raise
        directories.sync_names(self._root)
        self.store.close()
        try:
            self._settle(applied)
            self.store = self._rebuild(applied, is_checked=True)
        except StoreFull as error:
            raise StoreFailed(f"{error}, and the old state is gone") from error
        self.checkpointed = applied

    def _receive(self, target: Path, stream: Iterable[bytes]) -> None:
        unpacking = Unpacking(stream)
        directories.make(target)
        noted: dict[str, Sum] = {}
        while (following := unpacking.following()) is not None:
            name, _ = following
            if not _FILE.fullmatch(name) or name in noted:
                raise StoreDamaged(f"{name!r} is not a file of a checkpoint")
            noted[name] = directories.write(target / name, unpacking.data())
        _put(target / SUMS, sums.encode(noted))

    def _settle(self, applied: int) -> None:
        """Let an installed checkpoint take the place of everything. Done again if cut short."""
        self._discard("live")
        for index in numbered(self._root, CHECKPOINT):
            self._discard(f"checkpoint-{index}")
        # Else a loss of power might bring back an older state beside the new name.
        directories.sync_names(self._root)
        directories.rename(
            self._root / f"installed-{applied}", self._root / f"checkpoint-{applied}"
        )
        directories.sync_names(self._root)

    # Stopping.

    def distrust(self) -> None:
        """Have the next start throw the live store away, as after a crash of the machine.

        For when a read found damage, or a write failed: opening need not notice either.
        """
        self._is_distrusted = True
        self._mark(_DISTRUSTED)

    def close(self) -> None:
        """Stop cleanly. Without it, or when it fails, the next start takes it for a crash."""
        try:
            try:
                if not self._is_distrusted:
                    self.store.sync()
            finally:
                self.store.close()
            if self._is_distrusted:
                return
            directories.sync_all(self._live)
            directories.sync_names(self._root)
            directories.remove_file(self._marker)
            directories.sync_names(self._root)
        finally:
            directories.unlock(self._lock)

    # Names.

    @property
    def _live(self) -> Path:
        return self._root / "live"

    @property
    def _marker(self) -> Path:
        return self._root / _MARKER

    def _discard(self, name: str) -> None:
        """Remove a directory, if it is there, in a way that is never half done."""
        path = self._root / name
        if directories.exists(path):
            discarded = self._root / f"{name}.discarded{_UNFINISHED}"
            directories.rename(path, discarded)
            directories.remove(discarded)


def ending(root: Path, boot_id: str) -> Ending:
    """What ended the process that had a state last."""
    marker = root / _MARKER
    if not directories.exists(marker):
        # A live store is marked before it is made.
        is_new = not directories.exists(root / "live") and not numbered(root, CHECKPOINT)
        return "nothing" if is_new else "clean stop"
    # A marker that cannot be read names no boot, and so not this one.
    found = directories.read(marker)
    if found == _DISTRUSTED:
        return "distrust"
    return "process crash" if found == boot_id.encode() else "machine crash"


def check_live(live: Path) -> None:
    """Find what LevelDB would not tell: see `corvo.kv.framing`. Raises `StoreDamaged`."""
    listed = directories.names(live)
    logs = sorted((name for name in listed if name.endswith(".log")), key=_number)
    if not logs:
        raise StoreDamaged(f"{live} has lost its log")
    # The newest one may end amid a write that the end of the process cut short. What is lost
    # then is the last of all writes, so no hole; and with it goes its applied index.
    for name in (*logs[:-1], *(name for name in listed if name.startswith("MANIFEST-"))):
        if not framing.is_whole(directories.read(live / name)):
            raise StoreDamaged(f"{live / name} is not whole")


def read_newest(root: Path, read: Callable[[Store], T]) -> T | None:
    """What `read` finds in the newest checkpoint below `root`, all of which is verified.

    None when there is no checkpoint. For a process that has not started on the directory.
    """
    numbers = numbered(root, CHECKPOINT) if directories.exists(root) else []
    if not numbers:
        return None
    checkpoint = root / f"checkpoint-{numbers[-1]}"
    _check(checkpoint)
    return _look_into(checkpoint, read)


def _look_into(checkpoint: Path, look: Callable[[LevelStore], T]) -> T:
    """Look into a scratch copy of a checkpoint."""
    scratch = checkpoint.with_name(f"scratch{_UNFINISHED}")
    directories.remove(scratch)
    try:
        _copy(checkpoint, scratch)
        store = LevelStore(str(scratch), must_exist=True)
        try:
            return look(store)
        finally:
            store.close()
    finally:
        directories.remove(scratch)


def _copy(source: Path, target: Path) -> None:
    """Another LevelDB of the same content, which may be opened and written."""
    directories.make(target)
    for name in directories.names(source):
        if name.endswith(".ldb"):
            linked = directories.link(source / name, target / name)
            assert linked, f"only this process removes from {source}"
        elif name != SUMS:
            _put(target / name, directories.read(source / name))


def _check(checkpoint: Path) -> None:
    """Read every byte of a checkpoint."""
    for name, expected in sums_of(checkpoint).items():
        path = checkpoint / name
        if not directories.exists(path) or directories.sum_up(path) != expected:
            raise _damaged(checkpoint, f"{name} is not what was written")


def _put(path: Path, data: bytes) -> None:
    directories.write(path, iter([data]))


def numbered(root: Path, pattern: re.Pattern[str]) -> list[int]:
    """The indexes in names of a kind, in order."""
    found = [pattern.fullmatch(name) for name in directories.names(root)]
    return sorted(int(match[1]) for match in found if match is not None)


def _number(log: str) -> int:
    return int(log.removesuffix(".log"))


def sums_of(directory: Path, *, told: Path | None = None) -> dict[str, Sum]:
    """The sums of a checkpoint's files. Raises `StoreDamaged`."""
    path = directory / SUMS
    told = told or directory
    if not directories.exists(path):
        raise _damaged(told, f"{SUMS} is missing")
    try:
        return sums.decode(directories.read(path))
    except StoreDamaged as error:
        raise _damaged(told, str(error)) from error


def _checked(
    checkpoint: Path, pinned: Path, name: str, noted: Mapping[str, Sum]
) -> Iterator[bytes]:
    """A file to be sent; the last thing that is known of it is whether it was right."""
    size = crc = 0
    if directories.exists(pinned / name):
        for piece in directories.pieces(pinned / name):
            size += len(piece)
            crc = crc32(piece, crc)
            yield piece
    if Sum(size, crc) != noted[name]:
        raise _damaged(checkpoint, f"{name} is not what was written")


def _damaged(checkpoint: Path, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"{checkpoint}: {what}. Remove the directory: the state then begins from nothing, and comes"
        " from the log or from another member"
    )
