"""Fetches that find nothing, and things that become due: nobody polls, and nothing is missed."""

from typing import Final

import msgspec
import pytest

from corvo.model import State
from corvo.protocol import wire
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Hold
from corvo.protocol.ops.queues import (
    Clear,
    Pause,
    Resume,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.protocol.ops.work import Ack, AckItem, Fetch
from corvo.shard import empty_fetches
from corvo.shard.ops.upkeep import Promote, Purge, Reclaim, Upkeep
from corvo.shard.state import select
from corvo.shard.upkeep import BATCH
from tests.shard.replicas import MS, START_NS, Replicas

JOB: Final = NewJob(queue="mail")
FETCH: Final = Fetch(queues=["mail"])


def later(ms: int, count: int = 1) -> Enqueue:
    return Enqueue(jobs=[NewJob(queue="mail", scheduled_ns=START_NS + ms * MS)] * count)


def upkeep(group: Replicas) -> list[Op]:
    """What the leader has done by itself."""
    return [op for ops in group.log() for op in ops if isinstance(op, Upkeep)]


def wake_ns(group: Replicas) -> int:
    found = group.last[1].wake_ns
    assert found is not None
    return found


# ---- Fetches that find nothing.


def test_a_fetch_that_finds_nothing_costs_no_entry() -> None:
    group = Replicas()
    before = group.storages[1].last_index

    claims = group.fetch()

    assert claims == []
    assert group.storages[1].last_index == before


def test_a_fetch_behind_something_on_its_way_waits_for_it() -> None:
    group = Replicas()
    group.slow[1] = None
    group.submit(Enqueue(jobs=[JOB]))
    group.settle()

    request = group.submit(FETCH)
    group.slow.clear()
    group.store(1)
    group.settle()

    answer = group.answer(request)
    assert isinstance(answer, wire.Reply)
    assert len(msgspec.json.decode(answer.body, type=dict[str, list[object]])["jobs"]) == 1


def test_an_enqueue_wakes_who_found_nothing_once() -> None:
    group = Replicas()
    group.replicas[1].joined(2)
    group.fetch("mail", "other")
    group.submit(Fetch(queues=["other"]), client=2)
    group.settle()
    early = group.told()

    group.put(JOB)
    first = group.told()
    group.put(JOB)
    second = group.told()
    group.put(NewJob(queue="other"))
    third = group.told()

    assert early == []
    assert first == [(1, ("mail",))]
    assert second == []
    assert sorted(third) == [(1, ("other",)), (2, ("other",))]


def test_the_answer_comes_before_the_news() -> None:
    """Else the news would be of nothing: nobody waits before his fetch is answered."""
    group = Replicas()
    group.slow[1] = None
    request = group.submit(FETCH)
    group.settle()
    group.submit(Enqueue(jobs=[JOB]))
    group.slow.clear()
    group.settle()

    said = [message for _, message in group.heard[1]]
    assert isinstance(said[0], wire.Reply)
    assert said[0].id == request
    assert said[-1] == wire.WorkAvailable(("mail",))


def test_a_fetch_in_the_log_that_finds_nothing_is_woken_too() -> None:
    group = Replicas()
    group.slow[1] = None
    group.submit(Pause(queue="other"))
    group.settle()
    request = group.submit(FETCH)
    group.slow.clear()
    group.store(1)
    group.settle()
    answer = group.answer(request)

    group.put(JOB)

    assert isinstance(answer, wire.Reply)
    assert answer.index == group.storages[1].last_index - 1
    assert group.told() == [(1, ("mail",))]


def test_a_resumed_queue_wakes_who_waits() -> None:
    group = Replicas()
    group.put(JOB)
    group.do(Pause(queue="mail"))
    assert group.fetch() == []

    group.put(JOB)
    early = group.told()
    group.do(Resume(queue="mail"))

    assert early == []
    assert group.told() == [(1, ("mail",))]


def test_a_slot_that_is_freed_wakes_who_waits() -> None:
    group = Replicas()
    group.do(SetConcurrency(queue="mail", max=1))
    group.put(JOB, JOB)
    [claim] = group.fetch()
    assert group.fetch() == []
    early = group.told()

    group.do(Ack(acks=[AckItem(job_id=claim.job_id)]))

    assert early == []
    assert group.told() == [(1, ("mail",))]
    assert len(group.fetch()) == 1


def test_an_approved_job_wakes_who_waits() -> None:
    group = Replicas()
    group.put(NewJob(queue="mail", id="one"))
    group.do(Hold(job_ids=["one"]))
    assert group.fetch() == []

    group.do(Approve(job_ids=["one"]))

    assert group.told() == [(1, ("mail",))]


def test_a_limit_that_gives_again_wakes_who_waits_at_that_moment() -> None:
    group = Replicas()
    group.do(SetThrottle(queue="mail", rate=1, window_ms=3_000))
    group.put(JOB, JOB)
    assert len(group.fetch()) == 1
    fetched_ns = group.replicas[1].machine.now_ns
    assert group.fetch() == []
    entries = group.storages[1].last_index
    due_ns = wake_ns(group)

    group.now_ns = due_ns - 1
    group.settle()
    early = group.told()
    group.now_ns = due_ns
    group.settle()

    assert due_ns == fetched_ns + 3_000 * MS
    assert early == []
    assert group.told() == [(1, ("mail",))]
    assert group.storages[1].last_index == entries
    assert len(group.fetch()) == 1


def test_a_limit_that_gave_again_for_nothing_is_not_waited_for_any_more() -> None:
    """Else whoever waits for the moment would find it in the past, again and again."""
    group = Replicas()
    group.do(SetThrottle(queue="mail", rate=1, window_ms=3_000))
    group.put(JOB, JOB)
    group.fetch()
    assert group.fetch() == []
    group.do(Pause(queue="mail"))

    group.pass_time(3_001)

    assert group.told() == []
    assert wake_ns(group) > group.now_ns


def test_who_was_woken_finds_the_work_though_the_state_is_old() -> None:
    """The last entry is older than the limit's window; that must not count."""
    group = Replicas()
    group.do(SetThrottle(queue="mail", rate=1, window_ms=3_000))
    group.put(JOB, JOB)
    group.fetch()
    assert group.fetch() == []

    group.pass_time(10_000)
    told = group.told()
    claims = group.fetch()

    assert told == [(1, ("mail",))]
    assert len(claims) == 1


def test_a_fetch_that_only_cleared_away_is_told_that_there_is_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(select, "REMOVED_MAX", 3)
    group = Replicas()
    group.put(*[JOB] * 7)
    group.slow[1] = None
    group.submit(Clear(queue="mail"))
    group.submit(Enqueue(jobs=[JOB]))
    request = group.submit(FETCH)
    group.slow.clear()
    group.settle()
    first = group.answer(request)

    told = group.told()
    fetches = 0
    while not group.fetch():
        fetches += 1
        assert fetches < 10

    assert isinstance(first, wire.Reply)
    assert told == [(1, ("mail",))]


def test_beyond_a_bound_the_oldest_are_told_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_fetches, "WATCHED_MAX", 2)
    group = Replicas()

    group.fetch("first", "second")
    early = group.told()
    group.fetch("third")

    assert early == []
    assert group.told() == [(1, ("first",))]


