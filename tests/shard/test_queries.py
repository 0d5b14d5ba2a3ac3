"""What a shard is asked and changes nothing by: jobs, dead jobs, queues and what waits in them."""

from random import Random
from typing import Final, NamedTuple, TypeVar, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.kv.keys import JOB
from corvo.model import State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Expedite, Hold, Move, Retry
from corvo.protocol.ops.queues import Clear, DeleteQueue, Pause
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.protocol.queries import (
    ANSWER_BYTES_MAX,
    NUMBERS,
    CountJobs,
    Counts,
    Dead,
    Form,
    FoundJob,
    GetJobs,
    GetNewest,
    GetQueue,
    GetQueues,
    Jobs,
    ListDead,
    Newest,
    Query,
    Queues,
    QueueView,
    StoredJob,
)
from corvo.shard import queries
from corvo.shard.machine import Machine
from corvo.shard.queries import WALK_MAX
from tests.shard.shard import Shard

MAIL: Final = "mail"
SMS: Final = "sms"
NOTE: Final = "note"
"""Of four shards, number 2 has all of them."""

D = TypeVar("D", bound=msgspec.Struct)


class OfMachine(NamedTuple):
    """All that these questions are about."""

    machine: Machine


def asked(shard: Shard) -> queries.Asked:
    return cast("queries.Asked", OfMachine(shard.machine))


@pytest.fixture
def shard() -> Shard:
    return Shard(number=2)


def ask(shard: Shard, query: Query, kind: type[D]) -> D:
    """The answer as it comes over the wire."""
    answer = queries.answer_bytes(asked(shard), NUMBERS[type(query)], msgspec.json.encode(query))
    assert not isinstance(answer, Rejected), answer
    return msgspec.json.decode(msgspec.json.encode(answer), type=kind)


def refusal(shard: Shard, query: Query) -> str:
    answer = queries.answer_bytes(asked(shard), NUMBERS[type(query)], msgspec.json.encode(query))
    assert isinstance(answer, Rejected)
    return answer.code


def shown(job: FoundJob) -> dict[str, object]:
    fields: dict[str, object] = msgspec.json.decode(job.json)
    return fields


def die(shard: Shard, queue: str = MAIL, error: str = "no") -> str:
    """A job that dies now."""
    [job_id] = shard.put(NewJob(queue=queue))
    shard.fetch(queue)
    shard.pass_time(1)
    shard.do(Fail(fails=[FailItem(job_id=job_id, error=error, retryable=False)]))
    return job_id


def complete(shard: Shard, queue: str = MAIL) -> str:
    [job_id] = shard.put(NewJob(queue=queue))
    [claim] = shard.fetch(queue)
    shard.pass_time(1)
    shard.do(Ack(acks=[AckItem(job_id=job_id, lease_token=claim.lease_token)]))
    return job_id


# Jobs.


def test_jobs_come_in_the_order_asked_for_and_those_that_are_not_here_are_left_out(
    shard: Shard,
) -> None:
    first, second = shard.put(NewJob(queue=MAIL), NewJob(queue=SMS))

    answer = ask(shard, GetJobs(job_ids=[second, "nobody", first]), Jobs)

    assert [job.id for job in answer.jobs] == [second, first]
    assert answer.looked_at == 3
    assert answer.moved == {}


def test_of_a_job_that_has_moved_it_is_said_where_it_is(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=MAIL))
    shard.do(Move(job_ids=[job_id], queue="q3"))  # of shard 0, 1 or 3

    answer = ask(shard, GetJobs(job_ids=[job_id]), Jobs)

    assert answer.jobs == []
    assert list(answer.moved) == [job_id]
    assert answer.moved[job_id] != shard.number


def test_an_answer_that_becomes_large_stops_and_says_how_far_it_came(shard: Shard) -> None:
    payload = msgspec.Raw(msgspec.json.encode("x" * 1_048_500))
    ids = [shard.put(NewJob(queue=MAIL, payload=payload))[0] for _ in range(8)]

    answer = ask(shard, GetJobs(job_ids=ids), Jobs)

    assert 4 * 1_048_500 < ANSWER_BYTES_MAX < 4 * 1_048_900, "four of them with all their fields"
    assert answer.looked_at == len(answer.jobs) == 4
    rest = ask(shard, GetJobs(job_ids=ids[4:]), Jobs)
    assert [job.id for job in (*answer.jobs, *rest.jobs)] == ids


def test_the_lease_token_is_in_the_stored_form_alone(shard: Shard) -> None:
    shard.put(NewJob(queue=MAIL))
    [claim] = shard.fetch()
    [job_id] = [claim.job_id]

    by_form = {
        form: ask(shard, GetJobs(job_ids=[job_id], form=form), Jobs).jobs[0] for form in Form
    }

    stored = msgspec.json.decode(by_form[Form.STORED].json, type=StoredJob)
    assert stored.job.lease_token == claim.lease_token
    assert stored.payload == msgspec.Raw(b"{}")
    for form in (Form.BODY, Form.SUMMARY):
        assert "lease_token" not in shown(by_form[form])
    for job in by_form.values():
        assert (job.id, job.queue, job.state, job.finished_ns) == (job_id, MAIL, State.ACTIVE, 0)


