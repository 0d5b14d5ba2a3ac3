"""Every command: its group, its summary, and the module that runs it. Nothing is imported for it.

`corvo --help`, the completion of shells and docs/cli.md are made from this table.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

JOBS: Final = "Jobs"
QUEUES: Final = "Queues"
WORKING: Final = "Work"
SERVER: Final = "Server"
GROUPS: Final = (JOBS, QUEUES, WORKING, SERVER)


class Command(NamedTuple):
    """One word, and what does it."""

    group: str
    summary: str
    place: str
    """Module and function, which takes the arguments behind the word and returns the exit code.

    A module alone has the command in its `VERBS`."""


_ROOM: Final = "corvo.client_commands"

COMMANDS: Final[Mapping[str, Command]] = {
    "enqueue": Command(JOBS, "enqueue a job, or many from a pipe", f"{_ROOM}.enqueue"),
    "inspect": Command(JOBS, "show jobs by id", f"{_ROOM}.jobs"),
    "search": Command(JOBS, "list the jobs that match filters", f"{_ROOM}.search"),
    "retry": Command(JOBS, "retry finished or scheduled jobs, with all attempts", f"{_ROOM}.jobs"),
    "requeue": Command(JOBS, "retry dead jobs, with one more attempt", f"{_ROOM}.jobs"),
    "cancel": Command(JOBS, "cancel jobs; their workers are asked to stop", f"{_ROOM}.jobs"),
    "move": Command(JOBS, "move jobs to another queue", f"{_ROOM}.jobs"),
    "delete": Command(JOBS, "delete jobs", f"{_ROOM}.jobs"),
    "hold": Command(JOBS, "hold jobs for approval", f"{_ROOM}.jobs"),
    "approve": Command(JOBS, "approve held jobs (they become pending)", f"{_ROOM}.jobs"),
    "reject": Command(JOBS, "reject held jobs (they become dead)", f"{_ROOM}.jobs"),
    "expedite": Command(JOBS, "start scheduled or retrying jobs now", f"{_ROOM}.jobs"),
    "priority": Command(JOBS, "change the priority of jobs", f"{_ROOM}.jobs"),
    "dead": Command(JOBS, "list dead jobs, the newest first", f"{_ROOM}.batches"),
    "batches": Command(JOBS, "list batches, or show some", f"{_ROOM}.batches"),
    "events": Command(JOBS, "show events of jobs and queues, as they happen", f"{_ROOM}.events"),
    "wait": Command(JOBS, "wait until jobs have ended", f"{_ROOM}.wait"),
    "explain": Command(JOBS, "explain why no worker has a job", f"{_ROOM}.wait"),
    "bulk": Command(
        JOBS, "run one action on many jobs, and follow bulk operations", f"{_ROOM}.bulk:main"
    ),
    "queues": Command(QUEUES, "list queues with their counts and rates", f"{_ROOM}.queues"),
    "pause": Command(QUEUES, "pause queues: no job is fetched", f"{_ROOM}.queues"),
    "resume": Command(QUEUES, "resume paused queues", f"{_ROOM}.queues"),
    "drain": Command(QUEUES, "pause queues until their active jobs have ended", f"{_ROOM}.queues"),
    "clear": Command(
        QUEUES, "delete the pending, scheduled and retrying jobs of queues", f"{_ROOM}.queues"
    ),
    "destroy": Command(QUEUES, "delete queues with all their jobs", f"{_ROOM}.queues"),
    "schedules": Command(
        QUEUES, "list, create, change and run schedules (cron jobs)", f"{_ROOM}.schedules:main"
    ),
    "worker": Command(WORKING, "run a command for each job", f"{_ROOM}.worker"),
    "fetch": Command(WORKING, "fetch jobs, for scripts", f"{_ROOM}.working"),
    "ack": Command(WORKING, "complete jobs, for scripts", f"{_ROOM}.working"),
    "fail": Command(WORKING, "report failed attempts, for scripts", f"{_ROOM}.working"),
    "heartbeat": Command(WORKING, "renew leases, for scripts", f"{_ROOM}.working"),
    "release": Command(
        WORKING, "give active jobs back; the attempt does not count", f"{_ROOM}.jobs"
    ),
    "snooze": Command(
        WORKING, "give active jobs back until later; the attempt does not count", f"{_ROOM}.jobs"
    ),
    "workers": Command(WORKING, "list the workers of the last 24 hours", f"{_ROOM}.status"),
    "status": Command(SERVER, "show the health of the server, and its queues", f"{_ROOM}.status"),
    "keys": Command(SERVER, "list, create and delete API keys", f"{_ROOM}.keys:main"),
    "top": Command(
        SERVER, "show queues, workers, shards and errors live in the terminal", "corvo.tui.command"
    ),
    "cluster": Command(
        SERVER, "show a cluster, and drain and remove its nodes", f"{_ROOM}.cluster:main"
    ),
    "verify": Command(
        SERVER,
        "check a stopped data directory, a backup, or a running cluster",
        "corvo.verify.command",
    ),
    "backup": Command(
        SERVER, "copy all jobs and settings of a running cluster", "corvo.backup_commands"
    ),
    "restore": Command(
        SERVER, "bring a backup, or queues of it, back to a cluster", "corvo.backup_commands"
    ),
    "profile": Command(
        SERVER, "name servers and their API keys, and choose one", f"{_ROOM}.profile:main"
    ),
    "completion": Command(
        SERVER, "print the completion script of a shell", f"{_ROOM}.completion:main"
    ),
    "dev": Command(SERVER, "start a server for trying things out", f"{_ROOM}.dev:main"),
    "server": Command(SERVER, "start a server", "corvo.commands:server"),
    "config": Command(
        SERVER, "show every setting, its value and its source", "corvo.commands:config"
    ),
    "openapi": Command(SERVER, "print the HTTP API as OpenAPI", "corvo.commands:openapi"),
    "version": Command(SERVER, "print the version", "corvo.cli:version"),
}

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "cron": ("schedules",),
    "held": ("search", "--state", "held"),
}
"""Other words for a command, those of corvo-go among them."""

_TIMELINE: Final = "GET /api/v1/jobs/{id}/timeline has the history of a job"
ABSENT: Final[Mapping[str, str]] = {
    "approval-policy": "hold a job with `corvo hold`, or from its worker",
    "budget": "the limit of an agent's job is max_cost_usd of its enqueue",
    "iterations": _TIMELINE,
    "providers": "limits of providers are not available; limit the queue, by the HTTP API",
    "scores": "scores are not available; keep them in the result of a job",
    "replay": f"there is no replay of iterations; {_TIMELINE}",
    "seed": "enqueue jobs of your own with `corvo enqueue`",
    "usage": "the cost of an agent's job is shown by `corvo inspect`",
}
"""Commands of corvo-go that this server cannot do, and what to use."""
