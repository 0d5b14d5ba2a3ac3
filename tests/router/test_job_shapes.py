"""Jobs over HTTP: what they look like, wherever they are, and what can be done with them."""

from typing import Final

import msgspec
import pytest
import trio

from corvo.model import ApiKey, State
from corvo.protocol.jobs import JobBody
from corvo.protocol.ops.jobs import Cancel, Delete, Expedite, Hold, Move
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.ops.workflow import Chain, NewAgent, Step
from corvo.protocol.queries import GetJobs
from corvo.router.http.messages import Response
from corvo.router.jobs.bodies import DeadJobs, ExplainBody, JobList
from corvo.times import format_time
from tests.router.nests import JSON, Nest, die, fail, header, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
ALSO_A: Final = queue_of(0, 1)
"""Queues of shard 0, 1, 2, and of shard 0 again."""


# One job.


def test_a_job_is_shown_field_for_field() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(
            A,
            payload=msgspec.Raw(b'{"to": "a"}'),
            priority=1,
            unique_key="k",
            tags={"env": "t"},
            max_retries=3,
        )
        made_ns = nest[A].job(job_id).created_ns
        fail(nest, A, job_id, "smtp")
        nest[A].do(Expedite(job_ids=[job_id]))
        fail(nest, A, job_id, "again")
        job = nest[A].job(job_id)
        first, second = nest[A].errors(job_id)

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        shown = msgspec.json.decode(answer.body, type=JSON)
        trail = shown.pop("trail")
        assert isinstance(trail, list)
        assert [event["what"] for event in trail] == [
            "enqueued",
            "started",
            "failed",
            "promoted",
            "started",
            "failed",
        ]
        assert trail[1] == {"at": format_time(job.trail[1].at_ns), "what": "started", "by": "w1"}
        assert shown == {
            "id": job_id,
            "queue": A,
            "state": "retrying",
            "payload": {"to": "a"},
            "priority": 1,
            "attempt": 2,
            "max_retries": 3,
            "retry_backoff": "exponential",
            "retry_base_delay_ms": 5_000,
            "retry_max_delay_ms": 600_000,
            "unique_key": "k",
            "tags": {"env": "t"},
            "scheduled_at": format_time(job.scheduled_ns),
            "created_at": format_time(made_ns),
            "started_at": format_time(job.started_ns),
            "failed_at": format_time(job.failed_ns),
            "last_error": "again",
            "errors": [
                {
                    "id": number,
                    "job_id": job_id,
                    "attempt": number,
                    "error": error.error,
                    "worker_id": "w1",
                    "created_at": format_time(error.at_ns),
                }
                for number, error in ((1, first), (2, second))
            ],
        }
        assert b'"payload":{"to": "a"}' in answer.body, "the client's own bytes"

    run(main)


def test_the_lease_token_of_an_active_job_is_nowhere_to_be_read() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        [claim] = nest[A].fetch(A)

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        shown = msgspec.json.decode(answer.body, type=JSON)
        assert shown["state"] == "active"
        assert shown["lease_expires_at"] == format_time(claim.lease_expires_ns)
        assert shown["worker_id"] == "w1"
        assert str(claim.lease_token).encode() not in answer.body

    run(main)


def test_json_of_workers_comes_back_as_it_was_sent() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A, checkpoint=msgspec.Raw(b"[1,  2]"))
        nest[A].fetch(A)
        nest[A].do(Ack(acks=[AckItem(job_id=job_id, result=msgspec.Raw(b"null"))]))

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        assert b'"checkpoint":[1,  2],' in answer.body
        assert b'"result":null' in answer.body
        assert b'"progress"' not in answer.body

    run(main)


def test_an_agents_job_shows_its_loop_in_dollars_and_others_have_none() -> None:
    async def main() -> None:
        nest = Nest()
        agent = NewAgent(max_iterations=3, max_cost_micros=100_000, iteration_timeout_ms=90_000)
        looping, plain = nest.put(A, agent=agent), nest.put(A)

        with_agent = await nest.read(JSON, f"/api/v1/jobs/{looping}")
        without = await nest.read(JSON, f"/api/v1/jobs/{plain}")

        assert with_agent["agent"] == {
            "max_iterations": 3,
            "max_cost_usd": 0.1,
            "iteration_timeout": "1m30s",
            "iteration": 1,
        }
        assert "agent" not in without

    run(main)


