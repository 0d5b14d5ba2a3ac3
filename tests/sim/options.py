"""What one run is like: everything is drawn from its seed.

Swarm testing: each fault is wholly on or wholly off for a run, and then has an intensity. Every
fault draws from dice of its own, so leaving one out (`--without`) changes nothing about how the
others are drawn.
"""

from random import Random
from typing import Final

import msgspec

from tests.sim.chance import fork

MS: Final = 1_000_000
TICK_NS: Final = 100 * MS

FAULTS: Final = (
    "loss",
    "duplicate",
    "delay",
    "clog",
    "replay",
    "damaged_frames",
    "partition",
    "one_way",
    "bridge",
    "ring",
    "strand",
    "swizzle",
    "crash",
    "crash_point",
    "torn_write",
    "power_loss",
    "group_restart",
    "pause",
    "slow_disk",
    "failed_sync",
    "full_disk",
    "damage",
    "wipe",
    "older",
    "clock_rate",
    "tick_burst",
    "apply_lag",
    "change",
    "retire",
    "transfer",
    "campaign",
    "snapshot",
)
"""Everything that can go wrong or be done to a group; see `faults` for what each is."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every node, and what its driver does on its own."""

    election_ticks: int
    heartbeat_ticks: int
    append_bytes_max: int
    window_messages_max: int
    window_bytes_max: int
    uncommitted_bytes_max: int
    page_bytes_max: int
    chunk_bytes_max: int
    reads_waiting_max: int
    promotion_lag_max: int
    segment_bytes: int
    writes_in_flight: int
    gather: float
    """How often a driver does not ask for a write although it might."""
    snapshot_every: int
    tail: int
    """Entries that compaction leaves below a snapshot."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    faults: tuple[str, ...]
    voters: int
    spares: int
    chaos_ticks: int
    latency_ns: int
    disk_ns: int
    calm: float
    """The mean number of ticks between two strikes of one fault."""
    writes: float
    """Operations of clients a tick."""
    reads: float
    """The part of them that reads."""
    limits: Limits

    def has(self, fault: str) -> bool:
        """Whether this fault is on."""
        return fault in self.faults


def draw(seed: int, *, without: tuple[str, ...] = ()) -> Options:
    """The options of the run `seed`."""
    random = fork(seed, "options")
    share = random.choice((0.15, 0.3, 0.5, 0.7))
    on = tuple(fault for fault in FAULTS if fork(seed, f"option {fault}").random() < share)
    voters = random.choice((1, 3, 3, 3, 3, 3, 3, 5, 5))
    is_large = random.random() < 0.08
    return Options(
        seed=seed,
        faults=tuple(fault for fault in on if fault not in without),
        voters=voters,
        spares=random.choice((1, 2, 3)),
        chaos_ticks=random.randrange(60, 160) * (4 if is_large else 1),
        latency_ns=random.choice((1, 1, 5, 20, 60)) * MS,
        disk_ns=random.choice((0, 1, 1, 5, 40)) * MS,
        calm=random.choice((8.0, 15.0, 30.0)),
        writes=random.choice((0.2, 0.5, 1.0)) if voters < 5 else random.choice((0.2, 0.5)),
        reads=random.choice((0.0, 0.3, 0.6)),
        limits=draw_limits(random),
    )


def draw_limits(random: Random) -> Limits:
    """Each limit is roomy or as tight as it may be, by itself."""
    tight = random.choice((0.0, 0.3, 0.6))

    def one(roomy: int, *small: int) -> int:
        return random.choice(small) if random.random() < tight else roomy

    heartbeat_ticks = random.choice((1, 2, 2, 3))
    return Limits(
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * random.choice((3, 4)) + random.choice((0, 1)),
        append_bytes_max=one(1 << 20, 1, 30, 200),
        window_messages_max=one(64, 1, 2, 4),
        window_bytes_max=one(8 << 20, 1, 60, 300),
        uncommitted_bytes_max=one(64 << 20, 1, 200),
        page_bytes_max=one(4 << 20, 1, 60),
        chunk_bytes_max=one(1 << 20, 10, 40, 200),
        reads_waiting_max=one(10_000, 1, 3),
        promotion_lag_max=one(1_000, 0, 3),
        segment_bytes=one(64 << 20, 1, 12_600, 14_000),
        writes_in_flight=random.choice((1, 1, 2, 4)),
        gather=random.choice((0.0, 0.0, 0.3)),
        snapshot_every=random.choice((1, 3, 8, 20)),
        tail=random.choice((0, 0, 1, 5)),
    )
