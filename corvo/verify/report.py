"""What a verification has checked and found, as text and as JSON."""

import shlex
from collections.abc import Sequence
from typing import Final

import msgspec

from corvo.client_commands.tables import counted, grouped, plain, table
from corvo.errors import StoreFull

FINDINGS_MAX: Final = 20
"""Findings of one kind that a part names; the others are counted."""
REPLACE: Final = (
    "replace the node: `corvo cluster remove NODE --reason damage --force` at another node, and"
    " start this one with --join and an empty data directory"
)
"""The advice for a replica that other replicas can replace."""
WHOLE: Final = "whole"
INCOMPLETE: Final = "incomplete"
DAMAGED: Final = "damaged"


def insist_on_room(error: Exception) -> None:
    """Raise `StoreFull` for an error of a full scratch directory, which is no damage."""
    if isinstance(error, StoreFull) or "No space left" in str(error):
        raise StoreFull(str(error)) from error


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is not as it must be."""

    where: str
    """A file, or a key in a state."""
    problem: str
    action: str = ""
    """What an operator does next."""


class Part(msgspec.Struct):
    """One line of a report."""

    name: str
    checked: list[str] = []
    """What was checked, and how many."""
    damage: list[Finding] = []
    unchecked: list[Finding] = []
    """What could not be checked, and why."""
    remarks: list[Finding] = []
    """What is unusual, and does no harm."""
    damage_count: int = 0
    remark_count: int = 0

    def count(self, number: int, one: str, several: str = "") -> None:
        """Note how many things were checked."""
        self.checked.append(counted(number, one, several))

    def wrong(self, where: str, problem: str, action: str) -> None:
        """Note damage."""
        self.damage_count += 1
        if len(self.damage) < FINDINGS_MAX:
            self.damage.append(Finding(where, problem, action))

    def skipped(self, where: str, why: str, action: str = "") -> None:
        """Note what could not be checked."""
        if len(self.unchecked) < FINDINGS_MAX:
            self.unchecked.append(Finding(where, why, action))

    def remark(self, where: str, what: str, action: str = "") -> None:
        """Note what does no harm."""
        self.remark_count += 1
        if len(self.remarks) < FINDINGS_MAX:
            self.remarks.append(Finding(where, what, action))


class Report(msgspec.Struct):
    """All of it."""

    verified: str
    """The directory, or the address."""
    status: str = WHOLE
    parts: list[Part] = []
    not_visible: list[str] = []
    """What such a check cannot see."""
    seconds: float = 0.0

    def part(self, name: str) -> Part:
        """Begin with the next part."""
        found = Part(name)
        self.parts.append(found)
        return found

    def settle(self) -> None:
        """Everything was checked: say what came out."""
        self.status = WHOLE
        if any(part.unchecked for part in self.parts):
            self.status = INCOMPLETE
        if any(part.damage_count for part in self.parts):
            self.status = DAMAGED

    @property
    def damage_count(self) -> int:
        """Number of findings of damage."""
        return sum(part.damage_count for part in self.parts)


def as_text(report: Report) -> str:
    """The report for people."""
    rows = [(part.name, ", ".join(part.checked), _result(part)) for part in report.parts]
    text = table(("PART", "CHECKED", "RESULT"), rows)
    for part in report.parts:
        text += _findings("damaged", part.name, part.damage, part.damage_count)
        text += _findings("not checked", part.name, part.unchecked, len(part.unchecked))
        text += _findings("note", part.name, part.remarks, part.remark_count)
    if report.not_visible:
        text += "\n" + "".join(f"{plain(line)}\n" for line in report.not_visible)
    return f"{text}\n{_verdict(report)}\n"


def _result(part: Part) -> str:
    if part.damage_count:
        return counted(part.damage_count, "damage", "damages")
    if part.unchecked:
        return "not checked in full"
    return f"whole, {counted(part.remark_count, 'note')}" if part.remark_count else "whole"


def _findings(kind: str, name: str, findings: Sequence[Finding], count: int) -> str:
    lines = []
    before = ""
    for finding in findings:
        lines.append(f"\n{kind}: {plain(name)}: {plain(finding.where)}: {plain(finding.problem)}\n")
        if finding.action and finding.action != before:
            lines.append(f"  {plain(finding.action)}\n")
        before = finding.action
    if count > len(findings):
        lines.append(f"\n… and {grouped(count - len(findings))} more of {plain(name)}\n")
    return "".join(lines)


def _verdict(report: Report) -> str:
    where = plain(shlex.quote(report.verified))
    took = f"in {report.seconds:.1f} s"
    if report.status == WHOLE:
        return f"{where} is whole; checked {took}"
    if report.status == INCOMPLETE:
        return f"no damage was found in {where}, but not all of it was checked; {took}"
    count = counted(report.damage_count, "finding")
    return f"{where} is damaged: {count}, {took}"