def test_a_job_of_a_chain_shows_its_step_and_its_definition() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A, chain=Chain(steps=[Step(A), Step(B)]))

        shown = await nest.read(JSON, f"/api/v1/jobs/{job_id}")

        assert shown["chain_step"] == 0
        assert shown["chain_config"] == {"steps": [{"queue": A}, {"queue": B}]}

    run(main)


@pytest.mark.parametrize("job_id", ["nobody", "s00_job_01", "s99_job_01", "%C3%A4"])
def test_a_job_that_is_nowhere_is_not_found(job_id: str) -> None:
    async def main() -> None:
        nest = Nest()

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        assert problem(answer) == (404, "NOT_FOUND", "job_not_found", "")

    run(main)


@pytest.mark.parametrize("job_id", ["x" * 385, "%00", "a%0Ab"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_cannot_be_an_id_is_refused(method: str, job_id: str) -> None:
    async def main() -> None:
        answer = await Nest().ask(method, f"/api/v1/jobs/{job_id}")

        assert problem(answer) == (400, "VALIDATION_ERROR", "", "id")

    run(main)


def test_a_job_whose_id_a_client_chose_is_found_and_its_shard_remembered() -> None:
    async def main() -> None:
        nest = Nest()
        nest.put(C, id="mine")

        first = await nest.ask("GET", "/api/v1/jobs/mine")
        asked = [len(shard.questions) for shard in nest.shards]
        second = await nest.ask("GET", "/api/v1/jobs/mine")

        assert first.body == second.body
        assert asked == [1, 1, 1]
        assert nest.api.addresses.candidates("mine")[0] == 2

    run(main)


def test_of_two_jobs_of_one_chosen_id_the_first_that_is_known_is_meant() -> None:
    async def main() -> None:
        nest = Nest()
        for queue in (C, B, A):
            nest.put(queue, id="mine")

        first = await nest.read(JobBody, "/api/v1/jobs/mine")
        again = await nest.read(JobBody, "/api/v1/jobs/mine")

        assert first.queue == again.queue == A

    run(main)


def test_errors_are_numbered_from_the_first_that_ever_was() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A, max_retries=30)
        for number in range(1, 23):
            fail(nest, A, job_id, f"error {number}")
            nest[A].do(Expedite(job_ids=[job_id]))

        shown = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")

        assert [(error.id, error.error) for error in shown.errors] == [
            (number, f"error {number}") for number in range(3, 23)
        ]
        assert shown.last_error == "error 22"

    run(main)


def test_a_shard_that_is_away_is_no_proof_that_a_job_is_nowhere() -> None:
    async def main() -> None:
        nest = Nest()
        nest.shards[1].is_away = True

        answer = await nest.ask("GET", "/api/v1/jobs/mine")

        assert problem(answer)[:2] == (503, "LEADER_UNAVAILABLE")

    run(main)


def test_a_read_waits_for_what_its_client_has_seen() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)

        seen = await nest.ask("GET", f"/api/v1/jobs/{job_id}", corvo_min_seq="s0=1,s2=9")
        ahead = await nest.ask("GET", f"/api/v1/jobs/{job_id}", corvo_min_seq="s0=99")

        assert header(seen, "corvo-seq") == "s0=1"
        assert problem(ahead)[:2] == (503, "NOT_CAUGHT_UP")

    run(main)


@pytest.mark.parametrize("header", ["", "0", "s0", "s0=", "s9=1", "s0=1;s1=1"])
def test_a_position_that_is_none_is_refused_also_where_there_is_nobody_to_ask(header: str) -> None:
    async def main() -> None:
        nest = Nest()
        job = await nest.ask("GET", "/api/v1/jobs/s99_job_1", corvo_min_seq=header)
        search = await nest.ask("POST", "/api/v1/jobs/search", {}, corvo_min_seq=header)
        bulk = await nest.ask("POST", "/api/v1/jobs/bulk", {}, corvo_min_seq=header)
        made = await nest.ask("POST", "/api/v1/enqueue", {"queue": A}, corvo_min_seq=header)

        for answer in (job, search, bulk):
            assert problem(answer) == (400, "VALIDATION_ERROR", "", "Corvo-Min-Seq")
        assert made.status == 201, "it reads nothing, and the header is ignored"

    run(main)


