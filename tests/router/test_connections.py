"""The registry: who is cut, when, and with which words. Times are given; nobody waits."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.router.config import Limits
from corvo.router.http.connections import CUTS_MAX, HEAD_S, LINGER_S, Connections, Seat, Stage

LIMITS: Final = Limits(
    idle_ms=60_000,
    header_ms=10_000,
    body_grace_ms=5_000,
    body_rate_min=100,
    send_ms=8_000,
    connections_max=3,
)


class Crowd:
    """Connections, and who of them was cut."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.connections = Connections(limits)
        self.connections.sweep(100.0, "date: now\r\n")
        self.cut: list[int] = []

    def enter(self, stage: Stage = Stage.IDLE) -> Seat:
        number = len(self.connections.seats)
        seat = self.connections.enter(lambda: self.cut.append(number))
        seat.move(stage)
        return seat

    def sweep_after(self, took_s: float) -> list[int]:
        self.connections.sweep(100.0 + took_s, "date: later\r\n")
        return self.cut


@pytest.mark.parametrize(
    ("stage", "limit_s", "status"),
    [
        (Stage.IDLE, 60.0, 0),
        (Stage.HEAD, 10.0, 408),
        (Stage.BODY, 5.0, 408),
        (Stage.SENDING, 8.0, 0),
        (Stage.LINGERING, LINGER_S, 0),
    ],
)
def test_each_stage_has_its_time(stage: Stage, limit_s: float, status: int) -> None:
    crowd = Crowd()
    seat = crowd.enter(stage)

    assert crowd.sweep_after(limit_s) == []
    assert crowd.sweep_after(limit_s + crowd.connections.sweep_s + 0.02) == [0]
    assert (seat.refusal.status if seat.refusal else 0) == status


def test_an_answer_takes_what_it_takes() -> None:
    crowd = Crowd()
    crowd.enter(Stage.ANSWERING)

    assert crowd.sweep_after(1e9) == []


def test_a_body_may_take_long_when_it_brings_enough() -> None:
    crowd = Crowd()
    seat = crowd.enter(Stage.BODY)
    seat.hold(1_000)

    assert crowd.sweep_after(5 + 9.9) == []
    assert crowd.sweep_after(5 + 10.1 + crowd.connections.sweep_s) == [0]


def test_a_connection_is_cut_once() -> None:
    crowd = Crowd()
    seat = crowd.enter()

    seat.cut()
    seat.cut()

    assert crowd.sweep_after(1e9) == [0]


def test_what_stands_in_the_way_of_an_end_is_cut_first() -> None:
    crowd = Crowd()
    seat = crowd.enter()
    seat.on_cut(lambda: crowd.cut.append(-1))

    seat.cut()

    assert crowd.cut == [-1, 0]


def test_short_limits_are_looked_at_more_often() -> None:
    assert Connections(Limits()).sweep_s == 0.5
    assert Connections(Limits(send_ms=100)).sweep_s == pytest.approx(0.025)


def test_all_bodies_together_are_counted() -> None:
    crowd = Crowd(Limits(bodies_bytes_max=100))
    first, second = crowd.enter(), crowd.enter()

    assert first.hold(60)
    assert second.hold(40)
    assert not second.hold(41)
    crowd.connections.leave(first)
    assert second.hold(100)
    crowd.connections.leave(second)

    assert crowd.connections.body_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*Stage, None])), max_size=40))
def test_room_is_made_by_whoever_is_idle_for_the_longest(
    moves: list[tuple[int, Stage | None]],
) -> None:
    crowd = Crowd()
    seats = [crowd.enter(Stage.HEAD) for _ in range(5)]
    idle: list[int] = []  # the dumb twin
    for number, stage in moves:
        if number in idle:
            idle.remove(number)
        if stage is None:
            seats[number].cut()
        else:
            seats[number].move(stage)
        if stage is Stage.IDLE and not seats[number].is_cut:
            idle.append(number)
    already = list(crowd.cut)

    while crowd.connections.make_room():
        pass

    assert crowd.cut == already + idle


def test_room_is_made_first_by_headers_that_take_longer_than_anybody_needs() -> None:
    crowd = Crowd()
    crowd.enter(Stage.IDLE)
    crowd.enter(Stage.HEAD)
    crowd.sweep_after(HEAD_S)
    crowd.enter(Stage.HEAD)

    made = [crowd.connections.make_room() for _ in range(3)]

    assert made == [True, True, False]
    assert crowd.cut == [1, 0]


def test_nothing_is_kept_of_headers_that_have_come_in_or_will_not() -> None:
    crowd = Crowd()
    seats = [crowd.enter(Stage.HEAD) for _ in range(3)]

    seats[0].move(Stage.BODY)
    seats[1].cut()
    crowd.connections.leave(seats[2])

    assert not crowd.connections.heads


def test_the_end_is_at_once_for_those_that_nobody_waits_for() -> None:
    crowd = Crowd()
    for stage in Stage:
        crowd.enter(stage)

    crowd.connections.stop()
    at_once = [list(Stage)[number] for number in crowd.cut]
    crowd.connections.cut_all()

    assert at_once == [Stage.IDLE, Stage.LINGERING]
    assert sorted(crowd.cut) == list(range(len(Stage)))


def test_thousands_who_are_due_at_once_are_cut_by_and_by() -> None:
    crowd = Crowd()
    for _ in range(CUTS_MAX + 1):
        crowd.enter()

    has_more = crowd.connections.sweep(1e9, "date: later\r\n")
    first = len(crowd.cut)
    has_more_behind = crowd.connections.sweep(1e9, "date: later\r\n")

    assert (first, has_more) == (CUTS_MAX, True)
    assert (len(crowd.cut), has_more_behind) == (CUTS_MAX + 1, False)
