"""A make-believe cluster that keeps its promises, for histories that the checker must accept.

Clients call with random delays; answers get lost before or after the effect; calls are sent again
with the same request key; workers are slow, and come back with leases that have ended; listeners
are cut off and resume, or miss events and are told so. The rules are those of `chaos.model`, and
all time is made up.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Final

from msgspec.structs import replace

from chaos.history import (
    FORMAT,
    Args,
    Created,
    Delivered,
    Event,
    Feed,
    FinalDone,
    FinalJob,
    FinalMirror,
    FinalQueue,
    FinalReplica,
    Item,
    ItemResult,
    JobRow,
    NewJob,
    Node,
    Op,
    OpType,
    Phase,
    QueueRow,
    Record,
    Res,
    Run,
    fingerprint,
)
from chaos.model import (
    ACTIVE,
    FINISHED,
    HELD,
    MS,
    PENDING,
    RETRYING,
    SCHEDULED,
    WAITING,
    Model,
)

WALL: Final = 1_795_000_000_000_000_000
SECOND: Final = 1_000 * MS

Answer = tuple[OpType, Res, str]
"""Type, result and error code."""


@dataclass
class Held:
    """What the cluster knows of a job beside its state."""

    name: str
    number: int
    spec: NewJob
    shard: int
    token: int = 0
    lease_ns: int = 0
    lease_end: int = 0
    attempt: int = 0
    settled: dict[int, ItemResult] = field(default_factory=dict)


@dataclass
class Features:
    """How much of what happens."""

    lost: float = 0.06
    refused: float = 0.02
    keyed: float = 0.7
    slow: float = 0.05
    operators: bool = True
    outages: bool = True
    limits: bool = True
    delays: bool = True
    fails: float = 0.15


class World:
    """The cluster, its clients, and the history that they leave."""

    def __init__(
        self, seed: int, calls: int, sink: Callable[[Record], None],
        features: Features | None = None, *, shards: int = 2, queues: int = 4, nodes: int = 2,
        producers: int = 3, workers: int = 3,
    ) -> None:  # fmt: skip
        self.dice = Random(seed)
        self.features = features or Features()
        self.sink, self.calls_left = sink, calls
        self.now = SECOND
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.turn = 0
        self.shards, self.nodes = shards, [f"n{number}" for number in range(1, nodes + 1)]
        self.queues = [f"q{number}" for number in range(queues)]
        self.seq = [2] * shards
        self.clock = [WALL - 3 * SECOND] * shards
        self.skew = [self.dice.randrange(-5 * SECOND, 5 * SECOND) for _ in range(shards)]
        self.jobs: list[Held | None] = [None]
        self.by_name: dict[str, Held] = {}
        self.model = Model(lambda number: self.held(number).spec)
        self.due: list[list[tuple[int, int]]] = [[] for _ in range(shards)]
        self.leases: list[list[tuple[int, int]]] = [[] for _ in range(shards)]
        self.answers: dict[str, Answer] = {}
        self.entry: list[Event] = []
        self.cut: dict[str, int] = {}
        """Nodes whose listener is cut off, to the number of events that it will miss or get."""
        self.backlog: dict[str, list[Event]] = {node: [] for node in self.nodes}
        self.last_id = {node: self.positions() for node in self.nodes}
        self.n = 0
        self.producers = [f"p{number}" for number in range(producers)]
        self.workers = [f"w{number}" for number in range(workers)]

    def held(self, number: int) -> Held:
        """A job by its number."""
        held = self.jobs[number]
        assert held is not None
        return held

    # ---- time

    def after(self, delay: int, do: Callable[[], None]) -> None:
        """Do something later."""
        self.turn += 1
        heappush(self.agenda, (self.now + delay, self.turn, do))

    def delay(self) -> int:
        """The time that a message takes."""
        if self.dice.random() < self.features.slow:
            return self.dice.randrange(50 * MS, 400 * MS)
        return self.dice.randrange(200_000, 4 * MS)

    def run(self) -> None:
        """Make the history."""
        self.sink(
            Run(
                seed=1, version="made up", t=self.now, wall_ns=WALL, shards=self.shards,
                nodes=tuple(Node(name, "") for name in self.nodes), format=FORMAT,
            )
        )  # fmt: skip
        for node in self.nodes:
            self.sink(Feed(node=node, t=self.now, what="start", id=self.last_id[node]))
        self.sink(Phase(t=self.now, name="load"))
        for name in self.producers:
            self.after(self.delay(), lambda name=name: self.produce(name))  # type: ignore[misc]
        for name in self.workers:
            self.after(self.delay(), lambda name=name: self.work(name))  # type: ignore[misc]
        if self.features.operators:
            self.after(20 * MS, lambda: self.operate("o1"))
        self.after(5 * MS, self.upkeep)
        if self.features.outages:
            self.after(50 * MS, self.cut_off)
        while self.agenda:
            self.now, _, do = heappop(self.agenda)
            do()
            assert not self.model.blames, self.model.blames
        self.finish()

    # ---- the server: entries and events

    def positions(self) -> str:
        """The id of the present, in all shards."""
        return ",".join(
            f"s{shard}={seq}-{self.digest(shard, seq):08x}" for shard, seq in enumerate(self.seq)
        )

    @staticmethod
    def digest(shard: int, seq: int) -> int:
        """A digest of the state of a shard after an entry."""
        return zlib.crc32(b"%d %d" % (shard, seq))

    def open_entry(self, shard: int) -> int:
        """A new entry of a shard's log; its time."""
        self.seq[shard] += 1
        self.clock[shard] = max(self.clock[shard], WALL + self.now + self.skew[shard])
        self.entry = []
        return self.clock[shard]

    def emit(self, kind: str, held: Held | None, queue: str, shard: int, **more: str) -> None:
        """An event of the present entry."""
        number = 0 if held is None else held.number
        state = "" if held is None else self.model.state(number)
        job = self.model.jobs.get(number)
        if held is not None and job is not None:
            held.attempt = job.attempt
        self.entry.append(
            Event(
                node="", t=0, id="", shard=shard, seq=self.seq[shard], number=len(self.entry) + 1,
                type=kind, at_ns=self.clock[shard], queue=queue,
                job_id="" if held is None else held.name,
                state=more.get("state", state), by=more.get("by", ""), why=more.get("why", ""),
                attempt=0 if held is None else held.attempt,
            )
        )  # fmt: skip

    def close_entry(self, shard: int) -> None:
        """Send the events of the entry to all listeners."""
        seq = self.seq[shard]
        for node in self.nodes:
            for place, event in enumerate(self.entry, 1):
                position = f"s{shard}={seq}-{self.digest(shard, seq):08x}"
                if place < len(self.entry):
                    position = f"s{shard}={seq - 1}-{self.digest(shard, seq - 1):08x}.{place}"
                sent = replace(event, node=node, t=self.now + 1_000, id=position)
                if node in self.cut:
                    self.backlog[node].append(sent)
                else:
                    self.last_id[node] = position
                    self.sink(sent)
        self.entry = []

    def cut_off(self) -> None:
        """A listener loses its connection, and resumes, or is told that events are gone."""
        if self.calls_left <= 0:
            return
        node = self.dice.choice(self.nodes)
        if node not in self.cut:
            self.cut[node] = 1
            self.sink(Feed(node=node, t=self.now, what="end", why="cut"))
            self.after(self.dice.randrange(10 * MS, 100 * MS), lambda: self.resume(node))
        self.after(self.dice.randrange(50 * MS, 300 * MS), self.cut_off)

    def resume(self, node: str) -> None:
        """A listener comes back."""
        del self.cut[node]
        missed, self.backlog[node] = self.backlog[node], []
        self.sink(Feed(node=node, t=self.now, what="resume", id=self.last_id[node]))
        if node != self.nodes[0] and self.dice.random() < 0.3:  # the first one misses nothing
            self.last_id[node] = self.positions()
            shards = tuple(range(self.shards))
            gone = Feed(node=node, t=self.now, what="gone", id=self.last_id[node], shards=shards)
            self.sink(gone)
            return
        for event in missed:
            self.last_id[node] = event.id
            self.sink(replace(event, t=self.now + 1_000))

    def home(self, queue: str) -> int:
        """The shard of a queue."""
        return self.queues.index(queue) % self.shards

    def upkeep(self) -> None:
        """Promote what is due, and end leases."""
        for shard in range(self.shards):
            at = max(self.clock[shard], WALL + self.now + self.skew[shard])
            self.promote(shard, at)
            self.reclaim(shard, at)
        if self.calls_left > 0 or len(self.agenda) > 0:
            self.after(5 * MS, self.upkeep)

    def promote(self, shard: int, at: int) -> None:
        """Scheduled and retrying jobs that are due."""
        due, ready = self.due[shard], []
        while due and due[0][0] <= at:
            when, number = heappop(due)
            job = self.model.jobs.get(number)
            if job is not None and job.state in (SCHEDULED, RETRYING) and job.due == when:
                ready.append(number)
        if ready:
            at = self.open_entry(shard)
            for number in ready:
                held = self.held(number)
                if self.model.state(number) not in (SCHEDULED, RETRYING):
                    continue
                self.model.promote(number, at, is_early=False)
                self.emit("promoted", held, held.spec.queue, shard)
            self.close_entry(shard)

    def reclaim(self, shard: int, at: int) -> None:
        """Leases that have ended."""
        leases = self.leases[shard]
        while leases and leases[0][0] <= at:
            end, number = heappop(leases)
            held, job = self.held(number), self.model.jobs.get(number)
            if job is None or job.state != ACTIVE or held.lease_end != end:
                continue
            at = self.open_entry(shard)
            if job.is_asked:
                self.model.cancel(number)
                self.emit("cancelled", held, held.spec.queue, shard)
            else:
                state = HELD if job.crashes + 1 >= held.spec.max_crashes else PENDING
                self.model.crash(number, at, state)
                self.emit("crashed", held, held.spec.queue, shard)
            self.close_entry(shard)

    # ---- the server: what calls do

    def enqueue(self, jobs: tuple[NewJob, ...]) -> Answer:
        """Create jobs of one queue."""
        shard = self.home(jobs[0].queue)
        at = self.open_entry(shard)
        created = []
        for spec in jobs:
            if spec.unique_key:
                holder = self.model.jobs.get(self.model.locks.get((spec.queue, spec.unique_key), 0))
                if holder is not None and holder.key_until > at:
                    name = self.held(holder.id).name
                    created.append(Created(job_id=name, status="duplicate", existing=True))
                    continue
            if spec.id in self.by_name:
                held = self.by_name[spec.id]
                state = self.model.state(held.number)
                created.append(Created(job_id=held.name, status=state, existing=True))
                continue
            number = len(self.jobs)
            name = spec.id or f"s{shard:02}_job_{number:06}"
            held = Held(name, number, spec, shard)
            self.jobs.append(held)
            self.by_name[name] = held
            state = SCHEDULED if spec.delay_ms else PENDING
            self.model.enqueue(number, spec.queue, state, spec, at)
            if spec.delay_ms:
                heappush(self.due[shard], (self.model.jobs[number].due, number))
            self.emit("enqueued", held, spec.queue, shard)
            created.append(Created(job_id=name, status=state))
        self.close_entry(shard)
        return "ok", Res(created=tuple(created)), ""

    def fetch(self, queue: str, worker: str, count: int, lease_ms: int) -> Answer:
        """Give out jobs."""
        shard = self.home(queue)
        at = self.open_entry(shard)
        delivered = []
        for _ in range(count):
            number = self.model.next_of(queue, at)
            if not number or self.model.may_start(queue, at) is not None:
                break
            held, job = self.held(number), self.model.jobs[number]
            held.token = self.seq[shard] << 9
            held.lease_ns = lease_ms * MS
            held.lease_end = at + held.lease_ns
            self.model.start(number, at, job.attempt + 1, held.lease_ns, None)
            heappush(self.leases[shard], (held.lease_end, number))
            self.emit("started", held, queue, shard, by=worker)
            delivered.append(
                Delivered(
                    job_id=held.name, queue=queue, attempt=job.attempt, token=held.token,
                    expires_ns=held.lease_end, mark=held.spec.mark, sha=held.spec.sha,
                    max_retries=held.spec.max_retries,
                )
            )  # fmt: skip
        self.close_entry(shard)
        return "ok", Res(delivered=tuple(delivered)), ""

    def report(self, f: str, item: Item) -> Answer:
        """A worker's call about a job."""
        held = self.by_name[item.job_id]
        shard = held.shard
        at = self.open_entry(shard)
        if item.token in held.settled:
            return self.repeated(f, item, held)
        job = self.model.jobs.get(held.number)
        lost = job is None or job.state != ACTIVE or held.token != item.token
        if job is None or lost or at >= held.lease_end:
            refused = ItemResult(
                job_id=held.name, code="LEASE_LOST", outcome="not_applied", reason="lease_lost"
            )
            return "fail", Res(items=(refused,)), "LEASE_LOST"
        answer = self.reported(f, item, held, at)
        if f != "heartbeat":
            held.settled = {item.token: answer, **held.settled}
            held.settled[-1] = ItemResult(job_id=f)
            self.close_entry(shard)
        return "ok", Res(items=(answer,)), ""

    def repeated(self, f: str, item: Item, held: Held) -> Answer:
        """The same call again, or another one under a lease that its worker ended."""
        if held.settled[-1].job_id == f and max(held.settled) == item.token:
            return "ok", Res(items=(held.settled[item.token],)), ""
        refused = ItemResult(
            job_id=held.name, code="LEASE_LOST", outcome="not_applied", reason="lease_lost"
        )
        return "fail", Res(items=(refused,)), "LEASE_LOST"

    def reported(self, f: str, item: Item, held: Held, at: int) -> ItemResult:
        """A worker's call under a lease that lasts."""
        number, queue, shard = held.number, held.spec.queue, held.shard
        job = self.model.jobs[number]
        if f == "heartbeat":
            held.lease_end = max(held.lease_end, at + held.lease_ns)
            self.model.renew(number, held.lease_end)
            heappush(self.leases[shard], (held.lease_end, number))
            return ItemResult(job_id=held.name, status="ok", expires_ns=held.lease_end)
        if f == "ack":
            self.model.complete(number, at)
            self.emit("completed", held, queue, shard)
            return ItemResult(job_id=held.name, status="ok", state="completed")
        if job.is_asked:
            self.model.cancel(number)
            self.emit("cancelled", held, queue, shard)
            return ItemResult(job_id=held.name, status="cancelled")
        if f == "release":
            self.model.release(number, at)
            self.emit("released", held, queue, shard)
            return ItemResult(job_id=held.name, status="ok", state="pending")
        if f == "snooze":
            self.model.snooze(number, at, item.delay_ms or 0)
            heappush(self.due[shard], (job.due, number))
            self.emit("snoozed", held, queue, shard)
            return ItemResult(job_id=held.name, status="ok", state="scheduled")
        if item.retryable and job.attempt < held.spec.max_retries:
            self.model.fail(number, at, retry_after_ms=item.retry_after_ms)
            heappush(self.due[shard], (job.due, number))
            self.emit("failed", held, queue, shard)
            return ItemResult(job_id=held.name, status="retrying", next_ns=job.due)
        self.model.die(number, at, is_final=not item.retryable)
        self.emit("dead", held, queue, shard)
        return ItemResult(job_id=held.name, status="dead")

    def operated(self, f: str, name: str, number: int) -> Answer:
        """An operator's call about a job."""
        held = self.by_name[name]
        shard, queue = held.shard, held.spec.queue
        at = self.open_entry(shard)
        state = self.model.state(held.number)
        status = ""
        if f == "cancel" and state in (*WAITING, HELD):
            self.model.cancel(held.number)
            self.emit("cancelled", held, queue, shard)
            status = "cancelled"
        elif f == "cancel" and state == ACTIVE:
            self.model.ask_to_stop(held.number)
            self.emit("asked_to_stop", held, queue, shard)
            status = "cancelling"
        elif f == "hold" and state in (*WAITING, ACTIVE):
            self.model.hold(held.number)
            self.emit("held", held, queue, shard)
            status = "held"
        elif f == "approve" and state == HELD:
            self.model.approve(held.number)
            self.emit("approved", held, queue, shard)
            status = "pending"
        elif f == "retry" and state in FINISHED and not held.spec.unique_key:
            self.model.retry(held.number, queue, at, is_whole=True)
            self.emit("retried", held, queue, shard)
            status = "retried"
        elif f == "priority" and state in (*WAITING, HELD):
            before = self.model.jobs[held.number].priority
            self.model.prioritise(held.number, before, number)
            self.emit("priority", held, queue, shard, why=f"from {before} to {number}")
            status = "ok"
        self.close_entry(shard)
        if status:
            return "ok", Res(items=(ItemResult(job_id=name, status=status),)), ""
        refused = ItemResult(job_id=name, code=f"{f.upper()}_ERROR", outcome="not_applied")
        return "fail", Res(items=(refused,)), refused.code

    def limited(self, f: str, queue: str, number: int) -> Answer:
        """A call about a queue."""
        shard = self.home(queue)
        self.open_entry(shard)
        held = self.model.queue(queue)
        kind, status = "queue.changed", "ok"
        if f in ("pause", "resume"):
            held.is_paused = f == "pause"
            kind = status = "queue.paused" if f == "pause" else "queue.resumed"
        elif f == "concurrency":
            held.cap = number
        elif f == "throttle":
            self.model.limit(queue, held.cap, number, 50)
        else:
            self.model.limit(queue, held.cap, 0, 0)
        self.emit(kind, None, queue, shard)
        self.close_entry(shard)
        return "ok", Res(status=status), ""

    # ---- clients

    def call(
        self, client: str, f: str, args: Args, shard: int, effect: Callable[[], Answer],
        then: Callable[[Op], None], *, keyed: bool = True, tried: Op | None = None,
    ) -> None:  # fmt: skip
        """Call, and go on with the answer, or with none."""
        self.calls_left -= 1
        self.n += 1
        is_keyed = keyed and self.dice.random() < self.features.keyed
        op = Op(
            n=self.n, client=client, session=client, f=f, args=args, t_inv=self.now, type="info",
            op_id=f"{client}.{self.n}" if tried is None else tried.op_id,
            try_=1 if tried is None else tried.try_ + 1,
            keyed=is_keyed if tried is None else tried.keyed, node=self.nodes[0],
        )  # fmt: skip
        fate = self.dice.random()

        def happens() -> Answer:
            if op.keyed and op.op_id in self.answers:
                return self.answers[op.op_id]
            answer = effect()
            if op.keyed and answer[0] == "ok" and (f != "fetch" or answer[1].delivered):
                self.answers[op.op_id] = answer
            return answer

        def again(op: Op) -> None:
            self.sink(op)
            if op.keyed and op.try_ < 4 and op.f != "fetch":
                wait = self.dice.randrange(1 * MS, 30 * MS)
                self.after(
                    wait,
                    lambda: self.call(client, f, args, shard, effect, then, tried=op),
                )
            else:
                then(op)

        if fate < self.features.refused:
            wait = self.delay()

            def refuse() -> None:
                again(
                    replace(
                        op, type="fail", t_ret=self.now, http=503, code="LEADER_UNAVAILABLE",
                        outcome="not_applied",
                    )
                )  # fmt: skip

            self.after(wait, refuse)
        elif fate < self.features.refused + self.features.lost:
            if self.dice.random() < 0.6:
                self.after(self.delay() * self.dice.randrange(1, 20), lambda: void(happens()))
            self.after(self.dice.randrange(5 * MS, 60 * MS), lambda: again(op))
        else:

            def arrive() -> None:
                kind, res, code = happens()
                done = replace(
                    op, type=kind, res=res, code=code, http=200 if kind == "ok" else 409,
                    outcome="not_applied" if kind == "fail" else "",
                    seq={str(shard): self.seq[shard]},
                )  # fmt: skip

                def back() -> None:
                    final = replace(done, t_ret=self.now)
                    self.sink(final)
                    then(final)

                self.after(self.delay(), back)

            self.after(self.delay(), arrive)

    def spec(self, mark: str, queue: str) -> NewJob:
        """A job."""
        dice = self.dice
        key, delay, name = "", 0, ""
        if dice.random() < 0.1:
            key = f"k{dice.randrange(3)}"
        if self.features.delays and dice.random() < 0.1:
            delay = dice.randrange(1, 60)
        if dice.random() < 0.1:
            name = f"{queue}~{mark.replace('/', '.')}"
        return NewJob(
            queue=queue, mark=mark, sha=fingerprint(mark.encode()), unique_key=key, delay_ms=delay,
            id=name, priority=dice.choice((0, 1, 2, 2, 2, 2)), base_ms=dice.choice((1, 20)),
            max_retries=dice.choice((1, 3, 3)), max_crashes=dice.choice((2, 5)), unique_ms=100_000,
            backoff=dice.choice(("none", "fixed", "linear", "exponential")),
        )  # fmt: skip

    def produce(self, client: str) -> None:
        """A producer's next enqueue."""
        if self.calls_left <= 0:
            return
        queue = self.dice.choice(self.queues)
        number = self.dice.choice((1, 1, 1, 1, 5))
        first = self.n + 1
        jobs = tuple(self.spec(f"{client}.{first}/{at}", queue) for at in range(number))
        self.call(
            client, "enqueue", Args(jobs=jobs), self.home(queue), lambda: self.enqueue(jobs),
            lambda op: self.after(self.dice.randrange(1, 8 * MS), lambda: self.produce(client)),
        )  # fmt: skip

    def work(self, client: str) -> None:
        """A worker's next fetch."""
        if self.calls_left <= 0:
            return
        queue = self.dice.choice(self.queues)
        count, lease_ms = self.dice.choice((1, 1, 3)), self.dice.choice((30, 2000))
        args = Args(queues=(queue,), worker=client, count=count, lease_ms=lease_ms)
        self.call(
            client, "fetch", args, self.home(queue),
            lambda: self.fetch(queue, client, count, lease_ms),
            lambda op: self.got(client, list(op.res.delivered)), keyed=False,
        )  # fmt: skip

    def got(self, client: str, jobs: list[Delivered]) -> None:
        """A worker works, one job after the other."""
        if not jobs:
            self.after(self.dice.randrange(1, 10 * MS), lambda: self.work(client))
            return
        job = jobs.pop()
        fate = self.dice.random()
        if fate < 0.03:
            self.got(client, jobs)  # it forgets the job
            return
        f = "ack"
        if fate > 1 - self.features.fails:
            f = self.dice.choice(("fail", "release", "snooze"))
        item = Item(job_id=job.job_id, token=job.token)
        if f == "fail":
            item = replace(item, retryable=self.dice.random() < 0.8)
        elif f == "snooze":
            item = replace(item, delay_ms=self.dice.randrange(1, 30))

        def end() -> None:
            shard = self.by_name[job.job_id].shard
            self.call(
                client, f, Args(items=(item,), worker=client), shard, lambda: self.report(f, item),
                lambda op: self.got(client, jobs),
            )  # fmt: skip

        def beat(op: Op) -> None:
            self.after(self.dice.randrange(1, 20 * MS), end)

        if self.dice.random() < 0.2:
            plain = Item(job_id=job.job_id, token=job.token)
            args = Args(items=(plain,), worker=client)
            shard = self.by_name[job.job_id].shard
            self.call(
                client, "heartbeat", args, shard, lambda: self.report("heartbeat", plain), beat,
                keyed=False,
            )  # fmt: skip
        else:
            self.after(self.dice.randrange(1, 40 * MS), end)

    def operate(self, client: str) -> None:
        """An operator's next call."""
        if self.calls_left <= 0:
            return

        def then(op: Op) -> None:
            self.after(self.dice.randrange(1, 40 * MS), lambda: self.operate(client))

        if self.features.limits and self.dice.random() < 0.4:
            f = self.dice.choice(("pause", "resume", "concurrency", "throttle", "unthrottle"))
            queue, number = self.dice.choice(self.queues), self.dice.randrange(1, 6)
            args = Args(queue=queue, number=number, window_ms=50 if f == "throttle" else 0)
            home = self.home(queue)
            self.call(client, f, args, home, lambda: self.limited(f, queue, number), then)
        elif len(self.jobs) > 1:
            f = self.dice.choice(("cancel", "hold", "approve", "retry", "priority"))
            held = self.held(self.dice.randrange(1, len(self.jobs)))
            number = self.dice.randrange(3)
            args = Args(items=(Item(job_id=held.name),), number=number)
            self.call(
                client, f, args, held.shard, lambda: self.operated(f, held.name, number), then
            )
        else:
            self.after(5 * MS, lambda: self.operate(client))

    # ---- the end

    def finish(self) -> None:
        """Read all."""
        for node in self.nodes:
            if node in self.cut:
                self.resume(node)
            self.sink(Feed(node=node, t=self.now, what="id", id=self.positions()))
        self.sink(Phase(t=self.now, name="quiet"))
        counts: dict[str, dict[str, int]] = {}
        for held in self.jobs[1:]:
            assert held is not None
            state = self.model.state(held.number)
            job = self.model.jobs.get(held.number)
            row = JobRow(
                job_id=held.name, queue=held.spec.queue, state=state, mark=held.spec.mark,
                sha=held.spec.sha, attempt=held.attempt,
                priority=held.spec.priority if job is None else job.priority,
            )  # fmt: skip
            counts.setdefault(row.queue, {}).setdefault(state, 0)
            counts[row.queue][state] += 1
            self.sink(FinalJob(source="shard", node=self.nodes[0], row=row))
            for node in self.nodes:
                self.sink(FinalJob(source="mirror", node=node, row=row))
        for node in self.nodes:
            as_of = {str(shard): seq for shard, seq in enumerate(self.seq)}
            self.sink(FinalMirror(node=node, as_of=as_of, total=len(self.jobs) - 1))
            for shard, seq in enumerate(self.seq):
                digest = f"{self.digest(shard, seq):08x}"
                self.sink(FinalReplica(node=node, shard=shard, index=seq, digest=digest))
            for queue, states in counts.items():
                paused = bool(self.model.queue(queue).is_paused)
                row_of = QueueRow(name=queue, paused=paused, enqueued=sum(states.values()))
                for state, number in states.items():
                    row_of = with_count(row_of, state, number)
                self.sink(FinalQueue(node=node, row=row_of))
        self.sink(FinalDone(t=self.now, jobs=len(self.jobs) - 1, drained=False))


def with_count(row: QueueRow, state: str, number: int) -> QueueRow:
    """A queue with the count of one state."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    fields[state] = number
    return QueueRow(**fields)


def void(answer: Answer) -> None:
    """An answer that gets lost."""


def history_of(
    seed: int, calls: int, features: Features | None = None, **more: int
) -> list[Record]:
    """A history in memory."""
    records: list[Record] = []
    World(seed, calls, records.append, features, **more).run()
    return records


def histories(seeds: range, calls: int) -> Iterator[list[Record]]:
    """Many of them."""
    for seed in seeds:
        yield history_of(seed, calls)
