"""Reports for dashboards: rates, throughput, workers by their jobs, all queues."""

from typing import Final, TypeAlias

import msgspec

from corvo.mirror.query.counting import queue_counts
from corvo.mirror.query.reading import Reading
from corvo.mirror.query.terms import NOT_RESERVED, STATE_WORDS, Condition, all_of, in_scope
from corvo.mirror.written_queues import WrittenQueues
from corvo.protocol.questions import (
    AllRates,
    Beat,
    Beats,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    Minute,
    QueueMinutes,
    Rates,
    Summary,
    SummaryQueue,
    Throughput,
)
from corvo.times import MINUTE_NS, MS, format_time, parse_sortable, without_zeros

_MINUTES: Final = 5
_CHANGED_MAX: Final = 500
"""Queues of a summary that are read one by one: with more of them, reading all costs as much."""


def present_minute(reading: Reading) -> int:
    """The minute that has not ended yet, which is in no report."""
    return reading.now_ns // MINUTE_NS


def get_rates(reading: Reading, question: GetRates) -> AllRates:
    """What went on in queues in the last whole minute, and in the last five. Raises `TimeOver`."""
    seen = in_scope("queue", question.scope)
    with reading.snapshot(), reading.until(question.budget_ms):
        as_of = reading.as_of()
        rates = _rates(reading, seen)
    if question.queues:
        rates = {queue: rates[queue] for queue in question.queues if queue in rates}
    return AllRates([rates[queue] for queue in sorted(rates)], as_of)


# In the order of `Rates`, and of `Minute`.
_RATES: Final = """
SELECT queue,
  sum(CASE WHEN minute = ? THEN enqueued END), sum(CASE WHEN minute = ? THEN started END),
  sum(CASE WHEN minute = ? THEN completed END), sum(CASE WHEN minute = ? THEN failed END),
  sum(enqueued), sum(started), sum(completed), sum(failed)
FROM throughput INDEXED BY idx_throughput_minute WHERE minute >= ? AND minute < ? AND ({seen})
GROUP BY queue
"""


def _rates(reading: Reading, seen: Condition) -> dict[str, Rates]:
    present = present_minute(reading)
    text = _RATES.format(seen=seen.text)
    minutes = (*(present - 1,) * 4, present - _MINUTES, present)
    rates = {}
    for queue, *sums in reading.run(text, (*minutes, *seen.parameters)):
        if any(sums):
            rates[queue] = Rates(queue, *(number or 0 for number in sums))
    return rates


_THROUGHPUT: Final = """
SELECT minute, sum(enqueued), sum(started), sum(completed), sum(failed), sum(dead), sum(cancelled)
FROM throughput INDEXED BY idx_throughput_minute WHERE minute >= ? AND minute < ? AND {seen}
GROUP BY minute
"""


def get_throughput(reading: Reading, question: GetThroughput) -> Throughput:
    """What went on in each of the last whole minutes. Raises `TimeOver`."""
    conditions = [in_scope("queue", question.scope)]
    if question.queue:
        conditions.append(Condition("queue = ?", (question.queue,)))
    else:
        conditions.append(NOT_RESERVED)
    seen = all_of(conditions)
    present = present_minute(reading)
    first = present - question.minutes
    with reading.snapshot(), reading.until(question.budget_ms):
        as_of = reading.as_of()
        text = _THROUGHPUT.format(seen=seen.text)
        rows = reading.run(text, (first, present, *seen.parameters))
        found: dict[int, tuple[int, ...]] = {minute: sums for minute, *sums in rows}
    minutes = [
        Minute(format_time(minute * MINUTE_NS), *found.get(minute, ()))
        for minute in range(first, present)
    ]
    return Throughput(minutes, as_of)


_ACTIVE: Final = """
SELECT worker_id, queue, lease_ms, count(*), max(hostname), max(lease_expires_at), max(started_at)
FROM jobs INDEXED BY idx_jobs_lease
WHERE state = 'active' AND worker_id IS NOT NULL AND ({seen})
GROUP BY worker_id, queue, lease_ms
"""


