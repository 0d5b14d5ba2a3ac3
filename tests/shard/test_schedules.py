"""Schedules: each due time creates its job once, with any events in between."""

from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import Schedule, State
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Move, Retry
from corvo.protocol.ops.queues import DeleteQueue
from corvo.protocol.ops.schedules import (
    BackfillSchedule,
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    Moment,
    NewSchedule,
    PauseSchedule,
    RunSchedule,
    ScheduleDone,
    definition,
)
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.protocol.ops.workflow import Chain, Step
from corvo.shard.firing import Firing, plan_of
from corvo.shard.ops.schedules import FireSchedules, Planned
from corvo.shard.ops.upkeep import Walked
from corvo.shard.state import schedules
from corvo.shard.state.tables import JOBS, SCHEDULES, jitter_ns
from corvo.times import format_time, parse_time
from tests.shard.cluster import Cluster, home_of
from tests.shard.shard import MS, Shard

S: Final = 1_000 * MS
MINUTE: Final = 60 * S
DAY: Final = 24 * 60 * MINUTE
NIGHTLY: Final = NewSchedule(name="nightly", cron="0 3 * * *", job=NewJob(queue="mail"))
MINUTELY: Final = NewSchedule(name="tick", cron="* * * * *", job=NewJob(queue="mail"))
ID: Final = "mail~tick"


LONG_CHAIN: Final = Chain(
    steps=[Step("mail", payload=msgspec.Raw(b'"' + b"x" * 60_000 + b'"'))] * 5
)


def at(text: str) -> int:
    moment = parse_time(text)
    assert moment is not None
    return moment


class Scene:
    """A shard and its leader, from the noon of a day on."""

    def __init__(self, shard: Shard | None = None, noon: str = "2026-02-20T12:00:00Z") -> None:
        self.shard = shard or Shard(number=0, shards=1)
        self.shard.clock_ns = at(noon)
        self.firing = Firing()

    def create(self, new: NewSchedule = MINUTELY, **changes: object) -> Schedule:
        """A schedule whose next due time is computed."""
        done = self.shard.do(CreateSchedule(schedule=replace(new, **changes)))  # type: ignore[arg-type]
        assert isinstance(done, ScheduleDone), done
        self.lead()
        return self.get(done.schedule.id)

    def until(self, text: str) -> list[str]:
        """The leader does what is due until a time, without a look in between."""
        self.shard.clock_ns = at(text)
        return self.lead()

    def lead(self) -> list[str]:
        """The leader does all that is due now; ids of the jobs of these due times."""
        before = set(self.jobs())
        for _ in range(1_000):
            op = self.firing.op(self.shard.tx, self.shard.clock_ns)
            if op is None:
                return sorted(set(self.jobs()) - before)
            self.shard.do(op)
        raise AssertionError("the leader does not come to an end")

    def jobs(self) -> list[str]:
        return [job.id for job in self.shard.documents(JOBS)]

    def get(self, identifier: str = ID) -> Schedule:
        found = SCHEDULES.get(self.shard.tx, identifier)
        assert found is not None, f"{identifier} is there"
        return found

    def finish(self, job_id: str) -> None:
        [claim] = self.shard.fetch(self.shard.job(job_id).queue)
        assert claim.job_id == job_id
        self.shard.do(Ack(acks=[AckItem(job_id=job_id)]))

    def outcomes(self, identifier: str = ID) -> list[str]:
        """The runs of a schedule: the state of the job, or why it has no job."""
        return [run.skipped or run.state or "running" for run in self.get(identifier).runs]

    def check(self) -> None:
        self.shard.check()
        self.shard.check_replay()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def done(result: ScheduleDone | Rejected) -> ScheduleDone:
    assert isinstance(result, ScheduleDone), result
    return result


def refused(result: msgspec.Struct) -> str:
    assert isinstance(result, Rejected), result
    return result.code


# A due time.


def test_a_due_time_makes_one_job_whose_id_has_the_time(scene: Scene) -> None:
    made = scene.create()
    first = scene.until("2026-02-20T12:01:00Z")
    again = scene.lead()

    assert format_time(made.next_ns) == "2026-02-20T12:01:00Z"
    assert (first, again) == (["mail~tick@2026-02-20T12:01:00Z"], [])
    assert scene.shard.state(first[0]) is State.PENDING
    assert scene.shard.job(first[0]).tags == {"schedule": "tick"}
    assert scene.shard.job(first[0]).trail[0].by == "schedule mail~tick"
    assert format_time(scene.get().next_ns) == "2026-02-20T12:02:00Z"
    scene.check()


