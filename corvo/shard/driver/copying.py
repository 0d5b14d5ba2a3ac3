"""Copies of the state for backups: a checkpoint whose files stay while a router reads them.

A router opens one link to the leader of each shard. Each leader first stops to send effects to
other shards, and to remove those that were taken (`wire.BeginBackup`); then each makes a copy
(`wire.CopyState`). So what one copy has taken, the other has given; and what one copy has not taken
is in the outbox of the other.

All that a backup holds ends with its link.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final, assert_never

import trio

from corvo.errors import StoreFull
from corvo.kv.store import Copy, States
from corvo.link import Link
from corvo.protocol import wire
from corvo.raft import DiskFull
from corvo.shard.driver.following import AppliedSignal
from corvo.shard.driver.one_by_one import serve_one_by_one
from corvo.shard.replica import Replica


class Copying:
    """Serves routers that make backups."""

    def __init__(
        self,
        replica: Replica,
        states: States,
        signal: AppliedSignal,
        *,
        state: trio.Lock,
        checkpoint: Callable[[], Awaitable[None]],
        bytes_per_second: int,
    ) -> None:
        """`state` is held while checkpoints must not change; `checkpoint` makes one then."""
        self._replica: Final = replica
        self._states: Final = states
        self._signal: Final = signal
        self._state: Final = state
        self._checkpoint: Final = checkpoint
        self._rate: Final = bytes_per_second

    async def serve(self, link: Link) -> None:
        """Answer one router until its link ends. Raises `LinkLost` and `WireError`."""
        with ExitStack() as held:
            backup = _Backup(self, held)
            await serve_one_by_one(link, wire.FROM_BACKUP, backup.answer)

    @property
    def term(self) -> int:
        """The term in which the replica leads; 0 if it does not."""
        node = self._replica.node
        return node.term if node.is_leader else 0

    def hold_effects(self) -> Callable[[], None]:
        """Send and remove no effects; returns what ends that."""
        relaying = self._replica.relaying
        relaying.hold()
        return relaying.release

    async def copy(self, least: int) -> Copy | None:
        """A copy as of an index or a later one; None of an empty state."""
        while (applied := self._replica.machine.applied) < least:
            await self._signal.wait(applied)
        async with self._state:
            if self._states.checkpointed < applied:
                await self._checkpoint()
            if not self._states.checkpointed:
                return None
            return await trio.to_thread.run_sync(self._states.pin)

    def pause_s(self, size: int) -> float:
        """How long so many bytes take at the rate that leaves the disk to others."""
        return size / self._rate


class _Backup:
    """One backup, as this shard has it."""

    def __init__(self, copying: Copying, held: ExitStack) -> None:
        self._copying = copying
        self._held = held
        self._term = 0
        self._release: Callable[[], None] | None = None
        self._copy: Copy | None = None
        self._due = 0.0

    async def answer(self, request: wire.BackupRequest) -> wire.BackupAnswer:
        match request:
            case wire.BeginBackup(id=number):
                return wire.BackupBegun(number, self._begin())
            case wire.CopyState():
                return await self._make(request)
            case wire.ReadCopy():
                return await self._read(request)
            case wire.EndBackup(id=number):
                return wire.BackupEnded(number, self._end())
            case _:
                assert_never(request)

    def _begin(self) -> int:
        if self._release is None:
            self._term = self._copying.term
            self._release = self._copying.hold_effects()
            self._held.callback(self._end)
        return self._term

    async def _make(self, request: wire.CopyState) -> wire.StateCopied:
        if self._copy is not None:
            return wire.StateCopied(request.id, 0, b"", "there is a copy already")
        try:
            copy = await self._copying.copy(request.least)
        except (StoreFull, DiskFull) as error:
            return wire.StateCopied(request.id, 0, b"", str(error))
        if copy is None:
            return wire.StateCopied(request.id, 0, b"")
        self._copy = copy
        self._held.callback(copy.close)
        return wire.StateCopied(request.id, copy.index, copy.sums)

    async def _read(self, request: wire.ReadCopy) -> wire.CopyPart:
        if self._copy is None:
            return wire.CopyPart(request.id, b"")
        try:
            data = await trio.to_thread.run_sync(self._copy.read, request.name, request.offset)
        except KeyError:
            return wire.CopyPart(request.id, b"")
        now = trio.current_time()
        self._due = max(self._due, now - 1) + self._copying.pause_s(len(data))
        await trio.sleep_until(self._due)
        return wire.CopyPart(request.id, data)

    def _end(self) -> bool:
        """Let effects go on. Returns whether none can have been sent or removed until now."""
        if self._release is None:
            return False
        self._release()
        self._release = None
        return self._term > 0 and self._copying.term == self._term
