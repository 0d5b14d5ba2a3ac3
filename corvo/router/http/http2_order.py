"""The order in which the streams of one HTTP/2 connection send: a frame of each, by turns.

Hypercorn asks a tree for it that is made of PRIORITY frames. Such a tree keeps every stream that a
client names, ends the connection by an exception when there are a thousand, and goes through all of
them for each frame that is sent. RFC 9113 has given these priorities up, so they are ignored.
"""

from priority.priority import DeadlockError, DuplicateStreamError, MissingStreamError, PriorityTree


class RoundRobin(PriorityTree):
    """What hypercorn asks of a tree, without one."""

    def __init__(self) -> None:
        self._known: dict[int, None] = {}
        self._ready: dict[int, None] = {}  # in their order

    def insert_stream(
        self,
        stream_id: int,
        depends_on: int | None = None,  # noqa: ARG002
        weight: int = 16,  # noqa: ARG002
        exclusive: bool = False,  # noqa: ARG002
    ) -> None:
        """A stream is open, and has something to send."""
        if stream_id in self._known:
            raise DuplicateStreamError
        self._known[stream_id] = self._ready[stream_id] = None

    def reprioritize(
        self,
        stream_id: int,
        depends_on: int | None = None,
        weight: int = 16,
        exclusive: bool = False,
    ) -> None:
        """Ignore a PRIORITY frame."""

    def remove_stream(self, stream_id: int) -> None:
        """A stream is closed."""
        self.block(stream_id)
        del self._known[stream_id]

    def block(self, stream_id: int) -> None:
        """A stream has nothing to send, or may not."""
        if stream_id not in self._known:
            raise MissingStreamError
        self._ready.pop(stream_id, None)

    def unblock(self, stream_id: int) -> None:
        """It may again."""
        if stream_id not in self._known:
            raise MissingStreamError
        self._ready[stream_id] = None

    def __iter__(self) -> "RoundRobin":
        return self

    def __next__(self) -> int:
        """Whose turn it is."""
        stream_id = next(iter(self._ready), None)
        if stream_id is None:
            raise DeadlockError
        del self._ready[stream_id]
        self._ready[stream_id] = None
        return stream_id
