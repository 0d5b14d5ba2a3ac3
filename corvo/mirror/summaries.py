"""Jobs as a search shows them: the columns that `FoundJob` names, as JSON.

Payloads and tags stay the bytes that are in the file.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from corvo.mirror.columns import Value
from corvo.mirror.reading import Reading
from corvo.mirror.schema import JOBS
from corvo.protocol.jobs import FoundJob

_LAST_ERROR: Final = """CASE WHEN failures > 0 THEN (
  SELECT error FROM job_errors INDEXED BY idx_job_errors_job
  WHERE job_errors.job_id = jobs.id AND job_errors.shard = jobs.shard
  ORDER BY number DESC LIMIT 1
) END AS last_error"""
_FIELDS: Final = msgspec.structs.fields(FoundJob)
_VALUES: Final = ", ".join(
    _LAST_ERROR if field.name == "last_error" else field.name for field in _FIELDS
)
_SUMMARY: Final = f"SELECT {_VALUES} FROM jobs WHERE row = ?"  # noqa: S608 -- names of ours
_SHOWN_AS: Final[dict[str, Callable[[str], object] | None]] = {
    column.name: column.source.shown_as for column in JOBS.columns if column.source is not None
}
_SHOWN: Final = [(field.name, field.default, _SHOWN_AS.get(field.name)) for field in _FIELDS]
_encode: Final = msgspec.json.Encoder().encode


def summary(reading: Reading, row: int) -> msgspec.Raw:
    """A job by the number of its row. Fields that are NULL, or have their default, are left out."""
    found: tuple[Value, ...] | None
    found = reading.surely(lambda: reading.run(_SUMMARY, (row,)).fetchone())
    assert found is not None, "it was there a moment ago, and this is the same moment"
    fields: dict[str, object] = {}
    for (name, default, shown_as), value in zip(_SHOWN, found, strict=True):
        if value is None or value == default:
            continue
        fields[name] = shown_as(value) if shown_as is not None and isinstance(value, str) else value
    return msgspec.Raw(_encode(fields))
