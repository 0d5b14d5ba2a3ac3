"""The rows that follow from documents, against a slow twin of the words that describe them."""

import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.kv import keys
from corvo.mirror.follow import schema
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.rows import BadDocument, Rows, fields_of
from corvo.mirror.follow.writing import Writing, open_writing
from corvo.model import (
    Agent,
    Backoff,
    Batch,
    Event,
    Job,
    JobError,
    Queue,
    Schedule,
    State,
    Throughput,
    Worker,
)
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.enqueue import NewJob
from tests.mirror.pages import tables_in
from tests.mirror.projection import Tables, tables_of

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_names = st.sampled_from(["mail", "sms", "it's", 'a"b', "日本", "%_"])
_times = st.integers(0, 4_102_444_800 * 10**9)
_counts = st.integers(0, 1 << 40)
_json = st.one_of(_texts, st.integers(-9, 9), st.lists(_texts, max_size=2)).map(msgspec.json.encode)
_maybe_json = st.one_of(st.just(b""), _json)

jobs = st.builds(
    Job,
    id=st.sampled_from([f"s00_job_{number}" for number in range(4)]),
    queue=_names,
    state=st.sampled_from(State),
    payload=_json,
    created_ns=_times,
    order_ns=_times,
    trail=st.lists(st.builds(Event, _times, _texts), max_size=2).map(tuple),
    priority=st.integers(0, 2),
    kind=_texts,
    attempt=st.integers(0, 9),
    backoff=st.sampled_from(Backoff),
    failures=_counts,
    crashes=_counts,
    lease_ms=_counts,
    worker_id=_texts,
    hostname=_texts,
    cancel_requested=st.booleans(),
    scheduled_ns=_times,
    expires_ns=_times,
    started_ns=_times,
    completed_ns=_times,
    failed_ns=_times,
    finished_ns=_times,
    held_ns=_times,
    hold_reason=_texts,
    unique_key=_names,
    tags=st.dictionaries(_texts, _texts, max_size=3),
    progress=_maybe_json,
    checkpoint=_maybe_json,
    result=_maybe_json,
    parent_id=_texts,
    batch_id=_texts,
    chain_id=_texts,
    chain_step=st.integers(-2, 9),
    chain=_maybe_json,
    agent=st.none() | st.builds(Agent, *[st.integers(0, 1 << 40)] * 5),
)
_leases = st.integers(1, 1 << 60)
new_jobs = st.builds(
    NewJob,
    queue=_names,
    payload=st.just(msgspec.UNSET) | _json.map(msgspec.Raw),
    unique_key=_texts,
    max_retries=st.integers(0, 9),
)
schedules = st.builds(
    Schedule,
    id=st.sampled_from(["mail~a", "mail~b", "日本~a"]),
    name=_texts,
    queue=_names,
    cron=_texts,
    job=new_jobs.map(lambda job: encode_json(job).decode()),
    timezone=_texts,
    overlap=_texts,
    missed=_texts,
    paused=st.booleans(),
    created_ns=_times,
    changed_ns=_times,
    next_ns=_times,
    last_due_ns=_times,
    fired=_counts,
    skipped=_counts,
)


@st.composite
def documents(draw: st.DrawFn) -> dict[bytes, bytes]:
    """What a shard may have, a few of each."""
    pack, json = msgspec.msgpack.encode, msgspec.json.encode
    found: dict[bytes, bytes] = {}
    locked: set[tuple[str, str]] = set()
    for job in draw(st.lists(jobs, max_size=4, unique_by=lambda job: job.id)):
        whole = job
        if job.state is State.ACTIVE:
            whole = msgspec.structs.replace(whole, lease_expires_ns=draw(_leases))
        if draw(st.booleans()) and (job.queue, job.unique_key) not in locked:
            locked.add((job.queue, job.unique_key))
            whole = msgspec.structs.replace(whole, unique_until_ns=draw(_leases))
        found[keys.JOB.build(job.id)] = pack(whole)
        for number in draw(st.sets(st.integers(1, 3), max_size=2)):
            error = JobError(attempt=1, error=draw(_texts), at_ns=draw(_leases), worker_id="w")
            found[keys.JOB_ERROR.build(job.id, number)] = json(error)
    for name in draw(st.sets(_names, max_size=3)):
        queue = Queue(name=name, paused=draw(st.booleans()), retention_ms=draw(_counts))
        found[keys.QUEUE_CONFIG.build(name)] = json(queue)
        found[keys.COUNTS.build(name)] = pack(draw(st.lists(_counts, min_size=16, max_size=16)))
        for minute in draw(st.sets(st.integers(1 << 24, (1 << 24) + 63), max_size=3)):
            slot = keys.THROUGHPUT.build(name, minute % 64)
            found[slot] = pack(Throughput(name, minute, *draw(st.tuples(*[_counts] * 6))))
    for name in draw(st.sets(_names, max_size=2)):
        batch = Batch(id=name, total=draw(_counts), callback_payload="1", called_back=True)
        found[keys.BATCH.build(name)] = json(batch)
        worker = Worker(id=name, queues=tuple(draw(st.lists(_texts, max_size=2))), seen_ns=7)
        found[keys.WORKER.build(name)] = json(worker)
    for schedule in draw(st.lists(schedules, max_size=2, unique_by=lambda it: it.id)):
        found[keys.SCHEDULE.build(schedule.id)] = json(schedule)
    return found


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> Writing:
    return open_writing(tmp_path_factory.mktemp("m"), "rookery", 2, boot_id="one")[0]