# Jobs that move.


def test_a_job_that_has_moved_is_found_by_its_id() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        nest[A].do(Move(job_ids=[job_id], queue=B))
        nest.deliver()

        shown = await nest.read(JobBody, f"/api/v1/jobs/{job_id}")

        assert shown.queue == B
        assert [len(shard.questions) for shard in nest.shards] == [1, 1, 0]

    run(main)


async def read_while_it_travels(nest: Nest, job_id: str, travels_s: float) -> tuple[int, float]:
    """The status of a read, and how long after the arrival of all effects it was answered."""
    answers: list[Response] = []
    answered_s = 0.0

    async def look() -> None:
        nonlocal answered_s
        answers.append(await nest.ask("GET", f"/api/v1/jobs/{job_id}"))
        answered_s = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.sleep(travels_s)
        arrived_s = trio.current_time()
        nest.deliver()
    return answers[0].status, answered_s - arrived_s


@pytest.mark.parametrize(("travels_s", "late_s"), [(0.004, 0.005), (0.12, 0.06), (4.5, 0.06)])
def test_a_job_on_its_way_is_waited_for(travels_s: float, late_s: float) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        nest[A].do(Move(job_ids=[job_id], queue=B))

        status, late = await read_while_it_travels(nest, job_id, travels_s)

        assert (status, late <= late_s) == (200, True), late

    run(main)


@pytest.mark.parametrize("travels_s", [0.004, 1.5])
def test_a_job_that_was_deleted_where_it_had_moved_is_gone_once_its_home_knows(
    travels_s: float,
) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        nest[A].do(Move(job_ids=[job_id], queue=B))
        nest.deliver()
        nest[B].do(Delete(job_ids=[job_id]))

        status, late = await read_while_it_travels(nest, job_id, travels_s)

        assert (status, late <= 0.06) == (404, True), late

    run(main)


def test_a_job_that_does_not_arrive_is_not_said_to_be_gone() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)
        nest[A].do(Move(job_ids=[job_id], queue=B))

        answer = await nest.ask("GET", f"/api/v1/jobs/{job_id}")

        assert problem(answer)[:2] == (503, "JOB_MOVING")

    run(main)


# Many jobs.


async def bulk_get(nest: Nest, ids: list[str], key: str = "") -> list[str]:
    answer = await nest.ask("POST", "/api/v1/jobs/bulk-get", {"job_ids": ids}, x_api_key=key)
    assert answer.status == 200, answer.body
    return [job.id for job in msgspec.json.decode(answer.body, type=JobList).jobs]


def test_many_jobs_come_in_the_order_asked_for_from_wherever_they_are() -> None:
    async def main() -> None:
        nest = Nest()
        ids = [nest.put(queue) for queue in (C, A, B, A)]
        nest[A].do(Move(job_ids=[ids[1]], queue=C))
        nest.deliver()
        nest.put(B, id="mine")

        asked = [ids[0], "nobody", "mine", ids[3], ids[1], ids[0], ids[2]]

        assert await bulk_get(nest, asked) == [ids[0], "mine", ids[3], ids[1], ids[2]]
        assert await bulk_get(nest, []) == []

    run(main)


def test_more_jobs_than_one_answer_of_a_shard_holds_come_in_several() -> None:
    async def main() -> None:
        nest = Nest()
        payload = msgspec.Raw(msgspec.json.encode("x" * 1_000_000))
        ids = [nest.put(A, payload=payload) for _ in range(9)]

        assert await bulk_get(nest, ids) == ids
        questions = nest.shards[0].questions
        sizes = [len(each.job_ids) for each in questions if isinstance(each, GetJobs)]
        assert sizes == [9, 4]

    run(main)


def test_jobs_that_have_moved_are_found_whichever_part_of_an_answer_says_so() -> None:
    async def main() -> None:
        nest = Nest()
        payload = msgspec.Raw(msgspec.json.encode("x" * 1_000_000))
        ids = [nest.put(A, payload=payload) for _ in range(9)]
        ids[1:1] = [nest.put(A)]
        ids += [nest.put(A)]
        nest[A].do(Move(job_ids=[ids[1], ids[-1]], queue=B))
        nest.deliver()

        assert await bulk_get(nest, ids) == ids

    run(main)


