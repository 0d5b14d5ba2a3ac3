"""Producers: new jobs, ids of their own, unique keys, and what is refused at the door."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import Backoff, Forward, Job, State
from corvo.protocol.ops.base import Limits
from corvo.protocol.ops.checks import DEPTH_MAX
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Retry
from corvo.protocol.ops.queues import Clear, DeleteQueue
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.ops.workflow import Chain, NewAgent, NewBatch, Step
from corvo.shard.ops.upkeep import Promote
from corvo.shard.state.tables import BATCHES, FORWARDS
from corvo.trace_context import TraceContext
from tests.shard.shard import MS, Shard

MAIL: Final = NewJob(queue="mail")
HOUR_MS: Final = 3_600_000


def enqueue(shard: Shard, new: NewJob) -> Enqueued:
    [made] = shard.enqueue(Enqueue(jobs=[new])).jobs
    return made


def test_jobs_of_one_op_are_numbered_and_ordered_as_they_stand() -> None:
    shard = Shard(number=3)

    ids = shard.put(MAIL, MAIL, MAIL)

    assert ids == sorted(set(ids))
    assert all(job_id.startswith("s03_job_") for job_id in ids)
    assert [claim.job_id for claim in shard.fetch(count=3)] == ids
    shard.check()


SAMPLES: Final[dict[str, object]] = {
    "queue": "sms",
    "payload": msgspec.Raw(b"[1]"),
    "id": "order-7",
    "kind": "letter",
    "priority": 0,
    "max_retries": 9,
    "retry_backoff": Backoff.LINEAR,
    "retry_base_delay_ms": 8,
    "retry_max_delay_ms": 7,
    "retry_jitter": 6,
    "max_run_time_ms": 5,
    "max_crashes": 4,
    "unique_key": "other",
    "unique_period_ms": 2,
    "scheduled_ns": (1 << 62) - 1,
    "delay_ms": 1,
    "expire_after_ms": 3,
    "expire_active": True,
    "tags": {"team": "a"},
    "checkpoint": msgspec.Raw(b"[2]"),
    "parent_id": "above",
    "batch_id": "a",
    "chain": Chain(steps=[Step("mail"), Step("sms")]),
    "depends_on": ("s00_job_0",),
    "agent": NewAgent(),
    "trace": TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
}
"""A value other than the default, for each field of a new job."""


STORED: Final = [field for field in NewJob.__struct_fields__ if field != "dependency_wait_ms"]
"""All but what only the jobs that it waits for keep."""


@pytest.mark.parametrize("field", STORED)
def test_every_field_of_a_new_job_is_in_the_stored_one(field: str) -> None:
    new = NewJob(queue="mail", unique_key="key")
    changed = msgspec.structs.replace(new, **{field: SAMPLES[field]})  # type: ignore[arg-type]

    assert stored(changed) != stored(new)


def stored(new: NewJob) -> Job:
    """The job of a new one, in a shard of its own."""
    shard = Shard()
    shard.enqueue(Enqueue(jobs=[MAIL], batch=NewBatch()))
    if new.batch_id:
        [batch] = shard.documents(BATCHES)
        new = msgspec.structs.replace(new, batch_id=batch.id)
    return shard.job(enqueue(shard, new).job_id)


def test_a_job_of_a_chain_is_the_same_when_a_router_has_told_more_of_the_chain_since() -> None:
    shard = Shard()
    older = Chain(steps=[Step("mail"), Step("sms")])
    newer = msgspec.structs.replace(older, cancel_is_failure=True)
    asked = msgspec.structs.replace(newer, cancel_is_failure=False)
    put = [
        Enqueue(jobs=[NewJob(queue="mail", id=f"mail~{name}", chain=chain)], has_full_ids=True)
        for name, chain in (("a", older), ("a", newer), ("a", asked), ("b", newer), ("b", asked))
    ]

    made = [shard.enqueue(op).jobs[0] for op in put]

    assert [one.unique_existing for one in made] == [False, True, True, False, True]
    assert [one.differs for one in made] == [msgspec.UNSET] * 4 + [["chain"]]


def test_everything_that_is_said_of_a_job_is_stored() -> None:
    shard = Shard()
    new = NewJob(
        queue="mail",
        payload=msgspec.Raw(b'{ "to":7 }'),
        kind="letter",
        priority=1,
        max_retries=9,
        retry_base_delay_ms=8,
        retry_max_delay_ms=7,
        retry_jitter=6,
        max_run_time_ms=5,
        max_crashes=4,
        expire_after_ms=3,
        expire_active=True,
        tags={"team": "a"},
        checkpoint=msgspec.Raw(b"[2]"),
        parent_id="above",
    )

    [job_id] = shard.put(new)

    job = shard.job(job_id)
    assert (job.payload, job.checkpoint) == (b'{ "to":7 }', b"[2]"), "byte for byte"
    assert (job.kind, job.priority, job.max_retries, job.parent_id) == ("letter", 1, 9, "above")
    assert (job.retry_base_delay_ms, job.retry_max_delay_ms, job.retry_jitter) == (8, 7, 6)
    assert (job.max_run_time_ms, job.max_crashes, job.tags) == (5, 4, {"team": "a"})
    assert (job.expires_ns, job.expires_active) == (shard.now_ns + 3 * MS, True)
    shard.check()


def test_a_job_without_a_payload_has_an_empty_one_and_null_stays_null() -> None:
    shard = Shard()

    empty, null = shard.put(MAIL, NewJob(queue="mail", payload=msgspec.Raw(b"null")))

    assert (shard.job(empty).payload, shard.job(null).payload) == (b"{}", b"null")


def test_a_job_is_scheduled_when_its_time_is_to_come_and_pending_when_it_has() -> None:
    shard = Shard()
    now_ns = shard.clock_ns

    made = shard.enqueue(
        Enqueue(
            jobs=[
                NewJob(queue="mail", scheduled_ns=now_ns + 1),
                NewJob(queue="mail", scheduled_ns=now_ns),
            ]
        )
    ).jobs

    assert [one.status for one in made] == ["scheduled", "pending"]
    assert [shard.job(one.job_id).scheduled_ns for one in made] == [now_ns + 1, 0]
    shard.check()


# Ids that clients choose.


def test_an_id_that_is_there_already_is_that_job_in_whatever_state() -> None:
    shard = Shard()
    mine = NewJob(queue="mail", id="order-7", payload=msgspec.Raw(b"1"))
    first = enqueue(shard, mine)
    shard.fetch()

    second = enqueue(shard, NewJob(queue="other", id="order-7", payload=msgspec.Raw(b"2")))

    assert first == Enqueued("order-7", "pending", unique_existing=False)
    assert second == Enqueued("order-7", "active", unique_existing=True)
    assert shard.job("order-7").payload == b"1"
    assert shard.counts("other") == {}
    shard.check()


def test_one_id_twice_in_one_op_is_one_job() -> None:
    shard = Shard()
    mine = NewJob(queue="mail", id="order-7")

    made = shard.enqueue(Enqueue(jobs=[mine, mine])).jobs

    assert [one.unique_existing for one in made] == [False, True]
    assert shard.counts("mail") == {State.PENDING: 1}


def test_the_id_of_a_job_that_was_deleted_is_free() -> None:
    shard = Shard()
    enqueue(shard, NewJob(queue="mail", id="order-7"))
    shard.do(Delete(job_ids=["order-7"]))

    made = enqueue(shard, NewJob(queue="mail", id="order-7"))

    assert made == Enqueued("order-7", "pending", unique_existing=False)
    shard.check()


def test_the_id_of_a_job_that_is_being_swept_is_free() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail", id="order-7", payload=msgspec.Raw(b"1")))
    shard.do(Clear(queue="mail"))

    made = enqueue(shard, NewJob(queue="mail", id="order-7", payload=msgspec.Raw(b"2")))
    [claim] = shard.fetch()

    assert made == Enqueued("order-7", "pending", unique_existing=False)
    assert (claim.job_id, bytes(claim.payload or b"")) == ("order-7", b"2")
    shard.check()


def test_the_id_of_a_job_that_moved_to_another_shard_is_not_made_twice() -> None:
    shard = Shard()
    tx = shard.tx
    tx.begin(index=1, term=1, stamp_ns=shard.clock_ns)
    FORWARDS.insert(tx, Forward("order-7", 2, tx.now_ns))
    tx.commit()

    made = enqueue(shard, NewJob(queue="mail", id="order-7"))

    assert made == Enqueued("order-7", "moved", unique_existing=True)
    assert shard.find("order-7") is None


# Unique keys.


def unique(**changes: int) -> NewJob:
    return msgspec.structs.replace(NewJob(queue="mail", unique_key="user-7"), **changes)  # type: ignore[arg-type]


def test_a_second_job_with_the_key_is_a_duplicate_of_the_first() -> None:
    shard = Shard()
    first = enqueue(shard, unique())

    second = enqueue(shard, unique())

    assert second == Enqueued(first.job_id, "duplicate", unique_existing=True)
    assert shard.counts("mail") == {State.PENDING: 1}
    shard.check()


def test_the_same_key_in_another_queue_is_another_lock() -> None:
    shard = Shard()
    enqueue(shard, unique())

    made = enqueue(shard, NewJob(queue="post", unique_key="user-7"))

    assert made.status == "pending"
    shard.check()


def test_a_lock_lasts_as_long_as_its_period_says() -> None:
    shard = Shard()
    first = enqueue(shard, unique(unique_period_ms=1_000))
    shard.clock_ns = shard.job(first.job_id).unique_until_ns - 1
    before = enqueue(shard, unique())
    shard.clock_ns += 1

    after = enqueue(shard, unique())

    assert (before.status, after.status) == ("duplicate", "pending")
    assert shard.job(first.job_id).unique_until_ns == 0, "the lock was taken from its holder"
    assert shard.state(first.job_id) is State.PENDING
    shard.check()


@pytest.mark.parametrize("new", [unique(), unique(unique_period_ms=0)])
def test_a_lock_lasts_an_hour_when_nothing_is_said(new: NewJob) -> None:
    shard = Shard()

    made = enqueue(shard, new)

    assert shard.job(made.job_id).unique_until_ns == shard.now_ns + HOUR_MS * MS


def test_a_lock_is_free_when_its_job_is_finished() -> None:
    shard = Shard()
    first = enqueue(shard, unique())
    shard.fetch()
    shard.do(Ack(acks=[AckItem(job_id=first.job_id)]))

    second = enqueue(shard, unique())

    assert second.status == "pending"
    shard.check()


def test_a_lock_stays_while_its_job_is_active() -> None:
    shard = Shard()
    first = enqueue(shard, unique())
    shard.fetch()

    second = enqueue(shard, unique())

    assert second == Enqueued(first.job_id, "duplicate", unique_existing=True)


@pytest.mark.parametrize("op", [Clear(queue="mail"), DeleteQueue(queue="mail")])
def test_a_lock_of_a_job_that_is_being_swept_is_free(op: Clear | DeleteQueue) -> None:
    shard = Shard()
    enqueue(shard, unique())
    shard.do(op)

    second = enqueue(shard, unique())

    assert second.status == "pending"
    shard.check()


def test_a_job_that_is_retried_takes_its_lock_for_the_period_that_it_had() -> None:
    shard = Shard()
    first = enqueue(shard, unique(unique_period_ms=1_000))
    shard.do(Cancel(job_ids=[first.job_id]))

    shard.do(Retry(job_ids=[first.job_id]))

    assert shard.job(first.job_id).unique_until_ns == shard.now_ns + 1_000 * MS
    shard.check()


class Locks:
    """Unique locks, as simply as they can be said: who has each, and until when."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], tuple[str, int]] = {}

    def enqueue(self, queue: str, key: str, now_ns: int, until_ns: int) -> str | None:
        """The holder; None when the lock is free, and then it is the new job's."""
        holder, until = self.held.get((queue, key), ("", 0))
        if until > now_ns:
            return holder
        self.held[queue, key] = ("new", until_ns)
        return None

    def named(self, queue: str, key: str, job_id: str) -> None:
        self.held[queue, key] = (job_id, self.held[queue, key][1])

    def finish(self, job_id: str) -> None:
        self.held = {lock: pair for lock, pair in self.held.items() if pair[0] != job_id}


