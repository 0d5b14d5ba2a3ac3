"""The checker: reads a history, and says which promises it breaks.

    python -m chaos.checks DIRECTORY

Nine stages, each a module: `sanity` (is this a history that can prove anything), `witness` (the
event feeds of all nodes are one story), `outcomes` (answers and events agree), `realtime` (the log
is in the order that clients saw), `replay` (each event is allowed by the rules), `schedules` (each
due time has its job), `blackbox` (what clients saw, without the feeds), `final` (the end is where
it all leads), `search` (a search without any knowledge agrees). All but the last walk the history a
fixed number of times.
"""

import gc
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from chaos import history
from chaos.checks import (
    blackbox,
    final,
    outcomes,
    realtime,
    replay,
    sanity,
    schedules,
    search,
    witness,
)
from chaos.checks.outcomes import Outcomes
from chaos.checks.report import Report, Stage
from chaos.checks.tables import Tables
from chaos.history import Record
from chaos.model import Model

NO_WITNESS = "the run did not follow the events"


def check(directory: Path) -> Report:
    """Check the history of a folder."""
    return check_records(history.read(directory))


def check_records(records: Iterable[Record]) -> Report:
    """Check a history."""
    report = Report()
    enabled = gc.isenabled()
    gc.disable()  # millions of numbers in lists, and no cycle among them
    try:
        tables = Tables()
        loading = Stage("loading")
        begun = time.perf_counter()
        tables.load(records)
        loading.count("ops", len(tables.calls.n))
        loading.count("events", tables.feeding.taken)
        loading.seconds = time.perf_counter() - begun
        report.stages.append(loading)
        _stages(tables, report)
    finally:
        if enabled:
            gc.enable()
    report.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return report


def _stages(tables: Tables, report: Report) -> None:
    """Run all stages."""
    joined: Outcomes | None = None
    model: Model | None = None
    has_witness = tables.run is None or tables.run.witness

    def run(name: str, stage_check: Callable[[Stage], None], *, needs_witness: bool) -> None:
        stage = Stage(name)
        begun = time.perf_counter()
        if needs_witness and not has_witness:
            stage.skipped = NO_WITNESS
        else:
            stage_check(stage)
        stage.seconds = time.perf_counter() - begun
        report.stages.append(stage)

    def join(stage: Stage) -> None:
        nonlocal joined
        joined = outcomes.check(tables, stage)

    def replayed(stage: Stage) -> None:
        nonlocal model
        assert joined is not None
        replaying = replay.Replay(tables, joined, stage)
        replaying.run()
        if not replaying.is_lenient:
            model = replaying.model

    def real_time(stage: Stage) -> None:
        assert joined is not None
        realtime.check(tables, joined, stage)

    run("sanity", lambda stage: sanity.check(tables, stage), needs_witness=False)
    run("witness", lambda stage: witness.check(tables, stage), needs_witness=True)
    run("outcomes", join, needs_witness=True)
    run("realtime", real_time, needs_witness=True)
    run("replay", replayed, needs_witness=True)
    run("schedules", lambda stage: schedules.check(tables, stage), needs_witness=True)
    run("blackbox", lambda stage: blackbox.check(tables, joined, stage), needs_witness=False)
    run("final", lambda stage: final.check(tables, model, stage), needs_witness=False)
    run("search", lambda stage: search.check(tables, stage), needs_witness=False)
