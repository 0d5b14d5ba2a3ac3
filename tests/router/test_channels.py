"""Clients that want the same: each event is made for them once, and each gets it once, in order."""

import itertools
from collections import Counter
from operator import itemgetter
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from corvo.router.caller import ANONYMOUS
from corvo.router.events import channels, cursors
from corvo.router.events.channels import Channel
from corvo.router.events.cursors import Begin
from corvo.router.events.listening import Listener
from corvo.router.feeds import hub, rings
from corvo.router.feeds.events import EventFilter
from corvo.router.feeds.hub import Hub
from corvo.router.http import sse
from corvo.router.http.messages import Request
from corvo.topology import topology_of
from tests.router.feeds import Ear, EventSource, House, house, seqs
from tests.router.lanes import config_of
from tests.router.test_following import KINDS, bodies_of, write


async def until_along(served: House, count: int) -> None:
    """Wait until so many clients read along with others."""

    def along() -> int:
        made = served.api.hub.audiences.values()
        return sum([each.members for each in made if isinstance(each, Channel)])

    await served.until(lambda: along() == count)


def test_each_event_is_made_once_for_all_that_want_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[bytes] = Counter()
    frame = sse.frame

    def count(data: bytes, *, id_text: str = "", event: str = "") -> bytes:
        made[data] += 1
        return frame(data, id_text=id_text, event=event)

    monkeypatch.setattr(sse, "frame", count)
    ears: list[Ear] = []

    async def main() -> None:
        async with house(tmp_path, 2) as served:
            for query in ("", "types=dead,completed", "queues=mail"):
                ears.extend([await served.listen(query) for _ in range(20)])
            await until_along(served, 60)
            for source in served.sources:
                source.happen("dead", count=5)
            for ear in ears:
                await ear.until_events(10)

            assert len(served.api.hub.audiences) == 3

    trio.run(main)

    assert set(made.values()) == {3}
    assert len(made) == 10
    for ear in ears:
        assert seqs(ear.bodies, 0) == seqs(ear.bodies, 1) == [1, 2, 3, 4, 5]


FILTERS = (EventFilter(), EventFilter(types=frozenset(KINDS[:2])))


class Slow:
    """A client that takes a piece when it is let."""

    def __init__(self, dice: Random, event_filter: EventFilter) -> None:
        self.source = EventSource()
        self.is_slow = False
        self.gate = trio.Event()
        self.gate.set()
        self._dice = dice
        self._filter = event_filter

    async def send(self, data: bytes) -> None:
        while self._dice.random() < 0.3:
            await trio.lowlevel.checkpoint()
        await self.gate.wait()
        self.source.feed(data)

    def stop_or_go_on(self) -> None:
        if self.gate.is_set():
            self.gate = trio.Event()
        else:
            self.gate.set()

    async def listen(self, served: House) -> None:
        request = Request(method="GET", path="", caller=ANONYMOUS)
        listener = Listener(served.api, request, self._filter, Begin())
        listener.enter()
        await listener.settle()
        await listener.run(self)

    def due(self, served: House, begin: list[int]) -> list[tuple[int, int, int, str]]:
        """What it should have been told, with what was there when it came."""
        return [
            (source.shard, index, number, event.what)
            for source in served.sources
            for index, entry in enumerate(source.entries, start=1)
            for number, event in enumerate(entry.events, start=1)
            if index > begin[source.shard]
            and (not self._filter.types or event.what in self._filter.types)
        ]


@pytest.mark.parametrize("seed", range(12))
def test_whoever_falls_behind_others_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = Random(seed)
    monkeypatch.setattr(hub, "PAGE_EVENTS", dice.choice([1, 3, 50]))
    monkeypatch.setattr(hub, "_GATHER_S", 0.0)
    monkeypatch.setattr(hub, "TOGETHER", dice.choice([1, 2, 16]))
    monkeypatch.setattr(rings, "EVENTS_MAX", dice.choice([1, 5, 100]))
    monkeypatch.setattr(channels, "KEPT_BYTES_MAX", dice.choice([0, 1_000, 100_000]))
    monkeypatch.setattr(channels, "SENT_BYTES_MAX", dice.choice([1, 1_000, 100_000]))
    monkeypatch.setattr(cursors, "PIECE_BYTES", dice.choice([100, 1_000, 10_000]))
    monkeypatch.setattr(cursors, "LOOKS_MAX", dice.choice([1, 7, 100]))
    monkeypatch.setattr(cursors, "RETRY_S", 0.01)
    clients = [Slow(dice, FILTERS[number % 2]) for number in range(6)]

    async def main() -> None:
        async with house(tmp_path, 3) as served:
            for source in served.sources:
                write(source, dice)
            begin = [len(source.entries) for source in served.sources]
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(client.listen, served)
                await served.until(lambda: all(client.source.last_id for client in clients))
                await let_happen(served, clients, dice)
                due = [client.due(served, begin) for client in clients]
                with trio.fail_after(20):
                    await served.until(
                        lambda: (
                            [len(client.source.events) for client in clients]
                            == [len(each) for each in due]
                        )
                    )
                await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.cancel_scope.cancel()
            told = [sorted(bodies_of(client.source), key=itemgetter(0)) for client in clients]

        assert told == due

    trio.run(main)


async def let_happen(served: House, clients: list[Slow], dice: Random) -> None:
    """Let things happen while clients stop and go on; in the end all go on."""
    for _ in range(40):
        dice.choice(clients).stop_or_go_on()
        source = dice.choice(served.sources)
        write(source, dice)
        if dice.random() < 0.1:
            source.hang_up()
        for _ in range(dice.choice([0, 1, 10, 100])):
            await trio.lowlevel.checkpoint()
    for client in clients:
        client.gate.set()


class Crowd:
    """Many that wait for the same."""

    def __init__(self) -> None:
        self.work = 1
        self.waiting = trio.lowlevel.ParkingLot()
        self.woken = 0

    def advance(self) -> int:
        work, self.work = self.work, 0
        return work

    def crowd(self) -> trio.lowlevel.ParkingLot:
        crowd, self.waiting = self.waiting, trio.lowlevel.ParkingLot()
        return crowd

    async def wait(self) -> None:
        await self.waiting.park()
        self.woken += 1


def test_a_crowd_is_woken_in_slices_with_pauses_between() -> None:
    woken: list[int] = []

    async def main() -> None:
        made = Hub(config_of({}), topology_of(config_of({})))
        crowd = Crowd()
        made.audiences["all"] = crowd
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(crowd.wait)
            await trio.testing.wait_all_tasks_blocked()
            made.news.set()
            nursery.start_soon(made._keep_telling)
            while crowd.woken < 100:
                woken.append(crowd.woken)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)

    steps = [after - before for before, after in itertools.pairwise(woken)]
    assert max(steps) <= hub.TOGETHER
    assert sum(step > 0 for step in steps) >= 100 // hub.TOGETHER


def test_a_thousand_that_want_different_things_are_looked_at_in_a_fifth_of_a_second() -> None:
    async def main() -> None:
        made = Hub(config_of({}), topology_of(config_of({})))
        made.audiences.update({number: Crowd() for number in range(1_000)})
        async with trio.open_nursery() as nursery:
            begun = trio.current_time()
            nursery.start_soon(made._keep_telling)
            made.news.set()
            await made.changed(0)
            took_s = trio.current_time() - begun
            nursery.cancel_scope.cancel()

        # Others have their turn about every half a millisecond, and it is over soon.
        assert 0.05 < took_s < 0.2

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
