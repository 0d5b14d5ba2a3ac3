"""Ids that are numbers: a client that goes on from any of them misses nothing."""

from pathlib import Path
from random import Random

import msgspec
import pytest
import trio

from corvo import link
from corvo.protocol.wire import Happening
from corvo.router.config import Limits
from corvo.router.events import channels, cursors
from corvo.router.events.endpoints import read_begin
from corvo.router.feeds import hub, rings
from corvo.router.http.messages import Problem
from corvo.times import MS
from tests.router.feeds import Ear, EventSource, House, Source, house, seqs
from tests.router.test_channels import until_along

NOW_MS = 1_763_490_000_000
SKEW_MS = 20_000

Key = tuple[int, int, int]


class Later:
    """Trio at a time that the test lets pass."""

    def __init__(self, passed_s: list[float]) -> None:
        self._passed_s = passed_s

    def current_time(self) -> float:
        return trio.current_time() + self._passed_s[0]

    def __getattr__(self, name: str) -> object:
        return getattr(trio, name)


class World:
    """Shards that are early and late, by clocks that differ, and a client that is cut off."""

    def __init__(self, served: House, dice: Random, passed_s: list[float]) -> None:
        self.served = served
        self.dice = dice
        self.client = EventSource()
        self.points: list[tuple[str, int]] = []
        """Ids that the client had, and how many events it had been given by then."""
        self._passed_s = passed_s
        self._skew_ms = [dice.randrange(SKEW_MS) for _ in served.sources]

    def happen(self) -> None:
        """One entry somewhere, with some events of one time."""
        source = self.dice.choice(self.served.sources)
        index = len(source.entries) + 1
        now_ms = NOW_MS + int(self._passed_s[0] * 1_000) + self._skew_ms[source.shard]
        source.times[index] = max(now_ms * MS, source.time(index - 1) + self.dice.choice([1, MS]))
        count = self.dice.choice([0, 1, 1, 3])
        source.add(*(Happening("enqueued", f"j{index}", "mail") for _ in range(count)))

    def disturb(self) -> None:
        """Have a shard be late, come back, or lose its link."""
        source = self.dice.choice(self.served.sources)
        match self.dice.randrange(4):
            case 0 if source.gate.is_set():
                source.gate = trio.Event()
            case 0 | 1:
                source.gate.set()
            case 2:
                source.hang_up()
            case 3:
                source.is_away = not source.is_away
                source.hang_up()

    def calm(self) -> None:
        """Have all shards be there."""
        for source in self.served.sources:
            source.is_away = False
            source.gate.set()

    def happened(self) -> set[Key]:
        return {
            (source.shard, index, number)
            for source in self.served.sources
            for index, entry in enumerate(source.entries, start=1)
            for number, _ in enumerate(entry.events, start=1)
        }

    def given(self, source: EventSource, count: int | None = None) -> set[Key]:
        bodies = Ear(0, source).bodies[:count]
        return {(body.shard, body.seq, body.number) for body in bodies}

    async def listen(self, ear: Ear, seconds: float) -> None:
        """Read for a while, and note each id."""
        with trio.move_on_after(seconds):
            while not (ear.is_over or ear.is_cut):
                await ear.read(self.dice.choice([10, 200, 5_000]))
                self.points.append((self.client.last_id, len(self.client.events)))

    async def live(self) -> None:
        """Let all this happen, while the client comes and goes."""
        for _ in range(6):
            ear = await self.served.listen("ids=number", source=self.client)
            assert ear.status == 200, ear.body
            for _ in range(self.dice.randrange(8)):
                for _ in range(self.dice.randrange(4)):
                    self.happen()
                if self.dice.random() < 0.4:
                    self.disturb()
                self._passed_s[0] += self.dice.choice([0, 0.001, 1, 15, 90, 3_600])
                await self.listen(ear, self.dice.choice([0.001, 0.01]))
            ear.close()
            self.client.cut()


@pytest.mark.parametrize("seed", range(16))
def test_a_client_that_goes_on_from_any_number_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice, passed_s = Random(seed), [0.0]
    for module in (hub, link):  # for what they know of a feed's age
        monkeypatch.setattr(module, "trio", Later(passed_s))
    monkeypatch.setattr(hub, "PAGE_EVENTS", dice.choice([1, 3, 50]))
    monkeypatch.setattr(hub, "_GATHER_S", 0.0)
    monkeypatch.setattr(rings, "EVENTS_MAX", dice.choice([1, 5, 100]))
    monkeypatch.setattr(channels, "KEPT_BYTES_MAX", dice.choice([0, 100_000]))
    monkeypatch.setattr(cursors, "PIECE_BYTES", dice.choice([100, 10_000]))
    monkeypatch.setattr(cursors, "RETRY_S", 0.01)

    async def main() -> None:
        async with house(tmp_path, 3, limits=Limits(leader_wait_ms=20)) as served:
            world = World(served, dice, passed_s)
            await served.listen()  # so that the feeds are followed all the time
            ear = await served.listen("ids=number", source=world.client)
            await ear.until(lambda: bool(world.client.last_id))
            ear.close()
            await world.live()
            world.calm()
            happened = world.happened()
            await come(served, "", world.client, happened - world.given(world.client), world)
            for last_id, count in dice.sample(world.points, min(8, len(world.points))):
                missing = happened - world.given(world.client, count)
                await come(served, last_id, EventSource(), missing, world)

    trio.run(main)


