"""Who looks after queues, jobs and nodes: pauses, limits, cancels, moves, joins, removes."""

from typing import Final

from corvo.protocol import wire
from tests.shard.shapes import Fields
from tests.sim.shards.callers import Caller


class Operator(Caller):
    """One of them, with a request key for each thing to be done."""

    _keys = 0

    def begin(self) -> None:
        """Do something now and then."""
        self.later(10 * self.random.random(), self._next)

    def _next(self) -> None:
        if self.world.is_draining:
            return
        self.later(self.random.expovariate(1 / 6), self._next)
        if not self.world.is_chaos:
            return
        if self.random.random() < 0.5:
            self._set_queue()
        else:
            self._touch_jobs()

    def ask(self, op: str, **fields: object) -> None:
        """Have one thing done, once."""
        self._keys += 1
        body: Fields = {**fields, "request_key": f"{self.name}-{self._keys}"}
        self.call(op, body, lambda _: None)

    def _set_queue(self) -> None:
        random = self.random
        queue = random.choice(self.world.clients.queues)
        match random.randrange(9):
            case 0:
                self.ask("Pause", queue=queue)
            case 1 | 2 | 3:
                self.ask("Resume", queue=queue)
            case 4 | 5:
                self.ask("SetConcurrency", queue=queue, max=random.choice((0, 1, 1, 3)))
            case 6:
                window_ms = random.choice((200, 1_000))
                self.ask(
                    "SetThrottle", queue=queue, rate=random.choice((1, 3)), window_ms=window_ms
                )
            case 7:
                self.ask("RemoveThrottle", queue=queue)
            case _:
                op = random.choice(("Drain", "Clear", "SetRetention"))
                more: Fields = {"retention_ms": 1_000} if op == "SetRetention" else {}
                self.ask(op, queue=queue, **more)

    def _touch_jobs(self) -> None:
        random, known = self.random, self.world.clients.known
        if not known:
            return
        # Young ones are more likely to be somewhere between the states.
        jobs = list(known)[-40:]
        picked = random.sample(jobs, min(len(jobs), random.choice((1, 1, 3))))
        op = random.choice(
            ("Cancel", "Cancel", "Retry", "Requeue", "Move", "Hold", "Approve", "Reject",
             "ChangePriority", "Delete")
        )  # fmt: skip
        more: Fields = {}
        if op == "Move":
            more = {"queue": random.choice(self.world.clients.queues)}
            if random.random() < 0.3:
                more["reset_attempts"] = True
        elif op == "ChangePriority":
            more = {"priority": random.randrange(3)}
        elif op == "Hold":
            more = {"reason": "to be looked at"}
        if op in {"Retry", "Delete"}:
            self.world.history.begun_anew(picked)
        self.ask(op, job_ids=picked, **more)

    def release_everything(self, held: list[str]) -> None:
        """Let all that waits for somebody's word go on."""
        if self.waits:
            return  # something that was asked for earlier might still come behind it
        for queue, settings in self.world.book.reference.queues.items():
            if settings.paused:
                self.ask("Resume", queue=queue)
            if settings.max_concurrency:
                self.ask("SetConcurrency", queue=queue, max=0)
            if settings.rate_limit:
                self.ask("RemoveThrottle", queue=queue)
        if held:
            self.ask("Approve", job_ids=held)


FIRST_NODES: Final = 3
NODES: Final = 6


class Nodes(Caller):
    """Nodes that start, under their own directory or another one; and who drains and removes them.

    These are not the machines of the run: the map alone is looked at, and nothing follows it.
    """

    def begin(self) -> None:
        """Change the map now and then."""
        self.later(10 * self.random.random(), self._next)

    def _next(self) -> None:
        if self.world.is_draining:
            return
        self.later(self.random.expovariate(1 / 8), self._next)
        if self.world.is_chaos:
            op, fields = self._drawn()
            self.call(op, fields, lambda _: None, again=op != "RemoveNode")

    def _drawn(self) -> tuple[str, Fields]:
        random = self.random
        number = random.randrange(1, NODES + 1)
        if random.random() < 0.5:
            return "Announce", self._announced(number)
        which: Fields = {"number": number} if random.random() < 0.7 else {"name": f"n{number}"}
        match random.randrange(6):
            case 0 | 1:
                return "DrainNode", which
            case 2 | 3:
                return "DrainNode", {**which, "is_draining": False}
            case 4:
                return "RemoveNode", {**which, "reason": "lost"}
            case _:
                return "SetReplicas", {"replicas": random.choice((1, 2, 3))}

    @property
    def _release(self) -> Fields:
        """Without schedules, nodes are of the first release."""
        return {"op_version": wire.OP_VERSION} if self.world.options.has("schedules") else {}

    def _announced(self, number: int) -> Fields:
        random = self.random
        is_first = number <= FIRST_NODES
        life = random.choice((0, 0, 0, 0, 1))
        return {
            "name": f"n{number}",
            "instance": f"directory {number} {life}",
            "zone": random.choice(("", "", "", "z")),
            **self._release,
            **({"number": number, "first": self._first()} if is_first else {}),
        }

    def _first(self) -> Fields:
        numbers = [1 + each for each in range(FIRST_NODES)]
        shards = self.world.options.shards
        return {
            "nodes": [{"number": number, "name": f"n{number}"} for number in numbers],
            "last_number": FIRST_NODES,
            **self._release,
            "places": [numbers[shard:] + numbers[:shard] for shard in range(shards)],
        }
