"""Frames of a stream: one meaning in two formats, and a refusal that names what is wrong."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol.ops.base import ITEMS_MAX
from corvo.router.enqueue.bodies import BatchedJob, ChainBody, decode_enqueue_batch
from corvo.router.http.messages import Problem
from corvo.router.leases.fetch import FetchedJob
from corvo.router.leases.verbs import (
    AckBatchBody,
    BeatResult,
    FailBatchBody,
    ItemAnswer,
    decode_heartbeat,
)
from corvo.router.stream.frames import Frame, Reply, Unreadable, decode, encode, refuse

pack: Final = msgspec.msgpack.encode
unpack: Final = msgspec.msgpack.decode

JSONS: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
OWN: Final = {"payload", "checkpoint", "result", "progress", "chain_config"}
"""Fields that hold JSON of the client's own."""


def own(name: str) -> st.SearchStrategy[dict[str, object]]:
    """Nothing, or JSON of the client's own."""
    return st.just({}) | JSONS.map(lambda value: {name: value})


def items(*names: str, **given_fields: object) -> st.SearchStrategy[list[dict[str, object]]]:
    item = st.tuples(*(own(name) for name in names)).map(
        lambda parts: {
            name: value for part in (given_fields, *parts) for name, value in part.items()
        }
    )
    return st.lists(item, max_size=3)


def chain(step: dict[str, object]) -> dict[str, object]:
    return {"steps": [step, {"queue": "b"}], "on_failure": step, "on_exit": "c"}


FRAMES: Final = st.fixed_dictionaries(
    {"id": st.integers(0, (1 << 53) - 1)},
    optional={
        "acks": items("result", "checkpoint", job_id="a", lease_token=4),
        "fails": items(job_id="a", error="no", retry_after="5s"),
        "heartbeats": items("progress", "checkpoint", job_id="a"),
        "enqueues": items("payload", "checkpoint", "chain_config", queue="mail", priority="high"),
        "fetch": st.just({"queues": ["mail"], "count": 3, "wait_ms": 10}),
        "request_key": st.text("abc -~", max_size=64),
    },
)


def packed(frame: object) -> bytes:
    """A frame as msgpack has it: the client's own JSON in a bin."""

    def wrap(value: object) -> object:
        if isinstance(value, list):
            return [wrap(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name: msgspec.json.encode(each) if name in OWN else wrap(each)
            for name, each in value.items()
        }

    return pack(wrap(frame))


def text(frame: object) -> str:
    return msgspec.json.encode(frame).decode()


def frame_of(message: bytes | str) -> Frame:
    """A frame that is as it should be."""
    frame = decode(message).frame
    assert isinstance(frame, Frame), frame
    return frame


def refusal_of(message: bytes | str) -> tuple[int, str, str]:
    """Which frame is refused, for which field, and with which code."""
    reply = decode(message).frame
    assert isinstance(reply, Reply)
    assert reply.error is not None
    assert reply.error.outcome == "not_applied"
    return reply.id, reply.error.field, reply.error.code


# What is read.


@given(FRAMES)
def test_a_frame_means_the_same_in_both_formats(frame: dict[str, object]) -> None:
    in_json, in_msgpack = frame_of(text(frame)), frame_of(packed(frame))

    assert msgspec.json.encode(in_json) == msgspec.json.encode(in_msgpack)


def test_an_item_of_a_frame_is_an_item_of_the_batch_call() -> None:
    ack = '{"job_id": "j", "lease_token": 3, "result": {"a": 1}, "agent_status": "done"}'
    fail = '{"job_id": "j", "error": "no", "retry_after": "3s"}'
    beat = '{"job_id": "j", "progress": 4, "worker_id": "w"}'
    job = '{"queue": "q", "payload": [1], "delay": "5s", "tags": {"a": "b"}, "depends_on": ["x"]}'

    words = f'"acks": [{ack}], "fails": [{fail}], "heartbeats": [{beat}]'
    frame = frame_of(f'{{"id": 1, {words}, "enqueues": [{job}]}}')

    encode_json = msgspec.json.encode
    acks = msgspec.json.decode(f'{{"acks": [{ack}]}}', type=AckBatchBody).acks
    fails = msgspec.json.decode(f'{{"fails": [{fail}]}}', type=FailBatchBody).fails
    beats = decode_heartbeat.decode(f'{{"jobs": [{beat}]}}'.encode()).jobs
    jobs = decode_enqueue_batch.decode(f'{{"jobs": [{job}]}}'.encode()).jobs
    assert encode_json(frame.acks) == encode_json(acks)
    assert encode_json(frame.fails) == encode_json(fails)
    assert encode_json(frame.heartbeats) == encode_json(beats)
    assert encode_json(frame.enqueues) == encode_json(jobs)


@pytest.mark.parametrize(
    "own_json", ['{ "b":1,\t"a": [ 1.50e3, "\\u00e9é" ] }', "null", '"x"', "0"]
)
def test_the_clients_own_json_is_kept_byte_for_byte(own_json: str) -> None:
    in_json = frame_of(f'{{"id": 1, "enqueues": [{{"queue": "q", "payload": {own_json}}}]}}')
    in_msgpack = frame_of(
        pack({"id": 1, "enqueues": [{"queue": "q", "payload": f" {own_json}\n".encode()}]})
    )

    for frame in (in_json, in_msgpack):
        payload = frame.enqueues[0].payload
        assert isinstance(payload, msgspec.Raw)
        assert bytes(payload) == own_json.encode()


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, (0, 60_000)),
        ({"wait_ms": 10, "lease_ms": 1_500}, (10, 1_500)),
        ({"wait_seconds": 0.5, "lease_seconds": 30}, (500, 30_000)),
        ({"wait_seconds": 0.5, "wait_ms": 500}, (500, 60_000)),
    ],
)
def test_wait_and_lease_of_a_fetch_are_said_as_in_a_request(
    fields: dict[str, object], wanted: tuple[int, int]
) -> None:
    for encode_frame in (text, pack):
        part = frame_of(encode_frame({"id": 1, "fetch": {"queues": ["q"], **fields}})).fetch
        assert part is not None
        assert (part.waits_ms, part.leases_ms) == wanted