def test_nothing_is_fired_before_its_time(scene: Scene) -> None:
    scene.create()
    scene.shard.clock_ns = at("2026-02-20T12:01:00Z") - 1

    assert scene.lead() == []


def test_an_op_that_comes_twice_or_too_late_fires_nothing(scene: Scene) -> None:
    scene.create()
    scene.shard.clock_ns = at("2026-02-20T12:01:00Z")
    op = scene.firing.op(scene.shard.tx, scene.shard.clock_ns)
    assert op is not None

    walked = [scene.shard.do(op), scene.shard.do(op)]

    assert walked == [Walked(1, more=False), Walked(0, more=False)]
    assert len(scene.jobs()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"due": [Moment(at("2026-02-20T12:09:00Z"), "")]},
        {"due": [Moment(at("2026-02-20T12:00:00Z"), "")]},
        {"due": [Moment(at("2026-02-20T12:01:00Z"), "")] * 2},
        {"until_ns": at("2026-02-20T12:00:30Z")},
        {"until_ns": at("2026-02-20T12:09:00Z")},
        {"next_ns": at("2026-02-20T12:00:30Z")},
        {"changes": 2},
        {"missed": 1, "missed_ns": at("2026-02-20T12:01:30Z")},
    ],
    ids=["future", "past", "twice", "behind", "ahead", "next", "changes", "missed"],
)
def test_the_state_machine_refuses_due_times_that_cannot_be(
    scene: Scene, wrong: dict[str, object]
) -> None:
    before = scene.create()
    scene.shard.clock_ns = at("2026-02-20T12:01:00Z")
    right = plan_of(before, scene.shard.clock_ns)
    planned: Planned = replace(right, **wrong)  # type: ignore[arg-type]

    walked = scene.shard.do(FireSchedules(planned=[planned], limit=1))

    assert (walked.done, scene.jobs(), scene.get()) == (0, [], before)
    assert scene.shard.do(FireSchedules(planned=[right], limit=1)).done == 1


def test_payloads_have_the_due_time(scene: Scene) -> None:
    payload = b'{"a": "{{due_at}}", "b": ["{{due_local}} {{due_date}}"], "c": "{{x}} {{schedule}}",\
 "d": "{{previous_due_at}}"}'
    job = NewJob(queue="mail", payload=msgspec.Raw(payload))
    scene.create(job=job, timezone="Asia/Kolkata")
    first, second = [*scene.until("2026-02-20T12:01:00Z"), *scene.until("2026-02-20T12:02:00Z")]

    assert msgspec.json.decode(scene.shard.job(first).payload) == {
        "a": "2026-02-20T12:01:00Z",
        "b": ["2026-02-20T17:31:00+05:30 2026-02-20"],
        "c": "{{x}} tick",
        "d": "",
    }
    told = msgspec.json.decode(scene.shard.job(second).payload)
    assert told["d"] == "2026-02-20T12:01:00Z"


def test_an_interval_counts_from_the_second_of_the_creation(scene: Scene) -> None:
    scene.shard.clock_ns += 400 * MS
    scene.create(cron="@every 90s")

    assert scene.until("2026-02-20T12:01:30Z") == ["mail~tick@2026-02-20T12:01:30Z"]
    assert scene.until("2026-02-20T12:02:59Z") == []


def test_jitter_delays_each_due_time_by_another_time_and_keeps_its_id(scene: Scene) -> None:
    scene.create(jitter_ms=50_000)
    delays = []
    for minute in range(1, 21):
        due_ns = at("2026-02-20T12:00:00Z") + minute * MINUTE
        scene.shard.clock_ns = due_ns - 1
        assert scene.lead() == []
        for second in range(51):
            scene.shard.clock_ns = due_ns + second * S
            if scene.lead():
                delays.append(second)
                break

    assert len(delays) == 20
    assert len(set(delays)) > 10
    assert scene.jobs()[-1] == "mail~tick@2026-02-20T12:20:00Z"


