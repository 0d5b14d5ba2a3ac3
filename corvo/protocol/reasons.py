"""The reason of an end that no failed attempt caused: expired, rejected, cancelled, lost too often.

Errors of attempts are stored beside their job. Any other end is in the job's trail: who, when and
why. Its reason is made from the document wherever the job is shown, so that the shard, which
answers for one job, and the mirror, which answers searches, give the same text.
"""

from typing import Final, NamedTuple

from corvo.model import Event, EventType, Job, State
from corvo.times import MS, format_duration, format_time

CRASH_LOOP: Final = "crash_loop"
"""Hold reason of a job whose lease expired too often."""
EXPIRED: Final = "expired"
NO_ATTEMPTS_LEFT: Final = "no attempts left"
NOT_RETRYABLE: Final = "not retryable"
"""In the trail, why a job became dead."""
STOPPED: Final = "asked to stop"
"""In the trail, why a job was cancelled that its worker gave back after it was asked to stop."""

_DEAD: Final = EventType.DEAD.stored
_REJECTED: Final = EventType.REJECTED.stored
_CANCELLED: Final = EventType.CANCELLED.stored
_ASKED_TO_STOP: Final = EventType.ASKED_TO_STOP.stored
_ENDS: Final = frozenset({_DEAD, _REJECTED, _CANCELLED})
_KEEPS_HOLD: Final = frozenset(
    {EventType.PRIORITY.stored, EventType.MOVED.stored, EventType.ARRIVED.stored}
)
"""Events of a held job that stays held."""
_NOTHING: Final = Event(0, "")
_WORDS: Final = {
    EXPIRED: "expired",
    NO_ATTEMPTS_LEFT: "no_attempts_left",
    NOT_RETRYABLE: "not_retryable",
}
DLQ_REASONS: Final = ("rejected", *_WORDS.values())


class Reason(NamedTuple):
    """A reason, as an error that no attempt had."""

    word: str
    text: str
    at_ns: int


def dlq_reason(job: Job) -> str:
    """The word for why a job is dead; empty for any other job, and if its trail has lost it."""
    if job.state is not State.DEAD:
        return ""
    _, ended = _end(job)
    return "rejected" if ended.what == _REJECTED else _WORDS.get(ended.why, "")


def reason_of(job: Job) -> Reason | None:
    """The reason of its present state; None if it has none, or the error of an attempt says it."""
    match job.state:
        case State.DEAD | State.CANCELLED:
            return _of_end(job)
        case State.HELD if job.hold_reason == CRASH_LOOP:
            leases = "1 lease" if job.crashes == 1 else f"{job.crashes} leases"
            text = f"crash loop: {leases} expired before the job ended (max_crashes is "
            return Reason(CRASH_LOOP, f"{text}{job.max_crashes})", job.held_ns)
        case _:
            return None


def reason_text(job: Job) -> str | None:
    """The text of its reason."""
    reason = reason_of(job)
    return reason.text if reason is not None else None


def _of_end(job: Job) -> Reason | None:
    place, ended = _end(job)
    held = _hold_before(job, place)
    if ended.what == _DEAD and ended.why == EXPIRED:
        lifetime = format_duration(max(0, job.expires_ns - job.created_ns) // MS)
        text = f"expired at {format_time(job.expires_ns)}, {lifetime} after it was created"
        return Reason("expired", f"{text}; attempts: {job.attempt}{held}", job.finished_ns)
    if ended.what == _REJECTED:
        return Reason("rejected", f"rejected{_by_whom(ended)}{held}", job.finished_ns)
    if ended.what != _CANCELLED:
        return None
    asked = next((one for one in reversed(job.trail) if one.what == _ASKED_TO_STOP), None)
    if asked is None or ended.why != STOPPED:
        return Reason("cancelled", f"cancelled{_by_whom(ended)}{held}", job.finished_ns)
    return Reason("cancelled", f"cancelled{_by_whom(asked)}; its worker stopped", job.finished_ns)


def _end(job: Job) -> tuple[int, Event]:
    """The event that ended a job, and its place in the trail; 0 if the trail has lost it."""
    for place in range(len(job.trail) - 1, -1, -1):
        if job.trail[place].what in _ENDS:
            return place, job.trail[place]
    return 0, _NOTHING


def _by_whom(event: Event) -> str:
    by = f" by {event.by}" if event.by else ""
    why = f": {event.why}" if event.why else ""
    return f"{by}{why}"


def _hold_before(job: Job, place: int) -> str:
    """The hold of a job that ended while it was held: this is why it did not run."""
    before = (one for one in reversed(job.trail[:place]) if one.what not in _KEEPS_HOLD)
    last = next(before, _NOTHING)
    if last.what != EventType.HELD.stored:
        return ""
    return f"; it was held: {last.why}" if last.why else "; it was held"
