"""Ids that clients choose: one job for each queue and id, with 1 shard and with 64."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from random import Random
from typing import Final

import msgspec
import pytest
import trio

from corvo.model import ApiKey, Batch
from corvo.placement import shard_of_queue
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.workflow import NewBatch
from corvo.router.enqueue.bodies import EnqueueItem
from corvo.router.http.messages import Response
from corvo.shard.ops.upkeep import Purge
from corvo.shard.state.tables import BATCHES, JOBS
from tests.router.nests import Nest, problem, queue_of, run

JSON = dict[str, object]
SHARDS: Final = (1, 2, 4, 64)
KEYS: Final = {
    "free": ApiKey(key_hash="", name="free", role="operator"),
    "evil": ApiKey(key_hash="", name="evil", role="operator", queue_scope=("evil*",)),
}
on_shards = pytest.mark.parametrize("shards", SHARDS)


def json_of(response: Response) -> JSON:
    return msgspec.json.decode(response.body or b"{}", type=JSON)


def on(shards: int, test: Callable[[Nest], Awaitable[None]], *, keys: bool = False) -> None:
    async def main() -> None:
        await test(Nest(shards, keys=KEYS if keys else None))

    run(main)


async def put(
    nest: Nest,
    queue: str,
    own: str,
    payload: object = 1,
    *,
    x_api_key: str = "",
    idempotency_key: str = "",
) -> Response:
    body = {"queue": queue, "id": own, "payload": payload, "request_key": idempotency_key}
    return await nest.ask("POST", "/api/v1/enqueue", body, x_api_key=x_api_key)


async def fetch(nest: Nest, queue: str) -> JSON:
    body = {"queues": [queue], "worker_id": f"worker of {queue[:9]}", "wait_seconds": 0}
    return json_of(await nest.ask("POST", "/api/v1/fetch", body))


def far_apart(shards: int) -> tuple[str, str]:
    """Two queues, in two shards where there are two."""
    return queue_of(0, shards=shards), queue_of(shards - 1, 1, shards=shards)


# What outsiders found.


@on_shards
def test_one_id_in_two_queues_is_two_jobs_whatever_the_number_of_shards(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)

        first, second = await put(nest, mail, "letter-1"), await put(nest, sms, "letter-1")

        assert (first.status, second.status) == (201, 201)
        assert json_of(first)["job_id"] == f"{mail}~letter-1"
        assert json_of(second)["job"] == {
            "id": f"{sms}~letter-1",
            "queue": sms,
            "state": "pending",
        }

    on(shards, test)


@on_shards
def test_an_ack_without_a_token_ends_the_job_of_its_own_queue_alone(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail, "letter-1")
        await put(nest, sms, "letter-1")
        one, other = await fetch(nest, mail), await fetch(nest, sms)

        acked = await nest.ask("POST", f"/api/v1/ack/{one['job_id']}", {})
        token = {"lease_token": other["lease_token"]}
        others = await nest.ask("POST", f"/api/v1/ack/{other['job_id']}", token)

        assert (acked.status, others.status) == (200, 200), others.body
        assert one["job_id"] != other["job_id"]

    on(shards, test)


@on_shards
def test_a_key_for_other_queues_cannot_take_an_id_nor_see_whether_it_is_taken(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, _ = far_apart(shards)

        taken = await put(nest, "evil-1", "letter-1", x_api_key="evil")
        mine = await put(nest, mail, "letter-1", x_api_key="free")
        seen = await put(nest, "evil-2", "letter-2", x_api_key="evil")
        await put(nest, mail, "letter-2", x_api_key="free")
        again = await put(nest, "evil-3", "letter-2", x_api_key="evil")

        assert [each.status for each in (taken, mine, seen, again)] == [201] * 4
        assert json_of(mine)["job_id"] == f"{mail}~letter-1"

    on(shards, test, keys=True)


@on_shards
def test_another_body_under_a_known_id_is_refused(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, _ = far_apart(shards)
        await put(nest, mail, "letter-1", payload={"to": "ada"})

        same = await put(nest, mail, "letter-1", payload={"to": "ada"})
        other = await put(nest, mail, "letter-1", payload={"to": "bob"})

        assert same.status == 200
        assert problem(other)[:2] == (409, "ID_REUSED")
        assert "payload" in str(json_of(other)["error"])

    on(shards, test)


# How an id is written.


@on_shards
def test_an_id_with_its_queue_and_one_without_are_one_id(shards: int) -> None:
    async def test(nest: Nest) -> None:
        first = await put(nest, "mail", "letter-1")
        again = await put(nest, "mail", "mail~letter-1")

        assert (first.status, again.status) == (201, 200)
        assert json_of(again)["job_id"] == "mail~letter-1"

    on(shards, test)


@pytest.mark.parametrize(
    ("queue", "own", "told"),
    [
        ("mail", "sms~letter-1", "'sms~letter-1' is an id of queue 'sms'"),
        ("mail", "~letter-1", "is an id of queue ''"),
        ("mail", "mail~", "1 to 128 letters"),
        ("mail", "mail~mail~a", "is an id of queue 'mail~mail'"),
        ("mail", "a/b", "1 to 128 letters"),
        ("mail", "x" * 129, "1 to 128 letters"),
        ("mail", "mail~s00_job_1", "this prefix is reserved"),
        ("briefe/an ada", "letter-1", "expected a queue name of letters"),
        ("a~b", "letter-1", "expected a queue name of letters"),
    ],
)
def test_an_id_that_could_be_read_in_two_ways_is_refused_with_the_fix(
    queue: str, own: str, told: str
) -> None:
    async def test(nest: Nest) -> None:
        one = await put(nest, queue, own)
        many = await nest.ask(
            "POST", "/api/v1/enqueue/batch", {"jobs": [{"queue": queue, "id": own}]}
        )

        assert problem(one) == (400, "VALIDATION_ERROR", "bad_request", "id")
        assert problem(many) == (400, "VALIDATION_ERROR", "bad_request", "jobs[0].id")
        assert told in str(json_of(one)["error"])

    on(2, test)


def test_the_longest_id_of_the_longest_queue_is_read_everywhere() -> None:
    async def test(nest: Nest) -> None:
        queue, own = "q" * 255, "x" * 128
        job_id = json_of(await put(nest, queue, own))["job_id"]

        read = await nest.ask("GET", f"/api/v1/jobs/{job_id}")
        given = await fetch(nest, queue)
        acked = await nest.ask("POST", f"/api/v1/ack/{given['job_id']}", {})

        assert (read.status, acked.status) == (200, 200)

    on(4, test)


def test_words_of_the_api_can_be_ids() -> None:
    async def test(nest: Nest) -> None:
        for word in ("batch", "bulk", "bulk-get", "search", ".", ".."):
            job_id = json_of(await put(nest, "mail", word))["job_id"]

            assert (await nest.ask("GET", f"/api/v1/jobs/{job_id}")).status == 200

    on(2, test)


# Where a job is looked for.


def test_only_the_shard_of_the_queue_is_asked_for_a_job() -> None:
    async def test(nest: Nest) -> None:
        await put(nest, "mail", "letter-1", x_api_key="free")
        home = shard_of_queue("mail", 64)

        for key in ("free", "evil"):
            for name in ("mail~letter-1", "mail~letter-2"):
                await nest.ask("GET", f"/api/v1/jobs/{name}", x_api_key=key)
                await nest.ask("POST", f"/api/v1/jobs/{name}/cancel", x_api_key=key)
                await nest.ask("POST", f"/api/v1/ack/{name}", {}, x_api_key=key)

        asked = [shard.number for shard in nest.shards if shard.questions]
        done = [shard.number for shard in nest.shards if shard.machine.log]
        assert (asked, done) == ([home], [home])

    on(64, test, keys=True)


@on_shards
def test_a_job_that_was_moved_and_deleted_there_is_made_again_at_once(shards: int) -> None:
    """Its home hears of the deletion later."""

    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail, "letter-1")
        path = f"/api/v1/jobs/{mail}~letter-1"
        await nest.ask("POST", f"{path}/move", {"queue": sms})
        nest.deliver()
        await nest.ask("DELETE", path)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver_later, nest)
            again = await put(nest, mail, "letter-1", payload=2, idempotency_key="k")
        same = await put(nest, mail, "letter-1", payload=2, idempotency_key="k")

        assert (again.status, same.status) == (201, 200 if shards > 1 else 201)
        assert json_of(await nest.ask("GET", path))["payload"] == 2

    on(shards, test)


@on_shards
def test_a_job_on_its_way_is_waited_for_and_compared(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail, "letter-1")
        await nest.ask("POST", f"/api/v1/jobs/{mail}~letter-1/move", {"queue": sms})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver_later, nest)
            same = await put(nest, mail, "letter-1")
            other = await put(nest, mail, "letter-1", payload=2)

        assert (same.status, json_of(same)["job"]) == (
            200,
            {"id": f"{mail}~letter-1", "queue": sms, "state": "pending"},
        )
        assert problem(other)[:2] == (409, "ID_REUSED")

    on(shards, test)


async def deliver_later(nest: Nest) -> None:
    await trio.sleep(0.12)
    nest.deliver()


# Another body.


OTHERS: Final[dict[str, object]] = {
    "payload": {"to": "bob"},
    "kind": "welcome",
    "max_retries": 9,
    "retry_backoff": "fixed",
    "retry_base_delay": "9s",
    "retry_max_delay": "9m",
    "retry_jitter": 9,
    "max_run_time": "9s",
    "max_crashes": 9,
    "unique_key": "u",
    "unique_period": 9,
    "expire_after": "9h",
    "expire_active": True,
    "tags": {"a": "b"},
    "parent_id": "mail~parent",
    "chain": {"steps": [{"queue": "mail"}, {"queue": "sms"}]},
    "agent": {"max_iterations": 9},
}
NOT_COMPARED: Final[dict[str, object]] = {
    "priority": "high",
    "scheduled_at": "2100-01-01T00:00:00Z",
    "delay": "9s",
    "checkpoint": 9,
    "depends_on": ["sms~other"],
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "dependency_wait": "9s",
}


@pytest.mark.parametrize("field", OTHERS)
def test_each_field_that_differs_is_named(field: str) -> None:
    async def test(nest: Nest) -> None:
        body: JSON = {"queue": "mail", "id": "a", "payload": {}, "unique_key": "k"}
        other = body | {field: OTHERS[field]}
        await nest.ask("POST", "/api/v1/enqueue", body)
        await nest.ask("POST", "/api/v1/enqueue", other | {"id": "b", "unique_key": "k2"})

        refused = await nest.ask("POST", "/api/v1/enqueue", other)
        taken = await nest.ask("POST", "/api/v1/enqueue", body | {"id": "b", "unique_key": "k2"})

        assert problem(refused) == (409, "ID_REUSED", "", "id")
        assert json_of(refused)["differs"] == [field]
        assert f"another {field}" in str(json_of(refused)["error"])
        if field != "unique_key":
            assert json_of(taken)["differs"] == [field]

    on(1, test)


@pytest.mark.parametrize("field", NOT_COMPARED)
def test_what_may_change_after_the_enqueue_is_not_compared(field: str) -> None:
    async def test(nest: Nest) -> None:
        body: JSON = {"queue": "mail", "id": "a"}
        await nest.ask("POST", "/api/v1/enqueue", body)

        same = await nest.ask("POST", "/api/v1/enqueue", body | {field: NOT_COMPARED[field]})

        assert same.status == 200

    on(1, test)


def test_every_field_of_an_enqueue_is_compared_or_not() -> None:
    durations = {f"{field}_ms" for field in EnqueueItem.__struct_fields__}
    plain = set(EnqueueItem.__struct_fields__) - durations
    others = {"queue", "id", "batch_id", "chain_config", "chain_id", "chain_step", "tracestate"}

    assert plain == {*OTHERS, *NOT_COMPARED} | others


def test_a_payload_is_named_by_its_digests() -> None:
    async def test(nest: Nest) -> None:
        await put(nest, "mail", "a", payload=1)

        refused = await put(nest, "mail", "a", payload=2)

        for payload in (b"1", b"2"):
            assert sha256(payload).hexdigest() in str(json_of(refused)["error"])

    on(1, test)


def test_what_a_worker_does_to_a_job_makes_it_no_other_job() -> None:
    async def test(nest: Nest) -> None:
        body = {
            "queue": "mail",
            "id": "a",
            "payload": [1],
            "agent": {"max_iterations": 5},
            "expire_after": "1h",
            "unique_key": "k",
            "max_retries": 7,
        }
        await nest.ask("POST", "/api/v1/enqueue", body)
        told = {"checkpoint": 3, "result": 4, "agent_status": "continue", "usage": {"cost_usd": 1}}
        for path, sent in (
            ("ack/mail~a", told),
            ("fail/mail~a", {"error": "no"}),
            ("jobs/mail~a/retry", {}),
        ):
            await fetch(nest, "mail")
            await nest.ask("POST", f"/api/v1/{path}", sent)
            await nest.ask("POST", "/api/v1/jobs/mail~a/priority", {"priority": "high"})

            same = await nest.ask("POST", "/api/v1/enqueue", body)

            assert same.status == 200, same.body

    on(1, test)


# Many jobs.


@on_shards
def test_of_many_jobs_those_whose_ids_are_taken_are_refused_alone(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail, "a", payload=1)
        jobs: list[JSON] = [
            {"queue": mail, "id": "a", "payload": 2},
            {"queue": mail, "id": "a", "payload": 1},
            {"queue": sms, "id": "a", "payload": 2},
        ]

        answer = await nest.ask("POST", "/api/v1/enqueue/batch", {"jobs": jobs})
        alone = await nest.ask("POST", "/api/v1/enqueue/batch", {"jobs": jobs[:1]})

        told = json_of(answer)
        assert (answer.status, told["code"], told["outcome"]) == (409, "ID_REUSED", "applied")
        assert told["job_ids"] == [None, f"{mail}~a", f"{sms}~a"]
        items = msgspec.convert(told["jobs"], list[JSON])
        assert [item.get("code", item.get("status")) for item in items] == [
            "ID_REUSED",
            "pending",
            "pending",
        ]
        assert items[0]["differs"] == ["payload"]
        assert problem(alone) == (409, "ID_REUSED", "", "jobs[0].id")

    on(shards, test)


@on_shards
def test_jobs_of_a_batch_that_come_again_are_no_members(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        jobs = [{"queue": queue, "id": "a"} for queue in (mail, sms)]
        body = {"jobs": jobs, "batch": {"callback_queue": mail}}
        first = json_of(await nest.ask("POST", "/api/v1/enqueue/batch", body))

        again = await nest.ask("POST", "/api/v1/enqueue/batch", body)

        assert json_of(again)["job_ids"] == first["job_ids"]
        nest.deliver()
        batches = [each for shard in nest.shards for each in shard.machine.documents(BATCHES)]
        assert [(each.id, each.total) for each in batches] == [(first["batch_id"], 2)]

    on(shards, test)


# Ids that clients chose before they had their queue.


@on_shards
def test_a_job_with_an_id_without_a_queue_is_found_by_it(shards: int) -> None:
    async def test(nest: Nest) -> None:
        nest.put("mail", id="old")

        read = await nest.ask("GET", "/api/v1/jobs/old")
        given = await fetch(nest, "mail")
        acked = await nest.ask("POST", "/api/v1/ack/old", {})

        assert (read.status, given["job_id"], acked.status) == (200, "old", 200)

    on(shards, test)


@on_shards
def test_a_job_that_was_sent_before_ids_had_their_queue_is_not_made_again(shards: int) -> None:
    async def test(nest: Nest) -> None:
        nest.put("mail", id="old", payload=msgspec.Raw(b"1"))

        same = await put(nest, "mail", "old", payload=1)
        other = await put(nest, "mail", "old", payload=2)
        elsewhere = await put(nest, "sms", "old", payload=1)

        assert (same.status, json_of(same)["job_id"]) == (200, "old")
        assert problem(other)[:2] == (409, "ID_REUSED")
        assert (elsewhere.status, json_of(elsewhere)["job_id"]) == (201, "sms~old")

    on(shards, test)


def test_an_own_id_alone_is_told_how_the_whole_is_written() -> None:
    async def test(nest: Nest) -> None:
        await put(nest, "mail", "letter-1")

        for path in ("jobs/letter-1", "jobs/letter-1/explain"):
            missing = await nest.ask("GET", f"/api/v1/{path}")

            assert problem(missing)[:2] == (404, "NOT_FOUND")
            assert "QUEUE~ID" in str(json_of(missing)["error"])

    on(2, test)


# Other jobs that name it.


@on_shards
def test_a_job_waits_for_a_job_of_any_queue_by_its_id(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail, "first")
        body = {"queue": sms, "id": "then", "depends_on": [f"{mail}~first"]}
        await nest.ask("POST", "/api/v1/enqueue", body)
        nest.deliver()
        before = await fetch(nest, sms)

        await fetch(nest, mail)
        await nest.ask("POST", f"/api/v1/ack/{mail}~first", {})
        nest.deliver()

        assert before == {}
        assert (await fetch(nest, sms))["job_id"] == f"{sms}~then"

    on(shards, test)


@on_shards
def test_a_job_can_be_waited_for_before_it_exists(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        body = {"queue": sms, "id": "then", "depends_on": [f"{mail}~first"]}
        explain = f"/api/v1/jobs/{sms}~then/explain"

        made = await nest.ask("POST", "/api/v1/enqueue", body, x_api_key="free")
        nest.deliver()
        missing = json_of(await nest.ask("GET", explain, x_api_key="free"))
        await put(nest, mail, "first", x_api_key="free")
        nest.deliver()
        waits = json_of(await nest.ask("GET", explain, x_api_key="free"))

        assert (made.status, missing["code"], waits["code"]) == (201, "missing", "waits")
        assert f"{mail}~first, which does not exist yet" in str(missing["text"])
        assert str(missing["until"]) > "20"

    on(shards, test, keys=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_key_for_other_queues_cannot_wait_for_a_job_nor_see_whether_it_exists(
    *, is_there: bool
) -> None:
    """Otherwise it would learn when a job with a guessed id is made, and how it ends."""

    async def test(nest: Nest) -> None:
        if is_there:
            await put(nest, "mail", "a", x_api_key="free")
        body = {"queue": "evil-1", "depends_on": ["mail~a"]}

        one = await nest.ask("POST", "/api/v1/enqueue", body, x_api_key="evil")
        many = await nest.ask("POST", "/api/v1/enqueue/batch", {"jobs": [body]}, x_api_key="evil")
        chain = {"queue": "evil-1", "chain_config": {"depends_on": ["mail~a"]}}
        older = await nest.ask("POST", "/api/v1/enqueue", chain, x_api_key="evil")

        told = [(problem(each), json_of(each)["error"]) for each in (one, many, older)]
        assert told == [((404, "NOT_FOUND", "job_not_found", ""), 'job "mail~a" not found')] * 3
        assert nest["evil-1"].counts("evil-1") == {}

    on(2, test, keys=True)


ON_JOBS: Final[tuple[tuple[str, str, JSON], ...]] = (
    ("GET", "jobs/mail~a", {}),
    ("GET", "jobs/mail~a/explain", {}),
    ("GET", "jobs/mail~a/timeline", {}),
    ("DELETE", "jobs/mail~a", {}),
    *(
        ("POST", f"jobs/mail~a/{word}", {})
        for word in ("retry", "cancel", "hold", "approve", "reject", "requeue", "expedite")
    ),
    ("POST", "jobs/mail~a/move", {"queue": "evil-1"}),
    ("POST", "jobs/mail~a/priority", {"priority": "high"}),
    ("POST", "ack/mail~a", {}),
    ("POST", "fail/mail~a", {}),
    ("POST", "release/mail~a", {}),
    ("POST", "snooze/mail~a", {"delay": "1s"}),
    ("POST", "ack/batch", {"acks": [{"job_id": "mail~a"}]}),
    ("POST", "fail/batch", {"fails": [{"job_id": "mail~a"}]}),
    ("POST", "heartbeat", {"jobs": {"mail~a": {}}}),
    ("POST", "jobs/bulk", {"action": "cancel", "job_ids": ["mail~a"]}),
    ("POST", "jobs/bulk-get", {"job_ids": ["mail~a"]}),
)


@pytest.mark.parametrize(("method", "path", "body"), ON_JOBS, ids=lambda each: str(each)[:40])
def test_a_job_of_another_queue_is_for_a_key_as_if_it_did_not_exist(
    method: str, path: str, body: JSON
) -> None:
    told: list[tuple[int, object, object]] = []

    async def test(nest: Nest) -> None:
        if told:
            await put(nest, "mail", "a", x_api_key="free")
            await nest.ask("POST", "/api/v1/fetch", {"queues": ["mail"]}, x_api_key="free")
        before = nest["mail"].documents(JOBS)
        answer = await nest.ask(method, f"/api/v1/{path}", body, x_api_key="evil")
        shown = json_of(answer)
        told.append((answer.status, shown.get("error"), shown.get("jobs")))
        assert nest["mail"].documents(JOBS) == before

    on(2, test, keys=True)
    on(2, test, keys=True)

    assert told[0] == told[1]
    assert told[0][0] == (200 if path == "jobs/bulk-get" else 404)


# Batches.


def batch_of(nest: Nest, batch_id: object) -> Batch:
    [found] = [
        each
        for shard in nest.shards
        for each in shard.machine.documents(BATCHES)
        if each.id == batch_id
    ]
    return found


@on_shards
def test_a_key_for_other_queues_cannot_join_a_batch_nor_see_whether_it_exists(shards: int) -> None:
    async def test(nest: Nest) -> None:
        body = {"jobs": [{"queue": "mail"}], "batch": {}}
        made = await nest.ask("POST", "/api/v1/enqueue/batch", body, x_api_key="free")
        real = str(json_of(made)["batch_id"])
        made_up = [real[:-1] + "Z", "s00_batch_x", "s99_batch_x", "mail~x"]

        answers = []
        for batch_id in (real, *made_up):
            job = {"queue": "evil-1", "batch_id": batch_id}
            for path, sent in (("enqueue", job), ("enqueue/batch", {"jobs": [job]})):
                answer = await nest.ask("POST", f"/api/v1/{path}", sent, x_api_key="evil")
                answers.append(
                    (*problem(answer), str(json_of(answer)["error"]).replace(batch_id, ""))
                )

        assert len(set(answers)) == 1, answers
        assert answers[0][:3] == (404, "NOT_FOUND", "batch_not_found")
        assert batch_of(nest, real).total == 1

    on(shards, test, keys=True)


@on_shards
def test_a_key_for_the_queue_of_a_batch_joins_it_from_its_other_queues(shards: int) -> None:
    async def test(nest: Nest) -> None:
        body = {"jobs": [{"queue": "evil-1"}, {"queue": "mail"}], "batch": {}}
        made = await nest.ask("POST", "/api/v1/enqueue/batch", body, x_api_key="free")
        job = {"queue": "evil-1", "batch_id": json_of(made)["batch_id"]}

        joined = await nest.ask("POST", "/api/v1/enqueue", job, x_api_key="evil")

        assert joined.status == 201
        batch = batch_of(nest, json_of(made)["batch_id"])
        assert (batch.queue, batch.total) == ("evil-1", 3)

    on(shards, test, keys=True)


@pytest.mark.parametrize(("callback", "status"), [("evil-2", 201), ("mail", 404), ("", 404)])
def test_a_batch_from_before_it_had_a_queue_belongs_to_that_of_its_callback(
    callback: str, status: int
) -> None:
    async def test(nest: Nest) -> None:
        op = Enqueue(jobs=[NewJob(queue="mail")], batch=NewBatch(callback_queue=callback))
        batch_id = nest["mail"].enqueue(op).batch_id

        joined = await nest.ask(
            "POST", "/api/v1/enqueue", {"queue": "evil-1", "batch_id": batch_id}, x_api_key="evil"
        )

        assert joined.status == status

    on(2, test, keys=True)


# Everything that can happen to an id, beside a twin that is a dictionary.


QUEUES: Final = ("mail", "evil-1", "evil-2")
OWNS: Final = ("a", "batch")
WHO: Final = ("free", "evil")


class Known(msgspec.Struct):
    """What the twin knows of a job."""

    payload: int
    queue: str
    state: str = "pending"


class Twin:
    """Jobs by queue and own id."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Known] = {}

    def put(self, who: str, queue: str, own: str, payload: int) -> object:
        if not sees(who, queue):
            return 403
        job_id, known = f"{queue}~{own}", self.jobs.get((queue, own))
        if known is None:
            known = self.jobs[queue, own] = Known(payload, queue)
            return 201, job_id, "pending", queue
        if known.payload != payload:
            return 409
        if not sees(who, known.queue):
            return 200, job_id, "moved", queue
        return 200, job_id, known.state, known.queue

    def found(self, who: str, queue: str, own: str) -> Known | int:
        """The job as the caller may see it, or the status of the refusal."""
        known = self.jobs.get((queue, own))
        if known is not None and sees(who, known.queue):
            return known
        return 404 if known is None or not sees(who, queue) else 403

    def get(self, who: str, queue: str, own: str) -> object:
        known = self.found(who, queue, own)
        return known if isinstance(known, int) else (200, known.payload, known.queue, known.state)

    def ack(self, who: str, queue: str, own: str) -> object:
        known = self.found(who, queue, own)
        if isinstance(known, int):
            return known
        if known.state != "active":
            return 409
        known.state = "completed"
        return 200

    def delete(self, who: str, queue: str, own: str) -> object:
        known = self.found(who, queue, own)
        if isinstance(known, int):
            return known
        del self.jobs[queue, own]
        return 200

    def move(self, who: str, queue: str, own: str, target: str) -> object:
        if not sees(who, target):
            return 403
        known = self.found(who, queue, own)
        if isinstance(known, int):
            return known
        known.queue = target
        return 200

    def fetched(self, job_id: str) -> None:
        queue, own = job_id.split("~")
        known = self.jobs[queue, own]
        assert known.state == "pending"
        known.state = "active"

    def purge(self) -> None:
        self.jobs = {key: job for key, job in self.jobs.items() if job.state != "completed"}


