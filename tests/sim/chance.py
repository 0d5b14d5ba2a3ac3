"""Dice, one for each concern, so that a new draw in one does not reshuffle the others."""

import hashlib
from random import Random


def fork(seed: int, name: str) -> Random:
    """A `Random` of its own for the concern `name` of the run `seed`."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=16).digest()
    return Random(int.from_bytes(digest, "big"))
