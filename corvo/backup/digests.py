"""What the queues of a backup have, in one number each: equal wherever their jobs are equal."""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.backup.documents import StoredJob
from corvo.model import STATES

_encode: Final = msgspec.msgpack.Encoder().encode
_BITS: Final = 128


class QueueDigest(msgspec.Struct):
    """The jobs of one queue."""

    queue: str
    jobs: int = 0
    states: dict[str, int] = {}
    digest: str = ""
    """Sum of a hash of each job: of its document, its JSON and its errors."""


class Digests:
    """The digests of all queues, job by job."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self._states: dict[str, dict[str, int]] = {}

    def add(self, stored: StoredJob) -> None:
        """Take one job.

        Where the job is, whether others have asked for its end, and the end of its unique lock are
        left out: they depend on the number of shards, and on the time.
        """
        job = replace(stored.job, born_in=-1, awaited=False, unique_until_ns=0)
        data = _encode((job, stored.errors))
        number = int.from_bytes(blake2b(data, digest_size=_BITS // 8).digest(), "big")
        self._sums[job.queue] = (self._sums.get(job.queue, 0) + number) % (1 << _BITS)
        states = self._states.setdefault(job.queue, {})
        states[job.state.value] = states.get(job.state.value, 0) + 1

    def queues(self) -> list[QueueDigest]:
        """One for each queue with jobs, by name."""
        order = {state.value: place for place, state in enumerate(STATES)}
        return [
            QueueDigest(
                queue=queue,
                jobs=sum(states.values()),
                states=dict(sorted(states.items(), key=lambda it: order[it[0]])),
                digest=f"{self._sums[queue]:032x}",
            )
            for queue, states in sorted(self._states.items())
        ]
