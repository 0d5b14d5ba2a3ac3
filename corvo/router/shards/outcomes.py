"""The outcome of an op for each of its jobs, as a shard answers it."""

from typing import Final

import msgspec

from corvo.protocol.ops.base import Rejected


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a shard says of one job: what became of it, or, with a code, why nothing did."""

    job_id: str = ""
    status: str = ""
    next_attempt_ns: int = 0
    attempts_remaining: int = 0
    lease_expires_ns: int = 0
    code: str = ""
    error: str = ""
    field: str = ""
    shard: int = -1


class _Results(msgspec.Struct, frozen=True):
    results: list[Outcome]


_decode_results: Final = msgspec.json.Decoder(_Results).decode


def read_results(body: bytes) -> list[Outcome | Rejected]:
    """The outcome of each job of an op, in order."""
    return [
        Rejected(one.code, one.error, one.field, one.job_id, one.shard) if one.code else one
        for one in _decode_results(body).results
    ]
