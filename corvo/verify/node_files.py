"""Check of a node's own files: its identity, the cluster map, and the notes about its shards."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from corvo import __version__
from corvo.datadir import DataDir, DirectoryDamaged, DirectoryUnfit, Identity
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, fault_of
from corvo.sealed import unseal
from corvo.shard.driver.known import Note
from corvo.verify.report import Part, Report

T = TypeVar("T")
_KNOWN: Final = re.compile(r"shard-([0-9]+)\.(json|left)")
_OURS: Final = re.compile(
    r"(node|cluster|release)\.json|instance|lock|run|known|mirror|shard-[0-9]+"
)
_REMAINS: Final = re.compile(r".*\.new|removed-shard-[0-9]+")
RESTORE: Final = "restore it from a backup of this directory"
OWNER: Final = "repeat the command as the user that runs the server"
NEWER: Final = "repeat the command with the release that wrote it"


class Node(NamedTuple):
    """What the files say."""

    identity: Identity
    map: ClusterMap | None
    notes: dict[int, Note]

    @property
    def is_alone(self) -> bool:
        """Whether it is the only node: then all shards are here."""
        return self.map is None or len(self.map.nodes) == 1


def verify_node(directory: DataDir, report: Report) -> Node | None:
    """Check the files beside the shards; None where nothing else can be checked."""
    part = report.part("node")
    identity = None
    with reading(part, "node.json"):
        try:
            identity = directory.identity()
        except DirectoryDamaged as error:
            part.wrong("node.json", str(error), RESTORE)
        except DirectoryUnfit as error:
            if not directory.root.joinpath("node.json").exists():
                part.wrong("node.json", "the file is missing", RESTORE)
            else:
                part.skipped("node.json", str(error), NEWER)
        else:
            if identity is None:
                part.wrong("node.json", "the file is missing", RESTORE)
    if identity is None:
        return None
    part.count(1, "identity", "identities")
    known = _verify_map(directory, identity, part)
    _verify_release(directory, part)
    instance = directory.root / "instance"
    with reading(part, "instance"):
        text = instance.read_text(errors="replace") if instance.exists() else ""
        if text and len(text.strip().strip('"')) != len(identity.instance or text):
            part.wrong("instance", "is no random number of a directory", "remove it")
    notes = _verify_notes(directory, identity, part)
    _verify_names(directory, identity, known, part)
    return Node(identity, known, notes)


@contextmanager
def reading(part: Part, where: str) -> Iterator[None]:
    """A block that reads files; one that this user may not read is reported."""
    try:
        yield
    except PermissionError as error:
        part.skipped(where, f"cannot be read: {error.strerror}", OWNER)
    except OSError as error:
        part.wrong(where, f"cannot be read: {error.strerror}", "check the disk")


def _verify_map(directory: DataDir, identity: Identity, part: Part) -> ClusterMap | None:
    known = None
    with reading(part, "cluster.json"):
        try:
            known = directory.cluster_map()
        except DirectoryDamaged as error:
            part.wrong("cluster.json", "the file is damaged", str(error).partition(": ")[2])
    if known is None:
        return None
    part.count(1, "cluster map")
    fault = fault_of(known, shards=identity.shards)
    if fault:
        part.wrong("cluster.json", f"it has {fault}", RESTORE)
        return None
    if known.node(identity.node) is None:
        part.remark("cluster.json", f"node {identity.node} is not in the cluster")
    return known


def _verify_release(directory: DataDir, part: Part) -> None:
    with reading(part, "release.json"):
        try:
            directory.check_release(has=wire.OP_VERSION, release=__version__)
        except DirectoryDamaged as error:
            part.wrong("release.json", "the file is damaged", str(error).partition("): ")[2])
        except DirectoryUnfit as error:
            part.skipped("release.json", str(error), NEWER)


def _verify_notes(directory: DataDir, identity: Identity, part: Part) -> dict[int, Note]:
    notes: dict[int, Note] = {}
    root = directory.root / "known"
    with reading(part, "known"):
        for place in sorted(root.iterdir()) if root.is_dir() else ():
            where = f"known/{place.name}"
            found = _KNOWN.fullmatch(place.name)
            if found is None or int(found[1]) >= identity.shards:
                part.remark(where, "is no note of a shard of this node")
            elif found[2] == "json":
                note = read_json(place, Note, part, where, f"{RESTORE}, with its shard")
                if note is not None:
                    notes[int(found[1])] = note
    part.count(len(notes), "note")
    return notes


def read_json(
    place: Path, kind: type[T], part: Part, where: str, action: str, *, is_needed: bool = False
) -> T | None:
    """A file with JSON; None if it is missing or cannot be read."""
    with reading(part, where):
        try:
            return unseal(place.read_bytes(), kind)
        except FileNotFoundError:
            if is_needed:
                part.wrong(where, "the file is missing", action)
        except (msgspec.DecodeError, UnicodeError) as error:
            part.wrong(where, f"the file is damaged: {error}", action)
    return None


def _verify_names(
    directory: DataDir, identity: Identity, known: ClusterMap | None, part: Part
) -> None:
    for place in sorted(directory.root.iterdir()):
        if _REMAINS.fullmatch(place.name):
            part.remark(place.name, "was not finished; the next start removes or replaces it")
        elif not _OURS.fullmatch(place.name):
            part.remark(place.name, "is no file of Corvo")
    here = directory.shards_there()
    placed: Iterable[int] = range(identity.shards)
    if known is not None and len(known.nodes) > 1:
        placed = known.shards_of(identity.node)
    for number in placed:
        if number not in here and directory.known(number).exists():
            action = "restore it, or accept the loss: docs/operations.md, Missing data"
            part.wrong(f"shard-{number}", "the directory is missing", action)
        elif number not in here:
            part.remark(f"shard-{number}", "is not here yet; the next start makes it")
    for number in here:
        if number >= identity.shards:
            action = "put it back where it belongs, or remove it"
            part.wrong(f"shard-{number}", f"the node has {identity.shards} shards", action)
