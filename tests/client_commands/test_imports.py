"""The modules that a command imports: none of the server, and few."""

import subprocess
import sys

import pytest

from corvo.command_table import COMMANDS
from tests.cli_reference import verbs_of
from tests.client_commands.running import ROOT

CLIENT = sorted(name for name in COMMANDS if "client_commands" in COMMANDS[name].place)
FORBIDDEN = {
    "asyncio",
    "corvo.config",
    "corvo.model",
    "corvo.node",
    "corvo.protocol",
    "corvo.router",
    "corvo.shard",
    "h11",
    "hypercorn",
    "plyvel",
    "quart",
    "rich",
    "sqlite3",
    "trio",
}
MODULES_MAX = 220
"""Of the standard library, most of them for `http.client` and TLS."""


def imported(*words: str) -> set[str]:
    script = (
        "import sys; from corvo.cli import main\n"
        f"try: main({list(words)!r})\nexcept SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {*done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("name", CLIENT)
def test_a_command_imports_none_of_the_server(name: str) -> None:
    verbs = [each.split()[1:] for each, _ in verbs_of(name)]

    loaded = imported(name, *next(iter(verbs), []), "--help")

    assert COMMANDS[name].place.partition(":")[0] in loaded
    assert not FORBIDDEN & loaded
    assert len(loaded) < MODULES_MAX


def test_the_list_of_commands_imports_no_command() -> None:
    loaded = imported("--help")

    assert not {name for name in loaded if name.startswith("corvo.client")}
    assert not {"argparse", "msgspec", "http.client"} & loaded
