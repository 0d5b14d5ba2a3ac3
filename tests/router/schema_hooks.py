"""What schemathesis is told beside the document: which jobs there are, and not to wait for work.

It would hardly ever guess the id of a job that is being worked on, and would judge nothing but how
a stranger is refused. Every other request is left as it came up with it.
"""

from pathlib import Path
from typing import Final, Protocol

import msgspec
import schemathesis
from schemathesis.core.transport import Response

from tests.router.judging import JOBS

MADE_MAX: Final = 200


class Case(Protocol):
    """One request, as far as we look at it."""

    path: str
    path_parameters: dict[str, object]
    headers: dict[str, object]
    body: object


class _Named(msgspec.Struct):
    """An answer that names jobs: one that was given out has a token."""

    job_id: str | None = ""
    lease_token: int = 0
    job: "_Named | None" = None
    jobs: list["_Named"] = []


class _Seen(msgspec.Struct):
    """What is there."""

    given: list[str]
    """Jobs that are being worked on; each is taken once."""
    made: list[str]
    """Jobs that are not, or are not known to be; they take turns."""
    turn: int = 0


SEEN: Final = msgspec.json.decode(Path(JOBS).read_bytes(), type=_Seen)


@schemathesis.hook
def before_call(_: schemathesis.HookContext, case: Case, __: dict[str, object]) -> None:
    """Let every other request be for something that is there."""
    SEEN.turn += 1
    is_ours = SEEN.turn % 2 == 0
    body = whole(case.body) if is_ours else case.body
    if isinstance(body, dict):
        if case.path.startswith("/api/v1/fetch"):
            body = _fetch(body, is_ours=is_ours)
        dropped = set()
        if is_ours and "Idempotency-Key" in (case.headers or {}):
            dropped = {"request_key"}  # the two would have to be the same
        if is_ours and "{job_id}" in case.path:
            dropped |= {"lease_token", "worker_id"}  # of nobody
        body = {name: value for name, value in body.items() if name not in dropped}
    case.body = body
    if not is_ours:
        return
    if "{job_id}" in case.path and SEEN.given:
        case.path_parameters["job_id"] = SEEN.given.pop()
    elif "/jobs/{id}" in case.path:
        case.path_parameters["id"] = SEEN.made[SEEN.turn // 2 % len(SEEN.made)]


def _fetch(body: dict[str, object], *, is_ours: bool) -> dict[str, object]:
    """A fetch that does not wait, and of ours one where jobs are."""
    wait_s = body.get("wait_seconds", 1)
    if wait_s is None or (isinstance(wait_s, int | float) and wait_s >= 0):
        body = {**body, "wait_seconds": 0}
    if is_ours and isinstance(body.get("queues"), list):
        body = {**body, "queues": ["mail", "sms"]}
    return body


def whole(value: object) -> object:
    """The same with 3 for 3.0, which are one number to a schema and two kinds of it to us."""
    match value:
        case float() if value.is_integer() and abs(value) < 1 << 53:
            return int(value)
        case list():
            return [whole(item) for item in value]
        case dict():
            return {name: whole(item) for name, item in value.items()}
        case _:
            return value


@schemathesis.hook
def after_call(_: schemathesis.HookContext, __: Case, response: Response) -> None:
    """Note the job that was made or given out."""
    if response.status_code not in {200, 201}:
        return
    try:
        named = msgspec.json.decode(response.content, type=_Named)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    SEEN.given.extend(one.job_id for one in (named, *named.jobs) if one.job_id and one.lease_token)
    if named.job is not None and named.job_id and len(SEEN.made) < MADE_MAX:
        SEEN.made.append(named.job_id)
