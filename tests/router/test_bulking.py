"""A bulk that is worked off: each job once, whoever dies, and only those that were meant."""

from collections.abc import Callable
from typing import Final
from unittest.mock import patch

import msgspec
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.model import Job, State
from corvo.protocol.ops.base import Op, encode_json
from corvo.protocol.ops.jobs import Cancel, ChangePriority, Hold, JobsOp, Move, Retry
from corvo.protocol.ops.work import Ack, AckItem, Fetch, Heartbeat
from corvo.protocol.questions import Filter
from corvo.restarts import RESTARTS_MAX
from corvo.router.bulk import executor, requests
from corvo.router.bulk.requests import ACTIONS, QUEUE, BulkStatus, job_id_of
from corvo.router.http.messages import Problem
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.upkeep import Reclaim
from corvo.shard.state.tables import JOBS
from tests.router.crews import (
    FAX,
    MAIL,
    SMS,
    Crew,
    begin,
    jobs_of,
    trail_of,
    with_crew,
)
from tests.router.nests import Nest, die, queue_of
from tests.router.views import means

# One that nobody disturbs.


def test_a_bulk_is_worked_off_and_says_what_became_of_the_jobs() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        dead = [die(nest, queue) for queue in (MAIL, SMS, MAIL)]
        pending = nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="retry")

        await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.total, status.processed) == ("completed", 3, 3)
        assert (status.affected, status.skipped_total, status.errors) == (2, 1, 0)
        assert status.by_code == {"bad_state": 1}
        assert [each.job_id for each in status.skipped] == [pending]
        assert trail_of(nest, dead[0])[-1].by == f"anonymous by {bulk_id}"
        assert nest[SMS].state(dead[1]) is State.DEAD
        assert nest[QUEUE].state(job_id_of(bulk_id)) is State.COMPLETED

    with_crew(test)


def test_named_jobs_are_worked_off_wherever_they_have_gone() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        moved, there = nest.put(MAIL), nest.put(SMS)
        bulk_id = await begin(nest, job_ids=[moved, there], action="cancel")
        await nest.ask("POST", f"/api/v1/jobs/{moved}/move", {"queue": SMS})
        nest.deliver()

        await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.affected) == ("completed", 2)
        assert nest[SMS].state(moved) is nest[SMS].state(there) is State.CANCELLED

    with_crew(test)


def test_pages_follow_each_other_and_are_written_down_before_they_are_done() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(queue) for queue in (MAIL, SMS) for _ in range(5)]
        bulk_id = await begin(nest, filter={"state": ["pending"]}, action="cancel")
        written: set[str] = set()
        done: list[str] = []

        def see(_: int, op: Op) -> bool:
            match op:
                case Heartbeat(jobs=[item]) if item.checkpoint is not msgspec.UNSET:
                    written.update(
                        job_id for job_id, _ in requests.read_mark(bytes(item.checkpoint)).page
                    )
                case Cancel():
                    assert written >= set(op.job_ids)
                    done.extend(op.job_ids)
                case _:
                    pass
            return False

        crew.before = see
        with patch.object(requests, "PAGE_JOBS", 3), patch.object(requests, "OP_JOBS", 2):
            await crew.work()

        assert sorted(done) == sorted(ids)
        assert (await crew.status(bulk_id)).affected == 10

    with_crew(test)


def test_two_bulks_are_worked_off_side_by_side_and_a_third_waits() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(3):
            nest.put(MAIL)
            await begin(nest, filter={"queue": MAIL}, action="change_priority", priority="high")
        begun = 0
        most = 0

        def see(_: int, op: Op) -> bool:
            nonlocal begun, most
            lines = "".join(crew.lines)
            begun = lines.count("bulk.begun") - lines.count("bulk.ended")
            most = max(most, begun)
            return False

        crew.before = see
        await crew.work(bulks=3)

        assert most == executor.SIDE_BY_SIDE
        assert nest[QUEUE].counts(QUEUE) == {State.COMPLETED: 3}

    with_crew(test)


def test_a_rate_is_kept() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(50):
            nest.put(MAIL)
        await begin(nest, filter={"queue": MAIL}, action="cancel", rate=10)
        began_s = trio.current_time()

        await crew.work()

        assert 4.8 <= trio.current_time() - began_s < 6

    with_crew(test)


