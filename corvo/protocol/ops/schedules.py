"""Ops on schedules: create or change one, pause, delete, run now, backfill.

A schedule belongs to its queue, and its id says so: `mail~nightly` is the schedule `nightly` of the
queue `mail`. The job of a due time has the time in its id, `mail~nightly@2026-11-19T09:00:00Z`, so
that a due time cannot make two jobs.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from corvo.cron import BadTimetable, timetable
from corvo.ids import full_id
from corvo.model import Schedule
from corvo.protocol.ops.base import (
    Id,
    Limits,
    Millis,
    Nanos,
    Rejected,
    TypedOp,
    bad_request,
    encode_json,
)
from corvo.protocol.ops.checks import bad_chosen_id
from corvo.protocol.ops.enqueue import NewJob
from corvo.times import MS, format_duration

NAME_MAX: Final = 96
"""Characters of a schedule's name: with a due time behind it, it is part of the ids of its jobs."""
SCHEDULES_MAX: Final = 100_000
"""Schedules of one shard."""
PAYLOAD_BYTES_MAX: Final = 64 << 10
"""Largest payload of a schedule. It is stored again with each run."""
JOB_BYTES_MAX: Final = 256 << 10
"""Largest job of a schedule, with the steps of its chain: for the same reason."""
MISSED_MAX: Final = 1_000
"""Largest number of missed due times that are made up for at once."""
BACKFILL_MAX: Final = 1_000
"""Largest number of due times in one backfill."""
MISSED_AFTER_MS_MIN: Final = 100
JITTER_MS_MAX: Final = 24 * 3_600_000

OVERLAPS: Final = {
    "allow": "create the job",
    "skip": "skip the due time",
    "queue": "wait for the end of the last job; of several due times, the first one waits",
    "cancel": "cancel the jobs that have not ended, and create the job",
}
"""What a due time does while a job of an earlier one has not ended."""

MISSED: Final = {
    "skip": "create no job",
    "one": "create one job, for the last of them",
    "all": "create a job for each of the last `missed_max`",
}
"""What follows from due times that the server has missed, because it was not running."""

OVERLAP: Final = "overlap"
MISSED_RUN: Final = "missed"
DUPLICATE: Final = "duplicate"
EXISTS: Final = "exists"
SKIPPED: Final = {
    OVERLAP: "a job of an earlier due time had not ended",
    MISSED_RUN: "the server was not running at the due time",
    DUPLICATE: "another job had the unique key",
    EXISTS: "the job of the due time was there already",
}
"""Why a due time made no job, by the word in a `Run`."""

_NAME: Final = re.compile(f"[A-Za-z0-9_.:-]{{1,{NAME_MAX}}}")


def schedule_id(queue: str, name: str) -> str:
    """The id of a schedule."""
    return full_id(queue, name)


