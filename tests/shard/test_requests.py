"""Request keys: the same request again has no second effect, and gets the same answer."""

from typing import Final

import msgspec
import pytest

from corvo.model import State
from corvo.protocol.ops.base import Limits, Op, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Delete
from corvo.protocol.ops.work import Ack, AckItem, BeatItem, Fail, FailItem, Fetch, Heartbeat
from corvo.shard.ops import admit
from corvo.shard.ops.upkeep import CleanRequests, Reclaim
from corvo.shard.state import requests
from tests.shard.shard import Shard

DAY_MS: Final = 24 * 3_600_000
MAIL: Final = NewJob(queue="mail", payload=msgspec.Raw(b'{"n": 1}'))
PUT: Final = Enqueue(jobs=[MAIL], request_key="k1")


def test_the_same_request_again_gets_the_same_answer_and_does_nothing() -> None:
    shard = Shard()
    first = shard.entry(PUT)
    shard.pass_time(60_000)

    second = shard.entry(PUT)

    assert second == first
    assert shard.counts("mail") == {State.PENDING: 1}
    shard.check()


def test_the_same_request_twice_in_one_entry_is_one() -> None:
    shard = Shard()

    first, second = shard.entry(PUT, PUT)

    assert second == first
    assert shard.counts("mail") == {State.PENDING: 1}


def test_a_key_is_still_known_after_a_restart() -> None:
    shard = Shard()
    first = shard.entry(PUT)
    shard.reopen()

    second = shard.entry(PUT)

    assert second == first
    shard.check_replay()


@pytest.mark.parametrize(
    "other",
    [
        Enqueue(jobs=[MAIL, MAIL], request_key="k1"),
        Enqueue(jobs=[NewJob(queue="mail", payload=msgspec.Raw(b'{"n":1}'))], request_key="k1"),
        Fetch(queues=["mail"], request_key="k1"),
    ],
)
def test_another_request_under_the_key_is_refused_and_does_nothing(other: Op) -> None:
    shard = Shard()
    shard.do(PUT)

    refused = shard.refused(other)

    assert refused.code == "request_key_reused"
    assert shard.counts("mail") == {State.PENDING: 1}
    shard.check()


def test_ops_whose_fields_look_alike_are_not_the_same_request() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    shard.do(Delete(job_ids=[job_id], request_key="k1"))

    refused = shard.refused(Approve(job_ids=[job_id], request_key="k1"))

    assert refused.code == "request_key_reused"


def test_who_asks_does_not_make_it_another_request() -> None:
    shard = Shard()
    first = shard.entry(msgspec.structs.replace(PUT, by="a"))

    second = shard.entry(msgspec.structs.replace(PUT, by="b"))

    assert second == first


def test_requests_without_a_key_are_each_their_own() -> None:
    shard = Shard()

    shard.put(MAIL)
    shard.put(MAIL)

    assert shard.counts("mail") == {State.PENDING: 2}
    assert shard.tx.number(requests._COUNT_KEY) == 0


def test_what_was_refused_for_a_job_stays_refused_when_it_could_be_done_now() -> None:
    shard = Shard()
    [job_id] = shard.put(MAIL)
    ack = Ack(acks=[AckItem(job_id=job_id)], request_key="k1")
    first = shard.entry(ack)
    shard.fetch()

    second = shard.entry(ack)

    assert second == first
    assert shard.state(job_id) is State.ACTIVE


def test_a_key_is_forgotten_after_a_day_and_not_before() -> None:
    shard = Shard()
    shard.do(PUT)
    shard.clock_ns = shard.now_ns + DAY_MS * 1_000_000 - 1
    early = shard.do(CleanRequests(limit=9))
    known = shard.entry(PUT)
    shard.clock_ns += 1

    late = shard.do(CleanRequests(limit=9))
    shard.entry(PUT)

    assert (early.done, late.done) == (0, 1)
    assert b"s00_job" in known[0].body
    assert shard.counts("mail") == {State.PENDING: 2}
    assert shard.tx.number(requests._COUNT_KEY) == 1
    shard.check()


def test_the_number_of_keys_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS_MAX", 2)
    shard = Shard()
    for key in ("k1", "k2"):
        shard.enqueue(Enqueue(jobs=[MAIL], request_key=key))

    refused = shard.refused(Enqueue(jobs=[MAIL], request_key="k3"))
    known = shard.enqueue(Enqueue(jobs=[MAIL], request_key="k1"))
    shard.pass_time(DAY_MS)
    shard.do(CleanRequests(limit=1))
    made = shard.enqueue(Enqueue(jobs=[MAIL], request_key="k3"))

    assert refused.code == "too_many_request_keys"
    assert known.jobs[0].job_id != made.jobs[0].job_id
    assert shard.tx.number(requests._COUNT_KEY) == 2
    shard.check()


# Fetch.


FETCH: Final = Fetch(queues=["mail"], worker_id="w1", count=3, request_key="f1")


def test_a_fetch_under_its_key_again_gives_the_same_jobs_and_tokens() -> None:
    shard = Shard()
    shard.put(*[MAIL] * 5)
    first = shard.do(FETCH)

    second = shard.do(FETCH)

    assert second == first
    assert shard.counts("mail") == {State.ACTIVE: 3, State.PENDING: 2}
    assert shard.job(first.jobs[0].job_id).attempt == 1
    shard.check()


def test_a_fetch_again_gives_only_what_is_still_the_callers_and_as_it_is_now() -> None:
    shard = Shard()
    shard.put(*[MAIL] * 3)
    acked, failed, kept = shard.do(FETCH).jobs
    shard.do(Ack(acks=[AckItem(job_id=acked.job_id)]))
    shard.do(Fail(fails=[FailItem(job_id=failed.job_id)]))
    shard.pass_time(1_000)
    shard.do(Heartbeat(jobs=[BeatItem(job_id=kept.job_id, checkpoint=msgspec.Raw(b"[7]"))]))

    [again] = shard.do(FETCH).jobs

    assert (again.job_id, again.lease_token) == (kept.job_id, kept.lease_token)
    assert again.lease_expires_ns == shard.job(kept.job_id).lease_expires_ns
    assert again.lease_expires_ns > kept.lease_expires_ns
    assert bytes(again.checkpoint or b"") == b"[7]"


def test_a_fetch_again_does_not_give_what_was_fetched_anew_or_deleted() -> None:
    shard = Shard()
    shard.put(*[MAIL] * 3)
    claims = shard.do(FETCH).jobs
    shard.do(Delete(job_ids=[claims[0].job_id]))
    shard.pass_time(60_000)
    shard.do(Reclaim(limit=9))
    shard.fetch(count=1)

    again = shard.do(FETCH)

    assert again.jobs == []
    assert shard.counts("mail") == {State.ACTIVE: 1, State.PENDING: 1}


def test_a_fetch_that_got_nothing_is_not_kept_and_asks_again() -> None:
    shard = Shard()
    shard.do(FETCH)
    shard.put(MAIL)

    again = shard.do(FETCH)

    assert len(again.jobs) == 1
    assert shard.counts("mail") == {State.ACTIVE: 1}


@pytest.mark.parametrize("key", ["k1\n", "k\x00", "k\x1b[2J", "k" * 65])
def test_a_key_that_would_break_a_line_or_a_limit_is_refused(key: str) -> None:
    body = msgspec.json.encode({"jobs": [{"queue": "mail"}], "request_key": key})

    refused = admit(1, body, Limits())

    assert isinstance(refused, Rejected)
    assert (refused.code, refused.field) == ("bad_request", "request_key")
