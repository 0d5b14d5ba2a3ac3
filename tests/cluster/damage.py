"""Each kind of file of one node is damaged in turn, while the other nodes go on.

The node is stopped, by SIGTERM or SIGKILL, one file is damaged, and it is started again. Either it
is whole after a while, with everything that the others have, or a process of it stays down and says
why; then the operator's way is gone: it is removed, and joins with an empty directory. After each
case all replicas and mirrors of all nodes are compared, so that damage which spreads is seen.
"""

import re
import shutil
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, Literal, get_args

import msgspec
import trio

from corvo.link import LinkLost
from tests.cluster.comparing import Compared, compare, numbers_of
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.node.crowd import queue_on
from tests.node.http import Lost

SHARDS: Final = 2
SETTINGS: Final = {
    "shard__checkpoint_bytes": "64KiB",
    "shard__keep_entries": "100",
    "shard__segment_bytes": "32KiB",
    "shard__ballast_bytes": "64KiB",
}
"""Small files, so that there are many of each kind."""
WAYS: Final = ("bit", "bits", "zeros", "cut", "gone")
"""One bit is flipped, or one in each 4 KiB; a block is zeros; the second half or all is gone."""
MIRROR: Final = "mirror/mirror.db"
_BLOCK: Final = 4_096
_JOBS: Final = 60
_TURNS: Final = 6
_LOOK_S: Final = 0.05
_PATIENCE_S: Final = 100.0
_NAMES: Final = ("a", "b", "c", "d", "e", "f", "g", "h")
_TRIFLES: Final = {"process.ready", "process.started", "process.ended", "node.ready"}
"""Events of every start."""
_NUMBERS: Final = (
    (re.compile(r"log-[0-9a-f]{16}-[0-9a-f]+"), "log-N"),
    (re.compile(r"snapshot-[0-9a-f]{16}-[0-9a-f]+"), "snapshot-N"),
    (re.compile(r"\d+"), "N"),
)
_UNTOUCHED: Final = re.compile(r"lock|.*\.sock|.*/LOCK|.*/LOG(\.old)?|quarantine.*")
"""Locks and sockets have no bytes; LevelDB's own notes for readers are never read again."""

End = Literal["whole", "repaired", "stays down"]
ENDS: Final[tuple[End, ...]] = get_args(End)


class Case(msgspec.Struct, kw_only=True):
    """One damaged file, and what came of it."""

    kind: str
    file: str
    way: str
    stop: str
    end: End
    said: list[str] = []
    """Warnings and errors of the node since its start."""
    seconds: float = 0.0
    compared: Compared = msgspec.field(default_factory=Compared)

    @property
    def is_explained(self) -> bool:
        """A node that stays down says what an operator does next."""
        return self.end != "stays down" or any(
            word in line for line in self.said for word in ("remove", "restore", "put back")
        )


def kind_of(file: str) -> str:
    """The kind of a file: its name without numbers."""
    for pattern, name in _NUMBERS:
        file = pattern.sub(name, file)
    return file


def files_of(member: Member) -> dict[str, list[str]]:
    """The files of a node that is stopped, by their kinds."""
    found: dict[str, list[str]] = {}
    for path in sorted(member.data.rglob("*")):
        name = str(path.relative_to(member.data))
        is_plain = path.is_file() and not path.is_symlink() and path.stat().st_size
        if is_plain and not _UNTOUCHED.fullmatch(name):
            found.setdefault(kind_of(name), []).append(name)
    return found


