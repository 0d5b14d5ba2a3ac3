"""Ctrl-C in a command that has begun something: the first asks it to stop, the second ends it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def first_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, within the block. The second is `KeyboardInterrupt`."""
    asked = threading.Event()

    def ask(number: int, _: FrameType | None) -> None:
        asked.set()
        signal.signal(number, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
