"""Batches: every member is counted once, wherever it is, and the callback comes once."""

from random import Random
from typing import Final

import msgspec
import pytest

from corvo.model import FINISHED, Batch, State
from corvo.protocol.ops.base import Limits
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Requeue, Retry
from corvo.protocol.ops.queues import Clear, DeleteQueue
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.protocol.ops.workflow import NewBatch
from corvo.shard.ops.transfer import Receive
from corvo.shard.ops.upkeep import Expire, Purge, Sweep
from corvo.shard.state.outbox import Tally
from corvo.shard.state.tables import BATCHES, JOBS
from tests.shard.cluster import QUEUES, Cluster, home_of
from tests.shard.links import Links
from tests.shard.shard import Shard

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, BILL]] = QUEUES
A, B, C = 0, 1, 2
MEMBER: Final = NewJob(queue=SMS)
MANY: Final = 150
"""Random interleavings that are tried."""


def begin(shard: Shard, count: int = 2, *, callback: str = "done", **fields: object) -> list[str]:
    """A batch, and its jobs: ids, the batch's first."""
    new = msgspec.structs.replace(NewBatch(callback_queue=callback), **fields)  # type: ignore[arg-type]
    made = shard.enqueue(Enqueue(jobs=[MEMBER] * count, batch=new))
    return [made.batch_id, *(one.job_id for one in made.jobs)]


def counts(shard: Shard, batch_id: str) -> tuple[int, ...]:
    """Total, pending, succeeded, failed, cancelled."""
    batch = batch_of(shard, batch_id)
    return (batch.total, batch.pending, batch.succeeded, batch.failed, batch.cancelled)


def batch_of(shard: Shard, batch_id: str) -> Batch:
    batch = BATCHES.get(shard.tx, batch_id)
    assert batch is not None
    return batch


def callbacks(shard: Shard, queue: str = "done") -> list[bytes]:
    return [job.payload for job in shard.documents(JOBS) if job.queue == queue]


def acked(shard: Shard, *jobs: str) -> None:
    """Complete jobs that are the next ones of their queue."""
    for claim in shard.fetch(SMS, count=len(jobs)):
        assert claim.job_id in jobs
    shard.do(Ack(acks=[AckItem(job_id=job) for job in jobs]))


@pytest.fixture
def shard() -> Shard:
    return Shard(shards=1)


def test_when_the_last_member_has_ended_the_callback_says_how_all_did(shard: Shard) -> None:
    payload = msgspec.Raw(b'{"for": "ann", "batch": 0}')
    batch_id, good, bad, gone = begin(shard, 3, callback_payload=payload)

    shard.fetch(SMS, count=2)
    shard.do(Ack(acks=[AckItem(job_id=good)]))
    shard.do(Fail(fails=[FailItem(job_id=bad, retryable=False)]))
    before = callbacks(shard)
    shard.do(Cancel(job_ids=[gone]))

    assert before == []
    [said] = callbacks(shard)
    assert msgspec.json.decode(said) == {
        "for": "ann",
        "batch": {
            "batch_id": batch_id,
            "total": 3,
            "succeeded": 1,
            "failed": 1,
            "cancelled": 1,
        },
    }
    shard.check()
    shard.check_replay()


def test_members_acked_in_one_op_are_all_counted(shard: Shard) -> None:
    batch_id, *jobs = begin(shard, 5)

    acked(shard, *jobs)

    assert counts(shard, batch_id) == (5, 0, 5, 0, 0)
    assert len(callbacks(shard)) == 1


@pytest.mark.parametrize(
    ("op", "ended"),
    [
        (lambda job: Cancel(job_ids=[job]), (2, 1, 0, 0, 1)),
        (lambda job: Delete(job_ids=[job]), (2, 1, 0, 0, 1)),
        (lambda _: Expire(limit=1), (2, 1, 0, 1, 0)),
        (lambda job: Fail(fails=[FailItem(job_id=job)]), (2, 2, 0, 0, 0)),
    ],
    ids=["cancel", "delete", "expire", "fail with attempts left"],
)
def test_each_end_is_counted_as_what_it_is(
    shard: Shard, op: object, ended: tuple[int, ...]
) -> None:
    assert callable(op)
    made = shard.enqueue(
        Enqueue(jobs=[NewJob(queue=SMS, expire_after_ms=1_000), MEMBER], batch=NewBatch())
    )
    job = made.jobs[0].job_id
    does = op(job)
    if isinstance(does, Fail):
        shard.fetch(SMS)
    if isinstance(does, Expire):
        shard.pass_time(2_000)

    shard.do(does)

    assert counts(shard, made.batch_id) == ended


