"""What goes wrong, and when: one fault, one method, one set of dice.

A fault that is on strikes again and again. What it breaks it mends by itself after a while, or
`end` does. Damage never goes beyond what the promise covers: one disk loses what was synced, and
only while no other is to be mended.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.chance import fork
from tests.sim.groups import everybody
from tests.sim.options import FAULTS, TICK_NS

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World
    from tests.support.files import MemoryFiles

ELSEWHERE: Final = (
    "loss",
    "duplicate",
    "delay",
    "damaged_frames",
    "power_loss",
    "apply_lag",
    "change",
    "retire",
    "transfer",
    "campaign",
    "snapshot",
)
"""Options that the network, the hosts or the operator see to."""


class Copy(NamedTuple):
    """A copy of a disk, and what the disk had then."""

    original: "MemoryFiles"
    files: "MemoryFiles"
    known: int
    """Of commits."""
    last_index: int


class Nemesis:
    """Strikes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random: dict[str, Random] = {}
        self._has_ended = False
        self._dice = Random(0)  # those of the fault that strikes
        self._strikes: dict[str, Callable[[], None]] = {
            "clog": self._clog,
            "replay": self._replay,
            "partition": self._partition,
            "one_way": self._one_way,
            "bridge": self._bridge,
            "ring": self._ring,
            "strand": self._strand,
            "swizzle": self._swizzle,
            "crash": self._crash,
            "crash_point": self._crash_point,
            "torn_write": self._torn_write,
            "group_restart": self._group_restart,
            "pause": self._pause,
            "slow_disk": self._slow_disk,
            "failed_sync": self._failed_sync,
            "full_disk": self._full_disk,
            "damage": self._damage,
            "wipe": self._wipe,
            "older": self._older,
            "clock_rate": self._clock_rate,
            "tick_burst": self._tick_burst,
        }
        assert sorted((*self._strikes, *ELSEWHERE)) == sorted(FAULTS)

    def begin(self) -> None:
        """From now on things go wrong."""
        options = self._world.options
        for name in self._strikes:
            if options.has(name):
                self._random[name] = fork(options.seed, f"fault {name}")
        for name in self._random:
            self._schedule(name)

    def end(self) -> None:
        """From now on nothing does, and everything is mended."""
        self._has_ended = True
        self._world.network.calm()
        for host in self._world.hosts.values():
            host.fuse = host.awaits_change = None
            host.tears = False
            host.files.room = None
            host.files.crash_at = None
            host.files.fail_sync(0, lost=False)
            host.slowness = 1
            host.tick_ns = TICK_NS
            host.resume()

    def _schedule(self, name: str) -> None:
        # Many kinds at once leave no time for anything but falling over.
        crowd = max(1.0, len(self._random.keys() - {"older"}) / 3)
        rate = _RARITY.get(name, 1.0) / (self._world.options.calm * crowd)
        delay = self._random[name].expovariate(rate)
        self._world.later(int(delay * TICK_NS) + 1, partial(self._strike, name))

    def _strike(self, name: str) -> None:
        if self._has_ended:
            return
        self._dice = self._random[name]
        self._world.counts[f"fault {name}"] += 1
        self._strikes[name]()
        self._schedule(name)

    def _after(self, ticks: float, action: Callable[[], None]) -> None:
        """Mend something later; `end` mends it if that comes first."""

        def mend() -> None:
            if not self._has_ended:
                action()

        self._world.later(int(ticks * TICK_NS) + 1, mend)

    def _ticks(self) -> float:
        """How long something lasts: from a moment to several elections."""
        election = self._world.options.limits.election_ticks
        return self._dice.choice((0.5, 1.0, 3.0)) * election * (0.5 + self._dice.random())

    def _ids(self) -> list[int]:
        return list(self._world.hosts)

    def _some_host(self) -> "Host":
        """Any host; a leader more often than by chance."""
        hosts = list(self._world.hosts.values())
        leaders = [host for host in hosts if host.is_leader]
        return self._dice.choice(leaders if leaders and self._dice.random() < 0.4 else hosts)

    # Networks.

    def _cut(self, pairs: list[tuple[int, int]]) -> None:
        """Cut links, in one direction each, for a while."""
        cut = self._world.network.cut
        fresh = [pair for pair in pairs if pair not in cut and pair[0] != pair[1]]
        cut.update(fresh)
        self._after(self._ticks(), lambda: cut.difference_update(fresh))

    def _halves(self) -> tuple[list[int], list[int]]:
        ids = self._ids()
        self._dice.shuffle(ids)
        at = self._dice.randrange(len(ids) + 1)
        return ids[:at], ids[at:]

    def _partition(self) -> None:
        """Two sides that do not hear each other; often the leader alone."""
        one, other = self._halves()
        if self._dice.random() < 0.4:
            alone = self._some_host().replica
            one, other = [alone], [replica for replica in self._ids() if replica != alone]
        self._cut([(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])

    def _one_way(self) -> None:
        """One side is heard and does not hear."""
        one, other = self._halves()
        self._cut([(a, b) for a in one for b in other])

    def _bridge(self) -> None:
        """Two sides that share only one replica."""
        ids = self._ids()
        self._dice.shuffle(ids)
        _, *rest = ids
        one, other = rest[::2], rest[1::2]
        self._cut([(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])

    def _ring(self) -> None:
        """Each hears only its two neighbours."""
        ids = self._ids()
        self._dice.shuffle(ids)
        count = len(ids)
        self._cut(
            [
                (ids[a], ids[b])
                for a in range(count)
                for b in range(count)
                if (a - b) % count not in (0, 1, count - 1)
            ]
        )

    def _strand(self) -> None:
        """A leader keeps one friend or none, and clients who do not know better."""
        leaders = [host for host in self._world.hosts.values() if host.is_leader]
        if not leaders:
            return
        leader = self._dice.choice(leaders)
        others = [replica for replica in self._ids() if replica != leader.replica]
        self._dice.shuffle(others)
        here = [leader.replica, *others[: self._dice.randrange(2)]]
        away = [replica for replica in others if replica not in here]
        self._cut([(a, b) for a in here for b in away] + [(b, a) for a in here for b in away])
        workload = self._world.workload
        for _ in range(self._dice.randrange(1, 8)):
            workload.write(leader)
        for ticks in range(self._dice.choice((0, 10, 20))):
            self._after(ticks, partial(workload.read, leader))

    def _swizzle(self) -> None:
        """Replicas lose their links one by one, and get them back in another order."""
        ids = [replica for replica in self._ids() if self._dice.random() < 0.5]
        for number, replica in enumerate(ids):
            pairs = [(replica, other) for other in self._ids()]
            pairs += [(other, replica) for other in self._ids()]
            self._after(number * self._dice.random() * 3, partial(self._cut, pairs))

    def _clog(self) -> None:
        """Some links hold everything back, and then bring it all at once."""
        world = self._world
        opens = world.now + int(self._ticks() * TICK_NS)
        for source in self._ids():
            for target in self._ids():
                if source != target and self._dice.random() < 0.3:
                    world.network.clogged_until[source, target] = opens

    def _replay(self) -> None:
        """Frames from the past arrive once more, some from processes that are long gone."""
        world, old = self._world, list(self._world.network.history)
        for _ in range(self._dice.randrange(1, 30) if old else 0):
            source, target, frame = self._dice.choice(old)
            delay = int(self._dice.random() * 3 * TICK_NS)
            world.network.arrives(world.now + delay, source, target, frame, is_damaged=False)
            world.counts["frames replayed"] += 1

    # Processes.

    def _end(self, host: "Host") -> None:
        """A process ends, or its machine does, and comes back later."""
        if host.is_alive:
            host.end(power_loss=self._dice.random() < self._world.power_loss_share)
            self._world.later(int(self._ticks() * TICK_NS), host.start)

    def _crash(self) -> None:
        """One ends between two events."""
        self._end(self._some_host())

    def _crash_point(self) -> None:
        """One ends within a step: of the driver, or of the disk."""
        host = self._some_host()
        if self._world.options.has("change") and self._dice.random() < 0.3:
            host.awaits_change = self._dice.randrange(25)
        elif self._dice.random() < 0.5:
            host.fuse = self._dice.randrange(1, 30)
        else:
            step = len(host.files.steps) + self._dice.randrange(30)
            host.files.crash_at = (step, self._dice.choice(("before", "after")))

    def _torn_write(self) -> None:
        """One loses power when it has written and not yet synced."""
        self._some_host().tears = True

    def _group_restart(self) -> None:
        """All end at once."""
        for host in self._world.hosts.values():
            self._end(host)

    def _pause(self) -> None:
        """One stands still."""
        host = self._some_host()
        if host.is_alive and not host.is_paused:
            host.pause()
            self._after(self._ticks(), host.resume)

    # Disks.

    def _slow_disk(self) -> None:
        """One takes its time."""
        host = self._some_host()
        host.slowness = self._dice.choice((5, 50))

        def mend() -> None:
            host.slowness = 1

        self._after(self._ticks(), mend)

    def _failed_sync(self) -> None:
        """One of the next syncs fails; afterwards the page cache may lie about it."""
        host = self._some_host()
        host.files.fail_sync(self._dice.randrange(1, 6), lost=self._dice.random() < 0.5)

    def _full_disk(self) -> None:
        """One has little room left for a while."""
        host = self._some_host()
        host.files.room = self._dice.choice((0, 100, 5_000))

        def mend() -> None:
            host.files.room = None

        self._after(self._ticks(), mend)

    def _victim(self) -> "Host | None":
        """A member that may lose what it acknowledged.

        Every other one is whole, and enough of them know the group: as long as only the victim
        knows that a joint state was left, its vote may be needed for the half that is gone.
        """
        world = self._world
        group = world.oracles.groups.newest
        halves = (group.voters, group.outgoing or group.voters)
        if world.unwell or world.operator.has_open_change or min(map(len, halves)) < 3:
            return None
        host = world.hosts[self._dice.choice(everybody(group))]
        newest = world.oracles.groups.since(world.oracles.committed)
        knowing = [
            voter
            for voter in group.voters
            if voter != host.replica and world.oracles.shadow(voter).known >= newest
        ]
        is_safe = host.is_alive and 2 * len(knowing) > len(group.voters)
        return host if is_safe else None

    def _damage(self) -> None:
        """One loses bytes at rest, while it is down, and one only."""
        host = self._victim()
        if host is None:
            return
        host.end(power_loss=False)
        self._harm(host)
        host.is_damaged = True
        delay = self._dice.choice((0.05, 1.0, self._ticks()))
        self._world.later(int(delay * TICK_NS), host.start)

    def _wipe(self) -> None:
        """One loses its whole directory and comes back under its old name (amnesia)."""
        host = self._victim()
        if host is not None and self._dice.random() < 0.5:
            host.wipe()
            self._world.later(int(self._ticks() * TICK_NS), host.start)

    def _older(self) -> None:
        """One is copied, and started with its older copy later."""
        host = self._victim()
        if host is None:
            return
        shadow = self._world.oracles.shadow(host.replica)
        copy = Copy(host.files, host.copied_disk(), shadow.known, shadow.last_index)
        ticks = self._world.options.limits.election_ticks * self._dice.choice((0.5, 2, 5))
        for tries in range(1, 6):
            self._world.later(int(tries * ticks * TICK_NS), partial(self._put_back, host, copy))

    def _put_back(self, host: "Host", copy: Copy) -> None:
        """Once, and only if that is within the promise: see `Oracles.may_forget`."""
        world, dice = self._world, self._random["older"]
        is_original = host.is_alive and host.files is copy.original
        if self._has_ended or not is_original or world.unwell or world.operator.has_open_change:
            return
        is_older = copy.last_index < world.oracles.shadow(host.replica).last_index
        if is_older and world.oracles.may_forget(host.replica, copy.known):
            host.roll_back(copy.files)
            starts = dice.choice((0.5, 2, 10))
            world.later(int(starts * TICK_NS), host.start)
            if dice.random() < 0.5:  # in the middle of its repair, perhaps
                ends = starts + dice.random() * world.options.limits.election_ticks
                world.later(int(ends * TICK_NS), partial(self._end_again, host))

    def _end_again(self, host: "Host") -> None:
        self._dice = self._random["older"]
        if not self._has_ended:
            self._end(host)

    def _harm(self, host: "Host") -> None:
        files, dice = host.files, self._dice
        names = [
            name for name in files.names() if name.endswith((".seg", ".snap")) or name == "manifest"
        ]
        name = dice.choice(names)
        size = len(files.contents()[name].rstrip(b"\0"))  # what is behind that is room
        match dice.randrange(5):
            case 0:
                files.remove(name)
            case 1:
                files.cut(name, dice.randrange(size))
            case 2:
                start = dice.randrange(min(size - 1, 3 * 4096), size)
                files.blank(name, start, dice.randrange(start, size) + 1)
            case _:
                # Most of what a small segment holds is behind its header.
                first = min(size - 1, 3 * 4096) if dice.random() < 0.7 else 0
                files.flip(name, dice.randrange(first, size), 1 << dice.randrange(8))

    # Clocks.

    def _clock_rate(self) -> None:
        """One clock runs fast or slow."""
        host = self._some_host()
        host.tick_ns = int(TICK_NS * self._dice.choice((0.5, 0.8, 0.95, 1.05, 1.25, 2.0)))

    def _tick_burst(self) -> None:
        """A clock catches up by ticking at once."""
        host = self._some_host()
        host.burst(self._dice.randrange(2, 2 * self._world.options.limits.election_ticks))


_RARITY: Final = {
    "group_restart": 0.3,
    "damage": 0.7,
    "wipe": 0.3,
    "older": 1.5,
    "crash_point": 1.5,
    "tick_burst": 0.7,
}
"""How often a fault strikes, measured by the others."""