def test_reading_without_end_does_not_fill_the_memory(shard: Shard) -> None:
    payload = msgspec.Raw(msgspec.json.encode("x" * 900_000))
    ids = [shard.put(NewJob(queue=MAIL, payload=payload))[0] for _ in range(60)]
    shard.reopen()

    for job_id in ids:
        ask(shard, GetJobs(job_ids=[job_id]), Jobs)

    cache = shard.tx.cache
    held = [*cache.young.values(), *cache.old.values()]
    assert sum(each.size for each in held) < 34 << 20


# What waits in queues.


def oldest(shard: Shard, queue: str = MAIL) -> int:
    return ask(shard, GetQueue(queue=queue), QueueView).oldest_pending_ns


def test_an_empty_queue_has_nothing_that_waits(shard: Shard) -> None:
    shard.do(Pause(queue=MAIL))

    assert oldest(shard) == 0
    assert oldest(shard, "nobody has named it") == 0


@pytest.mark.parametrize("priorities", [(2, 1, 0), (0, 1, 2), (1, 1, 2), (2, 0, 0)])
def test_what_has_waited_longest_counts_whatever_its_priority(
    shard: Shard, priorities: tuple[int, ...]
) -> None:
    ids = []
    for priority in priorities:
        shard.pass_time(1_000)
        ids += shard.put(NewJob(queue=MAIL, priority=priority))

    assert oldest(shard) == shard.job(ids[0]).order_ns
    shard.do(Delete(job_ids=[ids[0]]))
    assert oldest(shard) == shard.job(ids[1]).order_ns


def test_what_was_cleared_and_what_waits_for_others_does_not_wait_for_a_worker(
    shard: Shard,
) -> None:
    shard.put(*[NewJob(queue=MAIL, priority=priority) for priority in (0, 1, 2)])
    shard.do(Clear(queue=MAIL))
    awaited = shard.put(NewJob(queue=SMS))
    shard.put(NewJob(queue=MAIL, depends_on=(awaited[0],)))

    assert oldest(shard) == 0
    [late] = shard.put(NewJob(queue=MAIL))
    assert oldest(shard) == shard.job(late).order_ns


def test_many_queues_can_be_looked_at_without_a_head_for_each(shard: Shard) -> None:
    shard.put(*[NewJob(queue=f"queue-{number:03d}") for number in range(300)])
    shard.reopen()

    pages = ask(shard, GetQueues(), Queues)

    assert all(view.oldest_pending_ns for view in pages.queues)
    assert shard.tx.heads == {}


# Dead jobs.


def test_jobs_of_a_state_are_counted_by_queue_page_by_page(shard: Shard) -> None:
    for queue in (MAIL, SMS, MAIL):
        die(shard, queue)
    shard.put(NewJob(queue=NOTE))

    whole = ask(shard, CountJobs(state=State.DEAD), Counts)
    first = ask(shard, CountJobs(state=State.DEAD, limit=2), Counts)
    rest = ask(shard, CountJobs(state=State.DEAD, limit=2, after=first.after), Counts)

    assert whole == Counts([(MAIL, 2), (SMS, 1)])
    assert first == Counts([(MAIL, 2)], after=NOTE)
    assert rest == Counts([(SMS, 1)])


def test_the_newest_jobs_of_a_queue_are_found_in_every_state(shard: Shard) -> None:
    made = shard.put(*[NewJob(queue=MAIL, priority=number % 3) for number in range(9)])
    later = shard.put(NewJob(queue=MAIL, delay_ms=1_000))
    shard.put(NewJob(queue=SMS))
    shard.do(Hold(job_ids=[made[8]]))
    shard.do(Cancel(job_ids=[made[7]]))
    shard.fetch(MAIL)

    whole = ask(shard, GetNewest(queue=MAIL), Newest)
    few = ask(shard, GetNewest(queue=MAIL, limit=1), Newest)

    assert sorted(whole.job_ids) == sorted([*made, *later])
    assert {shard.state(job_id) for job_id in few.job_ids} == {
        State.PENDING,
        State.ACTIVE,
        State.HELD,
        State.CANCELLED,
        State.SCHEDULED,
    }
    assert {made[8], made[7], *later} <= set(few.job_ids)
    assert ask(shard, GetNewest(queue=NOTE), Newest) == Newest([])


