"""Batches over HTTP: one by its id, and all of them page by page, the newest first."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random
from typing import Final

import msgspec
import pytest

from corvo.model import ApiKey, Batch
from corvo.protocol.ops.jobs import Cancel, Delete
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.router.batches.bodies import BatchList, BatchSummary, BatchView
from corvo.shard import queries
from corvo.shard.state.tables import BATCHES
from corvo.times import format_time
from tests.router.nests import JSON, Nest, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
QUEUES: Final = (A, B, C)
KEYS: Final = {
    "all": ApiKey(key_hash="", name="all", role="operator"),
    "a": ApiKey(key_hash="", name="a", role="operator", queue_scope=(A,)),
    "q": ApiKey(key_hash="", name="q", role="readonly", queue_scope=("q*",)),
}


async def begin(nest: Nest, *queues: str, **batch: object) -> tuple[str, list[str]]:
    """A new batch with a job in each of these queues: its id, and theirs."""
    for shard in nest.shards:
        shard.machine.pass_time(1)
    body = {"jobs": [{"queue": queue} for queue in queues], "batch": batch}
    answer = await nest.ask("POST", "/api/v1/enqueue/batch", body, x_api_key="all")
    assert answer.status == 201, answer.body
    nest.deliver()
    made = msgspec.json.decode(answer.body, type=_Made)
    return made.batch_id, made.job_ids


class _Made(msgspec.Struct):
    batch_id: str
    job_ids: list[str]


async def listed(nest: Nest, key: str = "all", **query: str) -> BatchList:
    return await nest.read(BatchList, "/api/v1/batches", query=query, x_api_key=key)


async def walked(nest: Nest, key: str = "all", **query: str) -> tuple[list[str], int]:
    """The ids on all pages, and how many pages there were."""
    ids: list[str] = []
    cursor, pages = "", 0
    while True:
        page = await listed(nest, key, **query, **({"cursor": cursor} if cursor else {}))
        ids += [batch.id for batch in page.batches]
        pages += 1
        assert page.has_more is bool(page.cursor)
        if not page.has_more:
            return ids, pages
        cursor = page.cursor


def stored(nest: Nest, batch_id: str) -> Batch:
    [found] = [
        batch
        for shard in nest.shards
        for batch in shard.machine.documents(BATCHES)
        if batch.id == batch_id
    ]
    return found


def test_a_batch_is_shown_field_for_field() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        batch_id, (first, second, third, fourth, fifth) = await begin(
            nest, A, A, A, B, A, callback_queue=C, callback_payload={"to": "ops", "n": 1}
        )
        nest[A].pass_time(1)
        nest[A].fetch(A, count=3)
        nest[A].do(Ack(acks=[AckItem(job_id=first)]))
        nest[A].do(Fail(fails=[FailItem(job_id=second, error="no", retryable=False)]))
        nest[A].do(Cancel(job_ids=[fifth]))

        shown = await nest.read(JSON, f"/api/v1/batches/{batch_id}", x_api_key="all")

        assert shown == {
            "id": batch_id,
            "queue": A,
            "status": "open",
            "total": 5,
            "pending": 2,
            "succeeded": 1,
            "failed": 1,
            "cancelled": 1,
            "removed": 0,
            "callback_queue": C,
            "callback_payload": {"to": "ops", "n": 1},
            "created_at": format_time(stored(nest, batch_id).created_ns),
        }
        assert {third, fourth}

    run(main)


def test_a_batch_ends_with_its_last_job_and_is_gone_with_the_last_one_that_is_deleted() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        batch_id, [one, other] = await begin(nest, A, B)
        path = f"/api/v1/batches/{batch_id}"
        nest[A].do(Cancel(job_ids=[one]))
        before = await nest.read(BatchView, path, x_api_key="all")
        nest[B].do(Cancel(job_ids=[other]))
        nest.deliver()
        after = await nest.read(BatchView, path, x_api_key="all")

        nest[A].do(Delete(job_ids=[one]))
        nest.deliver()
        without_one = await nest.read(BatchView, path, x_api_key="all")
        nest[B].do(Delete(job_ids=[other]))
        nest.deliver()
        gone = await nest.ask("GET", path, x_api_key="all")

        assert (before.status, before.pending) == ("open", 1)
        assert (after.status, after.pending, after.cancelled) == ("ended", 0, 2)
        assert without_one.removed == 1
        assert problem(gone) == (404, "NOT_FOUND", "batch_not_found", "")
        assert (await listed(nest)).batches == []

    run(main)


@pytest.mark.parametrize(
    "batch_id", ["nobody", "s00_batch_01", "s99_batch_01", "s00_job_01", "%C3%A4", "a%2Fb"]
)
def test_a_batch_that_is_nowhere_is_not_found(batch_id: str) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", f"/api/v1/batches/{batch_id}")

        assert problem(answer) == (404, "NOT_FOUND", "batch_not_found", "")

    run(main)


def test_batches_of_all_shards_are_listed_page_by_page_the_newest_first() -> None:
    async def main() -> None:
        nest, dice = Nest(keys=KEYS), Random(7)
        made = []
        for number in range(11):
            for shard in nest.shards:
                shard.machine.pass_time(1_000)
            made.append((await begin(nest, QUEUES[dice.randrange(3)], A, n=number))[0])

        whole, one_page = await walked(nest)
        in_parts, pages = await walked(nest, limit="3")
        first = await listed(nest, limit="1")

        assert whole == in_parts == made[::-1]
        assert (one_page, pages) == (1, 4)
        assert first.batches[0] == msgspec.convert(
            await nest.read(JSON, f"/api/v1/batches/{made[-1]}", x_api_key="all"), BatchSummary
        )

    run(main)


def test_a_page_that_has_the_last_batch_is_the_last_page() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        for number in range(1, 4):
            await begin(nest, A)

            page = await listed(nest, limit=str(number))
            assert (len(page.batches), page.has_more) == (number, False)

    run(main)


def test_batches_of_one_moment_are_listed_once_each() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        made = {(await begin(nest, QUEUES[number % 3]))[0] for number in range(12)}

        for limit in range(1, 6):
            ids, _ = await walked(nest, limit=str(limit))
            assert (len(ids), set(ids)) == (12, made)

    run(main)


def test_a_list_has_no_payload_of_a_callback() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        await begin(nest, A, callback_queue=C, callback_payload={"secret": "x" * 9})

        answer = await nest.ask("GET", "/api/v1/batches", x_api_key="all")

        assert C.encode() in answer.body
        assert b"secret" not in answer.body

    run(main)


def test_a_key_of_some_queues_sees_batches_that_began_there_and_no_callback_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "WALK_MAX", 2)

    async def main() -> None:
        nest = Nest(keys=KEYS)
        [mine, others, mine_too, *more] = [
            (await begin(nest, *queues, callback_queue=callback, callback_payload={"in": "it"}))[0]
            for queues, callback in (
                ((A, B), "elsewhere"),
                ((B, A), A),
                ((A,), A),
                *[((B,), B)] * 9,
            )
        ]
        found = {
            each: await nest.ask("GET", f"/api/v1/batches/{each}", x_api_key="a")
            for each in (mine, others, mine_too)
        }
        listing = await nest.ask("GET", "/api/v1/batches", x_api_key="a")

        assert [found[each].status for each in (mine, others, mine_too)] == [200, 404, 200]
        assert problem(found[others]) == (404, "NOT_FOUND", "batch_not_found", "")
        assert (await walked(nest, "a"))[0] == [mine_too, mine]
        assert (await walked(nest, "q"))[0] == (await walked(nest))[0]
        for answer in (found[mine], listing):
            assert b"elsewhere" not in answer.body
        assert b'"callback_payload"' not in found[mine].body
        assert b'"callback_payload":{"in":"it"}' in found[mine_too].body
        for each in (others, *more):
            assert each.encode() not in listing.body

    run(main)


def test_a_page_that_stops_at_batches_of_others_does_not_name_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "WALK_MAX", 1)
    monkeypatch.setattr("corvo.router.batches.endpoints.ROUNDS_MAX", 1)

    async def main() -> None:
        nest = Nest(keys=KEYS, shards=1)
        mine, _ = await begin(nest, A)
        others = [(await begin(nest, B))[0] for _ in range(5)]

        ids, cursors = [], [""]
        while len(cursors) < 9:
            query = {"cursor": cursors[-1]} if cursors[-1] else {}
            page = await listed(nest, "a", **query)
            ids += [batch.id for batch in page.batches]
            if not page.has_more:
                break
            cursors.append(page.cursor)

        assert ids == [mine]
        assert len(cursors) > 5
        plain = b"".join(urlsafe_b64decode(cursor + "==") for cursor in cursors)
        assert not [each for each in others if each.encode() in plain]

    run(main)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": "eA"}, "cursor"),
        ({"cursor": urlsafe_b64encode(b"9999999999999999999:a").decode()}, "cursor"),
        ({"cursor": urlsafe_b64encode(b"0:").decode()}, "cursor"),
        ({"queue": "mail"}, "queue"),
    ],
)
def test_a_list_of_batches_is_asked_for_in_the_right_words(
    query: dict[str, str], field: str
) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/api/v1/batches", query=query)

        assert problem(answer) == (400, "VALIDATION_ERROR", "", field)

    run(main)


def test_a_shard_that_is_away_is_no_empty_list() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        batch_id, _ = await begin(nest, A)
        nest.shards[0].is_away = True

        one = await nest.ask("GET", f"/api/v1/batches/{batch_id}", x_api_key="all")
        many = await nest.ask("GET", "/api/v1/batches", x_api_key="all")

        assert (one.status, many.status) == (503, 503)

    run(main)
