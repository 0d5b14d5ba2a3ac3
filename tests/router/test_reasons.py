"""The reasons of jobs that no failed attempt ended: the same by id, in lists and in searches."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from corvo.model import State
from corvo.protocol.jobs import FoundJob, JobBody
from corvo.protocol.ops.jobs import Cancel, ChangePriority, Hold, Reject, Retry
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem, Release, ReleaseItem
from corvo.protocol.questions import RawPage, Search, SearchBody
from corvo.router.jobs.bodies import DeadJobs
from corvo.scopes import EVERYTHING
from corvo.shard.ops.upkeep import Expire, Reclaim
from corvo.times import format_time
from tests.mirror.shelves import Shelf
from tests.mirror.twin import Kept
from tests.router.nests import Nest, die, fail, queue_of, run

A: Final = queue_of(0)
MINUTE: Final = 60_000


def expired(nest: Nest) -> str:
    job_id = nest.put(A, expire_after_ms=30 * MINUTE)
    nest[A].pass_time(31 * MINUTE)
    nest[A].do(Expire(limit=9))
    return job_id


def expired_after_a_failure(nest: Nest) -> str:
    job_id = nest.put(A, expire_after_ms=30 * MINUTE)
    fail(nest, A, job_id, "SMTP timeout")
    nest[A].pass_time(31 * MINUTE)
    nest[A].do(Expire(limit=9))
    return job_id


def expired_while_held(nest: Nest) -> str:
    job_id = nest.put(A, expire_after_ms=30 * MINUTE)
    nest[A].do(Hold(job_ids=[job_id], reason="needs review"))
    nest[A].do(ChangePriority(job_ids=[job_id], priority=0))
    nest[A].pass_time(31 * MINUTE)
    nest[A].do(Expire(limit=9))
    return job_id


def rejected(nest: Nest) -> str:
    job_id = nest.put(A)
    nest[A].do(Hold(job_ids=[job_id]))
    nest[A].do(Reject(job_ids=[job_id], why="wrong address", by="ops"))
    return job_id


def cancelled(nest: Nest) -> str:
    job_id = nest.put(A)
    nest[A].do(Cancel(job_ids=[job_id], why="order withdrawn", by="shop"))
    return job_id


def cancelled_without_a_word(nest: Nest) -> str:
    job_id = nest.put(A)
    nest[A].do(Cancel(job_ids=[job_id]))
    return job_id


def cancelled_under_way(nest: Nest) -> str:
    job_id = nest.put(A)
    nest[A].pass_time(1)
    nest[A].fetch(A)
    nest[A].do(Cancel(job_ids=[job_id], why="order withdrawn", by="shop"))
    nest[A].do(Release(jobs=[ReleaseItem(job_id=job_id)]))
    return job_id


def crash_looped(nest: Nest) -> str:
    job_id = nest.put(A, max_crashes=2)
    for _ in range(2):
        nest[A].pass_time(1)
        nest[A].fetch(A)
        nest[A].pass_time(60 * MINUTE)
        nest[A].do(Reclaim(limit=9))
    return job_id


def rejected_crash_loop(nest: Nest) -> str:
    job_id = crash_looped(nest)
    nest[A].do(Reject(job_ids=[job_id], by="ops"))
    return job_id


def failed(nest: Nest) -> str:
    return die(nest, A, "no such mailbox")


def out_of_attempts(nest: Nest) -> str:
    job_id = nest.put(A, max_retries=1)
    fail(nest, A, job_id, "SMTP timeout")
    return job_id


EXPIRED: Final = "expired at {expire_at}, 30m0s after it was created; attempts: "
CASES: Final = (
    (expired, "dead", "expired", "expired", EXPIRED + "0"),
    (expired_after_a_failure, "dead", "expired", "expired", EXPIRED + "1"),
    (
        expired_while_held,
        "dead",
        "expired",
        "expired",
        EXPIRED + "0; it was held: needs review",
    ),
    (rejected, "dead", "rejected", "rejected", "rejected by ops: wrong address; it was held"),
    (
        rejected_crash_loop,
        "dead",
        "rejected",
        "rejected",
        "rejected by ops; it was held: crash_loop",
    ),
    (cancelled, "cancelled", "", "cancelled", "cancelled by shop: order withdrawn"),
    (cancelled_without_a_word, "cancelled", "", "cancelled", "cancelled"),
    (
        cancelled_under_way,
        "cancelled",
        "",
        "cancelled",
        "cancelled by shop: order withdrawn; its worker stopped",
    ),
    (
        crash_looped,
        "held",
        "",
        "crash_loop",
        "crash loop: 2 leases expired before the job ended (max_crashes is 2)",
    ),
    (failed, "dead", "not_retryable", "", "no such mailbox"),
    (out_of_attempts, "dead", "no_attempts_left", "", "SMTP timeout"),
)


def found(nest: Nest, job_id: str, search: SearchBody) -> list[FoundJob]:
    """What the mirror finds of a job."""
    shelf = Shelf([Kept(nest[A].job(job_id), 0, tuple(nest[A].errors(job_id)))])
    page = shelf.ask(Search(scope=EVERYTHING, search=search), RawPage)
    return [msgspec.json.decode(job, type=FoundJob) for job in page.jobs]


@pytest.mark.parametrize(("end", "state", "dlq_reason", "word", "text"), CASES)
def test_a_job_has_the_reason_of_its_end_where_a_failed_one_has_its_error(
    end: Callable[[Nest], str], state: str, dlq_reason: str, word: str, text: str
) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = end(nest)
        stored = nest[A].job(job_id)
        said = text.format(expire_at=format_time(stored.expires_ns))

        shown = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")
        [in_search] = found(nest, job_id, SearchBody())

        assert (shown.state.word, shown.dlq_reason, shown.last_error) == (state, dlq_reason, said)
        assert (in_search.dlq_reason, in_search.last_error) == (dlq_reason, said)
        last = shown.errors[-1]
        assert (last.error, last.error_class) == (said, word)
        if word:
            assert (last.id, last.attempt) == (0, stored.attempt)
            assert last.created_at == format_time(stored.finished_ns or stored.held_ns)
        assert [error.id for error in shown.errors if error.id] == [*range(1, stored.failures + 1)]

    run(main)


@pytest.mark.parametrize(("end", "state", "dlq_reason", "word", "text"), CASES)
def test_a_search_finds_a_job_by_the_text_and_the_word_of_its_reason(
    end: Callable[[Nest], str], state: str, dlq_reason: str, word: str, text: str
) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = end(nest)
        piece = text.split("{", maxsplit=1)[0].strip()
        words = ("expired", "rejected", "not_retryable", "no_attempts_left")

        assert found(nest, job_id, SearchBody(error_contains=piece))
        assert not found(nest, job_id, SearchBody(error_contains="another text"))
        assert [one for one in words if found(nest, job_id, SearchBody(dlq_reason=one))] == [
            one for one in words if one == dlq_reason
        ]

    run(main)


def test_a_job_that_failed_before_is_found_by_its_error_and_by_its_reason() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = expired_after_a_failure(nest)

        shown = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")

        assert [error.error_class for error in shown.errors] == ["", "expired"]
        assert found(nest, job_id, SearchBody(error_contains="SMTP"))
        assert found(nest, job_id, SearchBody(error_contains="expired at"))

    run(main)


def test_a_list_of_dead_jobs_has_their_reasons() -> None:
    async def main() -> None:
        nest = Nest()
        rejected(nest)
        expired(nest)
        failed(nest)

        page = await nest.read(DeadJobs, "/api/v1/dead")

        assert [job.dlq_reason for job in page.jobs] == ["not_retryable", "expired", "rejected"]
        assert [job.last_error[:8] for job in page.jobs] == ["no such ", "expired ", "rejected"]

    run(main)


def test_a_job_that_is_tried_again_has_the_reason_no_more() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = rejected(nest)
        nest[A].do(Retry(job_ids=[job_id]))

        waiting = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")
        nest[A].pass_time(1)
        nest[A].fetch(A)
        nest[A].do(Fail(fails=[FailItem(job_id=job_id, error="no", retryable=False)]))
        dead = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")

        assert (waiting.last_error, waiting.dlq_reason, waiting.errors) == ("", "", [])
        assert (dead.last_error, dead.dlq_reason) == ("no", "not_retryable")
        assert [error.id for error in dead.errors] == [1]

    run(main)


def test_a_completed_job_has_no_reason() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        nest[A].pass_time(1)
        nest[A].fetch(A)
        nest[A].do(Ack(acks=[AckItem(job_id=job_id)]))

        shown = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")

        assert (shown.state, shown.last_error, shown.dlq_reason) == (State.COMPLETED, "", "")

    run(main)
