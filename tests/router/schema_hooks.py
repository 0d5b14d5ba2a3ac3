"""What schemathesis is told beside the document: which jobs there are, and not to wait for work.

It would hardly ever guess the id of a job, and would judge nothing but how a stranger is refused.
"""

from collections import deque
from typing import Final

import msgspec
import schemathesis
from schemathesis.core.transport import Response

JOBS_KEPT: Final = 20


class _Named(msgspec.Struct):
    """An answer that names a job."""

    job_id: str = ""


class _Seen:
    """The jobs of late, and how many requests have named one."""

    def __init__(self) -> None:
        self.job_ids: Final[deque[str]] = deque(maxlen=JOBS_KEPT)
        self.named = 0


SEEN: Final = _Seen()


@schemathesis.hook
def before_call(
    _: schemathesis.HookContext, case: schemathesis.Case, __: dict[str, object]
) -> None:
    """Let a fetch answer at once, and every other request for a job be for one that is there."""
    body = case.body
    if case.path.startswith("/api/v1/fetch") and isinstance(body, dict):
        wait_s = body.get("wait_seconds", 1)
        if isinstance(wait_s, int | float) and wait_s >= 0:
            case.body = {**body, "wait_seconds": 0}
    for name in ("id", "job_id"):
        if name in case.path_parameters and "/auth/" not in case.path:
            SEEN.named += 1
            if SEEN.job_ids and SEEN.named % 2:
                case.path_parameters[name] = SEEN.job_ids[SEEN.named // 2 % len(SEEN.job_ids)]


@schemathesis.hook
def after_call(_: schemathesis.HookContext, __: schemathesis.Case, response: Response) -> None:
    """Note the job that was made or given out."""
    if response.status_code not in {200, 201}:
        return
    try:
        job_id = msgspec.json.decode(response.content, type=_Named).job_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if job_id and job_id not in SEEN.job_ids:
        SEEN.job_ids.append(job_id)
