"""`corvo verify`: whether a stopped data directory is whole, a backup, or a running cluster."""

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from corvo.backup.stored import is_backup
from corvo.client.calls import Client
from corvo.client.errors import BadClientOption
from corvo.client_commands.failures import FAILED, OK, UNHEALTHY, disk_failures
from corvo.client_commands.options import Read, Verb, own
from corvo.client_commands.progress import Progress
from corvo.client_commands.records import TEXTS
from corvo.client_commands.session import Session
from corvo.command_table import COMMANDS
from corvo.verify.backups import verify_backup
from corvo.verify.directories import verify_directory
from corvo.verify.live import verify_cluster
from corvo.verify.report import DAMAGED, WHOLE, Report, as_text

_ADDRESS: Final = re.compile(r"https?://.*|[^/]+:[0-9]+(,[^/]+:[0-9]+)*")


class Options(Read):
    """What the parser has read."""

    target: str
    scratch: str | None


def verify(session: Session, options: argparse.Namespace) -> int:
    """`corvo verify`."""
    got = own(Options, options)
    progress = Progress("checked", is_quiet=session.is_quiet)
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress.show(done, None)

    try:
        report = _verify(session, options, got, step)
    finally:
        progress.clear()
    session.show(msgspec.json.encode(report), as_text(report))
    if report.status == DAMAGED:
        return FAILED
    return OK if report.status == WHOLE else UNHEALTHY


def _verify(
    session: Session, options: argparse.Namespace, got: Options, step: Callable[[int], None]
) -> Report:
    if _ADDRESS.fullmatch(got.target) and not Path(got.target).exists():

        def connect(address: str) -> Client:
            # As with --server: the API key of a profile goes to its own servers alone.
            options.server = [address]
            return session.another_client()

        return verify_cluster(connect, got.target, step)
    if got.scratch is not None and not Path(got.scratch).is_dir():
        raise BadClientOption(f"--scratch {got.scratch} is not a directory", "create it first")
    with (
        disk_failures(),
        tempfile.TemporaryDirectory(prefix="corvo-verify-", dir=got.scratch) as made,
    ):
        if is_backup(Path(got.target)):
            return verify_backup(Path(got.target), Path(made), step)
        return verify_directory(Path(got.target), Path(made), step)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="DIR|URL",
        help="data directory of a stopped server, a backup, or address of a running server",
    )
    parser.add_argument(
        "--scratch",
        metavar="DIR",
        help="where copies are made and removed; the mirror needs its size there (default: TMPDIR)",
    )


VERBS: Final = {
    "verify": Verb(
        COMMANDS["verify"].summary,
        verify,
        _add,
        TEXTS,
        (
            "corvo verify /var/lib/corvo",
            "corvo verify https://q1.example.net,https://q2.example.net -o json",
        ),
    )
}
