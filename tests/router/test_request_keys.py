"""Request keys: of an API key and of what a request is about, with any number of shards."""

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import ApiKey, State
from corvo.protocol.ops.base import ITEMS_MAX, Op
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.queues import Pause
from corvo.protocol.ops.work import Fetch
from corvo.protocol.ops.workflow import NewBatch
from corvo.router.http.messages import Problem, Response
from corvo.router.shards.links import Answer, Begun
from corvo.shard.state.tables import BATCHES, JOBS
from tests.router.nests import MachineShard, Nest, problem, queue_of, run

JSON = dict[str, object]
SHARDS: Final = (1, 4, 64)
KEYS: Final = {
    "ann": ApiKey(key_hash="", name="ann", role="operator"),
    "bob": ApiKey(key_hash="", name="bob", role="operator"),
}
MAIL: Final = NewJob(queue="mail", payload=msgspec.Raw(b"1"))
QUEUES: Final = tuple(f"q{number}" for number in range(6))
on_shards = pytest.mark.parametrize("shards", SHARDS)


def json_of(response: Response) -> JSON:
    return msgspec.json.decode(response.body or b"{}", type=JSON)


def on(shards: int, test: Callable[[Nest], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Nest(shards, keys=KEYS))

    run(main)


async def ask(
    nest: Nest, path: str, body: object, *, who: str = "ann", key: str = "k", method: str = "POST"
) -> Response:
    return await nest.ask(method, f"/api/v1/{path}", body, x_api_key=who, idempotency_key=key)


async def put(nest: Nest, queue: str, payload: object = 1, who: str = "ann") -> Response:
    return await ask(nest, "enqueue", {"queue": queue, "payload": payload}, who=who)


def far_apart(shards: int) -> tuple[str, str]:
    """Two queues, in two shards where there are two."""
    return queue_of(0, shards=shards), queue_of(shards - 1, 1, shards=shards)


# What outsiders found.


@on_shards
def test_a_key_is_of_its_queue(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)

        first, same = await put(nest, mail), await put(nest, mail)
        other = await put(nest, mail, payload=2)
        elsewhere = await put(nest, sms, payload=2)

        assert (first.status, same.status, elsewhere.status) == (201, 201, 201)
        assert first.body == same.body
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")

    on(shards, test)


@on_shards
def test_keys_of_two_api_keys_never_meet(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, _ = far_apart(shards)

        ann, bob = await put(nest, mail, who="ann"), await put(nest, mail, who="bob")
        other = await put(nest, mail, payload=2, who="bob")

        assert (ann.status, bob.status) == (201, 201)
        assert json_of(ann)["job_id"] != json_of(bob)["job_id"]
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")

    on(shards, test)


@on_shards
def test_each_part_of_a_request_is_done_once_and_refused_by_itself(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        jobs: list[JSON] = [{"queue": queue, "payload": 1} for queue in (mail, sms, mail)]
        first = await ask(nest, "enqueue/batch", {"jobs": jobs})

        same = await ask(nest, "enqueue/batch", {"jobs": jobs})
        other = await ask(nest, "enqueue/batch", {"jobs": [*jobs, {"queue": sms}]})
        less = await ask(nest, "enqueue/batch", {"jobs": jobs[1:2]})

        ids = json_of(first)["job_ids"]
        assert isinstance(ids, list)
        assert same.body == first.body
        assert (other.status, json_of(other)["job_ids"]) == (422, [ids[0], None, ids[2], None])
        assert json_of(less)["job_ids"] == [ids[1]]

    on(shards, test)


@on_shards
def test_two_bulk_operations_of_two_api_keys_never_meet(shards: int) -> None:
    async def test(nest: Nest) -> None:
        job_id = json_of(await put(nest, "mail"))["job_id"]
        body: JSON = {"action": "cancel", "job_ids": [job_id], "async": True}

        ann, again = await ask(nest, "jobs/bulk", body), await ask(nest, "jobs/bulk", body)
        bob = await ask(nest, "jobs/bulk", body, who="bob")
        other = await ask(nest, "jobs/bulk", body | {"reason": "x"})

        assert (ann.status, bob.status) == (202, 202)
        assert ann.body == again.body != bob.body
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")

    on(shards, test)


# What a request is about.


@on_shards
def test_a_key_of_an_enqueue_is_not_one_of_a_change_of_the_queue(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        await put(nest, mail)

        same_queue = await ask(nest, f"queues/{mail}/pause", {})
        other_queue = await ask(nest, f"queues/{sms}/pause", {})

        assert problem(same_queue)[:2] == (422, "REQUEST_KEY_REUSED")
        assert other_queue.status == 200

    on(shards, test)


@on_shards
def test_a_key_of_a_call_on_a_job_is_of_this_job(shards: int) -> None:
    async def test(nest: Nest) -> None:
        jobs = [
            json_of(await ask(nest, "enqueue", {"queue": queue}, key=""))["job_id"]
            for queue in far_apart(shards)
        ]
        one, other = jobs

        first = await ask(nest, f"jobs/{one}/cancel", {})
        same = await ask(nest, f"jobs/{one}/cancel", {})
        changed = await ask(nest, f"jobs/{one}/cancel", {"why": "no more"})
        elsewhere = await ask(nest, f"jobs/{other}/cancel", {"why": "no more"})
        of_bob = await ask(nest, f"jobs/{one}/cancel", {}, who="bob")

        assert (first.status, first.body) == (same.status, same.body)
        assert (first.status, elsewhere.status) == (200, 200)
        assert problem(changed)[:2] == (422, "REQUEST_KEY_REUSED")
        assert problem(of_bob)[:2] == (409, "CANCEL_ERROR"), "a request of his own"

    on(shards, test)


@on_shards
def test_a_call_on_a_job_that_moves_on_is_answered_as_it_was(shards: int) -> None:
    async def test(nest: Nest) -> None:
        queues = [queue_of(number % shards, 3, shards=shards) for number in range(3)]
        job_ids = [
            json_of(await ask(nest, "enqueue", {"queue": queues[0]}, key=""))["job_id"]
            for _ in range(2)
        ]

        async def move(target: str) -> None:
            for job_id in job_ids:
                await ask(nest, f"jobs/{job_id}/move", {"queue": target}, key="")
                nest.deliver()

        beats = {"jobs": [{"job_id": job_id} for job_id in job_ids]}
        await move(queues[1])
        await ask(nest, "fetch/batch", {"queues": queues[1:2], "count": 2}, key="")
        answers = []
        for target in (*queues[1:], *queues, queues[1]):
            await move(target)
            answers.append(
                (
                    (await ask(nest, "fail/batch", {"fails": beats["jobs"]})).body,
                    (await ask(nest, f"jobs/{job_ids[0]}/cancel", {})).body,
                )
            )

        assert len(set(answers)) == 1, answers
        assert b'"failed":2' in answers[0][0]

    on(shards, test)


@on_shards
def test_a_call_on_many_jobs_is_of_these_jobs(shards: int) -> None:
    async def test(nest: Nest) -> None:
        queues = far_apart(shards)
        given = []
        for queue in queues:
            await ask(nest, "enqueue", {"queue": queue}, key="")
            fetched = await ask(nest, "fetch", {"queues": [queue], "wait_seconds": 0}, key="")
            given.append(json_of(fetched)["job_id"])
        acks = [{"job_id": job_id, "result": 1} for job_id in given]

        first = await ask(nest, "ack/batch", {"acks": acks})
        same = await ask(nest, "ack/batch", {"acks": acks})
        other = await ask(nest, "ack/batch", {"acks": [acks[0], acks[1] | {"result": 2}]})
        less = await ask(nest, "ack/batch", {"acks": acks[:1]})

        assert json_of(first)["acked"] == 2
        assert first.body == same.body
        items = msgspec.convert(json_of(other)["results"], list[JSON])
        assert [item["code"] for item in items] == ["REQUEST_KEY_REUSED"] * 2
        [item] = msgspec.convert(json_of(less)["results"], list[JSON])
        assert item["code"] == "ACK_ERROR", "another request: the job is completed"

    on(shards, test)


@on_shards
def test_a_fetch_gives_the_same_jobs_again_wherever_they_were(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        body = {"queues": [mail, sms], "wait_seconds": 0, "count": 2}
        nothing = await ask(nest, "fetch/batch", body)
        await ask(nest, "enqueue", {"queue": sms}, key="")
        first = await ask(nest, "fetch/batch", body)
        await ask(nest, "enqueue", {"queue": mail}, key="")

        again = await ask(nest, "fetch/batch", body)
        other = await ask(nest, "fetch/batch", body | {"count": 1})
        of_bob = await ask(nest, "fetch/batch", body, who="bob")

        assert json_of(nothing)["jobs"] == []
        assert first.body == again.body
        assert len(msgspec.convert(json_of(first)["jobs"], list[JSON])) == 1
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")
        [given] = msgspec.convert(json_of(of_bob)["jobs"], list[JSON])
        assert given["queue"] == mail

    on(shards, test)


@on_shards
def test_a_queue_whose_part_is_larger_than_an_op_is_done_once(shards: int) -> None:
    async def test(nest: Nest) -> None:
        mail, sms = far_apart(shards)
        jobs: list[JSON] = [{"queue": mail, "payload": n} for n in range(ITEMS_MAX + 3)]
        jobs.append({"queue": sms})
        first = await ask(nest, "enqueue/batch", {"jobs": jobs, "batch": {}})

        same = await ask(nest, "enqueue/batch", {"jobs": jobs, "batch": {}})
        more = await ask(nest, "enqueue/batch", {"jobs": [*jobs, {"queue": mail}], "batch": {}})
        less = await ask(nest, "enqueue/batch", {"jobs": jobs[:ITEMS_MAX]})

        assert first.status == 201
        assert first.body == same.body
        assert problem(more)[:2] == problem(less)[:2] == (422, "REQUEST_KEY_REUSED")
        assert nest[mail].counts(mail) == {State.PENDING: ITEMS_MAX + 3}
        assert nest[sms].counts(sms) == {State.PENDING: 1}

    on(shards, test)


@on_shards
def test_many_queues_of_one_request_are_each_asked_once(shards: int) -> None:
    async def test(nest: Nest) -> None:
        jobs = [{"queue": f"q{n}"} for n in range(600)]
        first = await ask(nest, "enqueue/batch", {"jobs": jobs})

        same = await ask(nest, "enqueue/batch", {"jobs": jobs})

        assert first.body == same.body
        assert sum(len(shard.machine.documents(JOBS)) for shard in nest.shards) == 600

    on(shards, test)


# Keys that were stored before they belonged to an API key.


@pytest.mark.parametrize(
    ("path", "body", "op"),
    [
        ("enqueue", {"queue": "mail", "payload": 1}, Enqueue(jobs=[MAIL])),
        ("enqueue/batch", {"jobs": [{"queue": "mail", "payload": 1}]}, Enqueue(jobs=[MAIL])),
        (
            "enqueue/batch",
            {"jobs": [{"queue": "mail", "payload": 1}], "batch": {"callback_queue": "sms"}},
            Enqueue(jobs=[MAIL], batch=NewBatch(total=1, callback_queue="sms")),
        ),
        ("queues/mail/pause", {}, Pause(queue="mail")),
        ("fetch", {"queues": ["mail"], "wait_seconds": 0}, Fetch(queues=["mail"])),
    ],
)
def test_a_request_from_before_is_known_for_as_long_as_its_answer_is(
    path: str, body: object, op: Op
) -> None:
    async def test(nest: Nest) -> None:
        nest["mail"].put(MAIL)
        nest["mail"].entry(replace(op, request_key="k"))
        before = nest["mail"].documents(JOBS)

        known = await ask(nest, path, body)
        again = await ask(nest, path, body)

        assert known.status < 300
        assert known.body == again.body
        assert nest["mail"].documents(JOBS) == before

    on(4, test)


def test_a_key_from_before_with_another_body_is_a_new_request() -> None:
    async def test(nest: Nest) -> None:
        nest["mail"].entry(Enqueue(jobs=[MAIL], request_key="k"))

        mine = await put(nest, "mail", payload=2)
        other = await put(nest, "mail", payload=3)

        assert mine.status == 201
        assert problem(other)[:2] == (422, "REQUEST_KEY_REUSED")

    on(4, test)


# A twin, and shards that fail at random.


class Failing:
    """Lets ops of a nest fail: before they are applied, or after it."""

    def __init__(self, nest: Nest, random: Random) -> None:
        self._random = random
        for shard in nest.shards:
            vars(shard)["finish"] = partial(self._finish, shard)

    async def _finish(self, shard: MachineShard, begun: Begun, *, shield: bool = False) -> Answer:
        luck = self._random.random()
        if luck < 0.1:
            raise Problem(503, "LEADER_UNAVAILABLE", "away", retry_after_ms=1)
        answer = await MachineShard.finish(shard, begun, shield=shield)
        if luck < 0.2:
            raise Problem(503, "OUTCOME_UNKNOWN", "lost", outcome="unknown", retry_after_ms=1)
        return answer


class Client:
    """Sends each request until it has an answer."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest

    async def ask(self, who: str, key: str, path: str, body: object) -> Response:
        for _ in range(200):
            answer = await ask(self._nest, path, body, who=who, key=key)
            self._nest.deliver()
            if answer.status not in {429, 503}:
                return answer
        raise AssertionError("it has no end")


class Twin:
    """The first requests and their answers, by API key, subject and request key."""

    def __init__(self) -> None:
        self.first: dict[tuple[str, str, str], tuple[object, object]] = {}
        self.jobs: dict[str, int] = {}
        """How many jobs each queue was given."""

    def knows(self, who: str, subject: str, key: str, asked: object) -> tuple[str, object]:
        """`new`, `same` with the first answer, or `other`."""
        found = self.first.get((who, subject, key))
        if found is None:
            return "new", None
        return ("same", found[1]) if found[0] == asked else ("other", None)


async def enqueue(client: Client, twin: Twin, random: Random) -> None:
    who, key = random.choice(("ann", "bob")), random.choice(("k1", "k2"))
    names = random.choices(QUEUES, k=random.choice((1, 1, 2, 5)))
    jobs = [{"queue": name, "payload": random.choice((1, 1, 1, 2))} for name in names]
    if len(jobs) == 1 and random.random() < 0.5:
        answer = await client.ask(who, key, "enqueue", jobs[0])
        ids = [json_of(answer).get("job_id")]
    else:
        answer = await client.ask(who, key, "enqueue/batch", {"jobs": jobs})
        ids = msgspec.convert(json_of(answer).get("job_ids", [None] * len(jobs)), list[object])
    statuses = set()
    for name in dict.fromkeys(names):
        part = [job for job in jobs if job["queue"] == name]
        given = [each for each, job in zip(ids, jobs, strict=True) if job["queue"] == name]
        how, before = twin.knows(who, name, key, part)
        if how == "new":
            assert None not in given
            twin.first[who, name, key] = part, given
            twin.jobs[name] = twin.jobs.get(name, 0) + len(part)
        else:
            assert given == (before if how == "same" else [None] * len(part)), (how, part)
        statuses.add(422 if how == "other" else 201)
    assert answer.status == max(statuses)


async def change_queue(client: Client, twin: Twin, random: Random) -> None:
    who, key = random.choice(("ann", "bob")), random.choice(("k1", "k2"))
    name, word = random.choice(QUEUES), random.choice(("pause", "resume"))
    answer = await client.ask(who, key, f"queues/{name}/{word}", {})
    how, _ = twin.knows(who, name, key, word)
    if how == "new":
        twin.first[who, name, key] = word, None
    assert answer.status == (422 if how == "other" else 200)


async def change_jobs(client: Client, twin: Twin, random: Random) -> None:
    """Cancel or retry a job, which is in any queue by now."""
    made = [
        job_id
        for _, given in twin.first.values()
        for job_id in (given if isinstance(given, list) else ())
        if "_job_" in str(job_id)
    ]
    if not made:
        return
    job_id, who, key = random.choice(made[:4]), random.choice(("ann", "bob")), "k1"
    word = random.choice(("cancel", "retry", "move"))
    body = {"queue": random.choice(QUEUES)} if word == "move" else {}
    if random.random() < 0.3:
        await client.ask("ann", "", f"jobs/{job_id}/move", {"queue": random.choice(QUEUES)})
    answer = await client.ask(who, key, f"jobs/{job_id}/{word}", body)
    how, before = twin.knows(who, str(job_id), key, (word, body))
    told = answer.status, json_of(answer).get("status")
    if how == "new":
        twin.first[who, str(job_id), key] = (word, body), told
    else:
        assert told == (before if how == "same" else (422, None)), (how, word, body)


@on_shards
@pytest.mark.parametrize("seed", range(8))
def test_each_part_is_done_once_though_shards_fail_at_random(shards: int, seed: int) -> None:
    async def test(nest: Nest) -> None:
        random, twin, client = Random(seed), Twin(), Client(nest)
        Failing(nest, random)
        for _ in range(80):
            step = random.choice((enqueue, enqueue, change_queue, change_jobs, change_jobs))
            await step(client, twin, random)

        jobs = [job for shard in nest.shards for job in shard.machine.documents(JOBS)]
        assert len(jobs) == sum(twin.jobs.values())

    on(shards, test)


@on_shards
@pytest.mark.parametrize("seed", range(8))
def test_a_batch_is_begun_once_though_shards_fail_at_random(shards: int, seed: int) -> None:
    async def test(nest: Nest) -> None:
        random, client = Random(seed), Client(nest)
        Failing(nest, random)
        for number in range(10):
            jobs = [{"queue": name} for name in random.choices(QUEUES, k=6)]
            await client.ask("ann", f"k{number}", "enqueue/batch", {"jobs": jobs, "batch": {}})

        batches = [each for shard in nest.shards for each in shard.machine.documents(BATCHES)]
        assert [(each.total, each.pending) for each in batches] == [(6, 6)] * 10

    on(shards, test)
