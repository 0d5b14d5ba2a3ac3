"""Descriptions of all fields of the HTTP API, for the OpenAPI document.

A field is found by `Schema.field` (several schemas with commas between them), or else by its name,
which then means the same in every schema. A test fails for a field without a text, a text without a
field, an example that its schema does not allow, and a number whose unit is not named.
"""

from typing import Final, NamedTuple

from corvo.model import Priority


class Field(NamedTuple):
    """The text of a field."""

    about: str
    example: object = None
    default: str = ""
    """The value of a request's field that is left out; empty where that is only `not set`."""


JOB: Final = "s02_job_01HXZ2T6Q4M8V0W3Y5B7C9D1E3"
_BATCH: Final = "s02_batch_01HXZ2T6Q4M8V0W3Y5B7C9D1E3"
_CHAIN: Final = "s02_chain_01HXZ2T6Q4M8V0W3Y5B7C9D1E3"
_BULK: Final = "s01_bulk_01HXZ2T6Q4M8V0W3Y5B7C9D1E3"
_TIME: Final = "2026-02-20T10:00:05Z"
_HASH: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_OWN: Final = "Any JSON, at most 1 MiB (`limits.{}_bytes_max`), stored byte for byte."

_JOBS: Final[dict[str, Field]] = {
    "id": Field("Id of the job.", JOB),
    "job_id": Field("Id of the job.", JOB),
    "job_ids": Field("Ids of the jobs.", [JOB]),
    "EnqueueBatchAnswer.job_ids": Field("Ids of the jobs, in the order of the request.", [JOB]),
    "PartialAnswer.job_ids": Field(
        "Ids in the order of the request; `null` for a job that may not exist.", [JOB, None]
    ),
    "BulkBody.job_ids": Field(
        "Ids of the jobs, at most 20,000. A second mention is ignored.", [JOB]
    ),
    "EnqueueBody, EnqueueItem.id": Field(
        "Id of your choice: 1 to 128 letters, digits and `_ . : -`. If a job with this id exists,"
        " that job is returned and no second one is created.",
        "order-1042",
        "given by the server",
    ),
    "BatchedJob.id, BatchedJob.job_id": Field("Id of the job; `null` if it failed.", JOB),
    "queue": Field("Name of the queue: 1 to 255 bytes of UTF-8.", "mail"),
    "StepBody.queue": Field(
        "Queue of the step. In `steps[0]`, the queue of the enqueued job.", "mail"
    ),
    "MoveJob.queue": Field("Queue to move the job to.", "mail-slow"),
    "BulkFilter, Filter, SearchBody.queue": Field("Exact name of the queue.", "mail"),
    "state": Field("State of the job.", "pending"),
    "AckAnswer.state": Field("State of the job after the call.", "completed"),
    "MadeJob.state": Field(
        "State of the job; left out for a job that only holds the unique key.", "pending"
    ),
    "LiveEvent.state": Field("State of the job after the event.", "completed"),
    "BulkFilter, Filter, SearchBody.state": Field(
        "States, at least one of which must be the job's: `pending`, `active`, `held`,"
        " `completed`, `retrying`, `dead`, `cancelled`, `scheduled`.",
        ["dead", "held"],
    ),
    "payload": Field(_OWN.format("payload"), {"to": "ada@example.com"}, "`{}`"),
    "TextHit.payload": Field("Payload of the job, as JSON in a string.", '{"to": "ada"}'),
    "result": Field("Result of the job. " + _OWN.format("result"), {"sent": True}),
    "checkpoint": Field(
        "Data for the next attempt of the job. " + _OWN.format("checkpoint"), {"page": 4}
    ),
    "EnqueueBody, EnqueueItem.checkpoint": Field(
        "Initial checkpoint, given to the first attempt. Any JSON, at most 1 MiB.", {"page": 4}
    ),
    "progress": Field(
        "Progress of the attempt. Any JSON, at most 16 KiB (`limits.progress_bytes_max`).",
        {"current": 3, "total": 9},
    ),
    "kind": Field("Type of the job: any text of yours, for workers and searches.", "welcome"),
    "priority": Field("Priority: 0 is critical, 1 is high, 2 is normal.", int(Priority.NORMAL)),
    "EnqueueBody, EnqueueItem, SetPriority.priority": Field(
        "Priority: `critical` (0), `high` (1), `normal` (2) or `low` (the same as normal).",
        "high",
        "`normal`",
    ),
    "BulkFilter, Filter, SearchBody.priority": Field(
        "Priority: `critical`, `high` or `normal`.", "high"
    ),
    "max_retries": Field("Number of attempts, the first included.", 3, "3"),
    "attempt": Field("Number of attempts so far, the present one included.", 1),
    "ErrorBody.attempt": Field("Number of the attempt that failed; the first is 1.", 1),
    "attempts_remaining": Field("Number of attempts that are left.", 2),
    "next_attempt_at": Field("Time of the next attempt, by RFC 3339.", _TIME),
    "retry_backoff": Field(
        "Growth of the delay between attempts: `none`, `fixed`, `linear` or `exponential`.",
        "exponential",
        "`exponential`",
    ),
    "retry_base_delay": Field("Delay before the second attempt, as a duration.", "5s", "`5s`"),
    "retry_base_delay_ms": Field("Delay before the second attempt, in milliseconds.", 5000, "5000"),
    "retry_max_delay": Field("Longest delay between attempts, as a duration.", "10m", "`10m`"),
    "retry_max_delay_ms": Field(
        "Longest delay between attempts, in milliseconds. 0 is no limit.", 600000, "600000"
    ),
    "retry_jitter": Field("Random change of each delay, in per cent of it.", 20, "0"),
    "max_run_time": Field(
        "Longest time of one attempt, as a duration. A longer attempt counts as failed.",
        "30m",
        "no limit",
    ),
    "max_run_time_ms": Field(
        "Longest time of one attempt, in milliseconds. A longer attempt counts as failed.",
        1800000,
        "no limit",
    ),
    "max_crashes": Field("Number of expired leases after which the job is held.", 5, "5"),
    "unique_key": Field(
        "Unique key: a queue has at most one unfinished job with it. At most 255 bytes.",
        "welcome-ada",
    ),
    "unique_period": Field(
        "Longest time that the unique key blocks duplicates, in whole seconds.", 3600, "3600"
    ),
    "unique_period_ms": Field(
        "Longest time that the unique key blocks duplicates, in milliseconds.", 60000, "3600000"
    ),
    "scheduled_at": Field(
        "Time at which the job becomes pending, by RFC 3339. A past time means now.", _TIME, "now"
    ),
    "delay": Field(
        "Time from now until the job becomes pending, as a duration. Not with `scheduled_at`.",
        "1h30m",
        "none",
    ),
    "delay_ms": Field(
        "Time from now until the job becomes pending, in milliseconds.", 5000, "none"
    ),
    "SnoozeBody, SnoozeEntry.delay": Field(
        "Time until the job can be fetched again, as a duration.", "10m"
    ),
    "SnoozeBody, SnoozeEntry.delay_ms": Field(
        "Time until the job can be fetched again, in milliseconds.", 600000
    ),
    "EnqueueBody, EnqueueItem.expire_after": Field(
        "Time from now after which a job that no worker has becomes dead, as a duration.",
        "24h",
        "never",
    ),
    "expire_after_ms": Field(
        "Time from now after which a job that no worker has becomes dead, in milliseconds.",
        86400000,
        "never",
    ),
    "expire_active": Field("Also expire the job while a worker has it.", True, "false"),
    "tags": Field("Tags: names and values, at most 32 of 256 bytes each.", {"tenant": "acme"}),
    "TextHit.tags": Field("Tags of the job, as JSON in a string.", '{"tenant": "acme"}'),
    "BulkFilter, Filter, SearchBody.tags": Field(
        "Tags that the job must have, with these values.", {"tenant": "acme"}
    ),
    "parent_id": Field("Id of the job that created this one, as its producer said.", JOB),
    "batch_id": Field("Id of the batch.", _BATCH),
    "EnqueueBody, EnqueueItem.batch_id": Field(
        "Id of an existing batch that the job joins. The batch must not have ended.", _BATCH
    ),
    "chain": Field("Steps that follow this job."),
    "chain_id": Field("Id of the chain.", _CHAIN),
    "chain_step": Field(
        "Number of the step, from 0. -1 is the `on_exit` job, -2 the `on_failure` job.", 0
    ),
    "EnqueueBody, EnqueueItem.chain_id, EnqueueBody, EnqueueItem.chain_step": Field(
        "Given by the server; a job that sends it is rejected. Send `chain` instead."
    ),
    "chain_config": Field(
        "Legacy form of `chain` and `depends_on` in one object.",
        {"steps": [{"queue": "a"}, {"queue": "b"}]},
    ),
    "steps": Field("Steps in order, 2 to 100. The first is the enqueued job."),
    "on_failure": Field(
        "Job that is enqueued when a step becomes dead: a queue name, or queue and payload.",
        "alerts",
    ),
    "on_exit": Field(
        "Job that is enqueued after the last step: a queue name, or queue and payload.", "cleanup"
    ),
    "depends_on": Field(
        "Ids of jobs, at most 64, that must be completed before this one starts.", [JOB]
    ),
    "waits_for": Field("Ids of jobs that must be completed before this one starts.", [JOB]),
    "callback_queue": Field(
        "Queue of the job that is enqueued when all jobs of the batch have ended.", "done"
    ),
    "callback_payload": Field(
        "Payload of that job. The counts of the batch are added to an object.", {"import": 42}
    ),
    "batch": Field("Batch of these jobs."),
    "agent": Field("Limits of an agent's job."),
    "max_iterations": Field(
        "Number of iterations after which the job is held. 0 is no limit.", 10, "no limit"
    ),
    "max_cost_usd": Field(
        "Cost in US dollars above which the job is held. 0 is no limit.", 2.5, "no limit"
    ),
    "iteration_timeout": Field(
        "Intended time of one iteration, as a duration. Shown, but not enforced.", "5m"
    ),
    "iteration_timeout_ms": Field(
        "Intended time of one iteration, in milliseconds. Shown, but not enforced.", 300000
    ),
    "iteration": Field("Number of iterations that are done.", 3),
    "total_cost_usd": Field("Cost of all iterations so far, in US dollars.", 0.75),
    "unique_existing": Field("Whether an equal job existed before.", False),
    "unique_job_id": Field("Id of the job that existed before.", JOB),
    "job": Field("The job."),
    "MadeJob.id": Field("Id of the job.", JOB),
    "created_at": Field("Time of creation, by RFC 3339.", _TIME),
    "ErrorBody.created_at": Field("Time of the failure, by RFC 3339.", _TIME),
    "started_at": Field("Time of the last start, by RFC 3339.", _TIME),
    "completed_at": Field("Time of completion, by RFC 3339.", _TIME),
    "failed_at": Field("Time of the last failure, by RFC 3339.", _TIME),
    "held_at": Field("Time of the last hold, by RFC 3339.", _TIME),
    "finished_at": Field(
        "Time at which it became completed, dead or cancelled, by RFC 3339.", _TIME
    ),
    "changed_at": Field("Time of the last event in the job's history, by RFC 3339.", _TIME),
    "expire_at": Field("Time at which the job expires, by RFC 3339.", _TIME),
    "hold_reason": Field("Reason of the hold.", "needs review"),
    "last_error": Field("Message of the last error.", "mailbox full"),
    "failures": Field("Number of errors in the job's life.", 3),
    "crashes": Field("Number of expired leases since the job was created or retried.", 1),
    "errors": Field("The last 20 errors, oldest first."),
    "ErrorBody.id": Field("Number of the error, from 1.", 1),
    "trail": Field("History of the job: the first event and the last 31."),
    "cancel_requested": Field("Whether the worker was asked to stop.", False),
    "EventBody, Moment.at": Field("Time of the event, by RFC 3339.", _TIME),
    "what": Field("Type of the event.", "started"),
    "by": Field("API key or worker that caused it.", "ada"),
    "why": Field("Reason of the event.", "duplicate order"),
    "Why.why": Field("Reason, for the history of the job.", "duplicate order"),
    "Why.reason": Field("The same as `why`.", "duplicate order"),
    "reset_attempts": Field("Set the numbers of attempts and crashes to 0.", True, "false"),
    "code": Field("Code of the error, for programs. It never changes.", "LEASE_LOST"),
    "ExplainBody.code": Field("Code of the reason, for programs.", "paused"),
    "text": Field("The reason as a sentence.", "the queue is paused"),
    "until": Field("Time at which the reason ends by itself, if known, by RFC 3339.", _TIME),
    "ahead": Field("Number of jobs before this one in the queue, as far as counted.", 12),
    "moments": Field("Events in order."),
    "phase": Field(
        "Phase after the event: `queued`, `running`, `scheduled`, `retrying`, `blocked`, `held`,"
        " `ended` or `unknown`.",
        "queued",
    ),
    "ms": Field("Time until the next event, in milliseconds.", 250.5),
    "phases_ms": Field("Total time in each phase, in milliseconds.", {"queued": 250.5}),
    "is_cut": Field("Whether events after the first may be missing.", False),
    "Moment.error": Field("Error of the failed attempt."),
}

