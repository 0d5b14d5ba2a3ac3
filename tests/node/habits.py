"""What programs do that were written with the client libraries of the original, against a node.

Each library is a client with its habits: types that hold no fraction and no null, lists that have
to be there, no `Corvo-Min-Seq`, a word as what follows a failure, event ids that are numbers, and
no second try of anything. So an answer of 5xx, and one that does not fit the types, is an error of
the node.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Final, TypeVar

import msgspec
import trio

from tests.node.http import Address, Answer, Client
from tests.router.feeds import Ear, EventSource

T = TypeVar("T", bound=msgspec.Struct)
_READ_BYTES: Final = 1 << 9
_BEGIN: Final = 2
"""Events behind which a watcher is cut off first."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """What one library does in its own way."""

    name: str
    after_failure: object
    """`on_failure` of a chain."""
    progress: object
    """Of a heartbeat."""
    needs_lists: bool
    """Whether an answer to a heartbeat must have its three lists."""
    takes_many: bool
    """Whether its workers fetch and acknowledge in batches."""


LIBRARIES: Final = (
    Library(
        name="python",
        after_failure="alarms",
        progress={"current": 1, "total": 3, "message": "a third"},
        needs_lists=False,
        takes_many=True,
    ),
    Library(
        name="typescript",
        after_failure="stop",
        progress={"current": 1, "total": 3},
        needs_lists=False,
        takes_many=True,
    ),
    Library(
        name="go",
        after_failure={"queue": "alarms", "payload": {}},
        progress=33,
        needs_lists=False,
        takes_many=False,
    ),
    Library(
        name="rust",
        after_failure="alarms",
        progress=33,
        needs_lists=True,
        takes_many=True,
    ),
)


# What the libraries read, as their languages have it: a number that is `int` holds no fraction.


class Made(msgspec.Struct):
    """An enqueued job."""

    job_id: str
    status: str
    unique_existing: bool


class ManyMade(msgspec.Struct):
    """Enqueued jobs."""

    job_ids: list[str]
    batch_id: str | None = None


class Fetched(msgspec.Struct):
    """A job to work on."""

    job_id: str
    queue: str
    payload: dict[str, object]
    attempt: int
    max_retries: int
    lease_duration: int


class ManyFetched(msgspec.Struct):
    """Jobs to work on."""

    jobs: list[Fetched]


class Acked(msgspec.Struct):
    """How many of a batch."""

    acked: int


class Failed(msgspec.Struct):
    """What becomes of a job that failed."""

    status: str
    attempts_remaining: int


class BeatOfJob(msgspec.Struct):
    """What becomes of a job that is worked on."""

    status: str


class Beaten(msgspec.Struct):
    """An answer to a heartbeat, as workers read it."""

    jobs: dict[str, BeatOfJob]


class BeatenLists(msgspec.Struct):
    """The same, as one library reads it."""

    acked: list[str]
    unknown: list[str]
    stopped: list[str] = msgspec.field(name="cancelled".replace("ll", "l"))
    """In the original's spelling."""


class Job(msgspec.Struct):
    """A job that somebody looks at."""

    id: str
    queue: str
    state: str
    priority: int
    attempt: int
    max_retries: int
    tags: dict[str, str] | None = None


class Page(msgspec.Struct):
    """An answer to a search."""

    jobs: list[Job]
    total: int
    has_more: bool
    cursor: str | None = None


class Jobs(msgspec.Struct):
    """Jobs by their ids."""

    jobs: list[Job]


class BulkDone(msgspec.Struct):
    """A bulk operation that is done."""

    affected: int
    errors: int
    duration_ms: int


class BulkBegun(msgspec.Struct):
    """One that is not."""

    bulk_operation_id: str
    status: str


class BulkTask(msgspec.Struct):
    """How far it is."""

    id: str
    status: str
    total: int
    processed: int
    affected: int
    errors: int


class Info(msgspec.Struct):
    """Who the server is."""

    server_version: str
    api_version: str


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    type: str
    job_id: str = ""


