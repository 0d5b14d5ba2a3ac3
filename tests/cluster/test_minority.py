"""Without a majority nothing is changed, and the client is told so; afterwards all is equal."""

from pathlib import Path

import msgspec
import trio

from tests.cluster.answers import Page
from tests.cluster.nodes import PATIENCE_S, as_initial, cluster_of, members_in
from tests.node.http import Lost
from tests.support.links import on_sockets

QUEUES = [f"mail-{number}" for number in range(6)]


class Refused(msgspec.Struct):
    """What a client is told."""

    code: str
    outcome: str
    error: str


@on_sockets
async def test_a_minority_refuses_writes_and_is_equal_to_the_others_later(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"], limits__leader_wait_ms="2s")
    as_initial(members)
    first = members[0]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        for queue in QUEUES:
            await cluster.until(first, "POST", "/api/v1/enqueue", {"queue": queue}, key=queue)
        for member in members[1:]:
            member.kill()
        for member in members[1:]:
            await cluster.gone(member)

        told: Refused | None = None
        may_exist = False  # a leader took it in, and lost its majority then
        with trio.fail_after(PATIENCE_S):
            while told is None or told.outcome != "not_applied":
                try:
                    job = {"queue": "mail-0", "unique_key": "late"}
                    answer = await cluster.ask(first, "POST", "/api/v1/enqueue", job)
                    assert answer.status == 503, answer
                    told = answer.read(Refused)
                except Lost:
                    may_exist = True
                    continue
                may_exist = may_exist or told.outcome == "unknown"
        assert told.code == "LEADER_UNAVAILABLE"
        assert "nothing was changed" in told.error

        for member in members[1:]:
            await cluster.start(member)
        for member in members[1:]:
            await member.node.hear("node.ready")
        for queue in QUEUES:
            await cluster.until(first, "POST", "/api/v1/enqueue", {"queue": queue}, key=f"2{queue}")
        totals = set()
        with trio.fail_after(PATIENCE_S):
            for member in members:
                while True:
                    body = {"limit": 1, "consistency": "wait"}
                    search = await cluster.until(member, "POST", "/api/v1/jobs/search", body)
                    page = search.read(Page)
                    if not page.is_behind:
                        break
                totals.add(page.total)
    assert totals in [{2 * len(QUEUES) + late} for late in range(1 + may_exist)]
