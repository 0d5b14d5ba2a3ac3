"""Planted bugs: texts of the product that are replaced while a fresh process imports its modules.

The product has no switches for this. Nothing but the standard library is imported here, because the
product must not be imported before a bug is planted.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).parents[1]


class Change(NamedTuple):
    """One replaced text of one module."""

    module: str
    before: str
    after: str


def source_of(module: str) -> str:
    """The source of a module of this repository."""
    return _ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def changed(source: str, change: Change) -> str:
    """The source with the change in it; the text must be there once."""
    found = source.count(change.before)
    assert found == 1, f"{change.module} has {found} times: {change.before!r}"
    return source.replace(change.before, change.after)


def plant(changes: Iterable[Change]) -> None:
    """From now on the modules are imported with these changes."""
    by_module: dict[str, list[Change]] = {}
    for change in changes:
        assert change.module not in sys.modules, f"too late: {change.module} is imported"
        by_module.setdefault(change.module, []).append(change)
    sys.meta_path.insert(0, _Finder(by_module))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        source = source_of(fullname)
        for change in self._changes:
            source = changed(source, change)
        return compile(source, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, by_module: dict[str, list[Change]]) -> None:
        self._by_module = by_module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._by_module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._by_module[fullname])
        return spec
