"""What workers ask for: the routes of fetch, ack, fail, heartbeat and their like, over shards."""

from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo.model import Job, State
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel
from corvo.protocol.ops.work import Ack, Fetch, Release
from corvo.protocol.ops.workflow import NewAgent
from corvo.router.api import Api
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, Request, Response
from corvo.router.leases.verbs import beat_answer
from corvo.router.shards.outcomes import Outcome
from corvo.router.table import ROUTES
from corvo.scopes import EVERYTHING, Scope
from tests.router.machines import JSON, MachineShard, Node, json_of, queue_of
from tests.shard.processes import config_in, running
from tests.support.links import jumping, on_sockets

GONE: Final = Problem(503, "LEADER_UNAVAILABLE", "shard 1 has no leader", retry_after_ms=1_000)
LOST: Final = Problem(503, "OUTCOME_UNKNOWN", "shard 1 went away", outcome="unknown")
STOPPED: Final = "cancelled".replace("ll", "l")  # the original's spelling
ANN: Final = Caller(name="ann", role="worker", key_hash="x", scope=EVERYTHING)


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


# Fetching.


def put(node: Node, queue: str, count: int = 1, **fields: object) -> list[str]:
    new = NewJob(queue=queue)
    return node[queue].shard.put(*[msgspec.structs.replace(new, **fields)] * count)  # type: ignore[arg-type]


def given_jobs(response: Response) -> list[JSON]:
    assert response.status == 200, response.body
    return msgspec.convert(json_of(response)["jobs"], list[JSON])


@jumping
async def test_a_fetch_is_given_a_job_and_its_place_in_the_log() -> None:
    node = Node()
    [job_id] = put(node, "mail", payload=raw(b'{"to":"a"}'))

    response = await node.ask("/api/v1/fetch", {"queues": ["mail"], "worker_id": "w"})

    answer = json_of(response)
    stored = node["mail"].shard.job(job_id)
    assert response.headers == [("corvo-seq", f"s{node['mail'].number}=2")]
    assert (answer["job_id"], answer["payload"], answer["attempt"]) == (job_id, {"to": "a"}, 1)
    assert answer["lease_token"] == stored.lease_token
    assert (stored.state, stored.worker_id) == (State.ACTIVE, "w")


@jumping
async def test_a_fetch_that_finds_nothing_in_its_time_has_no_body() -> None:
    node = Node()

    one = await node.ask("/api/v1/fetch", {"queues": ["mail"], "timeout": 5})
    waited = trio.current_time()
    many = await node.ask("/api/v1/fetch/batch", {"queues": ["mail"], "wait_seconds": 0})

    assert (one.status, one.body, one.undelivered) == (204, b"", None)
    assert (many.status, json_of(many), many.undelivered) == (200, {"jobs": []}, None)
    assert trio.current_time() == waited


