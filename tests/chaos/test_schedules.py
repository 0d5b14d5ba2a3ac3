"""Right histories of schedules are accepted: under all faults and requests."""

import pytest
from msgspec.structs import replace

from chaos.checks import check_records
from chaos.checks.report import Report
from chaos.history import Feed, Record
from tests.chaos.story import edited
from tests.chaos.timetables import EACH_SECOND, Timetable, late


def accepted(records: list[Record]) -> Report:
    report = check_records(records)
    assert report.is_ok, "\n".join(report.lines())
    return report


def looked(report: Report) -> dict[str, int]:
    return next(stage.looked for stage in report.stages if stage.name == "schedules")


def test_a_schedule_fires_each_due_time() -> None:
    story = Timetable()
    for second in range(1, 8):
        story.fire(second, at=1_000 * second + 2)
    story.by_hand(8_500)

    counts = looked(accepted(story.records()))

    assert counts == {
        "schedules": 1, "entries": 9, "due times fired": 7, "fired by hand": 1,
        "schedules at the end": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("missed", "most", "seconds"),
    [
        ("skip", 100, range(11, 14)),
        ("one", 100, range(10, 14)),
        ("all", 100, range(4, 14)),
        ("all", 2, range(9, 14)),
    ],
)
def test_a_time_without_a_leader_is_made_up_for_as_the_schedule_says(
    missed: str, most: int, seconds: range
) -> None:
    spec = replace(EACH_SECOND, missed=missed, missed_max=most)

    accepted(late(spec, *seconds, missed=len(seconds) < 10))


def test_an_entry_can_be_written_later_than_it_was_planned() -> None:
    story = Timetable(replace(EACH_SECOND, missed="skip", missed_after_ms=1_000))
    story.fire(1, at=1_002)
    story.fire(2, at=4_900)  # planned before the third second, and then the disk was slow
    story.fire(4, at=4_950, missed=True)

    accepted(story.records())


def test_due_times_that_were_missed_while_an_entry_was_on_its_way_are_skipped_by_the_next() -> None:
    """Found by a run: seed 7503."""
    story = Timetable(replace(EACH_SECOND, cron="@every 3s", missed="skip", missed_after_ms=500))
    story.fire(3, at=3_002)
    story.fire(at=9_870, missed=True)  # planned before 9 s, and then the leader stood still
    story.fire(at=9_900, missed=True)
    story.fire(12, at=12_002)

    accepted(story.records())


def test_a_request_that_changes_nothing_fires_what_has_come_since_the_plan() -> None:
    """Found by a run: seed 7007. A schedule was resumed that was not paused."""
    spec = replace(EACH_SECOND, cron="@every 2s", missed="skip", missed_after_ms=2_000)
    story = Timetable(spec)
    story.fire(2, at=2_002)
    story.fire(6, 8, at=8_167, missed=True)  # planned before 8 s
    wrong = check_records(story.records())
    story.sent("resume_schedule", 8_167, same=True)

    assert "schedules" in wrong.first_wrong()
    accepted(story.records())


def test_rare_due_times_can_all_be_skipped() -> None:
    story = Timetable(replace(EACH_SECOND, cron="@every 3s", missed="skip", missed_after_ms=500))
    story.fire(3, at=3_002)
    story.fire(at=7_000, missed=True)
    story.fire(9, at=9_002)

    accepted(story.records())


def test_a_pause_drops_what_has_come_without_a_leader() -> None:
    story = Timetable()
    story.fire(1, at=1_002)
    story.fire(2, at=5_500)
    story.sent("pause_schedule", 5_500, event="schedule.paused", same=True)
    story.sent("resume_schedule", 7_500, event="schedule.resumed")
    story.fire(8, at=8_002)

    accepted(story.records())


