"""A node is cut off under load, refuses writes and says why, and all is equal afterwards."""

from pathlib import Path

from tests.cluster import heal
from tests.support.links import on_sockets

ELECTION_S = 1.6
ANSWERED_S = 6.0
"""Two election timeouts, and time for a machine that is busy with other tests."""


@on_sockets
async def test_a_node_that_is_cut_off_says_so_and_is_equal_later(tmp_path: Path) -> None:
    [seen] = await heal.run(tmp_path, shards=2, cut_s=(4 * ELECTION_S, 4 * ELECTION_S))

    assert seen.wrongs == []
    assert seen.compared.differences == []
    assert seen.compared.replicas == 6
    refused = [each for each in seen.told if each.what.startswith("503")]
    assert refused
    assert max(each.seconds for each in refused) < ANSWERED_S
    assert {each.what for each in seen.told} <= {
        "accepted",
        "503 LEADER_UNAVAILABLE not_applied",
        "503 OUTCOME_UNKNOWN unknown",
    }