_WORK: Final[dict[str, Field]] = {
    "queues": Field("Names of queues, 1 to 64. They are served in this order.", ["mail", "sms"]),
    "count": Field("Number of jobs, 1 to 512.", 10, "1"),
    "timeout": Field(
        "Legacy: seconds of both `wait_seconds` and `lease_seconds`.", 30, "waits 30, leases 60"
    ),
    "wait_seconds": Field(
        "Longest wait for a job, in seconds. 0 does not wait. Values above 60"
        " (`limits.fetch_wait_s_max`) count as 60.",
        30,
        "30",
    ),
    "lease_seconds": Field("Length of the lease, in whole seconds: 1 to 86,400.", 60, "60"),
    "lease_duration": Field("Length of the lease, in seconds.", 60),
    "lease_token": Field("Number of the lease. A call with an old number is rejected.", 7),
    "lease_expires_at": Field("Time at which the lease ends, by RFC 3339.", _TIME),
    "HeartbeatAnswer.lease_expires_at": Field(
        "Time at which the first of the renewed leases ends, by RFC 3339.", _TIME
    ),
    "worker_id": Field("Id of the worker: any text of yours.", "worker-3"),
    "BulkFilter, Filter, SearchBody.worker_id": Field(
        "Id of the worker that has the job, had it last, or failed it.", "worker-3"
    ),
    "hostname": Field("Host of the worker, to be shown.", "host-7"),
    "request_key": Field(
        "Request key, at most 64 characters of printable ASCII. The same as the header"
        " `Idempotency-Key`.",
        "import-42-7",
    ),
    "acks": Field("Jobs to complete, 1 to 512."),
    "fails": Field("Failed jobs, 1 to 512."),
    "ReleaseBatchBody, SnoozeBatchBody.jobs": Field("Jobs to give back, 1 to 512."),
    "EnqueueBatchBody.jobs": Field("Jobs to create, 1 to 10,000 (`limits.batch_jobs_max`)."),
    "HeartbeatBody.jobs": Field("Jobs, at most 1,000: an object by job id, or a list."),
    "HeartbeatBody.worker_id": Field("Id of the worker, for all jobs that name none.", "worker-3"),
    "HoldJob.lease_token": Field(
        "Number of the lease, from a worker that holds its own job. Without it, the API key must"
        " have the role `operator`.",
        7,
    ),
    "usage": Field("Usage of the attempt. It is added up for an agent's job."),
    "BeatBody, BeatEntry.usage": Field("Accepted and ignored: only the usage of an ack counts."),
    "input_tokens": Field("Number of input tokens.", 1200, "0"),
    "output_tokens": Field("Number of output tokens.", 300, "0"),
    "cache_creation_tokens": Field("Number of tokens written to a cache.", 0, "0"),
    "cache_read_tokens": Field("Number of tokens read from a cache.", 900, "0"),
    "model": Field("Name of the language model.", "model-7"),
    "provider": Field("Name of its provider.", "example"),
    "cost_usd": Field("Cost in US dollars, exact to a millionth.", 0.0125, "0"),
    "agent_status": Field(
        "For an agent's job: `continue` starts another iteration, `done` completes the job, `hold`"
        " waits for approval.",
        "continue",
        "`done`",
    ),
    "AckBody, AckEntry.hold_reason": Field("Reason for `agent_status` `hold`.", "needs review"),
    "step_status": Field(
        "For a job of a chain: `continue` starts the next step, `exit` ends the chain.",
        "exit",
        "`continue`",
    ),
    "error": Field("Message of the error.", "mailbox full"),
    "FailBody, FailEntry.error": Field(
        "Message of the error. Longer than 16 KiB, it is cut.", "mailbox full"
    ),
    "backtrace": Field("Stack trace of the error. Longer than 64 KiB, it is cut.", "mail.py:17"),
    "error_class": Field("Type of the error.", "SMTPError"),
    "retryable": Field("Whether the job may be retried. If not, it becomes dead.", False, "true"),
    "FailBody, FailEntry.retry_after": Field(
        "Delay until the next attempt, as a duration, instead of the backoff's.", "90s"
    ),
    "FailBody, FailEntry.retry_after_ms": Field(
        "Delay until the next attempt, in milliseconds, instead of the backoff's.", 90000
    ),
    "reason": Field("Reason, for the history of the job.", "needs review"),
    "status": Field("`ok`.", "ok"),
    "BeatAnswer.status": Field(
        "`ok`: the lease is renewed. `cancel`: stop working on the job. `error`: not renewed; send"
        " the heartbeat again.",
        "ok",
    ),
    "FailAnswer.status": Field(
        "`retrying`, `dead`, or `cancelled` if the worker had been asked to stop.", "retrying"
    ),
    "ItemAnswer.status": Field("State of the job after the call.", "completed"),
    "EnqueueAnswer, BatchedJob.status": Field(
        "State of the job, or `duplicate` if an unfinished job has the unique key.", "pending"
    ),
    "JobDone.status": Field("Result of the action, such as `cancelled` or `moved`.", "retried"),
    "QueueDoneBody.status": Field("Result of the action, such as `paused` or `cleared`.", "paused"),
    "FetchBatchAnswer.jobs": Field("Leased jobs."),
    "acked": Field("Number of completed jobs.", 2),
    "HeartbeatAnswer.acked": Field("Ids of the jobs whose leases were renewed.", [JOB]),
    "HeartbeatAnswer.jobs": Field("Result for each job, by its id."),
    "unknown": Field("Ids of the jobs that this worker no longer has.", [JOB]),
    "HeartbeatAnswer.canceled": Field("Ids of the jobs that should stop.", [JOB]),
    "failed": Field("Number of failed attempts.", 2),
    "released": Field("Number of jobs that were given back.", 2),
    "snoozed": Field("Number of jobs that were given back.", 2),
    "results": Field("Result for each job, in the order of the request."),
    "EnqueueBatchAnswer, PartialAnswer.jobs": Field(
        "Result for each job, in the order of the request."
    ),
}

