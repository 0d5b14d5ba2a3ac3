"""Events of a cluster from the observations of several routers, each change once.

    for event in merged([history_of_node_1, history_of_node_2]): ...

Two observations with the same type and subject are of one change

- if their spans overlap. An election has its term as the span, a change of the map the versions
  before and after it, and a change of a group the indexes of the log between two looks at it. A
  router that was cut off for a while has a wide span; the narrowest ones count;
- without a span, if two routers made them within `TOGETHER_NS`: a lost connection has no number.
  What one router observes twice happened twice.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from corvo.protocol.routers import ClusterEvent

TOGETHER_NS: Final = 15 * 1_000_000_000
"""Routers notice one lost connection within this time: after some seconds without an answer. Clocks
of nodes differ, too."""

_Subject: TypeAlias = tuple[str, int | None, int | None, int | None]


class _Observation(NamedTuple):
    event: ClusterEvent
    source: int  # the history that it is from


def merged(histories: Iterable[Sequence[ClusterEvent]]) -> list[ClusterEvent]:
    """The events of all histories in the order of their numbers, each change once."""
    spanned: dict[_Subject, list[ClusterEvent]] = {}
    timed: dict[_Subject, list[_Observation]] = {}
    for source, events in enumerate(histories):
        for event in events:
            subject = (event.type, event.shard, event.node, event.term)
            if event.span is not None:
                spanned.setdefault(subject, []).append(event)
            else:
                timed.setdefault(subject, []).append(_Observation(event, source))
    found = [event for events in spanned.values() for event in _narrowest(events)]
    found += (event for observed in timed.values() for event in _first(observed))
    return sorted(found, key=lambda event: event.seq)


def _narrowest(events: list[ClusterEvent]) -> Iterator[ClusterEvent]:
    """Events of one subject whose spans do not overlap, the narrowest and earliest first."""
    taken: list[tuple[int, int]] = []  # they do not overlap, so both of their ends are in order
    for event in sorted(events, key=lambda event: (_width(event), event.seq)):
        assert event.span is not None, "only events with a span"
        begin, end = event.span
        place = bisect_left(taken, event.span)
        is_free = (place == 0 or taken[place - 1][1] <= begin) and (
            place == len(taken) or end <= taken[place][0]
        )
        if is_free:
            insort(taken, event.span)
            yield event


def _width(event: ClusterEvent) -> int:
    begin, end = event.span or (0, 0)
    return end - begin


class _Group(NamedTuple):
    """Observations of one change."""

    began_ns: int
    sources: set[int]


def _first(observed: list[_Observation]) -> Iterator[ClusterEvent]:
    """The first observation of each change of one subject."""
    groups: deque[_Group] = deque()  # to which later observations may belong
    for event, source in sorted(observed, key=lambda each: (each.event.at_ns, each.event.seq)):
        while groups and event.at_ns - groups[0].began_ns > TOGETHER_NS:
            groups.popleft()
        for group in groups:
            if source not in group.sources:
                group.sources.add(source)
                break
        else:
            groups.append(_Group(event.at_ns, {source}))
            yield event
