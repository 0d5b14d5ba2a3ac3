"""What the stages say: what they looked at, and what is wrong."""

from dataclasses import dataclass, field
from typing import Final

KEPT_MAX: Final = 50
"""Violations that a stage keeps with their texts. One error of a server is often thousands of
records, and the first fifty say as much."""


@dataclass(frozen=True)
class Violation:
    """One promise that the history breaks."""

    rule: str
    """Its id, as docs/chaos and the pages of the server know it: D1, L2, O3."""
    text: str
    ops: tuple[int, ...] = ()
    """Numbers (`n`) of the ops that show it."""
    events: tuple[tuple[int, int, int], ...] = ()
    """Shard, `seq` and `number` of the events that show it."""


@dataclass
class Stage:
    """The verdict of one stage."""

    name: str
    looked: dict[str, int] = field(default_factory=dict)
    """What was looked at, and how much of it."""
    violations: list[Violation] = field(default_factory=list)
    total: int = 0
    """Violations, including those that were not kept."""
    skipped: str = ""
    """Why the stage had nothing to look at, if the history says so itself."""
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether the stage found nothing wrong."""
        return self.total == 0

    def count(self, what: str, number: int = 1) -> None:
        """Add to what was looked at."""
        self.looked[what] = self.looked.get(what, 0) + number

    def wrong(
        self,
        rule: str,
        text: str,
        ops: tuple[int, ...] = (),
        events: tuple[tuple[int, int, int], ...] = (),
    ) -> None:
        """Report a violation."""
        self.total += 1
        if len(self.violations) < KEPT_MAX:
            self.violations.append(Violation(rule, text, ops, events))


@dataclass
class Report:
    """The verdict of all stages."""

    stages: list[Stage] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether no stage found anything wrong."""
        return all(stage.is_ok for stage in self.stages)

    def first_wrong(self) -> str:
        """Name of the first stage that found something; empty if none did."""
        return next((stage.name for stage in self.stages if not stage.is_ok), "")

    def lines(self) -> list[str]:
        """The report as text."""
        lines = []
        for stage in self.stages:
            looked = ", ".join(f"{number:,} {what}" for what, number in stage.looked.items())
            verdict = "ok" if stage.is_ok else f"{stage.total:,} VIOLATIONS"
            if stage.skipped:
                verdict = f"not checked: {stage.skipped}"
            lines.append(f"{stage.name:10} {verdict} ({looked}) in {stage.seconds:.1f} s")
            for wrong in stage.violations:
                lines.append(f"  {wrong.rule}: {wrong.text}")
                if wrong.ops:
                    lines.append("      ops " + ", ".join(map(str, wrong.ops)))
                if wrong.events:
                    shown = ", ".join(f"s{s}:{q}.{k}" for s, q, k in wrong.events)
                    lines.append(f"      events {shown}")
            if stage.total > len(stage.violations):
                lines.append(f"  and {stage.total - len(stage.violations):,} more")
        return lines
