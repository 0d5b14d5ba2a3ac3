"""Requests and answers of the HTTP API become records of a history, and the other way round."""

import msgspec

from chaos import api, history
from chaos.history import Chain, NewJob, Template
from chaos.http import Answer


def answer(body: object, status: int = 200) -> Answer:
    return Answer(status, {}, msgspec.json.encode(body))


def test_times_are_read_to_the_nanosecond() -> None:
    assert api.time_ns("1970-01-01T00:00:01Z") == 1_000_000_000
    assert api.time_ns("2026-11-19T22:17:17.951191919Z") == 1_795_126_637_951_191_919
    assert api.time_ns("") == 0


def test_positions_of_shards_are_read_and_written() -> None:
    assert api.positions("s0=1042,s3=77") == {"0": 1042, "3": 77}
    assert api.positions("") == {}
    assert api.header_of({"3": 77, "0": 1042}) == "s0=1042,s3=77"


def test_a_job_is_sent_without_the_fields_that_have_their_defaults() -> None:
    job = api.marked(NewJob(queue="mail", priority=0, unique_key="k"), "p-1/0")

    assert msgspec.json.decode(msgspec.json.encode(api.job_body(job))) == {
        "queue": "mail",
        "priority": 0,
        "payload": {"mark": "p-1/0"},
        "unique_key": "k",
        "unique_period_ms": 3_600_000,
    }
    assert job.sha == history.fingerprint(b'{"mark":"p-1/0"}')


def test_each_step_of_a_chain_has_a_mark_of_its_own() -> None:
    chain = Chain(steps=(Template("a"), Template("b")), on_exit=Template("c"))

    made = api.marked(NewJob(queue="a", chain=chain), "p-1/0").chain

    assert made is not None
    assert [step.mark for step in made.steps] == ["p-1/0", "p-1/0.1"]
    assert made.on_exit is not None
    assert made.on_exit.mark == "p-1/0.exit"
    assert made.on_failure is None


def test_a_fetched_job_is_recorded_with_its_mark_and_the_fingerprint_of_its_payload() -> None:
    body = {
        "job_id": "s00_job_1",
        "queue": "done",
        "payload": {
            "mark": "p-1/callback",
            "batch": {
                "batch_id": "s00_batch_1",
                "total": 3,
                "succeeded": 1,
                "failed": 1,
                "cancelled": 1,
            },
        },
        "attempt": 1,
        "max_retries": 3,
        "lease_token": 7,
        "lease_expires_at": "1970-01-01T00:00:01Z",
    }

    (got,) = api.read_fetch(answer({"jobs": [body]})).delivered

    assert (got.job_id, got.token, got.expires_ns) == ("s00_job_1", 7, 1_000_000_000)
    assert got.mark == "p-1/callback"
    assert got.batch == ("s00_batch_1", 3, 1, 1, 1)
    assert got.sha == history.fingerprint(msgspec.json.encode(body["payload"]))


def test_a_fetch_without_a_job_has_no_body() -> None:
    assert api.read_fetch(Answer(204, {}, b"")) == history.NO_RES


def test_a_job_of_a_batch_that_may_not_exist_has_no_id() -> None:
    body = {
        "jobs": [
            {"job_id": "s00_job_1", "status": "pending"},
            {"job_id": None, "code": "OUTCOME_UNKNOWN", "outcome": "unknown"},
        ]
    }

    first, second = api.read_enqueue_batch(answer(body)).created

    assert first.job_id == "s00_job_1"
    assert (second.job_id, second.outcome) == ("", "unknown")


def test_a_heartbeat_is_read_in_the_order_of_the_request() -> None:
    body = {"jobs": {"b": {"status": "cancel"}, "a": {"status": "ok"}}}

    items = api.read_beats(["a", "b", "c"])(answer(body)).items

    assert [(item.job_id, item.status) for item in items] == [
        ("a", "ok"),
        ("b", "cancel"),
        ("c", ""),
    ]


def test_a_read_of_an_unknown_job_has_no_job() -> None:
    assert api.read_job(answer({"code": "NOT_FOUND"}, 404)) == history.NO_RES


def test_the_total_of_a_search_is_recorded_only_if_it_is_exact() -> None:
    body = {"jobs": [], "total": 5, "total_is_exact": False, "as_of": {"s0": {"index": 9}}}

    res = api.read_search(answer(body))

    assert (res.total, res.as_of) == (-1, {"0": 9})


def test_an_error_that_cannot_be_read_has_no_outcome() -> None:
    assert api.problem_of(Answer(502, {}, b"<html>")) == api.Problem()