def projected(shard: int, documents: dict[bytes, bytes]) -> Tables:
    return tables_of({shard: documents})


@given(before=documents(), after=documents())
def test_rows_follow_from_the_documents_and_from_nothing_before(
    writing: Writing, before: dict[bytes, bytes], after: dict[bytes, bytes]
) -> None:
    gone = tuple((key, None) for key in before.keys() - after.keys())

    writing.write([Page(Cursor(1), tuple(before.items()))])
    first = tables_in(writing.path)
    writing.write([Page(Cursor(1), (*gone, *after.items()))])
    second = tables_in(writing.path)
    writing.write([Page(Cursor(1), tuple((key, None) for key in after))])

    assert first == projected(1, before)
    assert second == projected(1, after)
    assert not any(tables_in(writing.path).values())


@given(before=documents(), after=documents(), cuts=st.lists(st.integers(0, 20), max_size=3))
def test_a_pass_leaves_what_it_was_told_and_nothing_else_of_that_shard(
    writing: Writing, before: dict[bytes, bytes], after: dict[bytes, bytes], cuts: list[int]
) -> None:
    ordered = sorted(after)
    ends = sorted({min(cut, len(ordered)) for cut in cuts} | {len(ordered)})

    writing.write([Page(Cursor(0), tuple(before.items()))])
    writing.write([Page(Cursor(1), tuple(before.items()))])
    first, last = 0, b""
    for end in ends:
        page = ordered[first:end]
        until = b"" if end == len(ordered) else (page[-1] if page else last)
        if page or not until:
            pairs = tuple((key, after[key]) for key in page)
            writing.write([Page(Cursor(1), pairs, (last, until))])
        first, last = end, until
    found = tables_in(writing.path)
    for shard in (0, 1):
        writing.write([Page(Cursor(shard), (), (b"", b""))])

    assert found == tables_of({0: before, 1: after})
    assert not any(tables_in(writing.path).values())


def test_a_payload_that_is_no_utf_8_is_shown_as_such() -> None:
    job = Job(id="j", queue="q", state=State.PENDING, payload=b'"\xff"', created_ns=1, order_ns=1)

    assert '"\ufffd"' in schema.JOB.row(0, job, ())


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (keys.JOB_ERROR, ("s00_job_1", 2)),
        (keys.THROUGHPUT, ("mail", 7)),
        (keys.JOB, ("s00_job_1",)),
        (keys.WORKER, ("worker-1",)),
        (keys.SCHEDULE, ("mail~nightly",)),
    ],
)
def test_fields_of_a_key_are_those_that_it_was_built_of(
    space: keys.Space, values: tuple[keys.Value, ...]
) -> None:
    assert fields_of(space.build(*values)) == values


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (b"x|mail", b""),
        (b"mail", b""),
        (b"j|s00_job_1", b"\x01"),
        (b"qc|mail", b"{"),
        (b"sc|mail~nightly", b"{}"),
        (b"tp|mail\0\x01", struct.pack(">I", 7)),
    ],
)
def test_what_is_no_document_is_refused_aloud(key: bytes, data: bytes) -> None:
    with pytest.raises(BadDocument):
        Rows(0).take([(key, data)])


def test_a_minute_takes_the_place_of_the_one_that_had_its_slot(tmp_path: Path) -> None:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one")
    pack = msgspec.msgpack.encode
    slot = keys.THROUGHPUT.build("mail", 5)

    writing.write([Page(Cursor(0), ((slot, pack(Throughput("mail", 64 + 5, 1))),))])
    writing.write([Page(Cursor(0), ((slot, pack(Throughput("mail", 128 + 5, 2))),))])
    minutes = [row["minute"] for row in tables_in(writing.path)["throughput"].values()]

    assert minutes == [133]


def test_a_lock_that_went_to_another_job_is_not_lost_with_the_first_one(tmp_path: Path) -> None:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one")
    base = Job(id="a", queue="q", state=State.PENDING, payload=b"1", created_ns=1, order_ns=1)
    first = msgspec.structs.replace(base, unique_key="k", unique_until_ns=9)
    freed = msgspec.structs.replace(first, unique_until_ns=0)
    second = msgspec.structs.replace(first, id="b")
    pack = msgspec.msgpack.encode

    writing.write([Page(Cursor(0), ((b"j|a", pack(first)),))])
    writing.write([Page(Cursor(0), ((b"j|b", pack(second)), (b"j|a", pack(freed))))])
    holders = [row["job_id"] for row in tables_in(writing.path)["unique_locks"].values()]

    assert holders == ["b"]
