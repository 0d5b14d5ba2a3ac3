"""What the routers of a cluster ask each other, by the numbers of `wire.Ask`."""

from typing import Annotated, Final

import msgspec

GET_SEEN_WORKERS: Final = 1
"""The workers that sent requests to the router lately; answered with `SeenWorkers`."""
GET_EVENTS: Final = 2
"""The changes of the cluster that the router has observed; answered with `ObservedEvents`."""
REPORT_USE: Final = 3
"""What clients have used of their rates at the router that asks (`UsedTokens`); answered with
`Received`."""
GET_CLOCK: Final = 4
"""The wall clock of the router; answered with `ClockShown`. Nodes that join ask for it, too."""
GET_NODE_MAP: Final = 5
"""The cluster map that the router has, however old; answered with `MapFound`."""

UNAVAILABLE: Final = "unavailable"
"""The code of an answer to a node that joins, which may ask again: shard 0 has no leader now."""


class ClockShown(msgspec.Struct, frozen=True):
    """A wall clock at the moment of the answer, and the calendar beside it."""

    now_ns: int
    tz_version: str = ""  # of the time zone data; empty from a release without schedules


class SeenWorker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker, as one router has seen it. A new field goes at the end and has a default."""

    id: str
    hostname: str
    queues: tuple[str, ...]
    first_ns: int
    asked_ns: int  # when its last fetch began or ended; 0 is never
    beat_ns: int  # when it sent its last heartbeat; 0 is never
    is_asking: bool  # whether a fetch of it waits now
    most: int
    takes_many: bool


class SeenWorkers(msgspec.Struct, frozen=True):
    """All of them."""

    workers: list[SeenWorker]


class ClusterEvent(msgspec.Struct, frozen=True, array_like=True):
    """A change of the cluster, as one router has observed it.

    A new field goes at the end and has a default.
    """

    seq: int
    at_ns: int
    type: str
    text: str
    shard: int | None = None
    node: int | None = None
    term: int | None = None
    span: tuple[int, int] | None = None
    """The change took place after the first and not after the second of these positions, which are
    terms, versions of the map, or indexes of a log. None if only the time is known."""


class ObservedEvents(msgspec.Struct, frozen=True):
    """All that are kept, the oldest first."""

    events: list[ClusterEvent]
    began_ns: int  # when the router began to observe


Tokens = Annotated[int, msgspec.Meta(ge=0)]


class Use(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one client has used since the last report. A new field goes at the end."""

    client: str
    reads: Tokens
    writes: Tokens


class UsedTokens(msgspec.Struct, frozen=True):
    """What several clients have used."""

    uses: list[Use]


class Received(msgspec.Struct, frozen=True):
    """The confirmation of a report."""
