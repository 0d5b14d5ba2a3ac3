"""A little of everything: nothing is refused, and nobody takes more and more files or threads."""

from pathlib import Path
from typing import Final

from tests.node import mixed
from tests.support.links import on_sockets

FEW: Final = 12
"""Files and threads may come and go with checkpoints and connections; so many more are a leak."""


@on_sockets
async def test_all_kinds_of_requests_at_once_are_answered(tmp_path: Path) -> None:
    seen = await mixed.run(tmp_path, seconds=4, every_s=1)

    assert seen.rounds > 0
    for gauges in seen.gauges.values():
        assert gauges[-1].files <= gauges[0].files + FEW
        assert gauges[-1].threads <= gauges[0].threads + FEW
