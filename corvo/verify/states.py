"""Check of a shard's state: its checkpoints, and the state that the next start would have."""

from pathlib import Path
from typing import Final, NamedTuple

from corvo.errors import CorvoError, StoreDamaged, StoreError
from corvo.kv import directories, stopped
from corvo.kv.level import LevelStore
from corvo.kv.stopped import Standing
from corvo.kv.store import Store
from corvo.kv.tables import read_meta
from corvo.raft.disk.inspection import Inspected
from corvo.raft.disk.manifest import Manifest
from corvo.raft.errors import RaftError
from corvo.raft.messages import Entry, Kind
from corvo.shard.driver.poison import Suspect
from corvo.shard.machine import Machine
from corvo.verify.logs import OTHERS
from corvo.verify.node_files import OWNER, read_json
from corvo.verify.report import REPLACE, Part, insist_on_room

REPLACE_LIVE: Final = (
    "nothing, if the log and the newest checkpoint are whole: the next start makes it again of them"
)
OLDER: Final = (
    "put back the directories `log` and `state` of one time, or restore a backup of the whole"
    f" directory; with other replicas, {REPLACE}"
)
_TRUSTED: Final = ("running", "live", "LOCK")


class OpenState(NamedTuple):
    """A state in a scratch directory, with all entries of the log applied."""

    store: Store
    applied: int
    is_current: bool
    """Whether it has all that the log has."""


def open_state(
    root: Path,
    scratch: Path,
    log: Inspected | None,
    part: Part,
    *,
    shard: int,
    shards: int,
    boot_id: str,
    is_alone: bool,
) -> OpenState | None:
    """Check the files of a state, and open it as the next start would."""
    name = f"{root.parent.name}/{root.name}"
    try:
        if not directories.exists(root):
            part.wrong(name, "the directory is missing", OTHERS)
            return None
        standing = stopped.standing_of(root, boot_id)
        _check_files(root, name, standing, part)
        store = _open(root, name, scratch, standing, log, part)
    except StoreError as error:
        insist_on_room(error)
        if "Permission denied" in str(error):
            part.skipped(name, str(error), OWNER)
        else:
            part.wrong(name, str(error), OTHERS)
        return None
    if store is None:
        return None
    read_json(root.parent / "poison", Suspect, part, f"{root.parent.name}/poison", "remove it")
    return _bring_up(store, name, log, part, shard=shard, shards=shards, is_alone=is_alone)


def _check_files(root: Path, name: str, standing: Standing, part: Part) -> None:
    for kind, indexes in (("checkpoint", standing.checkpoints), ("installed", standing.installed)):
        for index in indexes:
            place = root / f"{kind}-{index}"
            for file, problem in stopped.damaged_files(place):
                action = (
                    "remove the directory of the checkpoint, if all else of the shard is whole: the"
                    f" server makes another one. Otherwise, {OTHERS}"
                )
                part.wrong(f"{name}/{place.name}/{file}", problem, action)
    part.count(len(standing.checkpoints) + len(standing.installed), "checkpoint")
    if standing.live_damage:
        part.wrong(f"{name}/live", standing.live_damage, REPLACE_LIVE)
    elif standing.after not in {"nothing", "clean stop"}:
        used = "it continues with its state"
        if standing.source != "live":
            used = "the next start begins with the newest checkpoint and the log"
        part.remark(name, f"the shard was not stopped ({standing.after}); {used}")
    numbered = [f"checkpoint-{index}" for index in standing.checkpoints]
    numbered += [f"installed-{index}" for index in standing.installed]
    for file in directories.names(root):
        if file.endswith(".unfinished"):
            part.remark(f"{name}/{file}", "was not finished; the next start removes it")
        elif file not in {*_TRUSTED, *numbered}:
            part.remark(f"{name}/{file}", "is no file of a state")


