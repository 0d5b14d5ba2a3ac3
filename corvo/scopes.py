"""Which queues are whose: those that a key is for, and the server's own."""

from collections.abc import Iterable
from typing import Final

RESERVED: Final = "_corvo."
"""Names of queues that begin so are the server's own: its work on itself is jobs in them."""


def is_reserved(queue: str) -> bool:
    """Whether nobody but the server works on what is in a queue."""
    return queue.startswith(RESERVED)


def covers(scope: Iterable[str], queue: str) -> bool:
    """Whether a scope has a queue: by its name, or by how that begins, as `mail*`.

    A scope without anything in it is no scope: everything is seen.
    """
    names = tuple(scope)
    return not names or any(
        queue.startswith(name[:-1]) if name.endswith("*") else queue == name for name in names
    )
