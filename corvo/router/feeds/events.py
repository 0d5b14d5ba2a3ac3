"""Events of jobs and queues as clients get them, and the filters of clients."""

from typing import Annotated, Final

import msgspec

from corvo.model import EventType
from corvo.protocol import wire
from corvo.protocol.jobs import Time
from corvo.router.http.messages import bad_field, encode_json
from corvo.scopes import Scope, is_reserved
from corvo.times import format_time

TYPES: Final = tuple(sorted(each.public for each in EventType))
"""All types of events."""

NAMES_MAX: Final = 1_000
"""Number of queues, jobs or types that a filter may name."""
_PUBLIC: Final = {each.stored: each.public for each in EventType}
_PREFIX: Final = "job."
_OVERHEAD_BYTES: Final = 600
"""Memory of an event beside its texts, once it was rendered."""


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event."""

    seq: int
    """Index in the shard's log. One entry may have several events."""
    number: int
    """Number of the event within its entry, from 1. `shard`, `seq` and `number` identify it."""
    shard: int
    type: str
    at_ns: int
    """Time by the shard's clock, the same for all events of an entry."""
    at: Time
    job_id: str = ""
    queue: str = ""
    kind: str = ""
    state: str = ""
    """State of the job after the event; left out if the job is gone."""
    attempt: int = 0
    by: str = ""
    why: str = ""
    data: Annotated[
        msgspec.Raw | msgspec.UnsetType, msgspec.Meta(description="The progress, of `progress`.")
    ] = msgspec.UNSET


class KeptEvent(msgspec.Struct, gc=False):
    """An event as it is kept for clients."""

    shard: int
    index: int
    number: int
    now_ns: int
    what: wire.Happening
    type: str
    _json: bytes = b""

    @property
    def size(self) -> int:
        """Its size in memory, about, in bytes."""
        what = self.what
        texts = len(what.job_id) + len(what.queue) + len(what.by) + len(what.why)
        return _OVERHEAD_BYTES + 2 * (texts + len(what.data))

    def json(self) -> bytes:
        """The event as JSON, rendered once for all clients."""
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
    """JSON on one line; as a client sent it, it may have line ends."""
    return msgspec.Raw(msgspec.json.format(data, indent=-1))


def kept_events(shard: int, happenings: tuple[wire.Happenings, ...]) -> list[KeptEvent]:
    """The events of a page, in order."""
    return [
        KeptEvent(shard, of_entry.index, number, of_entry.now_ns, what, _type_of(what.what))
        for of_entry in happenings
        for number, what in enumerate(of_entry.events, start=1)
    ]


def _type_of(stored: str) -> str:
    """The type of an event; a word that another version wrote is its own type."""
    return _PUBLIC.get(stored, stored)


class EventFilter(msgspec.Struct, frozen=True):
    """The filter of a client: an event must match each list that is not empty."""

    queues: frozenset[str] = frozenset()
    job_ids: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def matches(self, told: KeptEvent, scope: Scope) -> bool:
        """Whether an event matches, and is in the scope of its caller.

        Events of the server's own jobs match only if the filter names their queue or job.
        """
        what = told.what
        return (
            (not self.types or told.type in self.types)
            and (not self.queues or what.queue in self.queues)
            and (not self.job_ids or what.job_id in self.job_ids)
            and scope.covers(what.queue)
            and (not is_reserved(what.queue) or bool(self.queues or self.job_ids))
        )


def read_filter(query: dict[str, str]) -> EventFilter:
    """The filter in a query. Raises `Problem`."""
    types = {name.removeprefix(_PREFIX) for name in _names(query, "types")}
    unknown = sorted(types.difference(TYPES))
    if unknown:
        raise bad_field(
            "types",
            f"unknown event type {unknown[0][:80]!r}; expected one of {', '.join(TYPES)}",
        )
    return EventFilter(
        queues=frozenset(_names(query, "queues")),
        job_ids=frozenset(_names(query, "job_ids")),
        types=frozenset(types),
    )


def _names(query: dict[str, str], field: str) -> list[str]:
    names = [name.strip() for name in query.get(field, "").split(",")]
    names = [name for name in names if name]
    if len(names) > NAMES_MAX:
        raise bad_field(field, f"{field}: expected at most {NAMES_MAX} names; got {len(names)}")
    return names
