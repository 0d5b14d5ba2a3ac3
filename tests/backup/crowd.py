"""Shards with jobs of every kind, and effects between them that are on their way."""

from random import Random
from typing import Final

import msgspec

from corvo.ids import full_id, shard_of
from corvo.model import FINISHED, State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Cancel, Delete, Hold, Move, Reject, Retry
from corvo.protocol.ops.queues import Clear
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.protocol.ops.workflow import Chain, NewBatch, Step
from corvo.shard.ops.transfer import Delivered
from corvo.shard.ops.upkeep import Sweep
from corvo.shard.state import outbox
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tables import QUEUES as QUEUES_TABLE
from tests.shard.cluster import QUEUES, SHARDS, Cluster, home_of

NAMES: Final = tuple(name for names in QUEUES for name in names)


class Crowd:
    """A cluster in which clients and workers do anything next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster()
        self.batches: list[str] = []
        self.known: list[str] = []
        self.held: dict[tuple[int, int], int] | None = None
        """Last effects that were sent before a hold, by source and target."""
        self._number = 0

    def hold(self) -> None:
        """From now on no effect leaves, and none is removed; some are under way."""
        self.held = {
            (source, row.shard): row.seq
            for source, shard in enumerate(self.cluster.shards)
            for row in self.cluster.outbox(shard)
        }

    def step(self) -> None:
        """Anything."""
        acts = (self.put, self.move, self.work, self.meddle, self.relay)
        [act] = self.random.choices(acts, (10, 6, 10, 4, 8))
        act()

    def put(self) -> None:
        queue = self.queue()
        shard = self.cluster.shards[home_of(queue)]
        count, batch = self.random.randrange(1, 4), None
        if self.random.random() < 0.25:
            batch = NewBatch(callback_queue=self.queue(), queue=queue)
            jobs = [NewJob(queue=queue)] * count
        else:
            jobs = [self.new(queue) for _ in range(count)]
        made = shard.do(Enqueue(jobs=jobs, batch=batch, has_full_ids=True))
        if isinstance(made, Rejected):
            return  # the batch that was to be joined has ended
        self.known += [each.job_id for each in made.jobs]
        if made.batch_id:
            self.batches.append(made.batch_id)

    def new(self, queue: str) -> NewJob:
        self._number += 1
        new = NewJob(queue=queue, payload=msgspec.Raw(b'{"n":%d}' % self._number))
        kind = self.random.random()
        if kind < 0.15:
            steps = [Step(queue=queue), Step(queue=self.queue()), Step(queue=self.queue())]
            chain = Chain(steps=steps, on_failure=Step(queue=self.queue()))
            return msgspec.structs.replace(new, chain=chain)
        if kind < 0.4 and self.known:
            awaited = self.random.sample(self.known, min(2, len(self.known)))
            return msgspec.structs.replace(new, depends_on=tuple(awaited))
        here = [each for each in self.batches if shard_of(each) == home_of(queue)]
        if kind < 0.5 and here:
            return msgspec.structs.replace(new, batch_id=self.random.choice(here))
        if kind < 0.6:
            return msgspec.structs.replace(
                new, id=full_id(queue, f"own-{self._number}"), delay_ms=5_000
            )
        if kind < 0.7:
            return msgspec.structs.replace(new, unique_key=f"key-{self._number}", priority=0)
        return new

    def move(self) -> None:
        live = [(number, job.id) for number, job in self.cluster.live()]
        if live:
            number, job_id = self.random.choice(live)
            self.cluster.shards[number].do(Move(job_ids=[job_id], queue=self.queue()))

    def work(self) -> None:
        number = self.random.randrange(SHARDS)
        shard = self.cluster.shards[number]
        shard.fetch(*QUEUES[number], count=2, lease_ms=600_000)
        active = [job for job in shard.documents(JOBS) if job.state is State.ACTIVE]
        if not active:
            return
        job = self.random.choice(active)
        if self.random.random() < 0.7:
            shard.do(Ack(acks=[AckItem(job_id=job.id, lease_token=job.lease_token)]))
        else:
            item = FailItem(job_id=job.id, lease_token=job.lease_token, error="no")
            shard.do(Fail(fails=[item]))

    def meddle(self) -> None:
        live = [(number, job) for number, job in self.cluster.live()]
        if not live:
            return
        number, job = self.random.choice(live)
        shard = self.cluster.shards[number]
        makes = [Cancel, Hold, Approve, Reject, Delete]
        if job.state in FINISHED:
            makes = [Retry, Delete]
        shard.do(self.random.choice(makes)(job_ids=[job.id]))
        if self.random.random() < 0.1:
            shard.do(Clear(queue=job.queue))

    def relay(self) -> None:
        """Bring some effects, in order, and perhaps tell their shards."""
        for source, shard in enumerate(self.cluster.shards):
            rows = self.cluster.outbox(shard)
            for target in range(SHARDS):
                taken = outbox.last_taken(self.cluster.shards[target].tx, source)
                last = max((row.seq for row in rows if row.shard == target), default=0)
                if self.held is not None:
                    last = self.held.get((source, target), 0)
                new = [row for row in rows if row.shard == target and taken < row.seq <= last]
                some = new[: self.random.randrange(3)]
                if some:
                    assert self.cluster.bring(source, some) == some[-1].seq
                    if self.held is None and self.random.random() < 0.5:
                        shard.do(Delivered(shard=target, seq=some[-1].seq))

    def end(self) -> None:
        """Everything comes to rest; jobs that were cleared are removed."""
        for _ in range(3):
            self.cluster.settle()
            for shard in self.cluster.shards:
                for queue in shard.documents(QUEUES_TABLE):
                    shard.do(Sweep(queue=queue.name, limit=1_000))
        self.cluster.settle()

    def queue(self) -> str:
        return self.random.choice(NAMES)

    def is_gone(self, job_id: str) -> bool:
        """Whether a job was deleted or cleared."""
        return all(job.id != job_id for _, job in self.cluster.live())