_ERRORS: Final[dict[str, Field]] = {
    "ProblemBody, PartialAnswer, GoneBody.error": Field(
        "The error as a sentence for people. It may change.", "delay: 'soon' is not a duration"
    ),
    "Ready.error": Field("Missing parts, as a sentence.", "shard-1: no leader"),
    "Ready.code": Field("`NOT_READY` if something is missing.", "NOT_READY"),
    "outcome": Field(
        "Whether the request took effect: `not_applied`, `applied` or `unknown`.", "not_applied"
    ),
    "BatchedJob, BeatAnswer, ItemAnswer, PartialAnswer, ProblemBody.reason": Field(
        "Cause of the error, where one code has several.", "bad_state"
    ),
    "field": Field("Field of the request that is invalid.", "jobs[3].delay"),
    "retry_after_ms": Field("Time after which to send the request again, in milliseconds.", 1000),
    "request_id": Field("Id of the request, as in the log.", "3f2a91c04d-1b"),
    "type": Field("Type of the event.", "completed"),
    "GoneBody.type": Field("`gone`.", "gone"),
    "last_event_id": Field("Event id to continue from.", "s0=1042-8f3a22c1"),
    "GoneBody.shards": Field("Shards whose events are no longer stored.", [0]),
}

_SEARCH: Final[dict[str, Field]] = {
    "payload_contains": Field(
        "Text that the payload contains, as it was sent. Case matters.", "ada@example.com"
    ),
    "payload_jq": Field("Condition on the payload, in a subset of jq.", ".amount > 100"),
    "error_contains": Field("Text that one of the stored error messages contains.", "SMTP"),
    "has_errors": Field("Whether an attempt of the job has failed.", True),
    "BulkFilter, Filter, SearchBody.kind": Field("Exact kind of the job.", "welcome"),
    "BulkFilter, Filter, SearchBody.unique_key": Field("Exact unique key.", "order-17"),
    "BulkFilter, Filter, SearchBody.batch_id": Field("Id of the batch of the job.", _BATCH),
    "BulkFilter, Filter, SearchBody.parent_id": Field("Id of the parent job.", JOB),
    "BulkFilter, Filter, SearchBody.chain_id": Field("Id of the chain of the job.", _CHAIN),
    "job_id_prefix": Field("Prefix of the job id.", "s03_job_01HX"),
    **{
        f"{when}_{side}": Field(
            f"Jobs {what} {word} this time, by RFC 3339. The time itself does not match.", _TIME
        )
        for when, what in (
            ("created", "created"),
            ("scheduled", "that become due"),
            ("started", "started"),
            ("completed", "completed"),
            ("expire", "that expire"),
        )
        for side, word in (("after", "after"), ("before", "before"))
    },
    "attempt_min": Field("Smallest number of attempts.", 1),
    "attempt_max": Field("Largest number of attempts.", 3),
    "sort": Field(
        "Field to sort by: `created_at`, `priority`, `started_at`, `completed_at` or `attempt`.",
        "created_at",
        "`created_at`",
    ),
    "order": Field("Direction of the order: `asc` or `desc`.", "desc", "`desc`"),
    "cursor": Field("Cursor of the next page; `null` or left out on the last.", "lQHECB"),
    "SearchBody.cursor": Field(
        "Cursor of the next or previous page, from an answer to the same search.",
        "lQHECB",
        "first page",
    ),
    "prev_cursor": Field("Cursor of the previous page; `null` on the first.", "lQHECB"),
    "limit": Field("Number of jobs on a page, 1 to 1,000.", 50, "50"),
    "jobs": Field("The jobs."),
    "total": Field("Number of jobs that match.", 142),
    "DeadJobs.total": Field("Number of dead jobs, from the counts of the queues.", 142),
    "total_is_exact": Field("Whether `total` is exact. If not, it is a lower bound.", True),
    "has_more": Field("Whether there is a next page. A page may be short, or even empty.", True),
    "partial": Field("Whether the search ran out of time. `cursor` continues it.", False),
    "why_partial": Field("Why the page is partial.", "the time for a search was over"),
    "duration_ms": Field("Time that the work took, in milliseconds.", 1.8),
    "as_of": Field("Position of the mirror in each shard, such as `s0`."),
    "q": Field("The words, as they were sent.", "welcome mail"),
    "TextFoundBody.results": Field("Jobs that match."),
    "TextHit.state": Field("State of the job.", "pending"),
    "index": Field("Log index up to which the mirror has read the shard.", 4211),
    "Place.at": Field("Time of the shard at this index, by RFC 3339.", _TIME),
    "MirrorShard.at": Field("Time of the shard at this index, by RFC 3339.", _TIME),
    "is_whole": Field("Whether the mirror has all jobs. `false` during a full pass.", True),
}

