"""Clients that listen, are cut off at any byte and go on: each event once, in order, or a word.

The load is a crowd with its jobs, and one more for each shard whose jobs fail. Meanwhile processes
of the node are killed. In the end each client's events are compared with what the shards' own feeds
have, read from their beginning.
"""

import itertools
import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import trio

from corvo.connections import UnixAddress, dial
from corvo.datadir import Identity
from corvo.errors import WireError
from corvo.link import LinkLost
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.router.feeds.events import KeptEvent, kept_events
from corvo.router.http.sse import parse
from corvo.sealed import unseal
from tests.node.crowd import Crowd
from tests.node.http import Address, Client, Lost
from tests.node.nodes import House, house_in, kill
from tests.node.parking import last_indexes
from tests.router.feeds import Ear, EventSource
from tests.support.nodes import Running

_PAUSE_S: Final = 0.02
_CALM: Final = 100
"""Successes of each shard between two kills."""
_QUIET_S: Final = 1.0
"""How long nothing more may come behind the last event."""
_LATEST_S: Final = 60.0
"""By then everything has come, once nothing happens any more."""

Key = tuple[int, int]
"""Of an event in its shard: the place in the log, and which of the entry's."""


class Happened(msgspec.Struct, frozen=True):
    """An event as a client needs to know it."""

    seq: int
    number: int
    shard: int
    type: str
    job_id: str = ""
    queue: str = ""


class Seen(msgspec.Struct):
    """What came of it."""

    reconnects: list[int]
    """By client."""
    counts: list[int]
    """Events that each was to be told."""
    cuts_inside: int
    """How often a client was cut off in the middle of a frame."""
    kills: int
    events: int
    """That the shards' feeds have."""
    wrongs: list[str]


class Wanted(msgspec.Struct, frozen=True):
    """What one client listens to: for the server, and for the judge."""

    query: str
    fits: Callable[[KeptEvent], bool]


def wishes(crowd: Crowd, broken: list[str]) -> list[Wanted]:
    """All kinds of filters."""
    first = crowd.queues[0]
    ends = frozenset({"failed", "dead", "completed"})
    return [
        Wanted("", lambda _: True),
        Wanted("types=completed", lambda told: told.type == "completed"),
        Wanted(f"queues={first}", lambda told: told.what.queue == first),
        Wanted(
            f"types=job.failed,dead,completed&queues={broken[0]},{broken[-1]},{first}",
            lambda told: told.type in ends and told.what.queue in {*broken, first},
        ),
        Wanted("types=dead", lambda told: told.type == "dead"),
    ]


