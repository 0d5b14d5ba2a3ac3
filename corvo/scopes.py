"""Scopes: the queues that a caller may see and change; and the queues that are the server's own."""

from typing import Final

import msgspec

RESERVED: Final = "_corvo."
"""Queues whose names begin with this prefix are the server's own: they hold its internal jobs."""


def is_reserved(queue: str) -> bool:
    """Whether a queue is the server's own."""
    return queue.startswith(RESERVED)


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queues that a caller may see and change.

    An empty scope has no queue. A scope with every queue says so in its own field, so that a
    missing or forgotten scope grants nothing.
    """

    names: tuple[str, ...] = ()
    """Queue names, and prefixes of queue names with a `*` at the end, as `mail*`."""
    has_everything: bool = False  # whether the scope has every queue; `names` is empty then

    def covers(self, queue: str) -> bool:
        """Whether the scope has a queue."""
        return self.has_everything or any(
            queue.startswith(name[:-1]) if name.endswith("*") else queue == name
            for name in self.names
        )

    def stored(self) -> tuple[str, ...]:
        """The scope as documents and ops store it: see `scope_of_stored`."""
        assert self.has_everything or self.names, "a scope without a queue cannot be stored"
        return self.names


NOTHING: Final = Scope()
EVERYTHING: Final = Scope(has_everything=True)


def scope_of_stored(names: tuple[str, ...]) -> Scope:
    """The scope that a stored list of names stands for. An empty list stands for every queue.

    API keys, bulk operations and ops in the log store scopes as such lists. Each of them is
    converted at one place, where it is read; in memory and in questions only a `Scope` is used.
    """
    return Scope(names) if names else EVERYTHING
