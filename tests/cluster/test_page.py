"""The commands of docs/cluster.md, run as they stand there, on other ports."""

import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.commands import _FLAGS
from corvo.config import KEYS
from tests.cluster.nodes import PATIENCE_S
from tests.node.http import Answer, Client, Lost
from tests.shard.processes import free_ports
from tests.support.links import on_sockets

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "cluster.md").read_text()
PORTS: Final = ("8081", "8082", "8083", "9401", "9402", "9403")


class Given(msgspec.Struct):
    """A job."""

    job_id: str


def commands(heading: str) -> list[list[str]]:
    """The words of each command below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def on_ports(words: list[str], ports: dict[str, str]) -> list[str]:
    """The same command on the ports of this run."""
    return [re.sub(r"(?<=127\.0\.0\.1:)(\d+)", lambda m: ports[m[1]], word) for word in words]


@asynccontextmanager
async def server(words: list[str], directory: Path) -> AsyncIterator[None]:
    """A node, from when it says that it is ready."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "corvo", *words[1:], "--log-format", "text"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    said = b""
    try:
        assert process.stderr is not None
        with trio.fail_after(PATIENCE_S):
            while b"is ready" not in said:
                data = await process.stderr.receive_some()
                assert data, said.decode()
                said += data
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, process.stderr)
            yield
            nursery.cancel_scope.cancel()
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def drain(stream: trio.abc.ReceiveStream) -> None:
    """Read what a node has to say, so that it never waits for us."""
    while await stream.receive_some():
        pass


async def curl(words: list[str]) -> Answer:
    """What a command of curl asks; repeated while there is no leader."""
    name, silent, url, *more = words
    assert (name, silent) == ("curl", "-s")
    body = more[1].encode() if more[:1] == ["--json"] else b""
    host, _, path = url.partition("/")
    client = Client(("127.0.0.1", int(host.rpartition(":")[2])))
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                answer = await client.ask("POST" if body else "GET", f"/{path}", body, "the page")
                if answer.status != 503:
                    client.close()
                    return answer
            except Lost:
                await trio.lowlevel.checkpoint()


@on_sockets
async def test_three_nodes_on_one_machine(tmp_path: Path) -> None:
    given = [str(port) for port in await free_ports(len(PORTS))]
    ports = dict(zip(PORTS, given, strict=True))
    *servers, enqueue, fetch = [
        on_ports(words, ports) for words in commands("Three nodes on one machine")
    ]
    assert [words[0] for words in servers] == ["corvo"] * 3

    async with (
        server(servers[0], tmp_path),
        server(servers[1], tmp_path),
        server(servers[2], tmp_path),
    ):
        made = await curl(enqueue)
        taken = await curl(fetch)

    assert (made.status, taken.status) == (201, 200)
    assert made.read(Given) == taken.read(Given)


def test_every_setting_and_flag_of_the_page_exists() -> None:

    named = {*re.findall(r"`(cluster\.[a-z_]+)`", PAGE)} - {"cluster.json"}
    flags = {*re.findall(r"(--[a-z][a-z-]*)", PAGE)} - {"--bootstrap", "--json"}

    assert named <= KEYS.keys()
    assert flags - _FLAGS.keys() == {"--raft-bind", "--raft-advertise"}
