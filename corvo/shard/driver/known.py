"""What a node knows of its shard, noted outside the shard's directory: that nothing was lost.

    <data_dir>/known/shard-1.json

A directory that was removed, emptied or replaced by an older copy has nothing wrong with it. So a
shard notes elsewhere which log it has and how far that log is. A start that finds less is refused,
until an operator accepts the loss; that is noted, too.

**The note is never ahead of the disk.** It names an entry that was committed and synced before the
note was written, and the log's own identity, which is durable before the log is used. So no crash
and no loss of power is taken for a loss. It may be behind, by `EVERY_S` at most while the shard
runs: an older copy of the directory that has the noted entry is not recognised. A directory without
a note is one of an earlier version, or its first start was interrupted: it gets one.
"""

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo import clock
from corvo.errors import CorvoError, StoreDamaged
from corvo.kv import directories
from corvo.protocol.numbers import Loss
from corvo.raft.disk.identity import IDENTITY, Identity
from corvo.raft.disk.manifest import MANIFEST
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import Membership
from corvo.sealed import seal, unseal
from corvo.shard.config import ShardConfig
from corvo.times import format_time

EVERY_S: Final = 10.0
"""Between two notes of a busy shard: each costs two syncs."""
FORMAT: Final = 1
LOSSES_MAX: Final = 16
"""Of accepted losses the last ones are kept."""


class ShardLost(CorvoError):
    """The directory of a shard has less than the node knows that it had."""


def foreign(config: ShardConfig, found: Identity) -> str:
    """What is wrong with a directory that belongs to another replica."""
    cluster, shard, shards = found.cluster.rsplit("/", 2)
    whose = f"shard-{shard} of node {found.replica}"
    if (cluster, shards) != (config.cluster, str(config.shards)):
        whose += f" of cluster {cluster}, which has {shards} shards"
    return (
        f"shard-{config.shard}: {config.data_dir} belongs to {whose}: put each directory back in"
        " its place"
    )


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: int = FORMAT
    instance: int
    """The log's own number: a log that was created again has another one."""
    index: int
    """An entry that is in the log, or was dropped behind a checkpoint."""
    checksum: int | None  # of this entry
    peers: tuple[int, ...] = ()
    """The other voters, if they can have a leader without this replica: see `peers_of`."""
    losses: tuple[Loss, ...] = ()


def peers_of(membership: Membership, replica: int) -> tuple[int, ...]:
    """The other voters, if they are a majority of the group; else empty.

    They have everything that was ever acknowledged, so what is damaged here may be set aside.
    """
    for half in (membership.voters, membership.outgoing):
        if half and len(set(half) - {replica}) <= len(half) // 2:
            return ()
    return tuple(number for number in membership.voters if number != replica)