def test_schedules_start_and_end(scene: Scene) -> None:
    scene.create(starts_ns=at("2026-02-20T12:05:00Z"), ends_ns=at("2026-02-20T12:07:00Z"))
    made = scene.until("2026-02-20T12:20:00Z")

    assert [job[-9:] for job in made] == ["12:07:00Z"]  # the others were missed
    assert scene.get().next_ns == 0
    assert scene.get().runs[0].count == 2


def test_a_unique_key_that_is_held_skips_the_due_time(scene: Scene) -> None:
    scene.create(job=NewJob(queue="mail", unique_key="k", unique_period_ms=3_600_000))
    [first] = scene.until("2026-02-20T12:01:00Z")
    second = scene.until("2026-02-20T12:02:00Z")

    assert second == []
    assert scene.outcomes() == ["running", "duplicate"]
    assert scene.get().runs[1].job_id == first


# What was missed.


def test_the_last_of_very_many_missed_due_times_is_fired_and_no_other(scene: Scene) -> None:
    scene.create(cron="* * * 1 3 *")  # 86,400 due times, and none afterwards

    made = scene.until("2026-03-02T12:00:00Z")

    assert made == ["mail~tick@2026-03-01T23:59:59Z"]
    assert scene.outcomes() == ["missed", "running"]
    assert format_time(scene.get().next_ns) == "2027-03-01T00:00:00Z"


def test_very_many_missed_due_times_before_the_end_of_a_schedule(scene: Scene) -> None:
    scene.create(cron="*/7 * * * * *", ends_ns=at("2026-02-21T12:00:00Z"))

    made = scene.until("2026-06-01T12:00:00Z")

    assert made == ["mail~tick@2026-02-21T12:00:00Z"]
    assert scene.outcomes() == ["missed", "running"]
    assert scene.get().next_ns == 0


@pytest.mark.parametrize(
    ("missed", "made", "skipped"),
    [("skip", [], 60), ("one", ["13:00"], 59), ("all", ["12:58", "12:59", "13:00"], 57)],
)
def test_due_times_that_were_missed(
    scene: Scene, missed: str, made: list[str], skipped: int
) -> None:
    scene.create(missed=missed, missed_max=3)
    jobs = scene.until("2026-02-20T13:01:30Z")

    on_time = ["13:01"]
    assert [job[-9:-4] for job in jobs] == made + on_time
    assert scene.get().skipped >= 1
    assert scene.get().runs[0].skipped == "missed"
    assert format_time(scene.get().runs[0].due_ns) == "2026-02-20T12:01:00Z"
    assert scene.get().skipped <= skipped
    scene.check()


def test_a_late_due_time_is_not_missed_within_the_time_that_it_may_be_late(scene: Scene) -> None:
    scene.create(missed="skip", missed_after_ms=3_600_000)

    assert len(scene.until("2026-02-20T12:30:00Z")) == 30
    assert scene.get().skipped == 0


def test_a_year_of_seconds_is_not_walked_through(scene: Scene) -> None:
    scene.create(cron="* * * * * *")
    jobs = scene.until("2027-02-20T12:00:00Z")

    assert len(jobs) == 61
    assert scene.get().runs[0].due_ns == at("2027-02-20T11:59:41Z")


@pytest.mark.parametrize("is_first", [True, False], ids=["leader first", "client first"])
def test_what_the_jitter_delays_is_not_missed(scene: Scene, *, is_first: bool) -> None:
    made = scene.create(NIGHTLY, missed="skip", jitter_ms=3_600_000)
    due_ns = at("2026-02-21T03:00:00Z")
    assert jitter_ns(made, due_ns) > made.missed_after_ms * MS
    scene.shard.clock_ns = due_ns + jitter_ns(made, due_ns)
    if is_first:
        scene.lead()
    scene.shard.do(PauseSchedule(schedule_id=made.id))

    assert scene.jobs() == [f"{made.id}@2026-02-21T03:00:00Z"]
    assert scene.get(made.id).skipped == 0


def test_many_due_times_are_fired_in_several_ops(scene: Scene) -> None:
    scene.create(cron="* * * * * *", missed_after_ms=3_600_000)

    assert len(scene.until("2026-02-20T12:40:00Z")) == 2_400


# Overlap.


