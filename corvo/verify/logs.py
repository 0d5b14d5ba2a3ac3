"""Check of a shard's log: every record, and that it is the log that the node knows of."""

from pathlib import Path
from typing import Final

from corvo.datadir import Identity
from corvo.raft.checksum import chain
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.inspection import Inspected, inspect
from corvo.raft.errors import RaftError
from corvo.raft.messages import Entry, Kind
from corvo.shard.driver.known import Note
from corvo.shard.state import entry
from corvo.verify.node_files import OWNER
from corvo.verify.report import REPLACE, Part

OTHERS: Final = (
    "with other replicas: start the node, which gets the shard from them again; if the shard stays"
    f" down or is still damaged, {REPLACE}. Without: restore a backup of the whole directory"
)
LOSS: Final = "put the directory of the last stop back: docs/operations.md, Missing data"
_FORBIDDEN: Final = "Permission denied"


def verify_log(
    root: Path, number: int, identity: Identity, note: Note | None, part: Part
) -> tuple[Inspected, RealFiles] | None:
    """Check a log directory; the files stay open for its entries."""
    name = f"{root.parent.name}/{root.name}"
    try:
        files = RealFiles(root, is_read_only=True)
    except FileNotFoundError:
        part.wrong(name, "the directory is missing", OTHERS)
        return None
    except OSError as error:
        part.skipped(name, f"cannot be read: {error.strerror}", OWNER)
        return None
    try:
        found = inspect(files)
    except (RaftError, OSError) as error:
        files.close()
        part.skipped(name, str(error), OWNER)
        return None
    for finding in found.findings:
        at = f" at offset {finding.offset}" if finding.offset else ""
        at += f", entry {finding.index}" if finding.index else ""
        where = f"{name}/{finding.file}"
        if finding.is_harmless:
            part.remark(where + at, finding.problem)
        elif _FORBIDDEN in finding.problem:
            part.skipped(where, finding.problem, OWNER)
        else:
            part.wrong(where + at, finding.problem, OTHERS)
    part.count(found.files, "file of its log", "files of its log")
    _check_identity(found, number, identity, name, part)
    _check_entries(found, name, part)
    if note is not None:
        _check_note(found, note, name, part)
    return found, files


def _check_identity(
    found: Inspected, number: int, identity: Identity, name: str, part: Part
) -> None:
    if found.identity is None:
        return
    wanted = (f"{identity.cluster}/{number}/{identity.shards}", identity.node)
    if (found.identity.cluster, found.identity.replica) != wanted:
        cluster, shard, _ = (*found.identity.cluster.rsplit("/", 2), "", "")[:3]
        whose = f"it belongs to shard {shard} of node {found.identity.replica} of {cluster}"
        part.wrong(f"{name}/identity", whose, "put each directory back in its place")


def _check_entries(found: Inspected, name: str, part: Part) -> None:
    """Decode every entry that is intact."""
    count = 0
    try:
        for page in found.pages(found.first_index, found.last_index):
            count += len(page)
            for one in page:
                problem = _problem(one)
                if problem:
                    part.wrong(f"{name}, entry {one.index}", problem, OTHERS)
    except RaftError as error:
        part.wrong(name, str(error), OTHERS)
    part.count(count, "entry", "entries")


def _problem(one: Entry) -> str:
    if one.kind is Kind.NORMAL and one.data:
        try:
            entry.decode(one.data)
        except entry.BadEntry as error:
            return f"is not an entry of a shard: {error}"
    return ""


def _check_note(found: Inspected, note: Note, name: str, part: Part) -> None:
    """The log has what the node noted."""
    if found.identity is None or not found.is_whole:
        return  # its damage is told
    manifest = found.manifest
    assert manifest is not None, "without it, nothing is whole"
    if manifest.repairing:
        return
    problem = ""
    if found.identity.instance != note.instance:
        problem = "it was created again"
    elif found.last_index < note.index:
        problem = f"it is an older copy, which ends at entry {found.last_index}"
    elif found.first_index <= note.index > manifest.base.index and note.checksum is not None:
        [[noted]] = found.pages(note.index, note.index)
        if chain(chain(0, noted.term.to_bytes(8, "little")), noted.data) != note.checksum:
            problem = "it is a copy that was changed elsewhere"
    if problem:
        part.wrong(name, f"{problem}, and the node knows of entries up to {note.index}", LOSS)
