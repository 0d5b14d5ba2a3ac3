"""What one run is like: a run of the Raft simulation, with clients, clocks and leases beside it."""

from random import Random
from typing import Final

import msgspec

from tests.sim import options as raft
from tests.sim.chance import fork

OWN_FAULTS: Final = (
    "links",
    "clock_skew",
    "clock_drift",
    "clock_jump",
    "clock_there_and_back",
    "clock_freeze",
    "vanish",
    "zombie",
    "people",
    "impatience",
    "effects",
    "nodes",
    "schedules",
)
"""What can go wrong with clients, and with clocks that people read; whether there is another
shard, which jobs move to and come back from, and whose process ends now and then; whether nodes
join and leave the cluster; and whether there are schedules."""

ELSEWHERE: Final = ("damage", "wipe", "apply_lag", "snapshot")
"""A damaged log ends the process of a shard for good; entries are applied as they come, and
checkpoints are always made."""

FAULTS: Final = tuple(fault for fault in raft.FAULTS if fault not in ELSEWHERE) + OWN_FAULTS


class Options(raft.Options, frozen=True, kw_only=True):
    """One run."""

    queues: int
    producers: int
    workers: int
    pace: float
    """The mean number of ticks between two requests of a producer."""
    lease_ms: int
    grace_ms: int
    retention_ms: int
    checkpoint_entries: int
    keep_entries: int
    polls_every: int
    """Ticks after which a worker that waits asks again by itself; 0 for never."""
    keyed_fetches: bool
    batch_effects: int
    """Of the shard's batches of effects; and how many are under way at a time."""
    window_batches: int

    @property
    def shards(self) -> int:
        """How many there are."""
        return 2 if self.has("effects") else 1


def draw(seed: int, *, without: tuple[str, ...] = ()) -> Options:
    """The options of the run `seed`."""
    below = raft.draw(seed, without=without)
    random = fork(seed, "shard options")
    share = random.choice((0.2, 0.5, 0.8))
    shares = {"schedules": 0.3}
    own = [
        fault
        for fault in OWN_FAULTS
        if fork(seed, f"option {fault}").random() < shares.get(fault, share)
    ]
    return Options(
        seed=seed,
        faults=tuple(
            fault
            for fault in (*below.faults, *own)
            if fault not in ELSEWHERE and fault not in without
        ),
        voters=below.voters,
        spares=below.spares,
        chaos_ticks=min(below.chaos_ticks, 240),
        latency_ns=below.latency_ns,
        disk_ns=below.disk_ns,
        calm=below.calm,
        writes=below.writes,
        reads=below.reads,
        limits=_limits(below.limits, random),
        queues=random.choice((1, 2, 3)),
        producers=random.choice((1, 2, 3)),
        workers=random.choice((1, 2, 4)),
        pace=random.choice((4.0, 8.0, 15.0)),
        lease_ms=random.choice((1_000, 1_500, 3_000)),
        grace_ms=random.choice((0, 500, 2_000)),
        retention_ms=random.choice((4_000, 30_000, 7 * 86_400_000)),
        checkpoint_entries=random.choice((5, 15, 40)),
        keep_entries=random.choice((0, 0, 3)),
        polls_every=random.choice((0, 0, 40)),
        keyed_fetches=random.random() < 0.5,
        batch_effects=random.choice((1, 2, 5)),
        window_batches=random.choice((1, 2, 4)),
    )


def _limits(limits: raft.Limits, random: Random) -> raft.Limits:
    """One write under way, as in a shard's process, and room for what is larger than registers."""
    is_roomy = limits.chunk_bytes_max > 1_000
    return msgspec.structs.replace(
        limits,
        writes_in_flight=1,
        append_bytes_max=max(limits.append_bytes_max, 2_000),
        window_bytes_max=max(limits.window_bytes_max, 2_000),
        chunk_bytes_max=limits.chunk_bytes_max if is_roomy else random.choice((2_000, 10_000)),
    )
