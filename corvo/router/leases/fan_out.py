"""Sending lease operations on many jobs: each goes to the shard of its job, wherever that moves."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from corvo.ids import home_of
from corvo.protocol.ops.base import Op, Rejected
from corvo.router.http.messages import UNKNOWN, Problem
from corvo.router.http.problems import missing
from corvo.router.http.request_keys import NO_KEY, OwnedKey
from corvo.router.leases.verbs import Lease, LeaseVerb
from corvo.router.shards.addressing import Addresses, Search
from corvo.router.shards.fan_out import (
    FOLLOWING,
    NOT_SENT,
    NOTHING,
    About,
    FanOut,
    Part,
    digest_of,
    together,
)
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
        key: OwnedKey = NO_KEY,
        by: str = "",
    ) -> None:
        super().__init__(shards, addresses, items, body_bytes, key=key, by=by)
        self._named = NOTHING
        """The jobs of the request, for its key."""
        self._count = 0
        self._all = ""
        """A digest of the request, for its key."""
        if key.name:
            sent = [item for item in items if not isinstance(item, (Rejected, Problem))]
            ids = [item.job_id for item in sent]
            self._named = ("jobs", ids[0]) if len(ids) == 1 else ("many", digest_of(ids))
            self._all = digest_of(sent)
            self._count = len(sent)
        self.verb: Final = verb
        self._searches: dict[int, Search] = {}
        """Items that were sent more than once, by place."""
        self._unknown: dict[int, Problem] = {}
        """Items whose first request was not answered, by place."""
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
            for shard, places in by_shard.items():
                if not self.key.name:
                    self._begin_group(shard, NOTHING, places)
                    continue
                # Which of them are in one shard may be otherwise when the request comes again.
                for place in places:
                    part = Part(shard, [place], self._following(place))
                    self._begun.append(self._begin(part))
            await super().finish()

    async def _go_on(self, place: int) -> None:
        outcome = self.outcomes[place]
        self.outcomes[place] = NOT_SENT
        if not isinstance(outcome, Rejected):
            return  # to the same shard again
        try:
            following = self.key.of(*self._following(place))
            final = await self._searches[place].go_on(self._shards, outcome, following)
        except Problem as problem:
            # The search has changed nothing, but the first request may have.
            self.outcomes[place] = self._unknown.get(place, problem)
        else:
            if final is not None:
                self.outcomes[place] = final

    def _settle(self, place: int, shard: int, outcome: Outcome | Rejected | Problem) -> None:
        if isinstance(outcome, Problem) and place in self._unknown:
            # The second request may have changed nothing, but the first one may have.
            outcome = self._unknown[place]
        self.outcomes[place] = outcome
        item = self._item(place)
        if isinstance(outcome, Outcome):
            self._addresses.remember(item.job_id, shard)
        elif self._may_help(item, outcome, is_first=place not in self._searches):
            if isinstance(outcome, Problem):
                self._unknown[place] = outcome
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

    def _following(self, place: int) -> tuple[str, int, str]:
        kind, named = self._named
        return kind, FOLLOWING - place, named

    def _about(self, _: Lease) -> About:
        return self._named

    def _whole(self, _: About, places: Sequence[int], parts: int) -> str:
        return self._all if parts > 1 or len(places) < self._count else ""

    def _shard_of(self, item: Lease) -> int | Rejected:
        if self.key.name and home_of(item.job_id, len(self._shards)) is None:
            return 0  # not the one that is remembered, so that the request has the same parts again
        shard = self._addresses.first(item.job_id)
        return shard if shard >= 0 else missing(item.job_id)

    def _op(self, items: list[Lease]) -> Op:
        return self.verb.op.of(items, by=self._by)

    def _read(self, body: bytes) -> Sequence[Outcome | Rejected]:
        return read_results(body)
