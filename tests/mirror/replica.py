"""A replica for tests, as a follower sees it: a log of documents, a feed that can be cut, a socket.

It is the dumb twin of `corvo.shard.driver.following`: an entry is a document that was written or
removed, and every answer is made from the whole log.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec
import trio

from corvo.connections import listen_unix
from corvo.errors import WireError
from corvo.link import Link, LinkLost, open_link
from corvo.model import Job, State
from corvo.protocol import wire
from tests.support.links import Member

NS: Final = 1_000_000_000


def job(name: str, text: str = "rook") -> tuple[bytes, bytes]:
    """A document of a job."""
    payload = msgspec.json.encode(text)
    made = Job(id=name, queue="q", state=State.DEAD, payload=payload, created_ns=1, order_ns=1)
    return b"j|" + name.encode(), msgspec.msgpack.encode(made)


class Replica:
    """One shard."""

    def __init__(self, socket: str, number: int = 0) -> None:
        self.socket: Final = socket
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.begin = 0
        """Behind this place it still has all that happened."""
        self.asked: list[wire.FollowerRequest] = []
        self.answers_max: int | None = None
        """So many are answered, and whoever asks more waits."""
        self._number = number
        self._news = trio.Event()
        self._links: list[trio.CancelScope] = []

    def put(self, *documents: tuple[bytes, bytes | None]) -> None:
        """An entry for each."""
        self.entries += documents
        self._news.set()
        self._news = trio.Event()

    def remove(self, *names: str) -> None:
        """Jobs are gone."""
        self.put(*((b"j|" + name.encode(), None) for name in names))

    def restore(self, index: int) -> None:
        """Go back, and another way from there."""
        self.entries = self.entries[:index]
        self.hang_up()

    def hang_up(self) -> None:
        """Lose all links."""
        for scope in self._links:
            scope.cancel()

    @property
    def documents(self) -> dict[bytes, bytes]:
        """What there is now."""
        found: dict[bytes, bytes] = {}
        for key, data in self.entries:
            found.pop(key, None)
            if data is not None:
                found[key] = data
        return found

    def digest(self, index: int) -> int:
        """Of the state there; nothing at all has none."""
        return hash(tuple(self.entries[:index])) & 0xFFFFFFFF if index else 0

    def kinds(self) -> list[str]:
        """What was asked, in words."""
        return [type(request).__name__ for request in self.asked]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer followers."""
        listener = await listen_unix(self.socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, self._serve, [listener]))
            yield
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        hello = wire.make_hello(Member(), wire.REPLICA, shard=self._number)
        with trio.CancelScope() as scope, suppress(LinkLost, WireError):
            self._links.append(scope)
            async with open_link(stream, hello) as link:
                await self._hear(link)

    async def _hear(self, link: Link) -> None:
        while requests := await link.receive(wire.FROM_FOLLOWER):
            for request in requests:
                self.asked.append(request)
                if self.answers_max is not None and len(self.asked) > self.answers_max:
                    await trio.sleep_forever()
                if isinstance(request, wire.Scan):
                    link.send(self._scan(request))
                else:
                    assert isinstance(request, wire.Follow)
                    link.send(await self._follow(request))

    async def _follow(self, request: wire.Follow) -> wire.FollowerAnswer:
        now = len(self.entries)
        is_ours = (
            self.begin <= request.after <= now and self.digest(request.after) == request.digest
        )
        if request.through:
            is_ours &= request.through <= now and (
                self.digest(request.through) == request.through_digest
            )
        if not is_ours:
            return wire.Reset(
                request.id, now, self.digest(now), now * NS, self.begin, self.digest(self.begin)
            )
        while len(self.entries) == request.after:
            await self._news.wait()
        now = len(self.entries)
        index = min(now, request.after + request.keys_max)
        documents = self.documents
        names = dict.fromkeys(key for key, _ in self.entries[request.after : index])
        pairs = tuple((key, documents.get(key)) for key in names)
        return wire.Changes(
            request.id,
            index,
            self.digest(index),
            index * NS,
            now,
            pairs,
            through_digest=self.digest(now),
        )

    def _scan(self, request: wire.Scan) -> wire.Scanned:
        behind = [key for key in sorted(self.documents) if key > request.after]
        page = behind[: request.keys_max]
        pairs = tuple((key, self.documents[key]) for key in page)
        last = page[-1] if len(page) < len(behind) else b""
        now = len(self.entries)
        return wire.Scanned(request.id, pairs, last, now, self.digest(now))
