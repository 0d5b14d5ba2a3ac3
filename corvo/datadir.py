"""The data directory of a node: its identity, its lock, and the paths of its parts.

    <data_dir>/node.json   cluster, node and number of shards: written once, checked at each start
    <data_dir>/cluster.json  the newest cluster map that the node has seen
    <data_dir>/release.json  the op version that the data need, and a release that has it
    <data_dir>/instance    a random number that tells the directory from any other, once a cluster
                           was asked to accept it
    <data_dir>/lock        locked by the node, and by each of its processes
    <data_dir>/run/        sockets of the shards and the mirror
    <data_dir>/shard-<n>/  log and state of a shard
    <data_dir>/known/      what each shard had: a file for each, outside of the shard's directory
    <data_dir>/mirror/     the mirror's file: made anew when it is not there

The lock is handed to every process of the node, so that it is free only when the last of them is
gone: a node that was killed may have a shard that is still writing.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec

from corvo.errors import CorvoError
from corvo.kv import directories
from corvo.protocol.cluster import ClusterMap
from corvo.sealed import seal, unseal
from corvo.shard.config import SOCKET_BYTES_MAX

_IDENTITY: Final = "node.json"
_MAP: Final = "cluster.json"
_RELEASE: Final = "release.json"
_INSTANCE: Final = "instance"
_LOCK: Final = "lock"
_INSTANCE_CHARACTERS: Final = 32
FORMAT: Final = 3
"""Format 1, of servers before clusters, had no `name` and no `instance`; 2 had no checksum."""


class DirectoryUnfit(CorvoError):
    """The directory is another node's, or none that a node can live in."""


class DirectoryInUse(CorvoError):
    """A server has the directory."""


class DirectoryDamaged(CorvoError):
    """What says whose the directory is cannot be read."""


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose the directory is."""

    format: int = FORMAT
    cluster: Annotated[str, msgspec.Meta(min_length=1)]  # made up at the first start of all
    node: Annotated[int, msgspec.Meta(ge=1)]
    shards: Annotated[int, msgspec.Meta(ge=1)]
    name: str = ""
    """The node's name in the cluster; empty for one that is its number."""
    instance: str = ""
    """A random number that tells this directory from any other."""


class NeededRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The op version that a release must have to open the directory."""

    op_version: int
    release: str  # one that has it, for people


class _Format(msgspec.Struct):
    format: int


class DataDir:
    """A directory that is there."""

    def __init__(self, root: Path, made: Sequence[Path] = ()) -> None:
        self.root: Final = root
        self._made = tuple(made)
        """Directories that were made when this one was opened, the innermost first."""

    def shard(self, number: int) -> Path:
        """Where a shard keeps its log and state."""
        return self.root / f"shard-{number}"

    def known(self, number: int) -> Path:
        """Where it is noted what a shard had."""
        return self.root / "known" / f"shard-{number}.json"

    def make_known(self) -> None:
        """Make the directory of these notes, durably."""
        (self.root / "known").mkdir(mode=0o700, exist_ok=True)
        directories.sync_names(self.root)

    @property
    def mirror(self) -> Path:
        """Where the mirror keeps its file."""
        return self.root / "mirror"

    @property
    def is_open_to_others(self) -> bool:
        """Whether any user of the machine may write into it."""
        return bool(self.root.stat().st_mode & stat.S_IWOTH)

    # Whose it is.

    def identity(self) -> Identity | None:
        """Whose the directory is; None for one that is new. Raises what is wrong with it."""
        place = self.root / _IDENTITY
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            if any(self.root.glob("shard-*")):
                raise DirectoryUnfit(
                    f"{self.root} has shards but no node.json, which has their number: restore it"
                    " from a backup, or use another --data-dir"
                ) from None
            return None
        try:
            written = msgspec.json.decode(data, type=_Format).format
            if written <= FORMAT:
                return unseal(data, Identity)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise DirectoryDamaged(
                f"{place} is damaged ({error}): it says whose the directory is, so restore it from"
                " a backup; or, in a cluster, remove this node at another one, and let it join"
                " again with an empty directory"
            ) from error
        raise DirectoryUnfit(
            f"{place} has format {written}, and this version supports {FORMAT}: start the newer"
            " version that wrote it"
        )

    def settle(self, identity: Identity) -> None:
        """Say whose the directory is, durably."""
        self._write(_IDENTITY, msgspec.structs.replace(identity, format=FORMAT))

    def instance(self) -> str:
        """The random number of a directory that is new: the one that was kept, or another one."""
        with suppress(FileNotFoundError):
            found = (self.root / _INSTANCE).read_text().strip().strip('"')
            if len(found) == _INSTANCE_CHARACTERS:
                return found
        return secrets.token_hex(_INSTANCE_CHARACTERS // 2)

    def keep_instance(self, instance: str) -> None:
        """Keep the random number, durably, before a cluster is asked to accept it.

        A node that ends before it has got the answer asks again with the same number.
        """
        self._write(_INSTANCE, instance)

    def forget_instance(self) -> None:
        """Remove the random number of a directory that no cluster has accepted."""
        (self.root / _INSTANCE).unlink(missing_ok=True)
        directories.sync_names(self.root)

    def leave_unused(self) -> None:
        """Leave nothing of a start that was refused, where the directory was empty before it."""
        if [path.name for path in self.root.iterdir()] == [_LOCK]:
            (self.root / _LOCK).unlink()
        with suppress(OSError):  # of an older start, or of something else
            for made in self._made:
                made.rmdir()

    # The cluster map.

    def cluster_map(self) -> ClusterMap | None:
        """The newest map that the node has seen. Raises `DirectoryDamaged`."""
        place = self.root / _MAP
        try:
            return unseal(place.read_bytes(), ClusterMap)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise DirectoryDamaged(
                f"{place} is damaged ({error}): remove it, and start the node with --join and the"
                " address of another node, which has the same map"
            ) from error

    def keep_map(self, known: ClusterMap) -> None:
        """Keep a newer map, durably."""
        self._write(_MAP, known)

    # Which release it needs.

    def needed_release(self) -> NeededRelease | None:
        """What the data need; None for a directory of before. Raises `DirectoryDamaged`."""
        place = self.root / _RELEASE
        try:
            return unseal(place.read_bytes(), NeededRelease)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise DirectoryDamaged(
                f"{place} is damaged ({error}): remove it, and start the release that was used last"
            ) from error

    def check_release(self, *, has: int, release: str) -> None:
        """Raise `DirectoryUnfit` when the directory needs a later release than the one given."""
        needs = self.needed_release()
        if needs is not None and needs.op_version > has:
            raise DirectoryUnfit(
                f"{self.root} needs op version {needs.op_version}, and this is corvo {release} with"
                f" op version {has}: install corvo {needs.release}, which was used last, or a later"
                " release"
            )

    def need_release(self, needs: NeededRelease) -> None:
        """From now on no older release may open the directory. Durable."""
        before = self.needed_release()
        if before is None or before.op_version < needs.op_version:
            self._write(_RELEASE, needs)

    def shards_there(self) -> list[int]:
        """The shards of which the directory has data."""
        names = (path.name.removeprefix("shard-") for path in self.root.glob("shard-*"))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def remove_shard(self, number: int) -> None:
        """Remove the data of a replica that does not belong to its shard any more.

        It is noted before that there was one. The name of the directory goes first, so that one
        that is half removed is not taken for a replica.
        """
        place = self.shard(number)
        aside = self.root / f"removed-shard-{number}"
        if aside.exists():
            shutil.rmtree(aside)
        if place.exists():
            self.make_known()
            self._write(self._left(number), number)
            self.known(number).unlink(missing_ok=True)
            directories.rename(place, aside)
            directories.sync_names(self.root)
            shutil.rmtree(aside)

    def has_left(self, number: int) -> bool:
        """Whether there was a replica of the shard once, which was removed."""
        return (self.root / self._left(number)).exists()

    def _left(self, number: int) -> str:
        return f"known/shard-{number}.left"

    def _write(self, name: str, content: object) -> None:
        place = self.root / name
        data = msgspec.json.encode(content)
        sealed = seal(data) if data.endswith(b"}") else data + b"\n"
        fresh = place.with_name(f"{place.name}.new")
        directories.remove(fresh)
        directories.write(fresh, iter([sealed]))
        directories.sync(fresh)
        directories.rename(fresh, place)
        directories.sync_names(place.parent)

    # Who has it.

    def try_lock(self) -> int | None:
        """The lock's descriptor; None while somebody else has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        place = self.root / _LOCK
        descriptor = os.open(place, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A start that was refused has removed it meanwhile: it locks nothing any more.
            if os.path.samestat(os.fstat(descriptor), place.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass  # the caller tries again
        os.close(descriptor)
        return None

    def hold(self) -> int | None:
        """Keep every server out, without a change: the lock's descriptor, or None without a lock.

        Raises `DirectoryInUse`.
        """
        place = self.root / _LOCK
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None  # no server was ever here
        except OSError as error:
            raise DirectoryUnfit(f"{place} cannot be read: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise DirectoryInUse(f"a server uses {self.root}") from error
        return descriptor

    def holders(self) -> list[str]:
        """The processes that have the lock open, as far as we may see them."""
        lock = str((self.root / _LOCK).resolve())
        found = []
        for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
            if process.name == str(os.getpid()):
                continue
            # Processes come and go while we look, and those of other users are not shown.
            with suppress(OSError):
                if any(_leads_to(entry, lock) for entry in (process / "fd").iterdir()):
                    words = (process / "cmdline").read_bytes().split(b"\0")[-4:]
                    command = b" ".join(words).decode(errors="replace").strip()
                    found.append(f"{process.name} ({command})")
        return found

    # Where its processes meet.

    def sockets(self, shards: int) -> list[str]:
        """The path of each shard's socket, in a directory that is for this user alone.

        A kernel takes no long path for a socket, so a directory deep down gets one elsewhere.
        """
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        elsewhere = Path(tempfile.gettempdir()) / f"corvo-{os.geteuid()}-{digest}"
        places = [self.root / "run", elsewhere]
        longest = f"peer-shard-{shards - 1}.sock"
        fitting = [place for place in places if _fits(place / longest)]
        if not fitting:
            raise DirectoryUnfit(
                f"{self.root} and {elsewhere} are too long for the path of a socket, at most"
                f" {SOCKET_BYTES_MAX} bytes: use another --data-dir, or set TMPDIR"
            )
        directory = fitting[0]
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise DirectoryUnfit(f"{directory} is not a directory of this user: remove it")
        directory.chmod(0o700)
        return [str(directory / f"shard-{number}.sock") for number in range(shards)]


def mirror_socket(sockets: list[str]) -> str:
    """The path of the mirror's socket, beside those of the shards, and no longer than they are."""
    return str(Path(sockets[0]).with_name("mirror.sock"))


def peer_socket(sockets: list[str], target: str) -> str:
    """The path of the socket where a process takes over connections from other nodes."""
    return str(Path(sockets[0]).with_name(f"peer-{target}.sock"))


def remove_sockets(sockets: list[str]) -> None:
    """Leave none behind, and nothing outside the node's directory."""
    directory = Path(sockets[0]).parent
    of_shards = (Path(socket) for socket in (*sockets, mirror_socket(sockets)))
    for socket in (*of_shards, *directory.glob("peer-*.sock")):
        socket.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it, which somebody put there
        directory.rmdir()


def _fits(socket: Path) -> bool:
    return len(os.fsencode(socket)) <= SOCKET_BYTES_MAX


def _leads_to(entry: Path, target: str) -> bool:
    """Whether a descriptor in /proc is of a file."""
    with suppress(OSError):
        return str(entry.readlink()) == target
    return False


def open_directory(path: str) -> DataDir:
    """The directory, made for this user alone when it is not there."""
    root = Path(path).absolute()
    try:
        missing = [each for each in (root, *root.parents) if not each.exists()]
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DirectoryUnfit(f"{root} cannot be created: {error.strerror}") from error
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        raise DirectoryUnfit(f"{root} is not writable for this user: use another --data-dir")
    for made in missing:
        directories.sync_names(made.parent)
    return DataDir(root, missing)
