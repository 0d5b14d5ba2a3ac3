"""Stage 8: a search for an order, on small parts of the history and without the events.

The sweeps of `blackbox` know which pairs are wrong; a search knows nothing but a queue, and asks
whether any order of the calls explains all answers (Wing and Gong). It is exponential, so it gets
the first calls of some queues: every beginning of a linearizable history is linearizable, with the
calls that were under way at its end as ones that may or may not have happened. If it disagrees with
the other stages, one of the two is wrong.
"""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from chaos.checks.report import Stage
from chaos.checks.tables import DONE, INFO, NEVER, OK, UNKNOWN, Tables

QUEUES: Final = 40
CALLS: Final = 60
NODES_MAX: Final = 30_000
"""Steps of one search; a part that needs more stays undecided."""


class Call(NamedTuple):
    """One call about a queue, with its effect."""

    inv: int
    ret: int
    """NEVER: it may have had no effect."""
    puts: tuple[tuple[int, int], ...]
    """Priority and job of each job that it enqueues, in order."""
    takes: tuple[int, ...]
    """Jobs that it gets, in order."""
    is_empty: bool
    """It got no job, and must have found none."""
    steals: int
    """At most so many jobs that it may have got without an answer."""
    name: int


class BudgetError(Exception):
    """The search took too many steps."""


Waiting = tuple[tuple[int, int, int], ...]
"""Jobs that wait: priority, place, job; the first one first."""


def has_order(calls: list[Call], nodes_max: int = NODES_MAX) -> bool:
    """Whether the calls can have happened one after the other, each between its two times."""
    order = sorted(calls)
    number = len(order)
    must = sum(1 << at for at, call in enumerate(order) if call.ret != NEVER)
    seen: set[tuple[int, Waiting]] = set()
    stack: list[tuple[int, int, Waiting]] = [(0, 0, ())]
    while stack:
        mask, place, waiting = stack.pop()
        if mask & must == must:
            return True
        if (mask, waiting) in seen:
            continue
        seen.add((mask, waiting))
        if len(seen) > nodes_max:
            raise BudgetError
        until = min((c.ret for at, c in enumerate(order) if not mask >> at & 1), default=NEVER)
        for at in reversed(range(number)):
            call = order[at]
            if mask >> at & 1 or call.inv > until:
                continue
            stack.extend(
                (mask | 1 << at, place + len(call.puts), after)
                for after in effects(call, waiting, place)
            )
    return False


def effects(call: Call, waiting: Waiting, place: int) -> list[Waiting]:
    """What the queue can be after a call; nothing if the call cannot happen now."""
    if call.is_empty:
        return [] if waiting else [waiting]
    if call.puts:
        added = [(priority, place + at, job) for at, (priority, job) in enumerate(call.puts)]
        return [tuple(sorted([*waiting, *added]))]
    if call.steals:
        return [waiting[taken:] for taken in range(1, min(call.steals, len(waiting)) + 1)]
    heads = tuple(job for _, _, job in waiting[: len(call.takes)])
    return [waiting[len(call.takes) :]] if heads == call.takes else []


