"""What workers say and hear: every field of a fetch, an ack, a fail and a heartbeat, in parts."""

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import Agent
from corvo.protocol.jobs import AgentView
from corvo.protocol.ops.base import ITEMS_MAX, Rejected, encode_json
from corvo.protocol.ops.base import Limits as OpLimits
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Claim,
    FailItem,
    Fetch,
    ReleaseItem,
    SnoozeItem,
    StepStatus,
    Usage,
)
from corvo.protocol.ops.workflow import AgentStatus
from corvo.router.enqueue.bodies import (
    AgentBody,
    BatchBody,
    ChainBody,
    EnqueueAnswer,
    EnqueueBatchAnswer,
    EnqueueBatchBody,
    EnqueueBody,
)
from corvo.router.http.bodies import read_body
from corvo.router.http.messages import Problem
from corvo.router.leases.fetch import (
    FetchBatchBody,
    FetchedJob,
    decode_fetch_batch,
    fetch_op,
    fetched_job,
    wait_s,
)
from corvo.router.leases.verbs import (
    ACK,
    VERBS,
    AckAnswer,
    AckBatchBody,
    AckBody,
    AckEntry,
    BeatAnswer,
    BeatEntry,
    FailAnswer,
    FailBatchBody,
    FailBody,
    FailEntry,
    HeartbeatBody,
    ItemAnswer,
    LeaseVerb,
    ReleaseBody,
    ReleaseEntry,
    SnoozeBatchBody,
    SnoozeBody,
    SnoozeEntry,
    UsageBody,
    beat_items,
    cut,
    decode_heartbeat,
)
from corvo.router.shards.fan_out import parts_of


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


def as_json(*values: msgspec.Struct) -> list[bytes]:
    """Structs to be compared: `Raw` is not equal to itself."""
    return [encode_json(value) for value in values]


# What is asked for.


def fetching(**fields: object) -> tuple[Fetch, float]:
    """The op, and how long it waits."""
    body = read_body(decode_fetch_batch.decode, encode_json({"queues": ["mail"], **fields}))
    return fetch_op(body, "", body.count), wait_s(body, 60)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, Fetch(queues=["mail"])),
        ({"queues": ["b", "a", "b"]}, Fetch(queues=["b", "a"])),
        (
            {"worker_id": "w", "hostname": "h", "count": 7},
            Fetch(queues=["mail"], worker_id="w", hostname="h", count=7),
        ),
        ({"worker_id": None, "hostname": None, "count": None}, Fetch(queues=["mail"])),
        ({"count": 0}, Fetch(queues=["mail"])),
        ({"count": -1}, Fetch(queues=["mail"])),
        ({"count": 10**30}, Fetch(queues=["mail"], count=512)),
        ({"timeout": 5}, Fetch(queues=["mail"], lease_ms=5_000)),
        ({"timeout": 0}, Fetch(queues=["mail"], lease_ms=60_000)),
        ({"timeout": -3}, Fetch(queues=["mail"], lease_ms=60_000)),
        ({"timeout": 10**30}, Fetch(queues=["mail"], lease_ms=86_400_000)),
        ({"timeout": 5, "lease_seconds": 90}, Fetch(queues=["mail"], lease_ms=90_000)),
        ({"timeout": 5, "lease_seconds": None}, Fetch(queues=["mail"], lease_ms=5_000)),
        ({"timeout": 5, "lease_ms": 1_500}, Fetch(queues=["mail"], lease_ms=1_500)),
        ({"lease_seconds": 2, "lease_ms": 2_000}, Fetch(queues=["mail"], lease_ms=2_000)),
    ],
)
def test_a_fetch_becomes_what_the_op_has(fields: dict[str, object], wanted: Fetch) -> None:
    op, _ = fetching(**fields)

    assert op == wanted


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, 29.5),
        ({"timeout": 0}, 29.5),
        ({"timeout": -1}, 29.5),
        ({"timeout": 5}, 4.5),
        ({"timeout": 1}, 0.5),
        ({"timeout": 3_600}, 59.5),
        ({"timeout": 5, "wait_seconds": 0}, 0),
        ({"timeout": 5, "wait_seconds": 10}, 9.5),
        ({"wait_seconds": 0.2}, 0.1),
        ({"wait_seconds": 1e9}, 59.5),
        ({"wait_seconds": 1e300}, 59.5),
        ({"timeout": 5, "wait_ms": 0}, 0),
        ({"wait_ms": 2_500}, 2),
        ({"wait_seconds": 2.5, "wait_ms": 2_500}, 2),
    ],
)
def test_a_fetch_waits_a_little_less_than_its_client(
    fields: dict[str, object], wanted: float
) -> None:
    _, waited = fetching(**fields)

    assert waited == wanted


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"queues": None}, "queues"),
        ({"queues": []}, "queues"),
        ({"wait_seconds": 1, "wait_ms": 1}, "wait_ms"),
        ({"lease_seconds": 1, "lease_ms": 1_001}, "lease_ms"),
        ({"lease_ms": 999}, "lease_ms"),
        ({"queues": ["a"] * 65}, "queues"),
        ({"queues": [""]}, "queues[0]"),
        ({"queues": "mail"}, "queues"),
        ({"worker_id": "w" * 256}, "worker_id"),
        ({"timeout": "5s"}, "timeout"),
        ({"wait_seconds": -1}, "wait_seconds"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": 86_401}, "lease_seconds"),
    ],
)
def test_a_fetch_that_does_not_do_names_the_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(Problem) as caught:
        fetching(**fields)

    assert (caught.value.status, caught.value.field) == (400, field)


