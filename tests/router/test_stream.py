"""Streams over shards in memory: frames, their order, their bounds, and how it all ends."""

from typing import Final

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo.protocol.ops.base import Limits as OpLimits
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.work import Acked, Fetch, LeaseResults
from corvo.protocol.queries import Whereabouts
from corvo.router.config import Limits
from corvo.router.http.messages import UNKNOWN, Problem, Request
from corvo.router.leases.verbs import VERBS
from corvo.router.shards.links import Answer
from corvo.router.stream.frames import Frame
from corvo.router.stream.stream import UNSENT_BYTES_MAX, _close, run_stream
from tests.router.streaming import (
    BULK,
    JSON,
    MAIL,
    Line,
    Node,
    codes,
    fetch,
    jobs_of,
    put,
    stream_to,
    words,
)
from tests.support.links import jumping

# Frames.


@jumping
async def test_a_jobs_whole_life_fits_into_three_frames() -> None:
    async with stream_to(Node()) as line:
        made = await line.ask(enqueues=put(2))
        given = await line.ask(fetch=fetch(count=5))
        done, failed = words(given)
        said = await line.ask(acks=[done], fails=[{**failed, "error": "no", "retryable": False}])

        assert codes(made, "enqueued") == ["pending", "pending"]
        assert [job["payload"] for job in jobs_of(given)] == [0, 1]
        assert codes(said, "acked") == ["completed"]
        assert codes(said, "failed") == ["dead"]
        assert given["seq"] == "s0=2"
        assert said["seq"] == "s0=4"


@jumping
async def test_a_frame_tells_of_the_last_that_it_did() -> None:
    async with stream_to(Node()) as line:
        first = await line.ask(enqueues=put(), fetch=fetch())
        second = await line.ask(acks=words(first), enqueues=put(), fetch=fetch())

        assert (first["seq"], second["seq"]) == ("s0=2", "s0=5")


@jumping
async def test_what_goes_through_a_stream_is_counted() -> None:
    node = Node()
    async with stream_to(node) as line:
        given = await line.ask(enqueues=[*put(2), {"queue": MAIL, "id": "x"}], fetch=fetch(count=3))
        done, other, failed = words(given)
        await line.ask(
            acks=[done, other, {"job_id": "s00_job_none"}],
            fails=[failed, {"job_id": "s00_job_none"}],
            enqueues=[{"queue": MAIL, "id": "x"}],
        )

        counted = node.api.metrics.throughput
        assert counted.enqueued_total == 3
        assert counted.completed_total == 2
        assert counted.failed_total == 1


@jumping
async def test_a_queue_that_is_named_twice_is_asked_once() -> None:
    node = Node()
    async with stream_to(node) as line:
        await line.ask(fetch=fetch(MAIL, BULK, MAIL))

        assert [op.queues for _, op in node.ops if isinstance(op, Fetch)] == [[MAIL], [BULK]]


@jumping
async def test_an_answer_has_only_the_parts_that_its_frame_had() -> None:
    async with stream_to(Node()) as line:
        assert await line.ask() == {"id": 1}
        nothing = await line.ask(fetch=fetch())
        assert nothing.keys() == {"id", "jobs", "seq"}
        beat = await line.ask(heartbeats=[{"job_id": "s00_job_none"}])
        assert beat.keys() == {"id", "heartbeats", "seq"}


@jumping
async def test_each_frame_is_answered_in_its_own_format() -> None:
    packed = msgspec.msgpack.encode(
        {"id": 8, "enqueues": [{"queue": MAIL, "payload": b'{"n": 1}'}], "fetch": fetch()}
    )
    async with stream_to(Node()) as line:
        line.say(packed)
        in_msgpack = await line.hear()
        in_json = await line.ask(heartbeats=words(in_msgpack))

        assert jobs_of(in_msgpack)[0]["payload"] == b'{"n": 1}'
        assert in_msgpack["id"] == 8
        assert codes(in_json, "heartbeats") == ["ok"]


@jumping
async def test_a_frame_reaches_all_shards_and_tells_how_far_they_have_come() -> None:
    async with stream_to(Node()) as line:
        reply = await line.ask(enqueues=[*put(1, BULK), *put(2, MAIL), *put(1, BULK)])

        assert [str(job["job_id"])[:3] for job in jobs_of(reply, "enqueued")] == [
            "s01",
            "s00",
            "s00",
            "s01",
        ]
        assert reply["seq"] == "s0=1,s1=1"


# Order.


