"""A disk of its own for a node, that somebody else fills to the last byte, and sets free again."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.crowd import Crowd
from tests.node.history import judge
from tests.node.http import Client
from tests.node.nodes import House, house_in, pid_of
from tests.support.nodes import Running

SIZE_MIB: Final = 128
_PIECE: Final = 1 << 20
SETTINGS: Final = {
    "shards": "1",
    "shard__grace_ms": "500ms",
    "shard__segment_bytes": "1MiB",
    "shard__room_bytes_min": "16MiB",
    "shard__checkpoint_bytes": "4MiB",
}
_LITTLE: Final = 8 << 20
"""Less than a shard wants to see before it takes anything new, and more than it needs."""
_PATIENCE_S: Final = 1.0


class NoMount(Exception):
    """This machine does not let us have a disk of our own."""


class Seen(msgspec.Struct):
    """What came of it."""

    refusals: list[str] = []
    """What was said while the disk was full: code, outcome, and whether when to come again."""
    reads: set[int] = set()
    ends: list[str] = []
    """Processes that ended meanwhile, and with what words."""
    wrongs: list[str] = []
    oddities: dict[str, int] = {}
    back_s: float = 0.0


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of `SIZE_MIB`. Raises `NoMount`."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "corvo-test", str(directory)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoMount("a small disk has to be mounted, for which one has to be root") from error
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path, leave_bytes: int = 0) -> Path:
    """Take all room but so much. Returns the file that has it."""
    filler = directory / "filler"
    with filler.open("ab", buffering=0) as file:
        while True:
            found = os.statvfs(directory)
            room = found.f_bavail * found.f_frsize - leave_bytes
            if room <= 0:
                return filler
            try:
                file.write(bytes(min(room, _PIECE)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return filler


class Filling:
    """One run."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.seen: Final = Seen()
        self.crowd: Final = Crowd(house.address, house.shards)

    async def run(self, rounds: int) -> Seen:
        """Fill the disk so many times under load: slowly, at once, and then with a kill."""
        async with trio.open_nursery() as nursery, self._house.open() as node:
            nursery.start_soon(self.crowd.run)
            for turn in range(rounds):
                await self.crowd.more(50)
                disk = self._house.data.parent
                if turn % 3 == 0:
                    fill(disk, leave_bytes=_LITTLE)
                    await self._be_refused()
                filler = fill(disk)
                await self._be_refused()
                if turn % 3 == 2:
                    os.kill(pid_of(node, "shard-0"), signal.SIGKILL)
                    await node.read("waiting for it", 1 + turn // 3)
                filler.unlink()
                began = trio.current_time()
                await self.crowd.more(50)
                self.seen.back_s = max(self.seen.back_s, trio.current_time() - began)
            self.crowd.close()
            await self.crowd.ended.wait()
            self.seen.wrongs = judge(self.crowd.history, await self.crowd.look_up())
            await self._end(node)
        return self.seen

    async def _end(self, node: Running) -> None:
        code = await node.end()
        assert code == 0, code
        self.seen.oddities = self.crowd.oddities
        self.seen.ends = [str(one) for one in node.find("process.ended")] + node.texts

    async def _be_refused(self) -> None:
        """Ask until it is said that the disk is full, and look whether one can still read."""
        known = next(iter(self.crowd.history)).job_id
        client = Client(self._house.address)
        body = msgspec.json.encode({"queue": self.crowd.queues[0], "payload": {"n": 0}})
        while True:
            # What was taken in the very moment waits for room, and so this one may.
            with trio.move_on_after(_PATIENCE_S):
                answer = await client.ask("POST", "/api/v1/webhooks/elsewhere", body)
                if answer.status == 503:
                    problem = answer.read(Problem)
                    after = "retry-after" in answer.headers
                    self.seen.refusals.append(f"{problem.code} {problem.outcome} {after}")
                    break
        for path in (f"/api/v1/jobs/{known}", "/api/v1/queues", "/api/v1/cluster/status"):
            self.seen.reads.add((await client.ask("GET", path)).status)
        client.close()


class Problem(msgspec.Struct):
    code: str
    outcome: str


async def run(directory: Path, *, rounds: int = 3) -> Seen:
    """Fill the disk of a node that works. Raises `NoMount`."""
    with small_disk(directory / "disk") as disk:
        house = await house_in(disk, **SETTINGS)
        return await Filling(house).run(rounds)
