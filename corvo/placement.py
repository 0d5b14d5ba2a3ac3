"""The shard of a queue, computed from the name of the queue."""

from functools import lru_cache
from typing import Final

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv32a(name: str) -> int:
    """The 32-bit FNV-1a of a name's UTF-8, as Go's `hash/fnv` has it."""
    value = _OFFSET
    for byte in name.encode():
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


@lru_cache(maxsize=4_096)
def shard_of_queue(queue: str, shards: int) -> int:
    """The shard that owns a queue, namespace included in the name."""
    assert shards >= 1
    return fnv32a(queue) % shards
