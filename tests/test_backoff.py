"""How long a failed job waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.backoff import DELAY_MS_MAX, delay_ms, jittered
from corvo.model import Backoff

ATTEMPTS = st.integers(1, 100_000)
BASES = st.integers(0, DELAY_MS_MAX)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff.NONE, [0, 0, 0, 0]),
        (Backoff.FIXED, [5, 5, 5, 5]),
        (Backoff.LINEAR, [5, 10, 15, 20]),
        (Backoff.EXPONENTIAL, [5, 10, 20, 40]),
    ],
)
def test_delays_grow_as_their_names_say(backoff: Backoff, delays: list[int]) -> None:
    grown = [delay_ms(backoff, attempt=attempt, base_ms=5, max_ms=0) for attempt in range(1, 5)]

    assert grown == delays


@pytest.mark.parametrize(
    ("backoff", "max_ms", "delays"),
    [
        (Backoff.FIXED, 1_000, [1_000, 1_000]),
        (Backoff.LINEAR, 12_000, [5_000, 10_000, 12_000, 12_000]),
        (Backoff.EXPONENTIAL, 30_000, [5_000, 10_000, 20_000, 30_000, 30_000]),
        (
            Backoff.EXPONENTIAL,
            600_000,
            [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000],
        ),
    ],
)
def test_delays_grow_up_to_their_cap(backoff: Backoff, max_ms: int, delays: list[int]) -> None:
    grown = [
        delay_ms(backoff, attempt=attempt, base_ms=5_000, max_ms=max_ms)
        for attempt in range(1, len(delays) + 1)
    ]

    assert grown == delays


@given(st.integers(1, 40), st.integers(0, 10**6), BASES)
def test_an_exponential_delay_is_a_power_of_two_while_that_fits(
    attempt: int, base: int, cap: int
) -> None:
    delay = delay_ms(Backoff.EXPONENTIAL, attempt=attempt, base_ms=base, max_ms=cap)

    assert delay == min(base * 2 ** (attempt - 1), cap or DELAY_MS_MAX)


@pytest.mark.parametrize("backoff", Backoff)
@pytest.mark.parametrize("base", [1, 5_000, DELAY_MS_MAX])
def test_the_millionth_attempt_is_due_at_a_time_that_a_key_can_hold(
    backoff: Backoff, base: int
) -> None:
    now_ns = 4_000_000_000 * 10**9  # the year 2096

    delay = delay_ms(backoff, attempt=10**6, base_ms=base, max_ms=0)
    latest = now_ns + jittered(delay * 10**6, share=100, dice=0xFFFF)

    assert len(latest.to_bytes(8, "big")) == 8


def test_there_is_no_delay_before_the_first_attempt() -> None:
    with pytest.raises(AssertionError):
        delay_ms(Backoff.FIXED, attempt=0, base_ms=1, max_ms=1)


@given(st.sampled_from(Backoff), ATTEMPTS, BASES, BASES)
def test_no_delay_exceeds_its_cap(backoff: Backoff, attempt: int, base: int, cap: int) -> None:
    delay = delay_ms(backoff, attempt=attempt, base_ms=base, max_ms=cap)

    assert 0 <= delay <= (cap or DELAY_MS_MAX)


@given(st.sampled_from(Backoff), ATTEMPTS, BASES, BASES)
def test_a_later_attempt_never_waits_less(
    backoff: Backoff, attempt: int, base: int, cap: int
) -> None:
    earlier = delay_ms(backoff, attempt=attempt, base_ms=base, max_ms=cap)

    later = delay_ms(backoff, attempt=attempt + 1, base_ms=base, max_ms=cap)

    assert later >= earlier


@given(st.integers(0, DELAY_MS_MAX), st.integers(0, 100), st.integers(0, 0xFFFF))
def test_jitter_stays_within_its_share(delay: int, share: int, dice: int) -> None:
    swing = delay * share // 100

    spread = jittered(delay, share=share, dice=dice)

    assert delay - swing <= spread <= delay + swing


def test_jitter_reaches_both_ends_and_no_share_is_none() -> None:
    assert jittered(1_000, share=10, dice=0) == 900
    assert jittered(1_000, share=10, dice=0xFFFF) == 1_100
    assert jittered(1_000, share=0, dice=77) == 1_000


@given(st.integers(0, 10**18), st.integers(0, 100), st.integers(0, 0xFFFE))
def test_a_greater_throw_is_no_shorter_delay(delay: int, share: int, dice: int) -> None:
    one, other = (jittered(delay, share=share, dice=it) for it in (dice, dice + 1))

    assert one <= other


@pytest.mark.parametrize(("share", "dice"), [(-1, 0), (101, 0), (10, -1), (10, 1 << 16)])
def test_a_share_or_a_throw_that_cannot_be_is_a_bug(share: int, dice: int) -> None:
    with pytest.raises(AssertionError):
        jittered(1_000, share=share, dice=dice)
