"""Stage 3: the order of the log agrees with the order in which clients saw things.

Of each shard, ops are walked in the order of their events. If an op returned before an earlier one
in the log was even sent, the log is not the order in which things happened. With stage 4 this is a
proof that the history is linearizable, with the log as the order, and costs one pass. Reads that
name their position take part: a read must see all that had returned before it was sent. The jobs of
a search are those at the position that it names, or later ones.
"""

from array import array
from bisect import bisect_left

from chaos.checks.feeds import NUMBER_BITS, WHOLE
from chaos.checks.outcomes import Outcomes
from chaos.checks.report import Stage
from chaos.checks.tables import OK, Tables


def check(tables: Tables, outcomes: Outcomes, stage: Stage) -> None:
    """Walk the ops of each shard in the order of the log."""
    events, calls, effects = tables.events, tables.calls, outcomes.effects
    for row, sent, call in zip(effects.row, effects.inv, effects.call, strict=True):
        if events.seen[row] < sent:
            stage.wrong(
                "W1",
                "an event was seen before the only calls that can have caused it were sent",
                (calls.n[call],),
                (events.name(row),),
            )
    stage.count("ops in the log", len(effects.row))
    inv, ret, by = effects.inv[:], effects.ret[:], effects.call[:]
    shards = array("h", (events.shard[row] for row in effects.row))
    places = array("q", (2 * row for row in effects.row))
    """Where an op is in the walk; a read comes after all events of its position."""
    for call, _, _ in tables.gets:
        shard = calls.shard[call]
        if calls.type[call] != OK or shard < 0 or call in tables.weak or not tables.start:
            continue
        stage.count("reads")
        rows = tables.rows_of_shard(shard)
        after = bisect_left(events.key, (calls.seq[call] + 1) << NUMBER_BITS, rows.start, rows.stop)
        shards.append(shard)
        places.append(2 * after - 1)
        inv.append(calls.inv[call])
        ret.append(calls.ret[call])
        by.append(call)
    order = sorted(range(len(places)), key=places.__getitem__)
    latest: dict[int, tuple[int, int]] = {}
    """By shard: when the latest of the ops so far was sent, and which one it is."""
    for at in order:
        shard = shards[at]
        sent, other = latest.get(shard, (0, -1))
        if ret[at] < sent:
            stage.wrong(
                "W2",
                f"s{shard}: op {calls.n[by[at]]} returned {(sent - ret[at]) // 1000} us before op "
                f"{calls.n[other]} was sent, and is after it in the log",
                (calls.n[other], calls.n[by[at]]),
            )
        if inv[at] > sent:
            latest[shard] = (inv[at], by[at])
    _searches(tables, stage)


def _searches(tables: Tables, stage: Stage) -> None:
    """M5: a job that a search found is as it was at the position of the answer, or later."""
    for call, op in tables.small_ops("search"):
        if op.type != "ok" or op.res.is_behind:
            continue
        for found in op.res.rows:
            job = tables.jobs.find(found.job_id) or 0
            states = _states_since(tables, job, op.res.as_of)
            if not states:
                continue
            stage.count("rows of searches")
            if found.state not in states:
                stage.wrong(
                    "M5",
                    f"job {found.job_id} was found as {found.state} at a position at which it was "
                    f"{states[0]}",
                    (tables.calls.n[call],),
                )


def _states_since(tables: Tables, job: int, as_of: dict[str, int]) -> list[str]:
    """The states of a job at a position and later, if all of its events are known."""
    events, rows = tables.events, list(tables.events_of.of(job))
    shards = {events.shard[row] for row in rows}
    if len(shards) != 1:
        return []
    (shard,) = shards
    end = (as_of.get(str(shard), -1) << NUMBER_BITS) | WHOLE
    is_followed = any(
        part.shard == shard and part.start < events.key[rows[0]] and end <= part.end
        for part in tables.feeding.segments
    )
    before = [row for row in rows if events.key[row] <= end]
    if not is_followed or not before:
        return []
    return [tables.feeding.states.texts[events.state[row]] for row in rows[len(before) - 1 :]]
