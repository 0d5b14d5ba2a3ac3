"""Stored documents: what was written can be read, also by the code of another day.

`FIELDS` and `GOLDEN` are what is in stores today. Both are added to when a document is, and what
stands in them is never changed.
"""

from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Final, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo import model
from corvo.model import (
    FINISHED,
    STATES,
    TRANSITIONS,
    Agent,
    ApiKey,
    Backoff,
    Batch,
    Ending,
    Epoch,
    Event,
    EventType,
    Forward,
    Job,
    JobError,
    Outgoing,
    Priority,
    Queue,
    Request,
    Run,
    Schedule,
    Settled,
    State,
    Throughput,
    TracedJob,
    Worker,
    may_follow,
    trace_of,
    traced,
)
from corvo.shard.state.tables import JOBS
from corvo.trace_context import TraceContext

Document: TypeAlias = msgspec.Struct

FIELDS: Final[dict[type[Document], str]] = {
    Event: "at_ns what by why",
    Settled: "token how state due_ns attempts_left",
    Agent: "max_iterations max_cost_micros iteration_timeout_ms iteration total_cost_micros",
    Job: """
        id queue state payload created_ns order_ns trail priority kind
        attempt max_retries backoff retry_base_delay_ms retry_max_delay_ms retry_jitter failures
        crashes max_crashes
        lease_token lease_ms lease_expires_ns max_run_time_ms run_expires_ns worker_id hostname
        cancel_requested settled
        scheduled_ns expires_ns expires_active started_ns completed_ns failed_ns finished_ns
        held_ns hold_reason
        unique_key unique_until_ns tags progress checkpoint result
        parent_id batch_id chain_id chain_step chain waits_for agent born_in unique_period_ms
        chain_marks awaited
    """,
    JobError: "attempt error backtrace error_class at_ns worker_id",
    Queue: """
        name created_ns paused draining max_concurrency rate_limit rate_window_ms retention_ms
        cleared_ns deleted_ns rate_since_ns
    """,
    Worker: "id hostname queues started_ns seen_ns",
    Throughput: "queue minute enqueued started completed failed dead cancelled",
    Batch: """
        id created_ns total pending succeeded failed cancelled callback_queue callback_payload
        called_back removed queue trace
    """,
    TraceContext: "traceparent tracestate",
    Request: "key op body_hash at_ns code body index",
    Outgoing: "shard seq body at_ns",
    Forward: "id shard at_ns state",
    Ending: "id state at_ns",
    ApiKey: "key_hash name role namespace queue_scope enabled created_ns expires_ns is_early",
    Epoch: "began_ns first after",
    Run: "due_ns at_ns job_id state skipped cause count",
    Schedule: """
        id name queue cron job timezone overlap missed missed_max missed_after_ms jitter_ms
        starts_ns ends_ns paused created_ns changed_ns changes anchor_ns from_ns is_planned next_ns
        next_local tz error queued_ns queued_local last_due_ns fired skipped runs moving_to
    """,
}
FIELDS[TracedJob] = FIELDS[Job] + " trace"
"""The fields of each document in their order. A new one stands at the end, and has a default."""

PLAIN_JOB: Final = (
    b"\xdc\x00\x35"
    b"\xa1j\xa1q\xa7pending\xc4\x02{}\x01\x02\x90\x02\xa0"
    b"\x00\x03\xabexponential\xcd\x13\x88\xce\x00\x09\x27\xc0\x00\x00\x00\x05"
    b"\x00\x00\x00\x00\x00\xa0\xa0\xc2\xc0"
    b"\x00\x00\xc2\x00\x00\x00\x00\x00\xa0"
    b"\xa0\x00\x80\xc4\x00\xc4\x00\xc4\x00"
    b"\xa0\xa0\xa0\x00\xc4\x00\x90\xc0\xff\x00"
    b"\x00\xc2"
)
"""53 fields, in the lines of `FIELDS`."""
TRACED_JOB: Final = b"\xdc\x00\x36" + PLAIN_JOB[3:] + b"\x92\xa500-00\xa3a=b"

