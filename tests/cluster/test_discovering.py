"""Nodes that find their cluster by a DNS name, also one that has no address yet."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from corvo.config import Config, Given, resolve
from corvo.datadir import open_directory
from corvo.forming import Formed, JoinRefused, form
from corvo.telemetry import Level, Log, Style
from tests.cluster.nodes import PATIENCE_S, cluster_of, members_in
from tests.support.links import jumping, on_sockets
from tests.support.ports import free_ports

NAME: Final = "corvo.example"
SECRET: Final = "sixteen letters, or more"  # noqa: S105 -- of no cluster


class Names(trio.abc.HostnameResolver):
    """DNS by hand: each lookup of the name takes the next answer, and the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.lookups = 0

    async def getaddrinfo(  # type: ignore[override]  # of the arguments, only these are used
        self, host: bytes, port: int, *_: object, **__: object
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        await trio.lowlevel.checkpoint()
        assert host == NAME.encode()
        self.lookups += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise AssertionError("no address is looked up")


@contextmanager
def names(*answers: list[str]) -> Iterator[Names]:
    """The name has these addresses."""
    made = Names(*answers)
    before = trio.socket.set_custom_hostname_resolver(made)
    try:
        yield made
    finally:
        trio.socket.set_custom_hostname_resolver(before)


def config_of(directory: Path, port: int, **more: str) -> Config:
    settings = {
        "data_dir": str(directory),
        "cluster.node_id": "late",
        "cluster.discover": "dns",
        "cluster.discover_dns_name": f"{NAME}:{port}",
        "cluster.secret": SECRET,
        "cluster.peer_bind": "127.0.0.1:9",
        **{f"cluster.{name}": more[name] for name in more},
    }
    return resolve([Given(name, settings[name], "the test") for name in settings]).config


async def formed(config: Config) -> tuple[Formed | str, list[dict[str, object]]]:
    """How a node comes to its cluster, or why not; and what it logs."""
    logged: list[bytes] = []
    log = Log(logged.append, "node", Style(is_text=False), Level.INFO)
    told: Formed | str
    try:
        directory = open_directory(config.data_dir)
        told = await form(directory, config, log, are_shards_given=False)
    except JoinRefused as error:
        told = str(error)
    return told, [msgspec.json.decode(line, type=dict[str, object]) for line in logged]


@on_sockets
async def test_a_node_joins_at_the_address_of_the_name_that_answers(tmp_path: Path) -> None:
    (first,) = await members_in(tmp_path, ["a"], cluster__bootstrap="on", cluster__secret=SECRET)
    port = int(first.peer.rpartition(":")[2])
    async with cluster_of([first]) as cluster:
        await cluster.start_all()
        # At first there is no address, then one at which no node runs, and then that of a node.
        with names([], ["127.0.0.9"], ["127.0.0.9", "127.0.0.1"]), trio.fail_after(PATIENCE_S):
            told, logged = await formed(config_of(tmp_path / "late", port))
        ready = await first.node.hear("node.ready")

    assert isinstance(told, Formed)
    assert (told.is_new, told.identity.name, told.identity.node) == (True, "late", 2)
    assert told.identity.cluster == ready["cluster"]
    waits = [one for one in logged if one["event"] == "cluster.join_waits"]
    assert [(one["why"], one["asked"]) for one in waits] == [
        (f"{NAME}:{port} has no address of another node", []),
        ("no node of a cluster answers", [f"127.0.0.9:{port}"]),
    ]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], f"{NAME}:1 has had no address of another node for 60 s: check"),
        (["127.0.0.1"], "no node of a cluster has answered at 127.0.0.1:1 for 60 s: check"),
    ],
)
def test_a_node_that_finds_no_other_one_is_refused_after_a_minute(
    tmp_path: Path, answers: list[str], reason: str
) -> None:
    @jumping
    async def main() -> None:
        with names(answers) as asked:
            began = trio.current_time()
            told, _ = await formed(config_of(tmp_path / "late", 1))

        assert isinstance(told, str)
        assert reason in told
        assert 59 <= trio.current_time() - began <= 61
        assert asked.lookups >= 20
        assert not list((tmp_path / "late").iterdir())

    main()


@on_sockets
async def test_three_nodes_with_one_port_find_each_other_by_a_name_of_the_system(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"], cluster__secret=SECRET)
    (port,) = free_ports(1)
    for number, member in enumerate(members, start=1):
        member.settings["cluster.peer_bind"] = f"127.0.0.{number}:{port}"
    first, *others = members
    first.settings["cluster.bootstrap"] = "on"
    for member in others:
        member.settings |= {
            "cluster.discover": "dns",
            "cluster.discover_dns_name": f"localhost:{port}",
        }
    async with cluster_of(members) as cluster:
        # As pods start: those that join may come before the one that is joined.
        for member in others:
            await cluster.start(member)
            await member.node.hear("cluster.join_waits")
        await cluster.start(first)
        for member in members:
            await member.node.hear("node.ready")
            await member.node.hear("cluster.map")
        ready = [member.node.find("node.ready")[0] for member in members]
        for member in members:
            assert await member.node.end() == 0

    assert len({str(one["cluster"]) for one in ready}) == 1
    assert {one["node"] for one in ready} == {1, 2, 3}
