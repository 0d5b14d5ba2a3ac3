"""`corvo backup` and `corvo restore`."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from corvo.backup.documents import Documents, Selects
from corvo.backup.restoring import Page, Restoring
from corvo.backup.stored import (
    UNFINISHED,
    backups_in,
    damaged,
    newest_in,
    opened,
    pack,
)
from corvo.backup.taking import remove_left, remove_older, settle, take
from corvo.client.backups import Restored, send_documents
from corvo.client.calls import new_request_key
from corvo.client.errors import BadClientOption
from corvo.client_commands.failures import OK, CommandFailed, disk_failures
from corvo.client_commands.options import Read, Verb, add_yes, natural, own
from corvo.client_commands.progress import Progress
from corvo.client_commands.records import TEXTS
from corvo.client_commands.session import Session
from corvo.client_commands.tables import counted, grouped, plain, table
from corvo.command_table import COMMANDS
from corvo.protocol.backups import Manifest
from corvo.times import format_ms, parse_time
from corvo.verify.backups import BackupReport, open_stores, verify_opened
from corvo.verify.report import DAMAGED, as_text

_TAR: Final = ".tar"
_AHEAD_NS: Final = 60 * 1_000_000_000


class BackupOptions(Read):
    """What the parser has read."""

    to: str | None
    keep: int | None
    no_verify: bool


class RestoreOptions(Read):
    """What the parser has read."""

    backup: str
    queues: list[str]
    api_keys: bool
    dry_run: bool


class Made(msgspec.Struct, kw_only=True):
    """A backup that was made."""

    path: str
    cluster: str
    began_at: str
    bytes_received: int
    bytes_shared: int
    """Bytes of files that an earlier backup in the same folder has."""
    verified: bool
    positions: dict[int, int]
    """By shard, the position in its log: all changes up to it are in the backup."""
    jobs: int | None = None
    removed: list[str] = []
    """Older backups that were removed, and what a killed command had left."""


# corvo backup


def backup(session: Session, options: argparse.Namespace) -> int:
    """`corvo backup`."""
    got = own(BackupOptions, options)
    if got.keep == 0:
        raise BadClientOption("--keep 0 would remove the new backup", "keep at least one")
    with disk_failures(), _ended_by_sigterm():
        where = _Place(got.to, session.now_ns())
        if got.keep is not None and where.archive is not None:
            raise BadClientOption(
                "--keep is for a folder of backups", "pass --to DIR, or remove --keep"
            )
        where.parent.mkdir(parents=True, exist_ok=True)
        left = [] if where.archive else remove_left(where.parent, session.now_ns() / 1e9)
        folder = Path(tempfile.mkdtemp(prefix="backup-", suffix=UNFINISHED, dir=where.parent))
        try:
            made = _make(session, got, where, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        older = remove_older(where.target, got.keep) if got.keep is not None else []
        made.removed = [str(path) for path in left + older]
    session.show(msgspec.json.encode(made), _described(made), (made.path,))
    return OK


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, which removes what is unfinished."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Place:
    """Where a backup goes."""

    def __init__(self, to: str | None, now_ns: int) -> None:
        stamp = _stamp(now_ns)
        path = Path(to) if to is not None else Path(f"corvo-backup-{stamp}{_TAR}")
        self.archive = path if path.suffix == _TAR and not path.is_dir() else None
        self.parent = path.absolute().parent if self.archive is not None else path.absolute()
        if self.archive is not None and self.archive.exists():
            raise CommandFailed(
                "EXISTS", f"{path} exists already", hints=["pass another name, or a folder"]
            )
        if path.exists() and self.archive is None and not path.is_dir():
            raise BadClientOption(
                f"--to {path} is a file", f"pass a folder, or a name that ends with {_TAR}"
            )
        self.earlier = None
        if self.archive is None:
            found = backups_in(self.parent)
            self.earlier = found[-1] if found else None
        name, number = stamp, 1
        while (self.parent / name).exists():
            number += 1
            name = f"{stamp}-{number}"
        self.target = self.archive.absolute() if self.archive is not None else self.parent / name


def _stamp(now_ns: int) -> str:
    return format_ms(now_ns)[:19].replace("-", "").replace(":", "") + "Z"


def _make(session: Session, got: BackupOptions, where: _Place, folder: Path) -> Made:
    progress = Progress("bytes", is_quiet=session.is_quiet)
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress.show(done, None)

    try:
        manifest, received, shared = take(session.client, folder, where.earlier, step)
    finally:
        progress.clear()
    jobs = None
    if not got.no_verify:
        report = _verify(session, str(where.target), folder, manifest)
        jobs = sum(queue.jobs for queue in report.queues)
    if where.archive is not None:
        pack(folder, manifest, where.target)
    else:
        settle(folder, where.target)
    return Made(
        path=str(where.target),
        cluster=manifest.cluster,
        began_at=manifest.began_at,
        bytes_received=received,
        bytes_shared=shared,
        verified=not got.no_verify,
        positions={copy.shard: copy.index for copy in manifest.shards},
        jobs=jobs,
    )


def _verify(session: Session, name: str, folder: Path, manifest: Manifest) -> BackupReport:
    """Check all of a backup. Raises `CommandFailed`."""
    with _counting(session, "checked") as step, tempfile.TemporaryDirectory() as scratch:
        report = verify_opened(name, folder, manifest, Path(scratch), step)
    if report.status == DAMAGED:
        sys.stderr.write(as_text(report))
        raise damaged(name, "see above")
    return report


@contextmanager
def _counting(
    session: Session, noun: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    progress = Progress(noun, is_quiet=session.is_quiet)
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress.show(done, total)

    try:
        yield step
    finally:
        progress.clear()


def _described(made: Made) -> str:
    text = f"{plain(made.path)}\n"
    text += f"  cluster {made.cluster}, as of {made.began_at}\n"
    text += f"  {grouped(made.bytes_received)} bytes received"
    if made.bytes_shared:
        text += f", {grouped(made.bytes_shared)} shared with an earlier backup"
    text += "\n"
    if made.jobs is not None:
        text += f"  verified: {counted(made.jobs, 'job')}\n"
    else:
        text += "  not verified\n"
    for path in made.removed:
        text += f"  removed {plain(path)}\n"
    return text


# corvo restore


class Back(msgspec.Struct, kw_only=True):
    """What came back."""

    backup: str
    began_at: str
    dry_run: bool
    jobs: int
    queues: int
    batches: int
    schedules: int
    spawned: int
    existing: int
    """Jobs that the cluster has already; they were not changed."""
    api_keys: int
    existing_ids: list[str] = []


def restore(session: Session, options: argparse.Namespace) -> int:
    """`corvo restore BACKUP`."""
    got = own(RestoreOptions, options)
    path = newest_in(Path(got.backup))
    selects = _selection(got.queues)
    with (
        disk_failures(),
        _ended_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="corvo-restore-") as made,
    ):
        scratch = Path(made)
        with opened(path, scratch) as (folder, manifest):
            _refuse_future(manifest, session.now_ns(), str(path))
            (scratch / "checked").mkdir()
            with _counting(session, "checked") as step:
                report = verify_opened(str(path), folder, manifest, scratch / "checked", step)
            if report.status == DAMAGED:
                sys.stderr.write(as_text(report))
                raise damaged(path, "see above")
            with open_stores(folder, manifest, scratch) as stores:
                documents = Documents(stores, selects)
                # A queue may have schedules or settings, and no job.
                found = (documents.queues(), documents.jobs(), documents.spawns())
                if got.queues and not any(True for each in found for _ in each):
                    raise CommandFailed(
                        "NOT_FOUND",
                        f"{path} has no queue {' or '.join(got.queues)}",
                        hints=[f"see its queues with jobs:   corvo verify {path} -o json"],
                    )
                back = _bring_back(session, got, path, manifest, report, documents, selects)
    session.show(msgspec.json.encode(back), _told(back))
    return OK


def _selection(patterns: list[str]) -> Selects | None:
    if not patterns:
        return None
    return lambda queue: any(fnmatchcase(queue, pattern) for pattern in patterns)


def _refuse_future(manifest: Manifest, now_ns: int, path: str) -> None:
    """Raise `CommandFailed` for a backup of later than now: a clock is wrong."""
    at_ns = parse_time(manifest.began_at)
    if at_ns is None or at_ns > now_ns + _AHEAD_NS:
        raise CommandFailed(
            "CLOCK_WRONG",
            f"{path} is of {manifest.began_at}, which is later than now: the clock of this machine"
            " or of the cluster that made it is wrong",
            hints=["set the clock, and repeat the command"],
        )


def _bring_back(
    session: Session,
    got: RestoreOptions,
    path: Path,
    manifest: Manifest,
    report: BackupReport,
    documents: Documents,
    selects: Selects | None,
) -> Back:
    wanted = [queue for queue in report.queues if selects is None or selects(queue.queue)]
    jobs = sum(queue.jobs for queue in wanted)
    back = Back(
        backup=str(path),
        began_at=manifest.began_at,
        dry_run=got.dry_run,
        jobs=jobs,
        queues=sum(1 for _ in documents.queues()),
        batches=sum(1 for _ in documents.batches()),
        schedules=sum(1 for _ in documents.schedules()),
        spawned=sum(1 for _ in documents.spawns()),
        existing=0,
        api_keys=sum(1 for _ in documents.api_keys()) if got.api_keys else 0,
    )
    if not session.is_json:
        rows = [
            (queue.queue, *(grouped(queue.states.get(state, 0)) for state in _SHOWN))
            for queue in wanted
        ]
        session.note(table(("QUEUE", *(state.upper() for state in _SHOWN)), rows).rstrip())
    if got.dry_run:
        return back
    target = session.client.server.url
    session.confirm(
        lambda: (
            f"{counted(jobs, 'job')} of {manifest.began_at} will be added to the cluster at"
            f" {target}; what it has is not changed, and workers get the jobs at once"
        ),
        f"Restore {path.name}?",
        f"corvo restore {path}",
    )

    def send(page: Page, request_key: str) -> Restored:
        # A request whose answer was lost is repeated, without a second effect.
        return send_documents(session.client, page, request_key=request_key or new_request_key())

    with _counting(session, "restored", jobs) as step:
        shards = len(manifest.shards)
        restoring = Restoring(send, documents, cluster=manifest.cluster, shards=shards, step=step)
        done = restoring.run(with_api_keys=got.api_keys)
    back.jobs, back.queues, back.batches = done.jobs, done.queues, done.batches
    back.schedules, back.spawned, back.existing = done.schedules, done.spawned, done.existing
    back.existing_ids, back.api_keys = done.existing_ids, done.api_keys
    return back


_SHOWN: Final = (
    "pending",
    "active",
    "held",
    "scheduled",
    "retrying",
    "completed",
    "dead",
    "cancelled",
)


def _told(back: Back) -> str:
    did = "would come back" if back.dry_run else "came back"
    parts = [counted(back.jobs, "job"), counted(back.queues, "queue")]
    if back.batches:
        parts.append(counted(back.batches, "batch", "batches"))
    if back.schedules:
        parts.append(counted(back.schedules, "schedule"))
    if back.spawned:
        parts.append(f"{counted(back.spawned, 'job')} that others were about to create")
    if back.api_keys:
        parts.append(counted(back.api_keys, "API key"))
    text = f"{', '.join(parts)} {did}, as of {back.began_at}\n"
    if back.existing:
        text += f"{counted(back.existing, 'job')} existed already, and were not changed\n"
        text += "".join(f"  {plain(job_id)}\n" for job_id in back.existing_ids[:5])
    return text


# Options.


def _add_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="DIR|FILE.tar",
        help="folder of backups, which share what has not changed, or a file"
        " (default: a file in this folder)",
    )
    parser.add_argument(
        "--keep", type=natural, metavar="N", help="remove the oldest ones of the folder beyond N"
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="do not check the documents and keys"
    )


def _add_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "backup", metavar="BACKUP", help="a backup, or a folder of backups, of which the newest"
    )
    parser.add_argument(
        "--queue",
        dest="queues",
        action="append",
        default=[],
        metavar="QUEUE",
        help="only this queue; * stands for any letters; can be repeated",
    )
    parser.add_argument(
        "--api-keys",
        action="store_true",
        help="also API keys; after that, an open server needs one",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only check it, and show what it has"
    )
    add_yes(parser)


VERBS: Final = {
    "backup": Verb(
        COMMANDS["backup"].summary,
        backup,
        _add_backup,
        TEXTS,
        ("corvo backup", "corvo backup --to /var/backups/corvo --keep 14"),
    ),
    "restore": Verb(
        COMMANDS["restore"].summary,
        restore,
        _add_restore,
        TEXTS,
        (
            "corvo restore /var/backups/corvo --dry-run",
            "corvo restore corvo-backup-20260220T100000Z.tar --queue 'mail*'",
        ),
    ),
}
