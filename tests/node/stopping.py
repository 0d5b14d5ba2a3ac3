"""SIGTERM in the midst of everything: clients at work, others who wait, some who do not read."""

from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.crowd import Crowd, Made
from tests.node.history import Acked, Enqueued
from tests.node.http import Address, Client, Lost, request
from tests.node.nodes import House, house_in
from tests.router.stream_client import Closed, Refused, connected

STALLED: Final = 4
WAITING: Final = 20
STREAMS: Final = 4
LISTENERS: Final = 4
"""Clients that follow events."""
IDLE: Final = 4
"""Connections without a request."""
_TAIL_BYTES: Final = 1_000
_LARGE: Final = b'{"queue": "large", "payload": "' + b"x" * 500_000 + b'"}'
_LARGE_JOBS: Final = 40


class Seen(msgspec.Struct):
    """What came of it."""

    code: int = -1
    took_s: float = 0.0
    waits: dict[int, int] = {}
    """How the fetches that waited were answered; 0 is not at all."""
    closes: dict[int, int] = {}
    """How the streams were closed."""
    listened: dict[str, int] = {}
    """The last line that each client got that follows events, and whether its answer was whole."""
    idle: dict[bytes, int] = {}
    """What connections without a request got; nothing is their end."""
    promised: int = 0
    lost: list[str] = []
    undone: list[str] = []
    """Jobs whose end was acknowledged and is forgotten."""
    events: list[dict[str, object]] = []
    texts: list[str] = []


class Stopping:
    """One run."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.crowd: Final = Crowd(house.address, house.shards)
        self.seen: Final = Seen()

    async def run(self) -> Seen:
        """Load it, stop it, start it again, and look."""
        seen, house = self.seen, self._house
        async with house.open() as node:
            stalled = [await stall(house.address) for _ in range(STALLED)]
            async with trio.open_nursery() as nursery, trio.open_nursery() as guests:
                nursery.start_soon(self.crowd.run)
                for _ in range(WAITING):
                    guests.start_soon(self._wait)
                for number in range(STREAMS):
                    guests.start_soon(self._stream, number)
                for _ in range(LISTENERS):
                    await guests.start(self._listen)
                for _ in range(IDLE):
                    await guests.start(self._stay)
                await self.crowd.more(100)
                began = trio.current_time()
                seen.code = await node.end()
                seen.took_s = trio.current_time() - began
                nursery.cancel_scope.cancel()
            for client in stalled:
                client.close()
            seen.events, seen.texts = node.events, node.texts
        async with house.open() as node:
            await self._compare()
            await node.end()
        return seen

    async def _compare(self) -> None:
        found = await self.crowd.look_up()
        for event in self.crowd.history:
            if isinstance(event, Enqueued):
                self.seen.promised += 1
                if event.job_id not in found:
                    self.seen.lost.append(event.job_id)
            elif isinstance(event, Acked) and found.get(event.job_id) != "completed":
                self.seen.undone.append(event.job_id)

    async def _wait(self) -> None:
        client = Client(self._house.address)
        body = msgspec.json.encode({"queues": ["nothing-here"], "timeout": 60})
        try:
            status = (await client.ask("POST", "/api/v1/fetch", body)).status
        except Lost:
            status = 0
        self.seen.waits[status] = self.seen.waits.get(status, 0) + 1
        client.close()

    async def _listen(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow events to the end."""
        client = Client(self._house.address)
        stream = await client.connect()
        await stream.send_all(request("GET", "/api/v1/events"))
        last = await stream.receive_some()
        task_status.started()
        while data := await received(stream):
            last = (last + data)[-_TAIL_BYTES:]
        client.close()
        is_whole = last.endswith(b"\r\n0\r\n\r\n")
        *_, line = last.removesuffix(b"\r\n0\r\n\r\n").strip().split(b"\n")
        said = f"{line.decode()}, {'whole' if is_whole else 'cut off'}"
        self.seen.listened[said] = self.seen.listened.get(said, 0) + 1

    async def _stay(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a connection open after an answer."""
        client = Client(self._house.address)
        await client.ask("GET", "/livez")
        stream = await client.connect()
        task_status.started()
        said = await received(stream)
        client.close()
        self.seen.idle[said] = self.seen.idle.get(said, 0) + 1

    async def _stream(self, number: int) -> None:
        try:
            async with connected(self._house.address[1]) as client:
                frame: dict[str, object] = {"id": 1}
                if number % 2:  # half of them wait for work, and half for nothing
                    frame["fetch"] = {"queues": ["nothing-here"], "wait_ms": 60_000}
                await client.send(frame)
                while True:
                    await client.receive()
        except Closed as closed:
            self.seen.closes[closed.code] = self.seen.closes.get(closed.code, 0) + 1
        except Refused as refused:
            self.seen.closes[refused.status] = self.seen.closes.get(refused.status, 0) + 1


async def received(stream: trio.SocketStream) -> bytes:
    """What comes next; nothing at the end. A reset is an end, too, and is told as one."""
    try:
        return await stream.receive_some()
    except trio.BrokenResourceError:
        return b""


async def stall(address: Address) -> Client:
    """A client that asks for a lot, and reads only that it gets it."""
    client = Client(address)
    ids = []
    for _ in range(_LARGE_JOBS):
        answer = await client.ask("POST", "/api/v1/enqueue", _LARGE)
        assert answer.status == 201, answer
        ids.append(answer.read(Made).job_id)
    stream = await client.connect()
    body = msgspec.json.encode({"job_ids": ids})
    await stream.send_all(request("POST", "/api/v1/jobs/bulk-get", body))
    head = bytes(await stream.receive_some(12))
    assert head == b"HTTP/1.1 200", head
    return client


async def run(directory: Path) -> Seen:
    """Stop a node that is busy in every way."""
    return await Stopping(await house_in(directory)).run()
