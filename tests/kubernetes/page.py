"""docs/kubernetes.md as a new operator types it: each command, and what it prints."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kubernetes.machine import Machine
from tests.support.pages import (
    ROOT,
    Shell,
    Step,
    blocks,
    general,
    is_as_printed,
    shell_in,
    steps_of,
)

PAGE: Final = ROOT / "docs" / "kubernetes.md"
PATIENCE_S: Final = 900.0
"""For a command: pods are replaced one by one."""


async def follow(machine: Machine, directory: Path, tell: Callable[[str], None]) -> list[str]:
    """Type the page; what is printed otherwise than the page says.

    As an operator would, it stops at the first command that fails.
    """
    wrong: list[str] = []
    (directory / "helm").symlink_to(ROOT / "helm")
    environment = {**machine.environment, "CORVO_OUTPUT": "table", "COLUMNS": "200"}
    environment["PATH"] = f"{directory / 'bin'}:{environment['PATH']}"
    async with shell_in(directory, **environment) as shell:
        await shell.run("set -o pipefail")
        for block in blocks(PAGE.read_text()):
            if block.file:
                (directory / block.file).write_text(block.text)
            elif block.language == "console" and not block.note.startswith("not run: "):
                steps = list(steps_of(block))
                for step in steps:
                    tell(f"$ {step.command}")
                    code = block.code if step is steps[-1] else 0
                    if not await _type(shell, step, code, wrong, tell):
                        return wrong
    return wrong


async def _type(
    shell: Shell, step: Step, expected: int, wrong: list[str], tell: Callable[[str], None]
) -> bool:
    """One command; whether it ends as the page says."""
    code, output = await shell.run(f"{{ {step.command}\n}} 2>&1 </dev/null", patience_s=PATIENCE_S)
    output = output.rstrip()  # helm ends with an empty line
    tell(output)
    if code != expected or not is_as_printed(output, step.output):
        text = f"$ {step.command}\n{general(output)}\nexit code {code}\nThe page has:\n"
        wrong.append(text + general(step.output))
        tell("WRONG")
    return code == expected
