"""Sending jobs to be enqueued: each goes to the shard of its queue."""

from collections.abc import Sequence
from typing import Final

import msgspec

from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.router.http.messages import Problem
from corvo.router.shards.fan_out import FanOut

decode_enqueued: Final = msgspec.json.Decoder(EnqueueResults).decode


class EnqueueFanOut(FanOut[NewJob, Enqueued]):
    """Jobs to be created, each in the shard of its queue."""

    created = 0
    """Jobs that did not exist before."""

    def _settle(self, place: int, shard: int, outcome: Enqueued | Rejected | Problem) -> None:
        self.outcomes[place] = outcome
        if isinstance(outcome, Enqueued):
            self.created += not outcome.unique_existing
            chosen = self._item(place).id
            if chosen is not None:
                self._addresses.remember(chosen, shard)

    def _shard_of(self, item: NewJob) -> int:
        return shard_of_queue(item.queue, len(self._shards))

    def _op(self, items: list[NewJob], key: str) -> Enqueue:
        return Enqueue(jobs=items, request_key=key, by=self._by)

    def _read(self, body: bytes) -> Sequence[Enqueued]:
        return decode_enqueued(body).jobs
