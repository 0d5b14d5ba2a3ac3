"""One action on many jobs: what is refused, what is done at once, and what waits in the queue."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import pytest

from corvo.model import ApiKey, State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Hold, Retry
from corvo.router.bulk.requests import (
    DIRECT_MAX,
    IDS_MAX,
    QUEUE,
    BulkAnswer,
    BulkBegun,
    BulkList,
    BulkStatus,
    DryRun,
    Mark,
    Pace,
    bulk_id_of,
    job_id_of,
    key_of,
    op_jobs,
    page_jobs,
    read_order,
)
from corvo.router.http.messages import Problem, Response
from corvo.router.shards.outcomes import Outcome
from tests.router.nests import Nest, die, header, problem, queue_of, run
from tests.router.views import WalkingMirror

BULK: Final = "/api/v1/jobs/bulk"
MAIL: Final = queue_of(0)
SMS: Final = queue_of(1)
DEAD: Final = {"filter": {"state": ["dead"]}}
MISSING: Final = "s00_job_00000000000000000000000000"
KEYS: Final = {
    "sk_all": ApiKey(key_hash="", name="all", role="admin"),
    "sk_mail": ApiKey(key_hash="", name="mail", role="operator", queue_scope=(MAIL,)),
    "sk_sms": ApiKey(key_hash="", name="sms", role="operator", queue_scope=(SMS,)),
    "sk_read": ApiKey(key_hash="", name="read", role="readonly"),
}

Test = Callable[[Nest, WalkingMirror], Awaitable[None]]


def with_nest(test: Test, keys: dict[str, ApiKey] | None = None) -> None:
    async def main() -> None:
        nest = Nest(keys=keys)
        await test(nest, WalkingMirror(nest))

    run(main)


async def at_once(nest: Nest, **asked: object) -> BulkAnswer:
    return read_answer(await nest.ask("POST", BULK, asked))


def read_answer(response: Response) -> BulkAnswer:
    assert response.status == 200, response.body
    return msgspec.json.decode(response.body, type=BulkAnswer)


async def would(nest: Nest, asked: dict[str, object]) -> DryRun:
    answer = read_answer(await nest.ask("POST", BULK, asked))
    assert answer.dry_run is not msgspec.UNSET
    assert (answer.affected, answer.errors, answer.skipped) == (0, 0, [])
    return answer.dry_run


def read_begun(response: Response) -> BulkBegun:
    assert response.status == 202, response.body
    return msgspec.json.decode(response.body, type=BulkBegun)


# What is refused before anything is done.


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ({"job_ids": [MISSING]}, "VALIDATION_ERROR", "action"),
        ({"job_ids": [MISSING], "action": None}, "VALIDATION_ERROR", "action"),
        ({"job_ids": [MISSING], "action": "explode"}, "BULK_ERROR", "action"),
        ({"job_ids": [MISSING], "action": "move"}, "BULK_ERROR", "move_to_queue"),
        ({"action": "move", "move_to_queue": "_corvo.bulk"}, "VALIDATION_ERROR", "move_to_queue"),
        ({"action": "move", "move_to_queue": "a\nb"}, "VALIDATION_ERROR", "move_to_queue"),
        ({"job_ids": [MISSING], "action": "change_priority"}, "BULK_ERROR", "priority"),
        (
            {"job_ids": [MISSING], "action": "change_priority", "priority": "urgent"},
            "VALIDATION_ERROR",
            "priority",
        ),
        ({"job_ids": [MISSING], "filter": {}, "action": "retry"}, "VALIDATION_ERROR", "filter"),
        ({"filter": {}, "action": "delete"}, "VALIDATION_ERROR", "filter"),
        ({"filter": {"queue": None}, "action": "delete"}, "VALIDATION_ERROR", "filter"),
        ({"filter": {"tags": {}}, "action": "delete"}, "VALIDATION_ERROR", "filter.tags"),
        ({"all": True, "action": "delete"}, "VALIDATION_ERROR", "all"),
        ({"all": True, "filter": {"queue": "a"}, "action": "delete"}, "VALIDATION_ERROR", "all"),
        ({"filter": {"quue": "mail"}, "action": "delete"}, "VALIDATION_ERROR", "filter"),
        ({"filter": {"queue": QUEUE}, "action": "delete"}, "VALIDATION_ERROR", "filter.queue"),
        ({"filter": {"queue": "?"}, "action": "delete"}, "VALIDATION_ERROR", "filter.queue"),
        ({"filter": {"queue": "a"}, "action": "delete", "dryrun": True}, "VALIDATION_ERROR", ""),
        ({"filter": {"queue": "a"}, "action": "delete", "rate": 0}, "VALIDATION_ERROR", "rate"),
        ({"job_ids": [""], "action": "retry"}, "VALIDATION_ERROR", "job_ids[0]"),
        (
            {"job_ids": [MISSING] * (IDS_MAX + 1), "action": "retry"},
            "VALIDATION_ERROR",
            "job_ids",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field_that_is_wrong(
    asked: dict[str, object], code: str, field: str
) -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        nest.put(MAIL)

        response = await nest.ask("POST", BULK, asked)

        status, given, _, where = problem(response)
        assert (status, given, where) == (400, code, field), response.body
        assert nest[MAIL].counts(MAIL) == {State.PENDING: 1}

    with_nest(test)


def test_nothing_named_is_nothing_done() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        assert (await at_once(nest, action="retry")).affected == 0
        assert (await at_once(nest, action="retry", job_ids=[])).affected == 0
        assert (await at_once(nest, action="retry", filter=None)).affected == 0

    with_nest(test)


def test_a_filter_needs_a_mirror_that_is_there_and_knows_all_jobs() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        mirror.is_away = True
        away = await nest.ask("POST", BULK, {"filter": {"state": ["dead"]}, "action": "retry"})
        mirror.is_away, mirror.is_whole = False, False
        partly = await nest.ask("POST", BULK, {"filter": {"state": ["dead"]}, "action": "retry"})

        assert problem(away)[:2] == (503, "MIRROR_UNAVAILABLE")
        assert problem(partly)[:2] == (503, "NOT_CAUGHT_UP")
        assert nest[MAIL].counts(MAIL) == {State.DEAD: 1}

    with_nest(test)


def test_only_an_operator_may_and_only_in_the_queues_of_the_key() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [die(nest, MAIL), die(nest, SMS)]
        named = {"job_ids": ids, "action": "retry"}
        moved = {"job_ids": ids[:1], "action": "move", "move_to_queue": SMS}

        reader = await nest.ask("POST", BULK, named, x_api_key="sk_read")
        named_all = await nest.ask("POST", BULK, named, x_api_key="sk_mail")
        moved_out = await nest.ask("POST", BULK, moved, x_api_key="sk_mail")

        assert problem(reader)[:2] == (403, "FORBIDDEN")
        assert problem(named_all)[:2] == (403, "FORBIDDEN")
        assert problem(moved_out)[:2] == (403, "FORBIDDEN")
        assert nest[MAIL].state(ids[0]) is nest[SMS].state(ids[1]) is State.DEAD

    with_nest(test, KEYS)


def test_a_filter_of_a_key_with_a_scope_means_only_its_queues() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [die(nest, MAIL), die(nest, SMS)]
        asked = {"filter": {"state": ["dead"]}, "action": "retry"}

        answer = read_answer(await nest.ask("POST", BULK, asked, x_api_key="sk_mail"))

        assert answer.affected == 1
        assert nest[MAIL].state(ids[0]) is State.PENDING
        assert nest[SMS].state(ids[1]) is State.DEAD

    with_nest(test, KEYS)


# What is done at once.


def test_each_action_does_what_it_does_to_one_job() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        dead = [die(nest, MAIL), die(nest, SMS)]
        fresh = [nest.put(MAIL), nest.put(SMS)]
        other = queue_of(0, 1)

        async def do(action: str, ids: list[str], **more: object) -> list[str]:
            answer = await at_once(nest, action=action, job_ids=ids, **more)
            assert (answer.affected, answer.skipped_total, answer.errors) == (len(ids), 0, 0)
            return [
                nest[queue].state(job_id).value
                for job_id, queue in zip(ids, (MAIL, SMS), strict=True)
            ]

        assert await do("retry", dead) == ["pending", "pending"]
        assert await do("hold", fresh, reason="look") == ["held", "held"]
        assert await do("approve", fresh) == ["pending", "pending"]
        assert await do("hold", fresh) == ["held", "held"]
        assert await do("reject", fresh, reason="no") == ["dead", "dead"]
        assert await do("requeue", fresh) == ["pending", "pending"]
        assert await do("change_priority", fresh, priority="critical") == ["pending", "pending"]
        assert nest[SMS].job(fresh[1]).priority == 0
        assert await do("cancel", dead, reason="enough") == ["cancelled", "cancelled"]
        assert nest[MAIL].job(dead[0]).trail[-1].why == "enough"
        answer = await at_once(nest, action="move", job_ids=dead, move_to_queue=other)
        nest.deliver()
        assert answer.affected == 2
        assert [nest[other].job(job_id).queue for job_id in dead] == [other, other]
        answer = await at_once(nest, action="delete", job_ids=[*dead, *fresh])
        assert answer.affected == 4
        assert nest[MAIL].counts(MAIL) == nest[SMS].counts(SMS) == nest[other].counts(other) == {}

    with_nest(test)


def test_what_does_not_do_is_skipped_and_told() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        dead, pending = die(nest, MAIL), nest.put(SMS)

        answer = await at_once(nest, action="retry", job_ids=[MISSING, dead, pending, dead])

        assert (answer.affected, answer.skipped_total, answer.errors) == (1, 2, 0)
        assert answer.by_code == {"job_not_found": 1, "bad_state": 1}
        assert {each.job_id: each.code for each in answer.skipped} == {
            MISSING: "job_not_found",
            pending: "bad_state",
        }
        assert "expected completed, dead" in answer.skipped[-1].error

    with_nest(test)


def test_more_jobs_than_an_op_takes_are_all_done_and_told_with_their_position() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [nest.put(queue) for queue in (MAIL, SMS) for _ in range(250)]

        response = await nest.ask("POST", BULK, {"job_ids": ids, "action": "cancel"})

        assert read_answer(response).affected == 500
        assert nest[MAIL].counts(MAIL) == nest[SMS].counts(SMS) == {State.CANCELLED: 250}
        applied = [shard.machine.machine.applied for shard in nest.shards]
        assert header(response, "corvo-seq") == f"s0={applied[0]},s1={applied[1]}"

    with_nest(test)


def test_a_filter_is_done_at_once_where_it_means_few() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [die(nest, queue) for queue in (MAIL, SMS, MAIL)]
        nest.put(SMS)

        answer = await at_once(nest, filter={"state": ["dead"]}, action="requeue")

        assert (answer.affected, answer.skipped_total) == (3, 0)
        assert {nest[MAIL].state(ids[0]), nest[SMS].state(ids[1])} == {State.PENDING}

    with_nest(test)


def test_what_changed_since_it_was_counted_is_left_alone() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        changed, same = die(nest, MAIL), die(nest, MAIL)

        def change() -> None:
            if not mirror.asked:
                mirror.look()
            elif len(mirror.asked) == 1:  # the mirror does not know it when it selects
                nest[MAIL].do(Retry(job_ids=[changed]))

        mirror.before = change
        answer = await at_once(nest, filter={"queue": MAIL}, action="delete")

        assert (answer.affected, answer.by_code) == (1, {"changed_since": 1})
        assert [each.job_id for each in answer.skipped] == [changed]
        assert nest[MAIL].find(same) is None
        assert nest[MAIL].trail(changed)[-1] == "retried"

    with_nest(test)


@pytest.mark.parametrize(
    ("asked", "key", "states", "queues"),
    [
        ({"queue": MAIL}, "sk_all", {"dead": 2, "pending": 1}, {MAIL: 3}),
        ({"queue": MAIL, "state": "dead"}, "sk_all", {"dead": 2}, {MAIL: 2}),
        ({"state": ["dead", "pending"]}, "sk_all", {"dead": 3, "pending": 1}, {MAIL: 3, SMS: 1}),
        ({"state": ["dead", "pending"]}, "sk_mail", {"dead": 2, "pending": 1}, {MAIL: 3}),
        ({"queue": MAIL}, "sk_sms", {}, {}),
    ],
)
def test_with_a_mirror_that_lags_behind_a_dry_run_has_the_counts_of_the_shards(
    asked: dict[str, object], key: str, states: dict[str, int], queues: dict[str, int]
) -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        mirror.look()
        die(nest, MAIL)
        die(nest, SMS)
        nest.put(MAIL)
        bulk = {"job_ids": [MISSING], "action": "retry", "async": True}
        read_begun(await nest.ask("POST", BULK, bulk, x_api_key="sk_all"))

        answer = await nest.ask(
            "POST", BULK, {"filter": asked, "action": "retry", "dry_run": True}, x_api_key=key
        )

        told = read_answer(answer).dry_run
        assert told is not msgspec.UNSET
        assert (told.states, told.queues) == (states, queues)
        assert (told.total, told.is_exact) == (sum(states.values()), False)
        assert told.would_affect == states.get("dead", 0)

    with_nest(test, KEYS)


def test_a_filter_that_no_shard_counts_is_estimated_by_a_mirror_that_lags_behind() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        mirror.look()
        die(nest, MAIL)

        asked = {"state": ["dead"], "attempt_min": 1}
        begun = read_begun(await nest.ask("POST", BULK, {"filter": asked, "action": "retry"}))

        assert begun.estimated_total == 1

    with_nest(test)


def test_with_a_mirror_that_lags_behind_a_bulk_comes_later_and_says_about_how_many() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        mirror.look()
        die(nest, MAIL)

        begun = read_begun(await nest.ask("POST", BULK, {**DEAD, "action": "retry"}))
        status = await nest.read(BulkStatus, f"/api/v1/bulk/{begun.bulk_operation_id}")

        assert (begun.estimated_total, status.total_is_exact) == (2, False)

    with_nest(test)


def test_a_filter_means_the_jobs_as_they_are_when_it_is_asked() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        applied = [shard.machine.machine.applied for shard in nest.shards]

        await at_once(nest, filter={"queue": MAIL}, action="requeue")

        _, caller = mirror.asked[0]
        assert caller.min_seq == dict(enumerate(applied))

    with_nest(test)


def test_jobs_that_were_counted_and_not_found_again_are_skipped_as_changed() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [nest.put(MAIL) for _ in range(3)]

        def change() -> None:
            if mirror.asked:  # between the count and the selection
                nest[MAIL].do(Cancel(job_ids=ids[:2]))

        mirror.before = change
        answer = await at_once(nest, filter={"state": ["pending"]}, action="hold")

        assert (answer.affected, answer.skipped_total) == (1, 2)
        assert answer.by_code == {"changed_since": 2}
        assert answer.skipped == []

    with_nest(test)


def test_an_empty_filter_means_all_jobs_but_the_servers_own() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        nest.put(MAIL)
        own = nest.put(QUEUE, max_retries=1)
        nest.put(SMS)

        answer = await at_once(nest, filter={}, all=True, action="cancel")

        assert answer.affected == 2
        assert nest[QUEUE].state(own) is State.PENDING

    with_nest(test)


def test_a_shard_that_is_away_is_waited_for_and_then_told() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [nest.put(MAIL), nest.put(SMS)]
        nest.shards[0].is_away = True

        answer = await at_once(nest, action="cancel", job_ids=ids)
        nest.shards[1].is_away = True
        nothing = await nest.ask("POST", BULK, {"job_ids": ids, "action": "delete"})

        assert (answer.affected, answer.errors, answer.skipped_total) == (1, 1, 0)
        assert answer.by_code == {"LEADER_UNAVAILABLE": 1}
        assert [each.job_id for each in answer.skipped] == ids[:1]
        assert problem(nothing)[:2] == (503, "LEADER_UNAVAILABLE")

    with_nest(test)


# What it would do.


def test_a_dry_run_tells_which_jobs_are_meant_and_does_nothing() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        dead, pending, other = die(nest, MAIL), nest.put(MAIL), nest.put(SMS)
        filtered = {"filter": {"queue": MAIL}, "action": "retry", "dry_run": True}
        named = {"job_ids": [dead, other, MISSING], "action": "retry", "dry_run": True}

        by_filter, by_ids = [await would(nest, asked) for asked in (filtered, named)]

        assert (by_filter.total, by_filter.would_affect, by_filter.is_async) == (2, 1, False)
        assert by_filter.states == {"dead": 1, "pending": 1}
        assert by_filter.queues == {MAIL: 2}
        assert "dead" in by_filter.takes
        assert "pending" not in by_filter.takes
        assert (by_ids.total, by_ids.would_affect) == (2, 1)
        assert by_ids.queues == {MAIL: 1, SMS: 1}
        assert len(by_ids.samples) == len(by_filter.samples) == 2
        assert nest[MAIL].state(dead) is State.DEAD
        assert nest[MAIL].state(pending) is nest[SMS].state(other) is State.PENDING

    with_nest(test)


def test_a_dry_run_checks_every_job_that_is_named() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [job_id for queue in (MAIL, SMS) for job_id in put_many(nest, queue, 1_200)]
        nest[SMS].do(Cancel(job_ids=ids[-7:]))
        named = {"job_ids": [MISSING, *ids], "action": "retry", "dry_run": True}

        told = await would(nest, named)

        assert (told.total, told.is_exact, told.would_affect) == (2_400, True, 7)
        assert told.states == {"pending": 2_393, "cancelled": 7}
        assert told.queues == {MAIL: 1_200, SMS: 1_200}
        assert len(told.samples) == 10

    with_nest(test)


def put_many(nest: Nest, queue: str, count: int) -> list[str]:
    """New jobs, many in an entry."""
    made: list[str] = []
    for start in range(0, count, 400):
        nest[queue].pass_time(1)
        made += nest[queue].put(*[NewJob(queue=queue)] * min(400, count - start))
    return made


# What is put into the queue.


def test_a_bulk_that_is_to_come_later_is_a_job_with_all_that_it_needs() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        asked = {"filter": {"queue": MAIL}, "action": "retry", "async": True, "rate": 7}

        begun = read_begun(await nest.ask("POST", BULK, asked, x_api_key="sk_mail"))

        assert begun.bulk_operation_id == bulk_id_of(job_id_of(begun.bulk_operation_id))
        assert begun.progress_url == f"/api/v1/bulk/{begun.bulk_operation_id}/progress"
        assert (begun.status, begun.estimated_total) == ("queued", 1)
        job = nest[QUEUE].job(job_id_of(begun.bulk_operation_id))
        order = read_order(job.payload)
        assert (job.queue, job.kind) == (QUEUE, "retry")
        assert (order.by, order.queues, order.rate) == ("mail", (MAIL,), 7)
        assert sorted(order.bounds) == [0, 1, 2]

    with_nest(test, KEYS)


def test_a_bulk_becomes_a_job_when_it_is_large_or_would_take_long() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = [f"s00_job_{number:026}" for number in range(DIRECT_MAX + 1)]

        large = await nest.ask("POST", BULK, {"job_ids": ids, "action": "retry"})
        not_so = await nest.ask("POST", BULK, {"job_ids": ids[1:], "action": "retry"})
        slow = await nest.ask("POST", BULK, {"job_ids": ids[:6], "action": "retry", "rate": 1})

        assert read_begun(large).estimated_total == DIRECT_MAX + 1
        assert read_answer(not_so).by_code == {"job_not_found": DIRECT_MAX}
        assert read_begun(slow).estimated_total == 6

    with_nest(test)


def test_one_request_key_is_one_bulk() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        die(nest, MAIL)
        asked = {"filter": {"state": ["dead"]}, "action": "retry", "async": True}

        first = read_begun(await nest.ask("POST", BULK, asked, idempotency_key="k"))
        die(nest, MAIL)
        again = read_begun(await nest.ask("POST", BULK, asked, idempotency_key="k"))
        other = await nest.ask("POST", BULK, {**asked, "action": "delete"}, idempotency_key="k")
        without = read_begun(await nest.ask("POST", BULK, asked))

        assert again == first
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")
        assert without.bulk_operation_id != first.bulk_operation_id
        assert nest[QUEUE].counts(QUEUE) == {State.PENDING: 2}

    with_nest(test)


def test_a_bulk_is_seen_by_whoever_may_see_everything_or_asked_for_it() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        asked = {"filter": {"queue": MAIL}, "action": "retry", "async": True}
        bulk_id = read_begun(await nest.ask("POST", BULK, asked, x_api_key="sk_mail"))
        path = f"/api/v1/bulk/{bulk_id.bulk_operation_id}"

        seen = {
            key: (await nest.ask("GET", path, x_api_key=key)).status
            for key in ("sk_all", "sk_mail", "sk_sms", "sk_read")
        }
        listed = {
            key: (await nest.ask("GET", "/api/v1/bulk", x_api_key=key)).body.count(b'"status"')
            for key in ("sk_all", "sk_mail", "sk_sms")
        }
        stopped = [
            (await nest.ask("POST", f"{path}/cancel", x_api_key=key)).status
            for key in ("sk_sms", "sk_read", "sk_mail", "sk_mail")
        ]

        assert seen == {"sk_all": 200, "sk_mail": 200, "sk_sms": 404, "sk_read": 200}
        assert listed == {"sk_all": 1, "sk_mail": 1, "sk_sms": 0}
        assert stopped == [404, 403, 200, 409]

    with_nest(test, KEYS)


def test_a_bulk_is_in_the_list_when_it_was_accepted_whatever_the_mirror_knows() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        ids = []
        for number in range(5):
            asked = {"job_ids": [MISSING], "action": "retry", "async": True}
            key = f"k{number}" if number % 2 else ""
            begun = read_begun(await nest.ask("POST", BULK, asked, idempotency_key=key))
            ids.append(begun.bulk_operation_id)
            listed = await nest.read(BulkList, "/api/v1/bulk")
            assert [each.id for each in listed.bulks] == ids[::-1]
        nest[QUEUE].do(Cancel(job_ids=[job_id_of(ids[3])]))
        nest[QUEUE].do(Hold(job_ids=[job_id_of(ids[0])]))
        nest[QUEUE].fetch(QUEUE)

        listed = await nest.read(BulkList, "/api/v1/bulk")
        newest = await nest.read(BulkList, "/api/v1/bulk", query={"limit": "2"})

        statuses = ["queued", "cancelled", "queued", "running", "failed"]
        assert [(each.id, each.status) for each in listed.bulks] == [
            *zip(ids[::-1], statuses, strict=True)
        ]
        assert newest.bulks == listed.bulks[:2]
        assert not mirror.asked

    with_nest(test)


def test_a_bulk_that_waits_is_cancelled_at_once() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        asked = {"filter": {"queue": MAIL}, "action": "retry", "async": True}
        begun = read_begun(await nest.ask("POST", BULK, asked))
        path = f"/api/v1/bulk/{begun.bulk_operation_id}"

        before = await nest.read(BulkStatus, path)
        await nest.ask("POST", f"{path}/cancel")
        after = await nest.read(BulkStatus, path)

        assert (before.status, after.status) == ("queued", "cancelled")
        assert after.finished_at is not None

    with_nest(test)


def test_what_is_no_bulk_is_not_found() -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        job_id = nest.put(MAIL)

        for named in (job_id, bulk_id_of(job_id), "bulk_", "nothing", bulk_id_of(MISSING)):
            assert problem(await nest.ask("GET", f"/api/v1/bulk/{named}"))[:2] == (404, "NOT_FOUND")

    with_nest(test)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("enqueue", {"queue": QUEUE}, "queue"),
        ("enqueue/batch", {"jobs": [{"queue": "a"}, {"queue": "_corvo.x"}]}, "jobs[1].queue"),
        (
            "enqueue/batch",
            {"jobs": [{"queue": "a"}], "batch": {"callback_queue": QUEUE}},
            "batch.callback_queue",
        ),
        (
            "enqueue",
            {"queue": "a", "chain": {"steps": [{"queue": "a"}, {"queue": QUEUE}]}},
            "chain",
        ),
        ("fetch", {"queues": ["a", QUEUE]}, "queues[1]"),
        ("fetch/batch", {"queues": [QUEUE], "count": 2}, "queues[0]"),
        (f"jobs/{MISSING}/move", {"queue": QUEUE}, "queue"),
        (f"webhooks/{QUEUE}", {}, "queue"),
    ],
)
def test_the_servers_own_queues_are_not_for_others(
    path: str, body: dict[str, object], field: str
) -> None:
    async def test(nest: Nest, mirror: WalkingMirror) -> None:
        response = await nest.ask("POST", f"/api/v1/{path}", body)

        status, code, _, where = problem(response)
        assert (status, code, where) == (400, "VALIDATION_ERROR", field), response.body

    with_nest(test)


# Decisions.


def test_a_pace_lets_no_more_through_in_a_second_than_its_rate() -> None:
    pace, free = Pace(100), Pace(0)

    assert [pace.take(25, 10.0), pace.take(25, 10.0), pace.take(50, 10.0)] == [0.0, 0.25, 0.5]
    assert pace.take(1, 10.5) == pytest.approx(0.5)
    assert pace.take(1, 60.0) == 0.0
    assert free.take(1_000, 10.0) == 0.0


@pytest.mark.parametrize(
    ("rate", "of_op", "of_page"),
    [(0, 50, 1_000), (1, 1, 1), (7, 1, 7), (100, 25, 100), (50_000, 50, 1_000)],
)
def test_with_a_rate_a_page_is_what_a_second_has(rate: int, of_op: int, of_page: int) -> None:
    assert (op_jobs(rate), page_jobs(rate)) == (of_op, of_page)


def test_a_key_stands_for_one_op_of_one_bulk() -> None:
    keys = {
        key_of("bulk_1", 0, ["a", "b"]),
        key_of("bulk_1", 1, ["a", "b"]),
        key_of("bulk_2", 0, ["a", "b"]),
        key_of("bulk_1", 0, ["b", "a"]),
        key_of("bulk_1", 0, ["a"]),
    }

    assert len(keys) == 5
    assert key_of("bulk_1", 0, ["a", "b"]) in keys
    for key in keys:
        assert Delete(job_ids=["a"], request_key=key).request_key == key
        assert len(key) <= 64


def test_a_mark_counts_what_became_of_jobs_and_lists_the_first_that_were_skipped() -> None:
    mark = Mark()
    away = Problem(503, "LEADER_UNAVAILABLE", "away")

    mark.note([("a", Outcome("a", "retried")), ("b", away)])
    mark.note([(f"c{number}", Rejected("bad_state", "x" * 500)) for number in range(1_500)])

    assert (mark.processed, mark.affected, mark.errors, mark.skipped_total) == (1_502, 1, 1, 1_500)
    assert mark.by_code == {"LEADER_UNAVAILABLE": 1, "bad_state": 1_500}
    assert [each.job_id for each in mark.skipped[:3]] == ["b", "c0", "c1"]
    assert len(mark.skipped) == 1_000
    assert len(msgspec.json.encode(mark)) < 256 << 10