def _open(
    root: Path, name: str, scratch: Path, standing: Standing, log: Inspected | None, part: Part
) -> LevelStore | None:
    """The state that the next start takes; the newest checkpoint if the live one does not open."""
    source = standing.source
    if source == "live":
        try:
            store = stopped.open_copy(root / source, scratch)
            read_meta(store)
        except StoreDamaged as error:
            part.wrong(f"{name}/live", str(error), REPLACE_LIVE)
            source = f"checkpoint-{standing.checkpoints[-1]}" if standing.checkpoints else ""
            scratch = scratch.with_name(f"{scratch.name}-again")
        else:
            return store
    if source:
        return stopped.open_copy(root / source, scratch)
    if log is not None and log.manifest is not None and log.manifest.base.index:
        if not _is_in_snapshot(log.manifest, name, 0, part):
            part.wrong(name, "there is no state, and the log begins later", OLDER)
        return None
    return stopped.open_empty(scratch)


def _is_in_snapshot(manifest: Manifest, name: str, applied: int, part: Part) -> bool:
    """Whether the next start makes the state of a snapshot, which was checked with the log."""
    stored = manifest.snapshot
    if stored is None or stored.snapshot.index < manifest.base.index:
        return False
    told = f"the state is at entry {applied}; the next start makes it of the snapshot in the log"
    part.remark(name, told)
    return True


def _bring_up(
    store: LevelStore,
    name: str,
    log: Inspected | None,
    part: Part,
    *,
    shard: int,
    shards: int,
    is_alone: bool,
) -> OpenState:
    """Compare a state with its log, and apply the entries that it does not have."""
    try:
        meta = read_meta(store)
    except StoreDamaged as error:
        part.wrong(name, str(error), REPLACE_LIVE)
        return OpenState(store, 0, is_current=False)
    if log is None or log.manifest is None or not log.is_whole:
        return OpenState(store, meta.applied, is_current=False)
    base, last = log.manifest.base, log.last_index
    if meta.applied < base.index:
        if _is_in_snapshot(log.manifest, name, meta.applied, part):
            return OpenState(store, meta.applied, is_current=False)
        problem = f"the state is at entry {meta.applied}, and the log begins after {base.index}"
        part.wrong(name, problem, OLDER)
        return OpenState(store, meta.applied, is_current=False)
    if meta.applied > last:
        problem = f"the state is at entry {meta.applied}, and the log ends at {last}"
        part.wrong(name, problem, OLDER)
        return OpenState(store, meta.applied, is_current=False)
    if meta.applied >= log.first_index:
        try:
            [[entry]] = log.pages(meta.applied, meta.applied)
        except (RaftError, ValueError) as error:
            part.wrong(name, str(error), OTHERS)
        else:
            if entry.term != meta.term:
                problem = f"entry {meta.applied} is of term {entry.term}, in the state {meta.term}"
                part.wrong(name, problem, OLDER)
    commit = log.hard_state.commit if log.hard_state is not None else 0
    end = last if is_alone else max(meta.applied, min(commit, last))
    return _replay(store, name, log, part, shard=shard, shards=shards, end=end)


def _replay(
    store: LevelStore, name: str, log: Inspected, part: Part, *, shard: int, shards: int, end: int
) -> OpenState:
    try:
        machine = Machine(store, shard=shard, shards=shards)
    except (CorvoError, ValueError) as error:
        insist_on_room(error)
        part.wrong(name, f"the state cannot be used: {error}", REPLACE_LIVE)
        return OpenState(store, read_meta(store).applied, is_current=False)
    begin = machine.applied
    try:
        for page in log.pages(begin + 1, end):
            for entry in page:
                _apply(machine, entry)
    except (CorvoError, RaftError, AssertionError, LookupError, TypeError, ValueError) as error:
        insist_on_room(error)
        problem = f"entry {machine.applied + 1} of the log cannot be applied: {error}"
        part.wrong(name, problem, "docs/operations.md, An entry that cannot be applied")
        return OpenState(store, machine.applied, is_current=False)
    if end > begin:
        part.count(end - begin, "entry applied to a copy", "entries applied to a copy")
    return OpenState(store, end, is_current=True)


def _apply(machine: Machine, entry: Entry) -> None:
    if entry.kind is Kind.NORMAL and entry.data:
        machine.apply(index=entry.index, term=entry.term, data=entry.data)
    else:
        machine.skip(index=entry.index, term=entry.term)
