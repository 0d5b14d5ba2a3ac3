"""Stage 3: the order of the log agrees with the order in which clients saw things.

Of each shard, ops are walked in the order of their events. If an op returned before an earlier one
in the log was even sent, the log is not the order in which things happened. With stage 4 this is a
proof that the history is linearizable, with the log as the order, and costs one pass. Reads that
name their position take part: a read must see all that had returned before it was sent.
"""

from chaos.checks.feeds import NUMBER_BITS
from chaos.checks.outcomes import Outcomes
from chaos.checks.report import Stage
from chaos.checks.tables import NEVER, OK, Tables


def check(tables: Tables, outcomes: Outcomes, stage: Stage) -> None:
    """Walk the ops of each shard in the order of the log."""
    events, calls = tables.events, tables.calls
    walk: list[tuple[int, int, int, int, int]] = []
    """Shard, key, earliest and latest time, call; a read comes after all of its position."""
    for row, inv, ret, call in outcomes.effects:
        walk.append((events.shard[row], events.key[row], inv, ret, call))
        if events.seen[row] < inv:
            stage.wrong(
                "W1",
                "an event was seen before the only calls that can have caused it were sent",
                (calls.n[call],),
                (events.name(row),),
            )
    stage.count("ops in the log", len(walk))
    reads = 0
    for call, _, _ in tables.gets:
        if calls.type[call] == OK and calls.shard[call] >= 0 and call not in tables.weak:
            key = (calls.seq[call] + 1) << NUMBER_BITS
            walk.append((calls.shard[call], key, calls.inv[call], calls.ret[call], call))
            reads += 1
    stage.count("reads", reads)
    walk.sort()
    shard, latest, by = -1, 0, -1
    for at, key, inv, ret, call in walk:
        if at != shard:
            shard, latest, by = at, 0, -1
        if ret < latest and ret != NEVER:
            stage.wrong(
                "W2",
                f"s{at}: op {calls.n[call]} returned {(latest - ret) // 1000} us before op "
                f"{calls.n[by]} was sent, and is after it in the log (entry {key >> NUMBER_BITS})",
                (calls.n[by], calls.n[call]),
            )
        if inv > latest:
            latest, by = inv, call
