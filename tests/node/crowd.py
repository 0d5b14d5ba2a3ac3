"""Sixteen clients who put jobs in and take them out, do not give up, and keep count."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import trio

from corvo.placement import shard_of_queue
from tests.node.history import Acked, Claimed, Enqueued, Event, Refused
from tests.node.http import Address, Answer, Client, Lost

PRODUCERS: Final = 8
"""And as many workers."""
_AHEAD_MAX: Final = 200
"""So many jobs may wait for a worker: the load is bounded by the workers."""
_PAUSE_S: Final = 0.02
"""Between two tries, as any client has it: that is not waiting for anything in particular."""


class Made(msgspec.Struct):
    job_id: str


class Numbered(msgspec.Struct):
    n: int


class Given(msgspec.Struct):
    job_id: str
    lease_token: int
    payload: Numbered


class Problem(msgspec.Struct):
    code: str = ""
    outcome: str = ""


class Crowd:
    """The clients, and what they have seen."""

    def __init__(
        self,
        address: Address,
        shards: int,
        *,
        lease_s: int = 2,
        clients: Sequence[Callable[[], Client]] = (),
        each: int = PRODUCERS,
        name: str = "crowd",
    ) -> None:
        """`clients` has one of each node, if there are several.

        `each` is the number of producers, and of workers. `name` begins the names of queues.
        """
        self.history: list[Event] = []
        self.successes: list[list[float]] = [[] for _ in range(shards)]
        """By shard, when something was acknowledged."""
        self.oddities: dict[str, int] = {}
        """Answers that are no success, and connections that were lost, by what was said."""
        self.ended: Final = trio.Event()
        self.queues: Final = [queue_on(shard, shards, name) for shard in range(shards)]
        self._make_clients = clients or (partial(Client, address),)
        self._each = each
        self._lease_s = lease_s
        self._numbers = 0
        self._answered = 0
        self._done: set[str] = set()
        self._is_closing = False
        self._moved = trio.Event()

    async def run(self) -> None:
        """Work until `close` was called and everything is done."""
        async with trio.open_nursery() as nursery:
            for number in range(self._each):
                nursery.start_soon(self._produce, self._shard(number), self._client(number))
                worker = self._client(number + 1)
                nursery.start_soon(self._work, f"w{number}", self._shard(number), worker)
        self.ended.set()

    def close(self) -> None:
        """Put nothing more in; when everything has been worked on, `run` ends."""
        self._is_closing = True
        self._move()

    async def more(self, count: int) -> None:
        """Wait until every shard has acknowledged so much more."""
        wanted = [len(times) + count for times in self.successes]

        def is_there() -> bool:
            return all(len(a) >= b for a, b in zip(self.successes, wanted, strict=True))

        await self._until(is_there)

    def longest_gap(self, begin: float) -> list[float]:
        """By shard, the longest time without a success since then."""
        gaps = []
        for times in self.successes:
            seen = [begin, *(time for time in times if time > begin)]
            gaps.append(max((b - a for a, b in pairwise(seen)), default=0.0))
        return gaps

    def _shard(self, number: int) -> int:
        return number % len(self.queues)

    @property
    def waiting(self) -> int:
        """Jobs that were acknowledged and are not done."""
        return self._answered - len(self._done)

    @property
    def _is_over(self) -> bool:
        return self._is_closing and self._numbers == self._answered and self.waiting <= 0

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def _succeed(self, shard: int, event: Event) -> None:
        self.history.append(event)
        self.successes[shard].append(trio.current_time())
        self._move()

    # Clients.

    def _client(self, number: int) -> Client:
        return self._make_clients[number % len(self._make_clients)]()

    async def _produce(self, shard: int, client: Client) -> None:
        while await self._may_put():
            self._numbers += 1
            number = self._numbers
            body = msgspec.json.encode(
                {
                    "queue": self.queues[shard],
                    "payload": {"n": number},
                    "max_retries": 100,
                    "max_crashes": 100,
                }
            )
            answer = await self._insist(client, "/api/v1/enqueue", body, f"number-{number}")
            assert answer.status in {200, 201}, answer
            self._answered += 1
            self._succeed(shard, Enqueued(number, answer.read(Made).job_id))
        client.close()

    async def _may_put(self) -> bool:
        """Wait until more may be put in; False when nothing more will be."""
        await self._until(lambda: self._is_closing or self.waiting < _AHEAD_MAX)
        return not self._is_closing

    async def _work(self, name: str, shard: int, client: Client) -> None:
        asked = {
            "queues": [self.queues[shard]],
            "worker_id": name,
            "timeout": 1,
            "lease_seconds": self._lease_s,
        }
        body = msgspec.json.encode(asked)
        while not self._is_over:
            asked_at = trio.current_time()
            answer = await self._try(client, "/api/v1/fetch", body)
            if answer is None or answer.status == 204:
                continue
            assert answer.status == 200, answer
            given = answer.read(Given)
            claimed = Claimed(asked_at, given.payload.n, given.job_id, given.lease_token)
            self._succeed(shard, claimed)
            await self._finish(client, shard, claimed)
        client.close()

    async def _finish(self, client: Client, shard: int, claimed: Claimed) -> None:
        body = msgspec.json.encode({"lease_token": claimed.token})
        answer = await self._insist(client, f"/api/v1/ack/{claimed.job_id}", body)
        if answer.status == 200:
            self._done.add(claimed.job_id)
            acked = Acked(trio.current_time(), claimed.job_id, claimed.token)
            self._succeed(shard, acked)
        else:
            assert answer.status == 409, answer
            self.history.append(Refused(claimed.job_id, claimed.token))
            self._note(f"409 {answer.read(Problem).code}")

    async def _insist(self, client: Client, path: str, body: bytes, key: str = "") -> Answer:
        """The answer, however often one has to ask."""
        while True:
            answer = await self._try(client, path, body, key)
            if answer is not None:
                return answer

    async def _try(self, client: Client, path: str, body: bytes, key: str = "") -> Answer | None:
        """The answer, if it is one."""
        try:
            answer = await client.ask("POST", path, body, key)
        except Lost as lost:
            self._note(f"lost: {lost}")
        else:
            if answer.status not in {429, 503}:
                return answer
            problem = answer.read(Problem)
            self._note(f"{answer.status} {problem.code} {problem.outcome}")
        await trio.sleep(_PAUSE_S)
        return None

    def _note(self, what: str) -> None:
        self.oddities[what] = self.oddities.get(what, 0) + 1

    # Afterwards.

    async def look_up(self) -> dict[str, str]:
        """The state of every job that somebody was told of, as the server has it."""
        client = self._client(0)
        found = {}
        for job_id in {event.job_id for event in self.history}:
            answer = await client.look(f"/api/v1/jobs/{job_id}")
            assert answer.status in {200, 404}, answer
            if answer.status == 200:
                found[job_id] = answer.read(State).state
        client.close()
        return found


class State(msgspec.Struct):
    state: str


def queue_on(shard: int, shards: int, name: str) -> str:
    """A queue of that shard, whose name begins so."""
    number = 0
    while shard_of_queue(f"{name}-{number}", shards) != shard:
        number += 1
    return f"{name}-{number}"
