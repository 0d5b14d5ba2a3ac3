"""Descriptions of all operations, schemas, tags and statuses of the HTTP API, for the document."""

from typing import Final

from corvo.router.texts.fields import FIELDS

TAGS: Final = {
    "Producing": "Create jobs.",
    "Working": "Fetch jobs, keep their leases, and report their results.",
    "Jobs": "Read, search and change jobs.",
    "Queues": "Read queues, and change their settings.",
    "Workers": "See the workers.",
    "Events": "Follow events.",
    "Keys": "Manage API keys.",
    "Node": "State of the server, metrics and health probes.",
    "About": "This document.",
}

STATUSES: Final = {
    200: "Done.",
    201: "Created.",
    202: "Accepted: the work continues in the background.",
    204: "No job was available. The answer has no body.",
    304: "The document has not changed since your copy.",
    400: "The request is invalid; `field` names the field.",
    401: "API key missing or unknown.",
    403: "The role or the queues of the API key do not allow this.",
    404: "No such job, queue, API key or bulk operation.",
    408: "The request arrived too slowly.",
    409: "The state of the job, queue or API key does not allow this; `reason` says why.",
    410: "The events after this id are no longer stored.",
    413: "The request or the answer is too large.",
    422: "The request key was used for a different request.",
    429: "Too many requests. Nothing was changed; repeat after `Retry-After`.",
    431: "The headers are too large.",
    500: "Error in the server. The log has details under `request_id`.",
    501: "A shard runs an older release that cannot do this.",
    503: "A required process is temporarily unavailable; repeat after `Retry-After`.",
}