class Watcher:
    """A program that listens, keeps the last id as a number, and is cut off again and again."""

    def __init__(self, address: Address, queue: str) -> None:
        self.seen: set[Event] = set()
        self.reconnects = 0
        self._port = address[1]
        self._queue = queue
        self._last = 1  # a time before all events

    async def watch_for(self, wanted: set[Event]) -> None:
        """Listen until all these events have come, at first a few at a time.

        Events that come before an id come again, so each connection lasts longer than the last one.
        """
        budget = _BEGIN
        while not wanted <= self.seen:
            source = EventSource()
            ear = Ear(self._port, source)
            try:
                await ear.ask(f"queues={self._queue}&last_event_id={self._last}")
                assert ear.status == 200, ear.body
                count = 0
                while not wanted <= self.seen and count < budget:
                    assert not ear.is_cut
                    await ear.read(_READ_BYTES)
                    count += self._take(source, budget - count)
            finally:
                ear.close()
            self.reconnects += 1
            budget *= 2

    def _take(self, source: EventSource, most: int) -> int:
        """Take some events. More that came with them are lost with the connection."""
        taken = source.events[:most]
        for event in taken:
            assert event.event != "gone", event.data
            self.seen.add(msgspec.json.decode(event.data, type=Event))
            self._last = int(event.id)
        source.events.clear()
        return len(taken)