# What is given.


CLAIM: Final = Claim(
    job_id="s00_job_1",
    queue="mail",
    payload=raw(b'{"to":"a"}'),
    attempt=1,
    max_retries=3,
    lease_duration=30,
    lease_token=7,
    lease_expires_ns=1_771_581_605_120_000_000,
)


def test_a_job_is_given_as_the_original_gives_it_and_with_its_lease() -> None:
    assert msgspec.json.decode(encode_json(fetched_job(CLAIM))) == {
        "job_id": "s00_job_1",
        "queue": "mail",
        "payload": {"to": "a"},
        "attempt": 1,
        "max_retries": 3,
        "lease_duration": 30,
        "lease_token": 7,
        "lease_expires_at": "2026-02-20T10:00:05.12Z",
    }


def test_what_else_a_job_has_is_given_too() -> None:
    claim = msgspec.structs.replace(
        CLAIM,
        kind="welcome",
        checkpoint=raw(b"[3]"),
        tags={"env": "t"},
        agent=Agent(
            max_iterations=9,
            max_cost_micros=300_000,
            iteration_timeout_ms=300_000,
            iteration=2,
            total_cost_micros=1,
        ),
    )

    given_ = msgspec.json.decode(encode_json(fetched_job(claim)))

    assert {name: given_[name] for name in ("kind", "checkpoint", "tags", "agent")} == {
        "kind": "welcome",
        "checkpoint": [3],
        "tags": {"env": "t"},
        "agent": {
            "max_iterations": 9,
            "max_cost_usd": 0.3,
            "iteration_timeout": "5m0s",
            "iteration": 2,
            "total_cost_usd": 0.000001,
        },
    }


def test_what_an_agent_has_none_of_is_left_out() -> None:
    claim = msgspec.structs.replace(CLAIM, agent=Agent(iteration=1))

    given_ = msgspec.json.decode(encode_json(fetched_job(claim)))

    assert given_["agent"] == {"iteration": 1}


# Operations on jobs.