STEP: Final = st.tuples(
    st.sampled_from(["enqueue", "finish", "wait"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
    st.integers(1, 5),
)


@given(st.lists(STEP, max_size=30))
def test_locks_are_as_a_dict_would_have_them(steps: list[tuple[str, str, str, int]]) -> None:
    shard, locks = Shard(), Locks()
    jobs: list[Job] = []

    for what, queue, key, number in steps:
        if what == "wait":
            shard.pass_time(number)
        elif what == "finish" and jobs:
            job = jobs.pop(number % len(jobs))
            shard.do(Cancel(job_ids=[job.id]))
            locks.finish(job.id)
        elif what == "enqueue":
            new = NewJob(queue=queue, unique_key=key, unique_period_ms=number)
            made = enqueue(shard, new)
            now_ns = shard.now_ns
            holder = locks.enqueue(queue, key, now_ns, now_ns + number * MS)
            assert (made.job_id if made.unique_existing else None) == holder
            if holder is None:
                locks.named(queue, key, made.job_id)
                jobs.append(shard.job(made.job_id))
        shard.check()


# The door.


LIMITS: Final = Limits(payload_bytes_max=200, checkpoint_bytes_max=20, tags_max=2, tag_bytes_max=4)


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (NewJob(queue="a\0b"), "queue"),
        (NewJob(queue="a\x1fb"), "queue"),
        (NewJob(queue="a\x85b"), "queue"),
        (NewJob(queue="é" * 128), "queue"),
        (NewJob(queue="a", payload=msgspec.Raw(b'"' + b"x" * 199 + b'"')), "payload"),
        (NewJob(queue="a", payload=msgspec.Raw(b'"\xff"')), "payload"),
        (NewJob(queue="a", checkpoint=msgspec.Raw(b"1" * 21)), "checkpoint"),
        (NewJob(queue="a", id="s00_job_01HF7YAT000000000003800000"), "id"),
        (NewJob(queue="a", id=".."), "id"),
        (NewJob(queue="a", id="batch"), "id"),
        (NewJob(queue="a", id="s17_x"), "id"),
        (NewJob(queue="a", id="a b"), "id"),
        (NewJob(queue="a", id="a\n"), "id"),
        (NewJob(queue="a", id="é"), "id"),
        (NewJob(queue="a", unique_key="a\0b"), "unique_key"),
        (NewJob(queue="a", tags={"a": "1", "b": "2", "c": "3"}), "tags"),
        (NewJob(queue="a", tags={"a": "12345"}), "tags"),
        (NewJob(queue="a", tags={"": "1"}), "tags"),
    ],
)
def test_what_is_wrong_is_refused_at_the_door_with_the_name_of_the_field(
    new: NewJob, field: str
) -> None:
    refused = Enqueue(jobs=[NewJob(queue="good"), new]).check(LIMITS)

    assert refused is not None
    assert refused.field == f"jobs[1].{field}"