@jumping
async def test_a_fetch_that_waits_is_given_what_comes() -> None:
    node = Node()
    answers: list[Response] = []

    async def wait() -> None:
        answers.append(await node.ask("/api/v1/fetch", {"queues": ["mail"]}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        await node.ask("/api/v1/enqueue", {"queue": "mail"})

    assert json_of(answers[0])["queue"] == "mail"


@jumping
async def test_a_batch_is_given_from_all_queues_in_their_order() -> None:
    node = Node()
    first, second = queue_of(1), queue_of(0)
    put(node, second, 2)
    put(node, first, 2)

    response = await node.ask("/api/v1/fetch/batch", {"queues": [first, second], "count": 3})

    assert [job["queue"] for job in given_jobs(response)] == [first, first, second]


@jumping
async def test_an_answer_that_was_not_delivered_gives_the_jobs_back() -> None:
    node = Node()
    [job_id] = put(node, "mail")
    response = await node.ask("/api/v1/fetch", {"queues": ["mail"]})

    assert response.undelivered is not None
    await response.undelivered()

    stored = node["mail"].shard.job(job_id)
    assert (stored.state, stored.attempt) == (State.PENDING, 0)


@jumping
async def test_the_shard_of_a_chosen_id_is_remembered_when_the_job_goes_by() -> None:
    node = Node(shards=4)
    put(node, "mail", id="order-17")

    await node.ask("/api/v1/fetch", {"queues": ["mail"]})
    await node.ask("/api/v1/ack/order-17")

    asked = [shard.number for shard in node.shards if any(isinstance(op, Ack) for op in shard.ops)]
    assert asked == [node["mail"].number]


@pytest.mark.parametrize("path", ["fetch", "fetch/batch"])
def test_a_fetch_without_queues_is_refused(path: str) -> None:
    @jumping
    async def main() -> None:
        status, answer = await Node().get(f"/api/v1/{path}", {"worker_id": "w"})

        assert (status, answer["code"]) == (400, "VALIDATION_ERROR")
        assert answer["error"] == 'queues is required, such as ["mail","sms"]'

    main()


# Under a lease.


async def claimed(node: Node, queue: str = "mail", **fields: object) -> tuple[str, int]:
    """A job that was fetched, and its token."""
    put(node, queue, 1, **fields)
    answer = json_of(await node.ask("/api/v1/fetch", {"queues": [queue], "worker_id": "w"}))
    return str(answer["job_id"]), msgspec.convert(answer["lease_token"], int)


def stored(node: Node, job_id: str) -> Job:
    [job] = [job for shard in node.shards if (job := shard.shard.find(job_id)) is not None]
    return job


@jumping
async def test_an_ack_without_a_body_completes_the_job() -> None:
    node = Node()
    job_id, _ = await claimed(node)

    response = await node.ask(f"/api/v1/ack/{job_id}")

    assert (response.status, json_of(response)) == (200, {"status": "ok", "state": "completed"})
    assert response.headers == [("corvo-seq", f"s{node['mail'].number}=3")]
    assert stored(node, job_id).state is State.COMPLETED


@jumping
async def test_an_ack_says_all_that_it_has_to_say() -> None:
    node = Node()
    job_id, token = await claimed(node)

    body = {"result": {"sent": 1}, "checkpoint": [2], "lease_token": token, "worker_id": "w"}
    await node.ask(f"/api/v1/ack/{job_id}", body)

    job = stored(node, job_id)
    assert (job.result, job.checkpoint) == (b'{"sent":1}', b"[2]")
    assert job.trail[-1].by == "w"


@jumping
async def test_who_acknowledges_is_in_the_trail_by_the_key_if_no_worker_is_named() -> None:
    node = Node()
    job_id, _ = await claimed(node)

    await node.ask(f"/api/v1/ack/{job_id}", caller=ANN)

    assert stored(node, job_id).trail[-1].by == "ann"


@jumping
async def test_the_same_ack_under_its_token_is_answered_the_same() -> None:
    node = Node()
    job_id, token = await claimed(node)

    first = await node.ask(f"/api/v1/ack/{job_id}", {"lease_token": token})
    again = await node.ask(f"/api/v1/ack/{job_id}", {"lease_token": token})

    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body


WORDS: Final = (
    ("ack", "ACK_ERROR"),
    ("fail", "FAIL_ERROR"),
    ("release", "RELEASE_ERROR"),
    ("snooze", "SNOOZE_ERROR"),
)


@pytest.mark.parametrize(("word", "code"), WORDS)
def test_a_word_that_is_refused_says_why(word: str, code: str) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        [pending] = put(node, "mail")
        active, token = await claimed(node, "bill")
        said: dict[str, object] = {"delay": "1s"}

        missing = await node.get(f"/api/v1/{word}/s00_job_0", said)
        unknown = await node.get(f"/api/v1/{word}/no-such-job", said)
        state = await node.get(f"/api/v1/{word}/{pending}", said)
        stale = await node.get(f"/api/v1/{word}/{active}", said | {"lease_token": token + 1})

        told = [(status, answer["code"], answer["reason"], answer["outcome"]) for status, answer in
                (missing, unknown, state, stale)]  # fmt: skip
        assert told == [
            (404, "NOT_FOUND", "job_not_found", "not_applied"),
            (404, "NOT_FOUND", "job_not_found", "not_applied"),
            (409, code, "job_not_active", "not_applied"),
            (409, "LEASE_LOST", "lease_lost", "not_applied"),
        ]
        assert state[1]["job_id"] == pending
        assert stored(node, active).state is State.ACTIVE

    main()


@jumping
async def test_another_worker_is_refused_when_it_says_who_it_is() -> None:
    node = Node()
    job_id, _ = await claimed(node)

    status, answer = await node.get(f"/api/v1/ack/{job_id}", {"worker_id": "v"})

    assert (status, answer["code"]) == (409, "LEASE_LOST")


@jumping
async def test_a_request_key_of_a_word_is_brought_to_the_shard() -> None:
    node = Node()
    job_id, _ = await claimed(node)

    await node.ask(f"/api/v1/ack/{job_id}", key="k")
    status, _ = await node.get(f"/api/v1/ack/{job_id}", key="k")

    assert status == 200


@jumping
async def test_a_job_that_failed_is_told_of_its_next_attempt() -> None:
    node = Node()
    job_id, _ = await claimed(node, max_retries=2, retry_base_delay_ms=0)

    _, first = await node.get(f"/api/v1/fail/{job_id}", {"error": "smtp", "backtrace": ""})

    assert sorted(first) == ["attempts_remaining", "next_attempt_at", "status"]
    assert (first["status"], first["attempts_remaining"]) == ("retrying", 1)
    assert str(first["next_attempt_at"]).startswith("2023-11-14T22:13:20")


@jumping
async def test_a_job_that_failed_for_good_has_no_next_attempt() -> None:
    node = Node()
    job_id, _ = await claimed(node)

    answer = await node.get(f"/api/v1/fail/{job_id}", {"error": "smtp", "retryable": False})

    assert answer == (200, {"status": "dead", "attempts_remaining": 0})
    assert [error.error for error in node["mail"].shard.errors(job_id)] == ["smtp"]


@jumping
async def test_a_job_is_given_back_or_snoozed() -> None:
    node = Node()
    first, _ = await claimed(node)
    released = await node.get(f"/api/v1/release/{first}")
    second, _ = await claimed(node)
    snoozed = await node.get(f"/api/v1/snooze/{second}", {"delay": "1h"})

    assert released == (200, {"status": "ok", "state": "pending"})
    assert snoozed == (200, {"status": "ok", "state": "scheduled"})


# Many words.


async def many(node: Node, count: int = 2) -> list[str]:
    """Active jobs in both shards, by turns."""
    ids = []
    for number in range(count):
        job_id, _ = await claimed(node, queue_of(number % 2))
        ids.append(job_id)
    return ids


def sent(shard: MachineShard, kind: type[object]) -> int:
    return sum(isinstance(op, kind) for op in shard.ops)


@jumping
async def test_many_acks_are_answered_each_by_itself() -> None:
    node = Node()
    first, second, third = await many(node, 3)
    acks = [
        {"job_id": first, "result": 1},
        {"job_id": "s00_job_0"},
        {"job_id": second},
        {"job_id": third, "lease_token": 1},
    ]

    response = await node.ask("/api/v1/ack/batch", {"acks": acks})

    answer = msgspec.json.decode(response.body)
    assert (response.status, answer["acked"]) == (200, 2)
    assert answer["results"][0] == {"job_id": first, "status": "completed"}
    assert answer["results"][1] == {
        "job_id": "s00_job_0",
        "error": "job s00_job_0 not found",
        "code": "NOT_FOUND",
        "outcome": "not_applied",
        "reason": "job_not_found",
    }
    assert answer["results"][2]["status"] == "completed"
    assert answer["results"][3]["code"] == "LEASE_LOST"
    assert [sent(shard, Ack) for shard in node.shards] == [1, 1]


@jumping
async def test_many_acks_mean_what_each_would_mean_alone() -> None:
    node = Node(shards=1)
    agent, _ = await claimed(node, agent=NewAgent())
    acks = [{"job_id": agent, "agent_status": "continue", "usage": {"cost_usd": 0.25}}]

    _, answer = await node.get("/api/v1/ack/batch", {"acks": acks})

    job = stored(node, agent)
    assert answer["results"] == [{"job_id": agent, "status": "pending"}]
    assert job.agent is not None
    assert job.agent.total_cost_micros == 250_000


@jumping
async def test_many_are_snoozed_each_for_its_own_delay() -> None:
    node = Node()
    first, second = await many(node)
    body = {
        "jobs": [
            {"job_id": first, "delay": "1h", "reason": "later"},
            {"job_id": second, "delay_ms": 5, "checkpoint": {"page": 4}},
            {"job_id": "none", "delay_ms": 5},
            {"job_id": first, "delay_ms": 5},
        ]
    }

    status, answer = await node.get("/api/v1/snooze/batch", body)

    assert (status, answer["snoozed"]) == (200, 2)
    [one, two, missing, twice] = msgspec.convert(answer["results"], list[JSON])
    assert one == {"job_id": first, "status": "scheduled"}
    assert two == {"job_id": second, "status": "scheduled"}
    assert missing["reason"] == "job_not_found"
    assert twice["code"] == "SNOOZE_ERROR"
    jobs = stored(node, first), stored(node, second)
    assert [job.state for job in jobs] == [State.SCHEDULED] * 2
    assert jobs[0].scheduled_ns - jobs[1].scheduled_ns > 3_000 * 10**9
    assert (jobs[0].trail[-1].why, jobs[1].checkpoint) == ("later", b'{"page":4}')


@jumping
async def test_many_snoozes_under_one_request_key_are_the_same_again() -> None:
    node = Node()
    first, second = await many(node)
    body = {"jobs": [{"job_id": each, "delay": "1h"} for each in (first, second)]}

    answers = [await node.get("/api/v1/snooze/batch", body, key="k") for _ in range(2)]

    assert answers[0] == answers[1]
    assert answers[0][1]["snoozed"] == 2


@jumping
async def test_many_fails_and_releases_are_answered_each_by_itself() -> None:
    node = Node()
    first, second = await many(node)

    _, failed = await node.get(
        "/api/v1/fail/batch", {"fails": [{"job_id": first, "error": "x"}, {"job_id": "none"}]}
    )
    _, released = await node.get(
        "/api/v1/release/batch", {"jobs": [{"job_id": second}, {"job_id": first}]}
    )

    [failure, missing] = msgspec.convert(failed["results"], list[JSON])
    assert (failed["failed"], failure["status"], failure["attempts_remaining"]) == (
        1,
        "retrying",
        2,
    )
    assert "next_attempt_at" in failure
    assert missing["reason"] == "job_not_found"
    [back, gone] = msgspec.convert(released["results"], list[JSON])
    assert (released["released"], back) == (1, {"job_id": second, "status": "pending"})
    assert gone["code"] == "RELEASE_ERROR"


@jumping
async def test_one_result_that_is_too_large_does_not_hold_up_the_others() -> None:
    node = Node()
    ids = await many(node, 3)
    acks: list[JSON] = [{"job_id": job_id} for job_id in ids]
    acks[1]["result"] = "x" * (1 << 20)

    status, answer = await node.get("/api/v1/ack/batch", {"acks": acks})

    [_, refused, _] = msgspec.convert(answer["results"], list[JSON])
    assert (status, answer["acked"]) == (200, 2)
    assert (refused["job_id"], refused["code"]) == (ids[1], "PAYLOAD_TOO_LARGE")
    assert refused["error"] == "acks[1].result: expected at most 1048576 bytes"
    assert [stored(node, job_id).state for job_id in ids] == [
        State.COMPLETED,
        State.ACTIVE,
        State.COMPLETED,
    ]


@jumping
async def test_progress_that_is_too_large_does_not_cost_the_other_jobs_their_leases() -> None:
    node = Node()
    first, second = await many(node)
    jobs = {first: {"progress": "x" * (16 << 10)}, second: {}}

    _, answer = await node.get("/api/v1/heartbeat", {"jobs": jobs})

    told = msgspec.convert(answer["jobs"], dict[str, JSON])
    assert (told[first]["status"], told[first]["code"]) == ("error", "PAYLOAD_TOO_LARGE")
    assert told[second]["status"] == "ok"


@jumping
async def test_when_all_are_too_large_nothing_is_sent() -> None:
    node = Node()
    acks = [{"job_id": "j", "result": "x" * (1 << 20)}] * 2

    _, answer = await node.get("/api/v1/ack/batch", {"acks": acks})

    assert answer["acked"] == 0
    assert not any(shard.ops for shard in node.shards)


@pytest.mark.parametrize(
    ("job_id", "body", "status", "field"),
    [
        ("s00_job_0", {"result": "x" * (1 << 20)}, 413, "result"),
        ("x" * 385, {}, 400, "job_id"),
    ],
)
def test_a_word_that_is_refused_is_not_called_the_first_of_many(
    job_id: str, body: object, status: int, field: str
) -> None:
    @jumping
    async def main() -> None:
        answered, answer = await Node().get(f"/api/v1/ack/{job_id}", body)

        assert (answered, answer["field"]) == (status, field)
        assert "acks" not in str(answer["error"])

    main()


@jumping
async def test_a_shard_that_is_away_is_told_for_each_of_its_jobs() -> None:
    node = Node()
    first, second = await many(node)
    node.shards[1].problems = [GONE]

    status, answer = await node.get(
        "/api/v1/ack/batch", {"acks": [{"job_id": first}, {"job_id": second}]}
    )

    assert (status, answer["acked"]) == (200, 1)
    assert msgspec.convert(answer["results"], list[JSON])[1] == {
        "job_id": second,
        "error": "shard 1 has no leader",
        "code": "LEADER_UNAVAILABLE",
        "outcome": "not_applied",
        "retry_after_ms": 1_000,
    }


@jumping
async def test_many_words_under_a_key_are_said_once() -> None:
    node = Node()
    ids = await many(node, 4)
    body = {"fails": [{"job_id": job_id, "error": "x"} for job_id in ids]}

    first = await node.ask("/api/v1/fail/batch", body, key="k")
    again = await node.ask("/api/v1/fail/batch", body, key="k")

    assert json_of(first)["failed"] == 4
    assert first.body == again.body


@jumping
async def test_results_larger_than_an_op_are_said_in_parts() -> None:
    node = Node(shards=1)
    ids = [(await claimed(node))[0] for _ in range(7)]
    acks = [{"job_id": job_id, "result": "x" * 1_000_000} for job_id in ids]

    response = await node.ask("/api/v1/ack/batch", {"acks": acks}, key="k")

    assert json_of(response)["acked"] == 7
    assert sent(node.shards[0], Ack) == 3
    assert response.headers == [("corvo-seq", "s0=17")]


@pytest.mark.parametrize(
    ("path", "body", "field", "error"),
    [
        ("ack/batch", {}, "acks", "acks is required"),
        ("ack/batch", {"acks": []}, "acks", None),
        (
            "ack/batch",
            {"acks": [{"job_id": "j"}] * 513},
            "acks",
            "ack batch: expected at most 512 items",
        ),
        (
            "ack/batch",
            {"acks": [{"job_id": "j"}, {}]},
            "acks[1].job_id",
            'acks[1].job_id is required, such as "s02_job_01HXZ2T6Q4M8V0W3Y5B7C9D1E3"',
        ),
        (
            "ack/batch",
            {"acks": [{"job_id": "j", "step_status": "done"}]},
            "acks[0].step_status",
            "acks[0]: step_status: expected one of continue, exit; got 'done'",
        ),
        ("fail/batch", {"fails": [{"job_id": "j"}] * 513}, "fails", None),
        (
            "fail/batch",
            {"fails": [{"job_id": "j", "retry_after": "soon"}]},
            "fails[0].retry_after",
            None,
        ),
        ("release/batch", {"jobs": [{"job_id": "j"}] * 513}, "jobs", None),
        ("snooze/batch", {"jobs": [{"job_id": "j", "delay": "1s"}] * 513}, "jobs", None),
        ("snooze/batch", {"jobs": []}, "jobs", None),
        (
            "snooze/batch",
            {"jobs": [{"job_id": "j", "delay_ms": 1}, {"job_id": "j"}]},
            "jobs[1].delay",
            "jobs[1]: delay is required",
        ),
        ("heartbeat", {}, "jobs", "jobs is required"),
        ("heartbeat", {"jobs": [{"job_id": "j"}] * 1_001}, "jobs", None),
        ("heartbeat", {"jobs": {"": {}}}, "jobs", None),
        ("heartbeat", {"jobs": 7}, "jobs", None),
    ],
)
def test_many_words_that_do_not_do_are_refused_as_a_whole(
    path: str, body: object, field: str, error: str | None
) -> None:
    @jumping
    async def main() -> None:
        node = Node()

        status, answer = await node.get(f"/api/v1/{path}", body)

        assert (status, answer["code"], answer["field"]) == (400, "VALIDATION_ERROR", field)
        assert error is None or answer["error"] == error
        assert not any(shard.ops for shard in node.shards)

    main()


# Heartbeats.


@jumping
async def test_a_heartbeat_tells_how_it_stands_with_each_job() -> None:
    node = Node()
    ok, asked_to_stop = await many(node)
    node.shards[1].shard.do(Cancel(job_ids=[asked_to_stop]))
    [pending] = put(node, "mail")
    node.shards[0].shard.pass_time(1_000)
    jobs = {ok: {"progress": 5}, asked_to_stop: {}, pending: {}, "s00_job_0": {}}

    response = await node.ask("/api/v1/heartbeat", {"jobs": jobs})

    answer = msgspec.json.decode(response.body)
    expires = [answer["jobs"][job_id]["lease_expires_at"] for job_id in (ok, asked_to_stop)]
    assert {job_id: one["status"] for job_id, one in answer["jobs"].items()} == {
        ok: "ok",
        asked_to_stop: "cancel",
        pending: "cancel",
        "s00_job_0": "cancel",
    }
    assert answer["acked"] == [ok, asked_to_stop]
    assert answer[STOPPED] == [asked_to_stop]
    assert answer["unknown"] == [pending, "s00_job_0"]
    assert expires[1] < expires[0]
    assert answer["lease_expires_at"] == expires[1]
    assert answer["jobs"][pending]["reason"] == "job_not_active"
    assert stored(node, ok).progress == b"5"


@jumping
async def test_a_heartbeat_of_no_jobs_is_answered() -> None:
    status, answer = await Node().get("/api/v1/heartbeat", {"jobs": {}})

    assert (status, answer) == (200, {"jobs": {}, "acked": [], "unknown": [], STOPPED: []})


@jumping
async def test_a_shard_that_is_away_does_not_make_a_worker_stop() -> None:
    node = Node()
    first, second = await many(node)
    node.shards[1].problems = [GONE]

    _, answer = await node.get("/api/v1/heartbeat", {"jobs": {first: {}, second: {}}})

    jobs = msgspec.convert(answer["jobs"], dict[str, JSON])
    assert (jobs[first]["status"], jobs[second]["status"]) == ("ok", "error")
    assert jobs[second]["code"] == "LEADER_UNAVAILABLE"
    assert (answer["acked"], answer["unknown"], answer[STOPPED]) == ([first], [], [])


@jumping
async def test_a_heartbeat_that_reached_nobody_is_a_problem() -> None:
    node = Node()
    first, second = await many(node)
    node.shards[0].problems, node.shards[1].problems = [GONE], [LOST]

    status, answer = await node.get("/api/v1/heartbeat", {"jobs": {first: {}, second: {}}})

    assert (status, answer["code"], answer["outcome"]) == (503, "OUTCOME_UNKNOWN", "unknown")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("j", "ok"), "ok"),
        (Outcome("j", "cancel"), "cancel"),
        (Outcome("j", "ended"), "ok"),
        (Rejected("job_not_found", "x"), "cancel"),
        (Rejected("job_moved", "x", shard=1), "error"),
        (Rejected("job_not_active", "x"), "cancel"),
        (Rejected("lease_lost", "x"), "cancel"),
        (Rejected("entry_full", "x"), "error"),
        (Rejected("a_new_one", "x"), "error"),
        (GONE, "error"),
    ],
)
def test_only_a_job_that_is_gone_is_to_be_stopped(
    outcome: Outcome | Rejected | Problem, status: str
) -> None:
    assert beat_answer(outcome).status == status


