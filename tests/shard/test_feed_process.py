"""Followers of the real process: over its socket, through crashes, and when it is another one."""

from pathlib import Path

import msgspec
import trio

from corvo import wire
from corvo.shard.ops.enqueue import NewJob
from corvo.shard.ops.work import BeatItem, Heartbeat
from tests.shard.followers import Follower, as_json, catch_up, following, told, words
from tests.shard.processes import ack, calling, config_in, fetch, put, running, status, submit
from tests.support.links import on_sockets

JOB = NewJob(queue="mail", payload=msgspec.Raw(b'{"n":1}'))


@on_sockets
async def test_a_follower_hears_of_a_jobs_whole_life(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    follower = Follower()

    async with running(config), calling(config) as caller, following(config) as link:
        [job_id] = await put(caller, JOB)
        [claim] = await fetch(caller)
        beat = BeatItem(job_id=job_id, lease_token=claim.lease_token, progress=msgspec.Raw(b"7"))
        await submit(caller, Heartbeat(jobs=[beat]))
        await ack(caller, claim)
        await catch_up(link, follower, until=(await status(caller)).applied)

    assert words(follower.happenings) == [
        "queue.created",
        "enqueued",
        "started",
        "progress",
        "completed",
    ]
    events = [event for each in follower.happenings for event in each.events]
    assert {(event.job_id, event.queue) for event in events[1:]} == {(job_id, "mail")}
    assert [event.state for event in events[1:]] == ["pending", "active", "active", "completed"]
    assert as_json(events[3]) == 7
    assert b"j|" + job_id.encode() in follower.documents


@on_sockets
async def test_a_follower_at_the_end_waits_until_something_happens(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    follower = Follower()

    async with running(config), calling(config) as caller, following(config) as link:
        await catch_up(link, follower, until=(await status(caller)).applied)
        heard: list[wire.FollowerAnswer] = []

        async def wait() -> None:
            heard.append(await told(link, follower.follow()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            before = list(heard)
            await put(caller, JOB)

    assert before == []
    [changes] = heard
    assert isinstance(changes, wire.Changes)
    assert words(list(changes.happenings)) == ["queue.created", "enqueued"]
