"""What is counted by queue, and by which replica: each fact once, by the one that proposed it."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.kv import keys
from corvo.measures import JOB_NS, JOB_S, empty
from corvo.protocol import wire
from corvo.protocol.numbers import COUNTED, Numbers, QueueCountersPage
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel, ChangePriority, Move
from corvo.protocol.ops.queues import DeleteQueue
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    Claim,
    Fail,
    FailItem,
    Release,
    ReleaseItem,
)
from corvo.protocol.queries import GetNumbers, GetQueueCounters
from corvo.shard.counting import QueueCounts
from corvo.shard.state.throughput import Happened
from tests.shard.replicas import MS, Replicas
from tests.shard.shard import EVERYTHING, Shard
from tests.shard.test_numbers import told

JOB: Final = NewJob(queue="mail")
S: Final = 1_000 * MS


def by_queue(page: QueueCountersPage) -> dict[str, dict[str, int]]:
    """What was counted of each queue, without what never happened."""
    return {each.name: named(each.counts) for each in page.queues}


def named(counts: Sequence[int]) -> dict[str, int]:
    """Counts by their names, without zeros."""
    return {what: count for what, count in zip(COUNTED, counts, strict=True) if count}


def counted(group: Replicas, *, of: int = 1) -> dict[str, dict[str, int]]:
    return by_queue(told(group, GetQueueCounters(), QueueCountersPage, of=of))


def ack(group: Replicas, claim: Claim, *, to: int = 1) -> None:
    group.do(Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token)]), to=to)


def fail(group: Replicas, claim: Claim, *, to: int = 1, retry_after_ms: int = 1_000) -> None:
    item = FailItem(
        job_id=claim.job_id,
        lease_token=claim.lease_token,
        error="no such address",
        retry_after_ms=retry_after_ms,
    )
    group.do(Fail(fails=[item]), to=to)


# What is counted.


def test_each_fact_is_counted_in_the_queue_of_its_job() -> None:
    group = Replicas()
    unique = NewJob(queue="mail", id="mail~one")
    group.put(unique, NewJob(queue="mail", max_retries=2))
    group.put(unique)
    group.put(NewJob(queue="sms", expire_after_ms=5_000))
    [done], [failing] = group.fetch(), group.fetch()

    ack(group, done)
    fail(group, failing)
    group.pass_time(2_000)
    [again] = group.fetch()
    fail(group, again)
    group.put(NewJob(queue="mail", id="mail~two"))
    group.do(Cancel(job_ids=["mail~two"]))
    group.pass_time(5_000)

    assert counted(group) == {
        "mail": {
            "enqueued": 3,
            "fetched": 3,
            "completed": 1,
            "failed": 2,
            "retried": 1,
            "dead": 1,
            "cancelled": 1,
            "duplicate": 1,
        },
        "sms": {"enqueued": 1, "dead": 1, "expired": 1},
    }


def test_a_lease_that_expires_is_counted_however_the_job_goes_on() -> None:
    group = Replicas()
    group.put(NewJob(queue="mail", max_crashes=2))
    group.put(NewJob(queue="long", max_run_time_ms=1_000, max_retries=1))
    group.put(NewJob(queue="stopped"))

    [stopped] = group.fetch("stopped", lease_ms=1_000)
    group.do(Cancel(job_ids=[stopped.job_id]))
    group.fetch("long", lease_ms=60_000)
    for _ in range(2):
        group.fetch("mail", lease_ms=1_000)
        group.pass_time(10_000)

    assert counted(group) == {
        "mail": {"enqueued": 1, "fetched": 2, "lease_expired": 2},
        "long": {"enqueued": 1, "fetched": 1, "failed": 1, "dead": 1, "lease_expired": 1},
        "stopped": {"enqueued": 1, "fetched": 1, "cancelled": 1, "lease_expired": 1},
    }


def test_a_repeated_request_is_no_duplicate_and_counts_nothing() -> None:
    group = Replicas()
    once = Enqueue(jobs=[NewJob(queue="mail", unique_key="one")], request_key="once")

    group.do(once)
    group.do(once)

    assert counted(group) == {"mail": {"enqueued": 1}}


def test_a_job_that_moves_is_enqueued_once() -> None:
    shard = Shard()
    [job_id] = shard.put(JOB)

    shard.do(Move(job_ids=[job_id], queue="q4"))

    assert shard.tx.minutes.happened == []


def test_a_duplicate_of_a_job_that_has_left_its_queue_makes_no_queue() -> None:
    shard = Shard()
    named_job = NewJob(queue="mail", id="mail~one")
    [job_id] = shard.put(named_job)
    shard.do(Move(job_ids=[job_id], queue="q4"))
    shard.do(DeleteQueue(queue="mail"))

    shard.put(named_job)

    assert shard.tx.minutes.happened == []


def test_a_duplicate_is_not_counted_for_a_queue_that_only_the_next_job_makes() -> None:
    shard = Shard()
    shard.put(NewJob(queue="sms", id="one"))

    shard.put(NewJob(queue="mail", id="one"), NewJob(queue="mail"))

    [(queue, counts)] = shard.tx.minutes.happened
    assert (queue, {COUNTED[place]: count for place, count in enumerate(counts) if count}) == (
        "mail",
        {"enqueued": 1},
    )


# By whom.


def test_followers_count_nothing_and_a_replay_neither() -> None:
    group = Replicas(3)
    group.put(JOB, JOB)
    [claim] = group.fetch()
    ack(group, claim)
    before = counted(group)

    group.start(1)
    group.elect(1, 1, 2)
    group.put(JOB)

    assert before == {"mail": {"enqueued": 2, "fetched": 1, "completed": 1}}
    assert group.replicas[1].machine.applied == group.replicas[2].machine.applied
    assert counted(group) == {"mail": {"enqueued": 1}}
    assert [counted(group, of=number) for number in (2, 3)] == [{}, {}]


def test_an_entry_that_another_leader_commits_is_counted_by_the_one_that_proposed_it() -> None:
    group = Replicas(3)
    group.deaf[1] = None
    request = group.submit(Enqueue(jobs=[JOB]))
    group.settle()
    early = counted(group)

    group.elect(2, 2, 3)
    del group.deaf[1]
    group.tick(3)

    assert early == {}
    assert len(group.answers(request)) == 1
    assert group.replicas[2].machine.tx.count("mail")[0] == 1
    every = [counted(group, of=number) for number in (1, 2, 3)]
    assert every == [{"mail": {"enqueued": 1}}, {}, {}]


def events_of(group: Replicas, of: int) -> Counter[tuple[str, str]]:
    """What happened, by queue, out of the events of all entries, each looked at by itself."""
    names = {
        "enqueued": "enqueued",
        "started": "fetched",
        "completed": "completed",
        "cancelled": "cancelled",
        "crashed": "lease_expired",
    }
    found: Counter[tuple[str, str]] = Counter()
    feed = group.replicas[of].machine.tx.feed
    for index in range(feed.begin.index + 1, feed.index + 1):
        events = feed.row(index)[0].events
        for event in msgspec.msgpack.decode(events, type=list[wire.Happening]):
            queue = event.queue
            if event.what in names:
                found[queue, names[event.what]] += 1
            if event.what == "failed":
                found.update([(queue, "failed"), (queue, "retried")])
            if event.what == "died":
                found[queue, "dead"] += 1
                found[queue, "expired" if event.why == "expired" else "failed"] += 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_over_replicas_is_what_happened_however_leaders_change(seed: int) -> None:
    random = Random(seed)
    group = Replicas(3)
    leader = 1
    claims: list[Claim] = []
    for _ in range(60):
        match random.randrange(8):
            case 0 | 1:
                retries = random.randrange(1, 3)
                expires_ms = random.choice([0, 0, 3_000])
                jobs = [
                    NewJob(queue=queue, max_retries=retries, expire_after_ms=expires_ms)
                    for queue in random.choices(["mail", "sms"], k=random.randrange(1, 4))
                ]
                group.put(*jobs, to=leader)
            case 2 | 3:
                lease_ms = random.choice([1_000, 60_000])
                claims += group.fetch("mail", "sms", to=leader, lease_ms=lease_ms)
            case 4 if claims:
                ack(group, claims.pop(), to=leader)
            case 5 if claims:
                fail(group, claims.pop(), to=leader)
            case 6:
                group.pass_time(random.choice([500, 7_000]))
            case _:
                # What the last leader has proposed is committed by the next one, or lost.
                away = random.choice([group.deaf, group.cut_off])
                away[leader] = None
                for _ in range(random.randrange(3)):
                    group.submit(Enqueue(jobs=[JOB]), to=leader)
                    group.settle()
                last, voters = leader, [one for one in group.replicas if one != leader]
                leader = random.choice(voters)
                group.elect(leader, *voters)
                del away[last]
                group.tick(3)
    group.tick(3)

    total: Counter[tuple[str, str]] = Counter()
    for number in group.replicas:
        for queue, facts in counted(group, of=number).items():
            total.update({(queue, what): count for what, count in facts.items()})

    assert total == events_of(group, leader)
    numbers = [told(group, GetNumbers(), Numbers, of=number).counted for number in group.replicas]
    fetched = sum(count for (_, what), count in total.items() if what == "fetched")
    assert sum(each.waited.count for each in numbers) == fetched
    # An attempt that ran for too long also counts as failed; this test has none.
    ended = sum(count for (_, what), count in total.items() if what in {"completed", "failed"})
    assert sum(each.ran.count for each in numbers) == ended


# How long jobs wait and run.


def test_a_job_has_waited_since_it_became_pending() -> None:
    shard = Shard()
    [job_id] = shard.put(JOB)
    shard.pass_time(3_000)
    shard.do(ChangePriority(job_ids=[job_id], priority=0))
    shard.pass_time(2_000)
    [claim] = shard.fetch()
    [first_ns] = shard.tx.waited_ns
    shard.pass_time(1_000)
    item = ReleaseItem(job_id=job_id, lease_token=claim.lease_token)
    shard.do(Release(jobs=[item]))
    released = shard.tx.ran_ns
    shard.pass_time(4_000)

    shard.fetch()

    assert first_ns == pytest.approx(5 * S, abs=MS)
    assert shard.tx.waited_ns == [pytest.approx(4 * S, abs=MS)]
    assert released == []


def test_a_scheduled_job_waits_from_its_time_on() -> None:
    group = Replicas()
    group.put(NewJob(queue="mail", delay_ms=10_000))
    group.pass_time(11_000)
    group.pass_time(2_000)

    group.fetch()

    waited = told(group, GetNumbers(), Numbers).counted.waited
    assert waited.count == 1
    assert waited.total == pytest.approx(2, abs=0.01)


def test_a_run_ends_with_the_ack_or_fail_of_its_worker() -> None:
    group = Replicas()
    group.put(JOB, JOB, JOB)
    done, failing, _ = [group.fetch(lease_ms=20_000)[0] for _ in range(3)]

    group.pass_time(7_000)
    ack(group, done)
    group.pass_time(3_000)
    fail(group, failing)
    group.pass_time(60_000)

    ran = told(group, GetNumbers(), Numbers).counted.ran
    assert ran.count == 2
    assert ran.total == pytest.approx(17, abs=0.01)


@given(st.lists(st.integers(0, 10**14)))
def test_many_measures_are_observed_as_each_by_itself(measures: list[int]) -> None:
    one_by_one, together = empty(JOB_S), empty(JOB_S)
    for measure in measures:
        one_by_one.observe(measure / 1e9)

    together.observe_all(measures, JOB_NS, 1e9)

    assert together.counts == one_by_one.counts
    assert together.total == pytest.approx(one_by_one.total)


def test_a_time_before_its_own_beginning_lets_no_sum_fall() -> None:
    seen = empty(JOB_S)

    seen.observe_all([-5_000_000_000, 1_000_000_000], JOB_NS, 1e9)

    assert (seen.counts[0], seen.count, seen.total) == (1, 2, 0.0)


# How many queues, and for how long.


def test_a_queue_that_was_deleted_is_forgotten_and_begins_anew_at_nothing() -> None:
    group = Replicas()
    group.put(JOB, JOB)
    group.put(NewJob(queue="sms"))

    group.do(DeleteQueue(queue="mail"))
    group.pass_time(1_000)
    gone = counted(group)
    group.put(JOB)

    assert gone == {"sms": {"enqueued": 1}}
    assert counted(group) == {"mail": {"enqueued": 1}, "sms": {"enqueued": 1}}


def test_a_replica_that_no_longer_leads_forgets_a_deleted_queue_too() -> None:
    group = Replicas(3)
    group.put(JOB)
    group.elect(2, 2, 3)
    group.settle()
    before = counted(group)

    group.do(DeleteQueue(queue="mail"), to=2)
    group.pass_time(1_000)
    group.tick(3)

    assert (before, counted(group)) == ({"mail": {"enqueued": 1}}, {})


changes: st.SearchStrategy[list[Happened]] = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.lists(st.integers(0, 3), min_size=len(COUNTED), max_size=len(COUNTED)).map(tuple)
        | st.just(()),
    )
)


@given(st.lists(st.tuples(changes, st.booleans())), st.integers(1, 5))
def test_counts_are_those_of_a_plain_recount(
    entries: list[tuple[list[Happened], bool]], queues_max: int
) -> None:
    counts = QueueCounts(queues_max)
    rows: dict[str, list[tuple[int, ...]]] = {}
    others: list[tuple[int, ...]] = []
    for happened, is_ours in entries:
        counts.take(happened, is_ours=is_ours)
        for queue, each in happened:
            if not each:
                rows.pop(queue, None)
            elif is_ours and (queue in rows or len(rows) < queues_max):
                rows.setdefault(queue, []).append(each)
            elif is_ours:
                others.append(each)

    page = counts.page(after="", limit=EVERYTHING)

    nothing = (0,) * len(COUNTED)
    assert [(each.name, each.counts) for each in page.queues] == [
        (queue, tuple(map(sum, zip(nothing, *rows[queue], strict=True)))) for queue in sorted(rows)
    ]
    assert page.others == tuple(map(sum, zip(nothing, *others, strict=True)))


def test_counters_come_in_pages_each_once() -> None:
    group = Replicas()
    names = [f"queue-{number}" for number in range(7)]
    group.put(*[NewJob(queue=name) for name in names])

    pages = [told(group, GetQueueCounters(limit=3), QueueCountersPage)]
    while pages[-1].after:
        following = GetQueueCounters(limit=3, after=pages[-1].after)
        pages.append(told(group, following, QueueCountersPage))

    assert [each.name for page in pages for each in page.queues] == names
    assert [len(page.queues) for page in pages] == [3, 3, 1]


# What an older process sees.


def test_an_older_process_reads_the_numbers_and_refuses_the_question() -> None:
    group = Replicas()
    request = group.ask_raw(99, b"{}")
    group.settle()
    answer = group.answer(request)

    plain = msgspec.to_builtins(told(group, GetNumbers(), Numbers))
    del plain["counted"]["waited"], plain["counted"]["ran"]

    read = msgspec.convert(plain, Numbers)
    assert (read.counted.waited.count, read.counted.ran.count) == (0, 0)
    assert isinstance(answer, wire.Reply)
    assert answer.code == "unknown_query"


def test_nothing_of_it_is_in_the_state() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail", unique_key="one"))
    rows = len(shard.rows(keys.THROUGHPUT))

    shard.put(NewJob(queue="mail", unique_key="one"))

    assert shard.tx.minutes.happened == [("mail", (0, 0, 0, 0, 0, 0, 0, 0, 0, 1))]
    assert len(shard.rows(keys.THROUGHPUT)) == rows
    shard.check_replay()