def get_beats(reading: Reading, question: GetBeats) -> Beats:
    """What active jobs say of their workers. Raises `TimeOver`."""
    seen = in_scope("queue", question.scope)
    beats: dict[str, Beat] = {}
    with reading.snapshot(), reading.until(question.budget_ms):
        as_of = reading.as_of()
        found: tuple[str, str, int | None, int, str | None, str | None, str | None]
        for found in reading.run(_ACTIVE.format(seen=seen.text), seen.parameters):
            worker_id, queue, lease_ms, active, hostname, expires_at, started_at = found
            expires_ns = parse_sortable(expires_at) if expires_at else 0
            beat = Beat(
                worker_id=worker_id,
                hostname=hostname or "",
                active=active,
                beat_ns=max(0, expires_ns - (lease_ms or 0) * MS),
                started_ns=parse_sortable(started_at) if started_at else 0,
                queues=(queue,),
            )
            before = beats.get(worker_id)
            beats[worker_id] = beat if before is None else _both(before, beat)
    return Beats([beats[worker_id] for worker_id in sorted(beats)], as_of)


def _both(one: Beat, other: Beat) -> Beat:
    return Beat(
        worker_id=one.worker_id,
        hostname=max(one.hostname, other.hostname),
        active=one.active + other.active,
        beat_ns=max(one.beat_ns, other.beat_ns),
        started_ns=max(one.started_ns, other.started_ns),
        queues=tuple(sorted({*one.queues, *other.queues})),
    )


def get_summary(
    reading: Reading, question: GetSummary, written: WrittenQueues | None = None
) -> Summary:
    """Every queue at a glance, or those that changed since a summary. Raises `TimeOver`.

    `written` tells which queues changed; without it, all are read.
    """
    conditions = [in_scope("queue", question.scope), NOT_RESERVED]
    present = present_minute(reading)
    minute = format_time(present * MINUTE_NS)
    first = present - max(question.minutes, 1)
    mark = written.mark() if written is not None else ""
    with reading.snapshot(), reading.until(question.budget_ms):
        as_of = reading.as_of()
        changed = _changed(question, written, minute)
        if changed == []:
            return Summary(queues=[], minute=minute, mark=mark, changed=[], as_of=as_of)
        if changed is not None:
            names = msgspec.json.encode(changed).decode()
            conditions.append(Condition("queue IN (SELECT value FROM json_each(?))", (names,)))
        seen = all_of(conditions)
        counts = queue_counts(reading, seen)
        settings = _settings(reading, seen)
        events_of = _EVENTS_OF_ALL if changed is None else _EVENTS_OF_SOME
        minutes = _minutes(reading, events_of, seen, first)
        oldest = _oldest(reading, seen)
    queues = []
    for name in sorted({*counts, *settings}):
        is_paused, is_draining, concurrency = settings.get(name, _NO_SETTINGS)
        events = minutes.get(name, _NO_EVENTS)
        last, now = events.get(present - 1, _NOTHING), events.get(present, _NOTHING)
        queues.append(
            SummaryQueue(
                name=name,
                paused=bool(is_paused),
                draining=bool(is_draining),
                max_concurrency=concurrency,
                counts=counts.get(name) or dict.fromkeys(STATE_WORDS, 0),
                enqueued_1m=last[0],
                completed_1m=last[1],
                failed_1m=last[2],
                enqueued_this_minute=now[0],
                completed_this_minute=now[1],
                failed_this_minute=now[2],
                minutes=_listed(events, first, present) if question.minutes else msgspec.UNSET,
                oldest_pending_at=oldest.get(name, msgspec.UNSET),
            )
        )
    return Summary(queues=queues, minute=minute, mark=mark, changed=changed, as_of=as_of)