OPERATIONS: Final = {
    "post_enqueue": "Creates a job and answers 201. If a job with this `id`, or an unfinished job"
    " with this `unique_key`, exists, no job is created and the answer is 200.",
    "post_enqueue_batch": "Creates up to 10,000 jobs. All are checked first: if one is invalid,"
    " none is created. Jobs go to their shards separately, so an answer of 503 can mean that some"
    " were created. Send the same request with the same `Idempotency-Key` again to create the"
    " rest.",
    "post_webhooks_queue": "Creates a job whose payload is the body of the request. JSON is kept as"
    " it is; any other text becomes a JSON string; an empty body becomes `{}`.",
    "post_fetch": "Leases the next job of the given queues to the worker. If no job is available,"
    " the request waits up to `wait_seconds` and then answers 204.",
    "post_fetch_batch": "Leases up to `count` jobs of the given queues to the worker. If no job is"
    " available, the request waits up to `wait_seconds` for the first one.",
    "post_ack_job_id": "Completes a job. Repeating the call with the same `lease_token` is safe: it"
    " gets the first answer.",
    "post_ack_batch": "Completes up to 512 jobs. Each job succeeds or fails separately.",
    "post_fail_job_id": "Reports a failed attempt. If attempts are left, the job is retried after a"
    " delay; otherwise it becomes dead.",
    "post_fail_batch": "Reports up to 512 failed attempts. Each job succeeds or fails separately.",
    "post_heartbeat": "Renews the leases of up to 1,000 jobs, and can store progress and"
    " checkpoints. The answer lists the jobs that the worker should stop.",
    "post_release_job_id": "Gives a job back to its old place in the queue. The attempt does not"
    " count.",
    "post_release_batch": "Gives up to 512 jobs back to their old places. Attempts do not count.",
    "post_snooze_job_id": "Gives a job back. It becomes pending again after the delay, and the"
    " attempt does not count.",
    "post_snooze_batch": "Gives up to 512 jobs back, each after its delay. Attempts do not count.",
    "get_dead": "Lists dead jobs. A page may be short or empty: follow `cursor` until `has_more` is"
    " false.",
    "get_jobs": "Searches jobs with the filter in the query. The mirror answers; `as_of` says how"
    " far it has read each shard.",
    "post_jobs_search": "Searches jobs with the filter in the body. The mirror answers; `as_of`"
    " says how far it has read each shard.",
    "post_jobs_bulk": "Runs one action on all jobs that match a filter now, or on a list of jobs."
    " Up to 10,000 jobs are changed before the answer; more run in the background and answer 202.",
    "post_jobs_bulk_get": "Reads up to 1,000 jobs. Unknown ids are left out of the answer.",
    "get_jobs_id": "Reads a job with its payload, result, errors and history from its shard.",
    "delete_jobs_id": "Deletes a job with its payload, errors and history. If a worker has it, its"
    " lease ends.",
    "post_jobs_id_approve": "Makes a held job pending, at the end of its queue.",
    "post_jobs_id_cancel": "Cancels a job. If a worker has it, the worker is asked to stop with its"
    " next heartbeat, and `status` is `cancelling`.",
    "post_jobs_id_expedite": "Makes a scheduled or retrying job pending now.",
    "get_jobs_id_explain": "Says why no worker has the job now, and until when, if known.",
    "post_jobs_id_hold": "Holds a job until it is approved or rejected. A worker may hold a job"
    " that it has, with its `lease_token`.",
    "post_jobs_id_move": "Moves a job to the end of another queue.",
    "post_jobs_id_priority": "Changes the priority of a pending, scheduled, retrying or held job.",
    "post_jobs_id_reject": "Makes a held job dead.",
    "post_jobs_id_requeue": "Makes a dead job pending with one more attempt.",
    "post_jobs_id_retry": "Makes a completed, dead, cancelled or scheduled job pending with all of"
    " its attempts.",
    "get_jobs_id_timeline": "Lists the events and errors of a job in order, and how long it was in"
    " each phase.",
    "get_search_fulltext": "Finds jobs that contain all of the words in id, queue, payload or tags."
    ' Supports "phrases", prefixes (`wel*`) and exclusion (`-test`).',
    "get_queues": "Lists queues by name with their settings, job counts and rates. Beyond `limit`,"
    " follow the `Link` header.",
    "get_queues_name": "Reads one queue.",
    "delete_queues_name": "Deletes a queue with its settings and all of its jobs.",
    "post_queues_name_clear": "Deletes the pending, scheduled and retrying jobs of a queue.",
    "post_queues_name_concurrency": "Limits how many jobs of the queue are active at a time.",
    "post_queues_name_drain": "Pauses the queue. Active jobs continue; the queue is drained when"
    " none is left.",
    "post_queues_name_pause": "Fetches get no jobs from the queue until it is resumed.",
    "post_queues_name_resume": "Fetches get jobs from the queue again.",
    "post_queues_name_retention": "Sets how long finished jobs of the queue are kept. 0 means the"
    " server's setting `retention`.",
    "post_queues_name_throttle": "Limits how many jobs of the queue are fetched in any window of"
    " time.",
    "delete_queues_name_throttle": "Removes the rate limit of the queue.",
    "get_summary": "Reads queues, workers and shards for a dashboard in one request.",
    "get_workers": "Lists the workers of the last 24 hours, the most recent first.",
    "get_events": "Sends events of jobs and queues as server-sent events, until the client"
    " disconnects. A client continues with the id of the last event that it has.",
    "post_auth_keys": "Creates an API key. The secret is only in this answer.",
    "get_auth_keys": "Lists all API keys without their secrets.",
    "delete_auth_keys": "Deletes an API key, by the hash in the body.",
    "delete_auth_keys_key_hash": "Deletes an API key, by the hash in the path.",
    "get_auth_status": "Says whether requests need an API key, and which one this request had.",
    "get_admin_mirror": "Reads how far the mirror has read each shard, and what it costs.",
    "post_admin_rebuild_sqlite": "Rebuilds the mirror from the shards. Searches continue meanwhile,"
    " with `is_whole` false.",
    "get_bulk": "Lists bulk operations that run in the background, newest first.",
    "get_bulk_id": "Reads the progress and result of a bulk operation.",
    "post_bulk_id_cancel": "Stops a bulk operation. Jobs that it has changed stay changed.",
    "get_bulk_id_progress": "Sends the progress of a bulk operation as server-sent events, until it"
    " has ended.",
    "get_cluster_status": "Reads the state of each shard, as its replica on this node sees it.",
    "get_debug_runtime": "Reads memory, processor time and open files of each process of the node.",
    "get_info": "Reads version, number of shards, durability, and how requests show who they are.",
    "get_metrics": "All metrics in the text format of Prometheus. An API key with queues sees only"
    " those.",
    "get_metrics_throughput": "Reads how many jobs were enqueued, completed and failed in each of"
    " the last 60 minutes.",
    "get_server_docs": "This document as a web page.",
    "get_server_docs_css": "Style sheet of the web page.",
    "get_server_healthz": "Legacy health check: 200 if at least one shard answers. Use `/readyz`"
    " and `/livez`.",
    "get_server_livez": "200 while the router's process runs and its event loop turns.",
    "get_server_metrics": "All metrics in the text format of Prometheus. An API key with queues"
    " sees only those.",
    "get_server_openapi_json": "This document, in OpenAPI 3.1.",
    "get_server_readyz": "200 if requests can be sent here: each shard has a leader, and the server"
    " is not stopping.",
    "get_server_startupz": "200 if each shard has had a leader since the router started.",
}