@jumping
async def test_the_parts_of_a_frame_are_sent_in_their_order() -> None:
    node = Node()
    async with stream_to(node) as line:
        given = await line.ask(enqueues=put(5), fetch=fetch(count=5))
        ack, fail, beat, release, snooze = words(given)
        node.ops.clear()

        await line.ask(
            fetch=fetch(),
            enqueues=put(),
            snoozes=[snooze | {"delay_ms": 5}],
            releases=[release],
            heartbeats=[beat],
            fails=[fail],
            acks=[ack],
        )

        assert node.said == [
            "0 Ack",
            "0 Fail",
            "0 Heartbeat",
            "0 Release",
            "0 Snooze",
            "0 Enqueue",
            "0 Fetch",
        ]


@jumping
async def test_jobs_are_given_back_and_snoozed_each_by_itself() -> None:
    async with stream_to(Node()) as line:
        given = await line.ask(enqueues=put(3), fetch=fetch(count=3))
        release, snooze, other = words(given)
        lost = other | {"lease_token": 999}

        reply = await line.ask(
            releases=[release | {"reason": "stopping", "checkpoint": [1]}, lost],
            snoozes=[snooze | {"delay": "1m"}, other, lost | {"delay_ms": 1}],
        )
        again = await line.ask(releases=[release], snoozes=[snooze | {"delay": "1m"}])
        found = await line.ask(fetch=fetch(count=3))

    assert codes(reply, "released") == ["pending", "LEASE_LOST"]
    assert codes(reply, "snoozed") == ["scheduled", "VALIDATION_ERROR", "LEASE_LOST"]
    assert codes(again, "released") + codes(again, "snoozed") == ["pending", "scheduled"]
    [job] = jobs_of(found)
    assert (job["job_id"], job["attempt"], job["checkpoint"]) == (release["job_id"], 1, [1])


@jumping
async def test_frames_are_begun_in_order_and_whole() -> None:
    node = Node()
    async with stream_to(node) as line:
        for number in range(20):
            line.say({"id": number, "enqueues": put(), "fetch": fetch()})
        for _ in range(20):
            await line.hear()

        assert node.said == ["0 Enqueue", "0 Fetch"] * 20


@jumping
async def test_a_frame_that_takes_long_to_read_is_not_overtaken() -> None:
    node = Node()
    async with stream_to(node) as line:
        for number, count in enumerate((700, 1, 300, 2)):
            line.say({"id": number, "enqueues": put(count)})
        for _ in range(4):
            await line.hear()

        assert [len(op.jobs) for _, op in node.ops if isinstance(op, Enqueue)] == [700, 1, 300, 2]


@jumping
async def test_a_fetch_sees_what_its_own_frame_has_enqueued_and_made_free() -> None:
    node = Node()
    async with stream_to(node) as line:
        first = await line.ask(enqueues=put(), fetch=fetch())
        second = await line.ask(acks=words(first), enqueues=put(), fetch=fetch())

        assert len(jobs_of(first)) == 1
        assert len(jobs_of(second)) == 1


@jumping
async def test_a_fetch_that_waits_holds_up_no_later_frame() -> None:
    async with stream_to(Node()) as line:
        line.say({"id": 1, "fetch": fetch(wait_ms=30_000)})
        await wait_all_tasks_blocked()
        line.say({"id": 2, "enqueues": put()})

        made, given = await line.hear(), await line.hear()

        assert (made["id"], given["id"]) == (2, 1)
        assert len(jobs_of(given)) == 1


@jumping
async def test_what_comes_with_a_fetch_does_not_wait_for_it() -> None:
    node = Node()
    async with stream_to(node) as line:
        given = await line.ask(enqueues=put(), fetch=fetch())
        began = trio.current_time()
        line.say({"id": 2, "acks": words(given), "fetch": fetch(wait_ms=20_000)})
        await wait_all_tasks_blocked()

        assert node.said[-3:] == ["0 Ack", "0 Fetch", "0 Fetch"]
        assert line.heard() == []
        reply = await line.hear()
        assert codes(reply, "acked") == ["completed"]
        assert jobs_of(reply) == []
        assert trio.current_time() - began == pytest.approx(20)


@jumping
async def test_a_fetch_that_found_something_asks_no_more() -> None:
    node = Node()
    async with stream_to(node) as line:
        reply = await line.ask(enqueues=put(), fetch=fetch(count=2, wait_ms=20_000))

        assert len(jobs_of(reply)) == 1
        assert node.said == ["0 Enqueue", "0 Fetch"]


