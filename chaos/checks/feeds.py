"""The event feeds of all nodes, merged while they are read, and compared.

Each node's feed is in order, so a merge needs no sorting: an event is either later than all before
it, or is looked up where it must be. What one node has and another lacks is found by counting: a
listener that followed a shard from one position to another (a *segment*) must have as many events
as there are between the two.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from chaos.history import Event, Feed

NUMBER_BITS: Final = 20
"""Of the number of an event within its entry: `key` is seq and number in one integer."""
WHOLE: Final = (1 << NUMBER_BITS) - 1

WORDS_KEPT: Final = ("priority", "moved", "schedule.skipped")
"""Events whose `why` is kept: it is how a change of priority or queue is known."""


class Names:
    """Texts as numbers; 0 is the empty text."""

    def __init__(self) -> None:
        self.texts = [""]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        """The number of a text, given at its first mention."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def find(self, text: str) -> int | None:
        """The number of a text, if it was mentioned."""
        return self._numbers.get(text)

    def __len__(self) -> int:
        return len(self.texts)


class Events:
    """One row for each event: by shard, and in the order of the shard's log."""

    def __init__(self) -> None:
        self.shard = array("h")
        self.key = array("Q")
        self.at = array("q")
        self.seen = array("q")
        """When the first listener read it."""
        self.job = array("i")
        self.type = array("b")
        self.state = array("b")
        self.attempt = array("i")
        self.queue = array("i")
        self.by = array("i")
        self.why = array("i")
        self.digest = array("q")
        """Of the state after the entry, on its last event; -1: unknown."""
        self.all = (
            self.shard, self.key, self.at, self.seen, self.job, self.type, self.state,
            self.attempt, self.queue, self.by, self.why, self.digest,
        )  # fmt: skip

    def name(self, row: int) -> tuple[int, int, int]:
        """Shard, seq and number."""
        key = self.key[row]
        return self.shard[row], key >> NUMBER_BITS, key & WHOLE


class Segment:
    """A part of a shard's events that one listener followed without a gap."""

    __slots__ = ("count", "end", "last", "node", "shard", "start")

    def __init__(self, node: str, shard: int, start: int) -> None:
        self.node, self.shard, self.start = node, shard, start
        self.end = self.last = start
        self.count = 0


def position(message_id: str, shard: int) -> tuple[int, int, int] | None:
    """What an id says of a shard: index, digest, and events of the next entry."""
    name = f"s{shard}="
    start = 0 if message_id.startswith(name) else message_id.find("," + name) + 1
    if not start and not message_id.startswith(name):
        return None
    end = message_id.find(",", start)
    part = message_id[start + len(name) : end if end >= 0 else None]
    index, _, rest = part.partition("-")
    digest, _, more = rest.partition(".")
    if not (index.isdecimal() and digest):
        return None
    return int(index), int(digest, 16), int(more or 0)


def positions(message_id: str) -> Iterator[tuple[int, int]]:
    """Of each shard in an id, the key up to which the listener has all events."""
    for part in message_id.split(","):
        name, equals, _ = part.partition("=")
        if equals and name.startswith("s") and name[1:].isdecimal():
            shard = int(name[1:])
            found = position(message_id, shard)
            if found is not None:
                index, _, more = found
                yield shard, (index << NUMBER_BITS | WHOLE) + (more and more + 1)


def digest_at(message_id: str, shard: int, seq: int) -> int:
    """Of the id of an event: the digest after its entry; -1 if more events of the entry follow."""
    name = f"s{shard}={seq}-"
    start = message_id.find(name)
    if start < 0:
        return -1
    start += len(name)
    end = message_id.find(",", start)
    digest = message_id[start : end if end >= 0 else None]
    return -1 if "." in digest else int(digest, 16)


