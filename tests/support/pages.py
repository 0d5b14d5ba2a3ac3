"""A page of the documentation as a session: its commands, typed into a shell, and their output.

A block of the language `console` has commands after `$ `, each with its output. A block of `sh` is
typed as a whole; a block of `text` after it is its output. A comment on the line before a block
says what is special:

- `<!-- file: NAME -->`: the block is a file in the directory of the shell
- `<!-- another terminal -->`: the command runs beside the others, until the page ends
- `<!-- exit code N -->`: of the last command
- `<!-- not run: REASON -->`: the command is not tried
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tests.cluster.nodes import PATIENCE_S
from tests.node.http import Client, Lost

ROOT: Final = Path(__file__).parents[2]
_MARK: Final = "=== the command has ended with"
_LOOK_S: Final = 0.1

PLACEHOLDERS: Final = (
    (r"\b\d+\.\d+\.\d+(?:\.dev\d+)?(?=\s|$)", "VERSION"),
    (r"\bs\d+_(job|batch|bulk)_\w+", r"ID OF A \1"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
    (r"(?<=\()[\dhms]+ ago(?=\))", "AGE"),
    # Leaders change, and with them the terms.
    (r"(?m)^(\d+ +[\w-]+ +(?:active|unreachable) +)[\d,-]+ +[\d,-]+", r"\1LEADS REPLICAS"),
    (r"(?m)^(\d+ +)(?:healthy|degraded) +\d+(?=  )", r"\1STATUS TERM"),
    (r"(?<=  )(?:leader|follower(?:, \d+ behind)?|unreachable|-)(?=  |$)", "ROLE"),
    (r"its \d replicas", "its N replicas"),
    (r"\bnode \d+ \(", "node N ("),  # nodes that join at the same time
    (r"  +", " "),
)
"""What may differ between the page and a run: versions, ids, times, and which node leads a shard or
has a replica of it."""


class Step(NamedTuple):
    """A command of a page, and its output there."""

    command: str
    output: str


class Block(NamedTuple):
    """A fenced block of a page."""

    note: str
    """The comment on the line before it."""
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file that it is; empty for others."""
        return self.note.removeprefix("file: ") if self.note.startswith("file: ") else ""

    @property
    def is_beside(self) -> bool:
        """Whether its command runs beside the others."""
        return self.note == "another terminal"

    @property
    def code(self) -> int:
        """The exit code of its last command."""
        return int(self.note.removeprefix("exit code ")) if self.note[:4] == "exit" else 0


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page in their order."""
    pattern = r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$"
    for found in re.finditer(pattern, page, re.DOTALL | re.MULTILINE):
        yield Block(found["note"] or "", found["language"], found["text"])


def steps(page: str) -> Iterator[Step]:
    """The commands of the `console` blocks of a page in their order."""
    for block in blocks(page):
        if block.language == "console":
            yield from steps_of(block)


def steps_of(block: Block) -> Iterator[Step]:
    """The commands of one such block."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(command, output)


def general(text: str) -> str:
    """A text with placeholders."""
    for pattern, instead in PLACEHOLDERS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


def is_as_printed(output: str, printed: str) -> bool:
    """Whether an output is that of the page.

    There, `...` stands for the rest of a line, and for any lines if it is a line.
    """
    lines = (
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
        for line in general(printed).split("\n")
    )
    return re.fullmatch("".join(lines), f"{general(output)}\n") is not None


PROGRAMS: Final = {
    "corvo": "-m corvo",
    "curl": f"-I -S {shlex.quote(str(ROOT / 'tests' / 'support' / 'curl.py'))}",
    "python3": "-I -u",
}
"""Commands of a page that are these modules here. Python runs without the packages of the checkout:
isolated, and unbuffered to be read at once."""


class Shell:
    """A shell with job control, as at a terminal, in a directory of its own."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def run(self, command: str, *, patience_s: float = PATIENCE_S) -> tuple[int, str]:
        """Run a command: its exit code, and what it prints to stdout."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(f'{command}\necho "{_MARK} $?"\n'.encode())
        with trio.fail_after(patience_s):
            while not (found := re.search(rf"{_MARK} (\d+)\n".encode(), self._rest)):
                data = await self._process.stdout.receive_some()
                assert data, f"{command}: the shell has ended: {self._rest!r}"
                self._rest += data
        output, self._rest = self._rest[: found.start()], self._rest[found.end() :]
        return int(found[1]), output.decode()

    async def end_jobs(self) -> None:
        """Kill what runs beside the commands. A node's processes end with it."""
        await self.run("for each in $(jobs -p); do kill -9 -- -$each; done; wait")


@asynccontextmanager
async def shell_in(directory: Path, **environment: str) -> AsyncIterator[Shell]:
    """A shell; its jobs end with the block in every case."""
    programs = directory / "bin"
    programs.mkdir()
    for name, words in PROGRAMS.items():
        (programs / name).write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n'
        )
        (programs / name).chmod(0o755)
    others = (shutil.which(name) for name in ("node", "go"))
    places = [str(programs), *(str(Path(each).parent) for each in others if each)]
    process = await trio.lowlevel.open_process(
        ["bash", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        env={
            "PATH": ":".join([*places, "/usr/bin", "/bin"]),
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "HOME": str(directory),
            **environment,
        },
    )
    shell = Shell(process)
    try:
        await shell.run("set -m")  # with the flag -m instead, it wants a terminal
        yield shell
    finally:
        with trio.CancelScope(shield=True):
            await shell.end_jobs()
            process.kill()
            await process.wait()


async def ready(address: str) -> None:
    """Wait until a node says that it is ready."""
    host, _, port = address.partition(":")
    with trio.fail_after(PATIENCE_S):
        while True:
            client = Client((host, int(port)))
            try:
                if (await client.ask("GET", "/readyz")).status == 200:
                    return
            except Lost:
                pass  # it does not listen yet
            finally:
                client.close()
            await trio.sleep(_LOOK_S)


def on_ports(text: str, ports: Mapping[str, str]) -> str:
    """The same text with the ports of this run."""
    return re.sub(r"(?<=127\.0\.0\.1:)(\d+)", lambda found: ports[found[1]], text)


def bound(command: str) -> str:
    """Where the node that a command starts listens; empty for other commands."""
    words = shlex.split(command)
    return words[words.index("--bind") + 1] if "--bind" in words else ""