class Listener(EventSource):
    """One client that does not give up."""

    def __init__(self, address: Address, wanted: Wanted, dice: Random) -> None:
        super().__init__()
        self.wanted: Final = wanted
        self.begin: dict[int, int] | None = None
        """By shard, behind which place it began."""
        self.told: list[Happened] = []
        self.reconnects = 0
        self.cuts_inside = 0
        self.wrongs: list[str] = []
        self._address = address
        self._dice = dice
        self._is_closing = False

    def take(self) -> None:
        """Note what has come."""
        for event in self.events:
            if event.event == "gone":
                self.wrongs.append(f"gone: {event.data!r}")
                continue
            self.told.append(msgspec.json.decode(event.data, type=Happened))
        self.events.clear()
        if self.begin is None and self.last_id:
            places = parse(self.last_id, 1_000)
            assert not any(place.given for place in places.values())
            self.begin = {shard: place.index for shard, place in places.items()}
        self.comments.clear()

    async def listen(self, until: trio.Event) -> None:
        """Listen, be cut off, and listen again until an event is set."""
        while not until.is_set():
            await self._listen_once(self._dice.choice([300, 3_000, 30_000, 300_000]), until)

    def told_up_to(self, ends: Mapping[int, int]) -> list[Happened]:
        """What it was told that happened up to these places in the shards."""
        return [told for told in self.told if told.seq <= ends[told.shard]]

    async def listen_to_the_end(self, count: int, ends: Mapping[int, int]) -> None:
        """Listen until so many events up to these places have come, and a little longer."""
        with trio.move_on_after(_LATEST_S):
            while len(self.told_up_to(ends)) < count:
                await self._listen_once(1 << 30, None, lambda: len(self.told_up_to(ends)) >= count)
        with trio.move_on_after(_QUIET_S):
            while True:
                await self._listen_once(1 << 30, None)

    async def _listen_once(
        self,
        budget: int,
        until: trio.Event | None,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        ear = Ear(self._address[1], self)
        try:
            await ear.ask(self.wanted.query)
            if ear.status != 200:
                if ear.status == 410:
                    self.wrongs.append(f"gone: {ear.body!r}")
                await trio.sleep(_PAUSE_S)
                return
            had = ear.received
            limit = self._dice.randrange(budget)
            while not (ear.is_over or ear.is_cut) and ear.received - had < limit:
                if until is not None and until.is_set():
                    break
                with trio.move_on_after(0.5):
                    await ear.read(max(1, min(65_536, limit - (ear.received - had))))
                self.take()
                if is_enough():
                    break
            self.reconnects += 1
        except OSError:
            await trio.sleep(_PAUSE_S)
        finally:
            ear.close()
            self.cuts_inside += self.cut()


class Listening:
    """One run."""

    def __init__(self, house: House, seed: int) -> None:
        self._house = house
        self._dice = Random(seed)
        self._crowd = Crowd(house.address, house.shards)
        self._broken = [_broken_on(shard, house.shards) for shard in range(house.shards)]
        self._is_over = trio.Event()
        self._enough = trio.Event()
        self._kills = 0

    async def run(self, reconnects: int, seconds: float) -> Seen:
        """Until each client was cut off so often, and so much time is over."""
        clients = [
            Listener(self._house.address, wanted, Random(self._dice.random()))
            for wanted in wishes(self._crowd, self._broken)
        ]
        until = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._crowd.run)
            for queue in self._broken:
                nursery.start_soon(self._fail, queue)
            for client in clients:
                nursery.start_soon(client.listen, self._enough)
            while (
                min(client.reconnects for client in clients) < reconnects
                or trio.current_time() < until
            ):
                async with self._house.open() as node:
                    await self._kill_all(node)
                    await node.end(signal.SIGKILL)
                    self._kills += 1
            async with self._house.open() as node:
                self._is_over.set()
                await self._crowd.more(_CALM)
                self._crowd.close()
                await self._crowd.ended.wait()
                self._enough.set()
                seen = await self._judge(clients)
                code = await node.end()
                assert code == 0, code
                assert not node.texts, node.texts
        return seen

    async def _kill_all(self, node: Running) -> None:
        for victim in ("router", *(f"shard-{n}" for n in range(self._house.shards))):
            await self._crowd.more(_CALM)
            await kill(node, victim)
            self._kills += 1
        await self._crowd.more(_CALM)

    async def _fail(self, queue: str) -> None:
        """Put jobs in that fail, and die."""
        with closing(Client(self._house.address)) as client:
            while not self._is_over.is_set():
                try:
                    await self._fail_some(client, queue)
                except Lost:
                    await trio.sleep(_PAUSE_S)

    async def _fail_some(self, client: Client, queue: str) -> None:
        job = {"queue": queue, "payload": {}, "max_retries": self._dice.randrange(1, 3)}
        job["retry_base_delay"] = "1ms"
        body = msgspec.json.encode({"jobs": [job] * self._dice.randrange(1, 9)})
        await client.ask("POST", "/api/v1/enqueue/batch", body)
        asked = {"queues": [queue], "count": 16, "timeout": 1, "worker_id": queue}
        answer = await client.ask("POST", "/api/v1/fetch/batch", msgspec.json.encode(asked))
        if answer.status != 200:
            return
        given = msgspec.json.decode(answer.body, type=_Jobs).jobs
        fails = [
            {"job_id": job.job_id, "lease_token": job.lease_token, "error": "no"} for job in given
        ]
        if fails:
            body = msgspec.json.encode({"fails": fails})
            await client.ask("POST", "/api/v1/fail/batch", body)

    async def _judge(self, clients: list[Listener]) -> Seen:
        ends = await self._ends()
        feeds = await self._all_feeds(ends)
        expected = [[told for told in feeds if _is_for(client, told)] for client in clients]
        async with trio.open_nursery() as nursery:
            for client, wanted in zip(clients, expected, strict=True):
                nursery.start_soon(client.listen_to_the_end, len(wanted), ends)
        wrongs = list(itertools.chain(*(client.wrongs for client in clients)))
        for client, wanted in zip(clients, expected, strict=True):
            wrongs += _compare(client, wanted, ends)
        return Seen(
            reconnects=[client.reconnects for client in clients],
            counts=[len(wanted) for wanted in expected],
            cuts_inside=sum(client.cuts_inside for client in clients),
            kills=self._kills,
            events=len(feeds),
            wrongs=wrongs,
        )

    async def _ends(self) -> dict[int, int]:
        """By shard, the last place in its log now. Entries for jobs that wait may follow."""
        with closing(Client(self._house.address)) as client:
            return {shard: int(index) for shard, index in enumerate(await last_indexes(client))}

    async def _all_feeds(self, ends: Mapping[int, int]) -> list[KeptEvent]:
        data = await trio.Path(self._house.data / "node.json").read_bytes()
        identity = unseal(data, Identity)
        feeds: list[KeptEvent] = []
        for shard in range(self._house.shards):
            told = await read_feed(self._house.data, shard, identity, end=ends[shard])
            feeds += told
        return feeds


