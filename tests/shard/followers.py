"""A follower for tests: it keeps what it is told, and nothing else."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from corvo.connections import UnixAddress, dial
from corvo.kv.feed import FED
from corvo.kv.keys import prefix_end
from corvo.kv.store import Store
from corvo.link import Link
from corvo.protocol import wire
from corvo.shard.config import ShardConfig

NS: Final = 1_000_000


class Follower:
    """What somebody knows who follows: documents, events, and the place that this is true of."""

    def __init__(self) -> None:
        self.index = 0
        self.digest = 0
        self.documents: dict[bytes, bytes] = {}
        self.happenings: list[wire.Happenings] = []
        self.since = 0
        """Behind which place it has heard of all that happened."""
        self.through = 0
        self.through_digest = 0
        self.resets = 0
        self.more = b""
        self.passed: bytes | None = None
        """How far a full pass has come; None when none is under way."""

    def copy(self) -> "Follower":
        """What it is now, for later."""
        return copy.deepcopy(self)

    @property
    def is_exact(self) -> bool:
        """Whether all that it has is what the shard had at `index`."""
        return self.passed is None and not self.more and self.index >= self.through

    def follow(self, request_id: int = 1, *, keys_max: int = 1_000) -> wire.Follow:
        """What to ask next."""
        return wire.Follow(
            request_id,
            self.index,
            self.digest,
            wants_documents=True,
            wants_events=True,
            keys_max=keys_max,
            after_key=self.more,
            through=self.through if self.through > self.index else 0,
            through_digest=self.through_digest,
        )

    def scan(self, request_id: int = 1, *, keys_max: int = 1_000) -> wire.Scan:
        """What to ask next in a full pass."""
        assert self.passed is not None
        return wire.Scan(request_id, self.passed, keys_max)

    def hear(self, answer: wire.FollowerAnswer) -> None:
        """Take in an answer."""
        match answer:
            case wire.Changes():
                self.index, self.digest, self.more = answer.index, answer.digest, answer.more
                self._reach(answer.through, answer.through_digest)
                for key, data in answer.pairs:
                    self._keep(key, data)
                self.happenings += answer.happenings
            case wire.Reset():
                self.resets += 1
                self.index, self.digest, self.more = answer.index, answer.digest, b""
                self.passed = b""
                self.since = answer.index
                self.through, self.through_digest = answer.index, answer.digest
                self.happenings = []
            case wire.Scanned():
                assert self.passed is not None
                told = {key: data for key, data in answer.pairs if data is not None}
                for key in sorted(self.documents):
                    if self.passed < key and (key <= answer.last or not answer.last):
                        self._keep(key, told.get(key))
                self.documents |= told
                self._reach(answer.through, answer.through_digest)
                self.passed = answer.last or None

    def _reach(self, through: int, digest: int) -> None:
        if through > self.through:
            self.through, self.through_digest = through, digest

    def _keep(self, key: bytes, data: bytes | None) -> None:
        if data is None:
            self.documents.pop(key, None)
        else:
            self.documents[key] = data


def documents_of(store: Store) -> dict[bytes, bytes]:
    """The slow twin: every fed document that there is."""
    return {
        key: data
        for prefix in FED
        for key, data in store.scan(prefix, prefix_end(prefix), limit=1_000_000)
    }


@asynccontextmanager
async def following(config: ShardConfig, role: str = wire.FOLLOWER) -> AsyncIterator[Link]:
    """A follower's link to the process's own socket."""
    hello = wire.make_hello(config, role, shard=config.shard)
    async with dial(UnixAddress(config.socket), hello) as link:
        yield link


async def told(link: Link, request: wire.FollowerRequest) -> wire.FollowerAnswer:
    """Ask, and be answered."""
    assert link.send(request)
    [answer] = await link.receive(wire.TO_FOLLOWER)
    assert answer.id == request.id
    return answer


async def catch_up(link: Link, follower: Follower, *, until: int, keys_max: int = 1_000) -> None:
    """Follow, with a full pass beside it if one is needed, to a place that there is."""
    while follower.index < until or not follower.is_exact:
        if follower.passed is not None:
            follower.hear(await told(link, follower.scan(keys_max=keys_max)))
        if follower.index < max(until, follower.through) or follower.more:
            follower.hear(await told(link, follower.follow(keys_max=keys_max)))


def words(happenings: list[wire.Happenings]) -> list[str]:
    """What happened, in words."""
    return [event.what for each in happenings for event in each.events]


def as_json(happening: wire.Happening) -> object:
    """The progress in a happening."""
    value: object = msgspec.json.decode(happening.data)
    return value