def test_members_whose_queue_is_deleted_or_cleared_are_cancelled_as_they_are_swept(
    shard: Shard,
) -> None:
    batch_id, first, *_ = begin(shard, 3)
    acked(shard, first)

    shard.do(Clear(queue=SMS))
    before = counts(shard, batch_id)
    shard.do(Sweep(queue=SMS, limit=100))
    cleared = counts(shard, batch_id)
    shard.do(DeleteQueue(queue=SMS))
    shard.do(Sweep(queue=SMS, limit=100))

    assert before == (3, 2, 1, 0, 0)
    assert cleared == (3, 0, 1, 0, 2)
    assert len(callbacks(shard)) == 1
    assert BATCHES.get(shard.tx, batch_id) is None, "nobody is left to ask of it"


def test_a_member_that_is_retried_is_pending_again_and_the_batch_ends_once(shard: Shard) -> None:
    batch_id, first, second = begin(shard)
    acked(shard, first)
    shard.do(Retry(job_ids=[first]))
    retried = counts(shard, batch_id)

    acked(shard, second, first)
    shard.do(Retry(job_ids=[first]))
    again = counts(shard, batch_id)
    acked(shard, first)

    assert retried == (2, 2, 0, 0, 0)
    assert again == (2, 1, 1, 0, 0)
    assert counts(shard, batch_id) == (2, 0, 2, 0, 0)
    assert len(callbacks(shard)) == 1


def test_a_dead_member_that_is_requeued_is_no_failure_any_more(shard: Shard) -> None:
    batch_id, first, _ = begin(shard)
    shard.fetch(SMS)
    shard.do(Fail(fails=[FailItem(job_id=first, retryable=False)]))

    shard.do(Requeue(job_ids=[first]))

    assert counts(shard, batch_id) == (2, 2, 0, 0, 0)


def test_a_batch_that_has_lost_the_end_of_a_member_does_not_count_that_it_is_pending_again() -> (
    None
):
    home = Cluster().shards[A]
    batch_id, *_ = begin(home, 2)

    home.do(Receive(source=B, seq=1, effect=Tally(batch_id, "completed", -1)))

    assert counts(home, batch_id) == (2, 2, 0, 0, 0)


def test_a_job_joins_a_batch_until_that_has_ended(shard: Shard) -> None:
    batch_id, first = begin(shard, 1)

    [third] = shard.put(NewJob(queue=SMS, batch_id=batch_id))
    joined = counts(shard, batch_id)
    acked(shard, first, third)
    late = shard.refused(Enqueue(jobs=[MEMBER, NewJob(queue=SMS, batch_id=batch_id)]))

    assert joined == (2, 2, 0, 0, 0)
    assert (late.code, late.field) == ("batch_closed", "jobs[1].batch_id")
    assert shard.counts(SMS) == {State.COMPLETED: 2}
    assert len(callbacks(shard)) == 1


@pytest.mark.parametrize("batch_id", ["s00_batch_none", "s09_batch_none"])
def test_a_batch_that_is_nowhere_cannot_be_joined(shard: Shard, batch_id: str) -> None:
    refused = shard.refused(Enqueue(jobs=[NewJob(queue=SMS, batch_id=batch_id)]))

    assert refused.code == "batch_not_found"
    assert shard.documents(JOBS) == []


def test_a_job_that_is_there_already_is_no_member(shard: Shard) -> None:
    shard.put(NewJob(queue=SMS, id="mine"), NewJob(queue=SMS, unique_key="k"))
    jobs = [NewJob(queue=SMS, id="mine"), NewJob(queue=SMS, unique_key="k"), MEMBER]

    some = shard.enqueue(Enqueue(jobs=jobs, batch=NewBatch(callback_queue="done")))
    none = shard.enqueue(Enqueue(jobs=jobs[:2], batch=NewBatch(callback_queue="none")))
    shard.enqueue(
        Enqueue(jobs=[msgspec.structs.replace(it, batch_id=some.batch_id) for it in jobs])
    )

    assert counts(shard, some.batch_id) == (2, 2, 0, 0, 0)
    assert (len(callbacks(shard)), len(callbacks(shard, "none"))) == (0, 1)
    assert none.batch_id
    assert BATCHES.get(shard.tx, none.batch_id) is None


@pytest.mark.parametrize(
    ("payload", "said"),
    [(b"[1]", [1]), (b" 7", 7), (b"null", None)],
)
def test_a_callback_payload_that_is_no_object_stays_as_it_is(
    shard: Shard, payload: bytes, said: object
) -> None:
    _, job = begin(shard, 1, callback_payload=msgspec.Raw(payload))

    acked(shard, job)

    assert [msgspec.json.decode(it) for it in callbacks(shard)] == [said]


