"""A mix of everything that a shard can be asked for, one thing at a time, as dice decide."""

from collections import deque
from random import Random
from typing import Final, TypeAlias

import msgspec

from corvo.link import LinkClient
from corvo.protocol import wire
from corvo.protocol.ops.work import Claims
from corvo.shard.ops import NUMBERS

Fields: TypeAlias = dict[str, object]

NUMBER_OF: Final = {op.__name__: number for op, number in NUMBERS.items()}
QUEUES: Final = ("mail", "sms", "push", "fax", "post", "wire")
"""Some on each shard: a move crosses, and so does a chain."""
_WORDS: Final = ("rook", "raven", "jay", "ünïcode", 'it\'s "quoted"', "100%", "a\\b", "naïve 日本")
_KNOWN_MAX: Final = 400


class Given(msgspec.Struct):
    """A job that was given out."""

    job_id: str
    lease_token: int


class Errands:
    """Asks one shard."""

    def __init__(self, dice: Random, queues: tuple[str, ...]) -> None:
        self._dice = dice
        self._queues = queues
        self._known: deque[str] = deque(maxlen=_KNOWN_MAX)
        self._given: deque[Given] = deque(maxlen=_KNOWN_MAX)
        self.refused: dict[str, int] = {}
        self.done = 0

    async def run(self, client: LinkClient) -> None:
        """Do one."""
        name, fields = self._choose()
        answer = await client.submit(NUMBER_OF[name], msgspec.json.encode(fields))
        if not isinstance(answer, wire.Reply):
            code = type(answer).__name__
        elif answer.code:
            code = f"{name}: {answer.code}"
        else:
            self.done += 1
            self._learn(name, answer.body)
            return
        self.refused[code] = self.refused.get(code, 0) + 1

    def _learn(self, name: str, body: bytes) -> None:
        if name == "Enqueue":
            jobs = msgspec.json.decode(body)["jobs"]
            self._known.extend(job["job_id"] for job in jobs)
        elif name == "Fetch":
            claims = msgspec.json.decode(body, type=Claims).jobs
            self._given.extend(Given(claim.job_id, claim.lease_token) for claim in claims)

    def _choose(self) -> tuple[str, Fields]:
        roll = self._dice.random()
        if roll < 0.3 or not self._known:
            return self._enqueue()
        if roll < 0.5 or not self._given:
            return "Fetch", {
                "queues": self._dice.sample(self._queues, k=min(2, len(self._queues))),
                "count": self._dice.randint(1, 6),
                "worker_id": self._dice.choice(["", "w0", "w1"]),
                "hostname": self._dice.choice(["", "host"]),
                "lease_ms": self._dice.choice([1_000, 60_000, 60_000]),
            }
        if roll < 0.78:
            return self._word()
        if roll < 0.95:
            return self._order()
        return self._of_queue()

    def _enqueue(self) -> tuple[str, Fields]:
        fields: Fields = {"jobs": [self._new_job() for _ in range(self._dice.randint(1, 6))]}
        if self._dice.random() < 0.2:
            callback = {"callback_queue": self._dice.choice(self._queues), "callback_payload": [1]}
            fields["batch"] = self._dice.choice([{}, callback])
        return "Enqueue", fields

    def _new_job(self) -> Fields:
        dice = self._dice
        job: Fields = {
            "queue": dice.choice(self._queues),
            "payload": {"n": dice.randrange(1_000), "text": " ".join(dice.choices(_WORDS, k=4))},
        }
        options: list[Fields] = [
            {"unique_key": f"u{dice.randrange(12)}"},
            {"unique_key": f"u{dice.randrange(3)}", "unique_period_ms": 600},
            {"priority": dice.randrange(2)},
            {"delay_ms": dice.choice([300, 60_000])},
            {"expire_after_ms": dice.choice([400, 60_000])},
            {"tags": {dice.choice(_WORDS): dice.choice(_WORDS), "a": "b"}},
            {"kind": "letter"},
            {"max_retries": dice.randrange(1, 3), "retry_base_delay_ms": 100},
            {"id": f"chosen-{dice.randrange(30)}"},
            {"checkpoint": {"page": 1}},
            {"agent": {"max_iterations": 3, "max_cost_micros": 1_500_000}},
            {"chain": {"steps": [{"queue": dice.choice(QUEUES)} for _ in range(3)]}},
            {"parent_id": dice.choice(self._known) if self._known else ""},
            {"depends_on": [dice.choice(self._known)] if self._known else []},
        ]
        for option in dice.sample(options, k=dice.choice([0, 0, 1, 2])):
            job |= option
        if "chain" in job and isinstance(job["chain"], dict):
            job["chain"]["steps"][0] = {"queue": job["queue"]}
        return job

    def _word(self) -> tuple[str, Fields]:
        """Of a worker, on a job that it was given; sometimes more than once."""
        dice = self._dice
        given = dice.choice(self._given)
        item: Fields = {"job_id": given.job_id, "lease_token": given.lease_token}
        words: list[tuple[str, str, Fields]] = [
            ("Ack", "acks", {"result": {"ok": dice.randrange(9)}}),
            ("Ack", "acks", {"usage": {"cost_usd": 0.25}, "agent_status": "continue"}),
            ("Ack", "acks", {}),
            ("Fail", "fails", {"error": dice.choice(_WORDS), "error_class": "Bad"}),
            ("Fail", "fails", {"error": "no", "retryable": False, "backtrace": "line 1"}),
            ("Fail", "fails", {"error": "again", "retry_after_ms": 100}),
            ("Heartbeat", "jobs", {"progress": {"done": dice.randrange(9)}}),
            ("Heartbeat", "jobs", {"checkpoint": {"page": dice.randrange(9)}}),
            ("Release", "jobs", {"why": "tired"}),
            ("Snooze", "jobs", {"delay_ms": 200}),
        ]
        name, where, fields = dice.choice(words)
        return name, {where: [{**item, **fields}]}

    def _order(self) -> tuple[str, Fields]:
        """Of an operator, about some jobs."""
        dice = self._dice
        jobs: Fields = {"job_ids": dice.sample(self._known, k=min(len(self._known), 3))}
        orders: list[tuple[str, Fields]] = [
            ("Retry", {}),
            ("Requeue", {}),
            ("Expedite", {}),
            ("Cancel", {"why": "enough"}),
            ("Delete", {}),
            ("Hold", {"reason": "look"}),
            ("Approve", {}),
            ("Reject", {"why": "bad"}),
            ("Move", {"queue": dice.choice(QUEUES), "reset_attempts": True}),
            ("Move", {"queue": dice.choice(QUEUES)}),
            ("ChangePriority", {"priority": dice.randrange(3)}),
        ]
        name, fields = dice.choice(orders)
        return name, {**jobs, **fields}

    def _of_queue(self) -> tuple[str, Fields]:
        dice = self._dice
        queue: Fields = {"queue": dice.choice(self._queues)}
        settings: list[tuple[str, Fields]] = [
            ("Pause", {}),
            *[("Resume", {})] * 6,
            ("Drain", {}),
            ("Clear", {}),
            ("DeleteQueue", {}),
            ("SetConcurrency", {"max": dice.choice([0, 0, 5])}),
            ("SetThrottle", {"rate": 50, "window_ms": 1_000}),
            ("RemoveThrottle", {}),
            ("SetRetention", {"retention_ms": dice.choice([0, 1_000])}),
        ]
        name, fields = dice.choice(settings)
        return name, {**queue, **fields}
