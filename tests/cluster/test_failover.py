"""A node is lost, or all are restarted: a pause for clients, and nothing lost or doubled."""

from pathlib import Path

from tests.cluster import failover, rolling
from tests.support.links import on_sockets


@on_sockets
async def test_the_loss_of_a_leading_node_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seen = await failover.run(tmp_path, kills=1, shards=2)

    assert seen.wrongs == []
    [kill] = seen.kills
    assert len(kill.led_s) + len(kill.others_s) == 2


@on_sockets
async def test_a_rolling_restart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seen = await rolling.run(tmp_path, shards=2)

    assert (seen.missing, seen.doubled) == (0, 0)
    assert seen.jobs > 600
