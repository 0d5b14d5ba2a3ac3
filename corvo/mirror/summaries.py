"""Jobs as a list shows them. Payloads stay the bytes that a client sent."""

from typing import Final

import msgspec

from corvo.mirror.reading import Reading
from corvo.times import without_zeros


class JobSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a list."""

    id: str
    queue: str
    state: str
    payload: msgspec.Raw
    priority: int
    attempt: int
    max_retries: int
    kind: str = ""
    unique_key: str = ""
    batch_id: str = ""
    worker_id: str = ""
    hostname: str = ""
    tags: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parent_id: str = ""
    chain_id: str = ""
    chain_step: int | None = None
    scheduled_at: str | None = None
    expire_at: str | None = None
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    failed_at: str | None = None
    finished_at: str | None = None
    changed_at: str
    """When the last thing happened to it."""
    hold_reason: str = ""
    failures: int = 0
    last_error: str = ""


_SUMMARY: Final = """
SELECT id, queue, state, payload, priority, attempt, max_retries, kind, unique_key, batch_id,
  worker_id, hostname, tags, parent_id, chain_id, chain_step, scheduled_at, expire_at, created_at,
  started_at, completed_at, failed_at, finished_at, changed_at, hold_reason, failures,
  CASE WHEN failures > 0 THEN (
    SELECT error FROM job_errors INDEXED BY idx_job_errors_job
    WHERE job_errors.job_id = jobs.id AND job_errors.shard = jobs.shard
    ORDER BY number DESC LIMIT 1
  ) END
FROM jobs WHERE row = ?
"""
_encode: Final = msgspec.json.Encoder().encode


def summary(reading: Reading, row: int) -> msgspec.Raw:
    """A job by the number of its row."""
    found: (
        tuple[
            str, str, str, str, int, int, int, str, str | None, str | None,
            str | None, str | None, str | None, str | None, str | None, int | None,
            str | None, str | None, str, str | None, str | None, str | None, str | None,
            str, str | None, int, str | None,
        ]
        | None
    )  # fmt: skip
    found = reading.surely(lambda: reading.run(_SUMMARY, (row,)).fetchone())
    assert found is not None, "it was there a moment ago, and this is the same moment"
    chain_id = found[14] or ""
    return msgspec.Raw(
        _encode(
            JobSummary(
                id=found[0],
                queue=found[1],
                state=found[2],
                payload=msgspec.Raw(found[3].encode()),
                priority=found[4],
                attempt=found[5],
                max_retries=found[6],
                kind=found[7],
                unique_key=found[8] or "",
                batch_id=found[9] or "",
                worker_id=found[10] or "",
                hostname=found[11] or "",
                tags=msgspec.Raw(found[12].encode()) if found[12] else msgspec.UNSET,
                parent_id=found[13] or "",
                chain_id=chain_id,
                chain_step=found[15] if chain_id else None,
                scheduled_at=_shown(found[16]),
                expire_at=_shown(found[17]),
                created_at=without_zeros(found[18]),
                started_at=_shown(found[19]),
                completed_at=_shown(found[20]),
                failed_at=_shown(found[21]),
                finished_at=_shown(found[22]),
                changed_at=without_zeros(found[23]),
                hold_reason=found[24] or "",
                failures=found[25],
                last_error=found[26] or "",
            )
        )
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else without_zeros(text)
