"""Jobs as JSON: the one place where a document becomes what clients see."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from corvo.model import Job, JobError, trace_of
from corvo.protocol.jobs import EventBody, JobBody, JobSummary, agent_view, error_bodies
from corvo.protocol.ops.base import as_json
from corvo.protocol.queries import StoredJob
from corvo.protocol.reasons import dlq_reason, reason_text
from corvo.times import format_time, format_time_or_none


def job_body(job: Job, errors: Sequence[JobError]) -> JobBody:
    """All that clients may see of a job; its lease token is not a part of that."""
    trace = trace_of(job)
    return JobBody(
        **asdict(job_summary(job, errors)),
        retry_backoff=job.backoff,
        retry_base_delay_ms=job.retry_base_delay_ms,
        retry_max_delay_ms=job.retry_max_delay_ms,
        hostname=job.hostname,
        progress=as_json(job.progress),
        checkpoint=as_json(job.checkpoint),
        result=as_json(job.result),
        lease_expires_at=format_time_or_none(job.lease_expires_ns),
        cancel_requested=job.cancel_requested,
        expire_at=format_time_or_none(job.expires_ns),
        chain_config=as_json(job.chain),
        waits_for=job.waits_for,
        crashes=job.crashes,
        held_at=format_time_or_none(job.held_ns),
        errors=error_bodies(job, errors),
        agent=agent_view(job.agent) if job.agent is not None else None,
        trail=[
            EventBody(at=format_time(event.at_ns), what=event.what, by=event.by, why=event.why)
            for event in job.trail
        ],
        traceparent=trace.traceparent if trace is not None else "",
        tracestate=trace.tracestate if trace is not None else "",
    )


def job_summary(job: Job, errors: Sequence[JobError]) -> JobSummary:
    """What a list shows of a job."""
    return JobSummary(
        id=job.id,
        queue=job.queue,
        state=job.state,
        payload=msgspec.Raw(job.payload),
        priority=job.priority,
        attempt=job.attempt,
        max_retries=job.max_retries,
        kind=job.kind,
        unique_key=job.unique_key,
        batch_id=job.batch_id,
        worker_id=job.worker_id,
        tags=job.tags,
        parent_id=job.parent_id,
        chain_id=job.chain_id,
        chain_step=job.chain_step if job.chain_id else None,
        scheduled_at=format_time_or_none(job.scheduled_ns),
        created_at=format_time(job.created_ns),
        started_at=format_time_or_none(job.started_ns),
        completed_at=format_time_or_none(job.completed_ns),
        failed_at=format_time_or_none(job.failed_ns),
        finished_at=format_time_or_none(job.finished_ns),
        hold_reason=job.hold_reason,
        last_error=reason_text(job) or (errors[-1].error if errors else ""),
        dlq_reason=dlq_reason(job),
    )


def stored_job(job: Job, errors: Sequence[JobError]) -> StoredJob:
    """A document for the server's own decisions: without the JSON that none of them needs."""
    bare = replace(job, payload=b"", result=b"", progress=b"", checkpoint=b"", chain=b"", trail=())
    return StoredJob(
        job=bare,
        payload=msgspec.Raw(job.payload),
        checkpoint=as_json(job.checkpoint),
        trail=job.trail,
        errors=tuple(errors),
    )
