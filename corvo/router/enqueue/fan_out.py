"""Sending jobs to be enqueued: each goes to the shard of its queue."""

from collections.abc import Sequence
from typing import Final

import msgspec

from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.router.http.bodies import key_of
from corvo.router.http.messages import Problem
from corvo.router.shards.addressing import Addresses
from corvo.router.shards.fan_out import FanOut
from corvo.router.shards.links import Shards

decode_enqueued: Final = msgspec.json.Decoder(EnqueueResults).decode


class EnqueueFanOut(FanOut[NewJob, Enqueued]):
    """Jobs to be created, each in the shard of its queue."""

    def __init__(
        self,
        shards: Shards,
        addresses: Addresses,
        items: Sequence[NewJob | Rejected | Problem],
        body_bytes: int,
        *,
        key: str = "",
        by: str = "",
    ) -> None:
        super().__init__(shards, items, body_bytes)
        self.created = 0
        """Jobs that did not exist before."""
        self._addresses: Final = addresses
        self._key: Final = key
        self._by: Final = by

    def _settle(self, place: int, shard: int, outcome: Enqueued | Rejected | Problem) -> None:
        self.outcomes[place] = outcome
        if isinstance(outcome, Enqueued):
            self.created += not outcome.unique_existing
            chosen = self._item(place).id
            if chosen is not None:
                self._addresses.remember(chosen, shard)

    def _shard_of(self, item: NewJob) -> int:
        return shard_of_queue(item.queue, len(self._shards))

    def _op(self, places: Sequence[int]) -> Enqueue:
        # Ops of other shards have other places, so that each has its own key; and the same request
        # again has the same places.
        key = key_of(self._key, places, len(self.items))
        return Enqueue(jobs=[self._item(place) for place in places], request_key=key, by=self._by)

    def _read(self, body: bytes) -> Sequence[Enqueued]:
        return decode_enqueued(body).jobs
