"""The steered clock, beside a dumb one that adds up milliseconds."""

from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.steered_clock import (
    AHEAD_MAX_NS,
    APART_NS,
    NOTICE_EVERY_NS,
    REACH_NS,
    SHARE,
    UNSET_NS,
    Course,
    Notice,
    SteeredClock,
)

MS: Final = 1_000_000
S: Final = 1_000 * MS
HOUR: Final = 3_600 * S
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY
NOON: Final = 1_700_000_000 * S
"""What a right wall clock shows when a machine has been running for a second."""


class Machine:
    """A machine with its two clocks, and the steered one."""

    def __init__(
        self, *, last_ns: int = 0, wall_ns: int = NOON, offset_ns: int | None = None
    ) -> None:
        self.elapsed_ns = S
        self.wall_ns = wall_ns
        self.last_ns = last_ns
        self.clock = SteeredClock(last_ns=last_ns, ahead_max_ns=YEAR, offset_ns=offset_ns)

    def read(self) -> int:
        return self.clock.read(self.elapsed_ns, self.wall_ns, last_ns=self.last_ns)

    def pass_time(self, ns: int) -> None:
        """Let time pass while nobody looks."""
        self.elapsed_ns += ns
        self.wall_ns += ns

    def run(self, ns: int, *, every: int = S) -> int:
        """Let time pass while the clock is read again and again; what it shows then."""
        while ns > 0:
            self.pass_time(min(ns, every))
            ns -= every
            self.read()
        return self.read()

    def notices(self, ns: int) -> list[Notice]:
        """What is reported within a time."""
        found = []
        for _ in range(ns // S):
            self.run(S)
            if self.clock.notice is not None:
                found.append(self.clock.notice)
                self.clock.notice = None
        return found


def running(ahead_ns: int = 0) -> Machine:
    """A machine whose clock has run for an hour when the wall clock is set."""
    machine = Machine()
    machine.read()
    machine.run(HOUR, every=10 * S)
    machine.wall_ns += ahead_ns
    return machine


# ---- While it runs.


def test_it_shows_the_wall_clock_while_nobody_sets_that() -> None:
    machine = running()

    assert machine.read() == machine.wall_ns == NOON + HOUR
    assert (machine.clock.course, machine.clock.ahead_ns) == (Course.IN_STEP, 0)
    assert machine.clock.notice is None


@pytest.mark.parametrize("ahead_s", [1, 60, 3_600, 86_400])
def test_it_gains_a_tenth_until_both_agree(ahead_s: int) -> None:
    machine = running(ahead_s * S)
    before = machine.read()

    half = machine.run(5 * ahead_s * S, every=5 * S)
    course = machine.clock.course
    whole = machine.run(5 * ahead_s * S, every=5 * S)

    assert half - before == 5 * ahead_s * S * 11 // 10
    assert course is Course.FASTER
    assert whole == machine.wall_ns
    assert machine.clock.course is Course.IN_STEP


@pytest.mark.parametrize("behind_s", [1, 60, 3_600, 10 * 86_400])
def test_it_loses_a_tenth_until_both_agree(behind_s: int) -> None:
    machine = running(-behind_s * S)
    before = machine.read()

    half = machine.run(5 * behind_s * S, every=10 * S)
    course = machine.clock.course
    whole = machine.run(5 * behind_s * S, every=10 * S)

    assert half - before == 5 * behind_s * S * 9 // 10
    assert course is Course.SLOWER
    assert whole == machine.wall_ns


@pytest.mark.parametrize("ahead_ns", [DAY + 1, 25 * HOUR, YEAR, 100 * YEAR])
def test_a_wall_clock_more_than_a_day_ahead_is_ignored(ahead_ns: int) -> None:
    machine = running(ahead_ns)
    before = machine.read()

    assert machine.run(HOUR) == before + HOUR
    assert machine.clock.course is Course.IGNORED


def test_a_wall_clock_that_was_never_set_is_ignored() -> None:
    machine = running()
    machine.wall_ns = 17 * S
    before = machine.read()

    assert machine.run(HOUR) == before + HOUR
    assert machine.clock.course is Course.IGNORED


def test_a_step_ahead_and_back_leaves_nothing_behind() -> None:
    machine = running(2 * HOUR)
    machine.run(60 * S)
    machine.wall_ns -= 2 * HOUR

    assert machine.read() - machine.wall_ns == 6 * S
    assert machine.run(60 * S) == machine.wall_ns


def test_suspension_counts_as_elapsed_time() -> None:
    machine = running(HOUR)
    before = machine.read()
    machine.pass_time(8 * HOUR)

    assert machine.read() - before == 8 * HOUR + REACH_NS // SHARE


def test_the_time_between_readings_that_a_stopped_process_makes_is_not_steered_far() -> None:
    """One reading after a long gap must not follow a wall clock that was set in the gap."""
    machine = running()
    before = machine.read()
    machine.pass_time(20 * DAY)
    machine.wall_ns += DAY

    assert machine.read() - before == 20 * DAY + S


# ---- At a start.


def test_a_new_log_begins_with_the_wall_clock() -> None:
    machine = Machine()

    assert machine.read() == NOON
    assert machine.clock.notice is None


@pytest.mark.parametrize("wall_ns", [-5 * S, 0])
def test_a_new_log_begins_after_the_beginning_of_all_time(wall_ns: int) -> None:
    assert Machine(wall_ns=wall_ns).read() == 1


def test_at_a_start_the_wall_clock_is_believed_after_days() -> None:
    machine = Machine(last_ns=NOON - 3 * DAY)

    assert machine.read() == NOON
    assert machine.clock.notice == Notice(Course.IN_STEP, 0, NOON, 3 * DAY)


def test_a_start_after_a_moment_is_not_worth_a_word() -> None:
    machine = Machine(last_ns=NOON - 59 * S)

    assert machine.read() == NOON
    assert machine.clock.notice is None


def test_at_a_start_a_wall_clock_years_ahead_is_not_believed() -> None:
    last_ns = NOON - YEAR - 1
    machine = Machine(last_ns=last_ns)

    assert machine.read() == last_ns
    assert machine.clock.notice == Notice(Course.IGNORED, YEAR + 1, last_ns, 0)
    assert machine.run(HOUR) == last_ns + HOUR


def test_a_log_that_began_before_the_wall_clock_was_set_believes_it_at_the_next_start() -> None:
    machine = Machine(last_ns=UNSET_NS - 40 * YEAR)

    assert machine.read() == NOON


def test_a_start_that_finds_its_own_past_in_the_future_goes_on_from_there() -> None:
    last_ns = NOON + 25 * HOUR
    machine = Machine(last_ns=last_ns)

    assert machine.read() == last_ns
    assert machine.clock.notice == Notice(Course.SLOWER, -25 * HOUR, last_ns, 0)
    assert machine.run(HOUR) == last_ns + HOUR * 9 // 10


def test_a_start_with_a_wall_clock_that_was_never_set_goes_on_from_the_log() -> None:
    machine = Machine(last_ns=NOON, wall_ns=S)

    assert machine.read() == NOON
    assert machine.clock.notice == Notice(Course.IGNORED, S - NOON, NOON, 0)


def test_a_later_stamp_that_turns_up_in_the_log_counts() -> None:
    machine = Machine(last_ns=NOON - HOUR)
    machine.read()
    machine.last_ns = NOON + 50 * S

    assert machine.run(S) == NOON + 50 * S
    assert machine.run(10 * S) == NOON + 59 * S


def test_with_a_known_offset_a_start_is_none() -> None:
    before = running(25 * HOUR)
    before.read()
    offset_ns = before.clock.offset_ns
    machine = Machine(last_ns=before.clock.shown_ns, wall_ns=before.wall_ns, offset_ns=offset_ns)
    machine.elapsed_ns = before.elapsed_ns
    machine.pass_time(7 * S)

    assert machine.read() == before.clock.shown_ns + 7 * S
    assert machine.clock.course is Course.IGNORED


# ---- Leaders and followers.


def test_a_new_leader_goes_on_from_the_stamps_of_the_one_before() -> None:
    machine = Machine(wall_ns=NOON + 2 * HOUR)
    machine.clock.follow(machine.elapsed_ns, NOON)
    machine.pass_time(3 * S)

    assert machine.read() == NOON + 3 * S + 3 * S // SHARE


def test_a_follower_takes_over_a_leader_that_is_slower() -> None:
    machine = running()
    machine.read()
    machine.pass_time(S)
    machine.clock.follow(machine.elapsed_ns, NOON)

    assert machine.read() == NOON


# ---- What is reported.


def test_an_episode_is_reported_at_its_beginning_and_its_end() -> None:
    machine = running(60 * S)

    notices = machine.notices(HOUR)

    assert [(notice.course, notice.since_last_ns) for notice in notices] == [
        (Course.FASTER, None),
        (Course.IN_STEP, None),
    ]
    assert notices[0].ahead_ns == 60 * S - S // SHARE


def test_a_further_step_is_reported() -> None:
    machine = running(60 * S)
    first = machine.notices(300 * S)
    machine.wall_ns += 20 * S  # less than what it was at first

    [second] = machine.notices(60 * S)

    assert [notice.course for notice in (*first, second)] == [Course.FASTER, Course.FASTER]
    assert second.ahead_ns == 50 * S - S // SHARE


def test_a_clock_that_is_set_all_the_time_is_reported_now_and_then() -> None:
    machine = running()
    notices = []
    for number in range(600):
        machine.wall_ns += 5 * S * (-1) ** number
        notices += machine.notices(S)

    assert 2 <= len(notices) <= 600 * S // NOTICE_EVERY_NS + 1


def test_less_than_a_second_is_not_worth_a_word() -> None:
    assert running(APART_NS - 1).notices(HOUR) == []
    assert running(1 - APART_NS).notices(HOUR) == []


# ---- Beside a dumb one.


class Step(NamedTuple):
    """Time that passes, after which the wall clock is set."""

    passes_ms: int
    set_ms: int


STEPS: Final = st.lists(
    st.builds(
        Step,
        passes_ms=st.integers(0, 9_000),
        set_ms=st.one_of(st.just(0), st.integers(-4_000, 4_000), st.integers(-(10**8), 10**8)),
    ),
    max_size=12,
)


@given(STEPS)
def test_it_shows_what_adding_up_milliseconds_comes_to(steps: list[Step]) -> None:
    machine = Machine()
    dumb = machine.read()
    for step in steps:
        machine.wall_ns += step.set_ms * MS
        wall = machine.wall_ns
        for _ in range(step.passes_ms):
            dumb += MS
            wall += MS
            if wall - dumb <= AHEAD_MAX_NS:
                dumb += max(-MS // 10, min(MS // 10, wall - dumb))
        machine.pass_time(step.passes_ms * MS)

        # Whether a wall clock is followed is asked once for each reading, and not each millisecond.
        near_ns = S if abs(machine.wall_ns - dumb - AHEAD_MAX_NS) < S else MS
        assert abs(machine.read() - dumb) <= near_ns
        dumb = machine.read()


@given(STEPS)
def test_the_short_way_through_a_reading_comes_to_the_same(steps: list[Step]) -> None:
    quick, slow = Machine(), Machine()
    for step in (Step(0, 0), *steps):
        for machine in (quick, slow):
            machine.wall_ns += step.set_ms * 1_000
            machine.pass_time(step.passes_ms * MS)
        shown = slow.clock._read(slow.elapsed_ns, slow.wall_ns, 0)

        assert quick.read() == shown
        assert (quick.clock.ahead_ns, quick.clock.course) == (
            slow.clock.ahead_ns,
            slow.clock.course,
        )
        assert quick.clock.notice == slow.clock.notice


READINGS: Final = st.lists(
    st.tuples(st.integers(0, 10**15), st.integers(-(2**62), 2**62), st.booleans()), max_size=20
)


@given(st.integers(0, 2**62), READINGS)
def test_no_reading_of_the_wall_clock_makes_it_leap_or_stand_still(
    wall_ns: int, readings: list[tuple[int, int, bool]]
) -> None:
    machine = Machine(wall_ns=wall_ns)
    before = machine.read()
    for passed_ns, wall, is_set in readings:
        machine.pass_time(passed_ns)
        machine.wall_ns = wall if is_set else machine.wall_ns
        shown = machine.read()

        share_ns = min(passed_ns, REACH_NS) // SHARE
        assert passed_ns - share_ns <= shown - before <= passed_ns + share_ns
        before = shown


@given(
    ahead_ns=st.integers(-2 * DAY, 2 * DAY),
    missing_ns=st.integers(0, 100 * DAY),
    first_ns=st.integers(0, REACH_NS),
)
def test_it_knows_when_it_will_show_a_time(ahead_ns: int, missing_ns: int, first_ns: int) -> None:
    machine = running(ahead_ns)
    wanted = machine.run(first_ns) + missing_ns
    passes_ns = machine.clock.elapsed_at(wanted) - machine.elapsed_ns

    # As if it was read all the time, and not too often for whole numbers.
    ahead_ns = machine.clock.ahead_ns
    rest_ns = max(0, passes_ns - abs(ahead_ns) * SHARE)
    shown = machine.read()
    for part_ns in (passes_ns - rest_ns, rest_ns):
        share_ns = 0
        if ahead_ns <= AHEAD_MAX_NS and part_ns:
            share_ns = max(-(part_ns // SHARE), min(part_ns // SHARE, ahead_ns))
        shown += part_ns + share_ns
        ahead_ns -= share_ns

    assert abs(shown - wanted) <= 2
