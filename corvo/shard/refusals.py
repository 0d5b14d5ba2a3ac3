"""What an op answers when it does nothing: a value, and never an exception."""

import msgspec


class Rejected(msgspec.Struct, frozen=True):
    """A refusal. Nothing was done."""

    code: str
    """Stable; what programs look at."""
    error: str
    """For people: the thing, its state, and what to do."""
    field: str = ""
    """Where in the request, when it is the request that is wrong."""
    job_id: str = ""
    """The job that is in the way, or is meant."""
    shard: int = -1
    """Where to ask instead."""