def parts(tables: Tables, dice: Random) -> list[tuple[str, list[Call]]]:
    """The first calls of some queues whose jobs only wait and are taken."""
    enqueued, got, calls = tables.enqueued, tables.deliveries, tables.calls
    by_queue: dict[str, list[Call]] = {}
    bad: dict[str, int] = {}
    """Queue to the first time of a call that the search does not know."""

    def spoil(queue: str, time: int) -> None:
        bad[queue] = min(bad.get(queue, NEVER), time)

    puts: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for row, job in enumerate(enqueued.job):
        spec, call = tables.specs[enqueued.spec[row]], enqueued.call[row]
        plain = not (
            spec.delay_ms or spec.scheduled_at_ns or spec.depends_on or spec.expire_after_ms
        )
        if enqueued.how[row] == DONE and plain and calls.op[call] not in tables.tries:
            puts.setdefault((call, spec.queue), []).append((spec.priority, job))
        elif enqueued.how[row] in (DONE, UNKNOWN):
            spoil(spec.queue, calls.inv[call])
    for (call, queue), jobs in puts.items():
        ret = calls.ret[call]
        by_queue.setdefault(queue, []).append(
            Call(calls.inv[call], ret, tuple(jobs), (), is_empty=False, steals=0, name=call)
        )
    takes: dict[tuple[int, str], list[int]] = {}
    first: dict[int, int] = {}
    sent = {(queue, job) for (_, queue), jobs in puts.items() for _, job in jobs}
    for row, job in enumerate(got.job):
        queue = tables.queues.texts[got.queue[row]]
        if (queue, job) not in sent:
            spoil(queue, 0)  # made by the server at a time that no call has: a step, a schedule
        takes.setdefault((got.call[row], tables.queues.texts[got.queue[row]]), []).append(job)
        if first.setdefault(job, got.call[row]) != got.call[row]:
            spoil(tables.queues.texts[got.queue[row]], calls.inv[got.call[row]])
    for (call, queue), taken in takes.items():
        by_queue.setdefault(queue, []).append(
            Call(
                calls.inv[call],
                calls.ret[call],
                (),
                tuple(taken),
                is_empty=False,
                steals=0,
                name=call,
            )
        )
    for call, (queues, _, _, count) in tables.fetches.items():
        for queue in (tables.queues.texts[number] for number in queues):
            if calls.type[call] == INFO:
                steals = max(count, 1)
                by_queue.setdefault(queue, []).append(
                    Call(calls.inv[call], NEVER, (), (), is_empty=False, steals=steals, name=call)
                )
            elif calls.type[call] == OK and len(queues) == 1 and is_calm(tables, call):
                by_queue.setdefault(queue, []).append(
                    Call(
                        calls.inv[call], calls.ret[call], (), (), is_empty=True, steals=0, name=call
                    )
                )
    spoil_others(tables, spoil)
    names = sorted(by_queue)
    dice.shuffle(names)
    return [(name, beginning(by_queue[name], bad.get(name, NEVER))) for name in names[:QUEUES]]


def is_calm(tables: Tables, call: int) -> bool:
    """Whether no leader that was replaced can have answered a call."""
    begin, end = tables.calls.inv[call], tables.calls.ret[call]
    return tables.calm_since(begin) == begin and tables.calm_since(end) == end


def spoil_others(tables: Tables, spoil: Callable[[str, int], None]) -> None:
    """Calls about jobs can put them back, and calls about a queue can stop it."""
    items, calls = tables.items, tables.calls
    plain = {tables.fs.find("ack"), tables.fs.find("heartbeat")}
    for row, f in enumerate(items.f):
        if f not in plain:
            spec = tables.spec_of(items.job[row])
            if spec is not None:
                spoil(spec.queue, calls.inv[items.call[row]])
    for call, op in zip(tables.small_calls, tables.small, strict=True):
        if op.args.queue:
            spoil(op.args.queue, calls.inv[call])
        for item in op.args.items if op.f == "bulk" else ():
            spec = tables.spec_of(tables.jobs.number(item.job_id))
            if spec is not None:
                spoil(spec.queue, calls.inv[call])
    for queue in tables.queues.texts if tables.has_wide_bulk else tables.made_queues:
        spoil(queue, 0)
    shortest = min(tables.deliveries.lease_ms, default=0)
    for row, call in enumerate(tables.deliveries.call):
        lease = min(tables.deliveries.lease_ms[row], shortest)
        spoil(
            tables.queues.texts[tables.deliveries.queue[row]],
            calls.inv[call] + lease * 900_000,
        )


def beginning(calls: list[Call], until: int) -> list[Call]:
    """The first calls, before a time; those that were under way then may not have happened."""
    order = sorted(calls)[:CALLS]
    if len(calls) > CALLS:
        until = min(until, order[-1].inv)
    kept = []
    for call in order:
        if call.inv >= until:
            continue
        is_open = call.ret >= until
        if is_open and call.is_empty:
            continue
        kept.append(call._replace(ret=NEVER) if is_open else call)
    return kept


def check(tables: Tables, stage: Stage) -> None:
    """Search for an order in some parts."""
    if tables.run is not None and not tables.run.is_fresh:
        stage.skipped = "the queues were not empty at the beginning"
        return
    seed = tables.run.seed if tables.run is not None else 0
    for queue, calls in parts(tables, Random(seed)):
        if not calls:
            continue
        stage.count("parts")
        stage.count("calls", len(calls))
        try:
            if not has_order(calls):
                stage.wrong(
                    "V1",
                    f"no order explains the first {len(calls)} calls about queue {queue}",
                    tuple(tables.calls.n[call.name] for call in calls[:20]),
                )
        except BudgetError:
            stage.count("undecided")
