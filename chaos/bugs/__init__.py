"""Planted bugs: what is changed in the product, and the run that must find it.

Each TOML file here has the bugs of one subject. The settings of a bug are those that show it soon.
"""

from pathlib import Path
from typing import Final

import msgspec

from chaos.planting import Change

_FOLDER: Final = Path(__file__).parent


class Simulated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bug of a simulator, where a run of real processes cannot find it soon."""

    simulator: str
    """The module that is run: `tests.sim`, `tests.sim.shards` or `tests.sim.clusters`."""
    bug: str
    """The name of the bug there."""
    seed: int
    """The first seed that is tried."""
    reason: str
    """Why a run of real processes does not find it."""


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bug, with the run that must find it."""

    name: str
    what: str
    changes: tuple[Change, ...] = ()
    rules: tuple[str, ...] = ()
    """Rules of the checker of which at least one must be broken."""
    faults: str = "none"
    workloads: str = "all"
    seconds: float = 10.0
    seed: int = 1
    nodes: int = 3
    rate: float = 40.0
    settings: dict[str, str] = {}
    simulated: Simulated | None = None
    """Instead of `changes`, `rules` and all after them."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    bug: list[Bug]


def all_bugs() -> dict[str, Bug]:
    """Every bug by its name."""
    files = [msgspec.toml.decode(path.read_bytes(), type=_File) for path in _FOLDER.glob("*.toml")]
    found = [bug for file in files for bug in file.bug]
    return {bug.name: bug for bug in sorted(found, key=lambda bug: bug.name)}