def sees(who: str, queue: str) -> bool:
    return who == "free" or queue.startswith("evil")


class Line:
    """A node whose clients choose their ids."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest

    async def _ask(self, who: str, method: str, path: str, body: object = b"") -> Response:
        answer = await self.nest.ask(method, f"/api/v1/{path}", body, x_api_key=who)
        self.nest.deliver()
        return answer

    async def put(self, who: str, queue: str, own: str, payload: int) -> object:
        body = {"queue": queue, "id": own, "payload": payload}
        answer = await self._ask(who, "POST", "enqueue", body)
        if answer.status >= 300:
            return answer.status
        made = msgspec.json.decode(answer.body, type=Made)
        return answer.status, made.job_id, made.status, made.job.queue

    async def get(self, who: str, queue: str, own: str) -> object:
        answer = await self._ask(who, "GET", f"jobs/{queue}~{own}")
        if answer.status != 200:
            return answer.status
        job = msgspec.json.decode(answer.body, type=Shown)
        assert job.id == f"{queue}~{own}"
        return 200, job.payload, job.queue, job.state

    async def ack(self, who: str, queue: str, own: str) -> object:
        return (await self._ask(who, "POST", f"ack/{queue}~{own}", {})).status

    async def delete(self, who: str, queue: str, own: str) -> object:
        return (await self._ask(who, "DELETE", f"jobs/{queue}~{own}")).status

    async def move(self, who: str, queue: str, own: str, target: str) -> object:
        body = {"queue": target}
        return (await self._ask(who, "POST", f"jobs/{queue}~{own}/move", body)).status

    async def fetch(self, queue: str) -> str:
        body = {"queues": [queue], "wait_seconds": 0}
        return str(json_of(await self._ask("free", "POST", "fetch", body)).get("job_id", ""))

    def purge(self) -> None:
        latest_ns = max(shard.machine.clock_ns for shard in self.nest.shards)
        for shard in self.nest.shards:
            shard.machine.clock_ns = latest_ns + 2_000_000
            for queue in QUEUES:
                shard.machine.do(Purge(queue=queue, keep_ms=1, limit=100))
        self.nest.deliver()


class Shown(msgspec.Struct):
    id: str
    payload: int
    queue: str
    state: str


class Named(msgspec.Struct):
    queue: str


class Made(msgspec.Struct):
    job_id: str
    status: str
    job: Named


def step(random: Random) -> tuple[object, ...]:
    """One that meets the same few ids again and again."""
    who, name = random.choice(WHO), (random.choice(QUEUES), random.choice(OWNS))
    return random.choice(
        (
            ("put", who, name, random.choice((1, 1, 2))),
            ("put", who, name, 1),
            (random.choice(("get", "ack", "delete")), who, name),
            ("move", random.choice(("free", "free", "evil")), name, random.choice(QUEUES)),
            ("fetch", random.choice(QUEUES)),
            ("purge",) if not random.randrange(4) else ("get", who, name),
        )
    )


@on_shards
@pytest.mark.parametrize("seed", range(10))
def test_an_id_means_what_a_dictionary_says(shards: int, seed: int) -> None:
    async def test(nest: Nest) -> None:
        line, twin, random = Line(nest), Twin(), Random(seed)
        for _ in range(200):
            match step(random):
                case ("purge",):
                    line.purge()
                    twin.purge()
                case "fetch", str(queue):
                    job_id = await line.fetch(queue)
                    if job_id:
                        twin.fetched(job_id)
                    pending = [job for job in twin.jobs.values() if job.state == "pending"]
                    assert job_id or not any(job.queue == queue for job in pending)
                case str(word), str(who), (queue, own), *more:
                    answer = await getattr(line, word)(who, queue, own, *more)
                    assert answer == getattr(twin, word)(who, queue, own, *more), (word, more)

    on(shards, test, keys=True)
