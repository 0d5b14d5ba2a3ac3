"""The state machine under test: registers with a digest of everything ever applied.

`Machine` is what the simulation needs of one. Another state machine, and a `Workload` with clients
of its own, are plugged in by handing their makers to `World`; the rest does not know registers.
"""

import zlib
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from corvo.raft import Entry, Kind


class State(Protocol):
    """What the world may know of a replicated state."""

    @property
    def applied(self) -> int:
        """The index of the last entry applied."""

    @property
    def digest(self) -> int:
        """Stands for the whole state: equal wherever `applied` is equal."""


class Machine(State, Protocol):
    """A replicated state that a host drives by itself."""

    def apply(self, entry: Entry) -> None:
        """Take in the entry behind `applied`."""

    def save(self) -> bytes:
        """Everything, as bytes."""

    def load(self, data: bytes) -> None:
        """Become what `save` described."""


MakeMachine: TypeAlias = Callable[[], Machine]


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """The registers at one index."""

    applied: int
    digest: int
    values: tuple[tuple[bytes, bytes], ...]


_KEPT = 16
"""Bytes of a value that are kept: a snapshot is to be small enough to be sent in tiny pieces."""


class Registers:
    """Keys with values. An entry's data is `key=value`; anything else changes the digest alone."""

    def __init__(self) -> None:
        self.applied = 0
        self.digest = 0
        self.values: dict[bytes, bytes] = {}

    def apply(self, entry: Entry) -> None:
        assert entry.index == self.applied + 1, "entries are applied in order, each once"
        self.applied = entry.index
        self.digest = zlib.crc32(b"%d:%d:" % (entry.term, entry.kind) + entry.data, self.digest)
        if entry.kind is Kind.NORMAL:
            key, equals, value = entry.data.partition(b"=")
            if equals:
                self.values[key] = value[:_KEPT]

    def save(self) -> bytes:
        values = tuple(sorted(self.values.items()))
        return msgspec.msgpack.encode(Saved(self.applied, self.digest, values))

    def load(self, data: bytes) -> None:
        saved = msgspec.msgpack.decode(data, type=Saved)
        self.applied, self.digest, self.values = saved.applied, saved.digest, dict(saved.values)
