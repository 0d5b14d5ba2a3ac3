"""Whoever asks for a bulk operation: under a key, within a scope, and watching it."""

import msgspec
import pytest
import trio

from corvo.model import State
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.jobs import Cancel, Hold, Move
from corvo.router.auth.keyring import hash_key
from corvo.router.bulk import requests
from corvo.router.bulk.requests import (
    QUEUE,
    BulkAnswer,
    BulkBegun,
    BulkEvent,
    BulkStatus,
    job_id_of,
)
from corvo.router.http import positions
from corvo.router.shards.addressing import Addresses
from tests.router.crews import (
    BULK,
    FAX,
    KEYS,
    LATER,
    MAIL,
    SMS,
    Crew,
    begin,
    with_crew,
    words_of,
)
from tests.router.nests import Nest, die


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


def test_a_long_one_comes_further_however_many_go_before_it() -> None:
    async def test(nest: Nest, crew: Crew) -> None:
        ids = [nest.put(MAIL) for _ in range(60)]
        bulk_id = await begin(nest, job_ids=ids, action="cancel", rate=10)
        nest.api.bulks_waited_for.add("one after the other")

        await crew.work()

        status = await crew.status(bulk_id)
        assert (status.status, status.affected) == ("completed", 60)
        assert words_of(nest, job_id_of(bulk_id)).count("released") == 5

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
        ids = [f"{'x' * 100}{number}" for number in range(requests.IDS_MAX)]

        refused = await nest.ask("POST", BULK, {"job_ids": ids, "action": "cancel"})

        body = msgspec.json.decode(refused.body, type=dict[str, object])
        assert (refused.status, body["field"]) == (413, "job_ids")
        assert "filter" in str(body["error"])

    with_crew(test)


# Watching it.


class Reader:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.is_slow = False

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
