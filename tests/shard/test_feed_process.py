"""Followers of the real process: over its socket, through crashes, and when it is another one."""

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import trio

from corvo.connections import UnixAddress, connect
from corvo.kv.level import LevelStore
from corvo.link import Link, LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.work import BeatItem, Heartbeat
from corvo.shard.config import ShardConfig
from tests.shard.followers import (
    Follower,
    as_json,
    catch_up,
    documents_of,
    following,
    told,
    words,
)
from tests.shard.groups import group_in, map_of, ports_of
from tests.shard.processes import (
    ack,
    calling,
    config_in,
    fetch,
    launch,
    put,
    running,
    status,
    submit,
)
from tests.support.links import on_sockets
from tests.support.ports import free_ports

JOB = NewJob(queue="mail", payload=msgspec.Raw(b'{"n":1}'))


@on_sockets
async def test_a_follower_hears_of_a_jobs_whole_life(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    follower = Follower()

    async with running(config), calling(config) as client, following(config) as link:
        [job_id] = await put(client, JOB)
        [claim] = await fetch(client)
        beat = BeatItem(job_id=job_id, lease_token=claim.lease_token, progress=msgspec.Raw(b"7"))
        await submit(client, Heartbeat(jobs=[beat]))
        await ack(client, claim)
        await catch_up(link, follower, until=(await status(client)).applied)

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

    async with running(config), calling(config) as client, following(config) as link:
        await catch_up(link, follower, until=(await status(client)).applied)
        heard: list[wire.FollowerAnswer] = []

        async def wait() -> None:
            heard.append(await told(link, follower.follow()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            before = list(heard)
            await put(client, JOB)

    assert before == []
    [changes] = heard
    assert isinstance(changes, wire.Changes)
    assert words(list(changes.happenings)) == ["queue.created", "enqueued"]


@on_sockets
async def test_a_follower_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    follower = Follower()
    done: list[str] = []

    for _ in range(4):
        async with AsyncExitStack() as stack:
            child = await stack.enter_async_context(running(config))
            link = await stack.enter_async_context(following(config, wire.MIRROR))
            async with calling(config) as client:
                done += await put(client, *[JOB] * 20)
                for claim in await fetch(client, 10):
                    await ack(client, claim)
                await catch_up(link, follower, until=(await status(client)).applied, keys_max=7)
                done += await put(client, *[JOB] * 20)
            await child.kill()
            with pytest.raises(LinkLost):
                await told_all(link, follower)
    async with running(config), calling(config) as client, following(config) as link:
        await catch_up(link, follower, until=(await status(client)).applied)

    assert follower.resets == 0
    enqueued = [
        event.job_id
        for each in follower.happenings
        for event in each.events
        if event.what == "enqueued"
    ]
    assert enqueued == done
    store = LevelStore(str(tmp_path / "data" / "state" / "live"))
    assert follower.documents == documents_of(store)
    store.close()


async def told_all(link: Link, follower: Follower) -> None:
    """Follow until the link ends; what is told before is kept."""
    while True:
        follower.hear(await told(link, follower.follow()))


@on_sockets
async def test_a_follower_of_a_shard_that_was_wiped_begins_anew(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    follower = Follower()
    async with running(config), calling(config) as client, following(config) as link:
        await put(client, *[JOB] * 50)
        for claim in await fetch(client, 10):
            await ack(client, claim)
        await catch_up(link, follower, until=(await status(client)).applied)
    shutil.rmtree(config.data_dir)

    async with running(config), calling(config) as client, following(config) as link:
        [left] = await put(client, JOB)
        follower.hear(await told(link, follower.follow()))
        await catch_up(link, follower, until=(await status(client)).applied, keys_max=2)

    assert follower.resets == 1
    jobs = [key for key in follower.documents if key.startswith(b"j|")]
    assert jobs == [b"j|" + left.encode()]


@on_sockets
async def test_a_follower_that_lags_behind_what_is_kept_makes_a_full_pass(tmp_path: Path) -> None:
    config = config_in(tmp_path, feed_bytes=2_000)
    follower = Follower()

    async with running(config), calling(config) as client, following(config) as link:
        made = [await put(client, JOB) for _ in range(60)]
        await catch_up(link, follower, until=(await status(client)).applied, keys_max=10)

    assert follower.resets == 1
    jobs = {key for key in follower.documents if key.startswith(b"j|")}
    assert jobs == {b"j|" + job_id.encode() for [job_id] in made}


@on_sockets
async def test_a_replica_that_is_given_a_snapshot_goes_on_with_its_followers(
    tmp_path: Path,
) -> None:
    known = map_of(free_ports(3))
    group = group_in(tmp_path, known, checkpoint_entries=40, keep_entries=0)
    follower = Follower()

    async with ports_of(group), AsyncExitStack() as stack:
        for config in group[:2]:
            child = await launch(config)
            stack.push_async_callback(child.kill)
            assert await child.wait_until_ready()
        client = await leader_of(group[:2], stack)
        for _ in range(200):
            await put(client, JOB)
        late = await launch(group[2])
        stack.push_async_callback(late.kill)
        assert await late.wait_until_ready()
        link = await stack.enter_async_context(following(group[2]))
        goal = (await status(client)).applied
        await catch_up(link, follower, until=goal)
        digest = follower.digest
        other = await stack.enter_async_context(following(group[0]))
        again = Follower()
        await catch_up(other, again, until=goal)

    assert follower.documents == again.documents
    assert len([key for key in follower.documents if key.startswith(b"j|")]) == 200
    assert digest == again.digest or follower.index != again.index


async def leader_of(group: list[ShardConfig], stack: AsyncExitStack) -> LinkClient:
    """A client of whoever leads."""
    clients = [await stack.enter_async_context(calling(config)) for config in group]
    while True:
        for client in clients:
            if (await status(client)).role == "leader":
                return client


@on_sockets
async def test_a_follower_that_asks_for_too_much_at_a_time_is_shown_out(tmp_path: Path) -> None:
    config = config_in(tmp_path)

    async with running(config), following(config) as link:
        assert link.send_many([wire.Follow(n, 1 << 40, 0) for n in range(100)])

        with pytest.raises(LinkLost):
            await hear_all(link)


@on_sockets
async def test_an_answer_that_is_too_large_ends_its_followers_link_and_nothing_else(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    narrow = "from corvo.protocol import wire; wire.FRAME_BYTES_MAX = 10_000"
    hasty = "from corvo.shard.driver import one_by_one; one_by_one.UNSENDABLE_S = 0.0"
    rest = "from corvo.shard.driver.process import main; raise SystemExit(main())"
    large = NewJob(queue="mail", payload=msgspec.Raw(b'"' + b"x" * 9_900 + b'"'))

    async with running(config, ("-c", f"{narrow}\n{hasty}\n{rest}")), calling(config) as client:
        await put(client, large)
        for request in (wire.Follow(1, 0, 0), wire.Scan(1)):
            async with following(config) as link:
                assert link.send(request)

                assert await link.receive(wire.TO_FOLLOWER) == []

                assert "a message of" in str(link.goodbye)
        ends = (await status(client)).applied

    assert ends > 0


async def hear_all(link: Link) -> None:
    """Receive until the link ends."""
    while await link.receive(wire.TO_FOLLOWER):
        pass


@on_sockets
async def test_a_follower_that_waits_gets_its_signs_of_life(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    hello = wire.make_hello(config, wire.FOLLOWER, shard=config.shard)
    follower = Follower()
    heard: list[wire.AnyMessage] = []
    frames = wire.FrameReader()

    async with running(config), calling(config) as client:
        async with following(config) as link:
            await catch_up(link, follower, until=(await status(client)).applied)
        stream = await connect(UnixAddress(config.socket))
        await stream.send_all(wire.encode_many([hello, follower.follow(), wire.Ping(3)]))
        while wire.Pong(3) not in heard:
            heard += frames.receive(await stream.receive_some(), wire.EVERYTHING)
        await stream.aclose()

    assert [type(message) for message in heard] == [wire.Hello, wire.Pong]
