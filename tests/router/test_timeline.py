"""What happened to a job, and how long each part of it took."""

from typing import Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.model import TRAIL_MAX, ApiKey, Event, EventType, JobError, State
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Approve, Cancel, ChangePriority, Expedite, Hold, Retry
from corvo.protocol.ops.work import Ack, AckItem, Release, ReleaseItem
from corvo.protocol.queries import Form, GetJobs, StoredJob
from corvo.router.jobs.bodies import read_jobs, read_stored
from corvo.router.jobs.timeline import BESIDE, PHASES, Timeline, timeline
from corvo.shard.queries import Asked, answer
from corvo.times import format_time
from tests.router.nests import Nest, fail, header, problem, queue_of, run
from tests.shard import shard as machines

A: Final = queue_of(0)
S: Final = 1_000_000_000


async def told(nest: Nest, job_id: str) -> Timeline:
    return await nest.read(Timeline, f"/api/v1/jobs/{job_id}/timeline")


def phases(line: Timeline) -> list[tuple[str, str]]:
    return [(moment.what, moment.phase) for moment in line.moments]


def wait(nest: Nest, ms: int) -> None:
    nest[A].pass_time(ms)


@pytest.mark.parametrize("what", EventType)
def test_every_event_of_a_trail_has_a_phase(what: EventType) -> None:
    is_of_trail = what not in {EventType.PROGRESS, EventType.DELETED, EventType.PURGED}
    if is_of_trail and not what.stored.startswith(("queue.", "schedule.")):
        begins = what is EventType.ENQUEUED
        assert begins or (what.stored in PHASES) != (what.stored in BESIDE)


def test_a_job_that_was_worked_on_at_once_waited_and_ran() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        wait(nest, 2_000)
        nest[A].fetch(A, worker="w")
        wait(nest, 500)
        nest[A].do(Ack(acks=[AckItem(job_id=job_id)]))

        line = await told(nest, job_id)

        assert phases(line) == [
            ("enqueued", "queued"),
            ("started", "running"),
            ("completed", "ended"),
        ]
        assert [moment.ms for moment in line.moments] == [2_000.0, 500.0, None]
        assert line.phases_ms == {"queued": 2_000.0, "running": 500.0}
        assert (line.job_id, line.queue, line.state) == (job_id, A, State.COMPLETED)
        assert not line.is_cut

    run(main)


def test_a_failed_attempt_has_its_error_where_it_happened() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A, retry_base_delay_ms=1_000)
        fail(nest, A, job_id, "first")
        nest[A].do(Expedite(job_ids=[job_id]))
        fail(nest, A, job_id, "second", dies=True)

        line = await told(nest, job_id)

        failed = [moment for moment in line.moments if moment.error is not None]
        assert [(one.what, one.error.error) for one in failed if one.error is not None] == [
            ("failed", "first"),
            ("died", "second"),
        ]
        assert failed[0].phase == "retrying"
        assert line.moments[-1].phase == "ended"
        assert all(moment.what != "error" for moment in line.moments)

    run(main)


def test_what_a_job_waited_for_is_told_by_what_ended_it() -> None:
    async def main() -> None:
        nest = Nest()
        later_ns = nest[A].clock_ns + 60 * 10**9
        scheduled = nest.put(A, scheduled_ns=later_ns)
        hurried = nest.put(A, scheduled_ns=later_ns)
        waiting = nest.put(A, scheduled_ns=later_ns)
        nest[A].do(Expedite(job_ids=[hurried]))
        nest[A].do(Retry(job_ids=[scheduled]))

        lines = [phases(await told(nest, each)) for each in (hurried, scheduled, waiting)]

        assert lines[0] == [("enqueued", "scheduled"), ("promoted", "queued")]
        assert lines[1] == [("enqueued", "scheduled"), ("retried", "queued")]
        assert lines[2] == [("enqueued", "scheduled")]

    run(main)


def test_what_changes_nothing_of_it_leaves_a_job_in_its_phase() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        shard = nest[A]
        shard.do(ChangePriority(job_ids=[job_id], priority=0))
        shard.do(Hold(job_ids=[job_id], reason="look"))
        shard.do(ChangePriority(job_ids=[job_id], priority=1))
        shard.do(Approve(job_ids=[job_id]))
        shard.fetch(A)
        shard.do(Cancel(job_ids=[job_id]))

        line = await told(nest, job_id)

        assert [phase for _, phase in phases(line)] == [
            "queued",
            "queued",
            "held",
            "held",
            "queued",
            "running",
            "running",
        ]

    run(main)


