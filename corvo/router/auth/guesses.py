"""Delays for wrong API keys: by the address of the client, in a table of fixed size.

A valid key is answered at once, however many wrong keys came from its address before:
no client can lock out another.
A wrong one waits for its answer, the longer the more of them came. Each address has a slot, chosen
by a hash with a secret of this process; addresses that share one share its delay, which only
wrong keys feel. So a million addresses take no more memory than one.
"""

from hashlib import blake2b
from math import ceil
from typing import Final

SLOTS: Final = 4_096
"""About 80 kB in all, with any number of addresses."""
FREE: Final = 10
"""Wrong keys that are answered at once: a typing error, or a worker with an old key that is started
a few times."""
FORGIVEN_S: Final = 10.0
"""After so long one wrong key is forgotten."""
FIRST_S: Final = 0.1
"""The first delay. Each further wrong key doubles it."""
WAITING_MAX: Final = 1_000
"""Answers that wait at a time. Each has a connection, which others may need."""
_LEVEL_MAX: Final = FREE + 20


class Guesses:
    """What is known of wrong API keys."""

    def __init__(self, delay_s_max: float, secret: bytes) -> None:
        """`secret` are bytes that differ from one process to the next."""
        self.total = 0
        """Wrong API keys that came."""
        self.waiting = 0
        """Answers to them that wait."""
        self._delay_s_max = delay_s_max
        self._secret = secret
        self._levels = [0.0] * SLOTS
        """By slot, wrong keys that are not forgotten yet, as of the last one."""
        self._at_s = [0.0] * SLOTS

    def wrong(self, address: str, now_s: float) -> float:
        """A wrong key came from an address: for how many seconds its answer is to wait."""
        self.total += 1
        digest = blake2b(address.encode(), digest_size=8, key=self._secret).digest()
        slot = int.from_bytes(digest, "big") % SLOTS
        forgotten = (now_s - self._at_s[slot]) / FORGIVEN_S
        level = min(max(self._levels[slot] - forgotten, 0.0) + 1, _LEVEL_MAX)
        self._levels[slot], self._at_s[slot] = level, now_s
        if level <= FREE or self.waiting >= WAITING_MAX:
            return 0.0
        return min(FIRST_S * 2.0 ** (ceil(level) - FREE - 1), self._delay_s_max)