def test_allow_fires_while_others_run(scene: Scene) -> None:
    scene.create()

    assert len(scene.until("2026-02-20T12:01:00Z") + scene.until("2026-02-20T12:02:00Z")) == 2


def test_skip_waits_for_the_end_of_the_last_job(scene: Scene) -> None:
    scene.create(overlap="skip")
    [first] = scene.until("2026-02-20T12:01:00Z")
    second = scene.until("2026-02-20T12:02:00Z")
    scene.finish(first)
    [third] = scene.until("2026-02-20T12:03:00Z")

    assert second == []
    assert third.endswith("12:03:00Z")
    assert scene.outcomes() == ["completed", "overlap", "running"]
    assert (scene.get().fired, scene.get().skipped) == (2, 1)
    scene.check()


def test_a_job_that_runs_for_long_is_not_forgotten(scene: Scene) -> None:
    scene.create(overlap="skip")
    [first] = scene.until("2026-02-20T12:01:00Z")
    later = [scene.until(f"2026-02-20T12:{minute:02d}:00Z") for minute in range(2, 50)]

    assert [*filter(None, later)] == []
    assert len(scene.get().runs) == 20
    assert scene.get().runs[0].job_id == first
    assert scene.get().runs[-1].due_ns == at("2026-02-20T12:49:00Z")

    scene.finish(first)
    assert len(scene.until("2026-02-20T12:50:00Z")) == 1
    scene.check()


def test_of_many_jobs_that_run_the_last_ones_are_kept(scene: Scene) -> None:
    scene.create()
    for minute in range(1, 31):
        scene.until(f"2026-02-20T12:{minute:02d}:00Z")

    assert scene.outcomes() == ["running"] * 20
    assert scene.get().runs[0].due_ns == at("2026-02-20T12:11:00Z")


def test_queue_fires_one_due_time_when_the_last_job_has_ended(scene: Scene) -> None:
    scene.create(overlap="queue")
    [first] = scene.until("2026-02-20T12:01:00Z")
    waits = [scene.until("2026-02-20T12:02:00Z"), scene.until("2026-02-20T12:03:00Z")]
    scene.finish(first)
    [second] = scene.lead()

    assert waits == [[], []]
    assert second.endswith("12:02:00Z")
    assert scene.outcomes() == ["completed", "overlap", "running"]
    assert scene.get().queued_ns == 0
    scene.check()


def test_cancel_ends_the_last_job(scene: Scene) -> None:
    scene.create(overlap="cancel")
    [first] = scene.until("2026-02-20T12:01:00Z")
    [second] = scene.until("2026-02-20T12:02:00Z")
    scene.shard.fetch()
    [third] = scene.until("2026-02-20T12:03:00Z")

    assert scene.shard.state(first) is State.CANCELLED
    assert scene.shard.job(second).cancel_requested
    assert scene.shard.state(third) is State.PENDING
    assert scene.outcomes() == ["cancelled", "running", "running"]
    scene.check()


def test_a_job_that_is_deleted_has_ended(scene: Scene) -> None:
    scene.create(overlap="skip")
    [first] = scene.until("2026-02-20T12:01:00Z")
    scene.shard.do(Delete(job_ids=[first]))

    assert len(scene.until("2026-02-20T12:02:00Z")) == 1


def test_a_job_that_is_retried_runs_again(scene: Scene) -> None:
    scene.create(overlap="skip")
    [first] = scene.until("2026-02-20T12:01:00Z")
    scene.shard.do(Cancel(job_ids=[first]))
    cancelled = scene.outcomes()
    scene.shard.do(Retry(job_ids=[first]))

    assert (cancelled, scene.outcomes()) == (["cancelled"], ["running"])
    assert scene.until("2026-02-20T12:02:00Z") == []


def test_a_failed_attempt_is_no_end(scene: Scene) -> None:
    scene.create(overlap="skip", job=NewJob(queue="mail", max_retries=2))
    [first] = scene.until("2026-02-20T12:01:00Z")
    scene.shard.fetch()
    scene.shard.do(Fail(fails=[FailItem(job_id=first, error="x")]))

    assert scene.until("2026-02-20T12:02:00Z") == []


# In the instant of a due time, in both orders.


