"""What endpoints work with: the shards, the parking, who may what, and what this router is."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import trio

from corvo import wire
from corvo.router import positions
from corvo.router.addressing import Addresses, Results, to_jobs
from corvo.router.config import RouterConfig
from corvo.router.fetching import Fetching
from corvo.router.http import Problem, Request
from corvo.router.shards import Answer, Shards
from corvo.shard.ops.base import Op, Rejected
from corvo.shard.queries import Query

R = TypeVar("R")
_CATCH_UP_S: Final = 1.0
"""How long a read waits for a shard to come to where the client has been."""


class Api:
    """One of these is handed to every endpoint."""

    def __init__(self, config: RouterConfig) -> None:
        self.config: Final = config
        self.limits: Final = config.limits
        self.addresses: Final = Addresses(config.shards)
        self.fetching: Final = Fetching(config)
        self.shards: Final = Shards(config, pushed=self._pushed, came_up=self._came_up)
        self.fetching.attach(self.shards)
        self.stopping: Final = trio.Event()
        """Set when this router has been told to leave: `/readyz` says so, and streams end."""

    # What shards tell.

    def _pushed(self, _: int, push: wire.Push) -> None:
        if isinstance(push, wire.WorkAvailable):
            self.fetching.pushed(push)

    def _came_up(self, shard: int) -> None:
        self.fetching.came_up(shard)

    def stop(self) -> None:
        """Long polls end with nothing, and nothing waits any more."""
        self.stopping.set()
        self.fetching.stop()

    # Shards.

    async def to_jobs(
        self,
        job_ids: Sequence[str],
        make: Callable[[list[int]], Op],
        read: Callable[[bytes], Sequence[R | Rejected]],
    ) -> Results[R]:
        """Carry an op out on jobs, wherever they are: see `corvo.router.addressing`."""
        return await to_jobs(self.shards, self.addresses, job_ids, make, read)

    async def ask(self, shard: int, query: Query, request: Request) -> Answer:
        """Ask a shard, which has come as far as `Corvo-Min-Seq` says. Raises `Problem`.

        A leader answers from all that was ever acknowledged, so it only has to catch up when the
        position is of a log that is not there any more.
        """
        answer = await self.shards[shard].ask(query)
        header = request.headers.get("corvo-min-seq")
        if header is None:
            return answer
        wanted = positions.parse(header, len(self.shards)).get(shard, 0)
        until = trio.current_time() + _CATCH_UP_S
        while answer.index < wanted:
            if trio.current_time() >= until:
                raise Problem(
                    503,
                    "NOT_CAUGHT_UP",
                    f"shard {shard} stands at {answer.index} and {wanted} was asked for: "
                    "either it is still recovering, or its data is older than you have seen",
                    retry_after_ms=1_000,
                )
            await trio.sleep(_CATCH_UP_S / 20)
            answer = await self.shards[shard].ask(query)
        return answer
