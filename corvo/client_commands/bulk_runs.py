"""One action on many jobs: bulk operations that are started batch by batch, and followed."""

import time
from collections.abc import Iterable, Mapping
from threading import Event
from typing import Final

import msgspec

from corvo.client import bulk as api
from corvo.client.calls import new_request_key
from corvo.client.errors import Unreachable
from corvo.client_commands.failures import CommandFailed
from corvo.client_commands.progress import Progress
from corvo.client_commands.session import Session
from corvo.client_commands.tables import grouped

BATCH: Final = 5_000
"""Ids of one bulk operation that is made of a pipe."""
_LOOKS_S: Final = (0.05, 0.1, 0.2, 0.4)
_SKIPPED_KEPT: Final = 1_000


class Tally(msgspec.Struct):
    """What has become of the jobs so far."""

    processed: int = 0
    affected: int = 0
    errors: int = 0
    skipped_total: int = 0
    by_code: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: list[api.Skipped] = msgspec.field(default_factory=list)
    """The first of them."""
    bulks: list[str] = msgspec.field(default_factory=list)

    def add(self, done: api.Bulk, processed: int) -> None:
        """Count a bulk operation that has ended."""
        self.processed += processed
        self.affected += done.affected
        self.errors += done.errors
        self.skipped_total += done.skipped_total
        for code, count in done.by_code.items():
            self.by_code[code] = self.by_code.get(code, 0) + count
        self.skipped += done.skipped[: _SKIPPED_KEPT - len(self.skipped)]

    def change(self) -> None:
        """Count a job that was changed."""
        self.processed += 1
        self.affected += 1

    def skip(self, job_id: str, code: str, error: str) -> None:
        """Count a job that was left unchanged."""
        self.processed += 1
        self.skipped_total += 1
        self.by_code[code] = self.by_code.get(code, 0) + 1
        if len(self.skipped) < _SKIPPED_KEPT:
            self.skipped.append(api.Skipped(job_id=job_id, code=code, error=error))

    def text(self, done: str) -> str:
        """A sentence: `retried 12, skipped 3 (bad_state 3), errors 0`."""
        codes = ", ".join(f"{code} {grouped(self.by_code[code])}" for code in sorted(self.by_code))
        return (
            f"{done} {grouped(self.affected)}, skipped {grouped(self.skipped_total)}"
            f"{f' ({codes})' if codes else ''}, errors {grouped(self.errors)}"
        )


def continue_hints(tally: Tally, command: str) -> tuple[str, str]:
    """How to continue with the ids of a pipe after an interruption.

    A search that is repeated may no longer list the jobs that were changed, so lines must only be
    left out of a list that stays.
    """
    return (
        "continue: repeat the whole command; jobs that were changed are skipped",
        f"or, with the ids in a file:   tail -n +{tally.processed + 1} FILE | {command}",
    )


class Detached(Exception):
    """Ctrl-C: the command ends, and a bulk operation may continue on the server."""

    def __init__(self, bulk_id: str) -> None:
        super().__init__(bulk_id)
        self.bulk_id = bulk_id


def run_filter(
    session: Session, action: Mapping[str, object], tally: Tally, interrupted: Event
) -> api.Bulk:
    """One bulk operation on the jobs that match a filter. Raises `Detached`."""
    progress = Progress("jobs", is_quiet=session.is_quiet)
    begun = start(session, action)
    tally.bulks.append(begun.id)
    try:
        done = follow(session, begun, progress, interrupted)
    finally:
        progress.clear()
    tally.add(done, done.processed)
    return done


def run_ids(
    session: Session,
    action: Mapping[str, object],
    batches: Iterable[list[str]],
    tally: Tally,
    interrupted: Event,
) -> None:
    """Bulk operations on batches of ids, one after the other. Raises `Detached`.

    A batch is read once the one before has ended, so a pipe is only read as fast as it is used.
    """
    progress = Progress("jobs", is_quiet=session.is_quiet)
    try:
        for batch in batches:
            begun = start(session, {**action, "job_ids": batch})
            tally.bulks += [begun.id] if begun.id else []
            done = follow(session, begun, progress, interrupted, done_before=tally.processed)
            tally.add(done, len(batch))
            if done.status == "failed":
                raise CommandFailed("FAILED", f"bulk operation {done.id} failed: {done.error}")
            if interrupted.is_set():
                raise Detached("")
    finally:
        progress.clear()
    if interrupted.is_set():
        raise Detached("")


def start(session: Session, action: Mapping[str, object]) -> api.Bulk:
    """Start a bulk operation in the background."""
    return api.start(session.client, {**action, "async": True}, request_key=new_request_key())


def follow(
    session: Session,
    begun: api.Bulk,
    progress: Progress,
    interrupted: Event,
    *,
    done_before: int | None = None,
) -> api.Bulk:
    """Wait until a bulk operation has ended; servers may restart meanwhile. Raises `Detached`.

    `done_before` is the number of jobs before those of this one, if it is a part of a pipe.
    """
    now, looks = begun, 0
    while not now.has_ended:
        if interrupted.is_set():
            raise Detached(begun.id)
        # The server has no request that waits for the end of a bulk operation.
        time.sleep(_LOOKS_S[min(looks, len(_LOOKS_S) - 1)])
        looks += 1
        try:
            now = api.read_bulk(session.client, begun.id)
        except Unreachable as error:
            session.note(f"{error.message}; the bulk operation continues on the server")
            continue
        if done_before is None:
            progress.show(now.processed, now.total)
        else:
            progress.show(done_before + now.processed, None)
    return now