_BULKS: Final[dict[str, Field]] = {
    "action": Field("Action on each job.", "retry"),
    "BulkBody.action": Field(
        "Action on each job: `retry`, `requeue`, `delete`, `cancel`, `move`, `change_priority`,"
        " `hold`, `approve` or `reject`.",
        "retry",
    ),
    "filter": Field("Conditions that select the jobs."),
    "all": Field(
        "With an empty `filter`: all jobs of all queues. Without `all` that is an error.",
        True,
        "false",
    ),
    "move_to_queue": Field("Target queue of `move`.", "mail-slow"),
    "BulkBody.priority": Field(
        "New priority, for `change_priority`: `critical` (0), `high` (1), `normal` (2) or `low`"
        " (the same as normal).",
        "high",
    ),
    "BulkBody, BulkStatus.reason": Field(
        "Reason of `cancel`, `hold` and `reject`, for the history of the jobs.", "duplicate order"
    ),
    "async": Field("Answer with an id at once, however few the jobs are.", True, "false"),
    "DryRun.async": Field("Whether the operation would run in the background.", False),
    "dry_run": Field("Only report which jobs are selected; change nothing.", True, "false"),
    "BulkAnswer.dry_run": Field("Report of the jobs that would change, if `dry_run` was sent."),
    "rate": Field("Most jobs in a second; 0 is no limit.", 500),
    "BulkBody.rate": Field("Most jobs in a second.", 500, "no limit"),
    "affected": Field("Number of jobs that were changed.", 142),
    "BulkAnswer, BulkStatus.errors": Field(
        "Number of jobs whose shard did not answer. They may have been changed.", 0
    ),
    "skipped": Field("Jobs that were left unchanged, and why: the first 1,000."),
    "skipped_total": Field("Number of jobs that were left unchanged.", 3),
    "by_code": Field("Number of jobs that were not changed, by code.", {"bad_state": 3}),
    "Skipped.code": Field("Why the job was left unchanged, for programs.", "bad_state"),
    "Skipped.error": Field("Why the job was left unchanged.", "job s02_job_… is pending"),
    "bulk_operation_id": Field("Id of the bulk operation.", _BULK),
    "BulkBegun.status": Field("`queued`.", "queued"),
    "estimated_total": Field("Number of jobs that were selected.", 142000),
    "progress_url": Field("Path of its progress events.", f"/api/v1/bulk/{_BULK}/progress"),
    "bulks": Field("The bulk operations."),
    "BulkStatus.id": Field("Id of the bulk operation.", _BULK),
    "BulkStatus.status": Field(
        "`queued`, `running`, `completed`, `failed` or `cancelled`.", "running"
    ),
    "BulkStatus.total": Field("Number of jobs that were selected.", 142000),
    "BulkStatus.by": Field("Name of the API key that asked for it.", "ada"),
    "BulkStatus.error": Field("Why it failed or is held, and what to do.", "the mirror is off"),
    "BulkStatus.started_at": Field("Time at which it started, by RFC 3339.", _TIME),
    "processed": Field("Number of jobs that are done with, in any way.", 5000),
    "updated_at": Field("Time of the last progress, by RFC 3339.", _TIME),
    "is_exact": Field("Whether `total` is exact. If not, it is a lower bound.", True),
    "applicable": Field("Number of these jobs in a state that the action accepts.", 139),
    "takes": Field("States that the action accepts.", ["dead"]),
    "states": Field("Number of jobs in each state.", {"dead": 139}),
    "DryRun.queues": Field("Number of jobs in each of the 100 largest queues.", {"mail": 142}),
    "samples": Field("Some of the jobs."),
}

