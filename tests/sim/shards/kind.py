"""What the commands of the simulator need to know of this kind of run."""

from pathlib import Path
from typing import Final

from tests.sim.campaign import Kind
from tests.sim.options import Options
from tests.sim.shards.options import draw
from tests.sim.shards.world import ShardWorld
from tests.sim.timeline import Report


def _draw(seed: int, without: tuple[str, ...]) -> Options:
    return draw(seed, without=without)


def _live(seed: int, without: tuple[str, ...]) -> Report:
    return ShardWorld(draw(seed, without=without)).run()


KIND: Final = Kind("tests.sim.shards", _draw, _live, Path(__file__).with_name("found.txt"))
