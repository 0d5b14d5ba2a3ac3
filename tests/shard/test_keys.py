"""The keys that the shard builds by hand are those of the registry."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.errors import BadKey
from corvo.kv import keys
from corvo.model import (
    FINISHED,
    Batch,
    Ending,
    Forward,
    Job,
    Priority,
    Queue,
    Request,
    State,
    Worker,
)
from corvo.shard.state.lifecycle import error_key
from corvo.shard.state.tables import (
    BATCHES,
    ENDINGS,
    FORWARDS,
    JOBS,
    QUEUES,
    REQUEST_KEPT_NS,
    REQUESTS,
    TIMERS,
    WORKER_KEPT_NS,
    WORKERS,
    QueueKeys,
    Timer,
    job_indexes,
    queue_keys,
    timer_key,
)

NAMES: Final = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
MOMENTS: Final = st.integers(1, 2**63 - 1)
MAYBE: Final = st.one_of(st.just(0), MOMENTS)
BLANK: Final = Job(
    id="s00_job_1", queue="mail", state=State.PENDING, payload=b"", created_ns=1, order_ns=5
)

Row = tuple[bytes, bytes]
"""A key and its value."""


@st.composite
def jobs(draw: st.DrawFn, state: State | None = None) -> Job:
    state = state or draw(st.sampled_from(State))
    is_active = state is State.ACTIVE
    return Job(
        id=draw(NAMES),
        queue=draw(NAMES),
        state=state,
        payload=b"",
        created_ns=1,
        order_ns=draw(MOMENTS),
        priority=draw(st.integers(0, 2)),
        lease_expires_ns=draw(MOMENTS) if is_active else 0,
        run_expires_ns=draw(MAYBE) if is_active else 0,
        scheduled_ns=draw(MOMENTS) if state in {State.SCHEDULED, State.RETRYING} else 0,
        expires_ns=draw(MAYBE),
        expires_active=draw(st.booleans()),
        finished_ns=draw(MOMENTS) if state in FINISHED else 0,
        held_ns=draw(MOMENTS) if state is State.HELD else 0,
        unique_key=draw(NAMES),
        unique_until_ns=draw(MAYBE),
        waits_for=tuple(draw(st.lists(NAMES, max_size=3, unique=True))),
    )


def rows_of(job: Job) -> set[Row]:
    """What the documents say about a job's keys, through the registry."""
    queue, state = job.queue, job.state
    if state in FINISHED:
        return {(keys.FINISHED.build(queue, job.finished_ns, job.id), b"")}
    rows = {place_of(job)}
    if state in {State.SCHEDULED, State.RETRYING}:
        rows.add((keys.TIMER.build(1, job.scheduled_ns, job.id), b""))
    if state is State.ACTIVE:
        ends = [it for it in (job.lease_expires_ns, job.run_expires_ns) if it]
        rows.add((keys.TIMER.build(2, min(ends), job.id), b""))
    if job.expires_ns and (job.expires_active or state is not State.ACTIVE):
        rows.add((keys.TIMER.build(3, job.expires_ns, job.id), b""))
    if job.unique_until_ns:
        lock = job.id.encode() + b"|" + job.unique_until_ns.to_bytes(8, "big")
        rows.add((keys.UNIQUE.build(queue, job.unique_key), lock))
        rows.add((keys.TIMER.build(4, job.unique_until_ns, job.id), b""))
    return rows | {(keys.DEPENDENT.build(awaited, job.id), b"") for awaited in job.waits_for}


def place_of(job: Job) -> Row:
    queue, name = job.queue, job.id
    match job.state:
        case State.ACTIVE:
            return keys.ACTIVE.build(queue, name), job.lease_expires_ns.to_bytes(8, "big")
        case State.SCHEDULED:
            return keys.SCHEDULED.build(queue, job.scheduled_ns, name), b""
        case State.RETRYING:
            return keys.RETRYING.build(queue, job.scheduled_ns, name), b""
        case State.HELD:
            return keys.HELD.build(queue, job.held_ns, name), b""
    assert job.state is State.PENDING
    if job.waits_for:
        return keys.BLOCKED.build(queue, job.order_ns, name), b""
    if job.priority == 2:
        return keys.QUEUE_APPEND.build(queue, job.order_ns, name), b""
    return keys.PENDING.build(queue, job.priority, job.order_ns, name), b""