_QUEUES: Final[dict[str, Field]] = {
    "name": Field("Name of the queue.", "mail"),
    "paused": Field("Whether fetches get no jobs from the queue.", False),
    "draining": Field("Whether the queue is paused until its active jobs have ended.", False),
    **{
        state: Field(f"Number of {state} jobs.", number)
        for state, number in (
            ("pending", 12),
            ("active", 3),
            ("held", 0),
            ("completed", 5000),
            ("dead", 1),
            ("scheduled", 4),
            ("retrying", 2),
            ("cancelled", 0),
        )
    },
    "enqueued": Field("Number of all jobs of the queue.", 5022),
    "QueueBody.failed": Field("Legacy: always 0. See `retrying` and `dead`.", 0),
    "max_concurrency": Field("Most active jobs at a time; left out or 0 is no limit.", 10),
    "rate_limit": Field("Most fetched jobs in each `rate_window_ms`; 0 is no limit.", 100),
    "rate_window_ms": Field("Window of the rate limit, in milliseconds.", 60000),
    "retention_ms": Field(
        "Time that finished jobs are kept, in milliseconds. 0 is the server's setting `retention`.",
        86400000,
    ),
    "retention": Field("The same as a duration.", "168h"),
    "oldest_pending_at": Field(
        "Time since which the oldest pending job waits, by RFC 3339.", _TIME
    ),
    "rates": Field("Rates of the queue; left out while the mirror is unavailable."),
    **{
        f"{what}_{minutes}m": Field(f"{text} in the last {span}.", number)
        for minutes, span, number in ((1, "whole minute", 60), (5, "5 minutes", 300))
        for what, text in (
            ("enqueued", "Number of jobs enqueued"),
            ("started", "Number of attempts started"),
            ("completed", "Number of jobs completed"),
            ("failed", "Number of attempts that failed"),
        )
    },
    "max": Field("Most active jobs at a time. 0 or less removes the limit.", 10),
    "SetThrottleBody.rate": Field("Most fetched jobs in each window.", 100),
    "window_ms": Field("Length of the window, in milliseconds.", 60000),
    "period": Field("Length of the window, as a duration.", "1m"),
    "minute": Field("Start of the minute, by RFC 3339.", _TIME),
    "started": Field("Number of attempts that started.", 60),
    "MinuteView.enqueued": Field("Number of jobs that were enqueued.", 60),
    "MinuteView.completed": Field("Number of jobs that were completed.", 60),
    "MinuteView.failed": Field("Number of attempts that failed.", 1),
    "MinuteView.dead": Field("Number of jobs that became dead.", 0),
    "MinuteView.cancelled": Field("Number of jobs that were cancelled.", 0),
    "counts": Field("Number of jobs in each state.", {"pending": 12}),
    "totals": Field("Number of jobs in each state, in all queues.", {"pending": 12}),
    "SummaryBody.at": Field("Time of the server, by RFC 3339.", _TIME),
    "SummaryBody.queues": Field("The queues."),
    "workers": Field("Number of workers by state."),
    "SummaryBody.shards": Field("The shards."),
    "source": Field("`mirror`, or `shards` while the mirror is unavailable.", "mirror"),
    "alive": Field("Number of workers that fetch jobs or are busy.", 8),
    "not_fetching": Field("Number of workers that renew leases but do not fetch.", 0),
    "WorkerBody.id": Field("Id of the worker.", "worker-3"),
    "WorkerBody.queues": Field("The list of its queues, as JSON in a string.", '["mail"]'),
    "queue_names": Field("Queues that it fetched from.", ["mail"]),
    "last_heartbeat": Field("Time of its last request, by RFC 3339.", _TIME),
    "WorkerBody.started_at": Field("Time of its first request, by RFC 3339.", _TIME),
    "WorkerBody.state": Field(
        "`alive`: fetches jobs or is busy. `not_fetching`: renews leases but has not fetched for"
        " 3 minutes though it has room. `gone`: no request for 5 minutes and no lease. `unknown`:"
        " no request, and the server has just started or the mirror is unavailable.",
        "alive",
    ),
    "waiting": Field("Whether a fetch of the worker waits for a job now.", True),
    "last_asked_at": Field("Time of its last fetch, by RFC 3339.", _TIME),
    "WorkerBody.active": Field("Number of jobs that it has.", 3),
}

