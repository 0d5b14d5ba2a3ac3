"""Histograms, held against a twin that keeps every measure."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.measures import DISK_S, LAG_S, POWERS, REQUEST_S, Histogram, empty

BOUNDS: Final = (1.0, 2.0, 5.0)
measures = st.lists(st.one_of(st.sampled_from([0.0, *BOUNDS]), st.floats(0, 10)))


@given(measures)
def test_each_measure_is_in_the_first_bucket_that_holds_it(seen: list[float]) -> None:
    histogram = empty(BOUNDS)

    for measure in seen:
        histogram.observe(measure)

    twin = [
        sum(low < measure <= high for measure in seen)
        for low, high in ((-1.0, 1.0), (1.0, 2.0), (2.0, 5.0), (5.0, 11.0))
    ]
    assert histogram.counts == twin
    assert histogram.count == len(seen)
    assert histogram.total == pytest.approx(sum(seen))


@given(measures, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_a_bound_that_the_share_does_not_exceed(
    seen: list[float], share: float
) -> None:
    histogram = empty(BOUNDS)
    for measure in seen:
        histogram.observe(measure)

    bound = histogram.quantile(share)

    below = sum(measure <= bound for measure in seen)
    smaller = [each for each in BOUNDS if each < bound]
    assert bound in BOUNDS or (bound == 0.0 and not seen)
    assert below >= share * len(seen) or bound == BOUNDS[-1]
    assert not smaller or sum(each <= smaller[-1] for each in seen) < share * len(seen)


def test_bounds_that_do_not_rise_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="bounds rise"):
        empty((1.0, 1.0))


@pytest.mark.parametrize("bounds", [REQUEST_S, DISK_S, LAG_S, POWERS])
def test_a_histogram_goes_over_the_wire_and_comes_back(bounds: tuple[float, ...]) -> None:
    histogram = empty(bounds)
    histogram.observe(bounds[0])
    histogram.observe(2 * bounds[-1])

    back = msgspec.json.decode(msgspec.json.encode(histogram), type=Histogram)

    assert back == histogram
