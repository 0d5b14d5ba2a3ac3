"""Copies of all shards for a backup that do not come about."""

from typing import cast

import trio

from corvo.client.backups import SILENT_S
from corvo.protocol.queries import Query
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.copies import Copies
from corvo.router.shards.links import Answer, Shards
from corvo.topology import Topology
from tests.support.links import jumping


class Silent:
    """A shard that does not answer."""

    number = 0

    async def ask(self, query: Query) -> Answer:
        await trio.sleep_forever()
        raise AssertionError(query)


@jumping
async def test_copies_that_take_too_long_are_given_up_before_the_command_gives_up() -> None:
    shards, none = cast("Shards", [Silent()]), None
    copies = Copies(cast("RouterConfig", none), shards, cast("Topology", none))

    async with trio.open_nursery() as nursery:
        problem = await nursery.start(copies.run)

    assert isinstance(problem, Problem)
    assert "take more than 60 s" in problem.error
    assert trio.current_time() < SILENT_S
