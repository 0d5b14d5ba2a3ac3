"""Memories of several routers: API keys, rates of clients and events, whichever node is asked."""

from pathlib import Path

import msgspec
import trio

from corvo.placement import shard_of_queue
from tests.cluster.nodes import PATIENCE_S, Member, as_initial, cluster_of, members_in
from tests.node.http import Client, request
from tests.support.links import on_sockets

ADMIN = "an-admin-key-of-the-test"
RATE, BURST = 5, 5
QUEUES = ["mail", next(f"q{n}" for n in range(99) if shard_of_queue(f"q{n}", 2) == 1)]


class Made(msgspec.Struct):
    """An API key that was created."""

    api_key: str
    key_hash: str


class Put(msgspec.Struct):
    """A job that was enqueued."""

    job_id: str


async def made_at(member: Member, name: str) -> Made:
    """A new API key, which may enqueue."""
    client = Client(member.address, ADMIN)
    body = msgspec.json.encode({"name": name, "role": "producer"})
    with trio.fail_after(PATIENCE_S):
        while (answer := await client.ask("POST", "/api/v1/auth/keys", body)).status != 200:
            assert answer.status == 503, answer
    client.close()
    return answer.read(Made)


async def status_at(member: Member, api_key: str, queue: str = "mail") -> int:
    """What an enqueue is answered."""
    client = Client(member.address, api_key)
    body = msgspec.json.encode({"queue": queue})
    try:
        return (await client.ask("POST", "/api/v1/enqueue", body)).status
    finally:
        client.close()


async def spend(member: Member, api_key: str, seconds: float) -> int:
    """How many jobs a client enqueues that never pauses."""
    client, count = Client(member.address, api_key), 0
    body = msgspec.json.encode({"queue": "mail"})
    with trio.move_on_after(seconds):
        while True:
            answer = await client.ask("POST", "/api/v1/enqueue", body)
            assert answer.status in (201, 429, 503), answer  # 503 if a shard stood still
            count += answer.status == 201
    return count


@on_sockets
async def test_keys_and_rates_are_those_of_the_cluster(tmp_path: Path) -> None:
    members = await members_in(
        tmp_path,
        ["a", "b"],
        admin_key=ADMIN,
        cluster__replicas="1",
        limits__write_rate=str(RATE),
        limits__write_burst=str(BURST),
    )
    as_initial(members)
    for member in members:
        member.build = "told"  # so that no router finds a key by looking for it now and then
    async with cluster_of(members) as cluster:
        await cluster.start_all()

        # A new key works at once where it was made, and elsewhere once the shard has told that
        # router; a deleted one the same.
        for here, there in (members, reversed(members)):
            made = await made_at(here, here.name)
            with trio.fail_after(PATIENCE_S):
                while await status_at(there, made.api_key) == 401:
                    await trio.lowlevel.checkpoint()
            admin = Client(here.address, ADMIN)
            with trio.fail_after(PATIENCE_S):
                path = f"/api/v1/auth/keys/{made.key_hash}"
                while (await admin.ask("DELETE", path)).status not in (200, 404):
                    await trio.lowlevel.checkpoint()
            admin.close()
            assert await status_at(here, made.api_key) == 401
            with trio.fail_after(PATIENCE_S):
                while await status_at(there, made.api_key) != 401:
                    await trio.lowlevel.checkpoint()

        # A client of both nodes gets its rate once.
        greedy = await made_at(members[0], "greedy")
        counts: list[int] = []

        async def run(member: Member) -> None:
            counts.append(await spend(member, greedy.api_key, 5.0))

        with trio.fail_after(PATIENCE_S):
            while await status_at(members[1], greedy.api_key) == 401:
                await trio.lowlevel.checkpoint()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(run, member)
        took_s = trio.current_time() - began

    assert sum(counts) <= 2 * BURST + RATE * (took_s + 1)
    assert sum(counts) >= RATE * 2


@on_sockets
async def test_an_event_of_any_shard_reaches_a_listener_at_any_node(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b"], cluster__replicas="1")
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        for listening, asked in (members, reversed(members)):
            for queue in QUEUES:
                await cluster.until(asked, "POST", "/api/v1/enqueue", {"queue": queue}, key=queue)
            client = Client(listening.address)
            stream = await client.connect()
            await stream.send_all(request("GET", "/api/v1/events"))
            seen = b""
            with trio.fail_after(PATIENCE_S):
                while b"\r\n\r\n" not in seen:
                    seen += await stream.receive_some()
                assert seen.startswith(b"HTTP/1.1 200"), seen
                for queue in QUEUES:
                    job = {"queue": queue}
                    put = await cluster.until(asked, "POST", "/api/v1/enqueue", job)
                    job_id = put.read(Put).job_id.encode()
                    while job_id not in seen:
                        seen += await stream.receive_some()
            client.close()