GOLDEN: Final[tuple[tuple[Document, bytes], ...]] = (
    (Event(1, "enqueued"), b"\x94\x01\xa8enqueued\xa0\xa0"),
    (Event(300, "held", "ann", "odd"), b"\x94\xcd\x01\x2c\xa4held\xa3ann\xa3odd"),
    (Settled(7, "fail", State.RETRYING, 9, 2), b"\x95\x07\xa4fail\xa8retrying\x09\x02"),
    (Agent(5, 250_000, 0, 2, 70_000), b"\x95\x05\xce\x00\x03\xd0\x90\x00\x02\xce\x00\x01\x11\x70"),
    (
        Job(id="j", queue="q", state=State.PENDING, payload=b"{}", created_ns=1, order_ns=2),
        PLAIN_JOB,
    ),
    (
        TracedJob(
            id="j",
            queue="q",
            state=State.PENDING,
            payload=b"{}",
            created_ns=1,
            order_ns=2,
            trace=TraceContext("00-00", "a=b"),
        ),
        TRACED_JOB,
    ),
    (TraceContext("00-00"), b"\x92\xa500-00\xa0"),
    (
        JobError(attempt=2, error="no", at_ns=5),
        b'{"attempt":2,"error":"no","backtrace":"","error_class":"","at_ns":5,"worker_id":""}',
    ),
    (Queue(name="mail"), b'{"name":"mail"}'),
    (
        Queue(name="mail", paused=True, max_concurrency=2, rate_limit=10, rate_window_ms=60_000),
        b'{"name":"mail","paused":true,"max_concurrency":2,"rate_limit":10,"rate_window_ms":60000}',
    ),
    (Worker(id="w", queues=("a", "b")), b'{"id":"w","queues":["a","b"]}'),
    (Throughput("q", 300, 4, 3, 2, 1), b"\x98\xa1q\xcd\x01\x2c\x04\x03\x02\x01\x00\x00"),
    (Batch(id="b", total=2, pending=1), b'{"id":"b","total":2,"pending":1}'),
    (
        Request("pay-17", 1, b"\x01\x02", 3, "", b"{}", 9),
        b"\x97\xa6pay-17\x01\xc4\x02\x01\x02\x03\xa0\xc4\x02{}\x09",
    ),
    (Outgoing(2, 7, b"{}", 5), b"\x94\x02\x07\xc4\x02{}\x05"),
    (Forward("j", 3, 5), b"\x94\xa1j\x03\x05\xa0"),
    (Ending("j", "dead", 5), b"\x93\xa1j\xa4dead\x05"),
    (
        ApiKey(key_hash="9f86", name="ci", role="worker", queue_scope=("mail", "sms-*")),
        b'{"key_hash":"9f86","name":"ci","role":"worker","queue_scope":["mail","sms-*"]}',
    ),
    (Epoch(began_ns=300, first=4, after=0), b"\x93\xcd\x01\x2c\x04\x00"),
    (Run(due_ns=3, at_ns=4, job_id="j"), b'{"due_ns":3,"at_ns":4,"job_id":"j"}'),
    (
        Schedule(
            id="q~n", name="n", queue="q", cron="@daily", job="{}", runs=(Run(due_ns=3, at_ns=4),)
        ),
        b'{"id":"q~n","name":"n","queue":"q","cron":"@daily","job":"{}",%b}'
        % b'"runs":[{"due_ns":3,"at_ns":4}]',
    ),
)
"""Bytes written out by hand: arrays are msgpack, and the others JSON. They stay, come what may."""

DOCUMENTS: Final = tuple(FIELDS)
ARRAYS: Final = tuple(it for it in DOCUMENTS if it.__struct_config__.array_like)
documents: Final = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda it: it.__name__)


def encode(document: Document) -> bytes:
    is_array = type(document).__struct_config__.array_like
    return msgspec.msgpack.encode(document) if is_array else msgspec.json.encode(document)


def decode(data: bytes, kind: type[Document]) -> Document:
    if kind.__struct_config__.array_like:
        return msgspec.msgpack.decode(data, type=kind)
    return msgspec.json.decode(data, type=kind)


def hints_of(kind: type[Document]) -> dict[str, object]:
    return dict(get_type_hints(kind))


