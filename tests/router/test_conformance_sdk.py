"""What the client libraries of the original send, and the fields that they read of the answers.

Four libraries (Python, TypeScript, Go, Rust) of the time of version 0.3.0, and where later ones
send or read something else, that as well. Where they differ from each other, each way is here.
"""

import re
from typing import Final

import msgspec
import pytest

from corvo.protocol.ops.base import Limits
from corvo.router.table import ROUTES
from tests.router.machines import JSON, Node, json_of
from tests.support.links import jumping

FETCH: Final[JSON] = {"queues": ["mail"], "worker_id": "w1", "hostname": "h", "timeout": 30}
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
STOPPED: Final = "cancelled".replace("ll", "l")  # the original's spelling


def texts(value: object) -> list[str]:
    return msgspec.convert(value, list[str])


def objects(value: object) -> list[JSON]:
    return msgspec.convert(value, list[JSON])


def inner(value: object) -> JSON:
    return msgspec.convert(value, JSON)


async def make(node: Node, **fields: object) -> str:
    """A job in `mail`; its id."""
    status, answer = await node.get("/api/v1/enqueue", {"queue": "mail", "payload": {}, **fields})
    assert status == 201, answer
    return str(answer["job_id"])


async def take(node: Node) -> JSON:
    """The next job of `mail`."""
    status, answer = await node.get("/api/v1/fetch", FETCH)
    assert status == 200, answer
    return answer


async def look(node: Node, job_id: str) -> JSON:
    response = await node.ask(f"/api/v1/jobs/{job_id}", method="GET")
    assert response.status == 200
    return json_of(response)


# What there is.

SERVED: Final = """
POST /enqueue, POST /enqueue/batch, POST /fetch, POST /fetch/batch, POST /ack/x, POST /ack/batch,
POST /fail/x, POST /heartbeat, GET /jobs/x, POST /jobs/x/retry, POST /jobs/x/cancel,
POST /jobs/x/move, DELETE /jobs/x, POST /jobs/bulk-get, GET /info, GET /queues,
POST /queues/x/pause, POST /queues/x/resume, POST /jobs/search, POST /jobs/bulk, GET /bulk/x,
GET /events
"""
UNSERVED: Final = """
POST /batch, POST /batch/x/seal
"""
"""Known to the libraries, and answered with 404 or 405: who serves one of them moves it up."""


def calls(text: str) -> list[tuple[str, str]]:
    return re.findall(r"([A-Z]+) (/[\w/-]+)", text)


@pytest.mark.parametrize(("method", "path"), calls(SERVED))
def test_a_call_of_the_libraries_has_its_route(method: str, path: str) -> None:
    assert ROUTES.find(method, f"/api/v1{path}") is not None


@pytest.mark.parametrize(("method", "path"), calls(UNSERVED))
def test_a_call_that_is_not_served_is_known_not_to_be(method: str, path: str) -> None:
    assert ROUTES.find(method, f"/api/v1{path}") is None


# Producing.


@jumping
async def test_a_job_is_made_once_under_its_unique_key() -> None:
    node = Node()
    body = {
        "queue": "mail",
        "payload": {"to": "a"},
        "priority": "high",
        "unique_key": "k",
        "tags": {"env": "t"},
    }

    status, first = await node.get("/api/v1/enqueue", body)
    again, second = await node.get("/api/v1/enqueue", body)

    read = ("job_id", "status", "unique_existing")
    assert (status, [first[name] for name in read]) == (201, [first["job_id"], "pending", False])
    assert (again, [second[name] for name in read]) == (200, [first["job_id"], "duplicate", True])
    # What libraries of later days read.
    assert inner(first["job"])["id"] == first["job_id"]
    assert second["unique_job_id"] == first["job_id"]


