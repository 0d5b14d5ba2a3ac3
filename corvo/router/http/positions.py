"""Positions: how far shards have come, as `Corvo-Seq` and `Corvo-Min-Seq` write it.

    s0=1042,s3=77

A mutation answers where it stands in the log of each shard that it touched. A read that is given
positions is answered from a state that has come at least so far.
"""

from collections.abc import Mapping


def render(positions: Mapping[int, int]) -> str:
    """Positions by shard, as a header."""
    if len(positions) == 1:  # nearly all answers speak of one shard
        [(shard, index)] = positions.items()
        return f"s{shard}={index}"
    return ",".join([f"s{shard}={index}" for shard, index in sorted(positions.items())])


def parse(header: str, shards: int) -> dict[int, int]:
    """Positions out of a header. Raises `ValueError` with the part that is invalid."""
    positions: dict[int, int] = {}
    for part in header.split(","):
        name, equals, number = part.strip().partition("=")
        shard = name[1:]
        is_position = name[:1] == "s" and _is_number(shard) and equals and _is_number(number)
        if not is_position or int(shard) >= shards:
            raise ValueError(part.strip())
        merge(positions, {int(shard): int(number)})
    return positions


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def merge(positions: dict[int, int], others: Mapping[int, int]) -> None:
    """Add positions that were reached as well: of each shard, the furthest counts."""
    for shard, index in others.items():
        positions[shard] = max(index, positions.get(shard, 0))
