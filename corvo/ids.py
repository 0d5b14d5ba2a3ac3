"""Ids, derived from the log entry that creates a thing: the same on every replica.

`s03_job_01HF7YAT000000000003800000` is a job made by shard 3: the last 26 letters are a ULID of
48 bits of time (ms), 55 bits of log index and 25 bits that number the things of one entry. So ids
of one shard sort by age, no two are equal, and the prefix names the shard.

`mail~letter-1` is a job whose id a client chose: the queue in which it was created, and the
client's own id, which is unique there. Neither has a `~`, and a path needs no escape for either.
So the shard follows from every id: see `home_of`.
"""

import re
from typing import Final

from corvo.placement import shard_of_queue

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
ORDINALS: Final = 1 << 25


def _letters(number: int, count: int) -> str:
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(5 * count - 5, -5, -5)])


class Mint:
    """Makes the ids of one entry."""

    def __init__(self, shard: int, now_ns: int, index: int) -> None:
        self._shard = f"s{shard:02d}_"
        self._now_ns = now_ns
        self._index = index
        self._job = ""  # how the ids begin; most entries make nothing
        self._ordinal = 0

    def job(self) -> str:
        """The next job's id: as `mint`, for there are many."""
        ordinal = self._ordinal
        self._ordinal = ordinal + 1
        if not self._job:
            stem = _letters(self._now_ns // 1_000_000, 10) + _letters(self._index, 11)
            self._job = f"{self._shard}job_{stem}"
        low = ordinal & 0x3FF
        return f"{self._job}{_ALPHABET[ordinal >> 20]}{_PAIRS[ordinal >> 10 & 0x3FF]}{_PAIRS[low]}"

    def mint(self, kind: str) -> str:
        """The next id of a `kind` of thing."""
        assert self._ordinal < ORDINALS, "an entry makes no more things than it can number"
        job_id = self.job()
        return f"{self._shard}{kind}_{job_id[-26:]}"


def first_id(shard: int, kind: str, at_ns: int) -> str:
    """The smallest id that a shard can make of a `kind` of thing in the millisecond of a time."""
    return f"s{shard:02d}_{kind}_{_letters(at_ns // 1_000_000, 10)}"


def full_id(queue: str, own: str) -> str:
    """The id of a job of a queue whose own id a client chose."""
    return f"{queue}~{own}"


def queue_of_id(job_id: str) -> str:
    """The queue that is part of an id; empty for an id that has none."""
    return job_id.rpartition("~")[0] if "~" in job_id else ""


def home_of(job_id: str, shards: int) -> int | None:
    """The shard in which a job was created. It can be a shard that does not exist.

    None for an id that has neither a shard nor a queue: clients chose such ids before version 2 of
    the ops, and each shard may have a job with it.
    """
    if "~" not in job_id:
        return shard_of(job_id)
    queue = queue_of_id(job_id)
    return shard_of_queue(queue, shards) if queue else shard_of(job_id)


def stand_in(home: int, shards: int) -> int:
    """The shard that is the home of a job, also of one that was restored from more shards."""
    return home % shards


def shard_of(identifier: str) -> int | None:
    """The shard that made an id; None for an id that somebody chose."""
    shard = _BY_PREFIX.get(identifier[:4])
    if shard is not None:
        return shard
    found = _named_shard(identifier)
    return None if found is None else int(found[1])


_BY_PREFIX: Final = {f"s{shard:02d}_": shard for shard in range(100)}
"""Prefixes of ids: a look here costs a third of a match."""
_named_shard: Final = re.compile("s([0-9]{2}|[1-9][0-9]{2,8})_").match
