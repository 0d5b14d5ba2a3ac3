"""What the routers of a cluster ask each other, by the numbers of `wire.Ask`."""

from typing import Final

import msgspec

GET_SEEN_WORKERS: Final = 1
"""The workers that sent requests to the router lately; answered with `SeenWorkers`."""


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
