"""Planted bugs: one-line mutations of the product that the simulation must find.

A bug is applied to the source while a fresh process imports it (`--bug NAME`); the product itself
has no switches. A bug that is no longer found, or whose text is no longer there, fails the tests.
Any bug that is found by other means is to be planted afterwards: the list is in `planted`.

This module must not import the product: what is to be mutated must not be imported before it is.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

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
    def fullname(self) -> str:
        """The module as it is imported."""
        return f"{self.package}.{self.module}"


BY_NAME: Final = {row[0]: Bug(*row) for row in BUGS}


def plant(bug: Bug) -> None:
    """From now on the product is imported with this bug."""
    assert bug.fullname not in sys.modules, "too late: the product is imported"
    sys.meta_path.insert(0, _Finder(bug))


def mutated(bug: Bug, source: str) -> str:
    """The source with the bug in it."""
    found = source.count(bug.before)
    assert found == 1, f"{bug.name}: its text stands {found} times in {bug.module}"
    return source.replace(bug.before, bug.after)


def source_of(bug: Bug) -> str:
    """What the bug is planted in."""
    root = Path(__file__).parents[2]
    return (root / f"{bug.fullname.replace('.', '/')}.py").read_text(encoding="utf-8")


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, bug: Bug) -> None:
        super().__init__(fullname, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self._bug, source_of(self._bug)), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._bug.fullname:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._bug)
        return spec