decode_ack: Final = msgspec.json.Decoder(AckBody).decode
decode_fail: Final = msgspec.json.Decoder(FailBody).decode
decode_release: Final = msgspec.json.Decoder(ReleaseBody).decode
decode_snooze: Final = msgspec.json.Decoder(SnoozeBody).decode


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, AckItem(job_id="j")),
        ({"lease_token": 7, "worker_id": "w"}, AckItem(job_id="j", lease_token=7, worker_id="w")),
        ({"lease_token": 0}, AckItem(job_id="j")),
        ({"result": None}, AckItem(job_id="j", result=raw(b"null"))),
        ({"result": [1]}, AckItem(job_id="j", result=raw(b"[1]"))),
        ({"checkpoint": None}, AckItem(job_id="j")),
        ({"checkpoint": {"a": 1}}, AckItem(job_id="j", checkpoint=raw(b'{"a":1}'))),
        ({"agent_status": " Continue"}, AckItem(job_id="j", agent_status=AgentStatus.CONTINUE)),
        (
            {"agent_status": "hold", "hold_reason": "look"},
            AckItem(job_id="j", agent_status=AgentStatus.HOLD, hold_reason="look"),
        ),
        ({"agent_status": ""}, AckItem(job_id="j")),
        ({"step_status": "EXIT"}, AckItem(job_id="j", step_status=StepStatus.EXIT)),
        ({"exit_reason": "enough"}, AckItem(job_id="j")),
        (
            {"usage": {"input_tokens": 5, "model": "m", "provider": "p", "cost_usd": 0.1}},
            AckItem(
                job_id="j",
                usage=Usage(input_tokens=5, model="m", provider="p", cost_micros=100_000),
            ),
        ),
        ({"usage": {"output_tokens": -5, "model": "m", "cost_usd": -1}}, AckItem(job_id="j")),
        ({"usage": {}}, AckItem(job_id="j")),
    ],
)
def test_an_ack_becomes_what_the_op_has(fields: dict[str, object], wanted: AckItem) -> None:
    item = read_body(decode_ack, encode_json(fields)).item("j")

    assert as_json(item) == as_json(wanted)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"lease_token": -1}, "lease_token"),
        ({"lease_token": "7"}, "lease_token"),
        ({"lease_token": 1 << 53}, "lease_token"),
        ({"agent_status": "again"}, "agent_status"),
        ({"step_status": "done"}, "step_status"),
        ({"usage": {"cost_usd": "1"}}, "usage.cost_usd"),
        ({"usage": {"input_tokens": 1.5}}, "usage.input_tokens"),
    ],
)
def test_an_ack_that_does_not_do_names_the_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(Problem) as caught:
        read_body(decode_ack, encode_json(fields)).item("j")

    assert (caught.value.status, caught.value.field) == (400, field)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, FailItem(job_id="j")),
        ({"error": None, "backtrace": None, "retryable": None}, FailItem(job_id="j")),
        (
            {"error": "smtp", "backtrace": "at 1", "error_class": "E", "lease_token": 7},
            FailItem(job_id="j", error="smtp", backtrace="at 1", error_class="E", lease_token=7),
        ),
        ({"retryable": False}, FailItem(job_id="j", retryable=False)),
        ({"retry_after": "1m"}, FailItem(job_id="j", retry_after_ms=60_000)),
        ({"retry_after": "0s"}, FailItem(job_id="j", retry_after_ms=0)),
        ({"retry_after_ms": 0}, FailItem(job_id="j", retry_after_ms=0)),
    ],
)
def test_a_fail_becomes_what_the_op_has(fields: dict[str, object], wanted: FailItem) -> None:
    assert read_body(decode_fail, encode_json(fields)).item("j") == wanted


def test_a_long_error_is_cut_and_the_job_fails_all_the_same() -> None:
    limits = OpLimits()
    body = {"error": "é" * limits.error_bytes_max, "backtrace": "x" * 10 * limits.op_bytes_max}

    item = read_body(decode_fail, encode_json(body)).item("j")

    assert len(item.error.encode()) in range(limits.error_bytes_max - 2, limits.error_bytes_max + 1)
    assert item.error.startswith("éé")
    assert item.error.endswith("é … (cut)")
    assert len(item.backtrace.encode()) == limits.backtrace_bytes_max


def test_a_letter_is_not_cut_in_the_middle() -> None:
    assert cut("é" * 20, 15) == "éé … (cut)"


@given(st.text(max_size=60), st.integers(16, 64))
def test_a_text_that_is_cut_has_room_and_one_that_fits_is_not_touched(
    text: str, bytes_max: int
) -> None:
    left = cut(text, bytes_max)

    assert len(left.encode()) <= bytes_max
    if len(text.encode()) <= bytes_max:
        assert left == text
    else:
        assert text.startswith(left.removesuffix(" … (cut)"))


def test_a_release_and_a_snooze_become_what_the_ops_have() -> None:
    words = {"lease_token": 7, "checkpoint": [1], "reason": "later", "delay": "1m"}
    body = encode_json(words)

    released = read_body(decode_release, body).item("j")
    snoozed = read_body(decode_snooze, body).item("j")

    assert as_json(released, snoozed) == as_json(
        ReleaseItem(job_id="j", lease_token=7, checkpoint=raw(b"[1]"), why="later"),
        SnoozeItem(job_id="j", lease_token=7, checkpoint=raw(b"[1]"), why="later", delay_ms=60_000),
    )


@pytest.mark.parametrize(
    ("words", "delay_ms"), [({"delay_ms": 0}, 0), ({"delay_ms": 5}, 5), ({"delay": "0s"}, 0)]
)
def test_a_snooze_may_be_short(words: dict[str, object], delay_ms: int) -> None:
    assert read_body(decode_snooze, encode_json(words)).item("j").delay_ms == delay_ms


@pytest.mark.parametrize("words", [{}, {"delay": ""}, {"delay": "soon"}, {"delay": "-1s"}])
def test_a_snooze_says_how_long(words: dict[str, object]) -> None:
    with pytest.raises(Problem) as caught:
        read_body(decode_snooze, encode_json(words)).item("j")

    assert (caught.value.status, caught.value.field) == (400, "delay")


BEATS: Final = [
    BeatItem(job_id="a", progress=raw(b'{"current":1}'), checkpoint=raw(b"[1]"), worker_id="w"),
    BeatItem(job_id="b", progress=raw(b"50"), lease_token=7, worker_id="v"),
    BeatItem(job_id="c", worker_id="w"),
]


