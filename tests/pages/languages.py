"""The languages of the examples: which are installed, and how their programs are built."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.pages import ROOT

EXAMPLES: Final = ROOT / "examples"
_GO_CACHE: Final = ROOT / ".venv" / "go-build"
"""What Go has compiled. It is kept: the first build takes 20 s, later ones one second."""
GO: Final = {
    "CGO_ENABLED": "0",  # no C compiler is needed
    "GOCACHE": str(_GO_CACHE),
    "GOFLAGS": "-buildvcs=false",
    "GOPATH": str(_GO_CACHE / "path"),
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
}
_OLDEST: Final = {"node": (("--version",), (18, 0)), "go": (("version",), (1, 19))}


@cache
def missing(language: str) -> str:
    """Why a language cannot be used here; empty if it can."""
    if language not in _OLDEST:
        return ""
    words, oldest = _OLDEST[language]
    wanted = f"{language} {oldest[0]}.{oldest[1]} or newer is needed"
    program = shutil.which(language)
    if program is None:
        return f"{wanted}, and none is installed"
    printed = subprocess.run(
        [program, *words], check=True, capture_output=True, text=True, env={**os.environ, **GO}
    ).stdout
    found = re.search(r"(\d+)\.(\d+)", printed)
    assert found, printed
    return "" if (int(found[1]), int(found[2])) >= oldest else f"{wanted}, not {printed.strip()}"


def build_go(source: Path, folder: Path) -> None:
    """Build all programs of a module into a folder."""
    subprocess.run(
        ["go", "build", "-o", f"{folder}/", "./..."],
        cwd=source,
        env={**os.environ, **GO},
        check=True,
    )
