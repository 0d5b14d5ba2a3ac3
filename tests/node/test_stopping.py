"""SIGTERM in the midst of everything."""

from pathlib import Path

from corvo.router.stream.stream import GOING_AWAY
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
    assert seen.closes == {GOING_AWAY: stopping.STREAMS}
    assert seen.listened == {": the server stops, whole": stopping.LISTENERS}
    assert seen.idle == {b"": stopping.IDLE}
    assert seen.texts == []
