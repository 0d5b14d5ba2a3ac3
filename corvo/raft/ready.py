"""`Ready`: the messages, the write, the entries and the reads that a node hands to its driver.

The driver's whole duty, in this order or beside one another where no arrow forbids it:

1. send `Ready.messages` at any time;
2. carry out `Ready.write` (writes strictly in the order they were handed out), make it durable with
   one sync, **then** send `Write.messages` and call `Node.stored(write.token)`;
3. apply `Ready.committed` in order, then call `Node.advance(index of the last)`;
4. answer `Ready.reads` once the applied index has reached theirs, and fail `Ready.reads_lost`.

A write carries the messages that must not leave before it, so a driver needs no knowledge of Raft.
"""

import msgspec

from corvo.raft.messages import AnyMessage, Entry, HardState, ReadContext, Snapshot, SnapshotChunk


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be made durable, and what it releases.

    The parts are carried out in the order of the fields. One with nothing but messages is a
    barrier: its messages wait for the writes before it.
    """

    token: int
    repair: bool = False
    """This replica lost what it acknowledged: from now on, start the node with `repair`, until
    `Node.is_repairing` is false. To be durable before the hard state of the same write."""
    hard_state: HardState | None = None
    chunk: SnapshotChunk | None = None
    """Bytes of a snapshot being received, to be kept at `chunk.offset`; offset 0 begins anew."""
    install: Snapshot | None = None
    """The received snapshot is complete: verify it, make it the state, begin the log behind it."""
    entries: tuple[Entry, ...] = ()
    """To be appended. Where the first is not behind the log's end, the log is cut before it."""
    messages: tuple[AnyMessage, ...] = ()

    @property
    def is_barrier(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.entries or self.hard_state or self.chunk or self.install)


class Read(msgspec.Struct, frozen=True):
    """The answer to `Node.read_index`: once `index` is applied, reading is linearizable."""

    context: ReadContext
    index: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node wants done at this moment."""

    messages: tuple[AnyMessage, ...] = ()
    write: Write | None = None
    committed: tuple[Entry, ...] = ()
    """To be applied, in order; empty while the page handed out before is not yet advanced over."""
    reads: tuple[Read, ...] = ()
    reads_lost: tuple[ReadContext, ...] = ()
    """Attempts that will never be answered: leadership changed. Retry with a new attempt."""
    snapshot_wanted: int | None = None
    """A follower needs a snapshot of at least this index and the storage has none."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(
            self.messages
            or self.write
            or self.committed
            or self.reads
            or self.reads_lost
            or self.snapshot_wanted is not None
        )
