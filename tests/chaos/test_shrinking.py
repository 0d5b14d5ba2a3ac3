"""A set of faults is made smaller, as long as the rest still breaks the promise."""

from collections.abc import Sequence

from chaos.shrinking import shrink


def test_only_the_faults_that_are_needed_are_left() -> None:
    needed = {3, 11, 12}

    def breaks(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert shrink(range(40), breaks, tries_max=1_000) == [3, 11, 12]


def test_no_fault_is_left_if_the_promise_is_broken_without_any() -> None:
    assert shrink([1, 2, 3], lambda _: True, tries_max=100) == []


def test_all_faults_are_left_if_the_promise_is_broken_only_with_all() -> None:
    items = list(range(7))

    assert shrink(items, lambda rest: len(rest) == 7, tries_max=1_000) == items


def test_the_number_of_tries_is_limited() -> None:
    tried = []

    def breaks(items: Sequence[int]) -> bool:
        tried.append(items)
        return False

    assert shrink(range(100), breaks, tries_max=5) == list(range(100))
    assert len(tried) == 5
