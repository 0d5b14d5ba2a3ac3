"""How many jobs a second the state machine carries through, on a LevelDB that is never synced.

A lifecycle is enqueue, fetch and ack of one job, each an op of its own among the 64 of an entry, or
64 jobs to each op. Rounds follow one another in one store, so the tables that LevelDB merges beside
them are in it; `median` is the ordinary round and `all rounds` includes those that were held up.
"""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench import workload
from bench.calibration import loops_per_second
from bench.measure import Measurement
from bench.workload import OPS_AN_ENTRY, Shard, Taken

ENTRIES: Final = 16
"""Of each kind, in a round: fifty milliseconds or so."""
ROUNDS: Final = 100
JOBS_AN_OP: Final = 64

Round = dict[str, Taken]
"""What a round took for each kind of op."""


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    yield from _singles(directory / "singles")
    yield from _batches(directory / "batches")
    yield from _others(directory / "others")


def _singles(directory: Path) -> Iterator[Measurement]:
    rounds = _rounds(directory, _single_round)
    jobs = ENTRIES * OPS_AN_ENTRY
    yield from _lifecycles(f"entries of {OPS_AN_ENTRY} ops", rounds, jobs)
    for kind in rounds[0]:
        seconds = statistics.median(taken[kind].wall for taken in rounds)
        yield Measurement(f"{kind}, {OPS_AN_ENTRY} to an entry", seconds / jobs * 1e6, "µs/op")


def _batches(directory: Path) -> Iterator[Measurement]:
    rounds = _rounds(directory, _batch_round)
    jobs = ENTRIES * JOBS_AN_OP
    yield from _lifecycles(f"{JOBS_AN_OP} jobs to an op", rounds, jobs)
    for kind in rounds[0]:
        seconds = statistics.median(taken[kind].wall for taken in rounds)
        yield Measurement(f"{kind}, {JOBS_AN_OP} to an op", seconds / jobs * 1e6, "µs/job")


def _others(directory: Path) -> Iterator[Measurement]:
    rounds = _rounds(directory, _troubled_round)
    for kind in rounds[0]:
        seconds = statistics.median(taken[kind].wall for taken in rounds)
        each = seconds / (ENTRIES * OPS_AN_ENTRY)
        yield Measurement(f"{kind}, {OPS_AN_ENTRY} jobs an entry", each * 1e6, "µs/op")


def _rounds(directory: Path, work: Callable[[Shard], Round]) -> list[Round]:
    shard = Shard(directory)
    work(shard)  # caches and lazy imports are not what is measured
    rounds = [work(shard) for _ in range(ROUNDS)]
    shard.close()
    return rounds


def _lifecycles(name: str, rounds: list[Round], jobs: int) -> Iterator[Measurement]:
    walls = [sum(taken.wall for taken in each.values()) for each in rounds]
    threads = [sum(taken.thread for taken in each.values()) for each in rounds]
    for which, seconds in (
        ("median", statistics.median(walls)),
        ("best", min(walls)),
        ("all rounds", statistics.fmean(walls)),
    ):
        yield Measurement(f"lifecycles, {name}, {which}", jobs / seconds, "jobs/s")
    rate = jobs / statistics.median(threads)
    label = f"lifecycles, {name}, thread's time"
    yield Measurement(label, rate, "jobs/s", rate / loops_per_second())


def _single_round(shard: Shard) -> Round:
    done: dict[str, list[Taken]] = {"enqueue": [], "fetch": [], "ack": []}
    new, take = [workload.enqueue()] * OPS_AN_ENTRY, [workload.fetch()] * OPS_AN_ENTRY
    for _ in range(ENTRIES):
        done["enqueue"].append(shard.apply(*new))
        done["fetch"].append(shard.apply(*take))
        claims = workload.claimed(shard.answers)
        assert len(claims) == OPS_AN_ENTRY
        done["ack"].append(shard.apply(*(workload.ack([claim]) for claim in claims)))
    return _summed(done)


def _troubled_round(shard: Shard) -> Round:
    """Each job is worked on for a while and fails, and the second attempt completes it."""
    done: dict[str, list[Taken]] = {"heartbeat": [], "fail": [], "promote": []}
    for _ in range(ENTRIES):
        shard.apply(workload.enqueue(OPS_AN_ENTRY))
        shard.apply(workload.fetch(OPS_AN_ENTRY))
        claims = workload.claimed(shard.answers)
        done["heartbeat"].append(shard.apply(*(workload.heartbeat(claim) for claim in claims)))
        done["fail"].append(shard.apply(*(workload.fail(claim) for claim in claims)))
        done["promote"].append(shard.apply(workload.promote(OPS_AN_ENTRY)))
        shard.apply(workload.fetch(OPS_AN_ENTRY))
        again = workload.claimed(shard.answers)
        assert [claim.job_id for claim in again] == [claim.job_id for claim in claims]
        shard.apply(workload.ack(again))
    return _summed(done)


def _batch_round(shard: Shard) -> Round:
    done: dict[str, list[Taken]] = {"enqueue": [], "fetch": [], "ack": []}
    new, take = workload.enqueue(JOBS_AN_OP), workload.fetch(JOBS_AN_OP)
    for _ in range(ENTRIES):
        done["enqueue"].append(shard.apply(new))
        done["fetch"].append(shard.apply(take))
        claims = workload.claimed(shard.answers)
        assert len(claims) == JOBS_AN_OP
        done["ack"].append(shard.apply(workload.ack(claims)))
    return _summed(done)


def _summed(done: dict[str, list[Taken]]) -> Round:
    return {
        kind: Taken(sum(one.wall for one in taken), sum(one.thread for one in taken))
        for kind, taken in done.items()
    }
