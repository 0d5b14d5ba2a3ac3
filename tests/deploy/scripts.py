"""Scripts that are no part of the package, loaded by their paths."""

import runpy
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def script(path: str) -> dict[str, object]:
    """The names of a script, which is not run."""
    return runpy.run_path(str(ROOT / path))