# Whoever stops it, or stands in its way.


def test_a_bulk_that_is_cancelled_stops_between_two_pages_and_keeps_its_counts() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(9):
            nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")

        def stop(_: int, op: Op) -> bool:
            if isinstance(op, Cancel):
                nest[QUEUE].do(Cancel(job_ids=[job_id_of(bulk_id)], by="ada"))
            return False

        crew.after = stop
        with patch.object(requests, "PAGE_JOBS", 3):
            await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.processed, status.affected) == ("cancelled", 3, 3)
        assert nest[MAIL].counts(MAIL) == {State.CANCELLED: 3, State.PENDING: 6}

    with_crew(test)


def test_shards_and_a_mirror_that_are_away_are_waited_for() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(MAIL), nest.put(SMS)]
        bulk_id = await begin(nest, filter={"state": ["pending"]}, action="cancel")
        nest.shards[1].is_away = crew.mirror.is_away = True

        async def come_back() -> None:
            await trio.sleep(100)
            crew.mirror.is_away = False
            await trio.sleep(100)
            nest.shards[1].is_away = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_back)
            await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.affected, status.errors) == ("completed", 2, 0)
        assert {nest[MAIL].state(ids[0]), nest[SMS].state(ids[1])} == {State.CANCELLED}

    with_crew(test)


def test_a_mirror_that_lags_behind_is_waited_for_and_then_all_are_there() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        die(nest, MAIL)
        crew.mirror.look()
        die(nest, MAIL)
        bulk_id = await begin(nest, filter={"state": ["dead"]}, action="retry")
        die(nest, SMS)

        async def catch_up() -> None:
            await trio.sleep(100)
            crew.mirror.catch_up()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(catch_up)
            await crew.work()

        status = await crew.status(bulk_id)
        assert (status.affected, status.skipped_total, status.processed) == (2, 0, 2)
        assert nest[SMS].counts(SMS) == {State.DEAD: 1}

    with_crew(test)


def test_what_can_never_be_done_fails_and_says_why() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        job_id = job_id_of(bulk_id)
        job = nest[QUEUE].job(job_id)
        order = requests.read_order(job.payload)
        bad = msgspec.structs.replace(order, filter=Filter(queue="?"))
        unreadable = nest.put(QUEUE, payload=msgspec.Raw(b'{"action":7}'))
        refused = nest.put(QUEUE, payload=msgspec.Raw(encode_json(bad)))

        await crew.work(bulks=2)

        assert nest[QUEUE].state(unreadable) is State.DEAD
        status = await crew.status(requests.bulk_id_of(refused))
        assert (status.status, status.error) == ("failed", "queue: there is no such")
        assert (await crew.status(bulk_id)).status == "completed"

    with_crew(test)


def test_a_bulk_whose_mark_is_not_taken_fails() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")

        def refuse(_: int, op: Op) -> bool:
            if isinstance(op, Heartbeat):
                raise Problem(413, "PAYLOAD_TOO_LARGE", "it is too large")
            return False

        crew.before = refuse
        await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.error) == ("failed", "it is too large")
        assert nest[MAIL].counts(MAIL) == {State.PENDING: 1}

    with_crew(test)


def test_whoever_has_lost_the_lease_does_no_more() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(6):
            nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")

        def take_it_away(_: int, op: Op) -> bool:
            if isinstance(op, Cancel) and nest[QUEUE].state(job_id_of(bulk_id)) is State.ACTIVE:
                nest[QUEUE].do(Hold(job_ids=[job_id_of(bulk_id)]))
            return False

        crew.after = take_it_away
        with patch.object(requests, "PAGE_JOBS", 3):
            await crew.work()

        assert "bulk.lost" in "".join(crew.lines)
        assert nest[MAIL].counts(MAIL) == {State.CANCELLED: 3, State.PENDING: 3}
        assert (await crew.status(bulk_id)).status == "failed"

    with_crew(test)


