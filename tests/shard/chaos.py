"""Shards in which anything may happen next: clients, workers, restarts, and what links bring."""

from random import Random

from corvo.model import trace_of
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Approve, Cancel, Delete, Hold, Move, Reject, Retry
from corvo.protocol.ops.queues import DeleteQueue
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.shard.ops.upkeep import Lead, Promote, Reclaim, Sweep
from corvo.shard.state.tables import QUEUES as QUEUES_TABLE
from corvo.trace_context import TraceContext
from tests.shard.cluster import QUEUES, SHARDS, Cluster, Name, home_of, named
from tests.shard.replaying import TRACE
from tests.shard.shard import MS


class Chaos:
    """A cluster in which anything may happen next, and a note of which jobs there should be."""

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self.random = Random(seed)
        self.cluster = cluster
        self.alive: set[Name] = set()
        self.tokens: dict[Name, int] = {}
        """The greatest token that each job had."""
        self.traces: dict[Name, TraceContext | None] = {}
        for shard in self.cluster.shards:
            shard.clock_ns += self.random.randrange(-60_000, 60_000) * MS

    def step(self) -> None:
        """Anything."""
        weights = (8, 14, 8, 6, 2, 1, 2, 28)
        acts = (
            self.put,
            self.move,
            self.work,
            self.meddle,
            self.delete,
            self.delete_queue,
            self.restart,
            lambda: self.cluster.stray(self.random),
        )
        [act] = self.random.choices(acts, weights)
        act()

    def check(self) -> None:
        """What must hold after every step."""
        self.cluster.check_conserved(self.alive)
        for number, job in self.cluster.live():
            name = named(number, job)
            assert job.lease_token >= self.tokens.get(name, 0), "no token falls"
            self.tokens[name] = job.lease_token

    def end(self) -> None:
        """The network is well again, and everything comes to rest."""
        for shard in self.cluster.shards:
            for queue in shard.documents(QUEUES_TABLE):
                shard.do(Sweep(queue=queue.name, limit=1_000))
        self.cluster.settle()
        self.cluster.check_settled(self.alive)
        traces = {named(*there): trace_of(there[1]) for there in self.cluster.live()}
        assert traces == {name: self.traces[name] for name in self.alive}

    # What may happen.

    def put(self) -> None:
        queue = self.queue()
        shard = self.cluster.shards[home_of(queue)]
        chosen = self.random.choice([None, "x", "y"])
        key = self.random.choice(["", "", "k"])
        trace = self.random.choice([None, TRACE])
        job = NewJob(queue=queue, id=chosen, unique_key=key, unique_period_ms=5_000, trace=trace)
        before = [named(*there) for there in self.cluster.live()]
        shard.put(job)
        for made in [named(*there) for there in self.cluster.live()]:
            if made not in before:
                self.alive.add(made)
                self.traces[made] = trace
                self.tokens[made] = 0  # an id may be chosen again when its job is gone

    def move(self) -> None:
        number, job_id = self.any_job()
        op = Move(job_ids=[job_id], queue=self.queue(), reset_attempts=self.random.random() < 0.2)
        self.cluster.shards[number].do(op)

    def work(self) -> None:
        number = self.random.randrange(SHARDS)
        shard = self.cluster.shards[number]
        worked = [job for at, job in self.cluster.live() if at == number and job.lease_token]
        if not worked or self.random.random() < 0.5:
            for claim in shard.fetch(*QUEUES[number], count=2, lease_ms=10_000):
                name = named(number, shard.job(claim.job_id))
                assert claim.lease_token > self.tokens.get(name, 0), "every fetch has a new token"
                self.tokens[name] = claim.lease_token
            return
        job = self.random.choice(worked)
        token = self.random.choice([job.lease_token, max(1, job.lease_token - 1)])
        if self.random.random() < 0.5:
            shard.do(Ack(acks=[AckItem(job_id=job.id, lease_token=token)]))
        else:
            item = FailItem(job_id=job.id, lease_token=token, error="no", retry_after_ms=0)
            shard.do(Fail(fails=[item]))

    def meddle(self) -> None:
        number, job_id = self.any_job()
        make = self.random.choice([Cancel, Hold, Approve, Reject, Retry])
        shard = self.cluster.shards[number]
        shard.do(make(job_ids=[job_id]))
        shard.do(self.random.choice([Promote(limit=9), Reclaim(limit=9), Lead(grace_ms=5_000)]))
        shard.pass_time(self.random.choice([0, 1_000, 20_000]))

    def delete(self) -> None:
        number, job_id = self.any_job()
        gone = [
            named(at, job) for at, job in self.cluster.live() if (at, job.id) == (number, job_id)
        ]
        self.cluster.shards[number].do(Delete(job_ids=[job_id]))
        self.alive.difference_update(gone)

    def delete_queue(self) -> None:
        queue = self.queue()
        number = home_of(queue)
        shard = self.cluster.shards[number]
        live = [(at, job) for at, job in self.cluster.live() if at == number]
        gone = [named(at, job) for at, job in live if job.queue == queue]
        shard.do(DeleteQueue(queue=queue))
        self.alive.difference_update(gone)
        if self.random.random() < 0.5:
            shard.do(Sweep(queue=queue, limit=1))

    def restart(self) -> None:
        self.cluster.restart(self.random.randrange(SHARDS))

    def queue(self) -> str:
        return self.random.choice(self.random.choice(QUEUES))

    def any_job(self) -> tuple[int, str]:
        """A job where it is live, or an id in a shard where it may never have been."""
        live = [(number, job.id) for number, job in self.cluster.live()]
        if not live or self.random.random() < 0.1:
            return self.random.randrange(SHARDS), "x"
        return self.random.choice(live)


def run(seed: int, cluster: Cluster) -> Chaos:
    """Let anything happen for a while, and then all come to rest."""
    chaos = Chaos(seed, cluster)
    try:
        for number in range(chaos.random.randrange(20, 80)):
            chaos.step()
            chaos.check()
            if number == 15:
                cluster.check_together()
        chaos.end()
        cluster.check_together()
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    return chaos