def damage(path: Path, way: str, random: Random) -> None:
    """Damage a file in one of the `WAYS`."""
    if way == "gone":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    if way == "bit":
        _flip(data, random.randrange(len(data)), random)
    elif way == "bits":
        for start in range(0, len(data), _BLOCK):
            _flip(data, random.randrange(start, min(start + _BLOCK, len(data))), random)
    elif way == "zeros":
        start = random.randrange(0, len(data), _BLOCK)
        end = min(start + _BLOCK, len(data))
        data[start:end] = bytes(end - start)
    else:
        del data[len(data) // 2 :]
    # LevelDB's tables are links to those of a checkpoint, and a disk damages them together.
    path.write_bytes(data)


def merge(file: Path) -> None:
    """Put SQLite's log into the file of a mirror: before, the file has next to nothing."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _flip(data: bytearray, place: int, random: Random) -> None:
    data[place] ^= 1 << random.randrange(8)


class Striking:
    """A cluster of three nodes, of which the last is damaged again and again."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._queues = [queue_on(shard, SHARDS, "q") for shard in range(SHARDS)]
        self._done = 0

    @property
    def target(self) -> Member:
        """The node that is damaged."""
        return self._cluster.members[-1]

    async def work(self) -> None:
        """Jobs come, and some are done: logs and checkpoints grow."""
        first = self._cluster[0]
        for turn in range(_TURNS):
            for queue in self._queues:
                jobs = [{"queue": queue, "payload": "x" * 200}] * _JOBS
                path = "/api/v1/enqueue/batch"
                self._done += 1
                await self._cluster.until(first, "POST", path, {"jobs": jobs}, f"work-{self._done}")
                if turn % 2:
                    body = {"queues": [queue], "worker_id": "w", "count": _JOBS // 2}
                    given = await self._cluster.until(first, "POST", "/api/v1/fetch/batch", body)
                    held = msgspec.json.decode(given.body)["jobs"]
                    acks = [
                        {"job_id": job["job_id"], "lease_token": job["lease_token"]} for job in held
                    ]
                    await self._cluster.until(first, "POST", "/api/v1/ack/batch", {"acks": acks})

    async def case(self, kind: str, way: str, stop: signal.Signals) -> Case | None:
        """Damage one file of a kind; none if the node has no such file now."""
        await self.work()
        target = self.target
        if stop == signal.SIGKILL:
            target.kill()
        else:
            target.node.send(stop)
        await self._cluster.gone(target)
        files = files_of(target).get(kind)
        if kind == MIRROR and files:
            merge(target.data / MIRROR)
        if not files:
            await self._cluster.start(target)
            await self._whole(target)
            return None
        # Of many the newest are read: the last, or any other.
        file = self._random.choice([files[-1], self._random.choice(files)])
        damage(target.data / file, way, self._random)
        began = monotonic()
        await self._cluster.start(target)
        node = target.node
        is_whole = await self._whole(target)
        seconds = monotonic() - began
        if not is_whole:
            await self._replace(target)
        elif kind == MIRROR:
            await node.hear_any("mirror.checked", "mirror.damaged", "mirror.made_anew")
        compared = await self._compare()
        said = [
            msgspec.json.encode(event).decode()
            for event in node.events
            if event.get("level") in ("warning", "error") and event["event"] not in _TRIFLES
        ]
        end: End = "repaired" if node.find("replica.set_aside") else "whole"
        return Case(
            kind=kind,
            file=file,
            way=way,
            stop=stop.name,
            end=end if is_whole else "stays down",
            said=said + node.texts,
            seconds=seconds,
            compared=compared,
        )

    async def _compare(self) -> Compared:
        """Compare everything. That reads all blocks, so a replica may find its damage now."""
        while True:
            try:
                return await compare(self._cluster.members, SHARDS)
            except* LinkLost:
                await self._whole(self.target)

    async def _whole(self, target: Member) -> bool:
        """Whether all replicas of a node are well soon; a process that is held never is."""
        with trio.move_on_after(_PATIENCE_S):
            while target.running is not None and not target.node.find("process.held"):
                if await self._is_whole(target):
                    return True
                await trio.sleep(_LOOK_S)
        return False

    async def _is_whole(self, target: Member) -> bool:
        if not target.node.find("node.ready"):
            return False
        for shard in range(SHARDS):
            mine, leading = None, None
            for member in self._cluster.members:
                seen = await numbers_of(member, shard)
                mine = seen if member is target else mine
                if seen is not None and seen.role == "leader":
                    leading = seen
            if mine is None or leading is None or mine.is_repairing:
                return False
            if mine.applied < leading.applied:
                return False
        try:
            answer = await self._cluster.ask(target, "GET", "/readyz")
        except Lost:
            return False
        return answer.status == 200

    async def _replace(self, target: Member) -> None:
        """What an operator does: the node is removed, and another one joins, without data."""
        if target.running is not None:
            target.kill()
            await self._cluster.gone(target)
        reason = {"reason": "its disk is damaged", "force": True}
        path = f"/api/v1/cluster/nodes/{target.name}/remove"
        await self._cluster.until(self._cluster[0], "POST", path, reason)
        shutil.rmtree(target.data)
        target.settings.pop("cluster.initial_nodes", None)
        target.settings["cluster.join"] = self._cluster[0].peer
        await self._cluster.start(target)
        assert await self._whole(target), f"{target.name} did not join: {target.node.events}"


async def run(
    directory: Path,
    *,
    kinds: Sequence[str] = (),
    ways: Sequence[str] = WAYS,
    stops: Sequence[signal.Signals] = (signal.SIGKILL, signal.SIGTERM),
    seed: int = 1,
    tell: Callable[[Case], None] = lambda case: None,
) -> list[Case]:
    """Damage files of all kinds, or of some, in all ways."""
    random = Random(seed)
    members = await members_in(directory, _NAMES[:3], **SETTINGS)
    as_initial(members)
    members[-1].settings["log_level"] = "debug"  # it says when its mirror was checked
    cases: list[Case] = []
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        striking = Striking(cluster, random)
        await striking.work()
        for kind in kinds or await _all_kinds(striking, cluster):
            for way in ways:
                case = await striking.case(kind, way, random.choice(stops))
                if case is not None:
                    cases.append(case)
                    tell(case)
    return cases


async def _all_kinds(striking: Striking, cluster: Cluster) -> list[str]:
    """The kinds of files of a node that runs and of one that was stopped cleanly."""
    found = set(files_of(striking.target))
    striking.target.node.send(signal.SIGTERM)
    await cluster.gone(striking.target)
    found |= set(files_of(striking.target))
    await cluster.start(striking.target)
    await striking.target.node.hear("node.ready")
    return sorted(found)
