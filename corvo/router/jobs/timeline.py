"""The timeline of a job: its trail and its errors in one list, with the time that each phase took.

A job is in one *phase* at a time: queued, running, waiting for its time, for another job or for an
approval, or ended. If an event leaves the phase open, the next event decides it: a job that was
promoted had been waiting for its time.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from corvo.model import TRAIL_MAX, Event, EventType, Job, State
from corvo.protocol.jobs import ErrorBody, Time, error_bodies
from corvo.protocol.queries import StoredJob
from corvo.times import MS, format_time

QUEUED: Final = "queued"
RUNNING: Final = "running"
SCHEDULED: Final = "scheduled"
RETRYING: Final = "retrying"
BLOCKED: Final = "blocked"
HELD: Final = "held"
ENDED: Final = "ended"
UNKNOWN: Final = "unknown"

_ERROR: Final = "error"
"""Instead of an event, for an error whose event is no longer in the trail."""
PHASES: Final = {
    EventType.STARTED.stored: RUNNING,
    EventType.FAILED.stored: RETRYING,
    EventType.SNOOZED.stored: SCHEDULED,
    EventType.RELEASED.stored: QUEUED,
    EventType.CRASHED.stored: QUEUED,
    EventType.CONTINUED.stored: QUEUED,
    EventType.PROMOTED.stored: QUEUED,
    EventType.READY.stored: QUEUED,
    EventType.RETRIED.stored: QUEUED,
    EventType.REQUEUED.stored: QUEUED,
    EventType.APPROVED.stored: QUEUED,
    EventType.HELD.stored: HELD,
    EventType.COMPLETED.stored: ENDED,
    EventType.DEAD.stored: ENDED,
    EventType.CANCELLED.stored: ENDED,
    EventType.REJECTED.stored: ENDED,
    _ERROR: UNKNOWN,
}
"""Events after which the phase of a job is certain."""
BESIDE: Final = frozenset(
    {
        EventType.ASKED_TO_STOP.stored,
        EventType.PRIORITY.stored,
        EventType.MOVED.stored,
        EventType.ARRIVED.stored,
    }
)
"""Events that leave a job in its phase."""
_UNTIL: Final = {
    EventType.PROMOTED.stored: SCHEDULED,
    EventType.RETRIED.stored: SCHEDULED,
    EventType.READY.stored: BLOCKED,
}
"""Phases of a job that was put into its queue, by the event that ended the phase."""
_STATES: Final = {
    State.PENDING: QUEUED,
    State.ACTIVE: RUNNING,
    State.HELD: HELD,
    State.SCHEDULED: SCHEDULED,
    State.RETRYING: RETRYING,
    State.COMPLETED: ENDED,
    State.DEAD: ENDED,
    State.CANCELLED: ENDED,
}


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a job."""

    at: Time
    what: str
    by: str = ""
    why: str = ""
    phase: str
    ms: int | None = None
    error: ErrorBody | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events of a job, the oldest first."""

    job_id: str
    queue: str
    state: State
    moments: list[Moment]
    phases_ms: dict[str, int]
    is_cut: bool = False
    """Whether events after the first one may be missing: a trail keeps the first and the last."""


def timeline(view: StoredJob, now_ns: int) -> Timeline:
    """The timeline of a job, up to now."""
    trail = list(view.trail)
    is_cut = len(trail) >= TRAIL_MAX
    events, errors = _merge(
        trail, error_bodies(view.job, view.errors), [error.at_ns for error in view.errors]
    )
    phases = _phases(events, view.job)
    if is_cut and len(events) > 1:
        phases[0] = UNKNOWN
    moments: list[Moment] = []
    sums_ns: dict[str, int] = {}
    for number, (event, phase) in enumerate(zip(events, phases, strict=True)):
        until_ns = events[number + 1].at_ns if number + 1 < len(events) else now_ns
        spent_ns = None if phase in {ENDED, UNKNOWN} else max(0, until_ns - event.at_ns)
        if spent_ns is not None:
            sums_ns[phase] = sums_ns.get(phase, 0) + spent_ns
        moments.append(
            Moment(
                at=format_time(event.at_ns),
                what=event.what,
                by=event.by,
                why=event.why,
                phase=phase,
                ms=None if spent_ns is None else spent_ns // MS,
                error=errors.get(number),
            )
        )
    return Timeline(
        job_id=view.job.id,
        queue=view.job.queue,
        state=view.job.state,
        moments=moments,
        phases_ms={phase: spent_ns // MS for phase, spent_ns in sums_ns.items()},
        is_cut=is_cut,
    )


def _merge(
    trail: Sequence[Event], errors: Sequence[ErrorBody], times_ns: Sequence[int]
) -> tuple[list[Event], dict[int, ErrorBody]]:
    """Events in order, and errors by the position of their events.

    An error has the time of its event, because the same op writes both. An error whose event is no
    longer in the trail is an event of its own.
    """
    alone = [
        (Event(at_ns, _ERROR, error.worker_id, error.error_class), error)
        for error, at_ns in zip(errors, times_ns, strict=True)
    ]
    merged: list[tuple[Event, ErrorBody | None]] = [(event, None) for event in trail]
    for event, error in alone:
        places = [
            place
            for place, (other, known) in enumerate(merged)
            if other.at_ns == event.at_ns and known is None and other.what not in BESIDE
        ]
        if places:
            merged[places[0]] = (merged[places[0]][0], error)
        else:
            merged.append((event, error))
    merged.sort(key=lambda each: each[0].at_ns)  # stable: those of one time keep their order
    found = {place: error for place, (_, error) in enumerate(merged) if error is not None}
    return [event for event, _ in merged], found


def _phases(events: Sequence[Event], job: Job) -> list[str]:
    """The phase after each event."""
    phases: list[str] = []
    for number, event in enumerate(events):
        certain = PHASES.get(event.what)
        if certain is not None:
            phases.append(certain)
        elif event.what in BESIDE and phases:
            phases.append(phases[-1])
        else:
            phases.append(_told_later(events[number + 1 :], job))
    return phases


def _told_later(later: Sequence[Event], job: Job) -> str:
    following = next((event.what for event in later if event.what not in BESIDE), None)
    if following is not None:
        return _UNTIL.get(following, QUEUED)
    return BLOCKED if job.waits_for and job.state is State.PENDING else _STATES[job.state]
