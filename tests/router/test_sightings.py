"""States of workers: alive, not fetching, gone; a busy worker is always alive."""

from collections.abc import Iterable
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import Worker
from corvo.protocol.questions import Beat
from corvo.protocol.routers import SeenWorker, SeenWorkers
from corvo.router.worker_health import (
    ALIVE,
    GONE,
    GONE_S,
    KEPT_S,
    NOT_FETCHING,
    NOT_FETCHING_S_MIN,
    UNKNOWN,
    KnownWorker,
    Sightings,
    WorkerHealth,
    gather_by_steps,
    in_order,
)

S: Final = 1_000_000_000
T: Final = 1_700_000_000 * S
HEALTH: Final = WorkerHealth(wait_s_max=60, began_ns=T - 3_600 * S)


def gather(
    workers: Iterable[Worker], beats: Iterable[Beat], sightings: Sightings, now_ns: int
) -> list[KnownWorker]:
    heard: dict[str, KnownWorker] = {}
    for _ in gather_by_steps(heard, workers, beats, sightings, now_ns):
        pass
    return in_order(heard.values())


class Scene:
    """A worker, told of by a script."""

    def __init__(self) -> None:
        self.sightings: Final = Sightings()
        self.now_ns = T
        self.jobs: list[int] = []
        """When each of its jobs was given out."""
        self.beat_ns = 0

    def fetch(self, claims: int = 1) -> None:
        sighting = self.sightings.asks("w", "rook", ["mail"], self.now_ns)
        assert sighting is not None
        self.sightings.has_asked(sighting, claims, self.now_ns)
        self.jobs += [self.now_ns] * claims
        self.look()

    def finish(self, count: int = 1) -> None:
        del self.jobs[:count]

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * S)

    def renew(self) -> None:
        self.beat_ns = self.now_ns

    def look(self, *, health: WorkerHealth = HEALTH, knows_jobs: bool = True) -> str:
        """How it is, by all that is known now."""
        told = []
        if self.jobs and knows_jobs:
            newest_ns = max(self.jobs)
            beat = Beat(
                worker_id="w",
                hostname="rook",
                active=len(self.jobs),
                beat_ns=max(self.beat_ns, newest_ns),
                started_ns=newest_ns,
                queues=("mail",),
            )
            told.append(beat)
        [heard] = gather([], told, self.sightings, self.now_ns)
        return health.state(heard, self.now_ns, knows_jobs=knows_jobs)


def test_a_worker_that_asks_is_alive_however_little_it_finds() -> None:
    scene = Scene()
    for _ in range(100):
        scene.fetch(0)
        scene.wait(60)

        assert scene.look() == "alive"


def test_a_worker_whose_fetch_waits_is_alive() -> None:
    scene = Scene()
    scene.sightings.asks("w", "", ["mail"], T)
    scene.wait(100_000)

    assert scene.look() == "alive"


@pytest.mark.parametrize("claims", [1, 5])
def test_a_worker_that_is_busy_with_long_jobs_is_alive(claims: int) -> None:
    scene = Scene()
    scene.fetch(claims)
    for _ in range(60):
        scene.wait(60)
        scene.renew()

        assert scene.look() == "alive"


def test_a_worker_that_is_busy_in_every_place_is_alive() -> None:
    scene = Scene()
    for _ in range(10):
        scene.fetch()
        scene.wait(1)
    for _ in range(60):
        scene.wait(60)
        scene.renew()

        assert scene.look() == "alive"


def test_a_worker_that_renews_and_does_not_fill_its_free_place_is_not_fetching() -> None:
    scene = Scene()
    for _ in range(3):
        scene.fetch()
    scene.wait(10)
    scene.finish()

    seen = []
    for _ in range(6):
        scene.wait(60)
        scene.renew()
        seen.append(scene.look())

    assert seen == ["alive"] * 2 + ["not_fetching"] * 4
    scene.fetch()
    assert scene.look() == "alive"


def test_what_a_worker_had_before_it_asked_again_says_nothing_of_its_room_now() -> None:
    scene = Scene()
    for _ in range(10):
        scene.fetch()
    scene.finish(9)
    scene.fetch()
    for _ in range(10):
        scene.wait(60)
        scene.renew()

        assert scene.look() == "alive"


