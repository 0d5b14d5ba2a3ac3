"""Rates by the difference of summaries, and sentences about what is not well."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.client.dashboard import Minutes, Queue, Summary
from corvo.times import MINUTE_NS, S, format_time
from corvo.tui.looks import Look, number, rate, span
from corvo.tui.model import Meter, Rate, together, warnings
from corvo.tui.views import fingerprint
from tests.tui.documents import DATA, SUMMARY

BEGAN_NS = 1_763_460_000 * S // MINUTE_NS * MINUTE_NS


def told(at_s: float, this: int, last: int = 0, *, has_mirror: bool = True) -> Summary:
    """A summary some seconds after a full minute, with one queue."""
    at_ns = BEGAN_NS + round(at_s * S)
    queue = Queue(
        name="a",
        enqueued_this_minute=this,
        completed_this_minute=this * 2,
        failed_this_minute=0,
        enqueued_1m=last,
        completed_1m=last * 2,
        failed_1m=0,
    )
    minute = format_time(at_ns // MINUTE_NS * MINUTE_NS) if has_mirror else ""
    return Summary(at=format_time(at_ns), minute=minute, queues=[queue])


def rates(*summaries: Summary) -> dict[str, Rate]:
    meter = Meter()
    for each in summaries:
        meter.add(each)
    return meter.rates()


def test_before_the_second_summary_there_are_no_rates() -> None:
    assert rates(told(1, 5)) == {}


def test_rates_are_by_the_clock_of_the_server() -> None:
    assert rates(told(1, 10), told(3, 16)) == {"a": Rate(3.0, 6.0, 0.0)}


def test_the_end_of_a_minute_loses_no_event() -> None:
    assert rates(told(58, 100), told(62, 8, last=108)) == {"a": Rate(4.0, 8.0, 0.0)}


def test_after_a_gap_of_minutes_rates_begin_again() -> None:
    assert rates(told(1, 10), told(2, 12), told(200, 1)) == {}
    assert rates(told(1, 10), told(200, 1), told(201, 4)) == {"a": Rate(3.0, 6.0, 0.0)}


def test_counters_that_fall_are_no_negative_rate() -> None:
    assert rates(told(1, 10), told(2, 3)) == {"a": Rate(0.0, 0.0, 0.0)}


def test_an_older_summary_of_another_node_is_ignored() -> None:
    assert rates(told(1, 10), told(3, 16), told(2, 0), told(3, 16)) == {"a": Rate(3.0, 6.0, 0.0)}


def test_without_the_mirror_there_are_no_rates_until_it_is_back() -> None:
    before = told(1, 10), told(3, 16), told(4, 0, has_mirror=False)

    assert rates(*before) == {}
    assert rates(*before, told(5, 22)) == {"a": Rate(3.0, 6.0, 0.0)}
    assert rates(*before, told(200, 1)) == {}


@given(st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 50)), min_size=1, max_size=30))
def test_rates_are_those_of_the_last_seconds(steps: list[tuple[float, int]]) -> None:
    meter = Meter()
    at_s, events = 0.0, [(0.0, 0)]
    minutes: dict[int, int] = {}
    meter.add(told(0, 0))
    for step_s, count in steps:
        at_s += step_s
        minute = int(at_s // 60)
        minutes[minute] = minutes.get(minute, 0) + count
        events.append((at_s, events[-1][1] + count))
        meter.add(told(at_s, minutes[minute], minutes.get(minute - 1, 0)))

    # The simple way: the youngest moment that is at least the window ago, or the first.
    old = [each for each in events[:-1] if at_s - each[0] >= 10.0 - 1e-9]
    begin_s, before = old[-1] if old else events[0]
    expected = (events[-1][1] - before) / (at_s - begin_s)
    assert abs(meter.rates()["a"].enqueued - expected) < 1e-3 * max(1.0, expected)


def test_the_last_minute_has_bars_of_four_seconds() -> None:
    meter = Meter()
    for second in range(100):
        minute, this = divmod(second, 60)
        [own] = told(second, this, last=60 * minute).queues
        meter.add(replace(told(second, 0), queues=[replace(own, name="a"), replace(own, name="b")]))

    recent = meter.recent()

    assert recent.of("a").enqueued == [4] * 15
    assert recent.of("a").completed == [8] * 15
    assert recent.of().enqueued == [8] * 15
    assert recent.of("c").enqueued == [0] * 15
    assert Meter().recent().of("a").enqueued == []


def test_old_samples_are_kept_thinly_however_often_there_are_new_ones() -> None:
    meter = Meter()
    for step in range(1_000):
        meter.add(told(step * 0.05, step))
    [rate_now] = meter.rates().values()

    assert len(meter.recent().samples) < 250
    assert abs(rate_now.enqueued - 20) < 0.2
    assert sum(meter.recent().of("a").enqueued) <= 1_000


def test_bars_are_of_a_quarter_of_an_hour_or_of_an_hour() -> None:
    minutes = Minutes(enqueued=list(range(60)), completed=[1] * 60, failed=[0] * 60)
    own = {"a": minutes, "b": minutes}
    data = replace(DATA, minutes=own, all_minutes=together(own.values()))

    assert data.bars("a", "15 m").enqueued == list(range(45, 60))
    assert data.bars("a", "1 h").enqueued == [sum(range(n, n + 4)) for n in range(0, 60, 4)]
    assert data.total_bars("1 h").completed == [8] * 15
    assert data.bars("nothing", "1 h").enqueued == []
    assert together(()).enqueued == []
    short = Minutes(enqueued=[1] * 15, completed=[1] * 15, failed=[1] * 15)
    assert replace(DATA, minutes={"a": short}).bars("a", "1 h").failed == [3, 4, 4, 4]


def test_warnings_name_what_is_not_well() -> None:
    told = warnings(DATA)

    assert told == [
        "shard 2 has no leader: its queues take no jobs",
        "node corvo-2 cannot be reached",
        "the loss of one more node can stop writes",
        "reports.gen: oldest 14m02, no workers",
    ]
    unled = [replace(each, status="away") for each in SUMMARY.shards]
    assert warnings(replace(DATA, summary=replace(SUMMARY, shards=unled)))[0] == (
        "shards 0-2 have no leader: their queues take no jobs"
    )
    well = replace(
        SUMMARY,
        queues=[],
        shards=[replace(each, status="up") for each in SUMMARY.shards],
        cluster=msgspec.UNSET,
    )
    assert warnings(replace(DATA, summary=well)) == []
    assert warnings(replace(DATA, summary=replace(well, source="shards"))) == [
        "the mirror is unavailable: no rates, no lists of jobs"
    ]


def test_numbers_rates_and_durations_are_short() -> None:
    assert [number(each) for each in (0, 99_999, 123_456, 1_250_000, 3 * 10**9)] == [
        "0",
        "99,999",
        "123k",
        "1.2M",
        "3.0G",
    ]
    assert [rate(each, ".") for each in (None, 0.04, 999.94, 12_345.6)] == [
        ".",
        "0.0",
        "999.9",
        "12,346",
    ]
    assert [span(each) for each in (-1, 59.4, 60, 3_599, 7_260, 90_000)] == [
        "0s",
        "59s",
        "1m00",
        "59m59",
        "2h01",
        "1d01h",
    ]


def test_bars_mark_failures_without_colour() -> None:
    look = Look()
    text = look.bars([0, 1, 4, 8], 6, [0, 0, 1, 0])

    assert text.plain == "   ▁▄█"
    assert [str(part.style) for part in text.spans] == ["bold underline yellow"]
    assert look.bars([1_000], 1, [1]).spans[0].style == "underline"


def test_equal_causes_have_one_fingerprint() -> None:
    assert fingerprint("no answer within 31 s\nat x") == fingerprint("no answer within 7 s")
    assert fingerprint("job 0x1f2e failed") == "job N failed"
    assert fingerprint("connection refused") == "connection refused"
