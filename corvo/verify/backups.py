"""Check of a backup: its files, all documents and keys of its copies, and how the copies fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from corvo import clock
from corvo.backup.digests import Digests, QueueDigest
from corvo.backup.documents import Documents
from corvo.backup.stored import opened, problems_of
from corvo.errors import CorvoError, StoreError
from corvo.kv import stopped
from corvo.kv.store import Store
from corvo.kv.tables import read_meta
from corvo.protocol.backups import Manifest, ShardCopy, folder_of
from corvo.verify.members import MemberCounts
from corvo.verify.report import Part, Report, insist_on_room
from corvo.verify.shards import Together, verify_shard, verify_together
from corvo.verify.states import OpenState

ACTION: Final = "use another backup, or another copy of this one"


class BackupReport(Report):
    """The report of a backup."""

    began_at: str = ""
    """Time at which the backup was begun."""
    cluster: str = ""
    queues: tuple[QueueDigest, ...] = ()


def verify_backup(path: Path, scratch: Path, step: Callable[[int], None]) -> BackupReport:
    """Check everything in a backup; `scratch` is an empty directory. Raises `ClientError`."""
    with opened(path, scratch) as (folder, manifest):
        return verify_opened(str(path), folder, manifest, scratch, step)


def verify_opened(
    name: str, folder: Path, manifest: Manifest, scratch: Path, step: Callable[[int], None]
) -> BackupReport:
    """The same for a backup that was read already."""
    began_ns = clock.steady_ns()
    report = BackupReport(name, began_at=manifest.began_at, cluster=manifest.cluster)
    files = report.part("files")
    for where, problem in problems_of(folder, manifest):
        files.wrong(where, problem, ACTION)
    files.count(sum(len(copy.files) for copy in manifest.shards), "file")
    if not files.damage_count:
        with open_stores(folder, manifest, scratch, report) as stores:
            _verify_stores(manifest, stores, report, step)
    report.settle()
    report.seconds = (clock.steady_ns() - began_ns) / 1e9
    return report


@contextmanager
def open_stores(
    folder: Path, manifest: Manifest, scratch: Path, report: Report | None = None
) -> Iterator[dict[int, Store]]:
    """The copies of all shards, as stores in the scratch directory."""
    stores: dict[int, Store] = {}
    try:
        for copy in manifest.shards:
            part = report.part(f"shard {copy.shard}") if report is not None else None
            try:
                stores[copy.shard] = _open(folder, copy, scratch / f"copy-{copy.shard}")
            except StoreError as error:
                insist_on_room(error)
                if part is None:
                    raise
                part.wrong(folder_of(copy.shard), str(error), ACTION)
        yield stores
    finally:
        for store in stores.values():
            store.close()


def _open(folder: Path, copy: ShardCopy, scratch: Path) -> Store:
    if not copy.files:
        return stopped.open_empty(scratch)
    return stopped.open_copy((folder / folder_of(copy.shard)).absolute(), scratch)


def _verify_stores(
    manifest: Manifest, stores: dict[int, Store], report: BackupReport, step: Callable[[int], None]
) -> None:
    parts = {number: report.parts[1 + number] for number in range(len(manifest.shards))}
    states = {
        number: OpenState(store, manifest.shards[number].index, is_current=True)
        for number, store in stores.items()
        if _is_of_index(store, manifest.shards[number], parts[number])
    }
    together = Together(states, shards=len(manifest.shards))
    between = report.part("between shards")
    try:
        together.look()
    except (CorvoError, msgspec.MsgspecError) as error:
        between.wrong("effects", f"cannot be read: {error}", ACTION)
        return
    with MemberCounts() as members:
        for number, state in states.items():
            verify_shard(number, state, together, members, parts[number], step)
        verify_together(together, members, between)
    if not any(part.damage_count for part in report.parts):
        digests = Digests()
        for stored in Documents(stores).jobs():
            digests.add(stored)
            step(1)
        report.queues = (*digests.queues(),)


def _is_of_index(store: Store, copy: ShardCopy, part: Part) -> bool:
    try:
        applied = read_meta(store).applied
    except StoreError as error:
        part.wrong(folder_of(copy.shard), str(error), ACTION)
        return False
    if applied != copy.index:
        problem = f"it is of entry {applied}, and the manifest says {copy.index}"
        part.wrong(folder_of(copy.shard), problem, ACTION)
        return False
    return True
