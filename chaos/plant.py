"""The hunt for planted bugs: each is planted, and a run or a simulator has to find it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chaos.bugs import Bug, Simulated
from chaos.verdict import BROKEN, Verdict

PATIENCE_S: Final = 600.0
"""A bug must be found within this time; runs with further seeds follow until then."""
SEEDS: Final = 400
"""Seeds of a simulator that are tried."""
_ROOT: Final = Path(__file__).parents[1]
_NAME: Final = "planted bugs: `python -m chaos plant --rewrite` writes this"
_TABLE: Final = re.compile(rf"(?<=<!-- {_NAME} -->\n).*?(?=<!-- /planted bugs -->)", re.DOTALL)
_HEAD: Final = "| bug | what is broken | found by | after | seed |\n|---|---|---|---|---|\n"

RunPlanted = Callable[[Bug, int, Path], Verdict]
"""One run of a bug with a seed, in a directory."""


class _Violation(msgspec.Struct, frozen=True):
    rule: str


class _Stage(msgspec.Struct, frozen=True):
    name: str
    violations: list[_Violation] = []


class Result(msgspec.Struct, frozen=True):
    """The result of a hunt."""

    bug: Bug
    by: str
    """What found the bug; empty if nothing did."""
    seconds: float
    seed: int

    @property
    def is_found(self) -> bool:
        """Whether the bug was found."""
        return bool(self.by)


def hunt(bug: Bug, directory: Path, run: RunPlanted) -> Result:
    """Hunt a bug, with one seed after the other."""
    begun = time.monotonic()
    if bug.simulated is not None:
        by, seed = _simulate(bug.simulated)
        return Result(bug, by, time.monotonic() - begun, seed)
    seed = bug.seed
    while True:
        verdict = run(bug, seed, directory / f"{bug.name}-{seed}")
        passed_s = time.monotonic() - begun
        by = found_by(bug, verdict)
        if by or passed_s + bug.seconds > PATIENCE_S:
            return Result(bug, by, passed_s, seed)
        seed += 1


def found_by(bug: Bug, verdict: Verdict) -> str:
    """The stage and the rule that found a bug; empty if none of its rules was broken."""
    if verdict.code != BROKEN:
        return ""
    for raw in verdict.stages:
        stage = msgspec.json.decode(raw, type=_Stage)
        for violation in stage.violations:
            if violation.rule in bug.rules:
                return f"{stage.name} ({violation.rule})"
    return ""


def _simulate(simulated: Simulated) -> tuple[str, int]:
    """Have a simulator hunt a bug of its own: what found it, and the seed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", simulated.simulator, "--bug", simulated.bug),
            *("--hunt", str(SEEDS), "--from", str(simulated.seed)),
        ],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.split()
    if done.returncode == 0 or len(words) != 2:
        return "", simulated.seed
    return f"`{simulated.simulator}`: {simulated.reason}", int(words[0])


def row(result: Result) -> str:
    """The row of the table about one bug."""
    bug = result.bug
    by = result.by or "**not found**"
    return f"| `{bug.name}` | {bug.what} | {by} | {result.seconds:.0f} s | {result.seed} |"


def table(results: Sequence[Result]) -> str:
    """The table of some results."""
    return _HEAD + "".join(f"{row(result)}\n" for result in results)


def rewrite(page: str, results: Sequence[Result], names: Sequence[str]) -> str:
    """A page with the rows of these results; rows of other bugs stay as they are.

    Raises `ValueError` for a page without a place for them.
    """
    place = _TABLE.search(page)
    if place is None:
        raise ValueError("the page has no place for planted bugs")
    rows = {line.split("`")[1]: line for line in place[0].splitlines() if line.startswith("| `")}
    rows |= {result.bug.name: row(result) for result in results}
    kept = _HEAD + "".join(f"{rows[name]}\n" for name in names if name in rows)
    return page[: place.start()] + kept + page[place.end() :]
