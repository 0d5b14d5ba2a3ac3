"""How fast this machine is, just now: the yardstick for every other number.

Two fixed pieces of work that will never change: a loop of plain Python, for what the interpreter
does, and copying of memory, for what moves bytes.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from bench.measure import Measurement, median_seconds

LOOP_STEPS: Final = 10_000
COPY_BYTES: Final = 8 << 20  # more than the caches of a core
ROUNDS: Final = 51


def loop() -> int:
    """A fixed amount of plain Python: calls, attributes, dictionaries, small objects."""
    table: dict[int, tuple[int, int]] = {}
    total = 0
    for step in range(LOOP_STEPS):
        table[step & 255] = (step, total)
        total += table[step >> 1 & 255][0] if step >> 1 & 255 in table else 1
        total &= 0xFFFF
    return total


@cache
def loops_per_second() -> float:
    """How often `loop` runs in a second; measured once a run."""
    return 1 / median_seconds(loop, rounds=ROUNDS)


@cache
def copied_bytes_per_second() -> float:
    """How many bytes are copied in a second; measured once a run."""
    source = b"corvo " * (COPY_BYTES // 6)  # zeroes would not be read from memory
    return len(source) / median_seconds(lambda: bytearray(source), rounds=ROUNDS)


def measurements() -> Iterator[Measurement]:
    """The yardsticks themselves."""
    yield Measurement("calibration: plain Python", loops_per_second(), "loops/s", 1.0)
    yield Measurement("calibration: copying", copied_bytes_per_second() / 1e6, "MB/s", None)