@pytest.mark.parametrize("is_first", [True, False], ids=["leader first", "client first"])
@pytest.mark.parametrize("op", ["pause", "delete", "change", "run"])
def test_an_op_at_a_due_time_comes_behind_it(scene: Scene, op: str, *, is_first: bool) -> None:
    made = scene.create()
    scene.shard.clock_ns = at("2026-02-20T12:01:00Z")
    planned = FireSchedules(planned=[plan_of(made, scene.shard.clock_ns)], limit=1)
    ops = {
        "pause": PauseSchedule(schedule_id=ID),
        "delete": DeleteSchedule(schedule_id=ID),
        "change": ChangeSchedule(schedule_id=ID, schedule=replace(MINUTELY, cron="@yearly")),
        "run": RunSchedule(schedule_id=ID),
    }
    both = [planned, ops[op]] if is_first else [ops[op], planned]
    for answer in scene.shard.entry(*both):
        assert not answer.code, answer
    fired = [job for job in scene.jobs() if job == f"{ID}@2026-02-20T12:01:00Z"]
    later = scene.until("2026-02-20T12:02:00Z")

    assert len(fired) == 1
    assert len(later) == (op == "run")
    assert len([job for job in scene.jobs() if "@now-" in job]) == (op == "run")
    scene.check()


def test_an_op_before_a_due_time_prevents_it(scene: Scene) -> None:
    made = scene.create()
    scene.shard.clock_ns = at("2026-02-20T12:01:00Z") - 1
    scene.shard.do(PauseSchedule(schedule_id=ID))
    scene.shard.clock_ns += 1
    late = FireSchedules(planned=[plan_of(made, scene.shard.clock_ns)], limit=1)

    assert scene.shard.do(late).done == 0
    assert scene.lead() == []


# Changes.


def test_the_same_schedule_again_is_the_one_that_is_there(scene: Scene) -> None:
    scene.create()
    same = done(scene.shard.do(CreateSchedule(schedule=MINUTELY)))
    other = scene.shard.do(CreateSchedule(schedule=replace(MINUTELY, overlap="skip")))

    assert same.status == "existing"
    assert refused(other) == "schedule_exists"
    assert schedules.count(scene.shard.tx) == 1


def test_a_change_of_the_job_keeps_the_next_due_time(scene: Scene) -> None:
    before = scene.create(NIGHTLY)
    new = replace(NIGHTLY, job=NewJob(queue="mail", kind="other"))
    changed = done(scene.shard.do(ChangeSchedule(schedule_id=before.id, schedule=new)))

    assert changed.status == "changed"
    assert changed.schedule.next_ns == before.next_ns
    assert changed.schedule.changes == 2
    [job] = scene.until("2026-02-21T03:00:00Z")
    assert scene.shard.job(job).kind == "other"


def test_a_change_that_has_not_seen_the_last_one_is_refused(scene: Scene) -> None:
    made = scene.create()
    op = ChangeSchedule(schedule_id=ID, schedule=MINUTELY, unchanged=made.changes)
    first, second = scene.shard.do(op), scene.shard.do(op)

    assert done(first).schedule.changes == 2
    assert refused(second) == "schedule_changed"


def test_a_pause_is_not_made_up_for(scene: Scene) -> None:
    scene.create()
    scene.shard.do(PauseSchedule(schedule_id=ID))
    scene.until("2026-02-20T12:10:30Z")
    scene.shard.do(PauseSchedule(schedule_id=ID, paused=False))
    scene.lead()

    assert scene.jobs() == []
    assert len(scene.until("2026-02-20T12:11:00Z")) == 1


def test_a_run_that_is_asked_for_respects_the_overlap(scene: Scene) -> None:
    scene.create(overlap="skip")
    first = done(scene.shard.do(RunSchedule(schedule_id=ID)))
    second = scene.shard.do(RunSchedule(schedule_id=ID))

    assert first.job_id.startswith("mail~tick@now-2026-02-20T12:00:00")
    assert isinstance(second, Rejected)
    assert (second.code, second.job_id) == ("schedule_overlap", first.job_id)


def test_two_runs_of_one_entry_are_two_jobs(scene: Scene) -> None:
    scene.create()
    scene.shard.entry(RunSchedule(schedule_id=ID), RunSchedule(schedule_id=ID))

    assert len(scene.jobs()) == 2


