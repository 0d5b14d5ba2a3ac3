"""Events: what happened to jobs and queues, as clients are told, and which of it a client wants."""

from typing import Annotated, Final

import msgspec

from corvo.model import EventType
from corvo.protocol import wire
from corvo.protocol.jobs import Time
from corvo.router.caller import Caller
from corvo.router.http import Problem, encode_json
from corvo.scopes import is_reserved
from corvo.times import format_time

TYPES: Final = tuple(sorted(each.public for each in EventType))
"""Every type there is."""

NAMES_MAX: Final = 1_000
"""Queues, jobs or types that one client may name."""
_PUBLIC: Final = {each.stored: each.public for each in EventType}
_PREFIX: Final = "job."
_OVERHEAD_BYTES: Final = 600
"""What an event takes in memory beside its texts, once it has been told to somebody."""


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event."""

    seq: int
    """The place in the shard's log. One entry may bring several events."""
    number: int
    """Which of its entry's events it is, from 1: with `shard` and `seq` it names the event."""
    shard: int
    type: str
    at_ns: int
    """By the shard's clock, which all events of an entry share."""
    at: Time
    job_id: str = ""
    queue: str = ""
    kind: str = ""
    state: str = ""
    """Of the job, behind the event; left out when it is gone."""
    attempt: int = 0
    by: str = ""
    why: str = ""
    data: Annotated[
        msgspec.Raw | msgspec.UnsetType, msgspec.Meta(description="The progress, of `progress`.")
    ] = msgspec.UNSET


class Told(msgspec.Struct, gc=False):
    """One event as it is kept, while somebody may want it."""

    shard: int
    index: int
    number: int
    now_ns: int
    what: wire.Happening
    type: str
    _json: bytes = b""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        what = self.what
        texts = len(what.job_id) + len(what.queue) + len(what.by) + len(what.why)
        return _OVERHEAD_BYTES + 2 * (texts + len(what.data))

    def json(self) -> bytes:
        """What clients are told. Made once, however many listen."""
        if not self._json:
            self._json = encode_json(self._body())
        return self._json

    def _body(self) -> LiveEvent:
        what = self.what
        return LiveEvent(
            seq=self.index,
            number=self.number,
            shard=self.shard,
            type=self.type,
            at_ns=self.now_ns,
            at=format_time(self.now_ns),
            job_id=what.job_id,
            queue=what.queue,
            kind=what.kind,
            state=what.state,
            attempt=what.attempt,
            by=what.by,
            why=what.why,
            data=_in_one_line(what.data) if what.data else msgspec.UNSET,
        )


def _in_one_line(data: bytes) -> msgspec.Raw:
    """JSON as a client sent it may have line ends, and here a line is what ends with one."""
    return msgspec.Raw(msgspec.json.format(data, indent=-1))


def told_of(shard: int, happenings: tuple[wire.Happenings, ...]) -> list[Told]:
    """The events of a page, in order."""
    return [
        Told(shard, of_entry.index, number, of_entry.now_ns, what, _type_of(what.what))
        for of_entry in happenings
        for number, what in enumerate(of_entry.events, start=1)
    ]


def _type_of(stored: str) -> str:
    """The type of an event; a word that another version wrote is its own type."""
    return _PUBLIC.get(stored, stored)


class Wish(msgspec.Struct, frozen=True):
    """Which events a client wants: those that each of the lists has, or that has nothing."""

    queues: frozenset[str] = frozenset()
    job_ids: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def wants(self, told: Told, caller: Caller) -> bool:
        """Whether a client wants an event, and may see it.

        What the server does by way of jobs of its own is for those who name it.
        """
        what = told.what
        return (
            (not self.types or told.type in self.types)
            and (not self.queues or what.queue in self.queues)
            and (not self.job_ids or what.job_id in self.job_ids)
            and caller.scope.covers(what.queue)
            and (not is_reserved(what.queue) or bool(self.queues or self.job_ids))
        )


def read_wish(query: dict[str, str]) -> Wish:
    """What a client wants, as its query says. Raises `Problem`."""
    types = {name.removeprefix(_PREFIX) for name in _names(query, "types")}
    unknown = sorted(types.difference(TYPES))
    if unknown:
        raise Problem(
            400,
            "VALIDATION_ERROR",
            f"there are no events of type {unknown[0][:80]!r}; the types are {', '.join(TYPES)}",
            field="types",
        )
    return Wish(
        queues=frozenset(_names(query, "queues")),
        job_ids=frozenset(_names(query, "job_ids")),
        types=frozenset(types),
    )


def _names(query: dict[str, str], field: str) -> list[str]:
    names = [name.strip() for name in query.get(field, "").split(",")]
    names = [name for name in names if name]
    if len(names) > NAMES_MAX:
        raise Problem(
            400,
            "VALIDATION_ERROR",
            f"{field} has {len(names)} names, and may have {NAMES_MAX}",
            field=field,
        )
    return names