@jumping
async def test_every_field_that_the_libraries_send_is_heard() -> None:
    node = Node()
    steps = [{"queue": "mail", "payload": {"to": "a"}}, {"queue": "bill", "payload": {}}]
    body = {
        "queue": "mail",
        "payload": {"to": "a"},
        "priority": "critical",
        "unique_key": "k",
        "unique_period": 60,
        "max_retries": 5,
        "scheduled_at": "2090-01-01T00:00:00.5+01:00",
        "tags": {"env": "t"},
        "expire_after": "72h",
        "retry_backoff": "linear",
        "retry_base_delay": "2s",
        "retry_max_delay": "1m30s",
        "agent": {"max_iterations": 3, "max_cost_usd": 0.25, "iteration_timeout": "1m"},
    }

    status, made = await node.get("/api/v1/enqueue", body)
    chained, _ = await node.get("/api/v1/enqueue", {**body, "unique_key": "c", "agent": None,
                                                    "chain": {"steps": steps}})  # fmt: skip

    job = await look(node, str(made["job_id"]))
    assert (status, made["status"], chained) == (201, "scheduled", 201)
    wanted = {
        "priority": 0,
        "unique_key": "k",
        "max_retries": 5,
        "scheduled_at": "2089-12-31T23:00:00.5Z",
        "tags": {"env": "t"},
        "retry_backoff": "linear",
        "retry_base_delay_ms": 2_000,
        "retry_max_delay_ms": 90_000,
    }
    assert {name: job[name] for name in wanted} == wanted
    agent = inner(job["agent"])
    assert (agent["max_iterations"], agent["max_cost_usd"]) == (3, 0.25)
    assert TIME.fullmatch(str(job["expire_at"]))


@pytest.mark.parametrize("on_failure", ["sorry", "stop", "continue", {"queue": "sorry"}, None])
def test_a_chain_may_say_in_each_way_what_comes_after_a_failure(on_failure: object) -> None:
    @jumping
    async def main() -> None:
        node = Node(shards=1)
        steps = [{"queue": "mail", "payload": {}}, {"queue": "bill", "payload": 2}]
        chain = {"steps": steps, "on_failure": on_failure}
        job_id = await make(node, chain=chain, max_retries=1)

        await take(node)
        status, failed = await node.get(f"/api/v1/fail/{job_id}", {"error": "e", "backtrace": ""})
        handed, _ = await node.get("/api/v1/fetch", {**FETCH, "queues": ["sorry"], "timeout": 1})

        is_queue = on_failure == "sorry" or isinstance(on_failure, dict)
        assert (status, failed["status"]) == (200, "dead")
        assert handed == (200 if is_queue else 204)

    main()


@pytest.mark.parametrize(
    ("batch", "has_id"),
    [
        ({}, False),
        ({"batch": None}, False),
        ({"batch": {"callback_queue": "done", "callback_payload": {"x": 1}}}, True),
        ({"batch": {"callback_queue": "done", "callback_payload": None}}, True),
    ],
)
def test_many_jobs_are_made_with_a_batch_or_without(batch: JSON, has_id: bool) -> None:
    @jumping
    async def main() -> None:
        jobs = [
            {"queue": "mail", "payload": 1},
            {"queue": "sms", "payload": {}, "tags": {"a": "b"}},
        ]

        status, answer = await Node().get("/api/v1/enqueue/batch", {"jobs": jobs, **batch})

        ids = texts(answer["job_ids"])
        assert (status, len(set(ids))) == (201, 2)
        assert ("batch_id" in answer) is has_id
        # What libraries of later days read.
        assert [job["id"] for job in objects(answer["jobs"])] == ids
        assert [job["job_id"] for job in objects(answer["jobs"])] == ids

    main()


