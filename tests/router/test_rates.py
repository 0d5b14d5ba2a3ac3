"""How often one client may ask, held against a twin that counts tokens one by one."""

import tracemalloc
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rates import CLIENTS_MAX, Rates, client_of
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, Request, problem_response
from tests.support.links import jumping

NOW_S: Final = 1_000.0


def rates(*, rate: int = 10, burst: int = 20, clients_max: int = CLIENTS_MAX) -> Rates:
    """Both kinds are limited alike."""
    limits = Limits(read_rate=rate, read_burst=burst, write_rate=rate, write_burst=burst)
    return Rates(limits, clients_max=clients_max)


def refusal(
    limited: Rates,
    client: str = "ann",
    *,
    now_s: float = NOW_S,
    items: int = 1,
    charged: int = 0,
    is_write: bool = True,
) -> Problem | None:
    """What a request is told; None when it may go on."""
    try:
        limited.charge(client, is_write=is_write, now_s=lambda: now_s, items=items, charged=charged)
    except Problem as problem:
        return problem
    return None


def spend(limited: Rates, client: str = "ann", *, now_s: float = NOW_S, most: int = 1_000) -> int:
    """How many requests may go on at one moment."""
    for number in range(most):
        if refusal(limited, client, now_s=now_s) is not None:
            return number
    raise AssertionError("there is no end")


# What one client may.


