"""The faults of a run, one file for each subject: every module here has `FAULTS`."""

from importlib import import_module
from pkgutil import iter_modules

from chaos.faults.fault import Fault


def all_faults() -> dict[str, Fault]:
    """Every fault by its name."""
    found: list[Fault] = []
    for module in iter_modules(__path__):
        found += getattr(import_module(f"{__name__}.{module.name}"), "FAULTS", ())
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}