def test_dead_jobs_come_newest_first_with_their_last_error_and_no_other_ones(
    shard: Shard,
) -> None:
    old = die(shard, MAIL, "first")
    complete(shard)
    shard.do(Cancel(job_ids=shard.put(NewJob(queue=SMS))))
    new = die(shard, SMS, "second")

    answer = ask(shard, ListDead(queues=[MAIL, SMS, NOTE]), Dead)

    assert [job.id for job in answer.jobs] == [new, old]
    assert [shown(job)["last_error"] for job in answer.jobs] == ["second", "first"]
    assert answer.before_id == ""
    assert ask(shard, ListDead(queues=[NOTE]), Dead) == Dead([])


def test_a_summary_is_without_what_only_the_job_itself_is_asked_for(shard: Shard) -> None:
    [job_id] = shard.put(NewJob(queue=MAIL, checkpoint=msgspec.Raw(b'"here"')))
    for error in ("first", "last"):
        shard.fetch()
        is_last = error == "last"
        shard.do(Fail(fails=[FailItem(job_id=job_id, error=error, retryable=not is_last)]))
        if not is_last:
            shard.do(Expedite(job_ids=[job_id]))

    [job] = ask(shard, ListDead(queues=[MAIL]), Dead).jobs

    assert not {"checkpoint", "trail", "errors"} & shown(job).keys()
    assert shown(job)["last_error"] == "last"


def test_one_question_looks_at_so_many_jobs_and_says_where_it_stopped(shard: Shard) -> None:
    dead = die(shard)
    shard.put(*[NewJob(queue=MAIL) for _ in range(WALK_MAX)])
    for _ in range(2):
        claims = shard.fetch(count=500)
        shard.do(Ack(acks=[AckItem(job_id=claim.job_id) for claim in claims]))

    first = ask(shard, ListDead(queues=[MAIL]), Dead)
    second = ask(
        shard,
        ListDead(queues=[MAIL], before_ns=first.before_ns, before_id=first.before_id),
        Dead,
    )

    assert first.jobs == []
    assert [job.id for job in second.jobs] == [dead]
    assert second.before_id == ""


def test_dead_jobs_of_a_queue_that_was_deleted_are_not_listed(shard: Shard) -> None:
    die(shard)
    shard.do(DeleteQueue(queue=MAIL))

    assert ask(shard, ListDead(queues=[MAIL]), Dead) == Dead([])


@pytest.mark.parametrize(
    "query",
    [
        ListDead(queues=["with\0zero"]),
        ListDead(queues=[]),
        ListDead(queues=[MAIL], limit=0),
        CountJobs(state=State.DEAD, limit=1_001),
    ],
)
def test_a_question_that_cannot_be_is_refused(shard: Shard, query: Query) -> None:
    assert refusal(shard, query) == "bad_request"


@given(seed=st.integers(0, 1 << 32), limit=st.integers(1, 7), walk_max=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_page_by_page_every_dead_job_comes_once_and_the_newest_first(
    seed: int, limit: int, walk_max: int
) -> None:
    random, shard = Random(seed), Shard(number=2)
    for _ in range(random.randrange(40)):
        queue = random.choice([MAIL, SMS, NOTE])
        job_id = random.choice([die, complete])(shard, queue)
        if random.random() < 0.1:
            shard.do(Retry(job_ids=[job_id]))
            shard.do(Delete(job_ids=[job_id]))
    wanted = random.sample([MAIL, SMS, NOTE], random.randint(1, 3))

    found = []
    before_ns, before_id = 0, ""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(queries, "WALK_MAX", walk_max)
        while True:
            question = ListDead(
                queues=wanted, before_ns=before_ns, before_id=before_id, limit=limit
            )
            page = ask(shard, question, Dead)
            assert len(page.jobs) <= limit
            found += [job.id for job in page.jobs]
            before_ns, before_id = page.before_ns, page.before_id
            if not before_id:
                break

    jobs = [shard.job(job_id) for job_id in _all_ids(shard)]
    dead = [job for job in jobs if job.state is State.DEAD and job.queue in wanted]
    dead.sort(key=lambda job: (job.finished_ns, job.id), reverse=True)
    assert found == [job.id for job in dead]


def _all_ids(shard: Shard) -> list[str]:
    return [key[len(JOB.prefix) :].decode() for key, _ in shard.rows(JOB)]


def test_jobs_that_ended_at_one_time_are_told_apart_by_their_ids(shard: Shard) -> None:
    ids = shard.put(*[NewJob(queue=MAIL) for _ in range(5)])
    shard.fetch(count=5)
    shard.do(Fail(fails=[FailItem(job_id=job_id, retryable=False) for job_id in ids]))

    first = ask(shard, ListDead(queues=[MAIL], limit=2), Dead)
    rest = ask(
        shard,
        ListDead(queues=[MAIL], before_ns=first.before_ns, before_id=first.before_id),
        Dead,
    )

    assert {shard.job(job_id).finished_ns for job_id in ids} == {first.before_ns}
    assert [job.id for job in (*first.jobs, *rest.jobs)] == sorted(ids, reverse=True)
