"""Snapshots for followers that lag behind: copies of the newest checkpoint, made when one asks.

A copy of gigabytes takes its time. It is made piece by piece on another thread, at a bounded rate,
while ops are carried out; what was copied is synced now and then, so that no sync of the log waits
for all of it. Meanwhile the log keeps the entries after the copy's index.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Final

import trio

from corvo.errors import StoreFull
from corvo.kv.store import States
from corvo.raft import DiskFull, Membership
from corvo.raft.disk.snapshot_files import SnapshotWriter
from corvo.raft.disk.wal import DiskStorage
from corvo.shard.config import ShardConfig
from corvo.shard.replica import Replica

_RETRY_S: Final = 0.25
"""Between two tries: room on the disk may come back, and a follower may have all of its copy."""
_PIECES: Final = 4
"""Pieces of a checkpoint's stream in one step: 1 MiB, some milliseconds of the other thread."""
_SYNC_BYTES: Final = 8 << 20
"""After so many bytes, what was copied is synced."""


class Snapshots:
    """See above; `run` makes them."""

    def __init__(
        self,
        config: ShardConfig,
        storage: DiskStorage,
        states: States,
        replica: Replica,
        *,
        state: trio.Lock,
        disk: trio.Semaphore,
        made: Callable[[], None],
    ) -> None:
        """`state` is held while checkpoints must not change, `disk` while the log must not.

        `made` is called when there is another snapshot.
        """
        self.wanted: int | None = None
        """A follower waits for one of this index, or a later one."""
        self.copied: int | None = None
        """The index of the copy that is being made: entries after it are needed."""
        self._rate: Final = config.snapshot_bytes_per_second
        self._storage = storage
        self._states = states
        self._replica = replica
        self._state = state
        self._disk = disk
        self._made = made
        self._due = trio.Event()

    def checkpointed(self) -> None:
        """There may be a checkpoint that is wanted."""
        if not self._replica.node.is_leader:
            self.wanted = None
        if self.wanted is not None:
            self._due.set()

    async def run(self) -> None:
        """Make what is wanted, one after the other."""
        while True:
            await self._due.wait()
            self._due = trio.Event()
            try:
                await self._make()
            except (DiskFull, StoreFull):
                await trio.sleep(_RETRY_S)
                self.checkpointed()

    @property
    def _is_in_use(self) -> bool:
        """Whether a follower is receiving the snapshot that another one would replace."""
        return self._storage.snapshot() in self._replica.node.snapshots_in_use

    async def _make(self) -> None:
        async with self._state:
            index, wanted = self._states.checkpointed, self.wanted
            if wanted is None or index < wanted or self._is_in_use:
                return
            membership = self._replica.membership_at(index)
            if membership is None:
                return
            self.copied = index
            pieces = await trio.to_thread.run_sync(self._states.stream)
        try:
            with closing(pieces):  # which removes the second names of the files
                is_kept = await self._copy(pieces, index, membership)
            if is_kept:
                self.wanted = None if self.wanted is None or self.wanted <= index else self.wanted
                self._made()
        finally:
            self.copied = None

    async def _copy(self, pieces: Iterator[bytes], index: int, membership: Membership) -> bool:
        """Copy a checkpoint. False when no follower needs it any more."""
        storage = self._storage
        writer = storage.begin_snapshot(index=index, membership=membership)
        try:
            due, unsynced = trio.current_time(), 0
            while copied := await trio.to_thread.run_sync(_add, pieces, writer):
                if not self._replica.node.is_leader:
                    return False
                unsynced += copied
                if unsynced >= _SYNC_BYTES:
                    await trio.to_thread.run_sync(writer.sync)
                    unsynced = 0
                due = max(due + copied / self._rate, trio.current_time() - 1)
                await trio.sleep_until(due)
            sealed = await trio.to_thread.run_sync(writer.seal)
            while self._is_in_use:  # noqa: ASYNC110 -- Raft has no event for it
                await trio.sleep(_RETRY_S)
            async with self._disk:
                return await trio.to_thread.run_sync(storage.keep_snapshot, writer, sealed)
        finally:
            storage.drop_snapshot(writer)


def _add(pieces: Iterator[bytes], writer: SnapshotWriter) -> int:
    """One step; returns how many bytes that was, 0 at the end."""
    size = 0
    for piece in islice(pieces, _PIECES):
        writer.add(piece)
        size += len(piece)
    return size
