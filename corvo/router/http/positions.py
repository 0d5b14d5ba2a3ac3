"""Positions: how far shards have come, as `Corvo-Seq` and `Corvo-Min-Seq` write it.

    s0=1042,s3=77

A mutation answers where it stands in the log of each shard that it touched. A read that is given
positions is answered from a state that has come at least so far.
"""

from collections.abc import Mapping

from corvo.router.http.messages import Problem


def render(positions: Mapping[int, int]) -> str:
    """Positions by shard, as a header."""
    return ",".join([f"s{shard}={index}" for shard, index in sorted(positions.items())])


def parse(header: str, shards: int) -> dict[int, int]:
    """Positions out of a header. Raises `Problem`."""
    positions: dict[int, int] = {}
    for part in header.split(","):
        name, equals, number = part.strip().partition("=")
        shard = name[1:]
        is_position = name[:1] == "s" and _is_number(shard) and equals and _is_number(number)
        if not is_position or int(shard) >= shards:
            raise Problem(
                400,
                "VALIDATION_ERROR",
                f"Corvo-Min-Seq: expected a position such as s0=1042; got {part.strip()[:40]!r}",
                field="Corvo-Min-Seq",
            )
        positions[int(shard)] = max(int(number), positions.get(int(shard), 0))
    return positions


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