@pytest.mark.parametrize("state", State)
@given(st.data())
def test_the_keys_of_a_job_are_those_of_the_registry(state: State, data: st.DataObject) -> None:
    job = data.draw(jobs(state))

    indexed = job_indexes(job)

    rows = [(key, value) for key, value, _ in indexed]
    assert len(rows) == len(set(rows))
    assert set(rows) == rows_of(job)


@given(jobs())
def test_a_key_that_belongs_to_a_group_begins_as_the_group_does(job: Job) -> None:
    grouped = [(key, group) for key, _, group in job_indexes(job) if group is not None]

    assert all(key.startswith(group.prefix) for key, group in grouped)
    asked_for = (keys.QUEUE_APPEND.prefix, keys.PENDING.prefix, keys.TIMER.prefix)
    assert len(grouped) == sum(key.startswith(asked_for) for key, _, _ in job_indexes(job))


@given(jobs())
def test_only_the_queue_of_normal_jobs_has_a_cursor(job: Job) -> None:
    cursors = {key: group.cursor for key, _, group in job_indexes(job) if group and group.cursor}

    normal = keys.QUEUE_APPEND.prefix
    expected = {key for key, _, _ in job_indexes(job) if key.startswith(normal)}
    assert set(cursors) == expected
    assert all(cursor == keys.QUEUE_CURSOR.build(job.queue) for cursor in cursors.values())


def test_an_active_job_has_its_id_and_the_end_of_its_lease_in_its_key() -> None:
    job = msgspec.structs.replace(BLANK, state=State.ACTIVE, lease_expires_ns=258)

    (key, value, _), _ = job_indexes(job)

    assert (key, value) == (b"a|mail\0s00_job_1", b"\0\0\0\0\0\0\x01\x02")


@pytest.mark.parametrize(
    ("priority", "key"),
    [
        (Priority.CRITICAL, b"p|mail\0\0\0\0\0\0\0\0\0\x05s00_job_1"),
        (Priority.HIGH, b"p|mail\0\x01\0\0\0\0\0\0\0\x05s00_job_1"),
        (Priority.NORMAL, b"qa|mail\0\0\0\0\0\0\0\0\x05s00_job_1"),
    ],
)
def test_a_pending_job_waits_where_its_priority_says(priority: int, key: bytes) -> None:
    job = msgspec.structs.replace(BLANK, priority=priority)

    assert [it[0] for it in job_indexes(job)] == [key]


@given(NAMES, NAMES, MOMENTS)
def test_what_a_queues_keys_begin_with_is_what_the_registry_builds(
    queue: str, name: str, at_ns: int
) -> None:
    names = QueueKeys(queue)
    end = at_ns.to_bytes(8, "big") + name.encode()
    number = b"\0\0\0\0\0\0\0\x09"

    assert names.append + end == keys.QUEUE_APPEND.build(queue, at_ns, name)
    assert names.pending + b"\x01" + end == keys.PENDING.build(queue, 1, at_ns, name)
    assert names.active + name.encode() == keys.ACTIVE.build(queue, name)
    assert names.scheduled + end == keys.SCHEDULED.build(queue, at_ns, name)
    assert names.retrying + end == keys.RETRYING.build(queue, at_ns, name)
    assert names.finished + end == keys.FINISHED.build(queue, at_ns, name)
    assert names.held + end == keys.HELD.build(queue, at_ns, name)
    assert names.blocked + end == keys.BLOCKED.build(queue, at_ns, name)
    assert names.unique + name.encode() == keys.UNIQUE.build(queue, name)
    assert names.rate + end[:8] + number == keys.RATE_LIMIT.build(queue, at_ns, 9)
    assert names.append_group.cursor == keys.QUEUE_CURSOR.build(queue)
    assert names.append_group.prefix == names.append
    assert names.pending_group.prefix == names.pending
    assert keys.QUEUE_APPEND.build(queue, at_ns, name)[names.append_skip :] == name.encode()
    assert keys.PENDING.build(queue, 1, at_ns, name)[names.pending_skip :] == name.encode()


@pytest.mark.parametrize("queue", ["", "ma\0il", "ma\ud800il"])
def test_a_queue_that_would_break_the_keys_has_none(queue: str) -> None:
    with pytest.raises(BadKey, match="queue"):
        queue_keys(queue)


