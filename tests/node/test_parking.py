"""Workers who wait cost the log nothing, and are woken."""

from pathlib import Path

from tests.node import parking
from tests.support.links import on_sockets


@on_sockets
async def test_whoever_waits_for_work_writes_nothing_and_is_woken(tmp_path: Path) -> None:
    seen = await parking.run(tmp_path, workers=100, seconds=1)

    before, behind = seen.indexes
    assert before == behind
    assert seen.given == 100
