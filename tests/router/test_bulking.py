"""A bulk that is worked off: each job once, whoever dies, and only those that were meant."""

from collections.abc import Awaitable, Callable
from typing import Final
from unittest.mock import patch

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import ApiKey, Event, Job, State
from corvo.placement import shard_of_queue
from corvo.questions import Filter
from corvo.restarts import RESTARTS_MAX
from corvo.router import bulk, bulking, positions
from corvo.router.addressing import Addresses
from corvo.router.bulk import (
    ACTIONS,
    QUEUE,
    BulkAnswer,
    BulkBegun,
    BulkEvent,
    BulkStatus,
    job_id_of,
)
from corvo.router.http import Problem
from corvo.router.keys import hash_key
from corvo.router.shards import Answer
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.base import Op, encode_json
from corvo.shard.ops.enqueue import Enqueue
from corvo.shard.ops.jobs import Cancel, ChangePriority, Hold, JobsOp, Move, Retry
from corvo.shard.ops.upkeep import Reclaim
from corvo.shard.ops.work import Ack, AckItem, Fetch, Heartbeat
from corvo.shard.tables import JOBS
from corvo.telemetry import Level, Log, Style
from tests.router.nests import MachineShard, Nest, die, queue_of, run
from tests.router.views import WalkingMirror, means

BULK: Final = "/api/v1/jobs/bulk"
MAIL: Final = queue_of(0)
SMS: Final = queue_of(1)
FAX: Final = queue_of(0, 1)
LATER: Final = {"async": True}
LIVES_MAX: Final = 12
"""Routers that a bulk may need in these tests."""


class Crew:
    """Routers that work bulks off, one after the other, and may be killed at any step."""

    def __init__(self, nest: Nest) -> None:
        self.mirror: Final = WalkingMirror(nest)
        self.steps = 0
        """Ops that were sent."""
        self.before: Callable[[int, Op], bool] = lambda *_: False
        """Told of each op before it is applied; True kills the router then."""
        self.after: Callable[[int, Op], bool] = lambda *_: False
        self.lines: list[str] = []
        self._nest = nest
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        for shard in nest.shards:
            vars(shard)["submit"] = self._through(shard)

    def _through(self, shard: MachineShard) -> Callable[[Op], Awaitable[Answer]]:
        async def submit(op: Op) -> Answer:
            self.steps += 1
            step = self.steps
            if self.before(step, op):
                self._scope.cancel()
                await trio.lowlevel.checkpoint()
            answer = await MachineShard.submit(shard, op)
            if isinstance(op, Enqueue):  # as a shard tells those who wait
                self._nest.api.fetching.came_up(shard.number)
            if self.after(step, op):
                self._scope.cancel()
                await trio.lowlevel.checkpoint()
            return answer

        return submit

    async def work(self, bulks: int = 1) -> None:
        """Work off until so many have ended, or somebody is killed."""
        self._scope = trio.CancelScope()
        self.lines.clear()
        self._ended = trio.Event()
        self._left = bulks
        log = Log(self._put, "router", Style(is_text=True), Level.INFO)
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bulking.run, self._nest.api, log)
                await self._ended.wait()
                nursery.cancel_scope.cancel()

    def _put(self, data: bytes) -> None:
        line = data.decode()
        self.lines.append(line)
        self._left -= "bulk.ended" in line or "bulk.lost" in line
        if self._left <= 0:
            self._ended.set()

    async def work_to_the_end(self, bulk_id: str, *, at_once: bool = False) -> BulkStatus:
        """Whoever is killed is followed by another, at once or when the lease is over."""
        for _ in range(LIVES_MAX):
            await self.work()
            status = await self.status(bulk_id)
            if status.status in bulk.FINAL:
                return status
            if at_once:
                continue
            machine = self._nest[QUEUE]
            machine.pass_time(bulking.LEASE_MS + 1)
            machine.do(Reclaim(limit=10))
        raise AssertionError("it has no end")

    async def status(self, bulk_id: str) -> BulkStatus:
        return await self._nest.read(BulkStatus, f"/api/v1/bulk/{bulk_id}")


async def begin(nest: Nest, **asked: object) -> str:
    response = await nest.ask("POST", BULK, {**asked, **LATER})
    assert response.status == 202, response.body
    return msgspec.json.decode(response.body, type=BulkBegun).bulk_operation_id