def test_a_worker_that_takes_several_at_once_may_finish_them_before_it_asks_again() -> None:
    scene = Scene()
    scene.fetch(5)
    for _ in range(4):
        scene.wait(300)
        scene.finish()
        scene.renew()
        assert scene.look() == "alive"


def test_a_worker_that_beats_without_a_job_and_without_a_fetch_is_not_fetching() -> None:
    scene = Scene()
    scene.fetch(0)
    scene.wait(NOT_FETCHING_S_MIN + 1)
    scene.sightings.beats("w", scene.now_ns)

    assert scene.look() == "not_fetching"


def test_a_worker_of_which_nothing_is_heard_is_gone() -> None:
    scene = Scene()
    scene.fetch()
    scene.finish()
    scene.wait(GONE_S)
    still = scene.look()
    scene.wait(1)

    assert (still, scene.look()) == ("alive", "gone")


def test_a_worker_that_holds_a_lease_is_not_gone() -> None:
    scene = Scene()
    scene.fetch()
    scene.wait(20_000)

    assert scene.look() == "alive"


def test_every_worker_is_alive_or_unknown_while_nobody_knows_which_jobs_workers_hold() -> None:
    scene = Scene()
    scene.fetch()
    scene.wait(NOT_FETCHING_S_MIN + 1)
    scene.sightings.beats("w", scene.now_ns)
    beating = scene.look(knows_jobs=False)
    scene.wait(GONE_S + 1)

    assert (beating, scene.look(knows_jobs=False)) == ("alive", "unknown")


def test_a_router_that_has_begun_only_now_calls_nobody_gone() -> None:
    heard = KnownWorker(id="w", asked_ns=T - 7_200 * S)
    health = WorkerHealth(wait_s_max=60, began_ns=T)

    states = [
        health.state(heard, T + seconds * S, knows_jobs=True) for seconds in (0, 74, 75, 1_000)
    ]

    assert states == ["unknown", "unknown", "gone", "gone"]


def test_where_fetches_may_wait_for_long_a_worker_is_alive_for_longer_without_a_fetch() -> None:
    assert WorkerHealth(wait_s_max=1, began_ns=0).not_fetching_s == NOT_FETCHING_S_MIN
    assert WorkerHealth(wait_s_max=600, began_ns=0).not_fetching_s == 1_800


# Remembering.


def names(sightings: Sightings, now_ns: int) -> list[str]:
    return [name for name, _ in sightings.all(now_ns)]


def test_what_all_know_of_a_worker_is_put_together() -> None:
    sightings = Sightings()
    sightings.asks("w", "rook", ["sms"], T)
    worker = Worker(id="w", hostname="old", queues=("mail",), started_ns=T - 9 * S, seen_ns=T - S)
    beat = Beat(
        worker_id="w", hostname="rook", active=2, beat_ns=T - 2, started_ns=T - 3, queues=("push",)
    )
    other = Worker(id="idle", queues=("mail",), started_ns=T - 99 * S, seen_ns=T - 98 * S)

    heard = gather([other, worker], [beat], sightings, T)

    assert heard == [
        KnownWorker(
            id="w",
            hostname="rook",
            queues=frozenset({"mail", "sms", "push"}),
            started_ns=T - 9 * S,
            asked_ns=T,
            beat_ns=T - 2,
            active=2,
            most=2,
            is_asking=True,
        ),
        KnownWorker(
            id="idle", queues=frozenset({"mail"}), started_ns=T - 99 * S, asked_ns=T - 98 * S
        ),
    ]


workers = st.builds(
    Worker,
    id=st.sampled_from(["a", "b"]),
    hostname=st.sampled_from(["", "h", "i"]),
    queues=st.lists(st.sampled_from(["mail", "sms", "push"]), unique=True).map(tuple),
    started_ns=st.integers(1, 5),
    seen_ns=st.integers(5, 9),
)