@pytest.mark.parametrize(
    "jobs",
    [
        {
            "a": {"progress": {"current": 1}, "checkpoint": [1]},
            "b": {"progress": 50, "lease_token": 7, "worker_id": "v"},
            "c": {"progress": None, "checkpoint": None, "usage": {"input_tokens": 3}},
        },
        [
            {"job_id": "a", "progress": {"current": 1}, "checkpoint": [1]},
            {"job_id": "b", "progress": 50, "lease_token": 7, "worker_id": "v"},
            {"job_id": "c"},
        ],
        [
            {"job_id": "a", "progress": '{"current":1}', "checkpoint": " [1]\n"},
            {"job_id": "b", "progress": "50", "lease_token": 7, "worker_id": "v"},
            {"job_id": "c", "progress": "null", "checkpoint": None},
        ],
    ],
)
def test_heartbeats_come_by_id_or_as_a_list(jobs: object) -> None:
    body = read_body(decode_heartbeat.decode, encode_json({"jobs": jobs, "worker_id": "w"}))

    assert as_json(*beat_items(body)) == as_json(*BEATS)


@pytest.mark.parametrize("text", [b'"half done"', b'"{\\"a\\":"', b'""', b'"\\""'])
def test_a_text_that_is_no_json_stays_a_text(text: bytes) -> None:
    body = b'{"jobs":[{"job_id":"a","progress":' + text + b"}]}"

    [beat] = beat_items(read_body(decode_heartbeat.decode, body))

    assert as_json(beat) == as_json(BeatItem(job_id="a", progress=raw(text)))


# In parts.


@given(st.lists(st.integers(0, 900_000), min_size=1, max_size=30))
def test_every_item_is_in_one_part_and_every_part_is_an_op_that_a_shard_takes(
    sizes: list[int],
) -> None:
    text = b'"' + b"x" * 900_000
    items = [AckItem(job_id=f"j{place}", result=raw(text[: size + 1] + b'"')) for place, size
             in enumerate(sizes)]  # fmt: skip

    parts = parts_of(items, sum(sizes))

    assert [place for part in parts for place in part] == list(range(len(items)))
    for part in parts:
        op = Ack(acks=items[part.start : part.stop], request_key="k" * 64, by="w" * 4_096)
        assert len(encode_json(op)) <= OpLimits().op_bytes_max


def test_no_part_has_more_items_than_an_op_may_have() -> None:
    items = [AckItem(job_id="j")] * (ITEMS_MAX + 1)

    assert parts_of(items, 0) == [range(ITEMS_MAX), range(ITEMS_MAX, ITEMS_MAX + 1)]


def test_an_entry_that_is_too_large_is_rejected_and_named_by_its_place() -> None:
    large = AckEntry(job_id="b", result=raw(b'"' + b"x" * OpLimits().result_bytes_max + b'"'))

    rejected = ACK.read("acks[1]", large)

    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.field) == ("payload_too_large", "acks[1].result")


@pytest.mark.parametrize("verb", VERBS, ids=[verb.name for verb in VERBS])
def test_an_op_is_made_of_the_items_that_its_entries_are(verb: LeaseVerb) -> None:
    entry = {"job_id": "j", "lease_token": 7, "worker_id": "w", "delay_ms": 5}
    read = msgspec.json.Decoder(list[verb.entry]).decode(encode_json([entry]))  # type: ignore[name-defined]

    items = [verb.read(f"{verb.part}[0]", each) for each in read]
    op = verb.op.of([each for each in items if not isinstance(each, Rejected)], by="me")

    assert [(item.job_id, item.lease_token, item.worker_id) for item in op.items] == [("j", 7, "w")]
    assert (op.by, op.is_safe_twice) == ("me", True)


# The page.


@pytest.mark.parametrize(
    "body",
    [EnqueueBatchBody, EnqueueBody, AgentBody, ChainBody, BatchBody, FetchBatchBody, AckBatchBody,
     AckEntry, FailBatchBody, FailEntry, ReleaseEntry, SnoozeBody,
     SnoozeBatchBody, SnoozeEntry, BeatEntry, HeartbeatBody,
     UsageBody, FetchedJob, AgentView, AckAnswer, FailAnswer, ItemAnswer, BeatAnswer,
     EnqueueAnswer, EnqueueBatchAnswer],
)  # fmt: skip
def test_the_page_names_every_field(body: type[msgspec.Struct]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "work.md").read_text()

    named = set(re.findall(r"[a-z_]+", page))
    assert set(body.__struct_encode_fields__) - named == set()
