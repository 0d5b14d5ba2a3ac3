"""Planted bugs: one-line mutations of the product that the simulation must find.

A bug is applied to the source while a fresh process imports it (`--bug NAME`); the product itself
has no switches. A bug that is no longer found, or whose text is no longer there, fails the tests.
Any bug that is found by other means is to be planted afterwards: the list is in `planted`.

This module must not import the product: what is to be mutated must not be imported before it is.
"""

from typing import Final, NamedTuple

from chaos import planting
from chaos.planting import Change
from tests.sim.planted import BUGS


class Bug(NamedTuple):
    """One mutation."""

    name: str
    module: str
    before: str
    after: str
    seed: int
    """The first run that finds it, as the table of `--bugs` says."""
    package: str = "corvo.raft"
    """What `module` is in."""

    @property
    def change(self) -> Change:
        """What is replaced in the module as it is imported."""
        return Change(f"{self.package}.{self.module}", self.before, self.after)


BY_NAME: Final = {row[0]: Bug(*row) for row in BUGS}


def plant(bug: Bug) -> None:
    """From now on the product is imported with this bug."""
    planting.plant([bug.change])


def mutated(bug: Bug, source: str) -> str:
    """The source with the bug in it."""
    return planting.changed(source, bug.change)


def source_of(bug: Bug) -> str:
    """What the bug is planted in."""
    return planting.source_of(bug.change.module)