class Bucket:
    """The dumb twin: tokens in a bucket, exactly."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.tokens = Fraction(burst)
        self.now_ns = 0

    def take(self, tokens: int, now_ns: int) -> bool:
        self.tokens += Fraction(self.rate * (now_ns - self.now_ns), 10**9)
        self.tokens = min(self.tokens, Fraction(self.burst))
        self.now_ns = now_ns
        if self.tokens < tokens:
            return False
        self.tokens -= tokens
        return True


@given(
    rate=st.integers(1, 50),
    burst=st.integers(1, 40),
    requests=st.lists(
        st.tuples(st.integers(0, 2 * 10**9) | st.just(0), st.integers(1, 60)), max_size=40
    ),
)
def test_a_bucket_gives_what_counting_tokens_gives(
    rate: int, burst: int, requests: list[tuple[int, int]]
) -> None:
    limited = rates(rate=rate, burst=burst)
    twin = Bucket(rate, burst)
    now_ns = 0

    for later_ns, items in requests:
        now_ns += later_ns
        refused = refusal(limited, now_s=now_ns / 1e9, items=items)
        exact_ns = int(now_ns / 1e9 * 1e9)  # a float may be one nanosecond off

        assert (refused is None) == twin.take(min(items, burst), exact_ns)


def test_the_burst_comes_back_token_by_token() -> None:
    limited = rates(rate=10, burst=20)

    at_once = spend(limited)
    a_moment_later = spend(limited, now_s=NOW_S + 0.35)
    much_later = spend(limited, now_s=NOW_S + 3_600)

    assert (at_once, a_moment_later, much_later) == (20, 3, 20)


def test_a_refusal_says_how_long_to_wait_and_then_it_goes_on() -> None:
    limited = rates(rate=4, burst=2)
    spend(limited)

    problem = refusal(limited)

    assert problem is not None
    assert (problem.status, problem.code, problem.outcome) == (429, "RATE_LIMITED", "not_applied")
    assert problem.retry_after_ms == 250
    assert ("retry-after", "1") in problem_response(problem).headers
    assert refusal(limited, now_s=NOW_S + 0.249) is not None
    assert refusal(limited, now_s=NOW_S + 0.250) is None


def test_a_wait_is_never_told_too_short() -> None:
    limited = rates(rate=3, burst=1)
    spend(limited)

    problem = refusal(limited)

    assert problem is not None
    assert problem.retry_after_ms == 334


def test_who_is_refused_pays_nothing() -> None:
    limited = rates(rate=1, burst=5)
    spend(limited)

    for _ in range(100):
        assert refusal(limited) is not None

    assert refusal(limited, now_s=NOW_S + 1) is None


def test_a_clock_that_stands_still_gives_nothing() -> None:
    limited = rates(rate=1_000, burst=1)

    assert spend(limited) == 1
    assert spend(limited) == 0


# Kinds, clients, items.


def test_reading_and_writing_are_charged_apart() -> None:
    limited = rates(burst=3)
    spend(limited)

    assert refusal(limited, is_write=True) is not None
    assert refusal(limited, is_write=False) is None


def test_one_client_does_not_take_from_another() -> None:
    limited = rates(burst=3)
    spend(limited, "ann")

    assert spend(limited, "bob") == 3


def test_without_a_rate_there_is_no_limit_and_nobody_is_remembered() -> None:
    limited = Rates(Limits())

    for _ in range(10_000):
        limited.charge("ann", is_write=True, now_s=lambda: NOW_S, items=1_000)

    assert len(limited) == 0


def test_a_batch_is_charged_its_items() -> None:
    limited = rates(burst=20)

    assert refusal(limited, items=15) is None
    assert spend(limited) == 5


def test_a_batch_larger_than_the_burst_takes_the_whole_burst_and_no_more() -> None:
    limited = rates(burst=20)

    first = refusal(limited, items=10_000)
    second = refusal(limited, items=10_000)
    later = refusal(limited, items=10_000, now_s=NOW_S + 2)

    assert first is None
    assert second is not None
    assert second.retry_after_ms == 2_000
    assert later is None


@pytest.mark.parametrize("items", [1, 2, 19, 20, 21, 10_000])
def test_what_was_charged_at_the_door_is_taken_off_a_batch(items: int) -> None:
    in_steps, at_once = rates(burst=20), rates(burst=20)

    assert refusal(in_steps) is None
    assert refusal(in_steps, items=items, charged=1) is None
    assert refusal(at_once, items=items) is None

    assert spend(in_steps) == spend(at_once) == max(20 - items, 0)


# Memory.


def test_a_million_clients_are_not_remembered() -> None:
    limited = rates()
    for number in range(CLIENTS_MAX):
        limited.charge(f"early {number}", is_write=True, now_s=lambda: NOW_S)

    tracemalloc.start()
    for number in range(50_000):
        limited.charge(f"client {number}", is_write=number % 2 == 0, now_s=lambda: NOW_S)
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(limited) == 2 * CLIENTS_MAX
    assert grown_bytes < 2 * CLIENTS_MAX * 500


def test_whoever_has_not_asked_for_longest_is_forgotten() -> None:
    limited = rates(burst=3, clients_max=2)
    spend(limited, "ann")
    spend(limited, "bob")
    refusal(limited, "ann")

    refusal(limited, "eve")

    assert spend(limited, "ann") == 0
    assert spend(limited, "bob") == 3


# Who is one client.


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002::"),
        ("2001:db8:1:2::", "20010db800010002::"),
        ("2001:db8:1:3::1", "20010db800010003::"),
        ("fe80::1%eth0", "fe80000000000000::"),
        ("", ""),
    ],
)
def test_a_client_without_a_key_is_where_it_comes_from(peer: str, client: str) -> None:
    assert client_of(ANONYMOUS, peer) == client


def test_a_client_with_a_key_is_its_key_wherever_it_comes_from() -> None:
    caller = Caller(name="ci", role="worker", key_hash="9f86")

    assert client_of(caller, "192.0.2.7") == client_of(caller, "::1") == "9f86"


@jumping
async def test_each_address_has_its_own_limit_at_the_door() -> None:
    config = RouterConfig(
        cluster="rookery",
        node=1,
        shards=1,
        sockets=dict(enumerate([""])),
        listen=[0],
        is_open=True,
        is_auth_off=True,
        limits=Limits(write_rate=1, write_burst=1),
    )
    api = Api(config)
    ann, bob = [
        await api.who(Request(method="POST", path="/", peer=peer))
        for peer in ("10.0.0.1", "10.0.0.2")
    ]

    for caller in (ann, bob):
        api.admit(caller, Action.PRODUCE)

    with pytest.raises(Problem) as refused:
        api.admit(ann, Action.PRODUCE)
    assert refused.value.code == "RATE_LIMITED"
