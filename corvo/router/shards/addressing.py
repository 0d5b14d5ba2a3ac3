"""Addresses of jobs: the shard that has a job, by the job's id.

The shard in which a job was created, its home, follows from its id. A job that has moved left a
pointer there. Only ids without a queue, which clients chose before version 2 of the ops, say
nothing: their shard is remembered from an earlier request, else every shard is asked.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from corvo.ids import home_of, stand_in
from corvo.protocol.ops.base import ID_BYTES_MAX, Rejected
from corvo.protocol.queries import GetWhereabouts, KnowsRequest, RequestKnown, Whereabouts
from corvo.router.http.messages import Problem
from corvo.router.http.problems import missing
from corvo.router.shards.links import Shard, Shards

REMEMBERED_MAX: Final = 100_000
"""Chosen ids whose shard is known."""
HOPS_MAX: Final = 8
"""How often one request follows a job that moves."""
TRAVEL_S_MAX: Final = 5.0
"""How long a request waits for a job that travels to another shard. A move takes milliseconds; when
as many jobs are moved as possible, those that travel at a time need a second or two."""
_PAUSE_S: Final = 0.001
"""Before a shard is asked again whether a job has arrived; each pause is twice the one before."""
_PAUSE_S_MAX: Final = 0.05


class Addresses:
    """Shards by job id."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._remembered: dict[str, int] = {}

    def remember(self, job_id: str, shard: int) -> None:
        """Keep the shard of a job whose id does not say it."""
        if home_of(job_id, self._shards) is not None:
            return
        self._remembered.pop(job_id, None)
        self._remembered[job_id] = shard
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def first(self, job_id: str) -> int:
        """The shard to ask first for a job."""
        shard = home_of(job_id, self._shards)
        if shard is None:
            return self._remembered.get(job_id, 0)
        return stand_in(shard, self._shards)

    def candidates(self, job_id: str) -> list[int]:
        """All shards that may have a job, the first to ask first."""
        first = self.first(job_id)
        if home_of(job_id, self._shards) is not None:
            return [first]
        return [first, *(number for number in range(self._shards) if number != first)]


class Search:
    """A job that was not in the shard that was asked for it first."""

    __slots__ = ("_hops", "_job_id", "_others", "shard")

    def __init__(self, addresses: Addresses, job_id: str, shard: int) -> None:
        self.shard = shard
        """The shard that was asked last, or is to be asked next."""
        self._job_id = job_id
        self._others = [each for each in addresses.candidates(job_id) if each != shard]
        self._hops = 0

    async def go_on(self, shards: Shards, rejected: Rejected, key: str = "") -> Rejected | None:
        """Turn `shard` into the shard to ask next; or the rejection that stands. Raises `Problem`.

        A job on its way to another shard is waited for, unless that shard has answered the op with
        this request key before: then its answer counts, wherever the job is now.
        """
        if rejected.code == "job_moved" and rejected.shard >= 0 and self._hops < HOPS_MAX:
            self._hops += 1
            if key and await knows(shards[rejected.shard], key):
                self.shard = rejected.shard
                return None
            self.shard = await landed(shards, self._job_id, self.shard, rejected.shard)
            return None if self.shard >= 0 else missing(self._job_id)
        if rejected.code == "job_not_found" and self._others:
            self.shard = self._others.pop(0)
            return None
        return missing(self._job_id) if rejected.code == "job_not_found" else rejected


async def located(shards: Shards, addresses: Addresses, job_id: str) -> int:
    """The shard that has a job whose home is known; -1 if the job does not exist.

    Raises `Problem`, also when a move takes too long.
    """
    home = addresses.first(job_id)
    seen = await whereabouts(shards[home], [job_id])
    if job_id in seen.queues:
        return home
    pointed = seen.moved.get(job_id)
    return -1 if pointed is None else await landed(shards, job_id, home, pointed)


async def landed(shards: Shards, job_id: str, home: int, shard: int) -> int:
    """The shard that a moved job has arrived in; -1 if the job exists nowhere any more.

    The job is looked for before the op is sent: under a request key the op's answer is kept, and
    that a job was not there *yet* must not be. Only the home shard's answer that there is no such
    job is final. Raises `Problem` when the move takes too long.
    """
    until = trio.current_time() + TRAVEL_S_MAX
    pause_s = _PAUSE_S
    while True:
        if job_id in (await whereabouts(shards[shard], [job_id])).queues:
            return shard
        seen = await whereabouts(shards[home], [job_id])
        if job_id in seen.queues:
            return home
        if job_id not in seen.moved:
            return -1
        shard = seen.moved[job_id]
        if trio.current_time() >= until:
            raise moving(job_id)
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def moving(job_id: str) -> Problem:
    """The problem of a job that has not arrived in another shard in time."""
    return Problem(
        503,
        "JOB_MOVING",
        f"job {job_id[:ID_BYTES_MAX]} is being moved to another queue: nothing was changed; "
        "try again",
        retry_after_ms=1_000,
    )


async def whereabouts(shard: Shard, job_ids: Sequence[str]) -> Whereabouts:
    """What a shard knows of up to `ITEMS_MAX` jobs. Raises `Problem`."""
    return _decode_whereabouts((await shard.ask(GetWhereabouts(job_ids=[*job_ids]))).body)


async def knows(shard: Shard, key: str) -> bool:
    """Whether a shard has answered the op with a request key. Raises `Problem`."""
    return _decode_known((await shard.ask(KnowsRequest(request_key=key))).body).is_known


_decode_known: Final = msgspec.json.Decoder(RequestKnown).decode
_decode_whereabouts: Final = msgspec.json.Decoder(Whereabouts).decode