def schedule_of_job(job_id: str) -> str:
    """The id of the schedule that made a job; empty if none did."""
    return job_id.rpartition("@")[0] if "@" in job_id else ""


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as a client defines it."""

    SINCE = 5
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
    cron: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    timezone: Annotated[str, msgspec.Meta(max_length=255)] = "UTC"
    job: NewJob
    overlap: str = "allow"
    missed: str = "one"
    missed_max: Annotated[int, msgspec.Meta(ge=1, le=MISSED_MAX)] = 100
    missed_after_ms: Millis = 60_000
    """How late a due time is missed; one that is less late is fired in any case."""
    jitter_ms: Annotated[int, msgspec.Meta(ge=0, le=JITTER_MS_MAX)] = 0
    starts_ns: Nanos = 0
    ends_ns: Nanos = 0
    paused: bool = False

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The refusal of an invalid schedule; `field` is its place in the op."""
        at = f"{field}." if field else ""
        if not _NAME.fullmatch(self.name):
            allowed = f"1 to {NAME_MAX} letters, digits, '_', '.', ':' and '-'"
            return bad_request(f"{at}name", f"{at}name: expected {allowed}, such as nightly-report")
        own_id = full_id(self.job.queue, self.name)
        refused = bad_chosen_id(f"{at}name", own_id, self.job.queue)
        try:
            table = timetable(self.cron, self.timezone)
        except BadTimetable as error:
            return refused or bad_request(
                f"{at}{error.field}", f"{at}{error.field}: {error.message}"
            )
        refused = refused or self._bad_words(at) or self._bad_job(at, limits)
        if refused is not None:
            return refused
        if self.missed_after_ms < MISSED_AFTER_MS_MIN:
            told = f"{at}missed_after: expected at least 100ms: a job is never created at once"
            return bad_request(f"{at}missed_after", told)
        if self.ends_ns and self.ends_ns <= self.starts_ns:
            return bad_request(f"{at}ends_at", f"{at}ends_at: expected a time after starts_at")
        if self.jitter_ms * MS >= table.shortest_ns:
            shortest = format_duration(table.shortest_ns // MS)
            return bad_request(
                f"{at}jitter",
                f"{at}jitter: expected less than {shortest}, the time between two due times",
            )
        return None

    def _bad_words(self, at: str) -> Rejected | None:
        for field, word, words in (
            ("overlap", self.overlap, OVERLAPS),
            ("missed", self.missed, MISSED),
        ):
            if word not in words:
                expected = ", ".join(words)
                error = f"{at}{field}: expected one of {expected}; got {word!r}"
                return bad_request(f"{at}{field}", error)
        return None

    def _bad_job(self, at: str, limits: Limits) -> Rejected | None:
        job = self.job
        if job.id is not None or job.batch_id or job.depends_on or job.scheduled_ns or job.delay_ms:
            error = f"{at}job: a scheduled job has no id, batch, dependencies or time of its own"
            return bad_request(f"{at}job", error)
        size = len(encode_json(job))
        if size > JOB_BYTES_MAX:
            error = f"{at}job: expected at most {JOB_BYTES_MAX} bytes with its chain; got {size}"
            return Rejected("payload_too_large", error, field=f"{at}job")
        most = min(limits.payload_bytes_max, PAYLOAD_BYTES_MAX)
        return job.check(f"{at}job", replace(limits, payload_bytes_max=most))


def definition(schedule: Schedule) -> NewSchedule:
    """A stored schedule as its client defined it."""
    return NewSchedule(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        job=job_of(schedule),
        overlap=schedule.overlap,
        missed=schedule.missed,
        missed_max=schedule.missed_max,
        missed_after_ms=schedule.missed_after_ms,
        jitter_ms=schedule.jitter_ms,
        starts_ns=schedule.starts_ns,
        ends_ns=schedule.ends_ns,
        paused=schedule.paused,
    )


def defined(new: NewSchedule, before: Schedule) -> Schedule:
    """A stored schedule with another definition."""
    return replace(
        before,
        cron=new.cron,
        timezone=new.timezone,
        job=encode_json(new.job).decode(),
        overlap=new.overlap,
        missed=new.missed,
        missed_max=new.missed_max,
        missed_after_ms=new.missed_after_ms,
        jitter_ms=new.jitter_ms,
        starts_ns=new.starts_ns,
        ends_ns=new.ends_ns,
        paused=new.paused,
    )


_decode_job: Final = msgspec.json.Decoder(NewJob).decode


def job_of(schedule: Schedule) -> NewJob:
    """The job that a schedule creates, without an id and with its payload as it was written.

    The stored one may have the queue of a move that was refused.
    """
    return replace(_decode_job(schedule.job), queue=schedule.queue)


class ScheduleDone(msgspec.Struct, frozen=True):
    """The result for a schedule, and the schedule afterwards; as it was, if it is deleted."""

    status: str
    schedule: Schedule
    job_id: str = ""  # of a run that was asked for


class ScheduleOp(TypedOp[ScheduleDone | Rejected], frozen=True, kw_only=True):
    """An op on a schedule that exists."""

    SINCE = 5
    schedule_id: Id
    unchanged: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of changes that the client has seen: another one is refused; 0 is any."""


class CreateSchedule(TypedOp[ScheduleDone | Rejected], frozen=True, kw_only=True):
    """Create a schedule. The same one again is no second one."""

    NUMBER = 91
    SINCE = 5
    schedule: NewSchedule

    @property
    def is_safe_twice(self) -> bool:
        """The name is known by then."""
        return True

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an invalid definition."""
        return self.schedule.check("", limits)


class ChangeSchedule(ScheduleOp, frozen=True, kw_only=True):
    """Give a schedule another definition. With another queue it moves there, and has a new id."""

    NUMBER = 92
    schedule: NewSchedule

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an invalid definition."""
        return self.schedule.check("", limits)


class PauseSchedule(ScheduleOp, frozen=True, kw_only=True):
    """Pause a schedule, or resume it. Due times within the pause are not made up for."""

    NUMBER = 93
    paused: bool = True

    @property
    def is_safe_twice(self) -> bool:
        """A paused schedule is paused, unless its number of changes matters."""
        return not self.unchanged


class DeleteSchedule(ScheduleOp, frozen=True, kw_only=True):
    """Delete a schedule. Its jobs stay."""

    NUMBER = 94


class RunSchedule(ScheduleOp, frozen=True, kw_only=True):
    """Create a job of a schedule now, beside its due times."""

    NUMBER = 95


class Moment(msgspec.Struct, frozen=True):
    """A due time."""

    SINCE = 5
    due_ns: Nanos
    local: Annotated[str, msgspec.Meta(max_length=40)]
    """The same in the time zone of the schedule."""


class Backfilled(msgspec.Struct, frozen=True):
    """The result of a backfill: the jobs of its due times."""

    created: list[str]
    existing: list[str]  # jobs that were there already
    schedule: Schedule


class BackfillSchedule(TypedOp[Backfilled | Rejected], frozen=True, kw_only=True):
    """Create the jobs of due times in the past. A job that exists is not created again."""

    NUMBER = 96
    SINCE = 5
    schedule_id: Id
    changes: Annotated[int, msgspec.Meta(ge=1)]
    """The number of changes for which the due times were computed."""
    due: Annotated[list[Moment], msgspec.Meta(min_length=1, max_length=BACKFILL_MAX)]

    @property
    def is_safe_twice(self) -> bool:
        """Each job has an id of its own."""
        return True
