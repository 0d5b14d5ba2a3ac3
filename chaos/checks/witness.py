"""Stage 1: the event feeds of all nodes are one story.

Events of a shard come once and in order at each node; two nodes have the same events with the same
contents; no listener misses an event that another one has, unless the feed itself declared a gap;
and wherever two nodes say the digest of a shard at an index, it is the same.
"""

from bisect import bisect_right

from chaos.checks.feeds import NUMBER_BITS, WHOLE
from chaos.checks.report import Stage
from chaos.checks.tables import Tables


def check(tables: Tables, stage: Stage) -> None:
    """Compare the feeds."""
    feeding, events = tables.feeding, tables.events
    stage.count("events", feeding.taken)
    stage.count("different events", len(events.key))
    stage.count("segments", len(feeding.segments))
    for node, shard, seq, number in feeding.disordered:
        stage.wrong(
            "M1", f"{node} sent an event twice, or after a later one", (), ((shard, seq, number),)
        )
    for node, shard, seq, number in feeding.unequal:
        stage.wrong(
            "A2", f"{node} sent another event than another node", (), ((shard, seq, number),)
        )
    for node, first, shard, index in feeding.unequal_digests:
        stage.wrong("A3", f"{node} and {first} have different digests of s{shard} at {index}")
    _digests(tables, stage)
    _order(tables, stage)
    for part in feeding.segments:
        rows = tables.rows_of_shard(part.shard)
        begin = bisect_right(events.key, part.start, rows.start, rows.stop)
        end = bisect_right(events.key, part.end, rows.start, rows.stop)
        if end - begin != part.count:
            stage.wrong(
                "M1",
                f"{part.node} followed s{part.shard} from {part.start >> NUMBER_BITS} to "
                f"{part.end >> NUMBER_BITS} and got {part.count} events; others got {end - begin}",
            )


def _digests(tables: Tables, stage: Stage) -> None:
    """Ids without an event have digests, too: compare them with those of events."""
    events = tables.events
    for (shard, index), (digest, node) in tables.feeding.digests.items():
        rows = tables.rows_of_shard(shard)
        row = bisect_right(events.key, index << NUMBER_BITS | WHOLE, rows.start, rows.stop) - 1
        if row < rows.start or events.key[row] >> NUMBER_BITS != index or events.digest[row] < 0:
            continue
        stage.count("digests")
        if events.digest[row] != digest:
            stage.wrong(
                "A3",
                f"{node} has another digest of s{shard} at {index} than the event there",
                (),
                (events.name(row),),
            )


def _order(tables: Tables, stage: Stage) -> None:
    """Events of an entry are numbered from 1 without a gap, and have its time, which never falls.

    Listeners get no events of the queues in which the server keeps bulk operations, so with such
    operations a number can be missing everywhere.
    """
    has_bulk = any(True for _ in tables.small_ops("bulk"))
    events = tables.events
    starts = {
        (part.shard, part.start): part.start & WHOLE != WHOLE for part in tables.feeding.segments
    }
    before_shard, before, before_at = -1, 0, 0
    for row, key in enumerate(events.key):
        shard, at = events.shard[row], events.at[row]
        if shard != before_shard:
            before_shard, before, before_at = shard, 0, at
        is_same = key >> NUMBER_BITS == before >> NUMBER_BITS
        follows = key == before + 1 if is_same else key & WHOLE == 1
        if not follows and not has_bulk and not starts.get((shard, key - 1)):
            stage.wrong("M1", "events of an entry are missing before it", (), (events.name(row),))
        if at < before_at or (is_same and at != before_at):
            stage.wrong(
                "A4",
                f"the time of the shard goes back by {before_at - at} ns",
                (),
                (events.name(row),),
            )
        before, before_at = key, at
