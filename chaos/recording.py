"""The recorder of a run: it writes the history, and counts for the live view what was written."""

import time
from collections import Counter, deque
from pathlib import Path
from typing import Final

from chaos import history

_LATENCIES: Final = 2_000
"""The newest answers, of which the view shows percentiles."""
HISTORY: Final = "history.jsonl"


def now_ns() -> int:
    """The time of records: CLOCK_MONOTONIC, which no fault of a run can set."""
    return time.monotonic_ns()


class Recorder:
    """Everything that is written during a run."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self._main = history.Writer(directory / HISTORY)
        self._feeds: dict[str, history.Writer] = {}
        self._number = 0
        self.counts: Final[Counter[tuple[str, str]]] = Counter()
        """Ops by name and type."""
        self.events: Final[Counter[str]] = Counter()
        """Events by node."""
        self.faults: Final[list[history.Fault]] = []
        self.latencies_ns: Final[deque[int]] = deque(maxlen=_LATENCIES)
        self.job_ids: Final[dict[str, None]] = {}
        """Every job that any answer or event has named, in the order of their first mention."""
        self.batch_ids: Final[dict[str, None]] = {}
        self.schedule_ids: Final[dict[str, None]] = {}
        self.phase = ""

    def next_number(self) -> int:
        """A number that no other op of the run has."""
        self._number += 1
        return self._number

    def op(self, op: history.Op) -> None:
        """Write an attempt."""
        if wrong := history.malformed(op):
            raise AssertionError(f"the harness wrote an op that is malformed: {wrong}: {op}")
        self.counts[op.f, op.type] += 1
        if op.t_ret is not None and op.type == "ok" and not op.args.wait_ms:
            self.latencies_ns.append(op.t_ret - op.t_inv)
        for one in op.res.created:
            if one.job_id:
                self.job_ids[one.job_id] = None
        if op.res.batch_id:
            self.batch_ids[op.res.batch_id] = None
        if op.args.schedule is not None:
            self.schedule_ids[op.args.schedule.id] = None
        self._main.write(op)

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self.phase = phase
        self._main.write(history.Phase(now_ns(), phase))
        self.flush()

    def fault(self, fault: history.Fault) -> None:
        """Write a fault that has ended."""
        self.faults.append(fault)
        self._main.write(fault)
        self.flush()

    def event(self, record: history.Event | history.Feed) -> None:
        """Write a line of a node's feed."""
        if record.node not in self._feeds:
            path = self.directory / f"events-{record.node}.jsonl"
            self._feeds[record.node] = history.Writer(path)
        self._feeds[record.node].write(record)
        if isinstance(record, history.Event):
            self.events[record.node] += 1
            if record.job_id:
                self.job_ids[record.job_id] = None

    def write(self, record: history.Record) -> None:
        """Write any other record."""
        self._main.write(record)

    def flush(self) -> None:
        """Hand everything to the system."""
        for writer in (self._main, *self._feeds.values()):
            writer.flush()

    def close(self) -> None:
        """Write the rest."""
        for writer in (self._main, *self._feeds.values()):
            writer.close()
