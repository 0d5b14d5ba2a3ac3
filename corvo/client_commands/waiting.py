"""Waiting for jobs to end: by `corvo wait`, and by `corvo enqueue --wait`."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corvo.client import jobs as api
from corvo.client_commands.failures import JOB_NOT_FOUND, CommandFailed
from corvo.client_commands.session import Session
from corvo.client_commands.tables import counted

_LOOK_S: Final = 0.2


def wait_for(
    session: Session,
    job_ids: Sequence[str],
    within_s: float | None,
    ended: Callable[[msgspec.Raw, api.Job], None],
) -> None:
    """Wait until jobs have ended, and pass on each as it ends. Raises `CommandFailed`.

    A job that does not exist is an error, and so is one that was deleted meanwhile.
    """
    left = list(dict.fromkeys(job_ids))

    def is_done() -> bool:
        nonlocal left
        still = []
        for start in range(0, len(left), api.GET_MANY_MAX):
            part = left[start : start + api.GET_MANY_MAX]
            found = {}
            for raw in api.get_jobs(session.client, part):
                job = msgspec.json.decode(raw, type=api.Job)
                found[job.id] = (raw, job)
            for job_id in part:
                if job_id not in found:
                    raise CommandFailed(
                        "NOT_FOUND", f"job {job_id} not found", hints=[JOB_NOT_FOUND]
                    )
                raw, job = found[job_id]
                if job.state in api.ENDED:
                    ended(raw, job)
                else:
                    still.append(job_id)
        left = still
        return not left

    session.wait(
        is_done,
        within_s,
        lambda: f"{counted(len(left), 'job has', 'jobs have')} not ended: {left[0]}",
        _LOOK_S,
    )


def check_completed(jobs: Sequence[api.Job]) -> None:
    """Whether all jobs are completed. Raises `CommandFailed` with the exit code for it."""
    failed = [job for job in jobs if job.state != "completed"]
    if failed:
        job = failed[0]
        why = f": {job.last_error}" if job.last_error else ""
        more = f", and {len(failed) - 1} more" if failed[1:] else ""
        raise CommandFailed(
            "NOT_COMPLETED",
            f"job {job.id} is {job.state}{why}{more}",
            hints=[f"see why:   corvo inspect {job.id}", f"try again:   corvo retry {job.id}"],
        )
