"""One shard's state machine on a real LevelDB, and entries to be applied to it.

What is timed is `Machine.apply` alone: making entries and reading answers is somebody else's work.
Time is taken twice, by the clock on the wall and by what the applying thread had of a processor;
LevelDB's own thread, which merges tables, is only in the first, where it is in the way.
"""

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final, NamedTuple

import msgspec

from corvo.child import collect_seldom
from corvo.kv.level import LevelStore
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Claim,
    Claims,
    Fail,
    FailItem,
    Fetch,
    Heartbeat,
)
from corvo.shard.machine import Answer, Machine
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.upkeep import Promote
from corvo.shard.state.entry import Record, Stamp, encode

OPS_AN_ENTRY: Final = 64
"""What gathers into one entry on a busy shard."""
QUEUE: Final = "mail"
PAYLOAD: Final = msgspec.Raw(b'{"to":"someone@example.com","template":"welcome","n":12345}')
RESULT: Final = msgspec.Raw(b'{"ok":true}')

_BEGUN_NS: Final = 1_700_000_000_000_000_000
_STEP_NS: Final = 1_000_000  # entries are a millisecond apart

_encode: Final = msgspec.json.Encoder().encode
_decode_claims: Final = msgspec.json.Decoder(Claims).decode


class Taken(NamedTuple):
    """Seconds that something took."""

    wall: float
    thread: float


def record(op: Op) -> Record:
    """An op as it stands in an entry."""
    return NUMBERS[type(op)], _encode(op)


def enqueue(jobs: int = 1) -> Record:
    """New jobs, one or many in one op."""
    return record(Enqueue(jobs=[NewJob(queue=QUEUE, payload=PAYLOAD)] * jobs, by="api"))


def fetch(jobs: int = 1) -> Record:
    """Take so many jobs."""
    return record(Fetch(queues=[QUEUE], worker_id="worker-1", hostname="host-1", count=jobs))


def ack(claims: Iterable[Claim]) -> Record:
    """These jobs are done."""
    return record(
        Ack(
            acks=[
                AckItem(job_id=claim.job_id, lease_token=claim.lease_token, result=RESULT)
                for claim in claims
            ]
        )
    )


def heartbeat(claim: Claim) -> Record:
    """This job is being worked on."""
    return record(
        Heartbeat(
            jobs=[BeatItem(job_id=claim.job_id, lease_token=claim.lease_token)], by="worker-1"
        )
    )


def fail(claim: Claim) -> Record:
    """This job has failed, and may be tried again at once."""
    item = FailItem(
        job_id=claim.job_id,
        lease_token=claim.lease_token,
        error="connection refused",
        error_class="ConnectionError",
        retry_after_ms=0,
    )
    return record(Fail(fails=[item]))


def promote(jobs: int) -> Record:
    """What the leader does when so many are due."""
    return record(Promote(limit=jobs))


def claimed(answers: Iterable[Answer]) -> list[Claim]:
    """The jobs that fetches got."""
    return [claim for answer in answers for claim in _decode_claims(answer.body).jobs]


class Shard:
    """A state machine and the log that it is given."""

    def __init__(self, directory: Path) -> None:
        collect_seldom()
        self._store = LevelStore(str(directory))
        self.machine = Machine(self._store, shard=0, shards=4)
        self.answers: list[Answer] = []

    def apply(self, *records: Record) -> Taken:
        """Apply one entry; what its ops came to is in `answers`."""
        machine = self.machine
        index = machine.applied + 1
        now_ns = max(_BEGUN_NS, machine.now_ns) + _STEP_NS
        data = encode(Stamp(now_ns), records)
        thread, wall = thread_time(), perf_counter()
        self.answers = machine.apply(index=index, term=1, data=data)
        taken = Taken(perf_counter() - wall, thread_time() - thread)
        assert not any(answer.code for answer in self.answers), "no op is refused"
        return taken

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()
