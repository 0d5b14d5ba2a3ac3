"""SIGTERM in the midst of everything."""

from pathlib import Path

from tests.node import stopping
from tests.node.nodes import OK
from tests.support.links import on_sockets


@on_sockets
async def test_a_busy_node_stops_and_breaks_no_promise(tmp_path: Path) -> None:
    seen = await stopping.run(tmp_path)

    assert seen.code == OK
    assert seen.lost == []
    assert seen.undone == []
    assert seen.promised > 0
    assert seen.waits == {204: stopping.WAITING}
    assert sum(seen.closes.values()) == stopping.STREAMS
    assert seen.texts == []
