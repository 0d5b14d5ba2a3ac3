"""What clients did and were told, and an independent judge of it.

The judge knows nothing of how a queue works inside. It holds the server to what it promised each
client: what was acknowledged is there, one request has one effect, and a job that was completed is
given to nobody any more.
"""

from collections import defaultdict
from typing import Final

import msgspec

COMPLETED: Final = "completed"


class Enqueued(msgspec.Struct, frozen=True):
    """An enqueue was answered: the job of this number has this id."""

    number: int
    job_id: str


class Claimed(msgspec.Struct, frozen=True):
    """A fetch was answered."""

    asked_at: float
    number: int
    job_id: str
    token: int


class Acked(msgspec.Struct, frozen=True):
    """An ack was answered with yes."""

    answered_at: float
    job_id: str
    token: int


class Refused(msgspec.Struct, frozen=True):
    """An ack was answered with no: the lease is over, or the job is another's."""

    job_id: str
    token: int


Event = Enqueued | Claimed | Acked | Refused


def judge(history: list[Event], found: dict[str, str]) -> list[str]:
    """What is wrong with a history, when all clients are done.

    `found` has the state of each job that was asked for at the end; a job that was not found is
    not in it.
    """
    return [*_one_job_each(history), *_one_end_each(history), *_all_there(history, found)]


def _one_job_each(history: list[Event]) -> list[str]:
    """One request is one job, whatever befell it."""
    ids: dict[int, set[str]] = defaultdict(set)
    numbers: dict[str, set[int]] = defaultdict(set)
    for event in history:
        if isinstance(event, Enqueued | Claimed):
            ids[event.number].add(event.job_id)
            numbers[event.job_id].add(event.number)
    doubled = [
        f"request {number} made {len(jobs)} jobs: {sorted(jobs)}"
        for number, jobs in ids.items()
        if len(jobs) > 1
    ]
    mixed = [
        f"job {job} is that of {len(made)} requests: {sorted(made)}"
        for job, made in numbers.items()
        if len(made) > 1
    ]
    return doubled + mixed


def _one_end_each(history: list[Event]) -> list[str]:
    """A job is completed once, under one lease, and given to nobody behind that."""
    wrong = []
    done: dict[str, Acked] = {}
    for event in history:
        if isinstance(event, Acked):
            before = done.setdefault(event.job_id, event)
            if before.token != event.token:
                wrong.append(
                    f"job {event.job_id} was completed under the leases {before.token} "
                    f"and {event.token}"
                )
    claims: set[tuple[str, int]] = set()
    for event in history:
        if isinstance(event, Claimed):
            if (event.job_id, event.token) in claims:
                wrong.append(f"job {event.job_id} was given out twice under lease {event.token}")
            claims.add((event.job_id, event.token))
            end = done.get(event.job_id)
            if end is not None and end.answered_at < event.asked_at:
                wrong.append(f"job {event.job_id} was given out after it had been completed")
        elif isinstance(event, Refused):
            end = done.get(event.job_id)
            if end is not None and end.token == event.token:
                wrong.append(f"job {event.job_id}: lease {event.token} was told both yes and no")
    return wrong


def _all_there(history: list[Event], found: dict[str, str]) -> list[str]:
    """Whatever was acknowledged has not gone, and was worked on to its end."""
    wrong = []
    known = {event.job_id for event in history if isinstance(event, Enqueued)}
    done = {event.job_id for event in history if isinstance(event, Acked)}
    for job_id in sorted(known | done):
        state = found.get(job_id)
        if state is None:
            wrong.append(f"job {job_id} is lost")
        elif job_id in done and state != COMPLETED:
            wrong.append(f"job {job_id} was completed, and is {state}")
        elif state != COMPLETED:
            wrong.append(f"job {job_id} was never worked on to its end: it is {state}")
        elif job_id not in done:
            wrong.append(f"job {job_id} is completed, and nobody was told so")
    return wrong
