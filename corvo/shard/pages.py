"""Pages of the feed for a follower: from its position to changes, or to a reset.

A place in a log is an index and the digest that the state had there. The two together tell a
follower's own log from any other: of a replica that was restored, wiped, or went another way. Two
places have to be in it: the one that the follower has come to, and the one as of which it got
documents, when that is further on.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.kv.feed import TEXT_MAX, Begin, Page, Walk
from corvo.protocol import wire
from corvo.shard.machine import Machine
from corvo.shard.replica import Replica


def begin_page(replica: Replica, request: wire.Follow) -> Page | wire.Reset | None:
    """The changes after a place, or a reset if they are not known; None while there is none."""
    machine = replica.machine
    feed = machine.tx.feed
    furthest = max(request.after, request.through)
    if furthest > machine.applied and not _is_beyond_all(replica, furthest):
        return None  # this replica lags
    is_ours = feed.digest_at(request.after) == request.digest
    if is_ours and request.through > request.after:
        is_ours = feed.digest_at(request.through) == request.through_digest
    if not is_ours:
        return _reset(machine, request, feed.begin)
    if request.after == machine.applied:
        return None
    return Page(
        machine.store,
        feed,
        after=request.after,
        digest=request.digest,
        after_key=request.after_key,
        keys_max=max(1, request.keys_max),
        wants_documents=request.wants_documents,
        wants_events=request.wants_events,
    )


def _reset(machine: Machine, request: wire.Follow, begin: Begin) -> wire.Reset:
    meta = machine.tx.meta
    return wire.Reset(request.id, meta.applied, meta.digest, meta.now_ns, begin.index, begin.digest)


def _is_beyond_all(replica: Replica, index: int) -> bool:
    """Whether the log has no such place. Only a leader knows."""
    return replica.node.is_leader and index > replica.node.statistics().last_index


def end_page(machine: Machine, request: wire.Follow, page: Page) -> wire.Changes | wire.Reset:
    """The answer to a follower, from a finished page."""
    if page.gap is not None:
        return _reset(machine, request, page.gap)
    return wire.Changes(
        request.id,
        page.index,
        page.digest,
        page.now_ns,
        machine.applied,
        tuple(page.pairs.items()),
        tuple(
            wire.Happenings(index, now_ns, _shortened(events))
            for index, now_ns, events in page.events
        ),
        page.more,
        machine.digest,
    )


def seek(machine: Machine, request: wire.Seek) -> wire.Sought:
    """The position before all entries of a time and later."""
    feed, now_ns = machine.tx.feed, machine.tx.meta.now_ns
    index = machine.applied if now_ns < request.since_ns else feed.index_before(request.since_ns)
    whole_ns = 0
    if 0 < index == feed.begin.index and now_ns >= request.since_ns:
        # Of what was before the feed's begin, no time is known.
        whole_ns = 1 + (feed.time_of(index + 1) if index < feed.index else now_ns)
    digest = feed.digest_at(index)
    assert digest is not None, "it is of the feed"
    return wire.Sought(request.id, index, digest, now_ns, whole_ns)


def must_wait(replica: Replica, request: wire.Scan) -> bool:
    """Whether this replica lags behind what a follower knows: its documents would be too old."""
    least = request.least
    return least > replica.machine.applied and not _is_beyond_all(replica, least)


def begin_walk(machine: Machine, request: wire.Scan) -> Walk:
    """A page of all documents."""
    return Walk(machine.store, after=request.after, keys_max=max(1, request.keys_max))


def end_walk(machine: Machine, request: wire.Scan, walk: Walk) -> wire.Scanned:
    """The answer to a scan, from a finished walk."""
    pairs = tuple(walk.pairs)
    return wire.Scanned(request.id, pairs, walk.last, machine.applied, machine.digest)


def _shortened(events: msgspec.Raw) -> tuple[wire.Happening, ...]:
    """The events of an entry, with their texts for people cut short.

    Each event of a job has such texts, which may have 16 KiB, and a listener keeps thousands of
    events.
    """
    return tuple(
        event
        if len(event.kind) <= TEXT_MAX and len(event.by) <= TEXT_MAX and len(event.why) <= TEXT_MAX
        else _cut(event)
        for event in _decode_events(events)
    )


def _cut(event: wire.Happening) -> wire.Happening:
    return replace(
        event, kind=event.kind[:TEXT_MAX], by=event.by[:TEXT_MAX], why=event.why[:TEXT_MAX]
    )


_decode_events: Final = msgspec.msgpack.Decoder(tuple[wire.Happening, ...]).decode
