"""Bodies of queues: from a shard's answer to JSON."""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.model import State
from corvo.protocol.jobs import Time
from corvo.protocol.ops.queues import CONCURRENCY_MAX, RATE_MAX
from corvo.protocol.queries import QueueView
from corvo.protocol.questions import AllRates
from corvo.router.http.bodies import DURATION_MS_MAX, duration_ms, either_ms
from corvo.router.http.messages import bad_field
from corvo.router.http.params import Key
from corvo.times import format_time, format_time_or_none

PAGE_MAX: Final = 10_000
"""Queues, or workers, that one answer lists."""

Window: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=DURATION_MS_MAX)]
Period: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description="A duration such as `1m`.",
        extra_json_schema={"pattern": "^[1-9][0-9]{0,3}(ms|s|m|h)$|^[1-9][0-9]{0,2}d$"},
    ),
]
"""What is read is more than this pattern says; but all that it says is read."""
Span: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description="A duration such as `168h` or `7d`.",
        extra_json_schema={"pattern": "^[0-9]{1,4}(ms|s|m|h)$|^[0-9]{1,3}d$"},
    ),
]
Keep: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=DURATION_MS_MAX)]


# What clients send.


class SetConcurrencyBody(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue may be active at a time; 0 and less is any number."""

    max: Annotated[int, msgspec.Meta(le=CONCURRENCY_MAX)]
    request_key: Key | None = None


class SetThrottleBody(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue may be fetched within any window of time."""

    rate: Annotated[int, msgspec.Meta(ge=1, le=RATE_MAX)]
    window_ms: Window | None = None
    window: Period | None = None
    """The window as `1m`; one of the two is needed."""
    period: Period | None = None
    """Its name in older clients."""
    request_key: Key | None = None

    @property
    def span_ms(self) -> int:
        """The window. Raises `Problem`."""
        span_ms = either_ms("window", self.window, self.window_ms, 0)
        if self.period is not None:
            told_ms = duration_ms("period", self.period) or 0
            if span_ms not in (0, told_ms):
                error = "period is the earlier name of window, and the two differ: send only window"
                raise bad_field("period", error)
            span_ms = told_ms
        if span_ms == 0:
            raise bad_field(
                "window_ms",
                "window_ms: expected at least 1 millisecond, such as 60000, or window such as 1m",
            )
        return span_ms


class SetRetentionBody(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs of a queue are kept; 0 is as long as the server keeps any."""

    retention_ms: Keep | None = None
    retention: Span | None = None
    """The same as `168h`; one of the two is needed."""
    request_key: Key | None = None

    @property
    def span_ms(self) -> int:
        """How long. Raises `Problem`."""
        if self.retention_ms is None and self.retention is None:
            raise bad_field(
                "retention_ms",
                "retention_ms, such as 604800000, or retention, such as 7d, is required",
            )
        return either_ms("retention", self.retention, self.retention_ms, 0)


# What they are answered.


class QueueDoneBody(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a queue."""

    status: str
    queue: str


class QueueRates(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs within the last whole minute, and within the last five."""

    enqueued_1m: int = 0
    started_1m: int = 0
    completed_1m: int = 0
    failed_1m: int = 0
    enqueued_5m: int = 0
    started_5m: int = 0
    completed_5m: int = 0
    failed_5m: int = 0


class QueueBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue, what is set for it, and how many jobs of each state it has."""

    name: str
    paused: bool
    pending: int
    active: int
    held: int
    completed: int
    dead: int
    scheduled: int
    retrying: int
    cancelled: int
    enqueued: int
    failed: int
    created_at: Time
    draining: bool = False
    max_concurrency: int = 0
    rate_limit: int = 0
    rate_window_ms: int = 0
    retention_ms: int = 0
    oldest_pending_at: Time | None = None
    """Since when the job waits for a worker that has waited longest; not those that wait for other
    jobs first."""
    rates: QueueRates | None = None


# From one to the other.


def queue_body(view: QueueView, rates: QueueRates | None = None) -> QueueBody:
    """A queue for whoever asks for it."""
    queue, counts = view.queue, view.counts
    return QueueBody(
        name=queue.name,
        paused=queue.paused,
        pending=counts[State.PENDING.value],
        active=counts[State.ACTIVE.value],
        held=counts[State.HELD.value],
        completed=counts[State.COMPLETED.value],
        dead=counts[State.DEAD.value],
        scheduled=counts[State.SCHEDULED.value],
        retrying=counts[State.RETRYING.value],
        cancelled=counts[State.CANCELLED.value],
        enqueued=sum(counts.values()),
        failed=counts[State.RETRYING.value] + counts[State.DEAD.value],
        created_at=format_time(queue.created_ns),
        draining=queue.draining,
        max_concurrency=queue.max_concurrency,
        rate_limit=queue.rate_limit,
        rate_window_ms=queue.rate_window_ms,
        retention_ms=queue.retention_ms,
        oldest_pending_at=format_time_or_none(view.oldest_pending_ns),
        rates=rates,
    )


def read_rates(body: bytes) -> dict[str, QueueRates]:
    """By queue; those in which nothing goes on are left out."""
    return {
        rates.queue: msgspec.convert(rates, QueueRates, from_attributes=True)
        for rates in _decode_rates(body).queues
    }


_decode_rates: Final = msgspec.json.Decoder(AllRates).decode
