"""Reads by id at any node: after a confirmed write, while leaders change, without a majority."""

from pathlib import Path

import msgspec
import trio

from tests.cluster.nodes import PATIENCE_S, as_initial, cluster_of, members_in
from tests.node.http import Lost
from tests.support.links import on_sockets

ROUNDS = 40


class Put(msgspec.Struct):
    """A job that was enqueued."""

    job_id: str


@on_sockets
async def test_a_read_sees_every_write_before_it_and_a_local_one_needs_no_leader(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"], limits__leader_wait_ms="1s")
    as_initial(members)
    first, second, third = members
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        seen = 0
        path = ""
        with trio.fail_after(2 * PATIENCE_S):
            for number in range(ROUNDS):
                if number == ROUNDS // 4:
                    third.kill()
                if number == ROUNDS // 2:
                    await cluster.gone(third)
                    await cluster.start(third)
                job = {"queue": f"mail-{number % 4}"}
                writer, reader = members[number % 2], members[1 - number % 2]
                put = await cluster.until(writer, "POST", "/api/v1/enqueue", job, key=f"k{number}")
                path = f"/api/v1/jobs/{put.read(Put).job_id}"
                while (answer := await cluster.ask(reader, "GET", path)).status != 200:
                    assert answer.status == 503, answer  # while a leader is elected
                seen += 1

            for member in members:
                await cluster.until(member, "GET", path)
            for member in (second, third):
                member.kill()
                await cluster.gone(member)
            status = 200
            while status == 200:
                try:
                    status = (await cluster.ask(first, "GET", path)).status
                except Lost:
                    continue
            local = await cluster.ask(first, "GET", f"{path}?consistency=local")

    assert seen == ROUNDS
    assert status == 503
    assert local.status == 200
    assert int(local.headers["corvo-leader-contact-ms"]) >= 0
    assert local.headers["corvo-seq"]
