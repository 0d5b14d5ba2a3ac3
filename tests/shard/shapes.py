"""What the reference keeps of queues and jobs, and what follows from one alone.

Nothing here is shared with Corvo.
"""

import zlib
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

Fields: TypeAlias = dict[str, object]
"""JSON."""


MS: Final = 1_000_000
UNIQUE_MS: Final = 3_600_000
EVENTS_LAST: Final = 31


def text(fields: Fields, name: str, default: str = "") -> str:
    return cast("str", fields.get(name, default))


def number(fields: Fields, name: str, default: int = 0) -> int:
    return cast("int", fields.get(name, default))


def rows(fields: Fields, name: str) -> list[Fields]:
    return cast("list[Fields]", fields[name])


def names(fields: Fields, name: str) -> list[str]:
    return cast("list[str]", fields[name])


@dataclass(slots=True)
class Queue:
    paused: bool = False
    draining: bool = False
    max_concurrency: int = 0
    rate_limit: int = 0
    rate_window_ms: int = 0
    retention_ms: int = 0


@dataclass(slots=True)
class Job:
    id: str
    queue: str
    asked: Fields
    """What was enqueued."""
    place: int
    state: str = "pending"
    priority: int = 2
    attempt: int = 0
    crashes: int = 0
    failures: int = 0
    token: int = 0
    lease_ms: int = 0
    lease_expires_ns: int = 0
    graced_ns: int = 0
    """Until when the lease is not over, whatever else; 0 without a time of grace."""
    run_expires_ns: int = 0
    worker_id: str = ""
    cancel_requested: bool = False
    settled: tuple[int, str, Fields] | None = None
    """The token, the op, and what was answered."""
    scheduled_ns: int = 0
    expires_ns: int = 0
    finished_ns: int = 0
    hold_reason: str = ""
    unique_until_ns: int = 0
    progress: object = None
    checkpoint: object = None
    result: object = None
    errors: list[Fields] = field(default_factory=list)
    trail: list[tuple[int, str]] = field(default_factory=list)
    """When and who."""

    def has(self, token: int) -> bool:
        return self.state == "active" and self.token == token

    def note(self, now_ns: int, by: str) -> None:
        self.trail.append((now_ns, by))
        if len(self.trail) > 1 + EVENTS_LAST:
            del self.trail[1]

    def period_ns(self) -> int:
        return (number(self.asked, "unique_period_ms") or UNIQUE_MS) * MS

    def claim(self) -> Fields:
        return {
            "job_id": self.id,
            "queue": self.queue,
            "payload": self.asked.get("payload", {}),
            "attempt": self.attempt,
            "max_retries": number(self.asked, "max_retries", 3),
            "lease_duration": -(-self.lease_ms // 1_000),
            "lease_token": self.token,
            "lease_expires_ns": self.lease_expires_ns,
            "kind": text(self.asked, "kind"),
            "checkpoint": self.checkpoint,
            "tags": self.asked.get("tags", {}),
        }

    def delay_ms(self, item: Fields, dice: int) -> int:
        given = item.get("retry_after_ms")
        if given is not None:
            return cast("int", given)
        base = number(self.asked, "retry_base_delay_ms", 5_000)
        attempt = max(1, self.attempt)
        factors = {"none": 0, "fixed": 1, "linear": attempt}
        factor = factors.get(text(self.asked, "retry_backoff"), 1 << (attempt - 1))
        most = number(self.asked, "retry_max_delay_ms", 600_000)
        delay = min(base * factor, most) if most else base * factor
        swing = delay * number(self.asked, "retry_jitter") // 100
        thrown = zlib.crc32(self.id.encode(), dice) & 0xFFFF
        return delay - swing + 2 * swing * thrown // 65535


@dataclass(slots=True)
class Request:
    op: str
    body: Fields
    at_ns: int
    answer: Fields


class Refusal(Exception):
    """Not an error: how a rule says no."""

    def __init__(self, code: str, job_id: str = "") -> None:
        super().__init__(code)
        self.answer: Fields = {"code": code, "job_id": job_id}