def test_more_jobs_than_one_request_may_have_are_refused() -> None:
    async def main() -> None:
        nest = Nest()
        payload = msgspec.Raw(msgspec.json.encode("x" * 1_000_000))
        ids = [nest.put(A, payload=payload) for _ in range(34)]

        answer = await nest.ask("POST", "/api/v1/jobs/bulk-get", {"job_ids": ids})

        assert problem(answer) == (413, "ANSWER_TOO_LARGE", "", "job_ids")

    run(main)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "PARSE_ERROR", "", "")),
        (b'{"job', (400, "PARSE_ERROR", "", "")),
        (b"[]", (400, "VALIDATION_ERROR", "", "")),
        ({}, (400, "VALIDATION_ERROR", "", "job_ids")),
        ({"job_ids": ["x"] * 1_001}, (400, "VALIDATION_ERROR", "", "job_ids")),
        ({"job_ids": ["x", ""]}, (400, "VALIDATION_ERROR", "", "job_ids[1]")),
        ({"job_ids": [1]}, (400, "VALIDATION_ERROR", "", "job_ids[0]")),
    ],
)
def test_a_list_of_ids_that_is_none_is_refused(
    body: object, expected: tuple[int, str, str, str]
) -> None:
    async def main() -> None:
        answer = await Nest().ask("POST", "/api/v1/jobs/bulk-get", body)

        assert problem(answer) == expected

    run(main)


# Why a job waits.


def test_why_a_job_is_not_worked_on_is_told() -> None:
    async def main() -> None:
        nest = Nest()
        first, second = nest.put(A), nest.put(A)

        behind = await nest.read(ExplainBody, f"/api/v1/jobs/{second}/explain")
        nest[A].do(Hold(job_ids=[first], reason="look"))
        held = await nest.read(JSON, f"/api/v1/jobs/{first}/explain")

        assert behind == ExplainBody(
            job_id=second,
            queue=A,
            state=State.PENDING,
            code="behind",
            text="1 jobs are before this one in the queue",
            ahead=1,
        )
        assert held["code"] == "held"

    run(main)


# Changing.

ACTIONS: Final[dict[str, tuple[object, State, str, State | None, str]]] = {
    "retry": (b"", State.DEAD, "retried", State.PENDING, "RETRY_ERROR"),
    "cancel": ({"why": "enough"}, State.PENDING, "cancelled", State.CANCELLED, "CANCEL_ERROR"),
    "move": ({"queue": ALSO_A}, State.PENDING, "moved", State.PENDING, "MOVE_ERROR"),
    "hold": ({"reason": "look"}, State.PENDING, "held", State.HELD, "HOLD_ERROR"),
    "approve": (b"", State.HELD, "pending", State.PENDING, "APPROVE_ERROR"),
    "reject": ({"reason": "bad"}, State.HELD, "dead", State.DEAD, "REJECT_ERROR"),
    "requeue": (b"", State.DEAD, "pending", State.PENDING, "REQUEUE_ERROR"),
    "expedite": (b"", State.SCHEDULED, "pending", State.PENDING, "EXPEDITE_ERROR"),
    "priority": ({"priority": "high"}, State.PENDING, "ok", State.PENDING, "PRIORITY_ERROR"),
}
"""What is sent, from which state, what is answered, the state then, and the code of a conflict."""


def in_state(nest: Nest, state: State) -> str:
    """A job of queue A that came into a state."""
    later_ns = nest[A].clock_ns + 3_600_000_000_000
    job_id = nest.put(A, scheduled_ns=later_ns if state is State.SCHEDULED else 0)
    match state:
        case State.DEAD:
            fail(nest, A, job_id, dies=True)
        case State.HELD:
            nest[A].do(Hold(job_ids=[job_id]))
        case State.ACTIVE:
            nest[A].fetch(A)
        case State.CANCELLED:
            nest[A].do(Cancel(job_ids=[job_id]))
        case _:
            pass
    assert nest[A].state(job_id) is state
    return job_id


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_done_with_a_job_is_answered_in_the_originals_words(name: str) -> None:
    async def main() -> None:
        body, before, word, after, _ = ACTIONS[name]
        nest = Nest()
        job_id = in_state(nest, before)

        answer = await nest.ask("POST", f"/api/v1/jobs/{job_id}/{name}", body)

        assert answer.status == 200, answer.body
        assert msgspec.json.decode(answer.body) == {"status": word, "job_id": job_id}
        assert header(answer, "corvo-seq") == f"s0={nest[A].machine.applied}"
        assert nest[A].state(job_id) is after
        assert nest[A].job(job_id).trail[-1].by == "anonymous"

    run(main)


