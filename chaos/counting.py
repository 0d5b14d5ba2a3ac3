"""The counts of runs: one small file beside each run, and a table of many for the docs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chaos.report import Story

SUMMARY: Final = "summary.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "reliability.md"
_COUNTS: Final = re.compile(
    r"(?<=<!-- counts: `python -m chaos count --rewrite DIR…` writes this -->\n)"
    r".*?(?=<!-- /counts -->)",
    re.DOTALL,
)
_NS: Final = 1e9


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one run."""

    seed: int
    version: str
    nodes: int
    shards: int
    seconds: float
    code: int
    """The exit code: 0 if no rule is broken, 1 if one is, 2 if the run does not count."""
    attempts: dict[str, int]
    """By outcome: `ok`, `fail`, `info`."""
    operations: int = 0
    """Acknowledged operations: one for each job of an answer, and at least one."""
    faults: dict[str, int]
    """By name, those that were made."""
    verified: dict[str, int]
    """By name, those that certainly happened."""
    events: int = 0
    bug: str = ""
    """The bug that was planted in the nodes."""


def summary_of(story: Story, code: int) -> Summary:
    """The counts of a run."""
    attempts: Counter[str] = Counter()
    for (_, kind, _), count in story.codes.items():
        attempts[kind] += count
    run = story.run
    return Summary(
        seed=0 if run is None else run.seed,
        version="" if run is None else run.version,
        nodes=0 if run is None else len(run.nodes),
        shards=0 if run is None else run.shards,
        seconds=round((story.end - story.start) / _NS, 1),
        code=code,
        attempts=dict(attempts),
        operations=story.operations,
        faults=dict(Counter(fault.name for fault in story.faults)),
        verified=dict(Counter(fault.name for fault in story.faults if fault.verified)),
        events=story.events,
        bug="" if run is None else run.bug,
    )


def read(directories: Sequence[Path]) -> list[Summary]:
    """The counts of runs: of each directory, and of those in it that are runs.

    Runs with a planted bug say nothing of the product.
    """
    places = [path for each in directories for path in (each, *sorted(each.glob("*/")))]
    found = [place / SUMMARY for place in places if (place / SUMMARY).exists()]
    counts = [msgspec.json.decode(path.read_bytes(), type=Summary) for path in found]
    return [each for each in counts if not each.bug]


def table(runs: Sequence[Summary], what: Mapping[str, str]) -> str:
    """The counts of runs as Markdown; `what` has what each fault does."""
    counted = [run for run in runs if run.code != 2]
    verified: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    for run in counted:
        verified.update(run.verified)
        attempts.update(run.attempts)
    hours = sum(run.seconds for run in counted) / 3_600
    broken = sum(run.code == 1 for run in counted)
    outcomes = ", ".join(f"{attempts[kind]:,}" for kind in ("ok", "fail", "info"))
    lines = [
        "| all runs | |",
        "|---|---|",
        f"| runs, and those that did not count | {len(counted):,}, {len(runs) - len(counted):,} |",
        f"| hours | {hours:.1f} |",
        f"| verified faults | {verified.total():,} |",
        f"| acknowledged operations | {sum(run.operations for run in counted):,} |",
        f"| requests: acknowledged, rejected, unknown | {outcomes} |",
        f"| events, of all nodes together | {sum(run.events for run in counted):,} |",
        f"| runs in which a rule was broken | {broken:,} |",
        "",
        "| fault | what it does | verified |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {what[name]} | {verified[name]:,} |" for name in sorted(what)]
    return "\n".join(lines) + "\n"


def rewrite(page: str, counts: str) -> str:
    """A page with these counts. Raises `ValueError` for a page without a place for them."""
    made, found = _COUNTS.subn(lambda _: counts, page)
    if not found:
        raise ValueError(f"{PAGE} has no place for counts")
    return made