@jumping
async def test_a_wait_is_cut_to_what_the_server_allows() -> None:
    async with stream_to(Node(Limits(fetch_wait_s_max=3))) as line:
        began = trio.current_time()

        await line.ask(fetch=fetch(wait_ms=60_000))

        assert trio.current_time() - began == pytest.approx(3)


# What does not work.


@jumping
async def test_a_bad_item_holds_up_no_other() -> None:
    node = Node()
    async with stream_to(node) as line:
        given, other = words(await line.ask(enqueues=put(2), fetch=fetch(count=2)))
        large = "x" * (1 << 20)

        reply = await line.ask(
            acks=[
                {"job_id": "s00_job_none"},
                {"job_id": "s77_job_none"},
                {**given, "result": large},
                given,
            ],
            fails=[{"job_id": "s00_job_none", "retry_after": "soon"}, {"job_id": "s00_job_none"}],
            heartbeats=[{**other, "progress": large}, {**other, "checkpoint": large}, other],
            enqueues=[
                {"queue": MAIL, "priority": "asap"},
                {"queue": "a\nb"},
                {"queue": MAIL, "payload": large},
                {"queue": MAIL},
                {"queue": MAIL, "batch_id": "mine"},
            ],
        )

        assert codes(reply, "acked") == [
            "NOT_FOUND",
            "NOT_FOUND",
            "PAYLOAD_TOO_LARGE",
            "completed",
        ]
        assert codes(reply, "failed") == ["VALIDATION_ERROR", "NOT_FOUND"]
        assert codes(reply, "heartbeats") == ["error", "error", "ok"]
        assert codes(reply, "enqueued") == [
            "VALIDATION_ERROR",
            "VALIDATION_ERROR",
            "PAYLOAD_TOO_LARGE",
            "pending",
            "VALIDATION_ERROR",
        ]
        assert [job["job_id"] is None for job in jobs_of(reply, "enqueued")] == [
            True,
            True,
            True,
            False,
            True,
        ]


@jumping
async def test_a_shard_that_is_away_spoils_only_its_own_items() -> None:
    node = Node()
    away = Problem(503, "LEADER_UNAVAILABLE", "nobody leads", retry_after_ms=10)
    async with stream_to(node) as line:
        node.shards[1].has_leader = False
        node.shards[1].problems = [away, away]

        reply = await line.ask(enqueues=[*put(1, MAIL), *put(1, BULK)], fetch=fetch(BULK))

        assert codes(reply, "enqueued") == ["pending", "LEADER_UNAVAILABLE"]
        assert msgspec.convert(reply["fetch_error"], JSON)["code"] == "LEADER_UNAVAILABLE"
        assert "error" not in reply


@jumping
async def test_shards_that_are_away_are_waited_for_together() -> None:
    node = Node()
    async with stream_to(node) as line:
        began = trio.current_time()
        for shard in node.shards:
            shard.has_leader, shard.late_s = False, 3

        await line.ask(enqueues=[*put(1, MAIL), *put(1, BULK)])

        assert trio.current_time() - began == pytest.approx(3)


@jumping
async def test_a_frame_that_is_no_good_is_refused_and_the_stream_goes_on() -> None:
    node = Node()
    async with stream_to(node) as line:
        refused = await line.ask(enqueues=[{"queue": MAIL}, {"payload": 1}])
        fine = await line.ask(enqueues=put())

        error = msgspec.convert(refused["error"], JSON)
        assert (error["field"], error["outcome"]) == ("enqueues[1].queue", "not_applied")
        assert codes(fine, "enqueued") == ["pending"]
        assert len(node.ops) == 1


LOST: Final = Problem(503, "OUTCOME_UNKNOWN", "it went away", outcome=UNKNOWN)


@jumping
async def test_a_word_under_a_token_whose_fate_is_unknown_is_said_again() -> None:
    node = Node()
    async with stream_to(node) as line:
        [given] = words(await line.ask(enqueues=put(), fetch=fetch()))
        node.shards[0].problems = [LOST]

        reply = await line.ask(acks=[given])

        assert codes(reply, "acked") == ["completed"]


@jumping
async def test_a_word_without_a_token_whose_fate_is_unknown_is_not() -> None:
    node = Node()
    async with stream_to(node) as line:
        [given] = words(await line.ask(enqueues=put(), fetch=fetch()))
        node.shards[0].problems = [LOST]

        reply = await line.ask(acks=[{"job_id": given["job_id"]}])

        assert [item["outcome"] for item in jobs_of(reply, "acked")] == ["unknown"]


