"""Workers fetch from one node, and are shown by every node."""

from pathlib import Path

import msgspec
import trio

from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets


class Worker(msgspec.Struct):
    """A worker, as a node shows it."""

    id: str
    state: str
    waiting: bool = False


async def worker_at(cluster: Cluster, member: Member) -> Worker | None:
    """The worker, as a node shows it."""
    answer = await cluster.until(member, "GET", "/api/v1/workers")
    found = msgspec.json.decode(answer.body, type=list[Worker])
    return next((worker for worker in found if worker.id == "w"), None)


@on_sockets
async def test_a_worker_that_waits_at_one_node_is_seen_by_all(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()

        async def wait_for_work() -> None:
            while True:
                body = {"queues": ["mail"], "worker_id": "w", "wait_seconds": 20}
                await cluster.until(members[1], "POST", "/api/v1/fetch", body)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_work)
            with trio.fail_after(PATIENCE_S):
                for member in members:
                    while (seen := await worker_at(cluster, member)) is None or not seen.waiting:
                        await trio.lowlevel.checkpoint()
                    assert seen.state == "alive"
            nursery.cancel_scope.cancel()