def test_a_job_that_waits_for_another_is_blocked_until_that_is_done() -> None:
    async def main() -> None:
        nest = Nest()
        first = nest.put(A)
        second = nest.put(A, depends_on=(first,))
        before = phases(await told(nest, second))
        nest[A].fetch(A)
        nest[A].do(Ack(acks=[AckItem(job_id=first)]))

        after = phases(await told(nest, second))

        assert before == [("enqueued", "blocked")]
        assert after == [("enqueued", "blocked"), ("ready", "queued")]

    run(main)


def test_a_trail_that_was_cut_says_so_and_claims_no_time_for_what_is_missing() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        for _ in range(TRAIL_MAX):
            nest[A].fetch(A)
            wait(nest, 10)
            nest[A].do(Release(jobs=[ReleaseItem(job_id=job_id)]))

        line = await told(nest, job_id)

        assert line.is_cut
        assert (line.moments[0].phase, line.moments[0].ms) == ("unknown", None)
        assert len(line.moments) == TRAIL_MAX

    run(main)


def view_of(*trail: Event, errors: tuple[JobError, ...] = ()) -> StoredJob:
    """A job with this trail, pending."""
    shard = machines.Shard()
    [job_id] = shard.put(NewJob(queue=A))
    asked = cast("Asked", shard)  # only its machine is asked of here
    found = read_jobs(encode_json(answer(GetJobs(job_ids=[job_id], form=Form.STORED), asked)))
    view = read_stored(found.jobs[0].json)
    return replace(view, trail=trail, errors=errors, job=replace(view.job, failures=len(errors)))


def test_an_error_whose_event_is_gone_is_a_moment_of_its_own() -> None:
    error = JobError(attempt=1, error="no", error_class="E", at_ns=2 * S, worker_id="w")
    view = view_of(Event(S, "enqueued"), Event(3 * S, "started"), errors=(error,))

    line = timeline(view, 4 * S)

    assert phases(line) == [("enqueued", "queued"), ("error", "unknown"), ("started", "running")]
    lost = line.moments[1]
    assert (lost.by, lost.why, lost.ms) == ("w", "E", None)
    assert lost.error is not None
    assert (lost.error.id, lost.error.error) == (1, "no")


def test_two_errors_of_one_time_belong_to_two_events() -> None:
    errors = tuple(JobError(attempt=number, error=str(number), at_ns=2 * S) for number in (1, 2))
    view = view_of(
        Event(S, "enqueued"), Event(2 * S, "failed"), Event(2 * S, "died"), errors=errors
    )

    line = timeline(view, 3 * S)

    told = [(each.what, each.error.error if each.error else "") for each in line.moments]
    assert told == [("enqueued", ""), ("failed", "1"), ("died", "2")]


WORDS: Final = st.sampled_from(
    [
        "started",
        "failed",
        "released",
        "promoted",
        "held",
        "approved",
        "moved",
        "priority",
        "retried",
    ]
)


@given(st.lists(st.tuples(WORDS, st.integers(0, 5)), max_size=20), st.integers(0, 9))
def test_every_moment_of_a_job_is_in_one_phase(script: list[tuple[str, int]], more: int) -> None:
    at_ns, trail = S, [Event(S, "enqueued")]
    for what, seconds in script:
        at_ns += seconds * S
        trail.append(Event(at_ns, what))

    line = timeline(view_of(*trail), at_ns + more * S)

    assert [moment.what for moment in line.moments] == [event.what for event in trail]
    assert [moment.at for moment in line.moments] == [format_time(each.at_ns) for each in trail]
    elapsed_ms = (at_ns + more * S - S) / 1e6
    assert sum(line.phases_ms.values()) == elapsed_ms
    assert sum(moment.ms or 0.0 for moment in line.moments) == elapsed_ms


@pytest.mark.parametrize("key", ["", "k"])
def test_a_job_that_is_not_there_or_not_theirs_has_no_timeline(key: str) -> None:
    async def main() -> None:
        scoped = ApiKey(key_hash="", name="s", role="readonly", queue_scope=("other",))
        nest = Nest(keys={"k": scoped} if key else None)
        job_id = nest.put(A) if key else "nobody"

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}/timeline", x_api_key=key)

        assert problem(answer)[:2] == ((403, "FORBIDDEN") if key else (404, "NOT_FOUND"))

    run(main)


def test_a_timeline_says_where_it_stands() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}/timeline", corvo_min_seq="s0=1")

        assert header(answer, "corvo-seq").startswith("s0=")

    run(main)