@pytest.mark.parametrize("size", [10, 300, 70_000])
def test_a_bin_of_any_length_is_read(size: int) -> None:
    own_json = msgspec.json.encode("x" * size)

    frame = frame_of(pack({"id": 1, "acks": [{"job_id": "j", "result": own_json}]}))

    result = frame.acks[0].result
    assert isinstance(result, msgspec.Raw)
    assert bytes(result) == own_json


def test_json_in_the_steps_of_a_chain_is_unwrapped_too() -> None:
    step: dict[str, object] = {"queue": "a", "payload": b'{"n":1}'}
    frame = frame_of(pack({"id": 1, "enqueues": [{"queue": "a", "chain": chain(step)}]}))

    read = frame.enqueues[0].chain
    assert read is not None
    as_text = msgspec.json.encode(chain({"queue": "a", "payload": {"n": 1}}))
    there = msgspec.json.decode(as_text, type=ChainBody)
    assert msgspec.json.encode(read) == msgspec.json.encode(there)


def test_nil_is_as_absent_in_msgpack() -> None:
    item = {"queue": "a", "payload": None, "checkpoint": None, "tags": None}

    frame = frame_of(pack({"id": 1, "enqueues": [item]}))

    assert frame.enqueues[0].payload is msgspec.UNSET
    assert frame.enqueues[0].checkpoint is msgspec.UNSET


def test_what_is_not_known_is_passed_over() -> None:
    frame = {"id": 1, "colour": "blue", "fetch": {"queues": ["q"], "speed": 9}}

    assert frame_of(text(frame)).fetch is not None
    assert frame_of(pack(frame)).fetch is not None


def test_a_frame_with_an_id_alone_is_a_frame() -> None:
    frame = frame_of('{"id": 0}')

    assert (frame.id, frame.acks, frame.fetch, frame.request_key) == (0, [], None, "")


# What is refused.

