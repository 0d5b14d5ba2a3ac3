"""What docs/search.md says of filters and orders, once more and as plainly as can be.

It goes over jobs in a list, one job after the other, and knows nothing of tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from corvo.model import Job, JobError
from corvo.protocol.questions import Filter
from corvo.protocol.reasons import dlq_reason, reason_text
from corvo.scopes import EVERYTHING, Scope

EXPRESSIONS: "Final[dict[str, Callable[[Json], bool]]]" = {
    ".n > 2": lambda payload: _is_more(payload.get("n"), 2),
    '.a.b == "x"': lambda payload: _of(payload.get("a"), "b") == "x",
    ".a == null": lambda payload: payload.get("a") is None,
}
"""Of `payload_jq`, which has a twin of its own: a few, and what they say."""

Json: TypeAlias = "dict[str, object]"
PRIORITIES: Final[dict[str | int, int]] = {
    "critical": 0,
    "high": 1,
    "normal": 2,
    "low": 2,
    "0": 0,
    "1": 1,
    "2": 2,
    0: 0,
    1: 1,
    2: 2,
}


@dataclass(frozen=True)
class Kept:
    """A job in a shard, and the errors that are kept of it, the newest last."""

    job: Job
    shard: int
    errors: tuple[JobError, ...] = ()

    @property
    def changed_ns(self) -> int:
        return self.job.trail[-1].at_ns if self.job.trail else self.job.created_ns

    @property
    def name(self) -> tuple[str, int]:
        return self.job.id, self.shard


def may_see(queue: str, scope: Scope) -> bool:
    if scope == EVERYTHING:
        return True
    return any(
        queue[: len(name) - 1] == name[:-1] if name[-1:] == "*" else queue == name
        for name in scope.names
    )


def means(given: Filter, kept: Kept, scope: Scope = EVERYTHING) -> bool:
    """Whether a filter means a job, for a caller with a scope."""
    job = kept.job
    if given.queue is None and job.queue.startswith("_corvo."):
        return False
    return may_see(job.queue, scope) and all(_judgements(given, kept))


def _judgements(given: Filter, kept: Kept) -> Iterable[bool]:
    job = kept.job
    workers = {job.worker_id, *(error.worker_id for error in kept.errors)}
    payload = job.payload.decode()
    yield given.queue is None or job.queue == given.queue
    states = given.state.split(",") if isinstance(given.state, str) else given.state
    yield states is None or job.state.word in states
    yield given.kind is None or job.kind == given.kind
    yield given.priority is None or job.priority == PRIORITIES[given.priority]
    for key, value in (given.tags or {}).items():
        yield key in job.tags and job.tags[key] == value
    yield given.payload_contains is None or given.payload_contains in payload
    if given.payload_jq is not None:
        yield EXPRESSIONS[given.payload_jq](msgspec.json.decode(payload, type=dict[str, object]))
    if given.error_contains is not None:
        texts = [error.error for error in kept.errors]
        yield any(given.error_contains in text for text in (*texts, reason_text(job) or ""))
    yield given.dlq_reason is None or given.dlq_reason == dlq_reason(job)
    yield given.has_errors is None or given.has_errors == (job.failures > 0)
    yield given.unique_key is None or job.unique_key == given.unique_key
    yield given.batch_id is None or job.batch_id == given.batch_id
    yield given.worker_id is None or given.worker_id in workers
    yield given.parent_id is None or job.parent_id == given.parent_id
    yield given.chain_id is None or job.chain_id == given.chain_id
    yield given.job_id_prefix is None or job.id.startswith(given.job_id_prefix)
    yield given.attempt_min is None or job.attempt >= given.attempt_min
    yield given.attempt_max is None or job.attempt <= given.attempt_max
    yield _within(job.created_ns, given.created_after, given.created_before)
    yield _within(job.scheduled_ns, given.scheduled_after, given.scheduled_before)
    yield _within(job.started_ns, given.started_after, given.started_before)
    yield _within(job.completed_ns, given.completed_after, given.completed_before)
    yield _within(job.expires_ns, given.expire_after, given.expire_before)


def _within(at_ns: int, after: str | None, before: str | None) -> bool:
    if after is None and before is None:
        return True
    if at_ns == 0:
        return False
    return (after is None or at_ns > _ns(after)) and (before is None or at_ns < _ns(before))


def _ns(text: str) -> int:
    """Tests write times one way, and the date of all of them."""
    if text == "2026-02-11":
        return EPOCH_NS - 36_000 * 10**9
    assert text.startswith("2026-02-11T10:00:00.")
    assert text.endswith("Z")
    return EPOCH_NS + int(text[20:-1].ljust(9, "0"))


EPOCH_NS: Final = 1_770_804_000_000_000_000
"""2026-02-11T10:00:00Z."""


def ordered(kepts: Iterable[Kept], sort: str, order: str) -> list[Kept]:
    """The jobs in an order, those without what is sorted by at the end."""
    of = _VALUES[sort]
    is_falling = order == "desc"
    valued = [kept for kept in kepts if of(kept.job) is not None]
    others = [kept for kept in kepts if of(kept.job) is None]

    def by_age(kept: Kept) -> tuple[int, str, int]:
        return kept.job.created_ns, kept.job.id, kept.shard

    def by_value(kept: Kept) -> tuple[int, int, str, int]:
        return of(kept.job) or 0, *by_age(kept)

    valued.sort(key=by_value, reverse=is_falling)
    others.sort(key=by_age, reverse=is_falling)
    return valued + others


_VALUES: Final[dict[str, Callable[[Job], int | None]]] = {
    "created_at": lambda job: job.created_ns,
    "priority": lambda job: job.priority,
    "attempt": lambda job: job.attempt,
    "started_at": lambda job: job.started_ns or None,
    "completed_at": lambda job: job.completed_ns or None,
}


def _is_more(value: object, than: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > than


def _of(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None
