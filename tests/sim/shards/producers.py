"""Who enqueues: single jobs and batches, with all options, most of the time under a request key."""

from functools import partial
from typing import TYPE_CHECKING

from tests.shard.shapes import Fields, rows, text
from tests.sim.options import MS
from tests.sim.shards.callers import Caller
from tests.sim.shards.clock import BEGIN_NS

if TYPE_CHECKING:
    from tests.sim.shards.world import ShardWorld


class Producer(Caller):
    """One of them. It goes on whether or not earlier requests are answered."""

    def __init__(self, world: "ShardWorld", name: str) -> None:
        super().__init__(world, name)
        self._made = 0
        self._keys = 0

    def begin(self) -> None:
        """Enqueue again and again."""
        self.later(self.random.random(), self._next)

    def _next(self) -> None:
        world, random = self.world, self.random
        if world.is_draining:
            return
        pace = world.options.pace * (1 if world.is_chaos else 5)
        self.later(random.expovariate(1 / pace), self._next)
        self.enqueue(count=random.choice((1, 1, 1, 2, 5)))

    def enqueue(self, *, count: int = 1) -> None:
        """Enqueue some jobs, all or none."""
        fields: Fields = {"jobs": [self._new_job() for _ in range(count)]}
        is_keyed = self.random.random() < 0.8
        if is_keyed:
            self._keys += 1
            fields["request_key"] = f"{self.name}-{self._keys}"
        self.call("Enqueue", fields, partial(self._done, fields), again=is_keyed)

    def _done(self, fields: Fields, answer: Fields | None) -> None:
        if answer is None or "code" in answer:
            return
        for made in rows(answer, "jobs"):
            self.world.clients.know(text(made, "job_id"))
        if "request_key" in fields and self.random.random() < 0.1:
            self._say_again(fields)

    def _say_again(self, fields: Fields) -> None:
        """The same once more, or something else under the same key."""
        if self.random.random() < 0.3:
            fields = {**fields, "jobs": [self._new_job()]}
        self.call("Enqueue", fields, lambda _: None)

    def _new_job(self) -> Fields:
        world, random = self.world, self.random
        self._made += 1
        job: Fields = {
            "queue": random.choice(world.clients.queues),
            "payload": {"n": f"{self.name}-{self._made}"},
            "retry_base_delay_ms": random.choice((50, 300)),
            "retry_max_delay_ms": 1_500,
        }
        options: list[Fields] = [
            {"priority": random.choice((0, 1))},
            {"max_retries": random.choice((0, 1, 2, 5))},
            {"retry_backoff": random.choice(("none", "fixed", "linear", "exponential"))},
            {"retry_jitter": 30},
            {"max_run_time_ms": random.choice((500, 2_000))},
            {"max_crashes": random.choice((1, 2))},
            {
                "unique_key": random.choice(("u0", "u1")),
                "unique_period_ms": random.choice((500, 5_000)),
            },
            {"scheduled_ns": BEGIN_NS + world.now + random.randrange(-1_000, 3_000) * MS},
            {
                "expire_after_ms": random.choice((700, 4_000)),
                "expire_active": random.random() < 0.3,
            },
            {"id": f"c{random.randrange(20)}"},
        ]
        for option in options:
            if random.random() < 0.12:
                job |= option
        return job
