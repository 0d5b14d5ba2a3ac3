"""What follows when a process of a node ends."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.child import DAMAGED, FAILED, MISCONFIGURED, OK
from corvo.restarts import (
    RESTARTS_MAX,
    WINDOW_NS,
    Hold,
    Leave,
    Restart,
    Restarts,
    meaning,
)

NO_DICE = 1 << 15
"""The middle: nothing is added and nothing taken."""


def ends(restarts: Restarts, code: int, now_ns: int = 0) -> Restart | Hold | Leave:
    return restarts.ended(code, now_ns=now_ns, dice=NO_DICE)


@pytest.mark.parametrize("code", [FAILED, OK, 1, 2, -signal.SIGKILL, -signal.SIGSEGV])
def test_an_end_that_a_restart_may_mend_is_followed_by_one_at_once(code: int) -> None:
    assert ends(Restarts(is_vital=False), code) == Restart(0)


def test_the_pauses_double() -> None:
    restarts = Restarts(is_vital=False)

    verdicts = [ends(restarts, FAILED) for _ in range(RESTARTS_MAX)]

    assert verdicts == [Restart(delay) for delay in (0, 1_000, 2_000, 4_000, 8_000)]


@given(st.integers(0, 0xFFFF))
def test_the_dice_move_a_pause_by_a_fifth_at_most(dice: int) -> None:
    restarts = Restarts(is_vital=False)
    ends(restarts, FAILED)

    verdict = restarts.ended(FAILED, now_ns=0, dice=dice)

    assert isinstance(verdict, Restart)
    assert 800 <= verdict.delay_ms <= 1_200


def test_the_sixth_end_within_ten_minutes_is_the_last() -> None:
    restarts = Restarts(is_vital=False)

    verdicts = [ends(restarts, FAILED, now_ns=number) for number in range(RESTARTS_MAX + 1)]

    assert all(isinstance(verdict, Restart) for verdict in verdicts[:-1])
    assert verdicts[-1] == Hold("the process ended 6 times within ten minutes")


def test_ends_of_long_ago_are_forgotten() -> None:
    restarts = Restarts(is_vital=False)
    for number in range(RESTARTS_MAX):
        ends(restarts, FAILED, now_ns=number)

    assert isinstance(ends(restarts, FAILED, now_ns=WINDOW_NS - 1), Hold)
    assert ends(restarts, FAILED, now_ns=WINDOW_NS) == Restart(8_000)  # the first is forgotten
    assert ends(restarts, FAILED, now_ns=2 * WINDOW_NS) == Restart(0)


def test_damage_is_never_started_again() -> None:
    assert ends(Restarts(is_vital=False), DAMAGED) == Hold("a restart does not help")


def test_without_what_is_vital_the_node_leaves() -> None:
    restarts = Restarts(is_vital=True)
    for _ in range(RESTARTS_MAX):
        assert isinstance(ends(restarts, FAILED), Restart)

    assert isinstance(ends(restarts, FAILED), Leave)
    assert isinstance(ends(Restarts(is_vital=True), DAMAGED), Leave)


@pytest.mark.parametrize("is_vital", [True, False])
def test_a_config_that_cannot_work_ends_the_node(*, is_vital: bool) -> None:
    verdict = ends(Restarts(is_vital=is_vital), MISCONFIGURED)

    assert isinstance(verdict, Leave)
    assert verdict.code == MISCONFIGURED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "killed by SIGKILL"),
        (-200, "killed by signal 200"),
        (FAILED, "failed; a restart may help"),
        (3, "unknown exit code"),
    ],
)
def test_an_exit_code_has_words(code: int, words: str) -> None:
    assert meaning(code) == words
