"""How a run may end, and the exit code that tells it."""

import enum


class Outcome(enum.IntEnum):
    """The exit codes of `python -m tests.sim`."""

    OK = 0
    CORRECTNESS = 1
    """Something happened that must never happen."""
    LIVENESS = 2
    """Everything was well again, and the group made no progress."""
    CRASH = 3
    """The code under test raised something."""
    NONDETERMINISM = 4
    """The same seed gave two different runs."""


class Violation(Exception):
    """A rule was broken; `rule` is its short name."""

    outcome = Outcome.CORRECTNESS

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Stuck(Violation):
    """No progress although nothing stands in its way."""

    outcome = Outcome.LIVENESS
