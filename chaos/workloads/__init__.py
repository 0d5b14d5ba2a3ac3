"""The clients of a run, one file for each kind: every module here has a `WORKLOAD`."""

from importlib import import_module
from pkgutil import iter_modules

from chaos.workloads.scene import Workload


def all_workloads() -> dict[str, Workload]:
    """Every workload by its name."""
    found = [
        getattr(import_module(f"{__name__}.{module.name}"), "WORKLOAD", None)
        for module in iter_modules(__path__)
    ]
    made = [each for each in found if isinstance(each, Workload)]
    return {each.name: each for each in sorted(made, key=lambda each: each.name)}