_NODE: Final[dict[str, Field]] = {
    "shard": Field("Number of the shard, from 0.", 0),
    "shards": Field("Number of shards.", 4),
    "seq": Field("Log index of the event in its shard.", 1042),
    "number": Field("Number of the event within its log entry, from 1.", 1),
    "at_ns": Field("Time of the event, in nanoseconds since 1970.", 1763490000000000000),
    "data": Field("The progress, for events of type `progress`.", {"percent": 40}),
    "LiveEvent.at": Field("Time of the event, by RFC 3339.", _TIME),
    "role": Field("Role: `readonly`, `producer`, `worker`, `operator` or `admin`.", "worker"),
    "NewKey.role": Field(
        "Role: `readonly`, `producer`, `worker`, `operator` or `admin`.", "worker", "`readonly`"
    ),
    "NewKey.name": Field("Name of the API key, 1 to 255 characters.", "mail workers"),
    "KeyView.name, CallerView.name": Field("Name of the API key.", "mail workers"),
    "Check.name": Field("Name of the check.", "shard-1"),
    "Info.name": Field("Name of the program.", "corvo"),
    "key": Field(
        "Secret of your own, 16 to 256 visible characters.",
        "a-secret-of-32-characters-or-more",
        "generated by the server",
    ),
    "api_key": Field("The secret. Store it now: it cannot be read again.", "sk_01HXZ2"),
    "key_hash": Field("SHA-256 of the secret, in hex.", _HASH),
    "namespace": Field("Namespace. Only `default` exists.", "default", "`default`"),
    "queue_scope": Field(
        "Queues of the API key: exact names, or prefixes that end in `*`. Empty is all queues.",
        ["mail", "sms-*"],
        "all queues",
    ),
    "NewKey.expires_at": Field("Time at which the API key expires, by RFC 3339.", _TIME, "never"),
    "expires_at": Field("Time at which the API key expires, by RFC 3339.", _TIME),
    "enabled": Field("Whether the API key is accepted.", True, "true"),
    "warning": Field("Consequence for the server's access, if any.", "the server is closed now"),
    "MadeKey.status": Field("`created` or `updated`.", "created"),
    "GoneKey.status": Field("`deleted`.", "deleted"),
    "admin_password_set": Field("Whether the server has an admin key in its settings.", True),
    "keys_required": Field("Whether requests need an API key.", True),
    "caller": Field("The API key of this request; `null` if it had none."),
    "ok": Field("Whether the check passed.", True),
    "Check.why": Field("Cause of the failure.", "no leader"),
    "missing": Field("Names of the checks that failed.", ["shard-1"]),
    "checks": Field("All checks, if `verbose` was sent."),
    "Ready.status": Field("`ok` or `unavailable`.", "ok"),
    "raft_state": Field("`Leader`, `Follower` or `Candidate`.", "Leader"),
    "leader": Field("Whether this node leads one of its shards.", True),
    "SummaryShard.leader": Field("Number of the node that leads the shard.", 1),
    "SummaryShard.status": Field("`up`, or `away` if no leader can be reached.", "up"),
    "mirror": Field("`following`, `catching up` during a full pass, or `away`.", "following"),
    "server_version": Field("Version of the server.", "0.1.0"),
    "api_version": Field("Version of the API.", "0.3.0"),
    "node": Field("Number of the node.", 1),
    "durability": Field(
        "`sync`: a job is on disk before it is confirmed. `relaxed`: the last half second may be"
        " lost with the machine.",
        "sync",
    ),
    "auth": Field(
        "`keys`: requests need an API key. `open`: no API key exists and only this machine has"
        " access. `off`: no API key is needed.",
        "keys",
    ),
    "mode": Field("`cluster` with one shard, `multi-raft` with several.", "multi-raft"),
    "groups": Field("The shards."),
    "sqlite_mirror": Field("State of the mirror of this node."),
    "Group, ClusterStatus.status": Field(
        "`healthy`, `no leader`, `repairing`, `disk full`, `unreachable`, or `degraded` if one of"
        " several shards is not healthy.",
        "healthy",
    ),
    "Group, ClusterStatus.error": Field("Why the shard is unreachable.", "no connection"),
    "Group, ClusterStatus.state": Field("`Leader`, `Follower` or `Candidate`.", "Leader"),
    "leader_id": Field("Number of the leading replica.", "1"),
    "node_id": Field("Number of this node.", "1"),
    "term": Field("Raft term.", "7"),
    "applied_index": Field("Index of the last log entry that was applied.", "1042"),
    "commit_index": Field("Index of the last log entry that was committed.", "1042"),
    "last_index": Field("Index of the last log entry.", "1042"),
    "first_index": Field("Index of the first log entry that is kept.", "1"),
    "raft_nosync": Field("Whether the durability is `relaxed`.", False),
    "raft_store": Field("Kind of log files.", "segments"),
    "apply_pending_now": Field("Number of operations that wait to be committed.", 0),
    "apply_max_pending": Field("Most operations that may wait.", 8192),
    "overload_total": Field("Number of operations rejected because too many waited.", 0),
    "applied_total": Field("Number of log entries applied since the process started.", 1042),
    "disk_free_bytes": Field("Free space on the disk of the shard, in bytes.", 53687091200),
    "commit_time_hist": Field("Time from proposal to application of an entry."),
    "fsync_time_hist": Field("Time to sync the log to disk."),
    "snapshot": Field("Checkpoints of the shard."),
    "latest_index": Field("Log index of the newest checkpoint.", 1000),
    "Checkpoint.count": Field("Number of checkpoints since the process started.", 3),
    "nodes": Field("Replicas of the shard."),
    "Member.id": Field("Number of the replica.", "1"),
    "voter": Field("Whether the replica votes.", True),
    "Member.role": Field("Raft role, known for this replica only.", "leader"),
    "self": Field("Whether this is the replica of this node.", True),
    "Member.active": Field(
        "Whether the leader has had a recent message of the replica; only the leader knows.", True
    ),
    "match_index": Field("Last log index that the replica is known to have.", "1042"),
    "Measured.count": Field("Number of values.", 1042),
    "avg": Field("Mean, in seconds.", 0.002),
    "p50": Field("Median, in seconds.", 0.001),
    "p90": Field("90th percentile, in seconds.", 0.004),
    "p99": Field("99th percentile, in seconds.", 0.009),
    "buckets": Field("Buckets of the histogram."),
    "le": Field("Upper bound of the bucket, in seconds.", 0.005),
    "Bucket.count": Field("Number of values in this bucket.", 12),
    "MirrorBody.status": Field(
        "`following`, `catching up` during a full pass, `cut off` from a shard, `away` or `none`.",
        "following",
    ),
    "MirrorGlance.status": Field(
        "`following`, `catching up` during a full pass, `cut off` from a shard, `away` or `none`.",
        "following",
    ),
    "MirrorBody.why": Field("Why the mirror is unavailable.", "the process is starting"),
    "MirrorBody.shards": Field("State of each shard in the mirror."),
    "file_bytes": Field("Size of the mirror's file, in bytes.", 104857600),
    "MirrorBody.jobs": Field("Number of jobs in the mirror, estimated.", 250000),
    "rebuilds": Field("Number of rebuilds.", 0),
    "questions": Field("Number of queries that were answered.", 1042),
    "interrupted": Field("Number of queries that ran out of time.", 2),
    "write_lag": Field("Time from a change in a shard to its row in the mirror."),
    "schema": Field("Version of the mirror's tables.", 3),
    "resident_bytes": Field("Memory of the process, in bytes.", 104857600),
    "cpu_seconds": Field("Processor time, in seconds.", 12.5),
    "lag": Field("Log entries that the mirror is behind the shard.", 0),
    "lag_ms": Field("Time that the mirror is behind the shard, in milliseconds.", 0.0),
    "lag_entries": Field("Log entries that the mirror is behind the shard.", 0),
    "is_linked": Field("Whether the mirror is connected to the shard.", True),
    "passes": Field("Number of full passes that started.", 1),
    "changes": Field("Number of changed documents that were read.", 1042),
    "Rebuilding.status": Field("`rebuilding`.", "rebuilding"),
    "goroutines": Field("Legacy name: number of tasks in the router's event loop.", 42),
    "gomaxprocs": Field("Legacy name: number of processors.", 2),
    "heap_inuse_bytes": Field("Legacy name: memory of the router, in bytes.", 104857600),
    "gc_pause_p99_ns": Field("99th percentile of garbage collections, in nanoseconds.", 1000000),
    "cpu_user_ns": Field("Processor time of the router in user mode, in nanoseconds.", 12500000000),
    "cpu_sys_ns": Field("Processor time of the router in the kernel, in nanoseconds.", 1500000000),
    "loop_lag_p99_ns": Field("99th percentile of the event loop's delay, in nanoseconds.", 1000000),
    "loop_stalls": Field("Number of times the event loop stood still for over 250 ms.", 0),
    "processes": Field("Resources of each process, by its name."),
    "cpu_user_s": Field("Processor time in user mode, in seconds.", 12.5),
    "cpu_system_s": Field("Processor time in the kernel, in seconds.", 1.5),
    "threads": Field("Number of threads.", 4),
    "descriptors": Field("Number of open files and sockets.", 64),
    "descriptors_max": Field("Most open files and sockets.", 65536),
    "started_s": Field("Start time, in seconds since 1970.", 1763490000.0),
    "ErrorBody.error": Field("Message of the error.", "mailbox full"),
}


_PARTS: Final = (_JOBS, _WORK, _ERRORS, _SEARCH, _BULKS, _QUEUES, _NODE)


def _rows() -> dict[str, Field]:
    """Every text, by `Schema.field` or by `field` alone."""
    rows: dict[str, Field] = {}
    for names, text in (row for part in _PARTS for row in part.items()):
        schemas: list[str] = []
        for name in names.split(", "):
            schema, _, field = name.rpartition(".")
            schemas.append(schema)
            if not schema and name[0].isupper():
                schemas[-1] = name
                continue
            found = [f"{each}.{field}" if each else field for each in schemas]
            assert not rows.keys() & set(found), f"{names} has two texts"
            rows.update(dict.fromkeys(found, text))
            schemas = []
    return rows


FIELDS: Final = _rows()


def key_of(schema: str, field: str) -> str:
    """The row of a field of a schema; empty when there is none."""
    own = f"{schema}.{field}"
    return own if own in FIELDS else field if field in FIELDS else ""