def test_a_schedule_that_does_not_exist(scene: Scene) -> None:
    ops = [
        PauseSchedule(schedule_id="mail~x"),
        DeleteSchedule(schedule_id="mail~x"),
        RunSchedule(schedule_id="mail~x"),
        ChangeSchedule(schedule_id="mail~x", schedule=MINUTELY),
        BackfillSchedule(schedule_id="mail~x", changes=1, due=[Moment(1, "")]),
    ]

    assert [scene.shard.refused(op).code for op in ops] == ["schedule_not_found"] * 5


def test_a_deleted_queue_takes_its_schedules_with_it(scene: Scene) -> None:
    scene.create()
    scene.create(name="other", job=NewJob(queue="mailer"))
    scene.shard.do(DeleteQueue(queue="mail"))

    assert [each.id for each in scene.shard.documents(SCHEDULES)] == ["mailer~other"]
    assert schedules.count(scene.shard.tx) == 1


# Backfill.


def test_a_backfill_makes_what_is_missing_and_nothing_twice(scene: Scene) -> None:
    scene.create()
    [fired] = scene.until("2026-02-20T12:01:00Z")
    due = [
        Moment(at(f"2026-02-20T{time}:00Z"), "") for time in ("11:58", "11:59", "12:00", "12:01")
    ]
    op = BackfillSchedule(schedule_id=ID, changes=1, due=due)
    first, second = scene.shard.do(op), scene.shard.do(op)

    assert not isinstance(first, Rejected)
    assert not isinstance(second, Rejected)
    assert (len(first.created), first.existing) == (3, [fired])
    assert (second.created, len(second.existing)) == ([], 4)
    scene.check()


def test_a_backfill_of_the_future_or_of_another_definition_is_refused(scene: Scene) -> None:
    scene.create()
    future = BackfillSchedule(
        schedule_id=ID, changes=1, due=[Moment(at("2026-02-20T12:01:00Z"), "")]
    )
    stale = BackfillSchedule(
        schedule_id=ID, changes=7, due=[Moment(at("2026-02-20T11:00:00Z"), "")]
    )

    assert scene.shard.refused(future).field == "to"
    assert scene.shard.refused(stale).code == "schedule_changed"


# Moves.


SMS_TICK: Final = replace(MINUTELY, job=NewJob(queue="sms"))


def moved(cluster: Cluster, queue: str) -> ScheduleDone | Rejected:
    new = replace(SMS_TICK, job=NewJob(queue=queue))
    op = ChangeSchedule(schedule_id="sms~tick", schedule=new)
    return cluster.shards[home_of("sms")].do(op)


def where(cluster: Cluster) -> list[list[str]]:
    return [[each.id for each in shard.documents(SCHEDULES)] for shard in cluster.shards]


def test_a_schedule_moves_within_its_shard_at_once(scene: Scene) -> None:
    scene.create()
    scene.until("2026-02-20T12:01:00Z")
    new = replace(MINUTELY, job=NewJob(queue="note"))
    after = done(scene.shard.do(ChangeSchedule(schedule_id=ID, schedule=new)))

    assert (after.status, after.schedule.id) == ("moved", "note~tick")
    assert scene.until("2026-02-20T12:02:00Z") == ["note~tick@2026-02-20T12:02:00Z"]
    scene.check()


def test_a_schedule_moves_to_another_shard_and_fires_each_due_time_once() -> None:
    cluster = Cluster()
    home, target = home_of("sms"), home_of("mail")
    here, there = Scene(cluster.shards[home]), Scene(cluster.shards[target])
    here.create(SMS_TICK)
    here.until("2026-02-20T12:01:00Z")
    status = done(moved(cluster, "mail")).status
    on_its_way = here.until("2026-02-20T12:02:00Z")
    again = here.shard.do(PauseSchedule(schedule_id="sms~tick"))
    cluster.settle()
    made = there.until("2026-02-20T12:03:00Z")

    assert (status, on_its_way, refused(again)) == ("moving", [], "schedule_moving")
    assert where(cluster)[home] == []
    assert where(cluster)[target] == ["mail~tick"]
    assert made == ["mail~tick@2026-02-20T12:02:00Z", "mail~tick@2026-02-20T12:03:00Z"]
    for shard in cluster.shards:
        shard.check()