@jumping
async def test_enqueues_under_a_key_are_made_once() -> None:
    node = Node()
    async with stream_to(node) as line:
        frame = {"enqueues": [*put(2, MAIL), *put(2, BULK)], "request_key": "k"}
        first = await line.ask(**frame)
        again = await line.ask(**frame)
        other = await line.ask(enqueues=put(3, MAIL), request_key="k")

        assert jobs_of(first, "enqueued") == jobs_of(again, "enqueued")
        assert codes(other, "enqueued") == ["REQUEST_KEY_REUSED"] * 3
        [given] = [await line.ask(fetch=fetch(MAIL, BULK, count=9))]
        assert len(jobs_of(given)) == 4


@jumping
async def test_a_key_with_other_items_is_refused() -> None:
    async with stream_to(Node(shards=1)) as line:
        await line.ask(enqueues=put(2), request_key="k")
        other = await line.ask(enqueues=put(3), request_key="k")

        assert codes(other, "enqueued") == ["REQUEST_KEY_REUSED"] * 3


# Where jobs are.


@jumping
async def test_a_job_with_an_id_of_the_clients_own_is_found() -> None:
    node = Node()
    async with stream_to(node) as line:
        await line.ask(enqueues=[{"queue": BULK, "id": "mine"}])
        given = words(await line.ask(fetch=fetch(BULK)))
        node.ops.clear()

        beat = await line.ask(heartbeats=given)
        done = await line.ask(acks=given)

        assert codes(beat, "heartbeats") == ["ok"]
        assert codes(done, "acked") == ["completed"]
        assert node.said[-1] == "1 Ack"
        assert node.said.count("0 Ack") == 0


@jumping
async def test_where_a_job_with_an_id_without_a_queue_was_seen_is_remembered() -> None:
    node = Node()
    addresses = node.api.addresses
    node.shards[1].machine.put(NewJob(queue=BULK, id="old"))
    node.shards[0].machine.put(NewJob(queue=MAIL, id="other"))
    async with stream_to(node) as line:
        await line.ask(fetch=fetch(BULK))
        assert addresses.candidates("old") == [1, 0]
        addresses._remembered.clear()

        given = words(await line.ask(fetch=fetch(MAIL)))
        addresses._remembered.clear()
        await line.ask(heartbeats=given)
        assert addresses._remembered == {"other": 0}


@jumping
async def test_a_job_that_has_moved_is_followed() -> None:
    node = Node()
    async with stream_to(node) as line:
        moved = Rejected("job_moved", "it is elsewhere", shard=1)
        told = Answer(encode_json(LeaseResults([moved])), 7)
        done = Answer(encode_json(LeaseResults([Acked("s00_job_x", "completed")])), 9)
        node.shards[0].told = [told]
        node.shards[1].known = [Answer(encode_json(Whereabouts({"s00_job_x": BULK}, {})), 8)]
        node.shards[1].told = [done]

        reply = await line.ask(acks=[{"job_id": "s00_job_x"}])

        assert codes(reply, "acked") == ["completed"]
        assert reply["seq"] == "s0=7,s1=9"


# Bounds.


@jumping
async def test_no_more_frames_are_begun_than_may_be_under_way() -> None:
    node = Node(Limits(stream_frames_max=3))
    async with stream_to(node) as line:
        node.shards[0].gate = trio.Event()
        for number in range(10):
            line.say({"id": number, "enqueues": put()})
        await wait_all_tasks_blocked()

        assert len(node.ops) == 3
        assert line.unread == 7
        node.shards[0].gate.set()
        assert {(await line.hear())["id"] for _ in range(10)} == {*range(10)}


@jumping
async def test_nothing_is_read_while_much_waits_to_be_sent() -> None:
    node = Node()
    async with stream_to(node) as line:
        large = "x" * (1 << 20 - 1)
        count = UNSENT_BYTES_MAX // len(large) + 2
        for _ in range(count):
            await line.ask(enqueues=[{"queue": MAIL, "payload": large}])
        line.is_read = trio.Event()
        for number in range(count):
            line.say({"id": number, "fetch": fetch()})
            await wait_all_tasks_blocked()

        assert line.unread == 1
        line.is_read.set()
        for _ in range(count):
            await line.hear()


