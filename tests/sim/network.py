"""What happens to frames between hosts: they take their time, and some of them much more."""

from collections import Counter, deque
from collections.abc import Callable

from tests.sim.chance import fork
from tests.sim.options import TICK_NS
from tests.sim.timeline import Timeline

_REMEMBERED = 300
"""Frames that may be seen again: some seconds of them, so that they are old but not forgotten."""


class Network:
    """Links between every two hosts, each with its own weather."""

    def __init__(self, world: Timeline, deliver: Callable[[int, int, bytes, bool], None]) -> None:
        options = world.options
        self.cut: set[tuple[int, int]] = set()  # asked, never walked through
        self.clogged_until: dict[tuple[int, int], int] = {}
        self._world = world
        self._deliver = deliver
        self._random = fork(options.seed, "network")
        intensity = fork(options.seed, "network intensity")
        draws = {name: intensity.choice((0.02, 0.1, 0.25)) for name in _PERTURBATIONS}
        self._chance = {name: p if options.has(name) else 0.0 for name, p in draws.items()}
        self._remembers = options.has("replay")
        self._latency_ns = options.latency_ns
        self.history: deque[tuple[int, int, bytes]] = deque(maxlen=_REMEMBERED)
        self.empty_at = 0  # when the last frame that is under way will have arrived
        self._last: dict[tuple[int, int], int] = {}
        self._lives: Counter[int] = Counter()  # of the connections of a replica

    def calm(self) -> None:
        """From now on every frame arrives, in order and soon."""
        self.cut.clear()
        self.clogged_until.clear()
        self._chance = dict.fromkeys(self._chance, 0.0)

    def send(self, source: int, target: int, frame: bytes) -> None:
        """Put a frame on its way."""
        world, chance, random = self._world, self._chance, self._random
        link = (source, target)
        if self._remembers:
            self.history.append((source, target, frame))
        world.counts["frames"] += 1
        if link in self.cut:
            world.counts["frames cut off"] += 1
            return
        if chance["loss"] and random.random() < chance["loss"]:
            world.counts["frames lost"] += 1
            return
        copies = 1
        if chance["duplicate"] and random.random() < chance["duplicate"]:
            world.counts["frames doubled"] += 1
            copies = 2
        for _ in range(copies):
            arrives = world.now + int(self._latency_ns * (0.5 + random.random()))
            if chance["delay"] and random.random() < chance["delay"]:
                world.counts["frames delayed"] += 1
                # A long tail: most a little, some for several elections.
                arrives += int(TICK_NS * min(60.0, random.paretovariate(0.7)))
            else:
                arrives = max(arrives, self._last.get(link, 0) + 1, self._unclogged(link))
                self._last[link] = arrives
            self.empty_at = max(self.empty_at, arrives)
            if chance["damaged_frames"] and random.random() < chance["damaged_frames"] / 4:
                world.counts["frames damaged"] += 1
                self.arrives(arrives, source, target, self._damage(frame), is_damaged=True)
            else:
                self.arrives(arrives, source, target, frame, is_damaged=False)

    def arrives(
        self, time_ns: int, source: int, target: int, frame: bytes, *, is_damaged: bool
    ) -> None:
        """Deliver a frame at a moment, if its connection is not forgotten by then."""
        lives = (self._lives[source], self._lives[target])

        def deliver() -> None:
            if lives == (self._lives[source], self._lives[target]):
                self._deliver(source, target, frame, is_damaged)

        self._world.at(time_ns, deliver)

    def forget(self, replica: int) -> None:
        """What is under way from and to a replica is lost with its connections, for good."""
        self._lives[replica] += 1
        kept = [each for each in self.history if replica not in each[:2]]
        self.history.clear()
        self.history.extend(kept)

    def _unclogged(self, link: tuple[int, int]) -> int:
        return self.clogged_until.get(link, 0)

    def _damage(self, frame: bytes) -> bytes:
        random = self._random
        match random.randrange(3):
            case 0:
                return frame[: random.randrange(len(frame))]
            case 1:
                at = random.randrange(len(frame))
                flipped = frame[at] ^ (1 << random.randrange(8))
                return frame[:at] + bytes((flipped,)) + frame[at + 1 :]
            case _:
                return frame + b"\0"


_PERTURBATIONS = ("loss", "duplicate", "delay", "damaged_frames")
