"""Processes of a node are killed under load, one after the other, again and again."""

import signal
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.crowd import Crowd
from tests.node.history import judge
from tests.node.nodes import House, house_in, kill
from tests.support.nodes import Running

NODE: Final = "the node itself"
_CALM: Final = 100
"""Successes of each shard between two kills."""


class Kill(msgspec.Struct, frozen=True):
    """What a kill did to the service."""

    victim: str
    gaps_s: list[float]
    """By shard, the longest time without a success."""


class Seen(msgspec.Struct):
    """What came of it."""

    kills: list[Kill]
    wrongs: list[str]
    events: int
    oddities: dict[str, int]


class Killing:
    """One run."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.crowd: Final = Crowd(house.address, house.shards)
        self.kills: list[Kill] = []
        self._victims: Final = ["router", *(f"shard-{n}" for n in range(house.shards))]
        self._began = 0.0  # when somebody was killed, while that is being looked at

    async def run(self, rounds: int, seconds: float) -> Seen:
        """Kill everybody so many times, and go on for so long."""
        until = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.crowd.run)
            while rounds > 0 or trio.current_time() < until:
                async with self._house.open() as node:
                    await self._settle(NODE)
                    await self._kill_all(node)
                    self._began = trio.current_time()
                    await node.end(signal.SIGKILL)
                rounds -= 1
            async with self._house.open() as node:
                await self._settle(NODE)
                self.crowd.close()
                await self.crowd.ended.wait()
                found = await self.crowd.look_up()
                code = await node.end()
                assert code == 0, code
        wrongs = judge(self.crowd.history, found)
        return Seen(self.kills, wrongs, len(self.crowd.history), self.crowd.oddities)

    async def _settle(self, victim: str) -> None:
        """Let the service be well again, and note how long that took."""
        await self.crowd.more(_CALM)
        if self._began:
            self.kills.append(Kill(victim, self.crowd.longest_gap(self._began)))
            self._began = 0.0

    async def _kill_all(self, node: Running) -> None:
        for victim in self._victims:
            self._began = trio.current_time()
            await kill(node, victim)
            await self._settle(victim)


async def run(directory: Path, *, rounds: int = 1, seconds: float = 0, **settings: str) -> Seen:
    """Kill everybody, under sixteen clients."""
    house = await house_in(directory, shard__grace_ms="500ms", **settings)
    return await Killing(house).run(rounds, seconds)