@pytest.mark.parametrize(
    "new",
    [
        NewJob(queue="Ünder the tree::mail, please"),
        NewJob(queue="x" * 255),
        NewJob(queue="a", id="order:7/".replace("/", ".") + "-_Z"),
        NewJob(queue="a", id="sunday_7"),
        NewJob(queue="a", payload=msgspec.Raw('"é😀"'.encode())),
        NewJob(queue="a", payload=msgspec.Raw(b'"' + b"x" * 198 + b'"')),
        NewJob(queue="a", tags={"a": "1234", "é": ""}),
    ],
)
def test_what_is_right_is_let_in(new: NewJob) -> None:
    assert Enqueue(jobs=[new]).check(LIMITS) is None


def nested(depth: int, brackets: tuple[bytes, bytes] = (b"[", b"]")) -> msgspec.Raw:
    return msgspec.Raw(brackets[0] * depth + brackets[1] * depth)


@pytest.mark.parametrize(
    ("payload", "is_refused"),
    [
        (nested(DEPTH_MAX), False),
        (nested(DEPTH_MAX + 1), True),
        (msgspec.Raw(b"[[],[]," + bytes(nested(DEPTH_MAX - 1)) + b"]"), False),
        (msgspec.Raw(b"[[],[]," + bytes(nested(DEPTH_MAX)) + b"]"), True),
        (nested(DEPTH_MAX + 1, (b'{"a":', b"}")), True),
        (msgspec.Raw(b"[" + b"[], {}," * 200 + b"1]"), False),
        (msgspec.Raw(b'"' + b'\\"[[{{' * 200 + b'"'), False),
        (msgspec.Raw(b'["\\\\", ' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"]"), True),
    ],
)
def test_json_that_is_nested_too_deep_is_refused(payload: msgspec.Raw, is_refused: bool) -> None:
    refused = Enqueue(jobs=[NewJob(queue="mail", payload=payload)]).check(Limits())

    assert (refused is not None) is is_refused


def test_a_scheduled_job_keeps_its_lock_when_it_is_promoted() -> None:
    shard = Shard()
    first = enqueue(shard, unique(scheduled_ns=shard.clock_ns + MS))
    shard.pass_time(2)
    shard.do(Promote(limit=9))

    second = enqueue(shard, unique())

    assert second.job_id == first.job_id
    shard.check()
