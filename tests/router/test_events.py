"""Events over HTTP, with feeds behind the router that the test writes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from corvo.model import ApiKey
from corvo.protocol import wire
from corvo.router.config import Limits
from corvo.router.events import cursors, listening
from corvo.router.feeds import hub, rings
from corvo.router.http import sse
from corvo.router.http.sse import parse
from tests.router.feeds import EventSource, House, house, seqs

Scene = Callable[[House], Awaitable[None]]


@pytest.fixture(autouse=True)
def _soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody lingers."""
    monkeypatch.setattr(hub, "LINGER_S", 0.01)


def run(
    scene: Scene,
    directory: Path,
    *,
    shards: int = 2,
    limits: Limits | None = None,
    keys: dict[str, ApiKey] | None = None,
) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with house(directory, shards, limits=limits, keys=keys) as served:
                await scene(served)

    trio.run(main)


def test_whoever_listens_is_told_what_happens_from_then_on(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, second = served.sources
        first.happen(count=3)
        ear = await served.listen()
        await ear.until(lambda: bool(ear.source.last_id))
        first.add(
            wire.Happening("enqueued", "a", "mail", "send", "pending", 0, "ada", "because"),
            wire.Happening("progress", "a", "mail", data=b'{\n "done": 3\r\n}'),
        )
        second.happen("asked to stop", job_id="b", queue="sms")
        told = await ear.until_events(3)

        assert ear.headers["content-type"] == "text/event-stream"
        assert ear.headers["cache-control"] == "no-store"
        assert ear.headers["x-accel-buffering"] == "no"
        assert ear.source.retry_ms == 2_000
        at = b'"at":"1970-01-01T00:00:00.000004Z"'
        begun = (
            b'{"seq":4,"number":1,"shard":0,"type":"enqueued","at_ns":4000,%b,"job_id":"a",'
            b'"queue":"mail","kind":"send","state":"pending","by":"ada","why":"because"}' % at
        )
        went_on = (
            b'{"seq":4,"number":2,"shard":0,"type":"progress","at_ns":4000,%b,"job_id":"a",'
            b'"queue":"mail","data":{"done":3}}' % at
        )
        of_first = [each.data for each in ear.source.events if b'"shard":0' in each.data]
        assert of_first == [begun, went_on]
        assert [(body.seq, body.type) for body in told if body.shard == 1] == [(1, "asked_to_stop")]
        assert {each.event for each in ear.source.events} == {
            "enqueued",
            "progress",
            "asked_to_stop",
        }

    run(scene, tmp_path)


def test_a_type_is_the_public_name_of_the_stored_word(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, _ = served.sources
        ear = await served.listen("types=dead,job.asked_to_stop")
        await ear.until(lambda: bool(ear.source.last_id))
        for stored in ("died", "asked to stop", "enqueued"):
            first.happen(stored)
        first.happen("dead")
        told = await ear.until_events(3)

        assert [body.type for body in told] == ["dead", "asked_to_stop", "dead"]

    run(scene, tmp_path)


def test_a_client_goes_on_where_it_was_cut_off_even_before_its_first_event(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, second = served.sources
        first.happen(count=5)
        source = EventSource()
        ear = await served.listen(source=source)
        await ear.until(lambda: bool(source.last_id))
        ear.close()
        first.happen(count=2)
        second.happen(count=1)
        for count in (1, 2, 3):
            ear = await served.listen(source=source)
            await ear.until_events(count)
            ear.close()
        source_seqs = seqs(ear.bodies, 0)

        assert source_seqs == [6, 7]
        assert seqs(ear.bodies, 1) == [1]

    run(scene, tmp_path)


def test_a_browser_that_comes_again_goes_on_behind_what_it_saw_last(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, _ = served.sources
        ear = await served.listen()
        await ear.until(lambda: bool(ear.source.last_id))
        address = f"last_event_id={ear.source.last_id}"
        first.happen(count=3)
        browser = EventSource()
        for count in (2, 3):
            ear = await served.listen(address, source=browser)
            await ear.until_events(count)
            ear.close()
            del browser.events[count:]
            browser.last_id = browser.events[-1].id

        assert seqs(ear.bodies, 0) == [1, 2, 3]

    run(scene, tmp_path)


def test_a_client_wants_what_all_of_its_lists_have(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, _ = served.sources
        ear = await served.listen("queues=mail,sms&types=job.dead,queue.paused&job_ids=a,,b")
        every = await served.listen("types=completed")
        for what in ("dead", "completed"):
            for queue in ("mail", "fax"):
                for job_id in ("a", "c"):
                    first.happen(what, queue=queue, job_id=job_id)
        await every.until_events(4)
        first.happen("queue.paused", queue="sms", job_id="b")
        told = await ear.until_events(2)

        assert [(body.type, body.queue, body.job_id) for body in told] == [
            ("dead", "mail", "a"),
            ("queue.paused", "sms", "b"),
        ]

    run(scene, tmp_path)


def test_the_servers_own_queues_are_for_those_who_name_them(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, _ = served.sources
        every = await served.listen()
        named = await served.listen("queues=_corvo.bulk,mail")
        known = await served.listen("job_ids=b")
        first.happen(queue="_corvo.bulk", job_id="b")
        first.happen(queue="mail")

        assert [body.queue for body in await every.until_events(1)] == ["mail"]
        assert [body.queue for body in await named.until_events(2)] == ["_corvo.bulk", "mail"]
        assert [body.queue for body in await known.until_events(1)] == ["_corvo.bulk"]

    run(scene, tmp_path)


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("types=completed,finished", "types", "expected one of approved, "),
        ("last_event_id=s0=1", "last_event_id", "'s0=1' is invalid"),
        ("last_event_id=s9=1-00000000", "last_event_id", "unknown shard 9"),
        ("last_event_id=s0=1-00000000,s0=1-00000000", "last_event_id", "occurs twice"),
        ("topics=weather", "topics", "unknown topic 'weather'"),
        ("topics=", "topics", "topics: expected summary"),
        ("queues=" + "a," * 1_001, "queues", "expected at most 1000 names"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, query: str, field: str, words: str
) -> None:
    async def scene(served: House) -> None:
        ear = await served.listen(query)

        assert ear.status == 400
        problem = msgspec.json.decode(ear.body, type=dict[str, str])
        assert problem["code"] == "VALIDATION_ERROR"
        assert problem["field"] == field
        assert words in problem["error"]

    run(scene, tmp_path)


def test_a_key_is_told_of_its_queues_alone(tmp_path: Path) -> None:
    keys = {
        "mailer": ApiKey(key_hash="", name="m", role="readonly", queue_scope=("mail*",)),
        "all": ApiKey(key_hash="", name="a", role="admin"),
    }

    async def scene(served: House) -> None:
        nobody = await served.listen()
        mailer = await served.listen(key="mailer")
        everybody = await served.listen(key="all")
        for queue in ("sms", "mail", "mail-2", ""):
            served.sources[0].happen(queue=queue)
        served.sources[0].happen(queue="mail-3")
        told = await everybody.until_events(5)
        seen = await mailer.until_events(3)

        assert nobody.status == 401
        assert len(told) == 5
        assert [body.queue for body in seen] == ["mail", "mail-2", "mail-3"]

    run(scene, tmp_path, keys=keys)


def test_a_key_that_is_revoked_is_told_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CHECK_S", 0.05)
    keys = {
        "short": ApiKey(key_hash="", name="m", role="readonly"),
        "all": ApiKey(key_hash="", name="a", role="admin"),
    }

    async def scene(served: House) -> None:
        ear = await served.listen(key="short")
        kept = [key for key in served.api.keyring.keys.values() if key.role == "admin"]
        served.api.keyring.replace(kept, now_s=trio.current_time())
        await ear.until_over()

        assert ear.is_over
        assert ear.source.comments[-1] == "invalid API key"

    run(scene, tmp_path, keys=keys)


# What is gone.


class Gone(msgspec.Struct, tag="gone"):
    error: str
    code: str
    outcome: str
    last_event_id: str
    shards: list[int]


async def cut_off_at_seven(served: House) -> str:
    """The id of a client that has seen seven entries of each shard; ten are there."""
    ear = await served.listen()
    for source in served.sources:
        source.happen(count=7)
    await ear.until_events(14)
    ear.close()
    for source in served.sources:
        source.happen(count=3)
    return ear.source.last_id


def test_a_place_that_the_feed_does_not_reach_is_gone_and_it_says_where_to_go_on(
    tmp_path: Path,
) -> None:
    async def scene(served: House) -> None:
        last_id = await cut_off_at_seven(served)
        first, second = served.sources
        first.cut(9)
        await hub_forgets(served)
        refused = await served.listen(last_id=last_id)
        gone = msgspec.json.decode(refused.body, type=Gone)
        ear = await served.listen(last_id=gone.last_event_id)
        told = await ear.until_events(4)

        assert refused.status == 410
        assert gone.code == "GONE"
        assert gone.shards == [0]
        assert parse(gone.last_event_id, 2)[0].index == 9
        assert seqs(told, 0) == [10]
        assert seqs(told, 1) == [8, 9, 10]
        assert second.begin == 0

    run(scene, tmp_path)


async def hub_forgets(served: House) -> None:
    """Let the hub have no page any more."""
    feeds = served.api.hub.feeds
    await served.until(lambda: all(feed.ring is None for feed in feeds))
    await served.until(lambda: not any(source.links for source in served.sources))


@pytest.mark.parametrize("length", [3, 6])
@pytest.mark.parametrize("grows", [0, 10])
def test_a_log_that_was_restored_is_another_one(tmp_path: Path, length: int, grows: int) -> None:
    async def scene(served: House) -> None:
        last_id = await cut_off_at_seven(served)
        first, _ = served.sources
        await hub_forgets(served)
        first.restore(length)
        first.happen(count=grows)
        refused = await served.listen(last_id=last_id)

        assert refused.status == 410
        assert msgspec.json.decode(refused.body, type=Gone).shards == [0]

    run(scene, tmp_path)


def test_whoever_listens_while_a_log_is_restored_is_told_so_and_can_go_on(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, second = served.sources
        ear = await served.listen()
        first.happen(count=5)
        second.happen(count=1)
        await ear.until_events(6)
        first.restore(2)
        first.happen(count=9)
        await ear.until_over()
        told = ear.source.events[-1]
        gone = msgspec.json.decode(told.data, type=Gone)
        refused = await served.listen(source=ear.source)
        again = await served.listen(last_id=gone.last_event_id)
        bodies = await again.until_events(11)

        assert ear.is_over
        assert told.event == "gone"
        assert gone.shards == [0]
        assert refused.status == 410
        assert seqs(bodies, 0) == list(range(1, 12))
        assert seqs(bodies, 1) == []
        assert served.api.metrics.dropped_listeners == {"gone": 1, "slow": 0}

    run(scene, tmp_path)


def test_a_shard_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        last_id = await cut_off_at_seven(served)
        first, _ = served.sources
        await hub_forgets(served)
        entries, first.entries = first.entries, first.entries[:4]
        first.leads = False
        ear = await served.listen(last_id=last_id)
        await ear.until_events(3)
        first.entries = entries
        first.ring()
        told = await ear.until_events(6)

        assert seqs(told[:3], 1) == [8, 9, 10]
        assert seqs(told[3:], 0) == [8, 9, 10]

    run(scene, tmp_path, limits=Limits(leader_wait_ms=100))


def test_whoever_waits_for_a_shard_waits_at_rest(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        last_id = await cut_off_at_seven(served)
        first, _ = served.sources
        await hub_forgets(served)
        entries, first.entries = first.entries, first.entries[:4]
        first.leads = False
        ear = await served.listen(last_id=last_id)
        await ear.until_events(3)
        first.entries = entries[:7]
        first.ring()
        await served.until(lambda: end_of(served, 0) == 7)

        with trio.fail_after(10):  # nobody runs in circles, nor when it is time to ask again
            await trio.testing.wait_all_tasks_blocked(cursors.RETRY_S + 0.05)

    run(scene, tmp_path, limits=Limits(leader_wait_ms=100))


# The life of a stream.


def test_a_quiet_stream_stays_alive_and_its_place_moves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEPALIVE_S", 0.05)

    async def scene(served: House) -> None:
        ear = await served.listen("types=dead")
        await ear.until(lambda: bool(ear.source.last_id))
        served.sources[0].happen("completed", count=3)
        await ear.until(lambda: parse(ear.source.last_id, 2)[0].index == 3)
        ids = ear.source.ids
        await ear.until(lambda: len(ear.source.comments) >= 5)

        assert ear.source.ids == ids, "one that has not moved is not told again"
        assert ear.source.events == []
        assert set(ear.source.comments) == {"still here"}

    run(scene, tmp_path)


def end_of(served: House, shard: int) -> int:
    ring = served.api.hub.feeds[shard].ring
    return ring.end.index if ring is not None else 0


def test_the_stop_ends_streams_with_a_word_and_the_place(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        ear = await served.listen("types=dead")
        await ear.until(lambda: bool(ear.source.last_id))
        served.sources[0].happen("completed", count=3)
        await served.until(lambda: end_of(served, 0) == 3)
        await trio.testing.wait_all_tasks_blocked()
        served.stop()
        await ear.until_over()

        assert ear.is_over
        assert ear.source.comments == ["the server stops"]
        assert parse(ear.source.last_id, 2)[0].index == 3

    run(scene, tmp_path)


def test_only_so_many_may_listen(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first = await served.listen()
        refused = await served.listen()
        first.close()
        await served.until(lambda: served.api.hub.listeners == 0)
        second = await served.listen()

        assert refused.status == 429
        assert b"1 clients follow" in refused.body
        assert second.status == 200

    run(scene, tmp_path, limits=Limits(listeners_max=1))


def test_nobody_is_asked_for_anything_while_nobody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEPALIVE_S", 0.05)

    async def scene(served: House) -> None:
        assert [source.links_ever for source in served.sources] == [0, 0]
        ear = await served.listen()
        assert [source.links for source in served.sources] == [1, 1]
        other = await served.listen()
        ear.close()
        await served.until(lambda: served.api.hub.listeners == 1)
        other.close()
        await hub_forgets(served)

        assert served.api.hub.listeners == 0
        assert [source.links for source in served.sources] == [0, 0]

    run(scene, tmp_path)


def test_a_shard_that_is_away_holds_up_nobody_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        first, second = served.sources
        ear = await served.listen()
        first.happen()
        second.happen()
        await ear.until_events(2)
        first.is_away = True
        first.hang_up()
        first.happen(count=3)
        second.happen()
        await ear.until_events(3)
        first.is_away = False
        told = await ear.until_events(6)

        assert seqs(told, 0) == [1, 2, 3, 4]
        assert seqs(told, 1) == [1, 2]

    run(scene, tmp_path)


def test_a_client_that_does_not_read_is_dropped_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "EVENTS_MAX", 100)

    async def scene(served: House) -> None:
        first, _ = served.sources
        stalled = await served.listen()
        reader = await served.listen()
        seen = 0
        while served.api.hub.listeners == 2:
            first.happen(count=200)
            seen += 200
            await reader.until_events(seen)
            ring = served.api.hub.feeds[0].ring
            assert ring is not None
            assert ring._events <= 1_000, "what is kept does not grow with those who do not read"
        await stalled.until_over()

        assert stalled.is_cut
        assert seqs(reader.bodies, 0) == list(range(1, seen + 1))
        assert served.api.metrics.dropped_listeners == {"gone": 0, "slow": 1}

    run(scene, tmp_path, limits=Limits(send_ms=300))


def test_a_client_that_goes_is_not_counted_as_slow(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        ear = await served.listen()
        ear.close()
        await served.until(lambda: served.api.hub.listeners == 0)

        assert served.api.metrics.dropped_listeners == {"gone": 0, "slow": 0}

    run(scene, tmp_path)


def test_the_head_of_a_stream_counts_nobody(tmp_path: Path) -> None:
    async def scene(served: House) -> None:
        ear = await served.listen(method="HEAD")

        assert ear.status == 200
        assert ear.headers["content-type"] == "text/event-stream"
        assert served.api.hub.listeners == 0

    run(scene, tmp_path)