@pytest.mark.parametrize("name", [name for name in ACTIONS if name != "move"])
def test_a_job_in_the_wrong_state_is_left_as_it_is(name: str) -> None:
    async def main() -> None:
        body, before, _, _, code = ACTIONS[name]
        wrong = State.PENDING if before is not State.PENDING else State.CANCELLED
        nest = Nest()
        job_id = in_state(nest, wrong)
        stored = nest[A].job(job_id)

        answer = await nest.ask("POST", f"/api/v1/jobs/{job_id}/{name}", body)

        assert problem(answer) == (409, code, "bad_state", "")
        assert nest[A].job(job_id) == stored

    run(main)


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_to_be_done_with_a_job_that_is_not_there_is_not_found(name: str) -> None:
    async def main() -> None:
        body = ACTIONS[name][0]

        answer = await Nest().ask("POST", f"/api/v1/jobs/s00_job_nobody/{name}", body)

        assert problem(answer) == (404, "NOT_FOUND", "job_not_found", "")

    run(main)


def test_a_deleted_job_is_gone() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)

        first = await nest.ask("DELETE", f"/api/v1/jobs/{job_id}")
        second = await nest.ask("DELETE", f"/api/v1/jobs/{job_id}")

        assert msgspec.json.decode(first.body) == {"status": "deleted", "job_id": job_id}
        assert problem(second) == (404, "NOT_FOUND", "job_not_found", "")
        assert nest[A].find(job_id) is None

    run(main)


def test_cancel_of_an_active_job_asks_its_worker_to_stop_and_says_why_in_the_trail() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = in_state(nest, State.ACTIVE)

        answer = await nest.ask("POST", f"/api/v1/jobs/{job_id}/cancel", {"reason": "enough"})

        assert msgspec.json.decode(answer.body, type=JSON)["status"] == "cancelling"
        assert nest[A].job(job_id).cancel_requested
        assert nest[A].job(job_id).trail[-1].why == "enough"

    run(main)


def test_bodies_that_may_be_left_out_may_be_empty_and_must_be_json_when_there_are_any() -> None:
    async def main() -> None:
        nest = Nest()
        ids = [nest.put(A) for _ in range(3)]

        without = await nest.ask("POST", f"/api/v1/jobs/{ids[0]}/hold")
        nulls = await nest.ask("POST", f"/api/v1/jobs/{ids[1]}/hold", {"reason": None, "x": 1})
        broken = await nest.ask("POST", f"/api/v1/jobs/{ids[2]}/hold", b"{")

        assert (without.status, nulls.status) == (200, 200)
        assert problem(broken) == (400, "PARSE_ERROR", "", "")

    run(main)


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("move", {}, "queue"),
        ("move", {"queue": ""}, "queue"),
        ("move", {"queue": "a\nb"}, "queue"),
        ("move", {"queue": "ä" * 128}, "queue"),
        ("move", {"queue": ALSO_A, "reset_attempts": 1}, "reset_attempts"),
        ("hold", {"lease_token": 0}, "lease_token"),
        ("hold", {"reason": "x" * 4_097}, "reason"),
        ("cancel", {"why": 3}, "why"),
        ("priority", {}, "priority"),
        ("priority", {"priority": 3}, "priority"),
        ("priority", {"priority": "urgent"}, "priority"),
        ("reject", {"request_key": "ä"}, "request_key"),
    ],
)
def test_what_a_body_has_wrong_is_named(name: str, body: object, field: str) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A)

        answer = await nest.ask("POST", f"/api/v1/jobs/{job_id}/{name}", body)

        status, code, _, named = problem(answer)
        assert (status, code, named) == (400, "VALIDATION_ERROR", field)
        assert nest[A].state(job_id) is State.PENDING

    run(main)