class _Job(msgspec.Struct):
    job_id: str
    lease_token: int


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


def _broken_on(shard: int, shards: int) -> str:
    names = (f"broken-{number}" for number in itertools.count())
    return next(name for name in names if shard_of_queue(name, shards) == shard)


def _is_for(client: Listener, told: KeptEvent) -> bool:
    assert client.begin is not None
    return told.index > client.begin.get(told.shard, 0) and client.wanted.fits(told)


def _compare(client: Listener, wanted: list[KeptEvent], ends: Mapping[int, int]) -> list[str]:
    """What is wrong with what a client was told."""
    wrongs: list[str] = []
    for shard in ends:
        told: list[Key] = [(e.seq, e.number) for e in client.told_up_to(ends) if e.shard == shard]
        due: list[Key] = [(e.index, e.number) for e in wanted if e.shard == shard]
        if told == due:
            continue
        at = next((n for n, (a, b) in enumerate(zip(told, due, strict=False)) if a != b), -1)
        wrongs.append(
            f"{client.wanted.query!r}, shard {shard}: told {len(told)} of {len(due)}; "
            f"the first difference is at {at}: {told[at - 1 : at + 2]}, not {due[at - 1 : at + 2]}"
        )
    return wrongs


async def read_feed(data: Path, shard: int, identity: Identity, *, end: int) -> list[KeptEvent]:
    """All that happened in a shard, from the beginning to a place in its log."""
    found: list[KeptEvent] = []
    index = digest = 0
    hello = wire.make_hello(identity, wire.FOLLOWER, shard=shard)
    try:
        async with dial(UnixAddress(str(data / "run" / f"shard-{shard}.sock")), hello) as link:
            while index < end:
                link.send(wire.Follow(1, index, digest, wants_documents=False, wants_events=True))
                [answer] = await link.receive(wire.TO_FOLLOWER)
                assert isinstance(answer, wire.Changes), answer
                index, digest = answer.index, answer.digest
                found += kept_events(shard, answer.happenings)
    except (LinkLost, WireError) as error:
        raise AssertionError(f"the feed of shard {shard} cannot be read") from error
    return [told for told in found if told.index <= end]


async def run(
    directory: Path, *, reconnects: int, seconds: float = 0, seed: int = 1, **settings: str
) -> Seen:
    """Cut clients off so often, under load and kills."""
    house = await house_in(directory, shard__grace_ms="500ms", **settings)
    return await Listening(house, seed).run(reconnects, seconds)
