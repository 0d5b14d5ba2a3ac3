"""Sending lease operations on many jobs: each goes to the shard of its job, wherever that moves."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from corvo.ids import home_of
from corvo.protocol.ops.base import Op, Rejected
from corvo.router.http.messages import UNKNOWN, Problem
from corvo.router.http.problems import missing
from corvo.router.leases.verbs import Lease, LeaseVerb
from corvo.router.shards.addressing import Addresses, Search
from corvo.router.shards.fan_out import NOT_SENT, FanOut, together
from corvo.router.shards.links import Shards
from corvo.router.shards.outcomes import Outcome, read_results


class LeaseFanOut(FanOut[Lease, Outcome]):
    """One operation on jobs under their leases. A job that moves is followed."""

    def __init__(
        self,
        shards: Shards,
        addresses: Addresses,
        verb: LeaseVerb,
        items: Sequence[Lease | Rejected | Problem],
        body_bytes: int,
        *,
        key: str = "",
        by: str = "",
    ) -> None:
        super().__init__(shards, addresses, items, body_bytes, key=key, by=by)
        self.verb: Final = verb
        self._searches: dict[int, Search] = {}
        """Items that were sent more than once, by place."""
        self._again: list[int] = []
        """Places of items that may have another outcome when they are sent again."""

    async def finish(self) -> None:
        """Wait for all answers, also of items that have to be sent again."""
        await super().finish()
        while self._again:
            again, self._again = sorted(self._again), []
            await together([partial(self._go_on, place) for place in again])
            by_shard: dict[int, list[int]] = {}
            for place in again:
                if self.outcomes[place] is NOT_SENT:
                    by_shard.setdefault(self._searches[place].shard, []).append(place)
            self._begin_each(by_shard)
            await super().finish()

    async def _go_on(self, place: int) -> None:
        outcome = self.outcomes[place]
        self.outcomes[place] = NOT_SENT
        if not isinstance(outcome, Rejected):
            return  # to the same shard again
        try:
            final = await self._searches[place].go_on(self._shards, outcome)
        except Problem as problem:
            self.outcomes[place] = problem
        else:
            if final is not None:
                self.outcomes[place] = final

    def _settle(self, place: int, shard: int, outcome: Outcome | Rejected | Problem) -> None:
        self.outcomes[place] = outcome
        item = self._item(place)
        if isinstance(outcome, Outcome):
            self._addresses.remember(item.job_id, shard)
        elif self._may_help(item, outcome, is_first=place not in self._searches):
            if place not in self._searches:
                self._searches[place] = Search(self._addresses, item.job_id, shard)
            self._again.append(place)

    def _may_help(self, item: Lease, outcome: Rejected | Problem, *, is_first: bool) -> bool:
        """Whether an item may have another outcome when it is sent again."""
        if isinstance(outcome, Problem):
            # Under a lease's token, twice has the same effect as once.
            return is_first and outcome.outcome == UNKNOWN and item.lease_token is not None
        if outcome.code == "job_not_found":
            return home_of(item.job_id, len(self._shards)) is None
        return outcome.code == "job_moved"

    def _shard_of(self, item: Lease) -> int | Rejected:
        shard = self._addresses.first(item.job_id)
        return shard if shard >= 0 else missing(item.job_id)

    def _op(self, items: list[Lease], key: str) -> Op:
        return self.verb.op.of(items, request_key=key, by=self._by)

    def _read(self, body: bytes) -> Sequence[Outcome | Rejected]:
        return read_results(body)