def _changed(question: GetSummary, written: WrittenQueues | None, minute: str) -> list[str] | None:
    """The queues that may differ from the summary that the router has; None: read all of them.

    With the minute, the events of all queues change.
    """
    if written is None or question.minutes or minute != question.known_minute:
        return None
    found = written.since(question.known)
    return None if found is not None and len(found) > _CHANGED_MAX else found


# Of these reads, each row of a queue costs about a microsecond, and a sum of SQLite another one:
# nearly all queues have one row, and Python adds up the others.
_SETTINGS: Final = """
SELECT queue, paused, draining, ifnull(max_concurrency, 0)
FROM (SELECT name AS queue, paused, draining, max_concurrency FROM queues) WHERE {seen}
"""
_NO_SETTINGS: Final = (0, 0, 0)


def _settings(reading: Reading, seen: Condition) -> dict[str, tuple[int, int, int]]:
    """By queue: whether it is paused and draining, and the limit of its active jobs."""
    found: dict[str, tuple[int, int, int]] = {}
    rows = reading.run(_SETTINGS.format(seen=seen.text), seen.parameters)
    for queue, *values in rows:
        before = found.get(queue, _NO_SETTINGS)
        found[queue] = (
            max(before[0], values[0]),
            max(before[1], values[1]),
            max(before[2], values[2]),
        )
    return found


Events: TypeAlias = tuple[int, int, int]
"""Jobs that were enqueued and completed, and attempts that failed."""
_NOTHING: Final[Events] = (0, 0, 0)
_NO_EVENTS: Final[dict[int, Events]] = {}
_EVENTS_OF_ALL: Final = """
SELECT queue, minute, enqueued, completed, failed
FROM throughput INDEXED BY idx_throughput_minute WHERE minute >= ? AND ({seen})
"""
# Without the index of minutes, which has the rows of all queues.
_EVENTS_OF_SOME: Final = """
SELECT queue, minute, enqueued, completed, failed
FROM throughput WHERE +minute >= ? AND ({seen})
"""


def _minutes(
    reading: Reading, events_of: str, seen: Condition, first: int
) -> dict[str, dict[int, Events]]:
    """Events by queue and minute."""
    found: dict[str, dict[int, Events]] = {}
    rows = reading.run(events_of.format(seen=seen.text), (first, *seen.parameters))
    for queue, minute, enqueued, completed, failed in rows:
        events = found.setdefault(queue, {})
        before = events.get(minute, _NOTHING)
        events[minute] = (before[0] + enqueued, before[1] + completed, before[2] + failed)
    return found


def _listed(
    events: dict[int, Events], first: int, present: int
) -> QueueMinutes | msgspec.UnsetType:
    each = [events.get(minute, _NOTHING) for minute in range(first, present)]
    if not any(map(any, each)):
        return msgspec.UNSET
    enqueued, completed, failed = (list(column) for column in zip(*each, strict=True))
    return QueueMinutes(enqueued=enqueued, completed=completed, failed=failed)


_OLDEST_OF: Final = """ifnull((
SELECT min(created_at) FROM jobs INDEXED BY idx_jobs_queue_state_priority
WHERE queue = waiting.queue AND state = 'pending' AND priority = {priority}
), '~')"""
# One statement for all queues: three for each of a thousand queues took seven milliseconds.
_OLDEST: Final = (
    "SELECT queue, min("  # noqa: S608 -- all words are ours
    + ", ".join(_OLDEST_OF.format(priority=priority) for priority in range(3))
    + ") FROM queue_counts AS waiting WHERE pending > 0 AND ({seen})"
)
_NO_JOB: Final = "~"
"""Follows all times."""


def _oldest(reading: Reading, seen: Condition) -> dict[str, str]:
    """Of each queue, when its oldest pending job was created."""
    rows = reading.run(_OLDEST.format(seen=seen.text), seen.parameters)
    return {queue: without_zeros(at) for queue, at in rows if at != _NO_JOB}