def values_of(hint: object) -> st.SearchStrategy[object]:
    """Everything that a field may hold. A type that is not here has no place in a document."""
    simple: dict[object, st.SearchStrategy[object]] = {
        int: st.integers(-1, 2**63 - 1),
        bool: st.booleans(),
        str: st.text(),
        bytes: st.binary(),
        type(None): st.none(),
    }
    if hint in simple:
        return simple[hint]
    inner = [values_of(it) for it in get_args(hint) if it is not Ellipsis]
    if get_origin(hint) is tuple:
        return st.lists(inner[0], max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(inner[0], inner[1], max_size=3)
    if get_origin(hint) in {Union, UnionType}:
        return st.one_of(inner)
    assert isinstance(hint, type), f"{hint} is none of the types that a document may have"
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    assert issubclass(hint, msgspec.Struct), f"{hint} has no place in a document"
    return documents_of(hint)


def documents_of(kind: type[Document]) -> st.SearchStrategy[Document]:
    return st.builds(kind, **{name: values_of(hint) for name, hint in hints_of(kind).items()})


ANY: Final = st.sampled_from(DOCUMENTS).flatmap(documents_of)


# The registry of this page.


def test_every_document_of_the_model_is_here() -> None:
    defined = {
        it for it in vars(model).values() if isinstance(it, type) and issubclass(it, msgspec.Struct)
    }

    assert set(DOCUMENTS) == defined
    assert {type(document) for document, _ in GOLDEN} == defined


@documents
def test_fields_stand_where_they_always_stood(document: type[Document]) -> None:
    fields = [field.name for field in msgspec.structs.fields(document)]

    known = FIELDS[document].split()
    assert fields[: len(known)] == known
    assert fields == known, "a new field: add it here, at the end"


@documents
def test_only_the_first_fields_have_no_default(document: type[Document]) -> None:
    fields = [field for field in msgspec.structs.fields(document) if field.name != "at_ns"]

    needed = [field.required for field in fields]

    assert needed == sorted(needed, reverse=True)


@documents
def test_a_document_is_frozen_and_compared_by_its_content(document: type[Document]) -> None:
    config = document.__struct_config__

    assert config.frozen
    assert config.eq
    assert not config.tag
    assert not config.forbid_unknown_fields


@documents
def test_no_float_and_nothing_without_a_type_is_stored(document: type[Document]) -> None:
    for hint in hints_of(document).values():
        values_of(hint)


# Bytes.


@pytest.mark.parametrize(("document", "data"), GOLDEN, ids=lambda it: type(it).__name__)
def test_a_document_is_read_from_these_bytes(document: Document, data: bytes) -> None:
    assert decode(data, type(document)) == document


@pytest.mark.parametrize(("document", "data"), GOLDEN, ids=lambda it: type(it).__name__)
def test_a_document_is_written_so_and_only_ever_added_to(document: Document, data: bytes) -> None:
    written, known = parts_of(encode(document), document), parts_of(data, document)

    assert written[: len(known)] == known


def parts_of(data: bytes, document: Document) -> list[tuple[str, bytes]]:
    """The values as they were written, in their order; those of arrays have no names."""
    if type(document).__struct_config__.array_like:
        values = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
        return [("", bytes(value)) for value in values]
    named = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return [(name, bytes(value)) for name, value in named.items()]


@given(ANY)
def test_what_was_encoded_is_decoded_again(document: Document) -> None:
    data = encode(document)

    again = decode(data, type(document))

    assert again == document
    assert encode(again) == data


@given(st.sampled_from(ARRAYS).flatmap(documents_of), st.data())
def test_a_document_from_before_a_field_was_added_has_its_default(
    document: Document, data: st.DataObject
) -> None:
    fields = msgspec.structs.fields(document)
    needed = sum(field.required for field in fields)
    kept = data.draw(st.integers(needed, len(fields)))
    values = msgspec.msgpack.decode(encode(document), type=list[msgspec.Raw])

    old = decode(msgspec.msgpack.encode(values[:kept]), type(document))

    for at, field in enumerate(fields):
        expected = getattr(document, field.name) if at < kept else default_of(field)
        assert getattr(old, field.name) == expected


@given(st.sampled_from(ARRAYS).flatmap(documents_of))
def test_a_document_without_what_it_always_had_is_refused(document: Document) -> None:
    needed = sum(field.required for field in msgspec.structs.fields(document))
    values = msgspec.msgpack.decode(encode(document), type=list[msgspec.Raw])

    for kept in range(needed):
        with pytest.raises(msgspec.ValidationError):
            decode(msgspec.msgpack.encode(values[:kept]), type(document))


@given(
    st.sampled_from([it for it in DOCUMENTS if it not in ARRAYS]).flatmap(documents_of), st.data()
)
def test_json_without_a_field_that_was_added_has_its_default(
    document: Document, data: st.DataObject
) -> None:
    values = msgspec.json.decode(encode(document), type=dict[str, msgspec.Raw])
    optional = [field for field in msgspec.structs.fields(document) if not field.required]
    gone = data.draw(st.sampled_from(optional))
    values.pop(gone.encode_name, None)

    old = decode(msgspec.json.encode(values), type(document))

    assert old == msgspec.structs.replace(document, **{gone.name: default_of(gone)})


def default_of(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        value: object = field.default
        return value
    factory: Callable[[], object] = field.default_factory
    return factory()


def test_only_a_job_with_a_trace_context_has_more_than_a_job_of_before() -> None:
    context = TraceContext("00-00", "a=b")
    plain = JOBS.decode(PLAIN_JOB)
    with_context = JOBS.decode(TRACED_JOB)

    assert type(plain) is Job
    assert trace_of(plain) is None
    assert trace_of(with_context) == context
    assert traced(plain, context) == with_context
    assert JOBS.encode(with_context) == TRACED_JOB
    assert JOBS.encode(traced(with_context, None)) == PLAIN_JOB
    assert decode(TRACED_JOB, Job) == plain, "a mirror has no use for it"


def test_a_job_with_fewer_fields_than_a_header_of_many_is_still_read() -> None:
    values = msgspec.msgpack.decode(PLAIN_JOB, type=list[msgspec.Raw])

    old = JOBS.decode(msgspec.msgpack.encode(values[:6]))

    assert old == JOBS.decode(PLAIN_JOB)


def test_the_bytes_that_a_client_sent_stay_as_they_are() -> None:
    sent = b'{"b": 1.50,  "a":\t[1e3, "\\u00e9"]}'
    job = Job(
        id="j",
        queue="q",
        state=State.PENDING,
        payload=sent,
        created_ns=1,
        order_ns=1,
        progress=sent,
        checkpoint=sent,
        result=sent,
        chain=sent,
    )

    again = msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job)

    assert {again.payload, again.progress, again.checkpoint, again.result, again.chain} == {sent}


def test_tags_keep_the_order_in_which_they_came() -> None:
    tags = {"z": "1", "a": "2", "m": "3"}
    job = Job(
        id="j", queue="q", state=State.PENDING, payload=b"", created_ns=1, order_ns=1, tags=tags
    )

    again = msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job)

    assert list(again.tags.items()) == list(tags.items())