def test_a_batch_is_forgotten_with_its_last_member(shard: Shard) -> None:
    batch_id, first, second = begin(shard)
    acked(shard, first, second)
    shard.pass_time(1_000)

    shard.do(Purge(queue=SMS, keep_ms=1, limit=1))
    assert counts(shard, batch_id) == (2, 0, 2, 0, 0)
    shard.do(Purge(queue=SMS, keep_ms=1, limit=1))

    assert BATCHES.get(shard.tx, batch_id) is None


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Enqueue(jobs=[MEMBER, MEMBER], batch=NewBatch(total=1)), "batch.total"),
        (Enqueue(jobs=[MEMBER], batch=NewBatch(callback_queue="a\0")), "batch.callback_queue"),
        (
            Enqueue(jobs=[MEMBER], batch=NewBatch(callback_payload=msgspec.Raw(rb'{"\ud800": 1}'))),
            "batch.callback_payload",
        ),
        (Enqueue(jobs=[MEMBER, NewJob(queue=SMS, batch_id="mine")]), "jobs[1].batch_id"),
        (
            Enqueue(jobs=[NewJob(queue=SMS, batch_id="s00_batch_1")], batch=NewBatch()),
            "jobs[0].batch_id",
        ),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_what_is_wrong_with_a_batch_is_named_at_the_door(op: Enqueue, field: str) -> None:
    refused = op.check(Limits())

    assert refused is not None
    assert (refused.code, refused.field) == ("bad_request", field)


# Across shards.


def test_members_in_other_shards_and_a_callback_there_are_counted_and_made_once() -> None:
    cluster = Cluster()
    batch_id, here, moved = begin(cluster.shards[A], total=3, callback=PUSH)
    there = cluster.shards[B].put(NewJob(queue=MAIL, batch_id=batch_id))
    cluster.move((A, moved), VIDEO)
    cluster.settle()

    acked(cluster.shards[A], here)
    cluster.shards[B].fetch(MAIL, VIDEO, count=2)
    cluster.shards[B].do(Ack(acks=[AckItem(job_id=job) for job in (*there, moved)]))
    on_its_way = counts(cluster.shards[A], batch_id)
    cluster.settle()

    assert on_its_way == (3, 2, 1, 0, 0)
    assert counts(cluster.shards[A], batch_id) == (3, 0, 3, 0, 0)
    assert len(callbacks(cluster.shards[C], PUSH)) == 1
    assert callbacks(cluster.shards[A], PUSH) == []


def test_a_member_announced_elsewhere_that_is_not_made_is_not_waited_for() -> None:
    cluster = Cluster()
    batch_id, here = begin(cluster.shards[A], 1, total=2, callback=NOTE)
    cluster.shards[B].put(NewJob(queue=MAIL, unique_key="k"))

    cluster.shards[B].put(NewJob(queue=MAIL, unique_key="k", batch_id=batch_id))
    cluster.settle()
    acked(cluster.shards[A], here)

    assert counts(cluster.shards[A], batch_id) == (1, 0, 1, 0, 0)
    assert len(callbacks(cluster.shards[A], NOTE)) == 1


def test_a_member_announced_elsewhere_that_is_enqueued_twice_is_one() -> None:
    cluster = Cluster()
    batch_id, _ = begin(cluster.shards[A], 1, total=2)

    for _ in range(2):
        cluster.shards[B].put(NewJob(queue=MAIL, id="mine", batch_id=batch_id))
    cluster.settle()

    assert counts(cluster.shards[A], batch_id) == (2, 2, 0, 0, 0)


def test_members_that_follow_in_the_same_shard_are_waited_for_when_they_were_announced(
    shard: Shard,
) -> None:
    batch_id, first = begin(shard, 1, total=3, callback=NOTE)
    acked(shard, first)
    before = callbacks(shard, NOTE)
    member = NewJob(queue=SMS, batch_id=batch_id)
    made = shard.enqueue(Enqueue(jobs=[member, member], is_announced=True))

    acked(shard, *(job.job_id for job in made.jobs))

    assert before == []
    assert counts(shard, batch_id) == (3, 0, 3, 0, 0)
    assert len(callbacks(shard, NOTE)) == 1


def test_an_announced_member_that_is_there_already_is_not_waited_for_twice(shard: Shard) -> None:
    batch_id, first = begin(shard, 1, total=2, callback=NOTE)
    member = NewJob(queue=SMS, batch_id=batch_id, id="mine")
    for _ in range(2):
        shard.do(Enqueue(jobs=[member], is_announced=True))

    acked(shard, first, "mine")

    assert counts(shard, batch_id) == (2, 0, 2, 0, 0)
    assert len(callbacks(shard, NOTE)) == 1


