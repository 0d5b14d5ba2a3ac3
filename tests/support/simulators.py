"""What the tests of every simulator do with it: its command line, and its runs by their seeds."""

import os
import subprocess
import sys
from pathlib import Path

from tests.sim.bugs import Bug
from tests.sim.campaign import RAFT, Kind, line_of, run
from tests.sim.failures import Outcome

ROOT = Path(__file__).parents[2]
OF_A_STALE_TEXT = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""What is raised by a planted text that calls what the product no longer has: any run finds it."""


class Simulator:
    """The simulator of a kind of run."""

    def __init__(self, kind: Kind = RAFT) -> None:
        self.kind = kind

    def command(self, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
        """Run it with these arguments."""
        return subprocess.run(
            [sys.executable, "-m", self.kind.command, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )

    def failures(self, seeds: list[int]) -> list[str]:
        """The runs of these seeds that break a rule."""
        ended = [run(seed, kind=self.kind) for seed in seeds]
        return [
            f"{line_of(one.seed, kind=self.kind)}  # {one.outcome.name} {one.detail}"
            for one in ended
            if one.outcome is not Outcome.OK
        ]

    def found_seeds(self) -> list[int]:
        """The seeds that failed once."""
        lines = self.kind.found.read_text(encoding="utf-8").splitlines()
        return [int(line.split()[0], 0) for line in lines if line and not line.startswith("#")]

    def has_found(self, bug: Bug, *, budget: int) -> bool:
        """Whether a planted bug is found within some seeds, by one that is well without it."""
        hunt = self.command("--bug", bug.name, "--hunt", f"{budget}", "--from", f"{bug.seed}")
        assert hunt.returncode in {Outcome.CORRECTNESS, Outcome.LIVENESS, Outcome.CRASH}, hunt
        seed, found_as = hunt.stdout.split()
        assert found_as not in OF_A_STALE_TEXT, f"{bug.name} no longer fits the changed code"
        return self.failures([int(seed)]) == []
