"""Stage 0: whether the history is one that can prove anything.

A run without operations, or with faults that silently did nothing, must not pass as a good run.
"""

from collections import Counter
from itertools import pairwise
from typing import Final

from chaos.checks.report import Stage
from chaos.checks.tables import OK, Tables
from chaos.history import FinalDone, FinalReplica

MINIMA = {"ok": 1}
"""What every history needs, if its run names nothing else."""
DIGESTS_SINCE: Final = 2
"""The first format whose final reading has the digest of every replica."""


def check(tables: Tables, stage: Stage) -> None:
    """Look at the form of the history, and whether it has enough."""
    calls = tables.calls
    acknowledged = sum(1 for kind in calls.type if kind == OK)
    stage.count("ops", len(calls.n))
    stage.count("acknowledged", acknowledged)
    stage.count("faults", len(tables.faults))
    stage.count("events", tables.feeding.taken)
    if tables.runs != 1:
        stage.wrong("S1", f"a history has one run record, and this one has {tables.runs}")
    for n, why in tables.malformed:
        stage.wrong("S2", f"op {n} is no record that can be checked: {why}", (n,))
    _unique(tables, stage)
    _replicas(tables, stage)
    if not any(isinstance(record, FinalDone) for record in tables.final):
        stage.wrong("S6", "the history has no complete final reading: nothing shows what was lost")
    verified = 0
    for fault in tables.faults:
        if not fault.verified:
            stage.count("faults that do not count")
        elif fault.proof:
            verified += 1
        else:
            stage.wrong(
                "S4", f"fault {fault.n} ({fault.name} on {fault.target}) counts without a proof"
            )
    have = {"ok": acknowledged, "faults": verified, "events": tables.feeding.taken}
    for code, kind in zip(calls.f, calls.type, strict=True):
        if kind == OK:
            name = tables.fs.texts[code]
            have[name] = have.get(name, 0) + 1
    minima = {**MINIMA, **(tables.run.minima if tables.run is not None else {})}
    if tables.run is not None and tables.run.witness:
        minima.setdefault("events", 1)
    for name, least in minima.items():
        if have.get(name, 0) < least:
            stage.wrong("S5", f"the run has {have.get(name, 0)} of {name!r}, and needs {least}")


def _replicas(tables: Tables, stage: Stage) -> None:
    """Each replica of each shard has a digest that can be compared with the others'."""
    run = tables.run
    if run is None or run.format < DIGESTS_SINCE:
        return
    rows = [record for record in tables.final if isinstance(record, FinalReplica)]
    seen = Counter((row.shard, row.index) for row in rows if row.digest)
    for shard in range(run.shards):
        of = [row for row in rows if row.shard == shard]
        compared = sum(1 for row in of if row.digest and seen[shard, row.index] > 1)
        stage.count("replicas compared", compared)
        if compared < len(of) > 1 or (not of and len(run.nodes) > 1):
            stage.wrong(
                "S7", f"{compared} of the {len(of)} replicas of s{shard} were compared at the end"
            )


def _unique(tables: Tables, stage: Stage) -> None:
    """Numbers of ops are unique, and so are op ids but for repeated tries of one call."""
    calls = tables.calls
    numbers = sorted(calls.n)
    for before, after in pairwise(numbers):
        if before == after:
            stage.wrong("S2", f"two ops have the number {after}", (after,))
    for group in tables.tries.values():
        tries = sorted((calls.attempt[call], call) for call in group)
        for (number, one), (other_number, other) in pairwise(tries):
            if number == other_number or calls.f[one] != calls.f[other]:
                numbers_of_both = (calls.n[one], calls.n[other])
                stage.wrong("S2", "one op id is used for two calls", numbers_of_both)
