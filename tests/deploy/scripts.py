"""Files that are no part of the package: scripts, and what the Dockerfile says."""

import re
import runpy
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def image_variables() -> dict[str, str]:
    """The environment of the image."""
    [block] = re.findall(r"^ENV ((?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return dict(word.split("=", 1) for word in block.replace("\\\n", " ").split())


def script(path: str) -> dict[str, object]:
    """The names of a script, which is not run."""
    return runpy.run_path(str(ROOT / path))
