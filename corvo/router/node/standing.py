"""How far the mirror is behind each shard."""

from corvo.measures import Histogram
from corvo.protocol.numbers import Numbers
from corvo.protocol.questions import LAG_BOUNDS_MS, ShardStanding, Standing


def lag_entries(standing: ShardStanding, numbers: Numbers) -> int:
    """How many entries of a shard the mirror has not seen."""
    return max(0, numbers.applied - standing.index)


def lag_s(standing: ShardStanding, numbers: Numbers) -> float:
    """How old what the mirror has of a shard is, by the shard's own time."""
    if lag_entries(standing, numbers) == 0:
        return 0.0
    return max(0, numbers.now_ns - standing.now_ns) / 1e9


def write_lag(standing: Standing) -> Histogram:
    """How late rows were when they were written, in seconds."""
    bounds = tuple(bound / 1_000 for bound in LAG_BOUNDS_MS)
    return Histogram(bounds, list(standing.lag_seconds), standing.lag_sum_ms / 1_000)