def test_a_router_that_leaves_gives_its_bulk_back_for_the_next() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(6):
            nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")

        def leave(_: int, op: Op) -> bool:
            if isinstance(op, Cancel):
                nest.api.stopping.set()
                return True
            return False

        crew.after = leave
        with patch.object(requests, "PAGE_JOBS", 3):
            await crew.work()
        given_back = await crew.status(bulk_id)
        crew.after = lambda *_: False
        vars(nest.api)["stopping"] = trio.Event()
        await crew.work()

        assert (given_back.status, given_back.processed) == ("queued", 0)
        assert nest[QUEUE].job(job_id_of(bulk_id)).crashes == 0
        assert (await crew.status(bulk_id)).affected == 6

    with_crew(test)


def test_a_bulk_that_kills_its_routers_is_left_to_its_lease_and_at_last_held() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(6):
            nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        killed = 0

        def kill(_: int, op: Op) -> bool:
            nonlocal killed
            killed += isinstance(op, Cancel)
            return isinstance(op, Cancel)

        crew.before = kill
        for _ in range(requests.TAKEOVERS_MAX + 1):
            await crew.work()
        assert killed == requests.TAKEOVERS_MAX + 1
        await crew.work()
        assert killed == requests.TAKEOVERS_MAX + 1
        assert "bulk.lost" in "".join(crew.lines)

        for _ in range(requests.CRASHES_MAX):
            nest[QUEUE].pass_time(executor.LEASE_MS + 1)
            nest[QUEUE].do(Reclaim(limit=10))
            if nest[QUEUE].state(job_id_of(bulk_id)) is State.PENDING:
                await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.processed) == ("failed", 0)
        assert "approve job" in status.error
        assert nest[MAIL].counts(MAIL) == {State.PENDING: 6}
        assert killed <= RESTARTS_MAX, "else the node would have ended before"

    with_crew(test)


def test_a_bug_in_one_bulk_costs_no_other_anything_and_it_is_held_at_last() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        nest.put(MAIL)
        nest.put(SMS)
        bad = await begin(nest, filter={"queue": MAIL}, action="cancel")
        good = await begin(nest, filter={"queue": SMS}, action="hold")
        crew.may_have_bugs = True

        def stumble(_: int, op: Op) -> bool:
            if isinstance(op, Cancel):
                raise ZeroDivisionError
            return False

        crew.before = stumble
        await crew.work(2)
        for _ in range(requests.CRASHES_MAX):
            nest[QUEUE].pass_time(executor.LEASE_MS + 1)
            nest[QUEUE].do(Reclaim(limit=10))
            if nest[QUEUE].state(job_id_of(bad)) is State.PENDING:
                await crew.work()

        assert (await crew.status(good)).status == "completed"
        status = await crew.status(bad)
        assert (status.status, status.processed) == ("failed", 0)
        assert "approve job" in status.error

    with_crew(test)


def test_as_long_as_it_comes_further_it_is_taken_over_at_once() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(MAIL) for _ in range(8)]
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        done: set[str] = set()

        def kill(_: int, op: Op) -> bool:
            is_new = isinstance(op, Cancel) and not done.issuperset(op.job_ids)
            if isinstance(op, Cancel):
                done.update(op.job_ids)
            return is_new

        crew.after = kill
        with patch.object(requests, "PAGE_JOBS", 1):
            status = await crew.work_to_the_end(bulk_id, at_once=True)

        assert (status.affected, len(done)) == (8, 8)
        assert [len(trail_of(nest, job_id)) for job_id in ids] == [2] * 8

    with_crew(test)


def test_what_another_router_has_is_not_taken_from_it() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        nest.put(MAIL)
        theirs = await begin(nest, filter={"queue": MAIL}, action="cancel")
        nest[QUEUE].do(Fetch(queues=[QUEUE], hostname="router of node 2"))
        ours = await begin(nest, filter={"queue": SMS}, action="cancel")

        await crew.work()

        assert "".join(crew.lines).count("bulk.begun") == 1
        assert (await crew.status(theirs)).status == "running"
        assert (await crew.status(ours)).status == "completed"
        assert nest[MAIL].counts(MAIL) == {State.PENDING: 1}

    with_crew(test)