def test_a_link_that_ended_is_not_told() -> None:
    group = Replicas()
    group.replicas[1].joined(2)
    group.submit(FETCH, client=2)
    group.settle()

    group.replicas[1].left(2)
    group.put(JOB)

    assert group.told() == []


def test_a_replica_that_leads_no_more_forgets_who_waited() -> None:
    group = Replicas(3)
    assert group.fetch() == []
    group.elect(2, 3)
    group.told()

    group.put(JOB, to=2)

    assert group.told() == []


# ---- What becomes due.


def test_the_next_moment_is_exactly_when_the_first_thing_is_due() -> None:
    group = Replicas()
    group.do(later(7_000))
    group.do(later(5_000))
    entries = group.storages[1].last_index

    due_ns = wake_ns(group)
    group.now_ns = due_ns - 1
    group.settle()
    early = group.storages[1].last_index
    group.now_ns = due_ns
    group.settle()

    assert due_ns == START_NS + 5_000 * MS
    assert early == entries
    assert upkeep(group) == [Promote(limit=BATCH)]
    assert wake_ns(group) == START_NS + 7_000 * MS


def test_a_promotion_wakes_who_waits() -> None:
    group = Replicas()
    group.do(later(5_000))
    assert group.fetch() == []

    group.pass_time(5_000)

    assert group.told() == [(1, ("mail",))]
    assert len(group.fetch()) == 1