@given(st.lists(workers, max_size=6))
def test_a_worker_known_to_several_shards_is_what_they_know_together(seen: list[Worker]) -> None:
    merged = gather(seen, [], Sightings(), T)

    assert [worker.seen_ns for worker in merged] == sorted(
        (worker.seen_ns for worker in merged), reverse=True
    )
    assert sorted(worker.id for worker in merged) == sorted({worker.id for worker in seen})
    for worker in merged:
        known = [each for each in seen if each.id == worker.id]
        assert worker.started_ns == min(each.started_ns for each in known)
        assert worker.seen_ns == max(each.seen_ns for each in known)
        assert worker.queues == {queue for each in known for queue in each.queues}
        named = [each for each in known if each.hostname]
        latest_ns = max((each.seen_ns for each in named), default=0)
        latest = [each.hostname for each in named if each.seen_ns == latest_ns]
        assert worker.hostname in (latest or [""])


def test_a_name_that_never_asked_for_work_is_not_remembered() -> None:
    sightings = Sightings()

    sightings.beats("anybody", T)
    unnamed = sightings.asks("", "", ["mail"], T)

    assert (len(sightings), unnamed) == (0, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60), st.integers(1, 5))
def test_so_many_workers_are_remembered_and_no_more_the_last_ones(
    script: list[tuple[int, bool]], workers_max: int
) -> None:
    sightings = Sightings(workers_max)
    asked: list[str] = []
    for number, is_fetch in script:
        name = f"w{number}"
        if is_fetch:
            sighting = sightings.asks(name, "", ["mail"], T)
            assert sighting is not None
            sightings.has_asked(sighting, 0, T)
            asked = [each for each in asked if each != name] + [name]
        else:
            sightings.beats(name, T)

    assert names(sightings, T) == asked[-workers_max:]


def test_a_worker_that_was_not_heard_of_for_a_day_is_forgotten_unless_it_waits() -> None:
    sightings = Sightings()
    gone = sightings.asks("gone", "", ["mail"], T)
    assert gone is not None
    sightings.has_asked(gone, 0, T)
    sightings.asks("waits", "", ["mail"], T)

    assert names(sightings, T + KEPT_S * S - 1) == ["gone", "waits"]
    assert names(sightings, T + KEPT_S * S) == ["waits"]


ELSEWHERE: Final = SeenWorker("w", "rook", ("mail",), T - 100 * S, T - 50 * S, 0, False, 1, False)
"""A worker that another router has seen."""


def test_what_other_routers_have_seen_counts_as_if_it_had_been_here() -> None:
    sightings = Sightings()
    heard: dict[str, KnownWorker] = {}
    waits = msgspec.structs.replace(ELSEWHERE, beat_ns=T - 3 * S, most=4, is_asking=True)
    others = [ELSEWHERE, waits]
    for _ in gather_by_steps(heard, [], [], sightings, T, others):
        pass

    [known] = heard.values()
    assert (known.asked_ns, known.beat_ns, known.most) == (T, T - 3 * S, 4)
    assert known.is_asking
    assert HEALTH.state(known, T, knows_jobs=True) == ALIVE


def test_what_a_router_shows_is_what_another_one_reads() -> None:
    here, there = Sightings(), Sightings()
    sighting = here.asks("w", "rook", ["mail", "sms"], T - 9 * S)
    assert sighting is not None
    here.has_asked(sighting, 3, T - 8 * S)
    here.beats("w", T - 2 * S)
    data = msgspec.msgpack.encode(SeenWorkers(list(here.shown(T))))

    heard: dict[str, KnownWorker] = {}
    read = msgspec.msgpack.decode(data, type=SeenWorkers).workers
    for _ in gather_by_steps(heard, [], [], there, T, read):
        pass

    assert list(heard.values()) == gather([], [], here, T)


@pytest.mark.parametrize(("active", "state"), [(0, UNKNOWN), (1, ALIVE)])
def test_a_worker_is_not_accused_while_a_router_is_silent(active: int, state: str) -> None:
    known = KnownWorker(id="w", asked_ns=T - 86_000 * S, active=active, most=2)

    assert HEALTH.state(known, T, knows_jobs=True, knows_all=False) == state
    assert HEALTH.state(known, T, knows_jobs=True) in {GONE, NOT_FETCHING}
