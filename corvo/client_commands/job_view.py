"""Jobs as rows of a list, and one job in full."""

from typing import Final

import msgspec

from corvo.client.jobs import Job
from corvo.client_commands.records import Column, Listing
from corvo.client_commands.tables import age, pairs, plain
from corvo.trace_context import trace_id

_PRIORITIES: Final = {0: "critical", 1: "high", 2: "normal"}

JOBS: Final = Listing(
    "jobs",
    Job,
    lambda job: job.id,
    (
        Column[Job]("id", lambda job, _: job.id),
        Column[Job]("queue", lambda job, _: job.queue),
        Column[Job]("state", lambda job, _: job.state),
        Column[Job]("kind", lambda job, _: job.kind, is_wide=True),
        Column[Job]("priority", lambda job, _: priority(job), is_wide=True),
        Column[Job]("try", lambda job, _: f"{job.attempt}/{job.max_retries}"),
        Column[Job]("age", lambda job, now_ns: age(job.created_at, now_ns)),
        Column[Job]("created_at", lambda job, _: job.created_at, is_wide=True),
        Column[Job]("worker", lambda job, _: job.worker_id, is_wide=True),
        Column[Job]("unique_key", lambda job, _: job.unique_key, is_wide=True),
        Column[Job]("batch", lambda job, _: job.batch_id, is_wide=True),
        Column[Job]("tags", lambda job, _: tags(job), is_wide=True),
        Column[Job]("error", lambda job, _: job.last_error or job.hold_reason),
        Column[Job]("payload", lambda job, _: bytes(job.payload).decode(), is_wide=True),
    ),
)


def priority(job: Job) -> str:
    """The priority as a word."""
    return _PRIORITIES.get(job.priority, str(job.priority))


def tags(job: Job) -> str:
    """The tags in one cell."""
    return " ".join(f"{name}={job.tags[name]}" for name in sorted(job.tags))


def job_text(job: Job, now_ns: int) -> str:
    """One job in full."""
    rows = [
        ("id", job.id),
        ("queue", job.queue),
        ("state", job.state),
        ("kind", job.kind),
        ("priority", priority(job)),
        ("attempt", f"{job.attempt} of {job.max_retries}"),
        ("worker", job.worker_id if job.state == "active" else ""),
        ("lease until", job.lease_expires_at),
        ("unique key", job.unique_key),
        ("batch", job.batch_id),
        ("parent", job.parent_id),
        ("chain", job.chain_id),
        ("tags", tags(job)),
        ("waits for", " ".join(job.waits_for)),
        ("trace", trace_id(job.traceparent) if job.traceparent else ""),
        ("created", _moment(job.created_at, now_ns)),
        ("scheduled", _moment(job.scheduled_at, now_ns)),
        ("started", _moment(job.started_at, now_ns)),
        ("completed", _moment(job.completed_at, now_ns)),
        ("failed", _moment(job.failed_at, now_ns)),
        ("expires", _moment(job.expire_at, now_ns)),
        ("held because", job.hold_reason),
        ("error", job.last_error),
    ]
    parts = [pairs(rows)]
    values = (("payload", job.payload), ("progress", job.progress))
    for name, raw in (*values, ("checkpoint", job.checkpoint), ("result", job.result)):
        if bytes(raw) != b"null":
            parts.append(f"\n{name}:\n{_indented(raw)}")
    if job.errors:
        lines = (f"  {one.attempt}  {one.created_at}  {plain(one.error)}\n" for one in job.errors)
        parts.append(f"\nerrors, by attempt:\n{''.join(lines)}")
    return "".join(parts)


def _moment(at: str, now_ns: int) -> str:
    since = age(at, now_ns)
    if not since:
        return ""
    return f"{at} (in {since[1:]})" if since.startswith("-") else f"{at} ({since} ago)"


def _indented(raw: msgspec.Raw) -> str:
    text = msgspec.json.format(bytes(raw), indent=2).decode()
    return "".join(f"  {plain(line)}\n" for line in text.split("\n"))
