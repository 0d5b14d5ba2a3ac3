"""Prometheus' tool for metrics and rules, of Debian's package `prometheus`."""

import shutil
import subprocess
from typing import Final

import pytest

PROMTOOL: Final = shutil.which("promtool")

needs_promtool: Final = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: metrics and rules are not checked"
)


def promtool(*words: str, text: str = "") -> str:
    """Run promtool on a text or on files; what it prints when it finds a fault, else nothing."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], input=text, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