def test_a_member_that_nobody_announced_is_one_more() -> None:
    cluster = Cluster()
    batch_id, here = begin(cluster.shards[A], 1, callback=NOTE)
    acked(cluster.shards[A], here)
    cluster.shards[B].put(NewJob(queue=MAIL, batch_id=batch_id))

    [claim] = cluster.shards[B].fetch(MAIL)
    cluster.shards[B].do(Ack(acks=[AckItem(job_id=claim.job_id)]))
    cluster.settle()

    assert counts(cluster.shards[A], batch_id) == (2, 0, 2, 0, 0)
    assert len(callbacks(cluster.shards[A], NOTE)) == 1


@pytest.mark.parametrize("part", range(3))
def test_whatever_happens_to_the_members_the_sum_is_right_and_the_callback_comes_once(
    part: int,
) -> None:
    for seed in range(part * MANY // 3, (part + 1) * MANY // 3):
        _Trial(seed).run()


class _Trial:
    """One batch among three shards, and anything that can happen to its members."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = (Cluster, Links)[seed % 2]()
        self.batch_id, *self.jobs = begin(
            self.cluster.shards[A], self.random.randint(1, 4), callback=BILL
        )
        self.total = len(self.jobs)
        self.has_ended = False

    def run(self) -> None:
        for number in range(60):
            self.step()
            self.check()
            if number % 6 == 0:
                self.cluster.check_together()
        for job in self.jobs:
            self.finish(job)
        self.cluster.settle()
        self.check()
        assert len(callbacks(self.cluster.shards[C], BILL)) == 1
        self.check_settled()

    def step(self) -> None:
        random = self.random
        if random.random() < 0.4:
            self.cluster.stray(random)
            return
        if random.random() < 0.1 and not self.has_ended:
            self.join()
            return
        job = random.choice(self.jobs)
        shard = self.cluster.shards[random.randrange(3)]
        queues = [queue for names in QUEUES for queue in names if queue != BILL]
        match random.randrange(7):
            case 0:
                shard.do(Retry(job_ids=[job]))
            case 1:
                shard.do(Cancel(job_ids=[job]))
            case 2 if random.random() < 0.2:
                shard.do(Delete(job_ids=[job]))
            case 3 | 4 if (A, job) in self.live():
                self.cluster.move((A, job), random.choice(queues))
            case _:
                shard.fetch(*queues, count=2)
                if random.random() < 0.6:
                    shard.do(Ack(acks=[AckItem(job_id=job)] * 2))
                else:
                    shard.do(Fail(fails=[FailItem(job_id=job, retryable=False)]))

    def join(self) -> None:
        shard = self.cluster.shards[A]
        op = Enqueue(jobs=[NewJob(queue=NOTE, batch_id=self.batch_id)])
        made = shard.do(op)
        assert isinstance(made, EnqueueResults)
        self.jobs.append(made.jobs[0].job_id)
        self.total += 1

    def live(self) -> list[tuple[int, str]]:
        return [
            (job.born_in if job.born_in >= 0 else number, job.id)
            for number, job in self.cluster.live()
        ]

    def finish(self, job: str) -> None:
        """Whatever becomes of the messages, in the end it is cancelled or was finished."""
        self.cluster.settle()
        for shard in self.cluster.shards:
            shard.do(Cancel(job_ids=[job]))
            shard.do(Fail(fails=[FailItem(job_id=job)]))

    def check(self) -> None:
        batch = BATCHES.get(self.cluster.shards[A].tx, self.batch_id)
        if batch is None:
            # Its last member can have been removed in the very step that ended it.
            assert not any(job.batch_id for _, job in self.cluster.live())
            self.has_ended = True
            return
        ended = batch.succeeded + batch.failed + batch.cancelled
        assert (batch.total, batch.pending + ended) == (self.total, self.total)
        assert not self.has_ended or batch.called_back
        assert batch.called_back or batch.pending
        self.has_ended = batch.called_back
        assert len(callbacks(self.cluster.shards[C], BILL)) <= self.has_ended

    def check_settled(self) -> None:
        """A recount of the jobs that are there comes to what was counted."""
        there = {job.id: job.state for _, job in self.cluster.live() if job.batch_id}
        batch = BATCHES.get(self.cluster.shards[A].tx, self.batch_id)
        self.cluster.check_together()
        if batch is None:
            assert there == {}
            return
        states = list(there.values())
        assert all(state in FINISHED for state in states)
        gone = self.total - len(states)
        assert batch.removed == gone
        assert batch.succeeded >= states.count(State.COMPLETED)
        assert batch.failed >= states.count(State.DEAD)
        assert batch.cancelled >= states.count(State.CANCELLED)


def test_the_queues_of_these_tests_live_where_they_are_said_to() -> None:
    assert [home_of(queue) for queue in (SMS, NOTE, MAIL, VIDEO, PUSH, BILL)] == [A, A, B, B, C, C]
