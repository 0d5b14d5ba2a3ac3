"""The verdict of a run: the checker reads its history, and the artefacts are written beside it."""

from pathlib import Path
from typing import Final

import msgspec

from chaos import counting, report
from chaos.checks import check
from chaos.checks.report import Report

VERDICT: Final = "verdict.json"
PAGE: Final = "report.html"
WELL: Final = 0
BROKEN: Final = 1
UNCOUNTED: Final = 2
"""The exit codes: no rule is broken, a rule is broken, the run proves nothing."""
_SANITY: Final = "sanity"
_FINAL: Final = "final"


class Verdict(msgspec.Struct, frozen=True):
    """The content of `verdict.json`."""

    code: int
    why: str
    """Why the run does not count, or the first stage that found something; empty if all is well."""
    stages: list[msgspec.Raw] = []


def read_verdict(directory: Path) -> Verdict:
    """The verdict of an earlier run."""
    return msgspec.json.decode((directory / VERDICT).read_bytes(), type=Verdict)


def code_of(found: Report, *, is_whole: bool = True) -> int:
    """The exit code of a report of the checker; `is_whole`: the run came to its end."""
    if not is_whole:
        # The end was not read. What is wrong in all before it is wrong all the same.
        wrong = [stage.name for stage in found.stages if not stage.is_ok]
        return BROKEN if set(wrong) - {_SANITY, _FINAL} else UNCOUNTED
    if found.is_ok:
        return WELL
    # A history that is too small or broken proves nothing, with or without other errors.
    return UNCOUNTED if found.first_wrong() == _SANITY else BROKEN


def judge(directory: Path, uncounted: str = "") -> Verdict:
    """Check a history, and write `verdict.json` and `report.html`.

    `uncounted` is the reason why the run did not come to its end, if it did not. Then it does not
    count, unless a rule was broken before.
    """
    found = check(directory)
    code = code_of(found, is_whole=not uncounted)
    stages = [msgspec.Raw(msgspec.json.encode(stage)) for stage in found.stages]
    verdict = Verdict(code, uncounted or found.first_wrong(), stages)
    (directory / VERDICT).write_bytes(msgspec.json.format(msgspec.json.encode(verdict)))
    lines = [f"the run did not come to its end: {uncounted}"] if uncounted else []
    lines += found.lines()
    for line in lines:
        print(line)
    story = report.gather(directory)
    (directory / PAGE).write_text(report.html(story, lines))
    counts = counting.summary_of(story, code)
    encoded = msgspec.json.format(msgspec.json.encode(counts))
    (directory / counting.SUMMARY).write_bytes(encoded)
    return verdict
