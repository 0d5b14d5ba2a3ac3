"""docs/cluster.md as an operator types it: each command as it stands there, on other ports."""

import re
from pathlib import Path
from typing import Final

import pytest
import trio

from corvo.client_commands.cluster import VERBS
from corvo.client_commands.options import parser_of
from corvo.commands import _FLAGS
from corvo.config import KEYS
from tests.cluster.nodes import PATIENCE_S
from tests.support.links import on_sockets
from tests.support.pages import (
    Shell,
    Step,
    bound,
    general,
    is_as_printed,
    on_ports,
    ready,
    shell_in,
    steps,
)
from tests.support.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "cluster.md").read_text()
LOOKS: Final = re.compile(r"corvo cluster (?:status|nodes|node|events)\b(?!.*--wait)")
"""Commands that only look: they are repeated until the change that was made before is visible."""


async def follow(shell: Shell, step: Step, ports: dict[str, str]) -> None:
    """Run a command of the page, and compare its output."""
    command, printed = on_ports(step.command, ports), on_ports(step.output, ports)
    code, output = await shell.run(command)
    with trio.move_on_after(PATIENCE_S):
        # A removal is refused while a shard answers too late to be counted.
        while is_repeated(command, code) and not is_as_printed(output, printed):
            code, output = await shell.run(command)
    assert is_as_printed(output, printed), (
        f"$ {command}\n{output}\n{general(output)}\nThe page has:\n{general(printed)}"
    )
    assert code == (10 if "status: degraded" in printed else 0), command
    if bound(command):
        # As long as a person needs to type the next command: nodes get their numbers in order.
        await ready(bound(command))


def is_repeated(command: str, code: int) -> bool:
    """Whether a command may be typed again."""
    return bool(LOOKS.match(command)) or (code == 5 and "corvo cluster remove" in command)


@on_sockets
async def test_every_command_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    found = list(steps(PAGE))
    named = sorted({*re.findall(r"127\.0\.0\.1:(\d+)", "".join(map("\n".join, found)))})
    given = [str(port) for port in free_ports(len(named))]
    ports = dict(zip(named, given, strict=True))

    async with shell_in(tmp_path) as shell:
        for step in found:
            await follow(shell, step, ports)

    assert sum("corvo server" in step.command for step in found) == 8
    assert len(found) > 20


@pytest.mark.parametrize(
    ("output", "is_same"),
    [
        ("1  a  active  0-3  0-3  127.0.0.1:9401  0.1.0.dev7\n", True),
        ("1  a  active  -    1,3  127.0.0.1:9401  2.10.0\n", True),
        ("1  b  active  0    0-3  127.0.0.1:9401  0.1.0\n", False),
        ("1  a  draining  0  0-3  127.0.0.1:9401  0.1.0\n", False),
        ("1  a  active  0    0-3  127.0.0.1:9402  0.1.0\n", False),
        ("", False),
    ],
)
def test_only_what_differs_from_run_to_run_may_differ(output: str, is_same: bool) -> None:
    printed = "1     a     active  0      0-3       127.0.0.1:9401  0.1.0\n"

    assert is_as_printed(output, printed) == is_same


def test_dots_stand_for_the_rest_of_a_line_and_no_more() -> None:

    assert is_as_printed('{"job_id":"s01_job_01AB","a":1}\n', '{"job_id":"s02_job_9",...}\n')
    assert not is_as_printed("one\ntwo\n", "o...\n")


def test_every_setting_and_flag_of_the_page_exists() -> None:
    named = {*re.findall(r"`(cluster\.[a-z_]+)`", PAGE)} - {"cluster.json"}
    flags = {*re.findall(r"(--[a-z][a-z-]*)", PAGE)} - {"--bootstrap", "--json"}

    assert named <= KEYS.keys()
    for verb in VERBS.values():
        flags -= parser_of("cluster", verb)._option_string_actions.keys()
    assert flags - _FLAGS.keys() == {"--raft-bind", "--raft-advertise"}
