"""The clock of a shard: neither a wall clock that is set nor a change of leader is a step."""

import msgspec
import pytest

from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.raft import AnyMessage, AppendRequest
from corvo.shard.state import entry
from tests.shard.replicas import MS, START_NS, Replicas

MAIL = Enqueue(jobs=[NewJob(queue="mail")])


def test_stamps_rise_though_the_wall_clock_falls() -> None:
    group = Replicas()
    stamps = []

    for ms in (0, 0, -60_000, -3_600_000, 10_000):
        group.wall_ahead_ns += ms * MS
        group.put(NewJob(queue="mail"))
        stamps.append(group.replicas[1].machine.now_ns)

    assert stamps == sorted({*stamps})
    written = [entry.decode(each.data)[0].now_ns for each in group.entries() if each.data]
    assert written == sorted({*written})


@pytest.mark.parametrize("ahead_s", [-86_400, -3_600, 3_600, 86_400, 100 * 365 * 86_400])
def test_a_new_leader_goes_on_from_the_stamps_whatever_its_wall_clock_shows(ahead_s: int) -> None:
    group = Replicas(3)
    group.walls[2] = ahead_s * 1_000 * MS
    group.put(NewJob(queue="mail"))
    group.pass_time(2_000)
    group.put(NewJob(queue="mail"))
    before_ns = group.replicas[1].machine.now_ns
    group.pass_time(1_000)

    group.elect(2, 3)
    group.do(MAIL, to=2)

    passed_ns = group.replicas[2].machine.now_ns - before_ns
    assert abs(passed_ns - 1_000 * MS) <= 100 * MS + 100


@pytest.mark.parametrize("restarts", [False, True])
def test_entries_that_a_replica_missed_do_not_set_its_clock_back(*, restarts: bool) -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    group.cut_off[3] = None
    group.pass_time(1_000)
    group.put(NewJob(queue="mail"))
    group.pass_time(3_600_000)
    if restarts:
        group.start(3)
    group.cut_off.clear()
    group.tick(5)
    assert group.replicas[3].machine.applied == group.replicas[1].machine.applied

    group.pass_time(10_000)
    group.elect(3, 2)
    group.do(MAIL, to=3)

    assert abs(group.replicas[3].machine.now_ns - group.now_ns) <= 100


def test_a_replica_that_stood_still_does_not_set_its_clock_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    group.pass_time(1_000)
    came: list[AnyMessage] = []
    with monkeypatch.context() as standing:
        standing.setattr(group.replicas[3], "step", came.append)
        group.put(NewJob(queue="mail"))
        group.tick(5)
        group.pass_time(40_000)
    for message in came:
        group.replicas[3].step(message)
    group.settle()

    group.elect(3, 2)
    group.do(MAIL, to=3)

    assert abs(group.replicas[3].machine.now_ns - group.now_ns) <= 100


def test_the_leader_of_a_group_that_starts_anew_believes_its_wall_clock() -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    before_ns = group.replicas[1].machine.now_ns
    for number in group.voters:
        group.start(number)
    group.now_ns += 86_400_000 * MS

    group.elect(2, 3)
    group.do(MAIL, to=2)

    assert group.replicas[2].machine.now_ns - before_ns >= 86_400_000 * MS


def test_an_entry_behind_a_gap_does_not_set_the_clock_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    came = with_entries(group, monkeypatch, 2)
    group.cut_off[3] = None
    group.put(NewJob(queue="mail"))
    group.put(NewJob(queue="mail"))
    group.pass_time(3_600_000)
    late = msgspec.structs.replace(came[-1], target=3, commit=came[-1].entries[-1].index)

    group.replicas[3].step(late)
    group.cut_off.clear()
    group.tick(5)
    assert group.replicas[3].machine.applied == group.replicas[1].machine.applied
    group.elect(3, 2)
    group.do(MAIL, to=3)

    assert abs(group.replicas[3].machine.now_ns - group.now_ns) <= 100


def test_an_entry_that_a_snapshot_has_replaced_does_not_set_the_clock_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    with monkeypatch.context() as busy:
        with_entries(group, busy, 3)
        group.put(NewJob(queue="mail"))
    group.cut_off[3] = None
    group.pass_time(3_600_000)
    group.put(NewJob(queue="mail"))
    group.make_snapshot(1)
    group.make_snapshot(2)
    group.cut_off.clear()
    group.tick(5)
    group.put(NewJob(queue="mail"))
    assert group.replicas[3].machine.applied == group.replicas[1].machine.applied

    group.elect(3, 2)
    group.do(MAIL, to=3)

    assert abs(group.replicas[3].machine.now_ns - group.now_ns) <= 100


def test_the_clock_follows_a_leader_whose_entries_are_committed_with_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    group.wall_ahead_ns = 3_600_000 * MS
    with monkeypatch.context() as busy:
        with_entries(group, busy, 3)
        for _ in range(20):
            group.pass_time(1_000)
            group.put(NewJob(queue="mail"))
    group.pass_time(10_000)

    group.elect(3, 2)
    group.do(MAIL, to=3)

    # Each leader gains a tenth.
    passed_ns = group.replicas[3].machine.now_ns - START_NS
    assert 32_800 * MS <= passed_ns <= 33_100 * MS


def test_the_clock_follows_a_new_leader_though_entries_of_the_one_before_were_lost() -> None:
    group = Replicas(5)
    group.put(NewJob(queue="mail"))
    group.cut_off.update({2: None, 3: None, 4: None})
    for _ in range(10):
        group.submit(MAIL)
        group.settle()
    group.cut_off.clear()
    group.cut_off[1] = None
    group.elect(2, 3, 4, 5)
    group.wall_ahead_ns = 3_600_000 * MS
    for _ in range(5):
        group.pass_time(4_000)
        group.put(NewJob(queue="mail"), to=2)

    group.pass_time(9_000)
    group.elect(5, 3, 4)
    group.do(MAIL, to=5)

    # Each leader gains a tenth.
    passed_ns = group.replicas[5].machine.now_ns - START_NS
    assert 31_800 * MS <= passed_ns <= 32_000 * MS


def with_entries(
    group: Replicas, monkeypatch: pytest.MonkeyPatch, number: int
) -> list[AppendRequest]:
    """Let a replica receive entries alone: it hears of a commit only with the next entry."""
    step = group.replicas[number].step
    came: list[AppendRequest] = []

    def only_entries(message: AnyMessage) -> None:
        if not isinstance(message, AppendRequest):
            step(message)
        elif message.entries:
            came.append(message)
            step(message)

    monkeypatch.setattr(group.replicas[number], "step", only_entries)
    return came