@jumping
async def test_a_large_frame_is_carried_in_several_ops() -> None:
    node = Node()
    async with stream_to(node) as line:
        large = "x" * (1 << 20 - 1)
        reply = await line.ask(enqueues=[{"queue": MAIL, "payload": large}] * 14)

        assert codes(reply, "enqueued") == ["pending"] * 14
        assert len(node.ops) > 1
        assert all(len(encode_json(op)) <= OpLimits().op_bytes_max for _, op in node.ops)


@jumping
async def test_text_that_is_longer_in_json_than_in_msgpack_is_carried_in_several_ops() -> None:
    node = Node()
    failed = {"job_id": "s00_job_none", "backtrace": "\x01" * 60_000}
    async with stream_to(node) as line:
        line.say(msgspec.msgpack.encode({"id": 1, "fails": [failed] * 30}))
        reply = await line.hear()

        assert codes(reply, "failed") == ["NOT_FOUND"] * 30
        assert len(node.ops) > 1


@jumping
async def test_a_frame_that_is_too_large_ends_the_stream() -> None:
    async with stream_to(Node(Limits(body_bytes_max=1_000))) as line:
        line.say({"id": 1, "colour": "x" * 1_000})
        await line.ended.wait()

        assert line.farewell is not None
        assert line.farewell[0] == 1009


@jumping
async def test_one_stream_too_many_is_asked_to_try_again() -> None:
    node = Node(Limits(streams_max=1))
    async with stream_to(node) as first:
        await first.ask()
        second = Line()
        request = Request(method="GET", path="/api/v1/stream")

        await run_stream(node.api, request, second)

        assert second.farewell == (1013, "1 streams are open, and there is no room")
        assert await first.ask() == {"id": 1}


# Who may.


@jumping
async def test_a_producer_may_enqueue_and_nothing_else() -> None:
    node = Node()
    node.take_key("secret", "producer")
    async with stream_to(node, x_api_key="secret") as line:
        refused = await line.ask(enqueues=put(), fetch=fetch())
        made = await line.ask(enqueues=put())

        assert msgspec.convert(refused["error"], JSON)["code"] == "FORBIDDEN"
        assert codes(made, "enqueued") == ["pending"]
        assert len(node.ops) == 1


@jumping
async def test_a_reader_may_do_nothing_here() -> None:
    node = Node()
    node.take_key("secret", "readonly")
    async with stream_to(node, x_api_key="secret") as line:
        for verb in VERBS:
            refused = await line.ask(**{verb.part: [{"job_id": "j"}]})
            assert msgspec.convert(refused["error"], JSON)["code"] == "FORBIDDEN"
        refused = await line.ask(enqueues=put())

        assert msgspec.convert(refused["error"], JSON)["code"] == "FORBIDDEN"
        assert node.ops == []


@jumping
async def test_a_key_for_some_queues_reaches_no_others() -> None:
    node = Node()
    async with stream_to(node) as line:
        theirs = words(await line.ask(enqueues=put(1, BULK), fetch=fetch(BULK)))
    node.take_key("secret", "worker", MAIL)
    node.ops.clear()
    chain = {"steps": [{"queue": MAIL}, {"queue": BULK}]}
    cases: list[tuple[str, object]] = [
        ("enqueues", [*put(), *put(1, BULK)]),
        ("enqueues", [{"queue": MAIL, "chain": chain}]),
        ("enqueues", [{"queue": MAIL, "depends_on": [theirs[0]["job_id"]]}]),
        ("fetch", fetch(MAIL, BULK)),
        ("acks", theirs),
        ("fails", theirs),
        ("heartbeats", theirs),
        ("releases", theirs),
        ("snoozes", [theirs[0] | {"delay_ms": 5}]),
    ]
    parts = {*Frame.__struct_fields__} - {"id", "request_key"}
    assert {part for part, _ in cases} == parts, "every part of a frame has a case"
    async with stream_to(node, x_api_key="secret") as line:
        for part, foreign in cases:
            refused = await line.ask(**{part: foreign})
            assert msgspec.convert(refused["error"], JSON)["code"] == "FORBIDDEN", part
        assert node.ops == []

        given = await line.ask(enqueues=put(), fetch=fetch())
        done = await line.ask(acks=words(given))

        assert codes(done, "acked") == ["completed"]


@jumping
async def test_a_frame_costs_what_its_items_would() -> None:
    node = Node(Limits(write_rate=1, write_burst=10))
    async with stream_to(node) as line:
        fine = await line.ask(enqueues=put(4), fetch=fetch(count=4))
        much = await line.ask(enqueues=put(4))

        assert codes(fine, "enqueued") == ["pending"] * 4
        error = msgspec.convert(much["error"], JSON)
        assert (error["code"], error["retry_after_ms"]) == ("RATE_LIMITED", 2_000)