class User:
    """A program that uses one library."""

    def __init__(self, library: Library, client: Client) -> None:
        self.statuses: Counter[int] = Counter()
        self.known: Final[set[Event]] = set()
        """Events that everybody has to be told of."""
        self._library = library
        self._client = client
        self._own = f"{library.name}-work"
        self._other = f"{library.name}-rest"

    async def run(self) -> None:
        """Do all that the library can. What it could not bear is an assertion."""
        await self._ask("GET", "/info", kind=Info)
        made = [await self._make(number) for number in range(8)]
        await self._make_once()
        await self._work(made)
        await self._fail_and_retry()
        await self._run_chain()
        await self._move()
        await self._move_while_nobody_waits()

    # Producing and working.

    async def _make(self, number: int, **fields: object) -> str:
        """Make a job, and find it at once in both ways of looking."""
        body = {
            "queue": self._own,
            "payload": {"number": number},
            "priority": "high",
            "max_retries": 2,
            "tags": {"of": self._library.name, "number": str(number)},
            **fields,
        }
        made = await self._ask("POST", "/enqueue", body, kind=Made)
        assert made.status == "pending"
        assert not made.unique_existing
        job = await self._ask("GET", f"/jobs/{made.job_id}", kind=Job)
        assert (job.state, job.priority, job.max_retries) == ("pending", 1, 2)
        found = await self._search(queue=self._own, tags={"number": str(number)})
        assert made.job_id in {job.id for job in found}
        self.known.add(Event("enqueued", made.job_id))
        return made.job_id

    async def _make_once(self) -> None:
        fields = {"unique_key": "one", "unique_period": 60}
        first = await self._make(99, **fields)
        again = {"queue": self._own, "payload": {}, **fields}
        second = await self._ask("POST", "/enqueue", again, kind=Made)
        assert (second.job_id, second.status, second.unique_existing) == (first, "duplicate", True)
        await self._send("DELETE", f"/jobs/{first}")
        assert first not in {job.id for job in await self._search(queue=self._own)}

    async def _take(self, queue: str) -> list[Fetched]:
        who = {"queues": [queue], "worker_id": self._library.name, "hostname": "h", "timeout": 30}
        if self._library.takes_many:
            return (
                await self._ask("POST", "/fetch/batch", {**who, "count": 4}, kind=ManyFetched)
            ).jobs
        answer = await self._send("POST", "/fetch", who)
        return [] if answer.status == 204 else [answer.read(Fetched)]

    async def _work(self, made: list[str]) -> None:
        """Take all of them, say that they are worked on, and acknowledge them."""
        done: list[str] = []
        while len(done) < len(made):
            jobs = await self._take(self._own)
            assert all(job.attempt == 1 and job.lease_duration > 0 for job in jobs)
            await self._beat([job.job_id for job in jobs])
            if self._library.takes_many:
                acks = {"acks": [{"job_id": job.job_id} for job in jobs]}
                assert (await self._ask("POST", "/ack/batch", acks, kind=Acked)).acked == len(jobs)
            else:
                for job in jobs:
                    await self._send("POST", f"/ack/{job.job_id}", {})
            done += [job.job_id for job in jobs]
        self.known.update(Event("completed", job_id) for job_id in done)
        assert sorted(done) == sorted(made)
        assert await self._search(queue=self._own, state=["pending", "active"]) == []

    async def _beat(self, job_ids: list[str]) -> None:
        beats = {job_id: {"progress": self._library.progress} for job_id in job_ids}
        answer = await self._send("POST", "/heartbeat", {"jobs": beats})
        read = answer.read(Beaten).jobs
        assert {job_id: beat.status for job_id, beat in read.items()} == dict.fromkeys(
            job_ids, "ok"
        )
        if self._library.needs_lists:
            assert sorted(answer.read(BeatenLists).acked) == sorted(job_ids)

    async def _fail_and_retry(self) -> None:
        job_id = await self._make(7, max_retries=2, retry_base_delay="1ms", retry_max_delay="1ms")
        says = {"error": "no paper", "backtrace": ""}
        for attempt, becomes in ((1, "retrying"), (2, "dead")):
            taken: list[Fetched] = []
            while not taken:
                taken = await self._take(self._own)
            assert [job.attempt for job in taken] == [attempt]
            failed = await self._ask("POST", f"/fail/{job_id}", says, kind=Failed)
            assert (failed.status, failed.attempts_remaining) == (becomes, 2 - attempt)
        found = await self._search(queue=self._own, state="dead", error_contains="paper")
        assert [job.id for job in found] == [job_id]
        await self._send("POST", f"/jobs/{job_id}/retry")
        [job] = await self._take(self._own)
        await self._send("POST", f"/ack/{job.job_id}", {})

    async def _run_chain(self) -> None:
        """Two steps, in two queues: those of some libraries are of two shards."""
        steps = [
            {"queue": self._own, "payload": {"number": 1}},
            {"queue": self._other, "payload": {"number": 2}},
        ]
        chain = {"steps": steps, "on_failure": self._library.after_failure}
        body = {"queue": self._own, "payload": {"number": 1}, "chain": chain}
        first = await self._ask("POST", "/enqueue", body, kind=Made)
        for number, queue in enumerate([self._own, self._other], start=1):
            taken: list[Fetched] = []
            while not taken:
                taken = await self._take(queue)
            [job] = taken
            assert job.payload["number"] == number
            await self._send("POST", f"/ack/{job.job_id}", {})
        assert (await self._ask("GET", f"/jobs/{first.job_id}", kind=Job)).state == "completed"

    # Acting on many.

    async def _move(self) -> None:
        """Many are moved to a queue of another shard, and looked at right behind that."""
        jobs = [{"queue": self._own, "payload": {"number": number}} for number in range(40)]
        made = await self._ask("POST", "/enqueue/batch", {"jobs": jobs}, kind=ManyMade)
        move = {
            "filter": {"queue": self._own, "state": "pending"},
            "action": "move",
            "move_to_queue": self._other,
        }
        done = await self._ask("POST", "/jobs/bulk", move, kind=BulkDone)
        assert (done.affected, done.errors) == (40, 0)
        for job_id in made.job_ids:
            job = await self._ask("GET", f"/jobs/{job_id}", kind=Job)
            assert (job.queue, job.state) == (self._other, "pending")
        found = await self._ask("POST", "/jobs/bulk-get", {"job_ids": made.job_ids}, kind=Jobs)
        assert sorted(job.id for job in found.jobs) == sorted(made.job_ids)

    async def _move_while_nobody_waits(self) -> None:
        """The same back, and asked after until it is done."""
        move = {
            "filter": {"queue": self._other},
            "action": "move",
            "move_to_queue": self._own,
            "async": True,
        }
        begun = await self._ask("POST", "/jobs/bulk", move, kind=BulkBegun)
        task = f"/bulk/{begun.bulk_operation_id}"
        while (at := await self._ask("GET", task, kind=BulkTask)).status != "completed":
            assert at.status != "failed"
        assert (at.affected, at.errors) == (at.total, 0)
        for job in await self._search(queue=self._own, state="pending"):
            await self._send("POST", f"/jobs/{job.id}/cancel")
            after = await self._ask("GET", f"/jobs/{job.id}", kind=Job)
            assert after.state == "cancelled"
            self.known.add(Event("cancelled", job.id))

    async def _search(self, **filters: object) -> Iterable[Job]:
        return (await self._ask("POST", "/jobs/search", {**filters, "limit": 100}, kind=Page)).jobs

    # Asking.

    async def _send(self, method: str, path: str, body: object = None) -> Answer:
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await self._client.ask(method, f"/api/v1{path}", data)
        self.statuses[answer.status] += 1
        assert answer.status < 300, (method, path, answer.body)
        return answer

    async def _ask(self, method: str, path: str, body: object = None, *, kind: type[T]) -> T:
        answer = await self._send(method, path, body)
        return answer.read(kind)


async def use_all(address: Address) -> Counter[int]:
    """All libraries at the same time. Returns how often the node gave which status."""
    statuses = Counter[int]()

    async def use(library: Library) -> None:
        with closing(Client(address)) as client:
            user = User(library, client)
            await user.run()
        statuses.update(user.statuses)
        watcher = Watcher(address, f"{library.name}-work")
        await watcher.watch_for(user.known)
        assert watcher.reconnects > 1

    async with trio.open_nursery() as nursery:
        for library in LIBRARIES:
            nursery.start_soon(use, library)
    return statuses