def test_jobs_that_a_full_entry_left_out_come_in_the_next() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(MAIL) for _ in range(5)]
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        keys: set[str] = set()

        def see(_: int, op: Op) -> bool:
            if isinstance(op, Cancel):
                keys.add(op.request_key)
            return False

        crew.before = see
        with patch("corvo.shard.state.tx.CHANGED_BYTES_MAX", 1):  # one job fills an entry
            await crew.work()

        status = await crew.status(bulk_id)
        assert (status.affected, status.skipped_total) == (5, 0)
        assert len(keys) == 5
        assert {nest[MAIL].state(job_id) for job_id in ids} == {State.CANCELLED}

    with_crew(test)


# Against a twin.

QUEUES: Final = (MAIL, SMS, FAX, queue_of(2))
DOING: Final = ("retry", "cancel", "delete", "move", "change_priority", "hold", "requeue")
TOUCHES: Final[tuple[Callable[[str], JobsOp], ...]] = (
    lambda job_id: Retry(job_ids=[job_id], by="ada"),
    lambda job_id: Cancel(job_ids=[job_id], by="ada"),
    lambda job_id: Hold(job_ids=[job_id], by="ada"),
    lambda job_id: ChangePriority(job_ids=[job_id], priority=0, by="ada"),
)

jobs = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.sampled_from(["pending", "dead", "completed", "held"])),
    min_size=1,
    max_size=14,
)
filters = st.sampled_from(
    [
        {"state": ["dead"]},
        {"state": ["pending", "dead"]},
        {"queue": MAIL},
        {"queue": SMS, "state": ["pending", "completed", "held"]},
    ]
)
kills = st.dictionaries(st.integers(2, 40), st.booleans(), max_size=4)
touches = st.lists(
    st.tuples(st.integers(1, 25), st.integers(0, 13), st.sampled_from(TOUCHES)), max_size=8
)


def make(nest: Nest, queue: str, state: str) -> str:
    match state:
        case "dead":
            return die(nest, queue)
        case "completed":
            job_id = nest.put(queue, priority=0)
            [claim] = nest[queue].fetch(queue)
            nest[queue].do(Ack(acks=[AckItem(job_id=job_id, lease_token=claim.lease_token)]))
            return job_id
        case "held":
            job_id = nest.put(queue)
            nest[queue].do(Hold(job_ids=[job_id]))
            return job_id
        case _:
            return nest.put(queue, priority=2)


class Case(msgspec.Struct, frozen=True):
    """What was meant when the bulk began."""

    meant: dict[str, Job]
    shards: dict[str, int]
    bounds: dict[int, int]
    stayed: set[str]
    """Jobs moved to the queue in which they were, before anything else: that leaves no event."""