@jumping
async def test_a_key_that_was_revoked_ends_the_stream() -> None:
    node = Node()
    node.take_key("secret", "worker")
    async with stream_to(node, x_api_key="secret") as line:
        await line.ask(enqueues=put())
        node.take_key("another", "worker")
        line.say({"id": 2, "fetch": fetch()})
        await line.ended.wait()

        assert line.farewell == (1008, "invalid API key")
        assert node.said == ["0 Enqueue"]


# How it ends.


@jumping
async def test_what_was_claimed_for_a_client_that_went_is_given_back() -> None:
    node = Node()
    async with stream_to(node) as line:
        await line.ask(enqueues=put(2))
        node.shards[0].gate = trio.Event()
        line.say({"id": 2, "fetch": fetch(count=2)})
        await wait_all_tasks_blocked()
        line.hang_up()
        await wait_all_tasks_blocked()
        node.shards[0].gate.set()
        await line.ended.wait()

    async with stream_to(node) as line:
        given = await line.ask(fetch=fetch(count=9))
        assert [job["attempt"] for job in jobs_of(given)] == [1, 1]
        assert node.api.fetching.given_back == 2


@jumping
async def test_what_could_not_be_sent_is_given_back() -> None:
    node = Node()
    async with stream_to(node) as line:
        await line.ask(enqueues=put())
        line.is_broken = True
        line.say({"id": 2, "fetch": fetch()})
        await line.ended.wait()

        assert node.said[-1] == "0 Release"
        assert line.farewell is None


@jumping
async def test_a_client_that_does_not_read_is_sent_away_and_its_jobs_are_given_back() -> None:
    node = Node(Limits(send_ms=5_000))
    async with stream_to(node) as line:
        await line.ask(enqueues=put(2))
        began = trio.current_time()
        line.is_read = trio.Event()
        for number in range(3):
            line.say({"id": number, "fetch": fetch()})
        await line.ended.wait()

        assert 5 <= trio.current_time() - began <= 7
        assert node.api.fetching.given_back == 2


@jumping
async def test_a_wait_ends_with_its_client() -> None:
    node = Node()
    async with stream_to(node) as line:
        began = trio.current_time()
        line.say({"id": 1, "fetch": fetch(wait_ms=30_000)})
        await wait_all_tasks_blocked()
        line.hang_up()
        await line.ended.wait()

        assert node.api.fetching.parked == 0
        assert trio.current_time() == began


@jumping
async def test_a_server_that_stops_answers_what_it_has_begun() -> None:
    node = Node()
    async with stream_to(node) as line:
        await line.ask(enqueues=put())
        node.shards[0].gate = trio.Event()
        line.say({"id": 2, "fetch": fetch()})
        line.say({"id": 3, "fetch": fetch(BULK, wait_ms=30_000)})
        await wait_all_tasks_blocked()
        node.api.stop()
        await wait_all_tasks_blocked()
        line.say({"id": 4, "enqueues": put()})
        await wait_all_tasks_blocked()
        node.shards[0].gate.set()
        await line.ended.wait()

        replies = {reply["id"]: len(jobs_of(reply)) for reply in line.heard()}
        assert replies == {2: 1, 3: 0}
        assert line.farewell is not None
        assert line.farewell[0] == 1001
        assert line.unread == 1


@jumping
async def test_a_stream_that_is_cut_while_the_server_stops_gives_its_claims_back() -> None:
    node = Node()
    line = Line()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_stream, node.api, Request(method="GET", path="/"), line)
        await line.ask(enqueues=put())
        line.is_read = trio.Event()
        line.say({"id": 2, "fetch": fetch()})
        await wait_all_tasks_blocked()
        node.api.stop()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert node.said[-1] == "0 Release"
    assert node.api.streams == 0


@pytest.mark.parametrize("message", ["hello", "{}", b"\xc1", ""])
@jumping
async def test_what_is_no_frame_ends_the_stream(message: bytes | str) -> None:
    async with stream_to(Node()) as line:
        line.say(message)
        await line.ended.wait()

        assert line.farewell is not None
        assert line.farewell[0] == 1007
        assert line.farewell[1].startswith("no frame: ")


@jumping
async def test_a_reason_fits_into_a_close_frame() -> None:
    line = Line()

    await _close(line, 1008, "\u00e9" * 300)

    assert line.farewell == (1008, "?" * 120)
