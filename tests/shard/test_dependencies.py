"""Dependencies: nobody is given out before all that it waits for are completed."""

from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from corvo.kv import keys
from corvo.model import Job, State
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Cancel, Delete, Hold, Move, Retry
from corvo.protocol.ops.queues import Clear
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.protocol.ops.workflow import DEPENDENCIES_MAX
from corvo.shard.ops.upkeep import Promote, Purge, Sweep, Tell, Walked
from corvo.shard.state import outbox, presence
from corvo.shard.state.tables import ENDINGS, JOBS, Timer
from corvo.shard.state.tx import ERRANDS_MAX
from corvo.shard.upkeep import Upkeep, first_timers
from tests.shard.cluster import QUEUES, Cluster
from tests.shard.links import Links
from tests.shard.shard import Shard

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, BILL]] = QUEUES
A, B, C = 0, 1, 2
FIRST: Final = NewJob(queue=SMS)
MANY: Final = 150
"""Random interleavings that are tried."""


def after(*awaited: str, queue: str = NOTE) -> NewJob:
    """A job that waits for others."""
    return NewJob(queue=queue, depends_on=awaited)


def complete(shard: Shard, *jobs: str) -> None:
    """Complete jobs, wherever they are in their queues."""
    shard.fetch(*(queue for names in QUEUES for queue in names), count=100)
    shard.do(Ack(acks=[AckItem(job_id=job) for job in jobs]))


def given(shard: Shard, queue: str = NOTE) -> list[str]:
    return [claim.job_id for claim in shard.fetch(queue, count=100)]


def left_over(shard: Shard) -> list[bytes]:
    """What is still written down of waiting."""
    spaces = (keys.DEPENDENT, keys.WATCHER, keys.WATCHED, keys.ENDING)
    return [key for space in spaces for key, _ in shard.rows(space)]


@pytest.fixture
def shard() -> Shard:
    return Shard(shards=1)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_job_is_given_out_when_all_that_it_waits_for_are_completed(shard: Shard) -> None:
    first, second = shard.put(FIRST, FIRST)
    [waiting, other] = shard.put(after(first, second, first), NewJob(queue=NOTE))

    before = given(shard)
    complete(shard, first)
    between = given(shard)
    shard.tx.touched.clear()
    complete(shard, second)

    assert (before, between) == ([other], [])
    assert NOTE in shard.tx.touched
    assert given(shard) == [waiting]
    assert left_over(shard) == []
    shard.check()
    shard.check_replay()


