"""Events over HTTP, with feeds behind the router that the test writes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio

from corvo import wire
from corvo.model import ApiKey
from corvo.router import listening, rings
from corvo.router.config import Limits
from corvo.router.sse import parse
from tests.router.feeds import EventSource, House, house, seqs

Scene = Callable[[House], Awaitable[None]]


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
        of_first = [each.data for each in ear.source.events if b'"shard":0' in each.data]
        assert of_first == [
            b'{"seq":4,"number":1,"shard":0,"type":"enqueued","at_ns":4000,'
            b'"at":"1970-01-01T00:00:00.000004Z","job_id":"a","queue":"mail","kind":"send",'
            b'"state":"pending","by":"ada","why":"because"}',
            b'{"seq":4,"number":2,"shard":0,"type":"progress","at_ns":4000,'
            b'"at":"1970-01-01T00:00:00.000004Z","job_id":"a","queue":"mail","data":{"done":3}}',
        ]
        assert [(body.seq, body.type) for body in told if body.shard == 1] == [(1, "asked_to_stop")]
        assert {each.event for each in ear.source.events} == {
            "enqueued",
            "progress",
            "asked_to_stop",
        }

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
