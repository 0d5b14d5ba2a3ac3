"""Each sweep beside a simple twin that looks at every pair, and the search beside every order."""

from array import array
from itertools import pairwise, permutations
from random import Random

import pytest

from chaos.checks.search import BudgetError, Call, effects, has_order
from chaos.checks.sweeps import Point, most_at_once, overtaken, united
from chaos.checks.tables import NEVER, Rows


def points(dice: Random, number: int) -> list[Point]:
    return [(dice.randrange(12), dice.randrange(12), name) for name in range(number)]


def overtaken_by_pairs(firsts: list[Point], seconds: list[Point]) -> set[int]:
    return {
        name for x, y, name in seconds if any(x > before and late > y for before, late, _ in firsts)
    }


def test_the_sweep_of_overtaken_jobs_agrees_with_all_pairs() -> None:
    dice = Random(1)
    wrong = 0
    for _ in range(20_000):
        firsts, seconds = points(dice, dice.randrange(6)), points(dice, dice.randrange(6))

        found = overtaken(firsts, seconds)

        assert {name for _, name in found} == overtaken_by_pairs(firsts, seconds)
        by_name = {name: (x, y) for x, y, name in firsts}
        for one, other in found:
            x, y = next((x, y) for x, y, name in seconds if name == other)
            assert by_name[one][0] < x
            assert by_name[one][1] > y
        wrong += bool(found)
    assert 2_000 < wrong < 18_000


def most_by_moments(intervals: list[Point]) -> int:
    moments = {start for start, _, _ in intervals}
    return max((sum(s <= at < e for s, e, _ in intervals) for at in moments), default=0)


def test_the_sweep_of_intervals_agrees_with_all_moments() -> None:
    dice = Random(2)
    for _ in range(20_000):
        intervals = points(dice, dice.randrange(8))

        most, moment, names = most_at_once(intervals)

        assert most == most_by_moments(intervals)
        assert len(names) == most
        for start, end, name in intervals:
            assert (name in names) == (most > 0 and start <= moment < end)


def test_united_intervals_have_the_same_moments() -> None:
    dice = Random(6)
    for _ in range(5_000):
        intervals = [(a, a + dice.randrange(4)) for a in (dice.randrange(12) for _ in range(4))]

        found = united(intervals)

        moments = {at for begin, end in intervals for at in range(2 * begin, 2 * end + 1)}
        assert {at for begin, end in found for at in range(2 * begin, 2 * end + 1)} == moments
        assert all(one[1] < other[0] for one, other in pairwise(found))


def has_order_by_trying(calls: list[Call]) -> bool:
    """Try each order of each choice of calls that may not have happened."""
    optional = [at for at, call in enumerate(calls) if call.ret == NEVER]
    for choice in range(1 << len(optional)):
        left_out = {at for bit, at in enumerate(optional) if choice >> bit & 1}
        chosen = [call for at, call in enumerate(calls) if at not in left_out]
        for order in permutations(chosen):
            in_time = all(
                earlier.inv <= later.ret for at, later in enumerate(order) for earlier in order[:at]
            )
            if in_time and can_happen(list(order)):
                return True
    return False


def can_happen(order: list[Call]) -> bool:
    states: set[tuple[tuple[int, int, int], ...]] = {()}
    place = 0
    for call in order:
        states = {after for before in states for after in effects(call, before, place)}
        place += len(call.puts)
    return bool(states)


def random_calls(dice: Random) -> list[Call]:
    calls: list[Call] = []
    jobs: list[int] = []
    for name in range(dice.randrange(1, 6)):
        inv = dice.randrange(10)
        ret = NEVER if dice.random() < 0.2 else inv + dice.randrange(1, 6)
        fate = dice.random()
        if fate < 0.5 or not jobs:
            put = tuple((dice.randrange(2), 10 * name + at) for at in range(dice.choice((1, 1, 2))))
            jobs += [job for _, job in put]
            calls.append(Call(inv, ret, put, (), is_empty=False, steals=0, name=name))
        elif fate < 0.8:
            take = (jobs.pop(dice.randrange(len(jobs))),)
            calls.append(Call(inv, ret, (), take, is_empty=False, steals=0, name=name))
        elif fate < 0.9:
            calls.append(Call(inv, inv + 3, (), (), is_empty=True, steals=0, name=name))
        else:
            calls.append(Call(inv, NEVER, (), (), is_empty=False, steals=2, name=name))
    return calls


def test_the_search_agrees_with_trying_all_orders() -> None:
    dice = Random(3)
    found = 0
    for _ in range(3_000):
        calls = random_calls(dice)

        expected = has_order_by_trying(calls)

        assert has_order(calls) == expected, calls
        found += expected
    assert 500 < found < 2_900


def test_a_search_without_end_is_given_up() -> None:
    calls = [
        Call(0, 100, ((0, name),), (), is_empty=False, steals=0, name=name) for name in range(12)
    ]
    calls.append(Call(50, 60, (), (99,), is_empty=False, steals=0, name=99))

    with pytest.raises(BudgetError):
        has_order(calls, nodes_max=500)


def test_rows_are_found_by_job() -> None:
    dice = Random(4)
    for _ in range(200):
        jobs = [dice.randrange(5) for _ in range(dice.randrange(20))]

        rows = Rows(array("i", jobs), 5)

        for job in range(5):
            assert list(rows.of(job)) == [row for row, one in enumerate(jobs) if one == job]
        assert not rows.of(7)