def test_a_schedule_whose_name_is_taken_there_stays_and_goes_on() -> None:
    cluster = Cluster()
    home, target = home_of("sms"), home_of("mail")
    here, there = Scene(cluster.shards[home]), Scene(cluster.shards[target])
    here.create(SMS_TICK)
    there.create()
    moved(cluster, "mail")
    cluster.settle()

    assert where(cluster)[home] == ["sms~tick"]
    assert where(cluster)[target] == ["mail~tick"]
    assert here.until("2026-02-20T12:01:00Z") == ["sms~tick@2026-02-20T12:01:00Z"]
    assert here.shard.job("sms~tick@2026-02-20T12:01:00Z").queue == "sms"
    assert definition(here.get("sms~tick")).job.queue == "sms"


def test_the_end_of_a_job_that_has_moved_away_is_known_to_its_schedule() -> None:
    cluster = Cluster()
    here = Scene(cluster.shards[home_of("sms")])
    here.create(replace(SMS_TICK, overlap="skip"))
    [first] = here.until("2026-02-20T12:01:00Z")
    here.shard.do(Move(job_ids=[first], queue="mail"))
    cluster.settle()
    running = here.outcomes("sms~tick")
    there = cluster.shards[home_of("mail")]
    there.fetch("mail")
    there.do(Ack(acks=[AckItem(job_id=first)]))
    cluster.settle()

    assert (running, here.outcomes("sms~tick")) == (["running"], ["completed"])


# The leader.


def test_a_restart_loses_nothing(scene: Scene) -> None:
    scene.create()
    scene.shard.reopen()
    scene.firing = Firing()

    assert scene.until("2026-02-20T12:01:00Z") == ["mail~tick@2026-02-20T12:01:00Z"]


def test_schedules_of_other_time_zones_are_planned_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.create(NIGHTLY, timezone="Europe/Berlin")
    unchanged = scene.firing.walk(scene.shard.tx, scene.shard.clock_ns)
    monkeypatch.setattr("corvo.shard.firing.tz_version", lambda: "2099a")
    scene.firing.begin()
    again = scene.firing.walk(scene.shard.tx, scene.shard.clock_ns)

    assert unchanged is None
    assert again is not None
    assert scene.shard.do(again).done == 1
    assert scene.get("mail~nightly").tz == "2099a"


def test_a_time_zone_that_is_gone_is_said_and_stops_nothing_else(scene: Scene) -> None:
    scene.create()
    lost = scene.create(NIGHTLY, timezone="Europe/Berlin")
    held = SCHEDULES.find(scene.shard.tx, lost.id)
    assert held is not None
    plan = plan_of(replace(lost, timezone="Europe/Gone"), scene.shard.clock_ns)
    scene.shard.do(FireSchedules(planned=[plan], limit=1))

    assert "Europe/Gone" in scene.get(lost.id).error
    assert scene.get(lost.id).next_ns == 0
    assert len(scene.until("2026-02-20T12:01:00Z")) == 1


# What is refused before it reaches the log.


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"timezone": "Europe/Berln"}, "timezone"),
        ({"name": "a b"}, "name"),
        ({"name": "s01_x"}, "name"),
        ({"overlap": "both"}, "overlap"),
        ({"missed": "most"}, "missed"),
        ({"jitter_ms": 60_000}, "jitter"),
        ({"missed_after_ms": 99}, "missed_after"),
        ({"starts_ns": 5, "ends_ns": 4}, "ends_at"),
        ({"job": NewJob(queue="mail", id="mail~x")}, "job"),
        ({"job": NewJob(queue="mail", delay_ms=5)}, "job"),
        ({"job": NewJob(queue="mail", chain=LONG_CHAIN)}, "job"),
        ({"job": NewJob(queue="a queue")}, "name"),
        ({"job": NewJob(queue="mail", payload=msgspec.Raw(b'"' + b"x" * 70_000 + b'"'))}, None),
    ],
)
def test_an_invalid_schedule_names_its_field(changes: dict[str, object], field: str | None) -> None:
    new: NewSchedule = replace(MINUTELY, **changes)  # type: ignore[arg-type]
    told = CreateSchedule(schedule=new).check(Limits())

    assert told is not None
    assert told.field == (field or "job.payload")
