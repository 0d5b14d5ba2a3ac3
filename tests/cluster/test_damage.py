"""A damaged file of one node: the node repairs itself, or says what an operator does next."""

import signal
from pathlib import Path

from tests.cluster import damage
from tests.support.links import on_sockets


@on_sockets
async def test_a_damaged_log_is_fetched_from_the_others_and_a_lost_vote_is_not_replaced(
    tmp_path: Path,
) -> None:
    kinds = ["shard-N/log/manifest", "shard-N/log/hard-state", "mirror/mirror.db"]
    cases = await damage.run(tmp_path, kinds=kinds, ways=["gone"], stops=[signal.SIGKILL])

    assert [case.end for case in cases] == ["repaired", "stays down", "whole"]
    for case in cases:
        assert case.is_explained, case
        assert case.compared.rows > 0
        assert case.compared.differences == []
