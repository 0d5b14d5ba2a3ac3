"""The due times that were missed: a search from the end, and a plain walk through all of them."""

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.cron import timetable
from corvo.model import Schedule
from corvo.shard import firing
from corvo.shard.firing import plan_of
from corvo.times import MS, S
from tests.support.plain_cron import PlainCron

KEPT_MAX: Final = 20
WALK_MAX: Final = 2 * KEPT_MAX
"""Due times of one stretch in these tests, so that stretches have to be narrowed."""
BEGIN_S: Final = 1_774_656_000
"""The 28th of March 2026: the clocks of Berlin change on the 29th."""

EXPRESSIONS: Final = (
    ("* * * * * *", "UTC", 3 * 3_600),
    ("*/7 0-9 * * * *", "Europe/Berlin", 6 * 3_600),
    ("* 30 2 * * *", "Europe/Berlin", 5 * 3_600),
    ("* * * * *", "Europe/Berlin", 5 * 86_400),
    ("*/20 1-4 * * *", "Europe/Berlin", 5 * 86_400),
    ("0-40 2 * * *", "Europe/Berlin", 5 * 86_400),
    ("30 2 29 3 *", "Europe/Berlin", 5 * 86_400),
    ("@every 90s", "UTC", 86_400),
)
"""Expressions, their zones, and the longest time that the plain walk can afford."""


def plain(cron: str, timezone: str, after_s: int, until_s: int) -> list[int]:
    if cron.startswith("@every"):
        return [at for at in range(BEGIN_S, until_s + 1, 90) if at > after_s]
    begin_s = after_s // 60 * 60  # the walk goes by whole minutes
    return [
        at for at in PlainCron(cron).due_between(timezone, begin_s, until_s + 1) if at > after_s
    ]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, int]:
    """A schedule, and the time at which a leader looks at it."""
    cron, timezone, span_s = draw(st.sampled_from(EXPRESSIONS))
    from_s = BEGIN_S + draw(st.integers(0, 86_400))
    schedule = Schedule(
        id="mail~x",
        name="x",
        queue="mail",
        cron=cron,
        timezone=timezone,
        job="",
        missed=draw(st.sampled_from(("skip", "one", "all"))),
        missed_max=draw(st.integers(1, KEPT_MAX)),
        missed_after_ms=1_000 * draw(st.sampled_from((0, 1, 60, 3_600))),
        from_ns=from_s * S + draw(st.integers(0, S - 1)),
        anchor_ns=BEGIN_S * S,
    )
    return schedule, (from_s + draw(st.integers(0, span_s))) * S + draw(st.integers(0, S - 1))


def example_of(cron: str, missed: str, hours: int) -> tuple[Schedule, int]:
    schedule = Schedule(
        id="mail~x", name="x", queue="mail", cron=cron, job="", missed=missed, from_ns=BEGIN_S * S
    )
    return schedule, (BEGIN_S + hours * 3_600) * S


@given(schedules())
@example(example_of("* 5 0 * * *", "one", 12))
@example(example_of("* 5 0 * * *", "skip", 12))
@example(example_of("* * * * * *", "one", 1))
def test_the_search_finds_what_a_plain_walk_finds(drawn: tuple[Schedule, int]) -> None:
    schedule, now_ns = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firing, "MISSED_WALK_MAX", WALK_MAX)
        plan = plan_of(schedule, now_ns)

    walked = [
        at * S for at in plain(schedule.cron, schedule.timezone, schedule.from_ns // S, now_ns // S)
    ]
    late = [at for at in walked if at <= now_ns - schedule.missed_after_ms * MS]
    keep = {"skip": 0, "one": 1, "all": schedule.missed_max}[schedule.missed]
    left_out = late[: len(late) - keep] if keep < len(late) else []
    fired = [at for at in walked if at not in left_out]
    due = [moment.due_ns for moment in plan.due]

    assert due == fired[: firing.FIRES_MAX]
    assert (plan.missed > 0) == (left_out != [])
    assert plan.missed <= len(left_out)
    assert plan.missed_ns == (left_out[0] if left_out else 0)
    done = [*left_out, *due]
    assert plan.until_ns == (max(done) if done else schedule.from_ns)
    next_ns = timetable(schedule.cron, schedule.timezone).next_after(
        plan.until_ns, schedule.anchor_ns
    )
    assert plan.next_ns == next_ns


@given(schedules(), st.lists(st.integers(0, 86_400), min_size=1, max_size=5))
def test_looks_in_between_change_nothing_for_what_is_not_late(
    drawn: tuple[Schedule, int], looks: list[int]
) -> None:
    """Whichever leader looks when: each due time is in one plan, in their order."""
    schedule, now_ns = drawn
    found: list[int] = []
    times = [schedule.from_ns + look * S for look in sorted(looks)]
    for look_ns in [*(at for at in times if at < now_ns), now_ns]:
        plan = plan_of(schedule, look_ns)
        found += [moment.due_ns for moment in plan.due]
        schedule = replace(schedule, from_ns=plan.until_ns)

    assert all(one < other for one, other in pairwise(found))
