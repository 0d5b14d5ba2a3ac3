"""What producers say and hear: every field of a job, many jobs at once, and what goes wrong."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.ids import shard_of
from corvo.model import Backoff, Job, State
from corvo.protocol.ops.base import ITEMS_MAX, encode_json
from corvo.protocol.ops.base import Limits as OpLimits
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.workflow import Chain, NewAgent, NewBatch, Step
from corvo.router.caller import Caller
from corvo.router.config import Limits
from corvo.router.enqueue.bodies import (
    LIMITS,
    EnqueueItem,
    decode_enqueue,
    new_job,
    new_jobs,
    plan,
    webhook_payload,
)
from corvo.router.http.bodies import read_body
from corvo.router.http.messages import Problem
from corvo.scopes import EVERYTHING, Scope
from corvo.shard.state.tables import BATCHES
from tests.router.machines import Node, json_of, queue_of
from tests.support.links import jumping

NOW_NS: Final = 1_771_581_600_000_000_000
MS: Final = 1_000_000
GONE: Final = Problem(503, "LEADER_UNAVAILABLE", "shard 1 has no leader", retry_after_ms=1_000)
BUSY: Final = Problem(429, "OVERLOADED", "shard 0 has more to do", retry_after_ms=50)
LOST: Final = Problem(503, "OUTCOME_UNKNOWN", "shard 1 went away", outcome="unknown")


def item_of(**fields: object) -> EnqueueItem:
    return read_body(decode_enqueue.decode, encode_json({"queue": "mail", **fields}))


def said(**fields: object) -> NewJob:
    """What an item with these fields becomes."""
    return new_job(item_of(**fields))


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


# Fields.


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, NewJob(queue="mail")),
        ({"payload": None}, NewJob(queue="mail", payload=raw(b"null"))),
        ({"payload": [1, "é"]}, NewJob(queue="mail", payload=raw('[1,"é"]'.encode()))),
        ({"id": "o-17", "kind": "welcome"}, NewJob(queue="mail", id="mail~o-17", kind="welcome")),
        ({"id": "mail~o-17"}, NewJob(queue="mail", id="mail~o-17")),
        ({"priority": "critical"}, NewJob(queue="mail", priority=0)),
        ({"priority": " High "}, NewJob(queue="mail", priority=1)),
        ({"priority": "normal"}, NewJob(queue="mail", priority=2)),
        ({"priority": "low"}, NewJob(queue="mail", priority=2)),
        ({"priority": ""}, NewJob(queue="mail", priority=2)),
        ({"priority": 1}, NewJob(queue="mail", priority=1)),
        ({"priority": "1"}, NewJob(queue="mail", priority=1)),
        ({"max_retries": 0}, NewJob(queue="mail", max_retries=0)),
        ({"retry_backoff": "Linear"}, NewJob(queue="mail", retry_backoff=Backoff.LINEAR)),
        ({"retry_backoff": ""}, NewJob(queue="mail")),
        ({"retry_base_delay": "1m"}, NewJob(queue="mail", retry_base_delay_ms=60_000)),
        ({"retry_base_delay_ms": 7}, NewJob(queue="mail", retry_base_delay_ms=7)),
        ({"retry_max_delay": "1h30m"}, NewJob(queue="mail", retry_max_delay_ms=5_400_000)),
        ({"retry_jitter": 20}, NewJob(queue="mail", retry_jitter=20)),
        ({"max_run_time": "10s"}, NewJob(queue="mail", max_run_time_ms=10_000)),
        ({"max_crashes": 1}, NewJob(queue="mail", max_crashes=1)),
        ({"unique_key": "k"}, NewJob(queue="mail", unique_key="k")),
        ({"unique_period": 60}, NewJob(queue="mail", unique_period_ms=60_000)),
        ({"unique_period": "1h"}, NewJob(queue="mail", unique_period_ms=3_600_000)),
        ({"unique_period": 0}, NewJob(queue="mail", unique_period_ms=0)),
        ({"unique_period": -5}, NewJob(queue="mail", unique_period_ms=0)),
        ({"unique_period_ms": 5}, NewJob(queue="mail", unique_period_ms=5)),
        (
            {"scheduled_at": "2026-02-20T11:00:00.000000001+01:00"},
            NewJob(queue="mail", scheduled_ns=NOW_NS + 1),
        ),
        ({"scheduled_at": ""}, NewJob(queue="mail")),
        ({"delay": "5s"}, NewJob(queue="mail", delay_ms=5_000)),
        ({"delay_ms": 5}, NewJob(queue="mail", delay_ms=5)),
        ({"expire_after": "24h"}, NewJob(queue="mail", expire_after_ms=86_400_000)),
        ({"expire_after": "7d"}, NewJob(queue="mail", expire_after_ms=604_800_000)),
        ({"delay": "1d12h"}, NewJob(queue="mail", delay_ms=129_600_000)),
        ({"scheduled_at": "1970-01-02"}, NewJob(queue="mail", scheduled_ns=86_400 * 10**9)),
        ({"expire_after": "1us"}, NewJob(queue="mail", expire_after_ms=1)),
        ({"expire_after_ms": 9, "expire_active": True},
         NewJob(queue="mail", expire_after_ms=9, expire_active=True)),
        ({"tags": {"env": "t"}}, NewJob(queue="mail", tags={"env": "t"})),
        ({"checkpoint": {"at": 3}}, NewJob(queue="mail", checkpoint=raw(b'{"at":3}'))),
        ({"parent_id": "p"}, NewJob(queue="mail", parent_id="p")),
        ({"batch_id": "s00_batch_x"}, NewJob(queue="mail", batch_id="s00_batch_x")),
        (
            {"depends_on": [" a", "b", "a ", ""]},
            NewJob(queue="mail", depends_on=("a", "b"), dependency_wait_ms=86_400_000),
        ),
        ({"depends_on": [" "]}, NewJob(queue="mail")),
        ({"depends_on": ["a"], "dependency_wait": "2h"},
         NewJob(queue="mail", depends_on=("a",), dependency_wait_ms=7_200_000)),
        ({"depends_on": ["a"], "dependency_wait": "0s"}, NewJob(queue="mail", depends_on=("a",))),
        ({"depends_on": ["a"], "dependency_wait_ms": 0}, NewJob(queue="mail", depends_on=("a",))),
        ({"agent": {}}, NewJob(queue="mail", agent=NewAgent())),
        (
            {"agent": {"max_iterations": 9, "max_cost_usd": 0.3, "iteration_timeout": "5m"}},
            NewJob(
                queue="mail",
                agent=NewAgent(
                    max_iterations=9, max_cost_micros=300_000, iteration_timeout_ms=300_000
                ),
            ),
        ),
        (
            {"agent": {"max_iterations": -1, "max_cost_usd": -0.5, "iteration_timeout_ms": 7}},
            NewJob(queue="mail", agent=NewAgent(iteration_timeout_ms=7)),
        ),
    ],
)  # fmt: skip
def test_a_field_becomes_what_the_op_has(fields: dict[str, object], wanted: NewJob) -> None:
    assert encode_json(said(**fields)) == encode_json(wanted)


SAMPLES: Final[dict[str, object]] = {
    "queue": "sms",
    "payload": 1,
    "id": "o-17",
    "kind": "welcome",
    "priority": 1,
    "max_retries": 9,
    "retry_backoff": "linear",
    "retry_base_delay": "1m",
    "retry_base_delay_ms": 7,
    "retry_max_delay": "1m",
    "retry_max_delay_ms": 7,
    "retry_jitter": 20,
    "max_run_time": "1m",
    "max_run_time_ms": 7,
    "max_crashes": 9,
    "unique_key": "user-7",
    "unique_period": 7,
    "unique_period_ms": 7,
    "scheduled_at": "2030-01-01T00:00:00Z",
    "delay": "1m",
    "delay_ms": 7,
    "expire_after": "1m",
    "expire_after_ms": 7,
    "expire_active": True,
    "tags": {"env": "t"},
    "checkpoint": 1,
    "parent_id": "above",
    "batch_id": "b",
    "chain": {"steps": [{"queue": "mail"}, {"queue": "bill"}]},
    "chain_config": {"steps": [{"queue": "mail"}, {"queue": "bill"}]},
    "depends_on": ["a"],
    "dependency_wait": "1m",
    "dependency_wait_ms": 7,
    "agent": {},
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
REFUSED: Final = {"chain_id": "a", "chain_step": 1, "tracestate": "vendor=1"}


@pytest.mark.parametrize("field", EnqueueItem.__struct_fields__)
def test_every_field_of_an_item_is_in_the_op_or_refused(field: str) -> None:
    if field in REFUSED:
        with pytest.raises(Problem):
            said(**{field: REFUSED[field]})
    else:
        assert said(**{field: SAMPLES[field]}) != said()


def test_null_is_as_absent_in_every_field_but_the_payload() -> None:
    optional = [field for field in EnqueueItem.__struct_fields__ if field != "queue"]

    job = said(**dict.fromkeys(optional))

    assert encode_json(job) == b'{"queue":"mail","payload":null}'


STEPS: Final = [{"queue": "mail"}, {"queue": "bill", "payload": {"a": 1}}]


def test_dependencies_are_read_in_the_older_way_too() -> None:
    job = said(chain_config={"depends_on": ["a"]}, depends_on=["b", "a"])

    assert (job.depends_on, job.chain) == (("b", "a"), None)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": None}, "queue"),
        ({"queue": "x" * 256}, "queue"),
        ({"id": ""}, "id"),
        ({"priority": "urgent"}, "priority"),
        ({"priority": 3}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": "3"}, "max_retries"),
        ({"max_retries": 100_001}, "max_retries"),
        ({"retry_backoff": "cubic"}, "retry_backoff"),
        ({"retry_base_delay": "fast"}, "retry_base_delay"),
        ({"retry_base_delay": 5}, "retry_base_delay"),
        ({"retry_base_delay": "1s", "retry_base_delay_ms": 2}, "retry_base_delay"),
        ({"retry_max_delay": "-1s"}, "retry_max_delay"),
        ({"retry_jitter": 101}, "retry_jitter"),
        ({"max_run_time": "1w"}, "max_run_time"),
        ({"unique_period": "long"}, "unique_period"),
        ({"unique_period": "1s", "unique_period_ms": 2}, "unique_period"),
        ({"unique_period": 1, "unique_period_ms": 2}, "unique_period"),
        ({"unique_period": 10**10}, "unique_period"),
        ({"unique_key": "x" * 256}, "unique_key"),
        ({"scheduled_at": "tomorrow"}, "scheduled_at"),
        ({"scheduled_at": "2026-02-20T11:00:00Z", "delay": "1s"}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"expire_after": "2 days"}, "expire_after"),
        ({"dependency_wait": "soon"}, "dependency_wait"),
        ({"dependency_wait": "1s", "dependency_wait_ms": 2}, "dependency_wait"),
        ({"tags": ["a"]}, "tags"),
        ({"tags": {"a": 1}}, "tags[...]"),
        ({"agent": {"max_cost_usd": "much"}}, "agent.max_cost_usd"),
        ({"agent": {"max_cost_usd": 1e10}}, "agent.max_cost_usd"),
        ({"agent": {"iteration_timeout": "long"}}, "agent.iteration_timeout"),
        ({"chain": {}}, "chain.steps"),
        ({"chain": {"steps": [{"queue": "mail"}]}}, "chain.steps"),
        ({"chain": {"steps": [{"queue": "mail"}, {"queue": ""}]}}, "chain.steps[1].queue"),
        ({"chain": {"steps": [{"queue": "mail"}, {}]}}, "chain.steps[1].queue"),
        ({"chain": {"steps": STEPS, "on_failure": 7}}, "chain.on_failure"),
        ({"chain": {"steps": STEPS}, "chain_config": {"steps": STEPS}}, "chain_config"),
        ({"chain_config": {"steps": [{}]}}, "chain_config.steps[0].queue"),
        ({"chain_config": {"on_exit": "end"}}, "chain_config.steps"),
        ({"chain_config": "{}"}, "chain_config"),
        ({"queue": "_corvo.x"}, "queue"),
        ({"queue": "_corvo.x", "kind": "k"}, "queue"),
        ({"chain_id": "chn_1"}, "chain_id"),
        ({"chain_step": 2}, "chain_step"),
    ],
)
def test_what_a_field_says_wrongly_is_refused_by_its_name(
    fields: dict[str, object], field: str
) -> None:
    with pytest.raises(Problem) as caught:
        said(**fields)

    problem = caught.value
    assert (problem.status, problem.code, problem.field) == (400, "VALIDATION_ERROR", field)
    assert problem.outcome == "not_applied"


# Many jobs in parts.


def test_the_jobs_of_each_shard_keep_their_order() -> None:
    one, two, three = queue_of(0), queue_of(1), queue_of(0, number=1)
    jobs = [NewJob(queue=queue) for queue in (two, one, two, three, two)]

    planned = plan(jobs, 2)

    assert [[(part.shard, part.places) for part in parts] for parts in planned] == [
        [(1, [0, 2, 4])],
        [(0, [1, 3])],
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from((0, 5_000, 700_000, 900_000))),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_every_job_is_in_one_part_and_every_part_is_an_op_that_a_shard_takes(
    drawn: list[tuple[int, int]], shards: int
) -> None:
    payload = b'"' + b"x" * 900_000 + b'"'
    jobs = [
        NewJob(queue=f"q{queue}", payload=raw(payload[:size] + b'"' if size else b"0"))
        for queue, size in drawn
    ]

    planned = plan(jobs, shards)

    parts = [part for parts in planned for part in parts]
    assert sorted(place for part in parts for place in part.places) == list(range(len(jobs)))
    for part in parts:
        assert part.places == sorted(part.places)
        op = Enqueue(
            jobs=[jobs[place] for place in part.places], request_key="k" * 64, by="w" * 255
        )
        assert len(encode_json(op)) <= OpLimits().op_bytes_max
    for of_shard in planned:
        places = [place for part in of_shard for place in part.places]
        assert places == sorted(places)
        assert len({part.shard for part in of_shard}) == 1


def test_no_part_has_more_jobs_than_an_op_may_have() -> None:
    [parts] = plan([NewJob(queue="mail")] * (2 * ITEMS_MAX + 1), 1)

    assert [len(part.places) for part in parts] == [ITEMS_MAX, ITEMS_MAX, 1]


def test_no_part_has_more_bytes_than_an_op_may_have() -> None:
    megabyte = raw(b'"' + b"x" * 1_000_000 + b'"')

    [parts] = plan([NewJob(queue="mail", payload=megabyte)] * 9, 1)

    assert [len(part.places) for part in parts] == [4, 4, 1]


def test_a_batch_takes_room_in_the_op_that_makes_it() -> None:
    megabyte = raw(b'"' + b"x" * 1_000_000 + b'"')
    batch = NewBatch(callback_payload=megabyte)

    [parts] = plan([NewJob(queue="mail", payload=megabyte)] * 4, 1, batch)

    assert [len(part.places) for part in parts] == [3, 1]


def test_a_job_too_large_for_any_op_is_refused_by_its_place() -> None:
    megabyte = raw(b'"' + b"x" * (LIMITS.payload_bytes_max - 2) + b'"')
    steps = [Step("mail", megabyte)] * 3
    jobs = [NewJob(queue="mail"), NewJob(queue="mail", payload=megabyte, chain=Chain(steps=steps))]

    with pytest.raises(Problem) as caught:
        plan(jobs, 1)

    assert (caught.value.status, caught.value.field) == (413, "jobs[1]")


def test_a_bad_item_is_named_by_its_place() -> None:
    items = [EnqueueItem(queue="mail"), EnqueueItem(queue="mail", delay="soon")]

    with pytest.raises(Problem) as caught:
        new_jobs(items, first=250)

    assert caught.value.field == "jobs[251].delay"
    assert caught.value.error.startswith("jobs[251]: delay: expected a duration")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (EnqueueItem(queue="a\0b"), "jobs[0].queue"),
        (EnqueueItem(queue="é" * 128), "jobs[0].queue"),
        (EnqueueItem(queue="a", id="s00_job_1"), "jobs[0].id"),
        (EnqueueItem(queue="a", tags={"": "x"}), "jobs[0].tags"),
        (EnqueueItem(queue="a", batch_id="mine"), "jobs[0].batch_id"),
        (EnqueueItem(queue="a", payload=raw(b"[" * 101 + b"]" * 101)), "jobs[0].payload"),
    ],
)
def test_what_a_shard_would_refuse_is_refused_before_anything_is_sent(
    item: EnqueueItem, field: str
) -> None:
    with pytest.raises(Problem) as caught:
        new_jobs([item])

    assert (caught.value.status, caught.value.field) == (400, field)


# One job.


def job(node: Node, queue: str, job_id: object) -> Job:
    assert isinstance(job_id, str)
    return node[queue].shard.job(job_id)


@jumping
async def test_a_job_is_made_and_its_place_in_the_log_is_told() -> None:
    node = Node()
    response = await node.ask("/api/v1/enqueue", {"queue": "mail", "payload": {"to": "a"}})

    answer = json_of(response)
    assert response.status == 201
    assert response.headers == [("corvo-seq", f"s{node['mail'].number}=1")]
    assert answer == {
        "job_id": answer["job_id"],
        "status": "pending",
        "unique_existing": False,
        "job": {"id": answer["job_id"], "queue": "mail", "state": "pending"},
    }
    assert job(node, "mail", answer["job_id"]).payload == b'{"to":"a"}'


@jumping
async def test_a_duplicate_is_told_of_the_job_that_is_there() -> None:
    node = Node()
    body = {"queue": "mail", "unique_key": "k"}
    _, first = await node.get("/api/v1/enqueue", body)

    status, again = await node.get("/api/v1/enqueue", body)

    job_id = first["job_id"]
    assert status == 200
    assert again == {
        "job_id": job_id,
        "status": "duplicate",
        "unique_existing": True,
        "job": {"id": job_id, "queue": "mail"},
        "unique_job_id": job_id,
    }


@jumping
async def test_a_chosen_id_is_there_once_and_its_shard_follows_from_it() -> None:
    node = Node(shards=4)
    body = {"queue": "mail", "id": "order-17"}
    first, _ = await node.get("/api/v1/enqueue", body)

    again, answer = await node.get("/api/v1/enqueue", body)

    assert (first, again) == (201, 200)
    assert (answer["status"], answer["unique_existing"]) == ("pending", True)
    assert answer["job_id"] == "mail~order-17"
    assert node.api.addresses.candidates("mail~order-17") == [node["mail"].number]


@jumping
async def test_a_delayed_job_is_scheduled_and_its_request_may_come_again() -> None:
    node = Node()
    body = {"queue": "mail", "delay": "5s"}

    _, answer = await node.get("/api/v1/enqueue", body, key="k")
    now_ns = node["mail"].shard.now_ns
    node["mail"].shard.pass_time(1_000)
    _, again = await node.get("/api/v1/enqueue", body, key="k")

    made = job(node, "mail", answer["job_id"])
    assert answer == again
    assert answer["status"] == "scheduled"
    assert (made.state, made.scheduled_ns) == (State.SCHEDULED, now_ns + 5_000 * MS)


@pytest.mark.parametrize("in_header", [True, False])
def test_a_request_key_makes_one_job_of_two_requests(in_header: bool) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        body: dict[str, object] = {"queue": "mail"}
        key = "pay-17" if in_header else None
        body |= {} if in_header else {"request_key": "pay-17"}

        first = await node.ask("/api/v1/enqueue", body, key=key)
        again = await node.ask("/api/v1/enqueue", body, key=key)
        other = await node.ask("/api/v1/enqueue", body | {"payload": 1}, key=key)

        assert (first.status, again.status) == (201, 201)
        assert first.body == again.body
        assert node["mail"].shard.counts("mail") == {State.PENDING: 1}
        assert (other.status, json_of(other)["code"]) == (422, "REQUEST_KEY_REUSED")

    main()


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"", 400, "PARSE_ERROR", None),
        ({}, 400, "VALIDATION_ERROR", "queue"),
        ({"queue": "a\0b"}, 400, "VALIDATION_ERROR", "queue"),
        ({"queue": "a", "id": "s00_job_1"}, 400, "VALIDATION_ERROR", "id"),
        ({"queue": "a", "payload": "x" * (1 << 20)}, 413, "PAYLOAD_TOO_LARGE", "payload"),
        (b'{"queue":"a","payload":"\xff"}', 400, "VALIDATION_ERROR", "payload"),
        ({"queue": "a", "batch_id": "s00_batch_x"}, 404, "NOT_FOUND", "batch_id"),
        (
            {"queue": "a", "chain": {"steps": [{"queue": "b"}, {"queue": "c"}]}},
            400,
            "VALIDATION_ERROR",
            "chain.steps[0].queue",
        ),
    ],
)
def test_a_job_that_is_refused_is_not_called_the_first_of_many(
    body: object, status: int, code: str, field: str | None
) -> None:
    @jumping
    async def main() -> None:
        answered, answer = await Node(shards=1).get("/api/v1/enqueue", body)

        assert (answered, answer["code"], answer.get("field")) == (status, code, field)
        assert answer["outcome"] == "not_applied"
        assert "jobs[0]" not in str(answer["error"])

    main()


@jumping
async def test_who_made_a_job_is_in_its_trail() -> None:
    node = Node()
    shop = Caller(name="shop", role="producer", key_hash="x", scope=EVERYTHING)

    response = await node.ask("/api/v1/enqueue", {"queue": "mail"}, caller=shop)

    assert job(node, "mail", json_of(response)["job_id"]).trail[0].by == "shop"


SCOPED: Final = Caller(name="shop", role="producer", key_hash="x", scope=Scope(("mail", "bill.*")))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("enqueue", {"queue": "mail"}, 201),
        ("enqueue", {"queue": "pay"}, 403),
        ("enqueue", {"queue": "mail", "chain": {"steps": STEPS}}, 403),
        ("enqueue", {"queue": "mail", "chain": {"steps": [STEPS[0], {"queue": "bill.x"}]}}, 201),
        ("enqueue/batch", {"jobs": [{"queue": "mail"}, {"queue": "bill.x"}]}, 201),
        ("enqueue/batch", {"jobs": [{"queue": "mail"}, {"queue": "pay"}]}, 403),
        (
            "enqueue/batch",
            {"jobs": [{"queue": "mail"}], "batch": {"callback_queue": "pay"}},
            403,
        ),
        ("webhooks/mail", {}, 201),
        ("webhooks/pay", {}, 403),
    ],
)
def test_a_key_for_some_queues_makes_jobs_in_no_others(
    path: str, body: object, status: int
) -> None:
    @jumping
    async def main() -> None:
        node = Node()

        response = await node.ask(f"/api/v1/{path}", body, caller=SCOPED)

        assert response.status == status
        if status == 403:
            assert not any(shard.ops for shard in node.shards)

    main()


# Many jobs.


@jumping
async def test_many_jobs_are_answered_in_order() -> None:
    node = Node()
    queues = [queue_of(0), queue_of(1), queue_of(0), queue_of(1)]
    jobs = [{"queue": queue, "payload": number} for number, queue in enumerate(queues)]

    response = await node.ask("/api/v1/enqueue/batch", {"jobs": jobs})

    answer = msgspec.json.decode(response.body)
    assert (response.status, response.headers) == (201, [("corvo-seq", "s0=1,s1=1")])
    assert sorted(answer) == ["job_ids", "jobs"]
    assert answer["jobs"] == [
        {"job_id": job_id, "id": job_id, "status": "pending", "unique_existing": False}
        for job_id in answer["job_ids"]
    ]
    assert [
        job(node, queue, job_id).payload
        for queue, job_id in zip(queues, answer["job_ids"], strict=True)
    ] == [b"0", b"1", b"2", b"3"]


@jumping
async def test_unique_keys_times_and_chains_are_kept_in_a_batch() -> None:
    node = Node(shards=1)
    jobs = [
        {"queue": "mail", "unique_key": "k"},
        {"queue": "mail", "unique_key": "k"},
        {"queue": "mail", "scheduled_at": "2100-01-01T00:00:00Z"},
        {"queue": "mail", "chain": {"steps": STEPS}, "expire_after": "1h"},
    ]

    _, answer = await node.get("/api/v1/enqueue/batch", {"jobs": jobs})

    made = msgspec.convert(answer["jobs"], list[dict[str, object]])
    assert [one["status"] for one in made] == ["pending", "duplicate", "scheduled", "pending"]
    assert made[0]["job_id"] == made[1]["job_id"]
    last = job(node, "mail", made[3]["job_id"])
    assert last.chain_id
    assert last.expires_ns


@jumping
async def test_one_bad_job_refuses_all_before_any_is_made() -> None:
    node = Node()
    jobs = [{"queue": "mail"}] * 300 + [{"queue": "mail", "id": "s00_job_1"}]

    status, answer = await node.get("/api/v1/enqueue/batch", {"jobs": jobs})

    assert (status, answer["code"], answer["field"]) == (400, "VALIDATION_ERROR", "jobs[300].id")
    assert not any(shard.ops for shard in node.shards)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "jobs"),
        ({"jobs": []}, "jobs"),
        ({"jobs": [{"queue": "a"}] * 4}, "jobs"),
        ({"jobs": [{"queue": "a"}, {}]}, "jobs[1].queue"),
        ({"jobs": [{"queue": "a", "batch_id": "s00_batch_1"}], "batch": {}}, "jobs[0].batch_id"),
        ({"jobs": [{"queue": "a"}], "batch": {"callback_queue": "a\0b"}}, "batch.callback_queue"),
    ],
)
def test_a_batch_that_does_not_do_is_refused(body: object, field: str) -> None:
    @jumping
    async def main() -> None:
        node = Node(limits=Limits(batch_jobs_max=3))

        status, answer = await node.get("/api/v1/enqueue/batch", body)

        assert (status, answer["code"], answer["field"]) == (400, "VALIDATION_ERROR", field)

    main()


def counted(node: Node, batch_id: object) -> tuple[int, int]:
    """How many members a batch has, and how many of them are pending."""
    assert isinstance(batch_id, str)
    home = shard_of(batch_id)
    assert home is not None
    [batch] = [
        batch for batch in node.shards[home].shard.documents(BATCHES) if batch.id == batch_id
    ]
    return batch.total, batch.pending


@jumping
async def test_a_batch_has_all_jobs_of_the_request_wherever_they_are() -> None:
    node = Node()
    home, other = queue_of(0), queue_of(1)
    jobs = [{"queue": home}, {"queue": other}] * 3
    batch = {"callback_queue": home, "callback_payload": {"report": 1}}

    status, answer = await node.get("/api/v1/enqueue/batch", {"jobs": jobs, "batch": batch})

    assert status == 201
    assert counted(node, answer["batch_id"]) == (6, 6)
    made = msgspec.convert(answer["job_ids"], list[str])
    assert {
        job(node, str(one["queue"]), job_id).batch_id
        for one, job_id in zip(jobs, made, strict=True)
    } == {answer["batch_id"]}


@jumping
async def test_a_batch_larger_than_an_op_counts_every_job_once() -> None:
    node = Node()
    queues = [queue_of(0)] * (ITEMS_MAX + 5) + [queue_of(1)] * (ITEMS_MAX + 2)
    jobs = [{"queue": queue} for queue in queues]

    status, answer = await node.get("/api/v1/enqueue/batch", {"jobs": jobs, "batch": {}})

    assert status == 201
    assert counted(node, answer["batch_id"]) == (len(jobs), len(jobs))
    assert len(set(msgspec.convert(answer["job_ids"], list[str]))) == len(jobs)


@jumping
async def test_a_batch_is_begun_before_anybody_else_hears_of_it() -> None:
    node = Node()
    queues = [queue_of(0)] * (2 * ITEMS_MAX + 1) + [queue_of(1)]

    body = {"jobs": [{"queue": queue} for queue in queues], "batch": {}}
    await node.ask("/api/v1/enqueue/batch", body)

    assert node.order[:2] == ["0 begins", "0 ends"]
    assert sorted(node.order[2:]) == sorted(["0 begins", "0 ends"] * 2 + ["1 begins", "1 ends"])


@jumping
async def test_a_limit_on_writing_counts_the_jobs_of_a_batch() -> None:
    node = Node(limits=Limits(write_rate=1, write_burst=10))
    body = {"jobs": [{"queue": "mail"}] * 8}

    first = await node.ask("/api/v1/enqueue/batch", body)
    second = await node.ask("/api/v1/enqueue/batch", body)

    assert (first.status, second.status) == (201, 429)
    assert node["mail"].shard.counts("mail") == {State.PENDING: 8}


@jumping
async def test_a_large_batch_under_a_key_is_made_once_however_often_it_is_sent() -> None:
    node = Node()
    queues = [queue_of(0)] * (ITEMS_MAX + 5) + [queue_of(1)] * 3
    body = {"jobs": [{"queue": queue} for queue in queues], "batch": {}, "request_key": "k"}

    first = await node.ask("/api/v1/enqueue/batch", body)
    again = await node.ask("/api/v1/enqueue/batch", body)

    assert first.status == 201
    assert first.body == again.body
    assert node.shards[0].shard.counts(queue_of(0)) == {State.PENDING: ITEMS_MAX + 5}
    assert node.shards[1].shard.counts(queue_of(1)) == {State.PENDING: 3}


# What goes wrong on the way.


TWO: Final = [{"queue": queue_of(0)}, {"queue": queue_of(1)}, {"queue": queue_of(1)}]


@jumping
async def test_what_was_done_is_told_when_a_shard_is_away() -> None:
    node = Node()
    node.shards[1].problems = [GONE]

    response = await node.ask("/api/v1/enqueue/batch", {"jobs": TWO})

    answer = msgspec.json.decode(response.body)
    made = answer["job_ids"][0]
    assert (response.status, response.headers) == (503, [("corvo-seq", "s0=1")])
    assert answer["job_ids"] == [made, None, None]
    assert (answer["code"], answer["outcome"]) == ("LEADER_UNAVAILABLE", "unknown")
    assert answer["error"] == "1 of 3 jobs were made: shard 1 has no leader"
    assert answer["retry_after_ms"] == 1_000
    assert answer["jobs"][0]["status"] == "pending"
    assert answer["jobs"][2] == {
        "job_id": None,
        "id": None,
        "error": "shard 1 has no leader",
        "code": "LEADER_UNAVAILABLE",
        "outcome": "not_applied",
    }


@jumping
async def test_a_part_that_failed_is_made_up_for_by_the_same_request_under_its_key() -> None:
    node = Node()
    node.shards[1].problems = [GONE]
    body = {"jobs": TWO, "batch": {}}

    await node.ask("/api/v1/enqueue/batch", body, key="k")
    status, answer = await node.get("/api/v1/enqueue/batch", body, key="k")

    assert status == 201
    assert counted(node, answer["batch_id"]) == (3, 3)
    assert node.shards[0].shard.counts(queue_of(0)) == {State.PENDING: 1}
    assert node.shards[1].shard.counts(queue_of(1)) == {State.PENDING: 2}


@pytest.mark.parametrize(
    ("problems", "status", "code", "outcome"),
    [
        ([GONE, GONE], 503, "LEADER_UNAVAILABLE", "not_applied"),
        ([GONE, BUSY], 503, "LEADER_UNAVAILABLE", "not_applied"),
        ([BUSY, GONE], 429, "OVERLOADED", "not_applied"),
        ([GONE, LOST], 503, "OUTCOME_UNKNOWN", "unknown"),
        ([LOST, GONE], 503, "OUTCOME_UNKNOWN", "unknown"),
    ],
)
def test_a_batch_of_which_nothing_is_known_to_be_done_is_one_problem(
    problems: list[Problem], status: int, code: str, outcome: str
) -> None:
    @jumping
    async def main() -> None:
        node = Node()
        for shard, problem in zip(node.shards, problems, strict=True):
            shard.problems = [problem]

        answered, answer = await node.get("/api/v1/enqueue/batch", {"jobs": TWO})

        assert (answered, answer["code"], answer["outcome"]) == (status, code, outcome)
        assert "job_ids" not in answer

    main()


@jumping
async def test_nothing_is_sent_elsewhere_when_a_batch_could_not_be_begun() -> None:
    node = Node()
    node.shards[0].problems = [GONE]

    status, answer = await node.get("/api/v1/enqueue/batch", {"jobs": TWO, "batch": {}})

    assert (status, answer["code"]) == (503, "LEADER_UNAVAILABLE")
    assert not node.shards[1].ops


@jumping
async def test_no_part_overtakes_one_of_its_shard_that_failed() -> None:
    node = Node(shards=1)
    node.shards[0].problems = [None, GONE]
    jobs = [{"queue": "mail"}] * (3 * ITEMS_MAX)

    response = await node.ask("/api/v1/enqueue/batch", {"jobs": jobs})

    answer = msgspec.json.decode(response.body)
    known = [job_id is not None for job_id in answer["job_ids"]]
    assert known == [True] * ITEMS_MAX + [False] * (2 * ITEMS_MAX)
    assert len(node.shards[0].ops) == 2
    assert answer["jobs"][-1]["outcome"] == "not_applied"


@jumping
async def test_a_refusal_of_a_part_names_the_place_in_the_request() -> None:
    node = Node()
    other = queue_of(1)
    jobs = [{"queue": queue_of(0)}, {"queue": other}, {"queue": other, "batch_id": "s01_batch_x"}]

    _, answer = await node.get("/api/v1/enqueue/batch", {"jobs": jobs})

    assert (answer["code"], answer["reason"]) == ("NOT_FOUND", "batch_not_found")
    assert answer["field"] == "jobs[2].batch_id"


# Webhooks that come in.


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b"", b"{}"),
        (b" \n", b"{}"),
        (b' {"a": 1}\n', b'{"a": 1}'),
        (b"17", b"17"),
        (b"null", b"null"),
        (b"payload=x&y=1", b'"payload=x&y=1"'),
        (b'{"a":', b'"{\\"a\\":"'),
        ("é".encode(), '"é"'.encode()),
    ],
)
def test_a_webhooks_body_is_the_payload_whatever_it_is(body: bytes, payload: bytes) -> None:
    assert bytes(webhook_payload(body)) == payload


@jumping
async def test_a_webhooks_query_says_what_an_enqueue_would() -> None:
    node = Node()
    query = {
        "priority": "high",
        "unique_key": "k",
        "max_retries": "5",
        "scheduled_at": "2100-01-01T00:00:00Z",
        "tags": "env:prod, team : a:b",
    }

    response = await node.ask("/api/v1/webhooks/mail", b"hello", query=query)
    again = await node.ask("/api/v1/webhooks/mail", b"hello", query=query)

    made = job(node, "mail", json_of(response)["job_id"])
    assert (response.status, again.status) == (201, 200)
    assert (made.payload, made.priority, made.max_retries) == (b'"hello"', 1, 5)
    assert (made.state, made.unique_key) == (State.SCHEDULED, "k")
    assert made.tags == {"env": "prod", "team": "a:b"}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"max_retries": "many"}, "max_retries"),
        ({"max_retries": "-1"}, "max_retries"),
        ({"max_retries": "100001"}, "max_retries"),
        ({"max_retries": "9" * 5_000}, "max_retries"),
        ({"scheduled_at": "soon"}, "scheduled_at"),
        ({"priority": "urgent"}, "priority"),
        ({"tags": "env"}, "tags"),
        ({"tags": ":x"}, "tags"),
        ({"unique_key": "x" * 256}, "unique_key"),
    ],
)
def test_a_webhooks_query_that_does_not_do_is_refused(query: dict[str, str], field: str) -> None:
    @jumping
    async def main() -> None:
        response = await Node().ask("/api/v1/webhooks/mail", query=query)

        assert (response.status, json_of(response)["field"]) == (400, field)

    main()