class Known:
    """The note about one shard."""

    def __init__(self, config: ShardConfig) -> None:
        """Read it. Raises `StoreDamaged`."""
        self._name = f"shard-{config.shard}"
        self._node = config.node
        self._root = Path(config.data_dir)
        self._place = Path(config.known) if config.known else None
        self._accepted = config.accept_loss
        self._is_accepted = False
        self.loss: Loss | None = None
        """The loss that this start has accepted."""
        self._note = self._read()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses that were accepted."""
        return self._note.losses if self._note is not None else ()

    @property
    def peers(self) -> tuple[int, ...]:
        """The replicas that have what this one has, and can do without it."""
        return self._note.peers if self._note is not None else ()

    @property
    def how_to_join_again(self) -> str:
        """What an operator does with a replica that must not go on, if others have its data."""
        if not self.peers:
            return ""
        return (
            f"; nodes {', '.join(map(str, self.peers))} have this shard, too: to get it back from"
            f" them, run `corvo cluster remove {self._node} --reason damage --force` at one of"
            " them, and let this node join again with an empty data directory"
        )

    def _read(self) -> Note | None:
        if self._place is None or not directories.exists(self._place):
            return None
        try:
            return unseal(directories.read(self._place), Note)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise StoreDamaged(
                f"{self._place} is damaged ({error}): restore it. Remove it only if"
                f" {self._root} is complete: the file proves that"
            ) from error

    # Whether something is lost.

    def check_directory(self) -> None:
        """Refuse a directory without a log, if it had one. Raises `ShardLost`."""
        log = self._root / "log"
        if not any(directories.exists(log / name) for name in (IDENTITY, MANIFEST)):
            self._insist(has=0, why=f"{self._root} is missing or empty")

    def check_log(self, storage: DiskStorage) -> None:
        """Refuse a log that lacks what is noted; note one that nothing is known of.

        A replica under repair lost its log before, and gets it back from its peers, unless the
        operator accepts to lose what is after the end of its log. Raises `ShardLost`.
        """
        ends_repair = storage.repairing and self._accepted == storage.last_index
        if ends_repair:
            self._accept_end_of_repair(storage)
        note = self._note
        if note is not None and not self._is_accepted and not storage.repairing:
            why = self._lack(note, storage)
            if why:
                self._insist(has=storage.last_index, why=why)
        if note is None or self._is_accepted:
            first = self.next_note(storage, committed=storage.hard_state.commit, peers=self.peers)
            if first is not None:
                self.put(first)
        if ends_repair:
            storage.repaired()  # last, so that it is noted in any case

    def _lack(self, note: Note, storage: DiskStorage) -> str:
        """What a log lacks; empty if it has everything."""
        last = storage.last_index
        if storage.identity.instance != note.instance:
            return f"{self._root} was created again"
        if last < note.index:
            return f"{self._root} is an older copy, which ends at entry {last}"
        checksum = storage.checksum(note.index)
        if None not in (checksum, note.checksum) and checksum != note.checksum:
            return f"{self._root} is a copy that was changed elsewhere"
        return ""

    def _insist(self, *, has: int, why: str) -> None:
        """Raise `ShardLost`, unless the operator accepts to lose exactly this."""
        note = self._note
        if note is None:
            return
        if self._accepted != note.index:
            raise ShardLost(
                f"{self._name}: {why}, and the node knows of entries up to {note.index}. Put the"
                " directory of the last stop back, or the whole data directory from a backup; or"
                f" accept the loss with --accept-loss {self._name}:{note.index}, and the shard"
                f" continues with what is there{self.how_to_join_again}"
            )
        self._accept(known=note.index, has=has, why=why)

    def _accept_end_of_repair(self, storage: DiskStorage) -> None:
        """Vote again with what is there: no majority is left that could repair this replica."""
        has = storage.last_index
        known = max(has, self._note.index) if self._note is not None else has
        self._accept(known=known, has=has, why=f"the repair of {self._root} was ended")

    def _accept(self, *, known: int, has: int, why: str) -> None:
        self._is_accepted = True
        self.loss = Loss(at=format_time(clock.now_ns()), known=known, found=has, why=why)
        if self._note is not None:
            losses = (*self._note.losses, self.loss)[-LOSSES_MAX:]
            self._note = replace(self._note, losses=losses)

    # Writing.

    def next_note(
        self, storage: DiskStorage, *, committed: int, peers: tuple[int, ...]
    ) -> Note | None:
        """What is to be noted now; None if that is known, or nothing is noted at all."""
        if self._place is None or (storage.repairing and not self._is_accepted):
            return None
        index, known = min(storage.synced_index, committed), self._note
        if known is not None and not self._is_accepted and index <= known.index:
            return None if peers == known.peers else replace(known, peers=peers)
        return Note(
            instance=storage.identity.instance,
            index=index,
            checksum=storage.checksum(index),
            peers=peers,
            losses=self.losses,
        )

    def put(self, note: Note) -> None:
        """Replace the file, durably; may run on another thread. Raises `StoreFull`."""
        assert self._place is not None
        fresh = self._place.with_suffix(".new")
        directories.remove(fresh)
        directories.write(fresh, iter([seal(msgspec.json.format(msgspec.json.encode(note)))]))
        directories.sync(fresh)
        directories.rename(fresh, self._place)
        directories.sync_names(self._place.parent)
        self._note, self._is_accepted = note, False
