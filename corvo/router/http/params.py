"""Path and query parameters: names, numbers and cursors."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias, get_args

import msgspec

from corvo.nearest import nearest
from corvo.protocol.ops.base import ID_BYTES_MAX, NAME_BYTES_MAX
from corvo.protocol.ops.checks import bad_name
from corvo.protocol.questions import Consistency
from corvo.router.caller import Caller, ReadHere
from corvo.router.http.bodies import REQUEST_KEY_MAX, TIME_NS_MAX
from corvo.router.http.messages import Request, Response, bad_field
from corvo.router.http.problems import problem_of
from corvo.router.http.unknown_fields import Finding

Key: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=REQUEST_KEY_MAX, pattern="^[\\x20-\\x7e]*$")
]
"""A client's name for its request in a body; the header `Idempotency-Key` says the same."""

NO_CONTROL: Final = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
"""What names and ids look like, for the schemas."""
QueueName: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX, pattern=NO_CONTROL)
]

_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f]")
_NUMBER: Final = re.compile("[0-9]{1,19}")
_NAME_SHOWN: Final = 60

LINEARIZABLE: Final = "linearizable"
LOCAL: Final = "local"
"""How a read by id is answered: by the leader, or by any replica."""


def check_parameters(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Problem` for the first parameter that a route does not declare."""
    names = sorted(known)
    for name in given:
        if name not in names:
            raise bad_field(name[:_NAME_SHOWN], _unknown_parameter(name, names))


def _unknown_parameter(name: str, known: Sequence[str]) -> str:
    near = nearest(name, tuple(known))
    if near:
        hint = f"did you mean {near}?"
    else:
        *others, last = known or ["no parameters"]
        hint = f"this request has {', '.join(others)}{' and ' if others else ''}{last}"
    return f"unknown parameter {name[:_NAME_SHOWN]!r}; {hint}"


def unknown_parameters(given: Iterable[str], known: frozenset[str]) -> list[Finding]:
    """The parameters that a route does not declare."""
    return [
        Finding(name[:_NAME_SHOWN], name, known, "unknown parameter")
        for name in given
        if name not in known
    ]


def job_id_of(request: Request) -> str:
    """The id in the path. Raises `Problem` for what cannot be one."""
    return checked_job_id(request.params["id"])


def checked_job_id(job_id: str) -> str:
    """The id of a job. Raises `Problem` for an invalid one."""
    if len(job_id) > ID_BYTES_MAX or _CONTROL.search(job_id):
        raise bad_field(
            "id", f"id: expected at most {ID_BYTES_MAX} characters, without control characters"
        )
    return job_id


def queue_of(request: Request) -> str:
    """The name of a queue in the path. Raises `Problem` for what cannot be one."""
    return checked_queue("name", request.params["name"])


def checked_queue(field: str, name: str) -> str:
    """The name of a queue. Raises `Problem` for what cannot be one."""
    if not name:
        raise bad_field(field, f"{field} is empty")
    refused = bad_name(field, name)
    if refused is not None:
        raise problem_of(refused)
    return name


def number_of(request: Request, name: str, *, default: int, at_most: int) -> int:
    """A number of at least 1 in the query. Raises `Problem`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= at_most:
        raise bad_field(name, f"{name}: expected a whole number from 1 to {at_most}")
    return int(text)


def text_of(request: Request, name: str, *, at_most: int) -> str:
    """A text in the query that has to be there. Raises `Problem`."""
    text = request.query.get(name, "")
    if not text.strip():
        raise bad_field(name, f"{name} is required")
    if len(text) > at_most:
        raise bad_field(name, f"{name}: expected at most {at_most} characters")
    return text


def consistency_of(request: Request) -> Consistency | None:
    """Whether an answer waits for the mirror, if the query says so. Raises `Problem`."""
    text = request.query.get("consistency")
    known: tuple[Consistency, ...] = get_args(Consistency)
    for each in known:
        if text == each:
            return each
    if text:
        raise bad_field(
            "consistency", f"consistency: expected one of {', '.join(known)}; got {text[:60]!r}"
        )
    return None


def reader_of(request: Request) -> Caller:
    """The caller of a read by id, by `consistency` in the query. Raises `Problem`."""
    text = request.query.get("consistency", "")
    if text == LOCAL:
        return msgspec.structs.replace(request.caller, here=ReadHere())
    if text not in ("", LINEARIZABLE):
        known = f"{LINEARIZABLE}, {LOCAL}"
        raise bad_field(
            "consistency", f"consistency: expected one of {known}; got {text[:_NAME_SHOWN]!r}"
        )
    return request.caller


def with_contact(response: Response, caller: Caller) -> Response:
    """An answer with the age of its data, if any replica may have given it."""
    if caller.here is not None:
        contact_ms = caller.here.contact_ms
        told = "unknown" if contact_ms is None else str(contact_ms)
        response.headers = [*response.headers, ("corvo-leader-contact-ms", told)]
    return response


def after_of(request: Request) -> str:
    """The name behind which a list is to begin; empty for its beginning. Raises `Problem`."""
    after = request.query.get("after", "")
    if len(after) > NAME_BYTES_MAX:
        raise bad_field("after", f"after: expected at most {NAME_BYTES_MAX} characters")
    return after


class Place(NamedTuple):
    """The place of a job or batch in a list: by its time, and by its id where that is the same."""

    at_ns: int
    job_id: str


def write_cursor(place: Place) -> str:
    """A place as something that only we read."""
    text = f"{place.at_ns}:{place.job_id}"
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(request: Request) -> Place | None:
    """The place behind which the next page begins, if one is asked for. Raises `Problem`."""
    text = request.query.get("cursor")
    if not text:
        return None
    place = _parse_cursor(text)
    if place is None:
        raise bad_field("cursor", "unknown cursor; send `cursor` from the previous page")
    return place


def _parse_cursor(text: str) -> Place | None:
    try:
        plain = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return None
    at_ns, colon, job_id = plain.partition(":")
    if not (colon and _NUMBER.fullmatch(at_ns) and len(job_id) <= ID_BYTES_MAX):
        return None
    return Place(int(at_ns), job_id) if 0 < int(at_ns) <= TIME_NS_MAX else None