def test_a_job_keeps_its_place_while_it_waits(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    ids = shard.put(NewJob(queue=NOTE), after(first), NewJob(queue=NOTE))

    complete_only(shard, first)

    assert given(shard) == ids


def complete_only(shard: Shard, job: str) -> None:
    shard.fetch(SMS, count=100)
    shard.do(Ack(acks=[AckItem(job_id=job)]))


def test_what_is_completed_already_is_not_waited_for(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    complete(shard, first)

    [job] = shard.put(after(first))

    assert given(shard) == [job]


@pytest.mark.parametrize("how", ["dead", "cancelled", "deleted"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_is_held_when_one_that_it_waits_for_will_not_be_completed(
    shard: Shard, how: str, when: str
) -> None:
    first, second = shard.put(FIRST, FIRST)
    jobs = shard.put(after(first, second)) if when == "after" else []

    if how == "cancelled":
        shard.do(Cancel(job_ids=[second]))
    elif how == "deleted":
        shard.do(Delete(job_ids=[second]))
    else:
        shard.fetch(SMS, count=2)
        shard.do(Fail(fails=[FailItem(job_id=second, retryable=False)]))
    [job] = jobs or shard.put(after(first, second))

    held = shard.job(job)
    assert (held.state, held.hold_reason) == (State.HELD, f"dependency_failed: {second}")
    shard.check()
    shard.do(Approve(job_ids=[job]))
    assert given(shard) == [job]
    assert left_over(shard) == []


def test_a_job_that_waits_for_one_that_never_was_is_held(shard: Shard) -> None:
    [job] = shard.put(after("s00_job_none"))

    assert shard.job(job).hold_reason == "dependency_failed: s00_job_none"


def test_a_job_that_somebody_holds_waits_on_when_it_is_approved(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    [job] = shard.put(after(first))

    shard.do(Hold(job_ids=[job], reason="look"))
    shard.do(Approve(job_ids=[job]))
    before = given(shard)
    complete(shard, first)

    assert before == []
    assert given(shard) == [job]


def test_a_scheduled_job_waits_for_its_time_and_for_the_others(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    due_ns = shard.clock_ns + 5_000_000
    [job] = shard.put(replace(after(first), scheduled_ns=due_ns))

    shard.pass_time(10)
    shard.do(Promote(limit=1))
    before = given(shard)
    complete(shard, first)

    assert (before, given(shard)) == ([], [job])


def test_a_scheduled_job_is_held_at_once_when_one_that_it_waits_for_is_not_to_be(
    shard: Shard,
) -> None:
    [first] = shard.put(FIRST)
    [job] = shard.put(replace(after(first), scheduled_ns=shard.clock_ns + 5_000_000))

    shard.do(Cancel(job_ids=[first]))

    held = shard.job(job)
    assert (held.state, held.scheduled_ns, held.waits_for) == (State.HELD, 0, ())
    shard.check()


def test_a_job_that_is_cancelled_waits_for_nothing_and_runs_when_it_is_retried(
    shard: Shard,
) -> None:
    [first] = shard.put(FIRST)
    [job] = shard.put(after(first))

    shard.do(Cancel(job_ids=[job]))
    shard.do(Retry(job_ids=[job]))

    assert given(shard) == [job]
    shard.check()


def test_a_whole_line_of_jobs_runs_in_its_order(shard: Shard) -> None:
    line = shard.put(FIRST)
    for _ in range(20):
        line += shard.put(after(line[-1], queue=SMS))
    done = []

    while claims := shard.fetch(SMS, count=5):
        done += [claim.job_id for claim in claims]
        shard.do(Ack(acks=[AckItem(job_id=claim.job_id) for claim in claims]))

    assert done == line


def test_a_line_of_jobs_that_was_cleared_is_removed_without_going_down_the_line(
    shard: Shard,
) -> None:
    [first] = shard.put(FIRST)
    line = [first]
    for _ in range(5):
        jobs: list[NewJob] = []
        for number in range(400):
            named = f"line-{len(line) + number}"
            jobs.append(replace(after(line[-1] if not jobs else jobs[-1].id or ""), id=named))
        line += shard.put(*jobs)
    shard.do(Clear(queue=NOTE))

    shard.do(Delete(job_ids=[first]))
    upkeep(shard)

    assert shard.documents(JOBS) == []
    assert left_over(shard) == []
    shard.check()


def upkeep(shard: Shard) -> None:
    """What a leader does until nothing is due."""
    leader = Upkeep(retention_ms=1_000_000)
    for _ in range(1_000):
        shard.pass_time(1)
        ops = leader.due(shard.tx, shard.clock_ns)
        if not ops:
            return
        for op in ops:
            shard.entry(op)
    raise AssertionError("it is never done")


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELLED])
def test_any_number_that_wait_for_one_job_are_told_a_bounded_number_in_an_entry(
    shard: Shard, state: State
) -> None:
    [first] = shard.put(FIRST)
    for _ in range(3):
        shard.put(*[after(first)] * 500)

    if state is State.COMPLETED:
        complete(shard, first)
    else:
        shard.do(Cancel(job_ids=[first]))
    told = [1_500 - len(shard.rows(keys.DEPENDENT))]
    [due_ns] = [due_ns for due_ns, timer in first_timers(shard.tx) if timer is Timer.ENDING]
    shard.check()
    walks: list[Walked] = []
    while shard.rows(keys.DEPENDENT):
        walks.append(shard.do(Tell(limit=300)))
    told += [walked.done for walked in walks]

    assert due_ns <= shard.now_ns
    assert told == [ERRANDS_MAX, 300, 300, 300, 300, 1_500 - ERRANDS_MAX - 1_200]
    assert [walked.more for walked in walks] == [True] * 4 + [False]
    ends = State.PENDING if state is State.COMPLETED else State.HELD
    assert shard.counts(NOTE) == {ends: 1_500}
    assert left_over(shard) == []
    assert Timer.ENDING not in {timer for _, timer in first_timers(shard.tx)}
    shard.check()


def test_many_ends_in_one_entry_tell_a_bounded_number_and_the_rest_later(shard: Shard) -> None:
    firsts = shard.put(*[FIRST] * 300)
    shard.put(*[after(*firsts[:3])], *[after(first) for first in firsts])

    for first in (firsts,):
        shard.fetch(SMS, count=300)
        shard.do(Ack(acks=[AckItem(job_id=job) for job in first]))
    before = len(shard.documents(ENDINGS))
    upkeep(shard)

    assert before > 0
    assert shard.counts(NOTE) == {State.PENDING: 301}
    assert left_over(shard) == []
    assert len(given(shard)) == 100


def test_who_was_not_told_when_the_job_is_retried_waits_on(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    shard.put(*[after(first)] * (ERRANDS_MAX + 2))
    shard.do(Cancel(job_ids=[first]))

    shard.do(Retry(job_ids=[first]))
    upkeep(shard)
    waiting = shard.counts(NOTE)
    complete(shard, first)

    assert waiting == {State.HELD: ERRANDS_MAX, State.PENDING: 2}
    assert len(given(shard)) == 2
    assert left_over(shard) == []


def test_those_not_told_yet_are_told_though_the_job_is_gone(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    shard.put(*[after(first)] * (ERRANDS_MAX + 2))
    complete(shard, first)
    shard.pass_time(100)
    shard.do(Purge(queue=SMS, keep_ms=1, limit=1))

    upkeep(shard)

    assert shard.counts(NOTE) == {State.PENDING: ERRANDS_MAX + 2}
    assert left_over(shard) == []


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (after(*(f"j{number}" for number in range(DEPENDENCIES_MAX + 1))), "depends_on"),
        (replace(after("other", "me"), id="me"), "depends_on[1]"),
        (after("fine", "a\0"), "depends_on[1]"),
    ],
)
def test_what_is_wrong_with_dependencies_is_named_at_the_door(new: NewJob, field: str) -> None:
    refused = Enqueue(jobs=[FIRST, new]).check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("bad_request", f"jobs[1].{field}")


# Across shards.


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELLED])
@pytest.mark.parametrize("asked", ["before", "after"])
def test_a_job_of_another_shard_is_waited_for(cluster: Cluster, state: State, asked: str) -> None:
    [first] = cluster.shards[A].put(FIRST)
    jobs = cluster.shards[B].put(*[after(first, queue=MAIL)] * 3)
    if asked == "before":
        cluster.settle()

    before = given(cluster.shards[B], MAIL)
    if state is State.COMPLETED:
        complete(cluster.shards[A], first)
    else:
        cluster.shards[A].do(Cancel(job_ids=[first]))
    on_its_way = given(cluster.shards[B], MAIL)
    cluster.settle()

    assert (before, on_its_way) == ([], [])
    assert outbox.last_given(cluster.shards[B].tx, A) == 1, "it is asked for once"
    assert given(cluster.shards[B], MAIL) == (jobs if state is State.COMPLETED else [])
    assert [left_over(shard) for shard in cluster.shards] == [[], [], []]
    for shard in cluster.shards:
        shard.check()


def test_a_job_that_is_not_in_its_home_is_as_good_as_cancelled(cluster: Cluster) -> None:
    [first] = cluster.shards[A].put(FIRST)
    cluster.shards[A].do(Delete(job_ids=[first]))

    [job] = cluster.shards[B].put(after(first, queue=MAIL))
    cluster.settle()

    assert cluster.shards[B].job(job).hold_reason == f"dependency_failed: {first}"


def test_a_job_is_waited_for_wherever_it_was_moved(cluster: Cluster) -> None:
    [first] = cluster.shards[A].put(FIRST)
    early = cluster.shards[A].put(after(first))
    cluster.move((A, first), MAIL)
    during = cluster.shards[A].put(after(first))
    cluster.settle()
    late = cluster.shards[A].put(after(first))
    beside = cluster.shards[B].put(after(first, queue=VIDEO))
    beyond = cluster.shards[C].put(after(first, queue=PUSH))
    cluster.move((A, first), PUSH)
    cluster.settle()

    complete(cluster.shards[C], first)
    cluster.settle()

    assert given(cluster.shards[A]) == [*early, *during, *late]
    assert given(cluster.shards[B], VIDEO) == beside
    assert given(cluster.shards[C], PUSH) == beyond
    assert [left_over(shard) for shard in cluster.shards] == [[], [], []]


def test_a_job_that_came_home_while_others_wait_tells_them(cluster: Cluster) -> None:
    [first] = cluster.shards[A].put(FIRST)
    cluster.move((A, first), MAIL)
    cluster.settle()
    [job] = cluster.shards[A].put(after(first))
    cluster.move((A, first), SMS)
    cluster.settle()

    complete(cluster.shards[A], first)

    assert given(cluster.shards[A]) == [job]


def test_a_job_that_has_ended_away_from_home_is_known_there(cluster: Cluster) -> None:
    [first] = cluster.shards[A].put(FIRST)
    cluster.move((A, first), MAIL)
    cluster.settle()
    complete(cluster.shards[B], first)
    cluster.settle()

    [job] = cluster.shards[A].put(after(first))
    cluster.shards[B].do(Retry(job_ids=[first]))
    cluster.settle()
    [later] = cluster.shards[A].put(after(first))

    assert given(cluster.shards[A]) == [job]
    assert cluster.shards[A].job(later).waits_for == (first,)


def test_a_job_waits_on_where_it_was_moved(cluster: Cluster) -> None:
    [first] = cluster.shards[A].put(FIRST)
    [second] = cluster.shards[B].put(NewJob(queue=MAIL))
    [job] = cluster.shards[A].put(after(first, second))
    cluster.settle()
    complete(cluster.shards[B], second)

    cluster.move((A, job), PUSH)
    cluster.settle()
    before = given(cluster.shards[C], PUSH)
    complete(cluster.shards[A], first)
    cluster.settle()

    assert before == []
    assert given(cluster.shards[C], PUSH) == [job]
    assert left_over(cluster.shards[C]) == []


def test_a_job_that_waits_for_an_id_without_a_shard_stays_where_that_is(cluster: Cluster) -> None:
    shard = cluster.shards[A]
    [first] = shard.put(replace(FIRST, id="mine"))
    [job] = shard.put(after(first))

    [refused] = shard.do(Move(job_ids=[job], queue=MAIL)).results
    complete(shard, first)
    moved = cluster.move((A, job), MAIL)

    assert isinstance(refused, Rejected)
    assert (refused.code, refused.job_id) == ("waits_for_others", job)
    assert not isinstance(moved, Rejected)


@pytest.mark.parametrize("part", range(3))
def test_whatever_happens_nobody_runs_too_early_and_in_the_end_nobody_waits(part: int) -> None:
    for seed in range(part * MANY // 3, (part + 1) * MANY // 3):
        _Trial(seed).run()


class _Trial:
    """Jobs of three shards that wait for each other, and anything that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = (Cluster, Links)[seed % 2]()
        self.ids: list[str] = []
        self.needs: dict[str, list[str]] = {}
        self.completed: set[str] = set()
        """Jobs that were completed at some time."""
        self.freed: set[str] = set()
        """Jobs that somebody approved or retried, so that they need nobody."""

    def run(self) -> None:
        for number in range(80):
            self.step()
            if number % 8 == 0:
                self.cluster.check_together()
        self.end()

    def step(self) -> None:
        random = self.random
        shard = random.choice(self.cluster.shards)
        names = [queue for pair in QUEUES for queue in pair]
        match random.randrange(8):
            case 0 | 1:
                needs = random.sample(self.ids, min(len(self.ids), random.randint(0, 3)))
                [job] = shard.put(after(*needs, queue=random.choice(QUEUES[shard.number])))
                self.ids.append(job)
                self.needs[job] = needs
            case 2 | 3:
                self.cluster.stray(random)
            case 4 if self.ids:
                live = [job.id for _, job in self.cluster.live()]
                name = random.choice(self.ids)
                if live.count(name) == 1:
                    self.cluster.move((int(name[1:3]), name), random.choice(names))
            case 5 if self.ids:
                self.disturb(shard, random.choice(self.ids))
            case _:
                self.work(shard, names)

    def disturb(self, shard: Shard, job: str) -> None:
        before = shard.find(job)
        op = self.random.choice((Cancel, Delete, Retry, Hold, Approve))
        shard.do(op(job_ids=[job]))
        failed = before is not None and before.hold_reason.startswith("dependency")
        if before is not None and (op is Retry or (op is Approve and failed)):
            self.freed.add(job)

    def work(self, shard: Shard, names: list[str]) -> None:
        for claim in shard.fetch(*names, count=2):
            missing = set(self.needs[claim.job_id]) - self.completed
            assert not missing or claim.job_id in self.freed
            if self.random.random() < 0.8:
                shard.do(Ack(acks=[AckItem(job_id=claim.job_id)]))
                self.completed.add(claim.job_id)
            else:
                shard.do(Fail(fails=[FailItem(job_id=claim.job_id, retryable=False)]))

    def end(self) -> None:
        """Let everything go on until nothing does: then whoever waits has somebody to wait for."""
        for _ in range(200):
            before = len(self.completed)
            self.cluster.settle()
            for number, job in list(self.cluster.live()):
                if job.state in (State.ACTIVE, State.HELD):
                    self.cluster.shards[number].do(Cancel(job_ids=[job.id]))
                    self.cluster.shards[number].do(Fail(fails=[FailItem(job_id=job.id)]))
            for shard in self.cluster.shards:
                self.work(shard, [queue for pair in QUEUES for queue in pair])
            if len(self.completed) == before and not self.unfinished():
                break
        self.cluster.settle()
        assert self.unfinished() == []
        self.cluster.check_together()
        for shard in self.cluster.shards:
            shard.check()
            assert shard.rows(keys.DEPENDENT) == []
            assert shard.rows(keys.WATCHER) == []
            assert shard.rows(keys.WATCHED) == []
            assert shard.rows(keys.ENDING) == []

    def unfinished(self) -> list[Job]:
        return [job for _, job in self.cluster.live() if not job.finished_ns]


def test_telling_comes_to_an_end_though_all_that_waited_are_being_swept(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    shard.put(*[after(first)] * (ERRANDS_MAX + 50))
    shard.do(Clear(queue=NOTE))

    complete(shard, first)
    walked = shard.do(Tell(limit=100))

    assert walked == Walked(50, more=False)
    assert shard.documents(ENDINGS) == []
    assert shard.counts(NOTE) == {}


def test_a_job_that_is_swept_is_not_let_run_by_what_it_waited_for(shard: Shard) -> None:
    [first] = shard.put(FIRST)
    [job] = shard.put(after(first))
    shard.do(Clear(queue=NOTE))

    complete(shard, first)
    shard.do(Sweep(queue=NOTE, limit=10))

    assert presence.find(shard.tx, job) is None
    assert shard.find(job) is None
    shard.check()
