"""Protocols of ordered storage: `Store` for the state machine, `States` for the shard process.

`corvo.kv.level` answers with LevelDB; tests have a store in memory, which forgets at a crash what
was not synced. Both pass one conformance suite.

Keys and values are bytes; keys are ordered bytewise. Calls are synchronous and come from one
thread, save where `States` says otherwise.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Protocol


class Store(Protocol):
    """Ordered bytes of one consistent content; each read raises `StoreDamaged` for changed bytes.

    After anything but success of a write, the object is of no more use.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value at `key`, or None."""

    def keys(self, start: bytes, stop: bytes, *, limit: int) -> list[bytes]:
        """The first keys from `start` on and below `stop`, in order; at most `limit`."""

    def scan(
        self, start: bytes, stop: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """The same with values; with `reverse`, the last ones, the greatest key first."""

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Carry out all changes in one step, seen by every later read; None removes.

        Survives a crash of the process, and only after `sync` one of the machine; then a later
        write may be there and an earlier one not. Raises `StoreFailed`.
        """

    def sync(self) -> None:
        """Make every write before this durable."""

    def close(self) -> None:
        """Let go of everything. Makes nothing durable."""


class Copy(Protocol):
    """A checkpoint whose files stay until it is closed."""

    @property
    def index(self) -> int:
        """Its applied index."""

    @property
    def sums(self) -> bytes:
        """Its files and their sums: see `corvo.kv.sums`."""

    def read(self, name: str, offset: int) -> bytes:
        """Bytes of a file; empty at its end. Raises `KeyError` for a file that it does not have."""

    def close(self) -> None:
        """Let go of the files."""


class States(Protocol):
    """A shard's state on one disk: the live store, and checkpoints of it.

    The live store is never synced. A checkpoint is: durable, verified, and at some applied index;
    the newest one is what remains of the state after a crash of the machine, what a follower that
    lags behind receives, and what the log may be cut up to.
    """

    @property
    def store(self) -> Store:
        """The live store."""

    @property
    def checkpointed(self) -> int:
        """The applied index of the newest checkpoint; 0 when there is none."""

    def checkpoint(self) -> int:
        """Make a checkpoint of what is written now or a little later; returns its applied index.

        May run on another thread beside reads and writes of the live store. Older checkpoints are
        removed, save one that is being streamed. Raises `StoreFull` with nothing changed.
        """

    def pin(self) -> Copy:
        """The newest checkpoint, for a backup. It must not be replaced during this call."""

    def stream(self) -> Generator[bytes, None, None]:
        """The newest checkpoint as bytes that `install` understands.

        Its steps may be on another thread. It is to be read to its end, or closed.
        """

    def install(self, stream: Iterable[bytes]) -> None:
        """Become what another's `stream` describes: a new live store, and its checkpoint.

        Durable when it returns; a crash before leaves the old state. Raises `StoreDamaged` when
        the stream is not what `stream` wrote.
        """

    def receive(self, stream: Iterable[bytes]) -> int:
        """The long part of `install`, which may run on another thread; returns for `become`.

        The live store is not touched, and a crash leaves the old state.
        """

    def become(self, received: int) -> None:
        """The other part: become what was received."""

    def distrust(self) -> None:
        """The live store failed or was damaged: the next start begins with the checkpoint."""

    def close(self) -> None:
        """Stop cleanly: sync the live store and say so, so that the next start trusts it."""