WRONG: Final[tuple[tuple[dict[str, object], str], ...]] = (
    ({"acks": [{"job_id": "j"}, {"lease_token": 1}]}, "acks[1].job_id"),
    ({"acks": [{"job_id": "j"}] * (ITEMS_MAX + 1)}, "acks"),
    ({"fails": [{"job_id": "j", "error": 7}]}, "fails[0].error"),
    ({"heartbeats": {"j": {}}}, "heartbeats"),
    ({"enqueues": [{"queue": ""}]}, "enqueues[0].queue"),
    ({"enqueues": [{"queue": "q"}] * (ITEMS_MAX + 1)}, "enqueues"),
    ({"enqueues": None}, "enqueues"),
    ({"fetch": {}}, "fetch.queues"),
    ({"fetch": {"queues": []}}, "fetch.queues"),
    ({"fetch": {"queues": ["q"] * 65}}, "fetch.queues"),
    ({"fetch": {"queues": ["q"], "count": 513}}, "fetch.count"),
    ({"fetch": {"queues": ["q"], "count": 0}}, "fetch.count"),
    ({"fetch": {"queues": ["q"], "wait_ms": -1}}, "fetch.wait_ms"),
    ({"fetch": {"queues": ["q"], "lease_ms": 999}}, "fetch.lease_ms"),
    ({"fetch": {"queues": ["q"], "wait_seconds": -1}}, "fetch.wait_seconds"),
    ({"fetch": {"queues": ["q"], "lease_seconds": 0}}, "fetch.lease_seconds"),
    ({"fetch": {"queues": ["q"], "wait_seconds": 1, "wait_ms": 1}}, "fetch"),
    ({"fetch": {"queues": ["q"], "lease_seconds": 1, "lease_ms": 2_000}}, "fetch"),
    ({"request_key": "k" * 65}, "request_key"),
    ({"request_key": "a\nb"}, "request_key"),
    ({"request_key": "\u00e9"}, "request_key"),
)


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_a_frame_that_is_not_as_it_should_be_is_refused_by_its_field(
    wrong: dict[str, object], field: str
) -> None:
    frame = {"id": 5, **wrong}

    assert refusal_of(text(frame)) == (5, field, "VALIDATION_ERROR")
    assert refusal_of(pack(frame)) == (5, field, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "packed_json",
    [
        b"",
        b"{",
        b'{}, "queue": "other"',
        b"{} {}",
        b"[1,]",
        b"nul",
        b"NaN",
        b'"\x01"',
        b"[" * 100_000,
        "{}",
        {},
        7,
        ["x"],
    ],
)
def test_what_is_no_json_in_a_bin_is_never_pasted_into_an_op(packed_json: object) -> None:
    frame = {"id": 5, "enqueues": [{"queue": "q"}, {"queue": "q", "payload": packed_json}]}
    step = {"queue": "q", "payload": packed_json}
    chained = {"id": 5, "enqueues": [{"queue": "q", "chain": chain(step)}]}
    acked = {"id": 5, "acks": [{"job_id": "j", "checkpoint": packed_json}]}

    assert refusal_of(pack(frame))[:2] == (5, "enqueues[1].payload")
    assert refusal_of(pack(chained))[:2] == (5, "enqueues[0].chain.payload")
    assert refusal_of(pack(acked))[:2] == (5, "acks[0].checkpoint")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        "{",
        "[]",
        "7",
        "{}",
        '{"id": "7"}',
        '{"id": -1}',
        '{"id": 9007199254740992}',
        '{"id": 1.5}',
        '{"acks": 3}',
        '{"id": 1, "acks": [}',
        "[" * 100_000,
        b"",
        b"\xc1",
        pack([]),
        pack({}),
        pack({"id": "7"}),
        pack({"id": 1})[:-1],
        pack({"id": 1, "enqueues": [{"queue": "q"}]})[:-1],
        pack({"id": 1, "request_key": "xyz"}).replace(b"xyz", b"\xff\xff\xff"),
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_frame_is_unreadable(message: bytes | str) -> None:
    with pytest.raises(Unreadable, match=r"\Ano frame: \S"):
        decode(message)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_whatever_comes_is_read_refused_or_unreadable(message: bytes | str) -> None:
    with suppress(Unreadable):
        assert isinstance(decode(message).frame, Frame | Reply)


# What is answered.


def full_reply() -> Reply:
    return Reply(
        id=7,
        acked=[ItemAnswer(job_id="a", status="completed")],
        heartbeats=[BeatResult(job_id="b", status="ok", lease_expires_at="t")],
        enqueued=[BatchedJob(job_id=None, id=None, error="no", code="NO", outcome="not_applied")],
        jobs=[
            FetchedJob("j", "q", msgspec.Raw(b'{ "a":1}'), 1, 3, 60, 9, "t"),
            FetchedJob(
                "k", "q", msgspec.Raw(b"[]"), 1, 3, 60, 9, "t", checkpoint=msgspec.Raw(b'"c"')
            ),
        ],
        seq="s0=4",
    )


def test_an_answer_says_only_what_there_is_to_say() -> None:
    assert encode(Reply(id=3), is_text=True) == '{"id":3}'
    assert encode(Reply(id=3), is_text=False) == pack({"id": 3})


def test_an_answer_has_the_jobs_own_json_as_it_was() -> None:
    in_json = encode(full_reply(), is_text=True)
    in_msgpack = encode(full_reply(), is_text=False)

    assert isinstance(in_json, str)
    assert isinstance(in_msgpack, bytes)
    assert '"payload":{ "a":1}' in in_json
    assert [job["payload"] for job in unpack(in_msgpack)["jobs"]] == [b'{ "a":1}', b"[]"]
    assert unpack(in_msgpack)["jobs"][1]["checkpoint"] == b'"c"'


def test_both_formats_answer_the_same() -> None:
    in_json = encode(full_reply(), is_text=True)
    in_msgpack = encode(full_reply(), is_text=False)

    assert isinstance(in_msgpack, bytes)
    told = msgspec.json.decode(in_json)
    plain = unpack(in_msgpack)
    for job in plain["jobs"]:
        for name in OWN & job.keys():
            job[name] = msgspec.json.decode(job[name])
    assert plain == told