async def come(
    served: House, last_id: str, source: EventSource, missing: set[Key], world: World
) -> None:
    """Go on from an id until nothing is missing any more."""
    ear = await served.listen("ids=number", last_id=last_id, source=source)
    with trio.move_on_after(10) as scope:
        await ear.until(lambda: missing <= world.given(source))
    assert not scope.cancelled_caught, (last_id, missing - world.given(source))
    ear.close()


def test_a_feed_that_has_more_to_come_is_as_old_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = [0.0]
    for module in (hub, link):
        monkeypatch.setattr(module, "trio", Later(passed_s))
    monkeypatch.setattr(hub, "PAGE_EVENTS", 1)

    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source], [feed] = served.sources, served.api.hub.feeds
            await served.listen()
            await source.until_follows(2)
            source.gate = trio.Event()
            passed_s[0] = 100.0
            source.happen(count=3)
            await source.until_follows(3)
            in_between = feed.age_s
            source.gate.set()
            await served.until(lambda: feed.ring is not None and feed.ring.end.index == 3)

            assert in_between >= 100.0
            assert feed.age_s < 50.0

    trio.run(main)


def at(source: Source, ms: int) -> None:
    source.times[len(source.entries) + 1] = ms * MS
    source.happen()


def test_a_number_is_the_time_before_which_everything_was_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, 2) as served:
            first, second = served.sources
            at(first, 1_000)
            at(second, 2_000)
            ear = await served.listen("ids=number")
            await ear.until(lambda: bool(ear.source.last_id))
            begun = ear.source.last_id
            at(first, 3_000)
            at(second, 4_000)
            await ear.until_events(2)
            at(first, 500_000)
            await ear.until_events(3)
            again = await served.listen(last_id=ear.source.last_id)
            await again.until_events(1)
            at(second, 500_001)
            await again.until_events(2)

            assert begun == "1000"
            assert 3_000 <= int(ear.source.events[1].id) <= 4_000
            # The other shard is quiet: it is a minute behind, and a little that nothing was heard.
            assert 430_000 < int(ear.source.last_id) <= 440_000
            assert seqs(again.bodies, 0) == [3]
            assert [int(each.id) > 430_000 for each in again.source.events] == [True, True]

    trio.run(main)


def test_clients_of_numbers_and_of_positions_share_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source] = served.sources
            positions = await served.listen()
            numbers = [await served.listen("ids=number") for _ in range(2)]
            await until_along(served, 3)
            at(source, 7_000)
            for ear in (positions, *numbers):
                await ear.until_events(1)

            assert len(served.api.hub.audiences) == 2
            assert [ear.source.last_id for ear in numbers] == ["7000", "7000"]
            assert positions.source.last_id.startswith("s0=1-")

    trio.run(main)


class Gone(msgspec.Struct, tag="gone"):
    last_event_id: str
    shards: list[int]


def test_a_number_before_the_stored_events_is_gone_and_the_answer_has_one_that_is_not(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with house(tmp_path, 2) as served:
            first, second = served.sources
            for ms in range(1_000, 8_000, 1_000):
                at(first, ms)
                at(second, ms + 500)
            first.cut(5)
            refused = [await served.listen(last_id=number) for number in ("0", "17", "5000")]
            gone = [msgspec.json.decode(each.body, type=Gone) for each in refused]
            ear = await served.listen(last_id=gone[0].last_event_id)
            await ear.until_events(3)
            known = await served.listen(last_id="6500")
            await known.until_events(3)

            assert [each.status for each in refused] == [410] * 3
            assert {each.last_event_id for each in gone} == {"6001"}
            assert [each.shards for each in gone] == [[0]] * 3
            assert seqs(ear.bodies, 0) == [7]
            assert seqs(ear.bodies, 1) == [6, 7]
            assert (seqs(known.bodies, 0), seqs(known.bodies, 1)) == ([7], [6, 7])

    trio.run(main)


def test_a_number_of_the_future_is_the_present(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, 1) as served:
            [source] = served.sources
            at(source, 1_000)
            ear = await served.listen(last_id="999999999999999")
            await ear.until(lambda: bool(ear.source.last_id))
            begun = ear.source.last_id
            at(source, 2_000)
            await ear.until_events(1)

            assert begun == "1000"
            assert seqs(ear.bodies, 0) == [2]
            assert ear.source.last_id == "2000"

    trio.run(main)


@pytest.mark.parametrize(
    ("last_id", "ids", "is_numbered", "since_ns"),
    [
        ("", "", False, 0),
        ("", "number", True, 0),
        ("123", "", True, 123 * MS),
        ("0", "", True, 1),
        (" 123 ", "number", True, 123 * MS),
        ("123", "position", False, 123 * MS),
        ("9" * 15, "", True, (1 << 63) - 1),
        ("s0=1-00000000", "", False, 0),
    ],
)
def test_a_client_gets_ids_as_it_sends_them(
    last_id: str, ids: str, is_numbered: bool, since_ns: int
) -> None:
    begin = read_begin(last_id, ids, 1)

    assert (begin.is_numbered, begin.since_ns) == (is_numbered, since_ns)


@pytest.mark.parametrize(
    ("last_id", "ids", "field"),
    [
        ("", "numbers", "ids"),
        ("s0=1-00000000", "number", "last_event_id"),
        ("1.5", "", "last_event_id"),
        ("-1", "", "last_event_id"),
        ("9" * 16, "", "last_event_id"),
        ("\N{DEVANAGARI DIGIT ONE}", "", "last_event_id"),
    ],
)
def test_what_is_no_id_is_refused(last_id: str, ids: str, field: str) -> None:
    with pytest.raises(Problem) as problem:
        read_begin(last_id, ids, 1)

    assert (problem.value.status, problem.value.field) == (400, field)
