"""Errors of commands: their text, their JSON, and the exit code of each.

0    done                          6   no answer, or not now: safe to repeat
1    failed otherwise              7   partly done
2    usage, or not confirmed       8   waited, and the time was over
3    not found                     9   a job that was waited for is dead or cancelled
4    API key missing, or          10   the state is not healthy
     not allowed                 130   interrupted
5    conflict
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from corvo.client.errors import BadClientOption, ClientError, RequestFailed
from corvo.client_commands.tables import plain
from corvo.errors import StoreError

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
NOT_FOUND: Final = 3
NOT_ALLOWED: Final = 4
CONFLICT: Final = 5
NO_ANSWER: Final = 6
PARTLY: Final = 7
TIME_OVER: Final = 8
NOT_COMPLETED: Final = 9
UNHEALTHY: Final = 10
INTERRUPTED: Final = 130

_BY_STATUS: Final[Mapping[int, int]] = {
    400: BAD_USAGE,
    401: NOT_ALLOWED,
    403: NOT_ALLOWED,
    404: NOT_FOUND,
    409: CONFLICT,
    422: CONFLICT,
    429: NO_ANSWER,
    502: NO_ANSWER,
    503: NO_ANSWER,
    504: NO_ANSWER,
}
_BY_CODE: Final[Mapping[str, int]] = {
    "UNREACHABLE": NO_ANSWER,
    "OUTCOME_UNKNOWN": NO_ANSWER,
    "NOT_CAUGHT_UP": NO_ANSWER,
    "IN_USE": CONFLICT,
    "NOT_FOUND": NOT_FOUND,
    "PARTLY_DONE": PARTLY,
    "FAILED": FAILED,
    "DAMAGED_BACKUP": FAILED,
    "TIME_OVER": TIME_OVER,
    "NOT_COMPLETED": NOT_COMPLETED,
    "INTERRUPTED": INTERRUPTED,
}
_HINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "UNAUTHORIZED": (
        "pass an API key:   CORVO_API_KEY, or --api-key @FILE",
        "see where the present one is from:   corvo profile show",
    ),
    "FORBIDDEN": (
        "see the role of the API key:   corvo keys status",
        "the rights of each role:   docs/security.md",
    ),
    "NO_CLUSTER": ("start a cluster:   docs/cluster.md",),
    "LEADER_UNAVAILABLE": ("see which shards have a leader:   corvo cluster status",),
}

JOB_NOT_FOUND: Final = "find its id:   corvo search --queue QUEUE"
_HINTS_BY_REASON: Final[Mapping[str, tuple[str, ...]]] = {
    "job_not_found": (JOB_NOT_FOUND,),
    "batch_not_found": ("list them:   corvo batches",),
}


class CommandFailed(ClientError):
    """A command that does not ask a server, or not further."""


@contextmanager
def disk_failures() -> Iterator[None]:
    """A disk that refuses something, as an error of the command: `CommandFailed`."""
    try:
        yield
    except BrokenPipeError:
        raise  # of the output
    except (OSError, StoreError) as error:
        told = str(error)
        if isinstance(error, OSError) and error.strerror is not None:
            at = f"{error.filename}: " if error.filename is not None else ""
            told = f"{at}{error.strerror}"
        hint = "check the rights and the free space; TMPDIR names another folder for copies"
        raise CommandFailed("DISK_FAILED", told, hints=[hint]) from error


def exit_code(error: ClientError) -> int:
    """The exit code of a command that ends with an error."""
    if isinstance(error, RequestFailed):
        return _BY_STATUS.get(error.status, FAILED)
    if isinstance(error, BadClientOption):
        return BAD_USAGE
    return _BY_CODE.get(error.code, BAD_USAGE if isinstance(error, CommandFailed) else FAILED)


def hints_of(error: ClientError) -> list[str]:
    """What to do, a line each."""
    reason = error.reason if isinstance(error, RequestFailed) else ""
    return [*error.hints, *_HINTS_BY_REASON.get(reason, ()), *_HINTS.get(error.code, ())]


def as_text(error: ClientError) -> str:
    """An error for people."""
    parts = [error.code, f"exit {exit_code(error)}"]
    if error.request_id:
        parts.append(f"request {error.request_id}")
    lines = [f"error: {error.message}", *(f"  {hint}" for hint in hints_of(error))]
    return "".join(f"{plain(line)}\n" for line in [*lines, f"  [{', '.join(parts)}]"])


class _Shown(msgspec.Struct, frozen=True):
    code: str
    message: str
    outcome: str
    hints: list[str]
    request_id: str
    exit: int


def as_json(error: ClientError) -> str:
    """The same for programs."""
    shown = _Shown(
        error.code,
        error.message,
        error.outcome,
        hints_of(error),
        error.request_id,
        exit_code(error),
    )
    return msgspec.json.encode({"error": shown}).decode() + "\n"