@jumping
async def test_a_payload_that_is_too_large_has_the_code_that_the_libraries_know() -> None:
    payload = "x" * (Limits().payload_bytes_max + 1)

    status, answer = await Node().get("/api/v1/enqueue", {"queue": "mail", "payload": payload})

    assert (status, answer["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert isinstance(answer["error"], str)


# Working.


@jumping
async def test_a_fetched_job_has_all_that_a_worker_reads() -> None:
    node = Node()
    job_id = await make(node, payload={"to": "a"}, tags={"env": "t"}, checkpoint={"at": 1})

    job = await take(node)

    wanted = {
        "job_id": job_id,
        "queue": "mail",
        "payload": {"to": "a"},
        "attempt": 1,
        "max_retries": 3,
        "lease_duration": 30,
        "checkpoint": {"at": 1},
        "tags": {"env": "t"},
    }
    assert {name: job[name] for name in wanted} == wanted


@jumping
async def test_nothing_to_do_is_no_body_for_one_and_no_jobs_for_many() -> None:
    node = Node()

    one = await node.ask("/api/v1/fetch", FETCH)
    many = await node.ask("/api/v1/fetch/batch", {**FETCH, "count": 10})

    assert (one.status, one.body) == (204, b"")
    assert (many.status, json_of(many)) == (200, {"jobs": []})


@jumping
async def test_many_jobs_are_fetched_and_acknowledged() -> None:
    node = Node()
    made = [await make(node) for _ in range(3)]

    _, fetched = await node.get("/api/v1/fetch/batch", {**FETCH, "count": 10})
    acks = [{"job_id": made[0], "result": {"ok": True}}, {"job_id": made[1]}, {"job_id": "job_x"}]
    status, answer = await node.get("/api/v1/ack/batch", {"acks": acks})

    assert [job["job_id"] for job in objects(fetched["jobs"])] == made
    assert (status, answer["acked"]) == (200, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        {},
        {"result": {"ok": True}},
        {"result": None, "step_status": "continue"},
        {"step_status": "exit", "exit_reason": "enough"},
        {
            "usage": {
                "input_tokens": 1,
                "output_tokens": 2,
                "cache_creation_tokens": 0,
                "cache_read_tokens": 0,
                "model": "m",
                "provider": "p",
                "cost_usd": 0.01,
            },
            "checkpoint": {"at": 2},
        },
    ],
)
def test_an_ack_completes_a_job_however_much_it_says(body: object) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        job_id = await make(node)
        await take(node)

        status, answer = await node.get(f"/api/v1/ack/{job_id}", body)

        assert (status, answer["status"]) == (200, "ok")
        assert (await look(node, job_id))["state"] == "completed"

    main()


@pytest.mark.parametrize("word", ["continue", "done", "hold"])
def test_an_agents_job_goes_on_ends_or_is_held(word: str) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        job_id = await make(node, agent={"max_iterations": 5})
        agent = inner((await take(node))["agent"])

        body = {"agent_status": word, "hold_reason": "look", "checkpoint": {"n": 1}}
        status, answer = await node.get(f"/api/v1/ack/{job_id}", body)

        states = {"continue": "pending", "done": "completed", "hold": "held"}
        assert (agent["max_iterations"], agent["iteration"]) == (5, 1)
        assert (status, answer["status"]) == (200, "ok")
        assert (await look(node, job_id))["state"] == states[word]

    main()


@jumping
async def test_a_job_that_fails_tells_what_becomes_of_it_until_it_is_dead() -> None:
    node = Node()
    shard = node["mail"].shard
    job_id = await make(node, payload={"to": "a"}, priority="high", max_retries=2)
    body = {"error": "smtp", "backtrace": ""}

    early, refused = await node.get(f"/api/v1/fail/{job_id}", body)
    await take(node)
    status, first = await node.get(f"/api/v1/fail/{job_id}", body)
    between = await look(node, job_id)
    await node.get(f"/api/v1/jobs/{job_id}/expedite")
    await take(node)
    shard.pass_time(1_000)
    _, last = await node.get(f"/api/v1/fail/{job_id}", body)

    assert early >= 400
    assert (refused["code"], isinstance(refused["error"], str)) == ("FAIL_ERROR", True)
    assert (status, first["status"], first["attempts_remaining"]) == (200, "retrying", 1)
    assert TIME.fullmatch(str(first["next_attempt_at"]))
    assert last == {"status": "dead", "attempts_remaining": 0}
    wanted = {
        "id": job_id,
        "queue": "mail",
        "state": "retrying",
        "payload": {"to": "a"},
        "priority": 1,
        "attempt": 1,
        "max_retries": 2,
        "retry_backoff": "exponential",
        "retry_base_delay_ms": 5_000,
        "retry_max_delay_ms": 600_000,
    }
    assert {name: between[name] for name in wanted} == wanted
    [error] = objects(between["errors"])
    assert (error["id"], error["job_id"], error["attempt"], error["error"]) == (
        1,
        job_id,
        1,
        "smtp",
    )
    for name in ("scheduled_at", "created_at", "started_at", "failed_at"):
        assert TIME.fullmatch(str(between[name])), name
    assert TIME.fullmatch(str(error["created_at"]))


BEATS: Final[list[JSON]] = [
    {},
    {"progress": {"current": 1, "total": 9, "message": "x"}},
    {"checkpoint": {"at": 3}},
    {"progress": 40},
    {"progress": None, "checkpoint": None},
    {"usage": {"input_tokens": 5, "cost_usd": 0.001}},
    {"lease_token": 0},
]
"""A number as progress is sent by Go and Rust; a list of beats by Python of later days."""


@pytest.mark.parametrize("as_list", [False, True], ids=["map", "list"])
@pytest.mark.parametrize("beat", BEATS)
def test_a_heartbeat_is_understood_and_its_answer_can_be_read_by_all(
    beat: JSON, as_list: bool
) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        job_id = await make(node)
        await take(node)
        body: JSON = {"jobs": {job_id: beat, "job_x": {}}}
        if as_list:
            body = {"worker_id": "w1", "jobs": [{"job_id": job_id, **beat}, {"job_id": "job_x"}]}

        status, answer = await node.get("/api/v1/heartbeat", body)

        jobs = inner(answer["jobs"])
        assert status == 200
        assert (inner(jobs[job_id])["status"], inner(jobs["job_x"])["status"]) == ("ok", "cancel")
        # Without these the library for Rust cannot read the answer at all.
        assert (answer["acked"], answer["unknown"], answer[STOPPED]) == (
            [job_id],
            ["job_x"],
            [],
        )
        assert TIME.fullmatch(str(answer["lease_expires_at"]))

    main()


@jumping
async def test_progress_and_checkpoint_that_are_texts_of_json_are_what_they_say() -> None:
    node = Node()
    job_id = await make(node)
    await take(node)
    beat = {"job_id": job_id, "progress": '{"current":1}', "checkpoint": "[1]"}

    status, _ = await node.get("/api/v1/heartbeat", {"worker_id": "w1", "jobs": [beat]})

    job = await look(node, job_id)
    assert (status, job["progress"], job["checkpoint"]) == (200, {"current": 1}, [1])


@jumping
async def test_a_worker_hears_that_its_job_is_to_stop() -> None:
    node = Node()
    job_id = await make(node)
    await take(node)

    status, _ = await node.get(f"/api/v1/jobs/{job_id}/cancel")
    _, answer = await node.get("/api/v1/heartbeat", {"jobs": {job_id: {}}})

    assert status == 200
    assert inner(inner(answer["jobs"])[job_id])["status"] == "cancel"


# Jobs and queues.


@pytest.mark.parametrize("body", [b"", {}], ids=["nothing", "an empty object"])
def test_jobs_are_looked_at_and_changed(body: object) -> None:
    @jumping
    async def main() -> None:
        node = Node(shards=1)
        dead, moved, gone = [await make(node, max_retries=1) for _ in range(3)]
        await take(node)
        await node.get(f"/api/v1/fail/{dead}", {"error": "e", "backtrace": ""})

        answers = [
            await node.ask(f"/api/v1/jobs/{dead}/retry", body),
            await node.ask(f"/api/v1/jobs/{dead}/cancel", body),
            await node.ask(f"/api/v1/jobs/{moved}/move", {"queue": "slow"}),
            await node.ask(f"/api/v1/jobs/{gone}", method="DELETE"),
            await node.ask("/api/v1/queues/mail/pause", body),
            await node.ask("/api/v1/queues/mail/resume", body),
        ]
        _, found = await node.get("/api/v1/jobs/bulk-get", {"job_ids": [dead, gone, "job_x"]})

        assert [answer.status for answer in answers] == [200] * len(answers)
        assert [job["id"] for job in objects(found["jobs"])] == [dead]

    main()


@jumping
async def test_queues_and_the_server_are_told_of() -> None:
    node = Node()
    await make(node)

    queues = await node.ask("/api/v1/queues", method="GET")
    info = json_of(await node.ask("/api/v1/info", method="GET"))

    [queue] = objects(msgspec.json.decode(queues.body))
    assert (queue["name"], queue["pending"], queue["paused"]) == ("mail", 1, False)
    assert isinstance(info["server_version"], str)
    assert info["api_version"] == "0.3.0"


@jumping
async def test_a_job_that_is_not_there_is_a_problem_that_the_libraries_can_read() -> None:
    response = await Node().ask("/api/v1/jobs/job_x", method="GET")

    answer = json_of(response)
    assert (response.status, answer["code"]) == (404, "NOT_FOUND")
    assert isinstance(answer["error"], str)