@pytest.mark.parametrize(
    ("said", "stored"), [("critical", 0), ("high", 1), ("normal", 2), ("low", 2), (0, 0), (2, 2)]
)
def test_a_priority_is_a_word_or_a_number(said: str | int, stored: int) -> None:
    async def main() -> None:
        nest = Nest()
        job_id = nest.put(A, priority=1)

        await nest.ask("POST", f"/api/v1/jobs/{job_id}/priority", {"priority": said})

        assert nest[A].job(job_id).priority == stored

    run(main)


def test_a_move_to_another_shard_resets_attempts_when_it_is_asked_to() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = in_state(nest, State.DEAD)
        body = {"queue": B, "reset_attempts": True}

        answer = await nest.ask("POST", f"/api/v1/jobs/{job_id}/move", body)
        nest.deliver()

        assert answer.status == 200, answer.body
        assert nest[B].job(job_id).attempt == 0
        assert nest[B].job(job_id).queue == B

    run(main)


def test_a_request_under_its_key_has_one_effect_and_the_key_is_not_for_another() -> None:
    async def main() -> None:
        nest = Nest()
        job_id = in_state(nest, State.DEAD)
        path = f"/api/v1/jobs/{job_id}"

        first = await nest.ask("POST", f"{path}/retry", idempotency_key="once")
        again = await nest.ask("POST", f"{path}/retry", idempotency_key="once")
        other = await nest.ask("POST", f"{path}/cancel", {"request_key": "once"})
        both = await nest.ask("POST", f"{path}/cancel", {"request_key": "a"}, idempotency_key="b")

        assert first.body == again.body
        assert problem(other) == (422, "REQUEST_KEY_REUSED", "request_key_reused", "")
        assert problem(both) == (400, "VALIDATION_ERROR", "", "request_key")
        assert nest[A].state(job_id) is State.PENDING

    run(main)


# Who may.

KEYS: Final = {
    "worker": ApiKey(key_hash="", name="w", role="worker"),
    "operator": ApiKey(key_hash="", name="o", role="operator"),
    "mine": ApiKey(key_hash="", name="m", role="operator", queue_scope=(A,)),
}


def test_a_worker_may_hold_what_it_has_and_only_that() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        waiting, active = nest.put(B), nest.put(A)
        [claim] = nest[A].fetch(A)
        token = {"lease_token": claim.lease_token}

        without = await nest.ask("POST", f"/api/v1/jobs/{waiting}/hold", x_api_key="worker")
        by_operator = await nest.ask("POST", f"/api/v1/jobs/{waiting}/hold", x_api_key="operator")
        with_it = await nest.ask("POST", f"/api/v1/jobs/{active}/hold", token, x_api_key="worker")
        late = await nest.ask("POST", f"/api/v1/jobs/{active}/hold", token, x_api_key="worker")

        assert problem(without)[:2] == (403, "FORBIDDEN")
        assert by_operator.status == 200
        assert with_it.status == 200
        assert problem(late) == (409, "LEASE_LOST", "lease_lost", "")
        assert nest[A].job(active).trail[-1].by == "w"

    run(main)


def test_a_key_of_one_queue_sees_and_changes_only_what_is_in_it() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        mine, others = die(nest, A), die(nest, B)

        seen = await nest.ask("GET", f"/api/v1/jobs/{mine}", x_api_key="mine")
        refused = [
            await nest.ask("GET", f"/api/v1/jobs/{others}", x_api_key="mine"),
            await nest.ask("GET", f"/api/v1/jobs/{others}/explain", x_api_key="mine"),
            await nest.ask("DELETE", f"/api/v1/jobs/{others}", x_api_key="mine"),
            await nest.ask("POST", f"/api/v1/jobs/{others}/retry", x_api_key="mine"),
            await nest.ask("POST", f"/api/v1/jobs/{mine}/move", {"queue": B}, x_api_key="mine"),
            await nest.ask("GET", "/api/v1/dead", query={"queue": B}, x_api_key="mine"),
        ]
        listed = await nest.read(DeadJobs, "/api/v1/dead", x_api_key="mine")

        assert seen.status == 200
        assert [answer.status for answer in refused] == [403] * 6
        assert await bulk_get(nest, [others, mine], "mine") == [mine]
        assert [job.id for job in listed.jobs] == [mine]
        assert listed.total == 1

    run(main)