@given(st.sampled_from(Timer), MOMENTS, NAMES)
def test_a_timer_has_the_key_of_the_registry(timer: Timer, due_ns: int, name: str) -> None:
    key, value, group = timer_key(timer, due_ns, name.encode())

    assert key == keys.TIMER.build(timer.value, due_ns, name)
    assert value == b""
    assert group == TIMERS[timer]
    assert group is not None
    assert key.startswith(group.prefix)


def test_timers_have_the_numbers_that_stand_in_keys() -> None:
    numbers = {timer.name: timer.value for timer in Timer}

    known = {
        "PROMOTE": 1,
        "LEASE": 2,
        "EXPIRE": 3,
        "UNIQUE": 4,
        "REQUEST": 5,
        "SWEEP": 6,
        "WORKER": 7,
        "ENDING": 8,
    }
    assert known.items() <= numbers.items()
    assert all(1 <= number <= 254 for number in numbers.values())


@given(NAMES, st.integers(0, 2**32 - 1))
def test_an_error_has_the_key_of_the_registry(job_id: str, number: int) -> None:
    assert error_key(job_id, number) == keys.JOB_ERROR.build(job_id, number)


@given(NAMES, MOMENTS)
def test_every_other_document_has_the_keys_of_the_registry(name: str, at_ns: int) -> None:
    queue = Queue(name=name, cleared_ns=at_ns, deleted_ns=at_ns // 2)
    worker = Worker(id=name, seen_ns=at_ns)
    request = Request(name, 1, b"", at_ns, "", b"")
    ending = Ending(name, "dead", at_ns)
    table_keys = {
        JOBS.prefix + name.encode(): keys.JOB.build(name),
        QUEUES.prefix + QUEUES.key(queue).encode(): keys.QUEUE_CONFIG.build(name),
        WORKERS.prefix + WORKERS.key(worker).encode(): keys.WORKER.build(name),
        BATCHES.prefix + BATCHES.key(Batch(id=name)).encode(): keys.BATCH.build(name),
        FORWARDS.prefix + FORWARDS.key(Forward(name, 1, 1)).encode(): keys.FORWARD.build(name),
        ENDINGS.prefix + ENDINGS.key(ending).encode(): keys.ENDING.build(name),
        REQUESTS.prefix + REQUESTS.key(request).encode(): keys.REQUEST.build(name),
    }

    assert all(built == key for built, key in table_keys.items())
    assert QUEUES.indexes is not None
    assert {key for key, _, _ in QUEUES.indexes(queue)} == {
        keys.QUEUE_NAME.build(name),
        keys.TIMER.build(6, at_ns, name),
    }
    assert {key for key, _, _ in QUEUES.indexes(Queue(name=name))} == {keys.QUEUE_NAME.build(name)}
    assert WORKERS.indexes is not None
    assert [key for key, _, _ in WORKERS.indexes(worker)] == [
        keys.TIMER.build(7, at_ns + WORKER_KEPT_NS, name)
    ]
    assert REQUESTS.indexes is not None
    assert [key for key, _, _ in REQUESTS.indexes(request)] == [
        keys.TIMER.build(5, at_ns + REQUEST_KEPT_NS, name)
    ]
    assert ENDINGS.indexes is not None
    assert [key for key, _, _ in ENDINGS.indexes(ending)] == [keys.TIMER.build(8, at_ns, name)]


@given(jobs())
def test_a_job_is_counted_in_its_queue_by_its_state(job: Job) -> None:
    assert JOBS.tally is not None
    assert JOBS.tally(job) == (job.queue, job.state.number)


def test_a_job_that_goes_where_none_may_go_is_a_bug() -> None:
    assert JOBS.check is not None
    done = msgspec.structs.replace(BLANK, state=State.COMPLETED)
    leased = msgspec.structs.replace(BLANK, lease_token=9)

    with pytest.raises(AssertionError, match="never becomes"):
        JOBS.check(done, msgspec.structs.replace(BLANK, state=State.ACTIVE))
    with pytest.raises(AssertionError, match="tokens rise"):
        JOBS.check(leased, BLANK)
    JOBS.check(BLANK, leased)
