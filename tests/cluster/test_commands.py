"""`corvo cluster` against a real cluster: a node is drained, undrained and removed."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tests.cluster.nodes import PATIENCE_S, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets

ROOT: Final = Path(__file__).parents[2]
_LOST: Final = "  node 2 (b): unreachable: "


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


async def corvo(members: list[Member], *words: str) -> Done:
    """Run `corvo cluster` against several nodes."""
    servers = ",".join(f"{host}:{port}" for host, port in (member.address for member in members))
    with trio.fail_after(PATIENCE_S):
        done = await trio.run_process(
            [sys.executable, "-m", "corvo", "cluster", *words, "--server", servers],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


async def refused(members: list[Member], code: str, *words: str) -> Done:
    """Run a command until it is refused with a code: a shard may answer too late to be counted."""
    with trio.fail_after(PATIENCE_S):
        while f"[{code}, exit 5" not in (done := await corvo(members, *words)).err:
            assert done.code, "it was not refused"
    return done


@on_sockets
async def test_an_operator_drains_and_removes_nodes_with_commands(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "d"])
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        healthy = await corvo(members, "status", "--wait", "60s")
        removal = ("remove", "c", "--reason", "x", "--yes")
        early = await refused(members, "NODE_NOT_DRAINED", *removal)
        drained = await corvo(members, "drain", "c", "--wait", "60s", "--yes")
        back = await corvo(members, "undrain", "c")
        again = await corvo(members, "drain", "c", "--wait", "60s", "--yes")
        removed = await corvo(members, "remove", "c", "--reason", "its rack moves", "--yes")
        members[1].kill()
        await cluster.gone(members[1])
        # The first address is that of the dead node.
        alive = [members[1], members[0]]
        nodes = await corvo(alive, "nodes")
        with trio.fail_after(PATIENCE_S):
            # The link to the dead node is not lost yet, or its shards have no leader.
            while _LOST not in (lost := await corvo(alive, "status")).out:
                pass
        forced = ("remove", "d", "--reason", "x", "--yes", "--force")
        last = await refused(alive, "NO_MAJORITY", *forced)
        fewer = await corvo(alive, "replicas", "2", "--yes")
        events = await corvo(alive, "events")

    assert (healthy.code, healthy.err) == (0, "")
    assert healthy.out.startswith("status: healthy\n\nNODE  NAME  STATE   LEADS")
    assert (early.code, early.out) == (5, "")
    assert "drain it:   corvo cluster drain c --wait 10m\n  [" in early.err
    for done in (drained, again):
        assert (done.code, done.out.splitlines()[0]) == (
            0,
            "node 3 (c) is drained: it has no replicas",
        )
    assert back.out == "node 3 (c) is active: it can have replicas again\n"
    assert removed.code == 0
    assert removed.out.startswith("node 3 (c) was removed")
    assert nodes.code == 0
    assert "\nremoved:\nNODE  NAME  AT" in nodes.out
    assert "its rack moves" in nodes.out
    assert lost.code == 10
    assert last.code == 5
    assert fewer.out == "each shard is to have 2 replicas\n"
    assert "node_removed" in events.out


@on_sockets
async def test_the_last_node_cannot_be_removed(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a"])
    members[0].settings["cluster.bootstrap"] = "on"
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        before = await corvo(members, "nodes", "-o", "json")
        removal = ("remove", "a", "--reason", "x", "--yes", "--force")
        removed = await refused(members, "NO_MAJORITY", *removal)
        drained = await corvo(members, "drain", "a", "--yes")
        after = await corvo(members, "nodes", "-o", "json")

    assert (removed.code, removed.out) == (5, "")
    assert (drained.code, drained.out) == (5, "")
    assert "[LAST_NODE, exit 5" in drained.err
    assert after.out == before.out
