"""What all tests share: how hard hypothesis tries, and a plain word about what was not covered."""

import os
import signal

import pytest
from hypothesis import settings

# No deadline: a machine that is busy with something else is not a bug.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=300, deadline=None, derandomize=True, database=None)
settings.register_profile("deep", max_examples=10_000, deadline=None)
# `pytest --hypothesis-profile=deep` overrules this.
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# The background jobs of a shell ignore SIGINT, and those of `nohup` SIGHUP. So would all their
# children: commands under test would go on for ever. With handlers here, they have the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of each skipped test what it would have proved: a gap is not a pass."""
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        terminalreporter.write_line(
            f"not covered: {report.nodeid}: {reason.removeprefix('Skipped: ')}"
        )