KEYS: Final = {
    "sk_all": ApiKey(key_hash="", name="all", role="admin"),
    "sk_mail": ApiKey(key_hash="", name="mail", role="operator", queue_scope=(MAIL,)),
}


def with_crew(
    test: Callable[[Nest, Crew], Awaitable[None]], keys: dict[str, ApiKey] | None = None
) -> None:
    async def main() -> None:
        nest = Nest(keys=keys)
        await test(nest, Crew(nest))

    run(main)


def trail_of(nest: Nest, job_id: str) -> tuple[Event, ...]:
    [trail] = [job.trail for job in jobs_of(nest) if job.id == job_id]
    return trail


def words_of(nest: Nest, job_id: str) -> list[str]:
    return [event.what for event in trail_of(nest, job_id)]


def jobs_of(nest: Nest) -> list[Job]:
    return [job for shard in nest.shards for job in shard.machine.documents(JOBS)]


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
                        job_id for job_id, _ in bulk.read_mark(bytes(item.checkpoint)).page
                    )
                case Cancel():
                    assert written >= set(op.job_ids)
                    done.extend(op.job_ids)
                case _:
                    pass
            return False

        crew.before = see
        with patch.object(bulk, "PAGE_JOBS", 3), patch.object(bulk, "OP_JOBS", 2):
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

        assert most == bulking.SIDE_BY_SIDE
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
        with patch.object(bulk, "PAGE_JOBS", 3):
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
        order = bulk.read_order(job.payload)
        bad = msgspec.structs.replace(order, filter=Filter(queue="?"))
        unreadable = nest.put(QUEUE, payload=msgspec.Raw(b'{"action":7}'))
        refused = nest.put(QUEUE, payload=msgspec.Raw(encode_json(bad)))

        await crew.work(bulks=2)

        assert nest[QUEUE].state(unreadable) is State.DEAD
        status = await crew.status(bulk.bulk_id_of(refused))
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
        with patch.object(bulk, "PAGE_JOBS", 3):
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
        with patch.object(bulk, "PAGE_JOBS", 3):
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
        for _ in range(bulk.TAKEOVERS_MAX + 1):
            await crew.work()
        assert killed == bulk.TAKEOVERS_MAX + 1
        await crew.work()
        assert killed == bulk.TAKEOVERS_MAX + 1
        assert "bulk.lost" in "".join(crew.lines)

        for _ in range(bulk.CRASHES_MAX):
            nest[QUEUE].pass_time(bulking.LEASE_MS + 1)
            nest[QUEUE].do(Reclaim(limit=10))
            if nest[QUEUE].state(job_id_of(bulk_id)) is State.PENDING:
                await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.processed) == ("failed", 0)
        assert "approve job" in status.error
        assert nest[MAIL].counts(MAIL) == {State.PENDING: 6}
        assert killed <= RESTARTS_MAX, "else the node would have ended before"

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
        with patch.object(bulk, "PAGE_JOBS", 1):
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
        with patch("corvo.shard.tx.CHANGED_BYTES_MAX", 1):  # one job fills an entry
            await crew.work()

        status = await crew.status(bulk_id)
        assert (status.affected, status.skipped_total) == (5, 0)
        assert len(keys) == 5
        assert {nest[MAIL].state(job_id) for job_id in ids} == {State.CANCELLED}

    with_crew(test)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_small_bulk_under_a_key_is_waited_for_and_answered_the_same_again(
    is_named: bool,
) -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        dead = die(nest, MAIL)
        meant: dict[str, object] = {"filter": {"state": ["dead"]}}
        asked = {**({"job_ids": [dead]} if is_named else meant), "action": "retry"}
        answers: list[BulkAnswer] = []

        async def ask() -> None:
            response = await nest.ask("POST", BULK, asked, idempotency_key="k")
            assert response.status == 200, response.body
            assert positions.parse(dict(response.headers)["corvo-seq"], 3).keys() == {0}
            answers.append(msgspec.json.decode(response.body, type=BulkAnswer))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(crew.work)
        die(nest, SMS)
        vars(nest.api)["addresses"] = Addresses(len(nest.shards))  # as of another router
        nest[MAIL].do(Cancel(job_ids=[dead]))
        await ask()
        other = await nest.ask("POST", BULK, {**asked, "action": "delete"}, idempotency_key="k")
        later = await nest.ask("POST", BULK, {**asked, **LATER}, idempotency_key="k")

        assert [answer.affected for answer in answers] == [1, 1]
        assert nest[SMS].counts(SMS) == {State.DEAD: 1}
        assert nest[MAIL].state(dead) is State.CANCELLED
        assert other.status == 422
        assert b"REQUEST_KEY_REUSED" in other.body
        assert later.status == 202
        assert nest[QUEUE].counts(QUEUE) == {State.COMPLETED: 1}

    with_crew(test)