def test_a_refusal_tells_what_a_request_would_be_told() -> None:
    problem = Problem(429, "RATE_LIMITED", "too much", retry_after_ms=40)

    refused = encode(refuse(4, problem), is_text=True)

    assert msgspec.json.decode(refused) == {
        "id": 4,
        "error": {
            "error": "too much",
            "code": "RATE_LIMITED",
            "outcome": "not_applied",
            "retry_after_ms": 40,
        },
    }


# What is told of it.

PAGE: Final = Path(__file__).parents[2] / "docs" / "stream.md"


def told() -> list[dict[str, object]]:
    """The messages that the page shows, each of them a frame or an answer."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [msgspec.json.decode(block) for block in blocks]


def test_the_page_shows_frames_that_are_read_whole() -> None:
    [frame] = [message for message in told() if "fetch" in message]

    read = frame_of(text(frame))

    assert frame.keys() == {field.name for field in msgspec.structs.fields(Frame)}
    assert len(read.acks) == len(read.fails) == len(read.heartbeats) == len(read.enqueues) == 1


def test_the_page_shows_answers_as_they_are() -> None:
    answers = [message for message in told() if "fetch" not in message]
    known = {field.name for field in msgspec.structs.fields(Reply)}

    assert set().union(*answers) == known
    for answer in answers:
        again = msgspec.json.decode(text(answer), type=Reply)
        assert msgspec.json.decode(text(again)) == answer


def test_a_reason_names_the_place_in_a_message_that_cannot_be_read() -> None:
    with pytest.raises(Unreadable, match=re.escape("id is required")):
        decode('{"acks": []}')


# Fields without effect.

NOTED: Final = {
    "id": 7,
    "fetchh": 1,
    "acks": [{"job_id": "a", "usage": {"cost_usd": 1}}],
    "enqueues": [
        {"queue": "a"},
        {"queue": "a", "chain": {"steps": [{"queue": "a"}, {"queue": "b", "x": 1}]}},
    ],
}


@pytest.mark.parametrize("is_text", [True, False])
def test_a_frame_is_taken_with_fields_that_have_no_effect_and_they_are_named(
    *, is_text: bool
) -> None:
    encode_frame = msgspec.json.encode if is_text else msgspec.msgpack.encode
    message = encode_frame(NOTED)

    taken = decode(message.decode() if is_text else message)

    assert isinstance(taken.frame, Frame)
    assert [each.queue for each in taken.frame.enqueues] == ["a", "a"]
    assert taken.ignored == 3
    assert [(each.field, each.warning[:40]) for each in taken.warnings] == [
        ("fetchh", "unknown field; did you mean fetch?"),
        ("acks[0].usage", "usage is not stored yet; cost_usd is add"),
        ("enqueues[1].chain.steps[1].x", "unknown field"),
    ]


def test_a_frame_that_is_refused_names_its_unknown_fields_too() -> None:
    taken = decode('{"id": 7, "fetch": {"queue": "a"}}')

    assert isinstance(taken.frame, Reply)
    assert taken.frame.error is not None
    assert taken.frame.error.field == "fetch.queues"
    assert [each.field for each in taken.warnings] == ["fetch.queue"]


@pytest.mark.parametrize("is_text", [True, False])
def test_where_it_is_strict_a_frame_with_an_unknown_field_is_refused(*, is_text: bool) -> None:
    encode_frame = msgspec.json.encode if is_text else msgspec.msgpack.encode
    message = encode_frame({"id": 7, "enqueues": [{"queue": "a", "prio": 1}]})

    refused = decode(message.decode() if is_text else message, is_strict=True).frame

    assert isinstance(refused, Reply)
    assert refused.error is not None
    assert (refused.error.code, refused.error.field) == ("VALIDATION_ERROR", "enqueues[0].prio")


@pytest.mark.parametrize("is_text", [True, False])
def test_of_a_large_frame_the_first_field_is_named(*, is_text: bool) -> None:
    enqueues = [{"queue": "a" * 200, "prio": 1}] * 800
    encode_frame = msgspec.json.encode if is_text else msgspec.msgpack.encode
    message = encode_frame({"id": 7, "enqueues": enqueues})

    taken = decode(message.decode() if is_text else message)

    assert isinstance(taken.frame, Frame)
    assert [each.field for each in taken.warnings] == ["enqueues[0].prio"]


def test_the_json_within_msgpack_is_looked_into() -> None:
    config = msgspec.json.encode({"steps": [{"queue": "a"}, {"queue": "b"}], "on_end": "c"})

    taken = decode(
        msgspec.msgpack.encode({"id": 1, "enqueues": [{"queue": "a", "chain_config": config}]})
    )

    assert [each.field for each in taken.warnings] == ["enqueues[0].chain_config.on_end"]
