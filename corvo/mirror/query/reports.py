"""Reports for dashboards: rates, throughput, workers by their jobs, all queues."""

from collections.abc import Iterable
from typing import Final

from corvo.mirror.query.counting import queue_counts
from corvo.mirror.query.reading import Reading
from corvo.mirror.query.terms import NOT_RESERVED, STATE_WORDS, Condition, all_of, in_scope
from corvo.protocol.questions import (
    AllRates,
    Beat,
    Beats,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    Minute,
    QueueSummary,
    Rates,
    Summary,
    Throughput,
)
from corvo.times import MINUTE_NS, MS, format_time, parse_sortable, without_zeros

_MINUTES: Final = 5


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


def get_summary(reading: Reading, question: GetSummary) -> Summary:
    """Every queue at a glance. Raises `TimeOver`."""
    seen = all_of([in_scope("queue", question.scope), NOT_RESERVED])
    with reading.snapshot(), reading.until(question.budget_ms):
        as_of = reading.as_of()
        counts = queue_counts(reading, seen)
        text = _PAUSED.format(seen=seen.text)
        paused: dict[str, int] = dict(reading.run(text, seen.parameters).fetchall())
        rates = _rates(reading, seen)
        oldest = _oldest(reading, (queue for queue, each in counts.items() if each["pending"]))
    queues = []
    for name in sorted({*counts, *paused}):
        rate = rates.get(name)
        queues.append(
            QueueSummary(
                name=name,
                counts=counts.get(name) or dict.fromkeys(STATE_WORDS, 0),
                is_paused=bool(paused.get(name)),
                enqueued_1m=rate.enqueued_1m if rate else 0,
                completed_1m=rate.completed_1m if rate else 0,
                failed_1m=rate.failed_1m if rate else 0,
                oldest_pending_at=oldest.get(name, ""),
            )
        )
    return Summary(queues=queues, as_of=as_of)


_PAUSED: Final = """
SELECT queue, max(paused) FROM (SELECT name AS queue, paused FROM queues) WHERE {seen}
GROUP BY queue
"""


_OLDEST: Final = """
SELECT min(created_at) FROM jobs INDEXED BY idx_jobs_queue_state_priority
WHERE queue = ? AND state = 'pending' AND priority = ?
"""


def _oldest(reading: Reading, queues: Iterable[str]) -> dict[str, str]:
    """Of each queue, when its oldest pending job was created."""
    oldest = {}
    for queue in queues:
        found = [reading.run(_OLDEST, (queue, priority)).fetchone()[0] for priority in range(3)]
        times: list[str] = [at for at in found if at is not None]
        if times:
            oldest[queue] = without_zeros(min(times))
    return oldest
