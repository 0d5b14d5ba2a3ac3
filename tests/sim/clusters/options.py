"""What one run is like."""

from typing import Final

from tests.sim import options as raft
from tests.sim.chance import fork
from tests.sim.options import MS

BELOW: Final = (
    "loss",
    "duplicate",
    "delay",
    "clog",
    "partition",
    "one_way",
    "bridge",
    "swizzle",
    "crash",
    "power_loss",
    "group_restart",
    "pause",
    "slow_disk",
    "clock_rate",
)
"""Faults of networks and machines, as in the simulation of Raft groups."""

OWN_FAULTS: Final = ("links", "join", "drain", "remove", "lose", "return")
"""Connections break; nodes join, are drained, removed, lost with their disk, and come back after
that: with their old directory, or an empty one under the old name."""

FAULTS: Final = (*BELOW, *OWN_FAULTS)


class Options(raft.Options, frozen=True, kw_only=True):
    """One run."""

    nodes: int
    joiners: int
    """Machines that may join later."""
    shards: int
    pace: float
    """The mean number of ticks between two requests of clients."""
    checkpoint_entries: int
    keep_entries: int
    feed_bytes: int


def draw(seed: int, *, without: tuple[str, ...] = ()) -> Options:
    """The options of the run `seed`."""
    random = fork(seed, "cluster options")
    share = random.choice((0.2, 0.4, 0.6))
    own = {"join": 0.6, "drain": 0.6, "remove": 0.6, "lose": 0.4, "return": 0.5}
    on = [
        fault for fault in FAULTS if fork(seed, f"option {fault}").random() < own.get(fault, share)
    ]
    return Options(
        seed=seed,
        faults=tuple(fault for fault in on if fault not in without),
        voters=3,
        spares=0,
        chaos_ticks=random.randrange(120, 260),
        latency_ns=random.choice((1, 5, 20)) * MS,
        disk_ns=random.choice((1, 1, 10)) * MS,
        calm=random.choice((15.0, 30.0, 60.0)),
        writes=0.0,
        reads=0.0,
        limits=raft.draw_limits(random),
        nodes=random.choice((3, 3, 5)),
        joiners=random.choice((1, 2)),
        shards=random.choice((2, 2, 3, 4)),
        pace=random.choice((2.0, 4.0, 8.0)),
        checkpoint_entries=random.choice((8, 20, 60)),
        keep_entries=random.choice((0, 0, 10)),
        feed_bytes=random.choice((1_000, 5_000, 1 << 20)),
    )
