"""A node is cut off under load, refuses writes and says why, and all is equal afterwards."""

from pathlib import Path

from tests.cluster import heal
from tests.support.links import on_sockets

ELECTION_S = 1.6


@on_sockets
async def test_a_node_that_is_cut_off_says_so_and_is_equal_later(tmp_path: Path) -> None:
    # A refusal may take long on a busy machine: while the cut lasts, it has to come.
    cut_s = (4 * ELECTION_S, 4 * ELECTION_S)
    [seen] = await heal.run(tmp_path, shards=2, cut_s=cut_s, until_refused=True)

    assert seen.wrongs == []
    assert seen.compared.differences == []
    assert seen.compared.replicas == 6
    refused = [each for each in seen.told if each.what.startswith("503")]
    assert refused
    assert {each.what for each in seen.told} <= {
        "accepted",
        "503 LEADER_UNAVAILABLE not_applied",
        "503 OUTCOME_UNKNOWN unknown",
    }
