"""Wrong histories of schedules: due times without a job, with two, or at a wrong time."""

from msgspec.structs import replace

from chaos.history import Args, FinalSchedule, JobRow, Record, Res
from tests.chaos.story import Story, edited
from tests.chaos.timetables import EACH_SECOND, NAME, Timetable, due_text, late
from tests.chaos.wrong.registry import wrong


@wrong("schedules", "K1")
def a_due_time_with_two_jobs() -> list[Record]:
    story = Timetable()
    story.fire(1, at=1_002)
    job = f"{NAME}@{due_text(1_000)}"
    story.call("delete", job, 1_100, event="deleted", client="o")
    story.create(job, 1_200)
    return story.records()


@wrong("schedules", "K1")
def a_due_time_without_a_job() -> list[Record]:
    story = Timetable()
    story.fire(1, at=1_002)
    story.fire(3, at=3_002)
    return story.records()


@wrong("schedules", "K1")
def a_missed_due_time_that_no_event_skips() -> list[Record]:
    return late(EACH_SECOND, 10, 11, 12, 13, missed=False)


@wrong("schedules", "K1")
def a_job_before_its_due_time() -> list[Record]:
    story = Timetable()
    story.fire(1, at=998)
    return story.records()


@wrong("schedules", "K1")
def a_job_of_another_time() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="*/2 * * * * *"))
    for second in (1, 3, 5):
        story.fire(second, at=1_000 * second + 2)
    return story.records()


@wrong("schedules", "K1")
def an_interval_of_another_length() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="@every 2s"))
    story.fire(2, at=2_002)
    story.fire(5, at=5_002)
    return story.records()


@wrong("schedules", "K1")
def a_due_time_before_the_schedule_was_created() -> list[Record]:
    story = Timetable()
    story.fire(0, at=150)
    return story.records()


@wrong("schedules", "K1")
def due_times_in_another_order() -> list[Record]:
    story = Timetable()
    story.fire(1, at=2_002)
    story.fire(2, at=2_003)
    story.fire(1.5, at=2_004)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_fires_while_it_is_paused() -> list[Record]:
    story = Timetable()
    story.sent("pause_schedule", 500, event="schedule.paused")
    story.fire(1, at=1_002)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_makes_up_for_its_pause() -> list[Record]:
    story = Timetable()
    story.sent("pause_schedule", 500, event="schedule.paused")
    story.sent("resume_schedule", 2_500, event="schedule.resumed")
    story.fire(1, at=2_600)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_fires_after_it_was_deleted() -> list[Record]:
    story = Timetable()
    story.sent("delete_schedule", 500, event="schedule.deleted")
    story.fire(1, at=1_002)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_fires_by_its_old_definition() -> list[Record]:
    story = Timetable()
    other = replace(EACH_SECOND, cron="*/2 * * * * *")
    story.sent("change_schedule", 500, other, event="schedule.changed")
    story.fire(1, at=1_002)
    return story.records()


@wrong("schedules", "K1")
def a_pause_that_drops_what_has_come() -> list[Record]:
    story = Timetable()
    story.fire(1, at=1_002)
    story.busy(1_010, 1_900, 20)
    story.sent("pause_schedule", 2_500, event="schedule.paused")
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_stops_while_its_shard_works() -> list[Record]:
    story = Timetable()
    story.fire(1, at=1_002)
    story.busy(2_000, 30_000, 500)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_fires_late_while_its_shard_works() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="0 * * * * *", missed_after_ms=60_000))
    first = 60 - 1_795_000_000 % 60
    story.busy(100 + 1_000 * first, 1_000 * (first + 30), 500)
    story.fire(first, at=1_000 * (first + 30) + 2)
    return story.records()


@wrong("schedules", "K1")
def one_request_that_fires_twice() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="@every 1h"))
    story.by_hand(500)
    story.create(f"{NAME}@now-{due_text(600)}", 600)
    return story.records()


@wrong("schedules", "K1")
def a_confirmed_request_that_fires_nothing() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="@every 1h"))
    story.by_hand(500, event=False)
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_is_gone_at_the_end() -> list[Record]:
    story = Timetable()
    other = FinalSchedule("n1", "q~other")
    return [*edited(story, lambda record: not isinstance(record, FinalSchedule)), other]


@wrong("schedules", "K1")
def a_schedule_that_is_not_paused_at_the_end() -> list[Record]:
    story = Timetable()
    story.sent("pause_schedule", 500, event="schedule.paused")
    story.is_paused = False
    return story.records()


@wrong("schedules", "K1")
def a_schedule_that_has_counted_another_number_of_jobs() -> list[Record]:
    story = Timetable()
    story.fire(1, at=1_002)
    story.fired = 2
    return story.records()


@wrong("schedules", "K2")
def missed_due_times_that_are_not_skipped() -> list[Record]:
    return late(replace(EACH_SECOND, missed="skip"), 10, 11, 12, 13)


@wrong("schedules", "K2")
def two_jobs_for_what_was_missed_instead_of_one() -> list[Record]:
    return late(EACH_SECOND, 9, 10, 11, 12, 13, missed=True)


@wrong("schedules", "K2")
def a_job_for_the_first_missed_due_time_instead_of_the_last() -> list[Record]:
    return late(EACH_SECOND, 4, 11, 12, 13)


@wrong("schedules", "K2")
def more_jobs_for_missed_due_times_than_allowed() -> list[Record]:
    spec = replace(EACH_SECOND, missed="all", missed_max=2)
    return late(spec, 7, 8, 9, 10, 11, 12, 13)


@wrong("schedules", "K2")
def a_missed_due_time_without_a_job_although_all_are_wanted() -> list[Record]:
    return late(replace(EACH_SECOND, missed="all"), 5, 6, 7, 8, 9, 10, 11, 12, 13)


@wrong("schedules", "K2")
def all_missed_due_times_are_skipped_instead_of_one_fired() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, cron="@every 2s", missed_after_ms=1_000))
    story.fire(at=7_500, missed=True)
    return story.records()


@wrong("schedules", "K2")
def due_times_that_are_skipped_and_not_missed() -> list[Record]:
    story = Timetable(replace(EACH_SECOND, missed="skip"))
    story.fire(at=1_500, missed=True)
    return story.records()


@wrong("blackbox", "K1")
def a_job_of_no_due_time_without_events() -> list[Record]:
    story = Story(witness=False)
    spec = replace(EACH_SECOND, cron="*/2 * * * * *")
    story.op("create_schedule", 100, Args(schedule=spec), Res(status="ok"))
    for second in (2, 3):
        job = f"{NAME}@{due_text(1_000 * second)}"
        story.fetch(job, 1_000 * second + 10, second, event=False, mark="s")
        story.rows[job] = JobRow(job_id=job, queue="q", state="active", mark="s", attempt=1)
    return story.records()
