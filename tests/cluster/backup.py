"""A backup of a cluster with many jobs, while sixteen connections put single jobs in.

Then it comes back to another cluster with another number of shards, and the digests of all queues
are compared with those of a backup of that one.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import trio

from corvo.backup_commands import Back, Made
from corvo.verify.backups import BackupReport
from tests.cluster.figures import Times
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.producing import Producers

SHARDS: Final = 2
CONNECTIONS: Final = 16
CALM_S: Final = 10.0
_ROOT: Final = Path(__file__).parents[2]


class Seen(msgspec.Struct):
    """The result of a run."""

    jobs: int
    took_s: dict[str, float]
    """The time of each command."""
    times: dict[str, Times]
    """The time of each enqueue, by what went on meanwhile."""
    first: Made
    second: Made
    back: Back
    differing: list[str]
    """Queues whose digest is another one after the restore."""


class Trial:
    """One run."""

    def __init__(self, directory: Path, calm_s: float, tell: Callable[[str], None]) -> None:
        self._directory = directory
        self._calm_s = calm_s
        self._tell = tell
        self._took: dict[str, float] = {}
        self._phases: dict[str, tuple[float, float]] = {}

    async def take(self, cluster: Cluster, jobs: int) -> tuple[Producers, Made, Made]:
        """Fill a cluster, and make two backups under load."""
        producers = Producers(cluster)
        began = monotonic()
        await producers.fill(jobs)
        self._tell(f"{jobs} jobs put in, in {monotonic() - began:.0f} s")
        async with trio.open_nursery() as nursery:
            for number in range(CONNECTIONS):
                nursery.start_soon(producers.produce, number, cluster.members[number % 3])
            await self._spend("before")
            first = await self._backup(cluster.members, "backup")
            began, _ = self._phases["backup"]
            await producers.times.until_one(began)
            self._phases["backup"] = (began, monotonic())
            await self._spend("after")
            second = await self._backup(cluster.members, "second backup")
            nursery.cancel_scope.cancel()
        return producers, first, second

    async def _spend(self, name: str) -> None:
        began = monotonic()
        await trio.sleep(self._calm_s)
        self._phases[name] = (began, monotonic())

    async def _backup(self, members: Sequence[Member], name: str) -> Made:
        folder = self._directory / "backups"
        words = ("backup", "--to", str(folder), "--no-verify", "-o", "json")
        out = await self.corvo(name, members, *words)
        self._phases[name] = (monotonic() - self._took[name], monotonic())
        return msgspec.json.decode(out, type=Made)

    async def corvo(self, name: str, members: Sequence[Member], *words: str) -> bytes:
        """Run a command against some nodes; its output."""
        hosts = [f"{host}:{port}" for host, port in (member.address for member in members)]
        servers = ("--server", ",".join(hosts)) if hosts else ()
        began = monotonic()
        done = await trio.run_process(
            [sys.executable, "-P", "-m", "corvo", *words, *servers],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(_ROOT)},
        )
        self._took[name] = monotonic() - began
        self._tell(f"{name}: {self._took[name]:.1f} s")
        return done.stdout

    async def report(self, name: str, path: str) -> BackupReport:
        """The digests of a backup, and whether it is whole."""
        out = await self.corvo(name, (), "verify", path, "-o", "json")
        return msgspec.json.decode(out, type=BackupReport)

    def seen(
        self,
        jobs: int,
        producers: Producers,
        made: tuple[Made, Made],
        back: Back,
        reports: tuple[BackupReport, BackupReport],
    ) -> Seen:
        """All of it."""
        one, other = ({each.queue: each for each in report.queues} for report in reports)
        return Seen(
            jobs=jobs,
            took_s=self._took,
            times={name: producers.times.between(*it) for name, it in self._phases.items()},
            first=made[0],
            second=made[1],
            back=back,
            differing=[queue for queue in one | other if one.get(queue) != other.get(queue)],
        )


async def run(
    directory: Path,
    *,
    jobs: int,
    shards: int = 3,
    calm_s: float = CALM_S,
    tell: Callable[[str], None] = lambda _: None,
    **settings: str,
) -> Seen:
    """Back up a cluster of three that has so many jobs, and restore it to another one."""
    trial = Trial(directory, calm_s, tell)
    for name in ("one", "other"):
        (directory / name).mkdir()
    old = await members_in(directory / "one", ("a", "b", "c"), shards=str(SHARDS), **settings)
    as_initial(old)
    async with cluster_of(old) as cluster:
        await cluster.start_all()
        producers, *made = await trial.take(cluster, jobs)
    path = made[1].path
    report = await trial.report("verify", path)
    new = await members_in(directory / "other", ("a", "b", "c"), shards=str(shards), **settings)
    as_initial(new)
    async with cluster_of(new) as cluster:
        await cluster.start_all()
        out = await trial.corvo("restore", new, "restore", path, "--yes", "-o", "json")
        back = msgspec.json.decode(out, type=Back)
        again = directory / "again.tar"
        await trial.corvo("backup of the new cluster", new, "backup", "--to", str(again))
        after = await trial.report("verify of it", str(again))
    return trial.seen(jobs, producers, (made[0], made[1]), back, (report, after))
