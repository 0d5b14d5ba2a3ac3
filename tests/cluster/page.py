"""A page of the documentation as a session: its commands, typed into a shell, and their output."""

import re
import shlex
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
    (r"\bs\d+_job_\w+", "JOB"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    # Leaders change, and with them the terms.
    (r"(?m)^(\d+ +\w+ +(?:active|unreachable) +)[\d,-]+ +[\d,-]+", r"\1LEADS REPLICAS"),
    (r"(?m)^(\d+ +)(?:healthy|degraded) +\d+(?=  )", r"\1STATUS TERM"),
    (r"(?<=  )(?:leader|follower|unreachable|-)(?=  |$)", "ROLE"),
    (r"its \d replicas", "its N replicas"),
    (r"  +", " "),
)
"""What may differ between the page and a run: versions, ids, times, and which node leads a shard or
has a replica of it."""


class Step(NamedTuple):
    """A command of a page, and its output there."""

    command: str
    output: str


def steps(page: str) -> Iterator[Step]:
    """The commands of a page in their order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Step(command, output)


def general(text: str) -> str:
    """A text with placeholders."""
    for pattern, instead in PLACEHOLDERS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


def is_as_printed(output: str, printed: str) -> bool:
    """Whether an output is that of the page. There, `...` stands for the rest of a line."""
    pattern = re.escape(general(printed)).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, general(output)) is not None


class Shell:
    """A shell with job control, as at a terminal, in a directory of its own."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def run(self, command: str) -> tuple[int, str]:
        """Run a command: its exit code, and what it prints to stdout."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(f'{command}\necho "{_MARK} $?"\n'.encode())
        with trio.fail_after(PATIENCE_S):
            while not (found := re.search(rf"{_MARK} (\d+)\n".encode(), self._rest)):
                data = await self._process.stdout.receive_some()
                assert data, f"{command}: the shell has ended: {self._rest!r}"
                self._rest += data
        output, self._rest = self._rest[: found.start()], self._rest[found.end() :]
        return int(found[1]), output.decode()


@asynccontextmanager
async def shell_in(directory: Path) -> AsyncIterator[Shell]:
    """A shell; its jobs end with the block in every case."""
    programs = directory / "bin"
    programs.mkdir()
    for name, words in (("corvo", "-m corvo"), ("curl", "-m tests.cluster.page")):
        (programs / name).write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n'
        )
        (programs / name).chmod(0o755)
    process = await trio.lowlevel.open_process(
        ["bash", "--norc", "-m"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "HOME": str(directory),
        },
    )
    shell = Shell(process)
    try:
        yield shell
    finally:
        with trio.CancelScope(shield=True):
            await shell.run("kill -9 $(jobs -p); wait")
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


def main() -> int:
    """`curl -s ADDRESS [--json BODY]`, where no curl may be installed."""
    import http.client  # noqa: PLC0415 -- of this program alone

    silent, url, *more = sys.argv[1:]
    assert silent == "-s"
    assert not more or more[0] == "--json"
    host, _, path = url.partition("/")
    connection = http.client.HTTPConnection(host)
    connection.request("POST" if more else "GET", f"/{path}", more[1] if more else None)
    sys.stdout.write(connection.getresponse().read().decode())
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
