"""`corvo verify` on a cluster of three nodes: whole, with a node down, and each directory."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import trio

from corvo.client import jobs
from corvo.client.calls import Client
from corvo.verify.report import DAMAGED, INCOMPLETE, WHOLE, Report
from tests.client_commands.running import Server
from tests.cluster.nodes import PATIENCE_S, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets
from tests.verify.filling import fill
from tests.verify.looking import damage_of, flip, unchecked_of, verified

ROOT: Final = Path(__file__).parents[2]


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def addresses(members: list[Member]) -> str:
    return ",".join(f"{host}:{port}" for host, port in (member.address for member in members))


async def corvo(*words: str) -> Done:
    """Run `corvo`."""
    with trio.fail_after(PATIENCE_S):
        done = await trio.run_process(
            [sys.executable, "-m", "corvo", *words],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def work(member: Member) -> None:
    host, port = member.address
    fill(Server(f"http://{host}:{port}"))


def catch_up(members: list[Member]) -> None:
    """Wait until the mirror of each node has all jobs."""
    for member in members:
        host, port = member.address
        with Client([f"http://{host}:{port}"]) as client:
            assert list(jobs.pages(client, {}, is_patient=lambda: True))


def is_whole(done: Done) -> bool:
    """Whether nothing is wrong, and all mirrors were read at the same position."""
    if done.code:
        return False
    parts = msgspec.json.decode(done.out, type=Report).parts
    return len({str(part.checked) for part in parts if part.name.startswith("mirror of ")}) == 1


@on_sockets
async def test_a_cluster_and_then_its_directories(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        healthy = await corvo("cluster", "status", "--wait", "60s", "--server", addresses(members))
        await trio.to_thread.run_sync(work, members[0])
        await trio.to_thread.run_sync(catch_up, members)
        with trio.fail_after(PATIENCE_S):
            # A new leader writes entries of its own, and a shard may answer a moment late.
            while not is_whole(whole := await corvo("verify", addresses(members), "-o", "json")):
                pass
            while (await corvo("verify", addresses(members[:1]))).code:
                pass
        members[2].kill()
        await cluster.gone(members[2])
        with trio.fail_after(PATIENCE_S):
            # The link to the dead node is not lost yet.
            while (
                "it cannot be reached"
                not in (down := await corvo("verify", addresses(members), "-o", "json")).out
            ):
                pass
    assert healthy.code == 0
    assert (whole.code, whole.err) == (0, ""), whole.out
    report = msgspec.json.decode(whole.out, type=Report)
    assert report.status == WHOLE
    names = [f"mirror of {address}" for address in addresses(members).split(",")]
    assert [part.name for part in report.parts] == ["nodes", "shards", "replicas", *names]
    checked = {part.name: part.checked for part in report.parts}
    assert checked["shards"] == ["2 shards", "6 replicas"]
    assert down.code == 10

    lost = msgspec.json.decode(down.out, type=Report)
    assert (lost.status, damage_of(lost)) == (INCOMPLETE, [])
    told = [f"{finding.where}: {finding.problem}" for finding in unchecked_of(lost)]
    assert any(each.startswith(f"{addresses(members[2:])}: no answer") for each in told), told
    assert any(each.startswith("node 3 (c): it cannot be reached") for each in told), told

    for member in members:
        found = await trio.to_thread.run_sync(verified, member.data)
        assert (found.status, damage_of(found)) == (WHOLE, []), member.name
    flip(next(members[0].data.glob("shard-1/log/log-*.seg")), 12_300)
    assert verified(members[0].data).status == DAMAGED