class Feeding:
    """Takes the feeds of all nodes."""

    def __init__(self, jobs: Names, queues: Names, clients: Names) -> None:
        self.jobs, self.queues, self.clients = jobs, queues, clients
        self.types, self.states, self.words = Names(), Names(), Names()
        self.shards: dict[int, Events] = {}
        self.late: dict[int, list[tuple[int, ...]]] = {}
        """Events that belong before others which another node had first."""
        self.late_keys: dict[int, dict[int, int]] = {}
        self.segments: list[Segment] = []
        self.open: dict[tuple[str, int], Segment] = {}
        self.last_id: dict[str, str] = {}
        self.unequal: list[tuple[str, int, int, int]] = []
        """Node, shard, seq and number of each event that differs from another node's."""
        self.disordered: list[tuple[str, int, int, int]] = []
        """Of each event that came twice, or after a later one."""
        self.digests: dict[tuple[int, int], tuple[int, str]] = {}
        """Shard and index to the digest there, and the first node that said so: of ids without
        an event."""
        self.unequal_digests: list[tuple[str, str, int, int]] = []
        self.taken = 0

    def event(self, event: Event) -> None:
        """Take an event."""
        self.taken += 1
        shard, seq = event.shard, event.seq
        key = seq << NUMBER_BITS | event.number
        segment = self.open.get((event.node, shard))
        if segment is None:
            segment = self._begin(event.node, shard, key - 1)
        if key <= segment.end:
            self.disordered.append((event.node, shard, seq, event.number))
            return
        segment.count += 1
        digest = digest_at(event.id, shard, seq)
        segment.end = key if digest < 0 else key | WHOLE
        self.last_id[event.node] = event.id
        rows = self.shards.get(shard)
        if rows is None:
            rows = self.shards[shard] = Events()
        if not rows.key or key > rows.key[-1]:
            for column, value in zip(rows.all, self._row(event, key, digest), strict=True):
                column.append(value)
            return
        at = bisect_left(rows.key, key)
        if rows.key[at] != key:
            self._late(event, self._row(event, key, digest))
            return
        if (
            rows.at[at] != event.at_ns
            or self.jobs.texts[rows.job[at]] != event.job_id
            or self.types.texts[rows.type[at]] != event.type
            or self.states.texts[rows.state[at]] != event.state
            or rows.attempt[at] != event.attempt
            or self.queues.texts[rows.queue[at]] != event.queue
            or self.clients.texts[rows.by[at]] != event.by
            or (rows.why[at] and self.words.texts[rows.why[at]] != event.why)
        ):
            self.unequal.append((event.node, shard, seq, event.number))
        rows.seen[at] = min(rows.seen[at], event.t)
        if digest >= 0:
            if rows.digest[at] < 0:
                rows.digest[at] = digest
            elif rows.digest[at] != digest:
                self.unequal_digests.append((event.node, "another node", shard, seq))

    def _row(self, event: Event, key: int, digest: int) -> tuple[int, ...]:
        """The columns of an event."""
        why = self.words.number(event.why) if event.type in WORDS_KEPT else 0
        return (
            event.shard, key, event.at_ns, event.t, self.jobs.number(event.job_id),
            self.types.number(event.type), self.states.number(event.state), event.attempt,
            self.queues.number(event.queue), self.clients.number(event.by), why, digest,
        )  # fmt: skip

    def _late(self, event: Event, row: tuple[int, ...]) -> None:
        known = self.late_keys.setdefault(row[0], {})
        late = self.late.setdefault(row[0], [])
        if row[1] in known:
            self._compare(event, late[known[row[1]]], row)
            return
        known[row[1]] = len(late)
        late.append(row)

    def _compare(self, event: Event, known: tuple[int, ...], row: tuple[int, ...]) -> None:
        """Compare all fields but the time of reading and the digest, which is reported as one."""
        if known[:3] != row[:3] or known[4:11] != row[4:11]:
            self.unequal.append((event.node, event.shard, event.seq, event.number))
        if known[11] >= 0 and row[11] >= 0 and known[11] != row[11]:
            self.unequal_digests.append((event.node, "another node", event.shard, event.seq))

    def feed(self, feed: Feed) -> None:
        """Take what happened to a connection."""
        if feed.what == "end":
            return
        if feed.what == "resume" and feed.id == self.last_id.get(feed.node):
            return
        if feed.what in ("start", "resume"):
            for name in [name for name in self.open if name[0] == feed.node]:
                del self.open[name]
        for shard in feed.shards if feed.what == "gone" else ():
            self.open.pop((feed.node, shard), None)
        self.last_id[feed.node] = feed.id
        for shard, key in positions(feed.id):
            segment = self.open.get((feed.node, shard))
            if segment is None:
                self._begin(feed.node, shard, key)
            else:
                segment.end = max(segment.end, key)
            found = position(feed.id, shard)
            if found is not None and not found[2]:
                self._digest(feed.node, shard, found[0], found[1])

    def _digest(self, node: str, shard: int, index: int, digest: int) -> None:
        known, first = self.digests.setdefault((shard, index), (digest, node))
        if known != digest:
            self.unequal_digests.append((node, first, shard, index))

    def _begin(self, node: str, shard: int, key: int) -> Segment:
        segment = self.open[node, shard] = Segment(node, shard, key)
        self.segments.append(segment)
        return segment

    def merged(self) -> tuple[Events, dict[int, int]]:
        """All events by shard and in order, and the first row of each shard."""
        merged, start = Events(), {}
        for shard in sorted(self.shards):
            start[shard] = len(merged.key)
            rows = self.shards.pop(shard)
            late = self.late.pop(shard, [])
            if not late:
                for column, part in zip(merged.all, rows.all, strict=True):
                    column.extend(part)
                continue
            known = list(zip(*rows.all, strict=True))
            for row in sorted([*known, *late], key=lambda row: row[1]):
                for column, value in zip(merged.all, row, strict=True):
                    column.append(value)
        return merged, start
