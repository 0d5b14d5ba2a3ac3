"""A log with a little of everything, and a process that applies one: `-m tests.shard.replaying`.

The log is drawn from a seed and recorded by a machine; a replay knows nothing but its bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from corvo.kv.checkpoints import LevelStates
from corvo.kv.tables import read_meta
from corvo.model import State
from corvo.protocol.cluster import ClusterNode, first_map
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.cluster import HOME, Announce, DrainNode, RemoveNode, SetReplicas
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import (
    Approve,
    Cancel,
    ChangePriority,
    Delete,
    Expedite,
    Hold,
    Move,
    Reject,
    Requeue,
    Retry,
)
from corvo.protocol.ops.queues import (
    Clear,
    Pause,
    RemoveThrottle,
    Resume,
    SetConcurrency,
    SetThrottle,
)
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Fail,
    FailItem,
    Fetch,
    Heartbeat,
    Release,
    ReleaseItem,
    Snooze,
    SnoozeItem,
)
from corvo.protocol.ops.workflow import NewBatch
from corvo.shard.machine import Machine
from corvo.shard.ops.cluster import Place
from corvo.shard.ops.upkeep import (
    CleanRequests,
    CleanUnique,
    Expire,
    Lead,
    Promote,
    Purge,
    Reclaim,
    Sweep,
    Tell,
)
from corvo.shard.state.tables import JOBS
from corvo.trace_context import TraceContext
from tests.shard.shard import Shard

QUEUES: Final = ("mail", "images", "berichte-ü", "billing")
TRACE: Final = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
TAGS: Final = ("env", "tenant", "zone", "käse")
SHARDS: Final = 2
NUMBER: Final = 1


class Log(msgspec.Struct, frozen=True):
    """Entries as they were recorded, and what they came to."""

    entries: list[bytes]
    digest: int
    shard: int = NUMBER


def record(seed: int, entries: int, *, number: int = NUMBER) -> tuple[Log, Shard]:
    """A log, and the shard that it made."""
    random = Random(seed)
    shard = Shard(number=number, shards=SHARDS)
    ops_there_are = draws(shard, random)
    if number == HOME:
        ops_there_are += 3 * draws_of_map(shard, random)
    for _ in range(entries):
        shard.dice = random.getrandbits(32)
        shard.pass_time(random.choice((0, 1, 40, 900, 15_000)))
        ops = [random.choice(ops_there_are)() for _ in range(random.randrange(1, 7))]
        shard.entry(*ops)
    return Log(shard.log, shard.machine.digest, number), shard


def draws(shard: Shard, random: Random) -> list[Callable[[], Op]]:
    def queue() -> str:
        return random.choice(QUEUES)

    def jobs(*states: State) -> list[str]:
        there = [job.id for job in shard.documents(JOBS) if not states or job.state in states]
        return random.sample(there, min(len(there), random.randrange(1, 4))) or ["nobody"]

    def new() -> NewJob:
        return NewJob(
            queue=queue(),
            payload=msgspec.Raw(b'{"n":%d}' % random.randrange(1_000)),
            priority=random.randrange(3),
            max_retries=random.randrange(1, 4),
            retry_jitter=random.choice((0, 50)),
            unique_key=random.choice(("", "", "u1", "u2")),
            scheduled_ns=random.choice((0, 0, shard.clock_ns + 10**9)),
            expire_after_ms=random.choice((0, 0, 5_000)),
            max_run_time_ms=random.choice((0, 0, 3_000)),
            tags=dict.fromkeys(random.sample(TAGS, 3), "x"),
            depends_on=tuple(jobs()) if random.random() < 0.3 else (),
            trace=random.choice((None, None, TRACE)),
        )

    def request_key() -> str:
        return random.choice(("", "", f"key-{random.randrange(40)}"))

    active = State.ACTIVE
    often: list[Callable[[], Op]] = [
        lambda: Enqueue(jobs=[new() for _ in range(random.randrange(1, 5))], by="ann"),
        lambda: Enqueue(jobs=[new()], request_key=request_key()),
        lambda: Fetch(queues=[queue(), queue()], worker_id="w1", count=3, lease_ms=2_000),
        lambda: Fetch(queues=[queue()], worker_id="w2", count=2, request_key=request_key()),
        lambda: Ack(acks=[AckItem(job_id=job) for job in jobs(active)]),
        lambda: Fail(fails=[FailItem(job_id=job, error="no") for job in jobs(active)]),
        lambda: Promote(limit=5),
        lambda: Reclaim(limit=5),
    ]
    return [
        *often,
        *often,
        lambda: Enqueue(jobs=[new(), new()], batch=NewBatch(callback_queue=queue())),
        lambda: Heartbeat(jobs=[BeatItem(job_id=job) for job in jobs(active)]),
        lambda: Release(jobs=[ReleaseItem(job_id=job) for job in jobs(active)]),
        lambda: Snooze(jobs=[SnoozeItem(job_id=job, delay_ms=500) for job in jobs(active)]),
        lambda: Expire(limit=5),
        lambda: CleanUnique(limit=5),
        lambda: CleanRequests(limit=5),
        lambda: Tell(limit=5),
        lambda: Sweep(queue=queue(), limit=5),
        lambda: Purge(queue=queue(), keep_ms=60_000, limit=5),
        lambda: Lead(grace_ms=500),
        lambda: Retry(job_ids=jobs()),
        lambda: Requeue(job_ids=jobs(State.DEAD)),
        lambda: Expedite(job_ids=jobs(State.RETRYING)),
        lambda: Cancel(job_ids=jobs()),
        lambda: Move(job_ids=jobs(), queue=queue()),
        lambda: Delete(job_ids=jobs()),
        lambda: Hold(job_ids=jobs()),
        lambda: Approve(job_ids=jobs(State.HELD)),
        lambda: Reject(job_ids=jobs(State.HELD)),
        lambda: ChangePriority(job_ids=jobs(), priority=random.randrange(3)),
        lambda: Pause(queue=queue()),
        lambda: Resume(queue=queue()),
        lambda: Resume(queue=queue()),
        lambda: Clear(queue=queue()),
        lambda: SetConcurrency(queue=queue(), max=random.choice((0, 2))),
        lambda: SetThrottle(queue=queue(), rate=2, window_ms=1_000),
        lambda: RemoveThrottle(queue=queue()),
    ]


def draws_of_map(shard: Shard, random: Random) -> list[Callable[[], Op]]:
    """Ops on the cluster map, of which about half are refused."""
    first = first_map(
        [ClusterNode(number=number, name=f"n{number}") for number in (1, 2, 3)],
        shards=SHARDS,
        replicas=3,
    )

    def number() -> int:
        return random.randrange(1, 7)

    def announce() -> Announce:
        of = number()
        return Announce(
            name=f"n{of}",
            instance=f"dir-{random.randrange(9)}",
            number=random.choice((0, of)),
            zone=random.choice(("a", "b")),
            first=first,
        )

    def place() -> Place:
        known = shard.tx.cluster_map or first
        row = tuple(random.sample(known.carriers, 1))
        return Place(base=max(known.version, 1), places=(row,) * SHARDS)

    return [
        announce,
        announce,
        place,
        lambda: DrainNode(number=number(), is_draining=random.random() < 0.5),
        lambda: RemoveNode(number=number(), reason="lost"),
        lambda: SetReplicas(replicas=random.randrange(1, 4)),
    ]


def main(log_file: Path, directory: Path, until: int, boot_id: str) -> int:
    """Apply entries up to `until` in a state of this process's own; checkpoint; print the digest.

    Begins where the state is: with another boot than the one before, at its checkpoint.
    """
    log = msgspec.msgpack.decode(log_file.read_bytes(), type=Log)
    states = LevelStates(directory, boot_id=boot_id, applied=lambda store: read_meta(store).applied)
    machine = Machine(states.store, shard=log.shard, shards=SHARDS)
    began = machine.applied
    for index in range(began + 1, until + 1):
        machine.apply(index=index, term=1, data=log.entries[index - 1])
    states.checkpoint()
    print(began, machine.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