# States.


def test_states_have_the_numbers_that_counts_are_stored_by() -> None:
    numbers = {state.value: state.number for state in State}

    assert numbers == {
        "pending": 0,
        "active": 1,
        "held": 2,
        "completed": 3,
        "retrying": 4,
        "dead": 5,
        "cancelled": 6,
        "scheduled": 7,
    }
    assert [state.number for state in STATES] == [*range(8)]


def test_stored_words_of_events_and_their_public_names_never_change() -> None:
    words = {each.stored: each.public for each in EventType if each.stored != each.public}
    assert words == {"died": "dead", "asked to stop": "asked_to_stop"}
    assert [each.stored for each in EventType if each.stored not in words] == [
        *("enqueued", "started", "completed", "failed", "cancelled", "released", "snoozed"),
        *("crashed", "promoted", "ready", "held", "approved", "rejected", "continued", "retried"),
        *("requeued", "moved", "arrived", "priority", "progress", "deleted", "purged"),
        *("queue.created", "queue.paused", "queue.resumed", "queue.draining", "queue.changed"),
        *("queue.cleared", "queue.deleted"),
        *("schedule.created", "schedule.changed", "schedule.paused", "schedule.resumed"),
        *("schedule.skipped", "schedule.moved", "schedule.deleted"),
    ]
    assert len({each.public for each in EventType}) == len(EventType)


def test_every_state_is_waiting_active_or_finished() -> None:
    assert sorted(state.number for state in State) == [*range(8)]


def test_a_state_follows_another_as_the_table_says() -> None:
    for before in State:
        for after in State:
            assert may_follow(before, after) == (after in TRANSITIONS[before])


def test_a_document_may_always_change_and_stay_where_it_is() -> None:
    assert all(may_follow(state, state) for state in State)


def test_only_a_pending_job_is_given_to_a_worker() -> None:
    givers = [state for state in State if may_follow(state, State.ACTIVE)]

    assert givers == [State.PENDING, State.ACTIVE]


def test_a_finished_job_can_only_begin_anew() -> None:
    for state in FINISHED:
        followers = [after for after in State if may_follow(state, after)]
        assert followers == [State.PENDING, state]


def test_every_job_can_come_to_an_end() -> None:
    for state in State:
        reached = {state}
        for _ in State:
            reached |= {after for it in reached for after in TRANSITIONS[it]}
        assert set(FINISHED) <= reached


def test_the_words_of_the_original_keep_their_values() -> None:
    assert (Priority.CRITICAL, Priority.HIGH, Priority.NORMAL) == (0, 1, 2)
    assert [it.value for it in Backoff] == ["none", "fixed", "linear", "exponential"]