def test_those_that_somebody_waits_for_go_before_long_ones() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(MAIL) for _ in range(100)]
        long = [
            await begin(nest, job_ids=ids[at::2], action="change_priority", priority="high", rate=1)
            for at in range(2)
        ]
        waited_s = 0.0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(crew.work, 3)
            await trio.sleep(3)
            began_s = trio.current_time()
            asked = {"job_ids": [nest.put(SMS)], "action": "cancel"}
            answer = await nest.ask("POST", BULK, asked, idempotency_key="k")
            waited_s = trio.current_time() - began_s

        assert answer.status == 200
        assert waited_s < 5
        for bulk_id in long:
            status = await crew.status(bulk_id)
            assert (status.status, status.affected) == ("completed", 50)
        assert [len(words_of(nest, job_id)) - 1 for job_id in ids] == [1] * 100

    with_crew(test)


def test_jobs_that_are_moved_away_are_out_of_the_scope_of_whoever_asked() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        moved, ours = nest.put(MAIL), nest.put(MAIL)
        asked = {"job_ids": [moved, "chosen", ours], "action": "delete", **LATER}
        begun = await nest.ask("POST", BULK, asked, x_api_key="sk_mail")
        nest[MAIL].do(Move(job_ids=[moved], queue=FAX))
        nest.put(SMS, id="chosen")

        await crew.work()

        bulk_id = msgspec.json.decode(begun.body, type=BulkBegun).bulk_operation_id
        status = await nest.read(BulkStatus, f"/api/v1/bulk/{bulk_id}", x_api_key="sk_mail")
        assert (status.affected, status.by_code) == (1, {"forbidden": 2})
        assert nest[SMS].state("chosen") is nest[FAX].state(moved) is State.PENDING

    with_crew(test, KEYS)


def test_jobs_with_chosen_ids_are_done_once_though_nobody_remembers_where_they_are() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(queue, id=f"{queue}-{at}") for queue in (MAIL, SMS, FAX) for at in range(4)]
        bulk_id = await begin(nest, job_ids=ids, action="hold")
        for job_id in ids[::3]:
            nest.api.addresses.remember(job_id, 2)
        killed = False

        def kill(_: int, op: Op) -> bool:
            nonlocal killed
            was, killed = killed, killed or isinstance(op, Hold)
            return killed and not was

        crew.after = kill
        await crew.work()
        assert killed
        vars(nest.api)["addresses"] = Addresses(len(nest.shards))
        status = await crew.work_to_the_end(bulk_id, at_once=True)

        assert (status.status, status.affected) == ("completed", 12)
        assert [words_of(nest, job_id).count("held") for job_id in ids] == [1] * 12

    with_crew(test)


def test_without_a_mirror_on_this_node_a_filter_means_nothing_and_it_is_said() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(3):
            nest.put(MAIL)
        by_filter = await begin(nest, filter={"queue": MAIL}, action="cancel")
        crew.mirror.is_none = True

        await crew.work()

        status = await crew.status(by_filter)
        assert status.status == "failed"
        assert "runs without one" in status.error

    with_crew(test)


def test_ids_that_are_too_many_to_be_remembered_are_refused_by_their_name() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [f"{'x' * 100}{number}" for number in range(bulk.IDS_MAX)]

        refused = await nest.ask("POST", BULK, {"job_ids": ids, "action": "cancel"})

        body = msgspec.json.decode(refused.body, type=dict[str, object])
        assert (refused.status, body["field"]) == (413, "job_ids")
        assert "filter" in str(body["error"])

    with_crew(test)


def test_whoever_watches_with_a_key_that_is_revoked_is_told_no_more() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        asked = {"filter": {"queue": MAIL}, "action": "cancel", **LATER}
        begun = await nest.ask("POST", BULK, asked, x_api_key="sk_mail")
        bulk_id = msgspec.json.decode(begun.body, type=BulkBegun).bulk_operation_id
        reader = Reader()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nest, bulk_id, reader, "sk_mail")
            await trio.sleep(1)
            others = [msgspec.structs.replace(KEYS["sk_all"], key_hash=hash_key("sk_all"))]
            nest.api.keyring.replace(others, now_s=trio.current_time())

        assert reader.frames[-1].startswith(": ")
        assert [event.status for event in reader.events()] == ["queued"]

    with_crew(test, KEYS)