@pytest.mark.parametrize("token", [True, False])
def test_a_heartbeat_that_crosses_the_ack_of_its_worker_does_not_say_cancel(token: bool) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        job_id, lease_token = await claimed(node, queue_of(0))
        own: JSON = {"lease_token": lease_token} if token else {"worker_id": "w"}
        await node.get(f"/api/v1/ack/{job_id}", own)

        status, answer = await node.get("/api/v1/heartbeat", {"jobs": {job_id: own}})

        assert (status, answer["jobs"]) == (
            200,
            {job_id: {"status": "ok", "reason": "lease_ended"}},
        )
        assert (answer["acked"], answer["unknown"], answer[STOPPED]) == ([job_id], [], [])
        assert "lease_expires_at" not in answer

    main()


# Keys for some queues.


SCOPED: Final = Caller(name="ann", role="worker", key_hash="x", scope=Scope(("mail",)))


@pytest.mark.parametrize("path", ["fetch", "fetch/batch"])
def test_a_key_for_some_queues_fetches_from_no_others(path: str) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        body = {"queues": ["mail", "bill"], "wait_seconds": 0}

        refused = await node.ask(f"/api/v1/{path}", body, caller=SCOPED)
        allowed = await node.ask(f"/api/v1/{path}", body | {"queues": ["mail"]}, caller=SCOPED)

        assert (refused.status, allowed.status // 100) == (403, 2)

    main()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("ack/{}", {}),
        ("fail/{}", {}),
        ("release/{}", {}),
        ("snooze/{}", {"delay": "1s"}),
        ("ack/batch", {"acks": [{"job_id": "{}"}]}),
        ("fail/batch", {"fails": [{"job_id": "{}"}]}),
        ("release/batch", {"jobs": [{"job_id": "{}"}]}),
        ("snooze/batch", {"jobs": [{"job_id": "{}", "delay": "1s"}]}),
        ("heartbeat", {"jobs": {"{}": {}}}),
    ],
)
def test_a_key_for_some_queues_says_nothing_of_the_jobs_of_others(path: str, body: object) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        mine, _ = await claimed(node)
        theirs, _ = await claimed(node, "bill")

        async def say(job_id: str) -> int:
            data = encode_json(body).replace(b"{}", job_id.encode(), 1)
            data = data if b'"' in data else b""
            where = f"/api/v1/{path.replace('{}', job_id)}"
            return (await node.ask(where, data, caller=SCOPED)).status

        assert await say(theirs) == 403
        assert stored(node, theirs).state is State.ACTIVE
        assert await say(mine) == 200

    main()