def test_a_changed_schedule_counts_from_then_on() -> None:
    story = Timetable()
    story.fire(1, at=1_002)
    story.sent(
        "change_schedule", 1_500, replace(EACH_SECOND, cron="@every 2s"), event="schedule.changed"
    )
    story.fire(3, at=3_002)
    story.sent(
        "change_schedule", 3_500, replace(EACH_SECOND, cron="@every 2s", missed="skip"),
        event="schedule.changed",
    )  # fmt: skip
    story.fire(5, at=5_002)

    accepted(story.records())


def test_a_change_resumes_a_paused_schedule() -> None:
    story = Timetable()
    story.sent("pause_schedule", 500, event="schedule.paused")
    other = replace(EACH_SECOND, cron="@every 2s")
    story.sent("change_schedule", 5_500, other, event="schedule.resumed")
    story.fire(7, at=7_002)

    accepted(story.records())


def test_a_schedule_can_be_created_again() -> None:
    story = Timetable()
    story.fire(1, at=1_002)
    story.sent("delete_schedule", 1_500, event="schedule.deleted")
    story.sent("create_schedule", 5_500, EACH_SECOND, event="schedule.created")
    story.fired = 0
    story.fire(6, at=6_002)

    accepted(story.records())


@pytest.mark.parametrize(("event", "second"), [("schedule.changed", 4), ("", 3)])
def test_a_request_without_an_answer_may_have_changed_the_schedule(event: str, second: int) -> None:
    story = Timetable()
    story.fire(1, at=1_002)
    other = replace(EACH_SECOND, cron="*/2 * * * * *")
    story.sent("change_schedule", 1_500, other, event=event, kind="info")
    story.fire(2, at=2_002)
    story.fire(second, at=1_000 * second + 2)

    accepted(story.records())


def test_a_repeated_change_is_known_by_the_positions_of_its_answers() -> None:
    story = Timetable()
    for at, cron in ((1_500, "@every 2s"), (3_500, "*/3 * * * * *")):
        story.fire(at // 1_000, at=at // 1_000 * 1_000 + 2)
        spec = replace(EACH_SECOND, cron=cron)
        story.sent("change_schedule", at, spec, event="schedule.changed", kind="info", op_id=cron)
        story.sent("change_schedule", at + 100, spec, op_id=cron, number=2)
    story.fire(5, at=5_002)
    story.fire(8, at=8_002)

    assert "definitions that are not known" not in looked(accepted(story.records()))


def test_a_repeated_request_to_fire_has_one_effect() -> None:
    story = Timetable(replace(EACH_SECOND, cron="@every 1h"))
    story.by_hand(500, kind="info", op_id="k")
    story.sent("run_schedule", 600, op_id="k", number=2)
    story.sent("run_schedule", 700, kind="fail")
    story.sent("run_schedule", 800, kind="info")

    assert looked(accepted(story.records()))["fired by hand"] == 1


def test_after_a_gap_of_the_events_a_schedule_is_known_again_by_its_next_job() -> None:
    story = Timetable()
    for second in (1, 2, 3, 4, 5, 6):
        story.fire(second, at=1_000 * second + 2)

    def without(record: Record) -> bool:
        return getattr(record, "at_ns", 0) // 10**9 % 100 not in (2, 3)

    records = edited(story, without)
    resumed = [
        Feed(node=node, t=4 * 10**9, what="gone", id="s0=6-00000006,s1=2-00000002", shards=(0,))
        for node in ("n1", "n2")
    ]
    at = next(at for at, record in enumerate(records) if getattr(record, "seq", 0) == 7)
    report = check_records([*records[:at], *resumed, *records[at:]])

    stage = next(stage for stage in report.stages if stage.name == "schedules")
    assert stage.is_ok, "\n".join(report.lines())


def test_a_schedule_that_is_idle_does_not_count_as_late_while_its_shard_is_idle() -> None:
    story = Timetable()
    story.fire(1, at=1_002)
    story.enqueue("b", 60_000)
    story.fire(*range(55, 61), at=60_500, missed=True)

    accepted(story.records())