SCHEMAS: Final[dict[str, str]] = {
    "AckAnswer": "Result of an ack, release or snooze.",
    "AckBatchAnswer": "Results of an `ack/batch`, in the order of the request.",
    "AckBatchBody": "Jobs to complete.",
    "AckBody": "Completes a job. All fields are optional.",
    "AckEntry": "One job of an `ack/batch`.",
    "AgentBody": "Limits of a job that runs several iterations, such as a language model's loop.",
    "AgentView": "Limits and progress of an agent's job. A limit that is left out is not set.",
    "Alive": "The router's process is running.",
    "AuthStatus": "Whether requests need an API key, and which one this request had.",
    "Backoff": (
        "Growth of the delay between attempts: `none` (no delay), `fixed` (the base delay),"
        " `linear` (base delay x attempt) or `exponential` (the delay doubles)."
    ),
    "BatchBody": "A batch: jobs that are counted together, and the job that follows them.",
    "BatchedJob": "Result of one job of an `enqueue/batch`. An item with a `code` failed.",
    "BeatAnswer": "Result of the heartbeat of one job.",
    "BeatBody": "Heartbeat of one job. All fields are optional.",
    "BeatEntry": "Heartbeat of one job. A string in `progress` or `checkpoint` is read as JSON.",
    "Bucket": "One bucket of a histogram. Smaller buckets are not included.",
    "BulkAnswer": "Result of a bulk operation that ran while the client waited.",
    "BulkBegun": "A bulk operation that runs in the background.",
    "BulkBody": "One action on many jobs. Jobs are selected by `job_ids` or by `filter`.",
    "BulkFilter": "Conditions that select jobs. All must hold. An unknown field is an error.",
    "BulkGet": "Ids of the jobs to read.",
    "BulkList": "Bulk operations, newest first.",
    "BulkStatus": "State of a bulk operation.",
    "CallerView": "The API key of this request.",
    "ChainBody": "Jobs that run one after the other. The enqueued job is the first step.",
    "Check": "Result of one check of a health probe.",
    "Checkpoint": "Checkpoints of a shard: the newest, and their number since the process started.",
    "ClusterStatus": "State of the shards. With one shard its fields are here, else in `groups`.",
    "DeadJobs": "One page of dead jobs, newest first.",
    "DryRun": "Selection of a bulk operation. Nothing was changed.",
    "EnqueueAnswer": "Result of an enqueue.",
    "EnqueueBatchAnswer": "Results of an `enqueue/batch`, in the order of the request.",
    "EnqueueBatchBody": "Jobs to create.",
    "EnqueueBody": "A job to create. Only `queue` is required.",
    "EnqueueItem": "A job to create. Only `queue` is required.",
    "ErrorBody": "Error of one failed attempt.",
    "EventBody": "One event in the history of a job.",
    "ExplainBody": "Why no worker has the job now: the first reason that applies.",
    "FailAnswer": "Result of a failed attempt.",
    "FailBatchAnswer": "Results of a `fail/batch`, in the order of the request.",
    "FailBatchBody": "Jobs whose attempts failed.",
    "FailBody": "Reports a failed attempt. All fields are optional.",
    "FailEntry": "One job of a `fail/batch`.",
    "FetchBatchAnswer": "Jobs for the worker. The list is empty if no job came in time.",
    "FetchBatchBody": "A request for several jobs. Only `queues` is required.",
    "FetchBody": "A request for one job. Only `queues` is required.",
    "FetchedJob": "A job that is leased to the worker.",
    "Filter": "Conditions that select jobs. All must hold. Fields that are not set are ignored.",
    "FoundBody": "One page of jobs that match a search.",
    "FoundJob": "A job that matches a search.",
    "GoneBody": "Error: the events after the given id are no longer stored.",
    "GoneKey": "An API key was deleted.",
    "Group": "One shard, as its replica on this node reports it. Log indexes are strings.",
    "Health": "Answer of the legacy health check.",
    "HeartbeatAnswer": "Results of a heartbeat.",
    "HeartbeatBody": "Jobs whose leases to renew: an object by job id, or a list.",
    "HoldJob": "Reason of a hold. A worker that holds its own job sends its lease token.",
    "Info": "Version and configuration of the server.",
    "ItemAnswer": "Result of one job of a batch. An item with a `code` failed.",
    "JobBody": "A job. Fields that are empty or not set are left out.",
    "JobDone": "Result of an action on a job.",
    "JobList": "Jobs, in the order of the request.",
    "JobSummary": "A job in a list. Fields that are empty or not set are left out.",
    "KeyView": "An API key without its secret.",
    "LiveEvent": "An event of a job or queue. Fields that are empty are left out.",
    "MadeJob": "A job that was created, or existed before.",
    "MadeKey": "A new API key. Its secret is in no other answer.",
    "Measured": "A histogram, in seconds.",
    "Member": "One replica of a shard.",
    "MinuteView": "Number of jobs in one minute.",
    "MirrorBody": "State of the mirror. Its counters start at 0 with its process.",
    "MirrorGlance": "State of the mirror in short.",
    "MirrorShard": "Position of the mirror in one shard.",
    "Moment": "One event in the history of a job, and how long the phase after it took.",
    "MoveJob": "Target queue of a move.",
    "NewKey": "An API key to create. With the secret of an existing `key`, that one is changed.",
    "OldKey": "The API key to delete.",
    "PartialAnswer": "Error of an `enqueue/batch` after some jobs were, or may have been, created.",
    "Place": "Position of the mirror in the log of one shard.",
    "ProblemBody": "Body of every error.",
    "QueueBody": "A queue: its settings and the number of its jobs in each state.",
    "QueueDoneBody": "Result of an action on a queue.",
    "QueueRates": "Number of jobs in the last whole minute, and in the last five.",
    "Ready": "Result of a health probe.",
    "Rebuilding": "A rebuild of the mirror has started.",
    "ReleaseBatchAnswer": "Results of a `release/batch`, in the order of the request.",
    "ReleaseBatchBody": "Jobs to give back.",
    "ReleaseBody": "Gives a job back to its queue. All fields are optional.",
    "ReleaseEntry": "One job of a `release/batch`.",
    "Runtime": "Resources of the router's process, and of all processes of the node.",
    "SearchBody": "Conditions that select jobs, their order, and the page.",
    "SetConcurrencyBody": "Limit of active jobs in a queue.",
    "SetPriority": "New priority of a job.",
    "SetRetentionBody": "Retention of a queue. One of the two fields is required.",
    "SetThrottleBody": "Rate limit of a queue. One of `window_ms` and `period` is required.",
    "Skipped": "A job that a bulk operation left unchanged, and why.",
    "SnoozeBatchAnswer": "Results of a `snooze/batch`, in the order of the request.",
    "SnoozeBatchBody": "Jobs to give back, to be fetched later.",
    "SnoozeBody": "Gives a job back, to be fetched later. `delay` or `delay_ms` is required.",
    "SnoozeEntry": "One job of a `snooze/batch`. `delay` or `delay_ms` is required.",
    "State": (
        "State of a job: `pending` (waits for a worker), `active` (a worker has it), `held` (waits"
        " for approval), `completed`, `retrying` (waits for its next attempt), `dead` (failed for"
        " good), `cancelled` or `scheduled` (waits for its time)."
    ),
    "StepBody": "One job of a chain.",
    "SummaryBody": "Queues, workers and shards at a glance.",
    "SummaryQueue": "One queue at a glance. Rates are left out while the mirror is unavailable.",
    "SummaryShard": "One shard at a glance.",
    "SummaryWorkers": "Number of workers by state. Workers that are gone are not counted.",
    "TextFoundBody": "Jobs that contain the words, best matches first.",
    "TextHit": "A job that contains the words.",
    "Timeline": "History of a job, oldest event first.",
    "UsageBody": "Usage of an attempt. Negative numbers count as 0.",
    "ProcessStats": "Resources of one process.",
    "Why": "Reason of a change, for the history of the job. All fields are optional.",
    "WorkerBody": "A worker of the last 24 hours.",
}

EXAMPLES: Final[dict[str, object]] = {
    **{name: text.example for name, text in FIELDS.items() if isinstance(text.example, str | int)},
    "state": "dead,held",
    "tag": "tenant:acme",
    "tags": "tenant:acme,env:prod",
    "priority": "high",
    "name": "mail",
    "queues": "mail,sms",
    "job_ids": FIELDS["job_id"].example,
    "types": "dead,failed",
    "topics": "summary",
    "after": "mail",
    "expire_after": "2026-02-20T10:00:05Z",
    "reserved": True,
    "verbose": "1",
}
"""By name, of parameters in paths and queries."""