def test_a_lease_that_is_over_wakes_who_waits() -> None:
    group = Replicas()
    group.pass_time(6_000)
    group.put(JOB)
    [claim] = group.fetch(lease_ms=2_000)
    assert group.fetch() == []

    due_ns = wake_ns(group)
    group.now_ns = due_ns - 1
    group.settle()
    early = upkeep(group)
    group.now_ns = due_ns
    group.settle()

    assert due_ns == claim.lease_expires_ns
    assert early == []
    assert upkeep(group) == [Reclaim(limit=BATCH)]
    assert group.told() == [(1, ("mail",))]


def test_ticks_write_nothing() -> None:
    group = Replicas()
    group.put(JOB)
    group.do(later(3_600_000))
    before = group.storages[1].last_index

    for _ in range(100):
        group.tick()
        group.pass_time(100)

    assert group.storages[1].last_index == before


def test_a_follower_does_nothing_by_itself() -> None:
    group = Replicas(3)
    group.do(later(5_000))
    group.cut_off[2] = None
    group.now_ns += 6_000 * MS

    work = group.replicas[2].work(group.now_ns, group.now_ns)

    assert work.wake_ns is None
    assert work.write is None


@pytest.mark.parametrize("ahead_s", [-3_600, -20, 20, 25 * 3_600, 100 * 365 * 86_400])
def test_what_is_due_waits_for_elapsed_time_whatever_the_wall_clock_shows(ahead_s: int) -> None:
    group = Replicas()
    group.do(later(20_000))
    group.wall_ahead_ns += ahead_s * 1_000 * MS
    for _ in range(18):
        group.pass_time(1_000)
    early = upkeep(group)

    for _ in range(5):
        group.pass_time(1_000)

    assert early == []
    assert upkeep(group) == [Promote(limit=BATCH)]


def test_a_wall_clock_that_was_ahead_for_a_while_does_not_hold_up_what_is_due() -> None:
    group = Replicas()
    group.wall_ahead_ns = 3_600_000 * MS
    group.put(JOB)
    group.wall_ahead_ns = 0
    group.do(later(5_000))

    group.pass_time(5_000)

    assert upkeep(group) == [Promote(limit=BATCH)]


@pytest.mark.parametrize(("ahead_s", "passes_ms"), [(-7, 9_000), (0, 8_100), (7, 7_364)])
def test_the_driver_is_asked_to_come_back_when_it_is_due_by_elapsed_time(
    ahead_s: int, passes_ms: int
) -> None:
    group = Replicas()
    group.wall_ahead_ns = ahead_s * 1_000 * MS
    group.do(later(8_100))
    group.tick()

    group.now_ns = wake_ns(group) - 10
    group.settle()
    early = upkeep(group)
    group.now_ns += 20
    group.settle()

    assert group.now_ns - START_NS == pytest.approx(passes_ms * MS, abs=MS)
    assert early == []
    assert upkeep(group) == [Promote(limit=BATCH)]


def test_a_hundred_thousand_that_are_due_at_once_are_promoted_in_bounded_steps() -> None:
    group = Replicas()
    for _ in range(100):
        group.do(later(5_000, count=1_000))
    entries = len(group.log())

    group.pass_time(5_000)

    written = group.log()[entries:]
    assert written == [[Promote(limit=BATCH)]] * -(-100_000 // BATCH)
    counts = group.replicas[1].machine.tx.count("mail")
    assert (counts[State.PENDING.number], counts[State.SCHEDULED.number]) == (100_000, 0)


def test_others_are_served_between_the_steps() -> None:
    group = Replicas()
    for _ in range(3):
        group.do(later(5_000, count=1_000))
    group.slow[1] = None
    group.now_ns += 5_000 * MS
    group.settle()

    request = group.submit(Pause(queue="other"))
    group.store(1)
    group.settle()
    group.store(1)
    group.settle()

    assert len(group.answers(request)) == 1
    assert group.replicas[1].machine.tx.count("mail")[State.SCHEDULED.number] > 0


def test_finished_jobs_are_purged_when_their_retention_is_over() -> None:
    group = Replicas()
    group.do(SetRetention(queue="mail", retention_ms=10_000))
    group.put(JOB)
    [claim] = group.fetch()
    group.do(Ack(acks=[AckItem(job_id=claim.job_id)]))

    group.pass_time(9_000)
    early = upkeep(group)
    for _ in range(130):
        group.pass_time(1_000)

    assert early == []
    assert [type(op) for op in upkeep(group)].count(Purge) == 1
    assert group.replicas[1].machine.tx.count("mail")[State.COMPLETED.number] == 0
