"""Topics of an event stream: the parts that a dashboard chooses, and their frames.

A topic tells how something is, and not each of its changes; so what was missed in between is not
missed. Frames have no event name: the type is in the JSON, for whoever reads only messages.
"""

from typing import Final

import msgspec

from corvo.protocol.ops.base import ID_BYTES_MAX
from corvo.protocol.questions import SummaryQueue
from corvo.router.feeds.events import NAMES_MAX
from corvo.router.http.messages import bad_field, encode_json
from corvo.router.summary import SummaryBody

WATCH_S: Final = 0.25
TAIL_EVENTS_MAX: Final = 200
"""Within a second."""
WATCHED_MAX: Final = 100
_WATCH: Final = "watch:"
_TAIL: Final = frozenset({"events", "tail"})


class Topics(msgspec.Struct, frozen=True):
    """What somebody asked for."""

    summary: bool = False
    tail: bool = False
    watched: tuple[str, ...] = ()
    """Ids of jobs and bulks."""


def read_topics(query: dict[str, str]) -> Topics | None:
    """The topics that a query names; None when it has none of it. Raises `Problem`."""
    if "topics" not in query:
        return None
    names = [name for name in map(str.strip, query["topics"].split(",")) if name]
    watched = [name.removeprefix(_WATCH) for name in names if name.startswith(_WATCH)]
    for name in names:
        if name != "summary" and name not in _TAIL and not name.startswith(_WATCH):
            raise bad_field(
                "topics",
                f"unknown topic {name[:80]!r}; expected summary, events (or tail) and watch:ID, "
                "with commas between them",
            )
    if not names:
        raise bad_field("topics", "topics: expected summary, events or watch:ID")
    if len(names) > NAMES_MAX or len(watched) > WATCHED_MAX:
        raise bad_field("topics", f"topics: expected at most {WATCHED_MAX} of watch:ID")
    if any(not 0 < len(name) <= ID_BYTES_MAX or not name.isprintable() for name in watched):
        raise bad_field("topics", "topics: expected the id of a job or bulk operation after watch:")
    return Topics(
        summary="summary" in names,
        tail=not _TAIL.isdisjoint(names),
        watched=tuple(dict.fromkeys(watched)),
    )


class SummaryFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="summary"):
    """Everything at a glance: whole at first, then what changed."""

    whole: bool
    """Whether `queues` are all there are."""
    summary: SummaryBody
    """Its queues are those that are other than they were."""
    removed: list[str] = []
    """Queues that are not there any more."""


class WatchFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="watch"):
    """How a thing is now."""

    id: str
    thing: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """As `GET` answers it; left out when it is not there, or not for this key."""
    gone: bool = False


class DroppedFrame(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """There were more events than a client is shown in a second."""

    count: int
    """Events that were left out since the last such frame."""


class AwayFrame(msgspec.Struct, frozen=True, kw_only=True, tag="away"):
    """A topic that nothing can be told of now."""

    topic: str
    error: str


class Changes:
    """What a client has been told of the summary."""

    def __init__(self) -> None:
        self._told: dict[str, SummaryQueue] | None = None

    def next(self, summary: SummaryBody) -> SummaryFrame:
        """What it is to be told next."""
        queues = {queue.name: queue for queue in summary.queues}
        told, self._told = self._told, queues
        if told is None:
            return SummaryFrame(whole=True, summary=summary)
        changed = [queue for name, queue in queues.items() if told.get(name) != queue]
        removed = [name for name in told if name not in queues]
        rest = msgspec.structs.replace(summary, queues=changed)
        return SummaryFrame(whole=False, summary=rest, removed=removed)


class Tail:
    """Lets so many events through in a second, and counts the others."""

    def __init__(self) -> None:
        self._second = 0
        self._left = TAIL_EVENTS_MAX
        self.dropped = 0

    def lets(self, now_s: float) -> bool:
        """Whether one more may be told."""
        if int(now_s) != self._second:
            self._second = int(now_s)
            self._left = TAIL_EVENTS_MAX
        if self._left == 0:
            self.dropped += 1
            return False
        self._left -= 1
        return True

    def take_dropped(self, now_s: float) -> bytes:
        """What a client is told of those that were left out, once the second is over."""
        if not self.dropped or int(now_s) == self._second:
            return b""
        count, self.dropped = self.dropped, 0
        return encode_json(DroppedFrame(count=count))