def test_a_limit_on_writing_counts_the_items_of_a_batch() -> None:
    @jumping
    async def main() -> None:
        node = Node(limits=Limits(write_rate=1, write_burst=10))
        acks = [{"job_id": "s00_job_0"}] * 8

        first = await node.ask("/api/v1/ack/batch", {"acks": acks})
        second = await node.ask("/api/v1/ack/batch", {"acks": acks})

        assert (first.status, second.status) == (200, 429)
        assert sum(sent(shard, Ack) for shard in node.shards) == 1

    main()


@jumping
async def test_claims_of_a_client_that_left_are_given_back() -> None:
    node = Node()
    put(node, "mail")

    with trio.CancelScope() as scope:
        scope.cancel()
        await node.ask("/api/v1/fetch", {"queues": ["mail"]})

    assert sent(node["mail"], Release) == sent(node["mail"], Fetch)
    assert node["mail"].shard.counts("mail") == {State.PENDING: 1}


# A whole working day, on a real shard.


@on_sockets
async def test_a_job_is_made_waited_for_kept_alive_and_completed(tmp_path: Path) -> None:
    config = RouterConfig(
        cluster="rookery",
        node=1,
        shards=1,
        sockets=dict(enumerate([str(tmp_path / "s")])),
        listen=[0],
        is_open=True,
    )
    async with running(config_in(tmp_path)), trio.open_nursery() as nursery:
        api = Api(config)
        nursery.start_soon(api.shards.run)
        fetched: list[JSON] = []

        async def ask(path: str, body: object, status: int) -> JSON:
            request = Request(method="POST", path=f"/api/v1/{path}", body=encode_json(body))
            request.caller = ANONYMOUS
            found = ROUTES.find("POST", request.path)
            assert found is not None
            request.params = found.params
            response = await found.route.endpoint(api, request)
            assert response.status == status, response.body
            return json_of(response)

        async def work() -> None:
            fetched.append(await ask("fetch", {"queues": ["mail"], "worker_id": "w"}, 200))

        async with trio.open_nursery() as working:
            working.start_soon(work)
            while not api.fetching.parked:
                await trio.lowlevel.checkpoint()
            made = await ask("enqueue", {"queue": "mail", "payload": {"to": "a"}}, 201)
        [job] = fetched
        beat = await ask("heartbeat", {"jobs": {job["job_id"]: {"progress": 50}}}, 200)
        done = await ask(f"ack/{job['job_id']}", {"lease_token": job["lease_token"]}, 200)

        assert (job["job_id"], job["payload"]) == (made["job_id"], {"to": "a"})
        assert beat["acked"] == [job["job_id"]]
        assert done == {"status": "ok", "state": "completed"}
        nursery.cancel_scope.cancel()