# Watching it.


class Reader:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[str] = []

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.frames.append(data.decode())

    def events(self) -> list[BulkEvent]:
        """What it was told, comments left out."""
        found = []
        for frame in self.frames:
            if frame.startswith("event: "):
                event, data = frame.strip().split("\n")
                found.append(msgspec.json.decode(data.removeprefix("data: "), type=BulkEvent))
                assert event == f"event: {found[-1].type}"
            else:
                assert frame.startswith(":")
        return found


async def watch(nest: Nest, bulk_id: str, reader: Reader, key: str = "") -> None:
    response = await nest.ask("GET", f"/api/v1/bulk/{bulk_id}/progress", x_api_key=key)
    assert response.stream is not None, response.body
    assert response.content_type == "text/event-stream"
    await response.stream(reader)


def test_whoever_watches_is_told_of_each_step_until_the_end() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        for _ in range(60):
            nest.put(MAIL)
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel", rate=10)
        reader = Reader()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nest, bulk_id, reader)
            nursery.start_soon(crew.work)

        events = reader.events()
        assert events[0].type == "bulk.async.started"
        assert {event.type for event in events[1:-1]} == {"bulk.async.progress"}
        assert (events[-1].type, events[-1].status) == ("bulk.async.completed", "completed")
        counts = [event.processed for event in events]
        assert counts == sorted(counts)
        assert len(set(counts)) >= 5
        assert (events[-1].affected, events[-1].percent) == (60, 100.0)

    with_crew(test)


def test_a_bulk_that_has_ended_is_told_in_one_event() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        await nest.ask("POST", f"/api/v1/bulk/{bulk_id}/cancel")
        reader = Reader()

        await watch(nest, bulk_id, reader)

        assert [event.type for event in reader.events()] == ["bulk.async.cancelled"]

    with_crew(test)


def test_a_bulk_that_waits_keeps_its_watchers_awake_until_the_server_leaves() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        reader = Reader()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nest, bulk_id, reader)
            await trio.sleep(40)
            nest.shards[shard_of_queue(QUEUE, len(nest.shards))].is_away = True
            await trio.sleep(40)
            nest.api.stop()

        assert [event.status for event in reader.events()] == ["queued"]
        assert reader.frames.count(": keepalive\n\n") == 5
        assert "the server leaves" in reader.frames[-1]

    with_crew(test)


def test_only_so_many_may_watch_at_a_time() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        limits = msgspec.structs.replace(nest.api.limits, listeners_max=2)
        vars(nest.api)["limits"] = limits

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(watch, nest, bulk_id, Reader())
            await trio.sleep(1)
            refused = await nest.ask("GET", f"/api/v1/bulk/{bulk_id}/progress")
            nursery.cancel_scope.cancel()

        assert (refused.status, nest.api.watchers) == (429, 0)

    with_crew(test)


def test_a_bulk_that_is_removed_is_watched_no_longer() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        bulk_id = await begin(nest, filter={"queue": MAIL}, action="cancel")
        reader = Reader()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nest, bulk_id, reader)
            await trio.sleep(1)
            await nest.ask("DELETE", f"/api/v1/jobs/{job_id_of(bulk_id)}")

        assert "it was removed" in reader.frames[-1]

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
        order = bulk.read_order(nest[QUEUE].job(job_id_of(bulk_id)).payload)
        meant = msgspec.convert(filter_, Filter)
        case = Case(
            {job.id: job for job in jobs_of(nest) if means(meant, job)},
            {job.id: n for n, s in enumerate(nest.shards) for job in s.machine.documents(JOBS)},
            order.bounds,
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

        crew.before = disturb
        crew.after = lambda step, _: killed.get(step, False)
        with patch.object(bulk, "PAGE_JOBS", page), patch.object(bulk, "OP_JOBS", 2):
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

        with patch.object(bulk, "PAGE_JOBS", 3), patch.object(bulk, "OP_JOBS", 2):
            status = await crew.work_to_the_end(bulk_id, at_once=at_once)

        assert (status.affected, status.processed, status.by_code) == (8, 8, {})
        for job_id in ids:
            assert [event.what for event in trail_of(nest, job_id)] == ["enqueued", "priority"]

    with_crew(test)
