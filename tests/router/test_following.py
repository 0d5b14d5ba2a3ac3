"""The hub and those who listen: exactly once and in order, whatever is cut off, lost or dropped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from corvo.protocol.wire import Happening
from corvo.router.caller import ANONYMOUS
from corvo.router.events import cursors
from corvo.router.events.cursors import Begin
from corvo.router.events.listening import Listener
from corvo.router.feeds import hub, rings
from corvo.router.feeds.events import EventFilter
from corvo.router.http.messages import ClientGone, Request
from corvo.router.http.sse import parse
from tests.router.feeds import Ear, EventSource, House, Source, house, seqs

KINDS = ("enqueued", "started", "completed", "dead")


class Pipe:
    """A client that takes so many bytes, and is cut off in the middle of what comes then."""

    def __init__(self, source: EventSource, bytes_left: int) -> None:
        self._source = source
        self._left = bytes_left
        self.is_slow = False

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._source.feed(data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            self._source.cut()
            raise ClientGone("cut off")


@asynccontextmanager
async def listening_to(
    served: House, source: EventSource, event_filter: EventFilter, bytes_left: int
) -> AsyncIterator[None]:
    """A client that listens while the block runs, from behind its last event."""
    request = Request(method="GET", path="", caller=ANONYMOUS)
    places = parse(source.last_id, len(served.sources))
    listener = Listener(served.api, request, event_filter, Begin(places))
    listener.enter()
    await listener.settle()

    async def listen() -> None:
        try:
            await listener.run(Pipe(source, bytes_left))
        except ClientGone:
            return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await served.until(lambda: bool(source.last_id))  # else it would begin at another present
        yield
        nursery.cancel_scope.cancel()
    source.cut()


def bodies_of(source: EventSource) -> list[tuple[int, int, int, str]]:
    """Shard, place, number and type of what a client was told."""
    ear = Ear(0, source)
    return [(body.shard, body.seq, body.number, body.type) for body in ear.bodies]


def write(source: Source, dice: Random) -> None:
    """Let something happen."""
    for _ in range(dice.randrange(6)):
        events = [dice.choice(KINDS) for _ in range(dice.choice([0, 0, 1, 1, 1, 2, 7]))]
        source.add(*(Happening(what, "j", "mail") for what in events))


@pytest.mark.parametrize("seed", range(12))
def test_each_event_is_told_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = Random(seed)
    monkeypatch.setattr(hub, "PAGE_EVENTS", dice.choice([1, 3, 50]))
    monkeypatch.setattr(hub, "LINGER_S", dice.choice([0.0, 5.0]))
    monkeypatch.setattr(hub, "_GATHER_S", 0.0)
    monkeypatch.setattr(rings, "EVENTS_MAX", dice.choice([1, 5, 100]))
    monkeypatch.setattr(cursors, "PIECE_BYTES", dice.choice([100, 1_000, 10_000]))
    monkeypatch.setattr(cursors, "LOOKS_MAX", dice.choice([1, 7, 100]))
    monkeypatch.setattr(cursors, "RETRY_S", 0.01)
    event_filter = EventFilter(types=frozenset(KINDS[: dice.randrange(1, 5)]))

    async def main() -> None:
        async with house(tmp_path, 3) as served:
            client = EventSource()
            for source in served.sources:
                write(source, dice)
            begin = [len(source.entries) for source in served.sources]
            for _ in range(15):
                async with listening_to(
                    served, client, event_filter, dice.choice([300, 3_000, 1 << 30])
                ):
                    for _ in range(dice.randrange(4)):
                        source = dice.choice(served.sources)
                        write(source, dice)
                        if dice.random() < 0.3:
                            source.hang_up()
                        await trio.sleep(dice.choice([0.0, 0.005]))
                write(dice.choice(served.sources), dice)
            due = [
                (source.shard, index, number, event.what)
                for source in served.sources
                for index, entry in enumerate(source.entries, start=1)
                for number, event in enumerate(entry.events, start=1)
                if index > begin[source.shard] and event.what in event_filter.types
            ]
            async with listening_to(served, client, event_filter, 1 << 30):
                with trio.fail_after(20):
                    await served.until(lambda: len(client.events) >= len(due))
                await trio.sleep(0.01)
            told = bodies_of(client)

        assert sorted(told, key=lambda each: each[0]) == due
        assert len(due) > 10

    trio.run(main)


def test_all_who_are_far_behind_read_few_pages_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "READERS_MAX", 2)
    monkeypatch.setattr(rings, "EVENTS_MAX", 1)

    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source] = served.sources
            first = await served.listen()
            source.happen()
            await first.until_events(1)
            last_id = first.source.events[0].id
            source.happen(count=5_000)
            await first.until_events(5_001)
            before = len(source.follows)
            source.gate = trio.Event()
            ears: list[Ear] = []

            async def listen() -> None:
                ears.append(await served.listen(last_id=last_id))
                await ears[-1].until_events(5_000)

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(listen)
                await source.until_follows(before + 2)
                await trio.testing.wait_all_tasks_blocked(0.05)
                most = source.links
                source.gate.set()
            told = [seqs(ear.bodies, 0) for ear in ears]
            follows = len(source.follows) - before

        assert told == [list(range(2, 5_002))] * 8
        assert most == 1 + 2
        assert follows <= 8 * 6, "each page is read once, however many pieces it is sent in"

    trio.run(main)


def test_whoever_comes_back_soon_finds_the_feeds_followed(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source] = served.sources
            for _ in range(3):
                ear = await served.listen()
                ear.close()
                await served.until(lambda: served.api.hub.listeners == 0)
                await trio.testing.wait_all_tasks_blocked()

            assert source.links_ever == 1

    trio.run(main)


def test_whoever_has_caught_up_needs_no_page_of_his_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source] = served.sources
            first = await served.listen()
            source.happen(count=10)
            await first.until_events(10)
            # In the middle of a page: whoever comes with it is not known to be of this log.
            middle = f"s0=4-{source.digest(4):08x}"
            ear = await served.listen(last_id=middle)
            await ear.until_events(6)
            links = source.links_ever
            for count in range(7, 12):
                source.happen()
                await ear.until_events(count)

            assert links == 2
            assert source.links_ever == links
            assert seqs(ear.bodies, 0) == list(range(5, 16))

    trio.run(main)