@given(
    jobs,
    st.sampled_from(DOING),
    filters,
    kills,
    touches,
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
# Three routers killed over one page: the next leaves the bulk to its lease.
@example(
    made=[(MAIL, "pending")] * 10,
    action="retry",
    filter_={"state": ["pending", "dead"]},
    killed={9: False, 13: False, 16: True},
    touched=[(17, 0, TOUCHES[0])] * 2,
    page=4,
    is_stale=False,
    is_followed_at_once=True,
)
# Three leases that expire over one page: the bulk is held until an operator approves it.
@example(
    made=[(MAIL, "pending")],
    action="retry",
    filter_={"state": ["dead"]},
    killed={3: False, 5: False, 7: False},
    touched=[],
    page=1,
    is_stale=False,
    is_followed_at_once=False,
)
# A job that is moved to the queue in which it is, and cancelled later.
@example(
    made=[(MAIL, "dead")] * 9 + [(MAIL, "pending")] * 2 + [(FAX, "pending"), (MAIL, "pending")],
    action="move",
    filter_={"state": ["pending", "dead"]},
    killed={},
    touched=[(9, 11, TOUCHES[1])],
    page=4,
    is_stale=False,
    is_followed_at_once=False,
)
def test_just_the_jobs_that_were_meant_and_that_nothing_happened_to_are_done_once(
    made: list[tuple[str, str]],
    action: str,
    filter_: dict[str, object],
    killed: dict[int, bool],
    touched: list[tuple[int, int, Callable[[str], JobsOp]]],
    page: int,
    is_stale: bool,
    is_followed_at_once: bool,
) -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        # Those that are waiting must not be given to the workers that make others die.
        made.sort(key=lambda each: each[1] == "pending")
        ids = [make(nest, queue, state) for queue, state in made]
        if is_stale:
            crew.mirror.look()
        asked = {"filter": filter_, "action": action, "move_to_queue": FAX, "priority": "critical"}
        bulk_id = await begin(nest, **asked)
        order = requests.read_order(nest[QUEUE].job(job_id_of(bulk_id)).payload)
        meant = msgspec.convert(filter_, Filter)
        case = Case(
            {job.id: job for job in jobs_of(nest) if means(meant, job)},
            {job.id: n for n, s in enumerate(nest.shards) for job in s.machine.documents(JOBS)},
            order.bounds,
            set(),
        )

        def disturb(step: int, op: Op) -> bool:
            if isinstance(op, ACTIONS[action].op):
                for at, number, touch in touched:
                    job_id = ids[number % len(ids)]
                    if at == step:
                        shard = nest.shards[case.shards[job_id]]
                        touch_op = touch(job_id)
                        shard.apply(NUMBERS[type(touch_op)], encode_json(touch_op))
            return step in killed and not killed[step]

        def see(step: int, op: Op) -> bool:
            if isinstance(op, Move):
                for job_id in op.job_ids:
                    before, shard = case.meant[job_id], case.shards[job_id]
                    if before.queue == FAX and nest.shards[shard].machine.job(job_id) == before:
                        case.stayed.add(job_id)
            return killed.get(step, False)

        crew.before = disturb
        crew.after = see
        with patch.object(requests, "PAGE_JOBS", page), patch.object(requests, "OP_JOBS", 2):
            status = await crew.work_to_the_end(bulk_id, at_once=is_followed_at_once)
        crew.before = lambda *_: False
        nest.deliver()

        assert status.status == "completed"
        judge(nest, case, action, bulk_id, status)
        for shard in nest.shards:
            shard.machine.check()

    with_crew(test)


def judge(nest: Nest, case: Case, action: str, bulk_id: str, status: BulkStatus) -> None:
    """Hold what became of all jobs against what was meant."""
    there = {job.id: job for job in jobs_of(nest)}
    takes = ACTIONS[action].op.TAKES
    affected = 0
    for job_id, before in case.meant.items():
        job = there.get(job_id)
        if job is None:
            assert action == "delete"
            affected += 1
            continue
        bound_ns = case.bounds[case.shards[job_id]]
        later = [event for event in job.trail if event.at_ns > bound_ns]
        ours = [e for e in later if bulk_id in e.by and e.what != "arrived"]
        if later and later[0] not in ours:
            assert not ours, "it had changed"
            affected += job_id in case.stayed and before.state in takes
        elif before.state in takes and not (action == "move" and before.queue == FAX):
            assert len(ours) == 1, "it was meant, and nothing had happened to it"
            affected += 1
        else:
            assert not ours
            affected += before.state in takes
    for job_id, job in there.items():
        if job_id not in case.meant:
            assert not [event for event in job.trail if bulk_id in event.by], "it was not meant"
    assert status.affected == affected
    assert status.processed == status.affected + status.skipped_total == status.total
    assert status.errors == 0


@pytest.mark.parametrize("step", range(2, 16))
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_router_that_is_killed_at_any_step_has_done_nothing_twice(
    step: int, *, is_after: bool, at_once: bool
) -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(queue) for queue in (MAIL, SMS) for _ in range(4)]
        bulk_id = await begin(
            nest, filter={"state": ["pending"]}, action="change_priority", priority="high"
        )
        crew.before = lambda at, _: at == step and not is_after
        crew.after = lambda at, _: at == step and is_after

        with patch.object(requests, "PAGE_JOBS", 3), patch.object(requests, "OP_JOBS", 2):
            status = await crew.work_to_the_end(bulk_id, at_once=at_once)

        assert (status.affected, status.processed, status.by_code) == (8, 8, {})
        for job_id in ids:
            assert [event.what for event in trail_of(nest, job_id)] == ["enqueued", "priority"]

    with_crew(test)
