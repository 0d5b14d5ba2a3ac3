"""Shards for tests that have nothing but a feed, written by the test; and a client that listens."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import h11
import msgspec
import trio
from msgspec.structs import replace

from corvo import telemetry
from corvo.connections import listen_unix
from corvo.errors import WireError
from corvo.link import Link, LinkLost, open_link
from corvo.model import ApiKey
from corvo.protocol import wire
from corvo.router.api import Api
from corvo.router.auth.keyring import hash_key
from corvo.router.config import Limits, RouterConfig
from corvo.router.feeds.events import LiveEvent
from corvo.router.http.messages import Request
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.serving import Server
from corvo.router.stream.stream import run_stream
from corvo.router.table import ROUTES
from tests.support.links import Member

CLUSTER: Final = "rookery"


class Entry(msgspec.Struct, frozen=True):
    """One entry of a log."""

    digest: int
    events: tuple[wire.Happening, ...]


class Source:
    """One shard's feed, behind a socket."""

    def __init__(self, shard: int, path: Path) -> None:
        self.shard: Final = shard
        self.socket: Final = str(path)
        self.salt = 7
        """Another one makes another log."""
        self.entries: list[Entry] = []
        self.times: dict[int, int] = {}
        """Of entries that have one of their own."""
        self.begin = 0
        self.leads = True
        self.is_away = False
        self.gate = trio.Event()
        """Answers wait for it."""
        self.gate.set()
        self.shards = 1
        """How many the cluster has."""
        self.links = 0
        self.links_ever = 0
        self.follows: list[int] = []
        self._changed = trio.Event()
        self._links: dict[Link, trio.CancelScope] = {}

    def add(self, *events: wire.Happening) -> int:
        """Another entry; its place."""
        before = self.digest(len(self.entries))
        self.entries.append(Entry((before * 31 + self.salt + len(events)) % (1 << 32), events))
        self.ring()
        return len(self.entries)

    def happen(
        self, what: str = "enqueued", count: int = 1, *, queue: str = "mail", job_id: str = ""
    ) -> None:
        """So many entries with one event each."""
        for _ in range(count):
            number = len(self.entries) + 1
            self.add(wire.Happening(what, job_id or f"j{self.shard}-{number}", queue))

    def cut(self, begin: int) -> None:
        """Forget what was up to a place."""
        self.begin = begin

    def restore(self, length: int, salt: int = 13) -> None:
        """Go back to an older copy, and go on from there otherwise."""
        del self.entries[length:]
        self.salt = salt
        self.hang_up()

    def hang_up(self) -> None:
        """All links are lost."""
        for scope in self._links.values():
            scope.cancel()
        self.ring()

    def ring(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until_follows(self, count: int) -> None:
        """Wait until it was asked so often."""
        while len(self.follows) < count:
            await trio.lowlevel.checkpoint()

    def digest(self, index: int) -> int:
        return self.entries[index - 1].digest if index else 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        listener = await listen_unix(self.socket)
        async with listener, trio.open_nursery() as nursery:
            task_status.started()
            while True:
                nursery.start_soon(self._serve, await listener.accept())

    async def _serve(self, stream: trio.SocketStream) -> None:
        member = Member(cluster=CLUSTER, shards=self.shards)
        hello = wire.make_hello(member, wire.REPLICA, shard=self.shard)
        if self.is_away:
            await stream.aclose()
            return
        with trio.CancelScope() as scope, suppress(LinkLost, WireError):
            async with open_link(stream, hello) as link:
                assert link.peer.role == wire.FOLLOWER
                self._links[link] = scope
                self.links += 1
                self.links_ever += 1
                try:
                    await self._answer_all(link)
                finally:
                    self.links -= 1
                    del self._links[link]

    async def _answer_all(self, link: Link) -> None:
        async with trio.open_nursery() as nursery:
            with suppress(LinkLost):
                while asked := await link.receive(wire.FROM_FOLLOWER):
                    for request in asked:
                        if isinstance(request, wire.Seek):
                            link.send(self._sought(request))
                            continue
                        assert isinstance(request, wire.Follow)
                        assert request.wants_events
                        assert not request.wants_documents
                        nursery.start_soon(self._answer, link, request)
            nursery.cancel_scope.cancel()

    async def _answer(self, link: Link, request: wire.Follow) -> None:
        self.follows.append(request.after)
        await self.gate.wait()
        while True:
            last, after = len(self.entries), request.after
            is_known = self.begin <= after <= last and request.digest == self.digest(after)
            if after > last and not self.leads:
                is_known = True
            if not is_known:
                begin, end = self.begin, last
                digests = self.digest(end), self.digest(begin)
                now_ns = self.time(end)
                link.send(wire.Reset(request.id, end, digests[0], now_ns, begin, digests[1]))
                return
            if last > after:
                link.send(self._page(request))
                return
            await self._changed.wait()

    def _sought(self, request: wire.Seek) -> wire.Sought:
        """Entry by entry."""
        times = [self.time(index) for index in range(len(self.entries) + 1)]
        index = max([at for at, time in enumerate(times) if time < request.since_ns], default=0)
        whole_ns = 0
        if index < self.begin or (index == self.begin != 0 and times[-1] >= request.since_ns):
            index = self.begin
            whole_ns = 1 + times[min(index + 1, len(self.entries))]
        return wire.Sought(request.id, index, self.digest(index), times[-1], whole_ns)

    def time(self, index: int) -> int:
        """When an entry was made."""
        return self.times[index] if index in self.times else index * 1_000

    def _page(self, request: wire.Follow) -> wire.Changes:
        index, count, told = request.after, 0, []
        while index < len(self.entries) and count < request.keys_max:
            events = self.entries[index].events
            index += 1
            count += len(events)
            if events:
                told.append(wire.Happenings(index, self.time(index), events))
        return wire.Changes(
            request.id,
            index,
            self.digest(index),
            self.time(index),
            len(self.entries),
            (),
            tuple(told),
        )


class Frame(msgspec.Struct):
    """One frame, as EventSource reads it."""

    id: str
    event: str
    data: bytes


class EventSource:
    """What the standard says of reading events: bytes in, events out, and the last id."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms = 0
        self.ids = 0
        """How often one came."""
        self.events: list[Frame] = []
        self.comments: list[str] = []
        self._id_buffer = ""
        self._held = b""
        self._data: list[bytes] = []
        self._event = ""

    def cut(self) -> bool:
        """The connection is lost, and with it what is not whole. Whether there was such."""
        was_inside = bool(self._held or self._data)
        self._held = b""
        self._data.clear()
        self._event = ""
        self._id_buffer = self.last_id
        return was_inside

    def feed(self, data: bytes) -> None:
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b":"):
            self.comments.append(line[1:].strip().decode())
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match name:
                case b"data":
                    self._data.append(value)
                case b"id":
                    self.ids += 1
                    self._id_buffer = value.decode()
                case b"event":
                    self._event = value.decode()
                case b"retry":
                    self.retry_ms = int(value)
                case _:
                    raise AssertionError(line)

    def _dispatch(self) -> None:
        self.last_id = self._id_buffer
        if self._data:
            data = b"\n".join(self._data)
            self.events.append(Frame(self.last_id, self._event or "message", data))
        self._data.clear()
        self._event = ""


class Ear:
    """A client that listens over HTTP/1.1."""

    def __init__(self, port: int, source: EventSource | None = None) -> None:
        self.source = source or EventSource()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.received = 0
        """Bytes, whatever they were."""
        self.is_over = False
        """Whether the server ended the answer in order."""
        self.is_cut = False
        self._port = port
        self._h11 = h11.Connection(h11.CLIENT)
        self._stream: trio.SocketStream | None = None

    async def ask(
        self, query: str = "", *, last_id: str = "", key: str = "", method: str = "GET"
    ) -> None:
        """Listen, from behind the last event unless told otherwise; waits for the headers."""
        self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        headers = [("host", "127.0.0.1")]
        if last_id or self.source.last_id:
            headers.append(("last-event-id", last_id or self.source.last_id))
        if key:
            headers.append(("x-api-key", key))
        target = f"/api/v1/events?{query}"
        data = self._h11.send(h11.Request(method=method, target=target, headers=headers))
        await self._stream.send_all(data + self._h11.send(h11.EndOfMessage()))
        while not (self.status or self.is_cut):
            await self.read()
        if self.status != 200:
            while not (self.is_over or self.is_cut):
                await self.read()

    async def read(self, bytes_max: int = 65_536) -> None:
        """Take something more."""
        assert self._stream is not None
        event = self._h11.next_event()
        while event is h11.NEED_DATA:
            try:
                data = bytes(await self._stream.receive_some(bytes_max))
                self.received += len(data)
                self._h11.receive_data(data)
                event = self._h11.next_event()
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                self.is_cut = True
                return
        if isinstance(event, h11.Response):
            self.status = event.status_code
            self.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            if self.status == 200:
                self.source.feed(bytes(event.data))
            else:
                self.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.is_over = True

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read until something is so."""
        while not condition():
            assert not self.is_over, self.body
            assert not self.is_cut, self.body
            await self.read()

    async def until_events(self, count: int) -> list[LiveEvent]:
        """Read so many events; those."""
        await self.until(lambda: len(self.source.events) >= count)
        return self.bodies

    async def until_over(self) -> None:
        """Read to the end."""
        while not (self.is_over or self.is_cut):
            await self.read()

    @property
    def bodies(self) -> list[LiveEvent]:
        return [msgspec.json.decode(each.data, type=LiveEvent) for each in self.source.events]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.socket.close()
            self._stream = None


def seqs(bodies: list[LiveEvent], shard: int) -> list[int]:
    """The places of one shard's events, as they came."""
    return [body.seq for body in bodies if body.shard == shard]


class House:
    """A router that serves, and the feeds behind it."""

    def __init__(self, api: Api, port: int, stop: trio.Event, sources: list[Source]) -> None:
        self.api = api
        self.port = port
        self.sources = sources
        self._stop = stop
        self._ears: list[Ear] = []

    async def listen(
        self,
        query: str = "",
        *,
        last_id: str = "",
        key: str = "",
        source: EventSource | None = None,
        method: str = "GET",
    ) -> Ear:
        """A new client."""
        ear = Ear(self.port, source)
        self._ears.append(ear)
        await ear.ask(query, last_id=last_id, key=key, method=method)
        return ear

    def stop(self) -> None:
        self.api.stop()
        self._stop.set()

    def close(self) -> None:
        for ear in self._ears:
            ear.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def house(
    directory: Path,
    shards: int = 2,
    *,
    limits: Limits | None = None,
    keys: dict[str, ApiKey] | None = None,
    feeds: list[Source] | None = None,
) -> AsyncIterator[House]:
    """A router with feeds behind it, until the block ends; feeds that are given go on behind it."""
    sources = feeds or [Source(shard, directory / f"s{shard}") for shard in range(shards)]
    for source in sources:
        source.shards = shards
    config = RouterConfig(
        cluster=CLUSTER,
        node=1,
        shards=shards,
        sockets=dict(enumerate([source.socket for source in sources])),
        listen=[0],
        is_open=True,
        limits=limits or Limits(),
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    said: list[bytes] = []
    log = telemetry.Log(said.append, "router", telemetry.Style(is_text=True), telemetry.Level.INFO)
    api = Api(config)
    known = [replace(key, key_hash=hash_key(text)) for text, key in (keys or {}).items()]
    api.keyring.replace(known, now_s=trio.current_time())
    door = Door(api, ROUTES, on_bug=_no_bugs)
    server = Server(door, App(door, run_stream), config, log)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        if feeds is None:
            for source in sources:
                await nursery.start(source.run)
        nursery.start_soon(api.hub.run)
        async with trio.open_nursery() as face:
            face.start_soon(server.run, [listener], stop)
            made = House(api, listener.getsockname()[1], stop, sources)
            try:
                yield made
            finally:
                made.close()
                made.stop()
        nursery.cancel_scope.cancel()
    assert said == []
    assert api.hub.listeners == 0


def _no_bugs(request: Request, error: BaseException) -> None:
    raise AssertionError(request.path) from error
