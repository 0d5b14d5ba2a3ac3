"""A real Prometheus, and its tool: of Debian's package, which `make test` installs if it may."""

import shutil
import subprocess
from typing import Final

import pytest

PROMETHEUS: Final = shutil.which("prometheus")
PROMTOOL: Final = shutil.which("promtool")

needs_promtool: Final = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: rules are not evaluated"
)
needs_prometheus: Final = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None,
    reason="prometheus is not installed: alerts and dashboards are not evaluated",
)


def promtool(*words: str) -> str:
    """Run promtool; what it says when it finds a fault, and nothing else."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
