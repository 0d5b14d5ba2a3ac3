"""Comparing the replicas of each shard, and the mirror of each node with the shards.

The nodes run, and no client changes anything. Replicas are compared at one applied index: the
digest of all writes, and every document. A mirror is compared row by row with the projection of the
documents, once its cursor is at that index.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Final

import msgspec
import trio

from corvo.connections import UnixAddress, dial
from corvo.datadir import DataDir, Identity, mirror_socket
from corvo.link import Link, LinkClient, LinkLost, open_client
from corvo.protocol import wire
from corvo.protocol.numbers import Numbers
from corvo.protocol.queries import GetNumbers
from corvo.protocol.questions import NUMBERS, GetStanding, Question
from tests.cluster.nodes import PATIENCE_S, Member
from tests.mirror.killing import difference
from tests.mirror.pages import tables_of_connection
from tests.mirror.projection import KEYS, tables_of
from tests.shard import processes
from tests.shard.followers import told

_LOOK_S: Final = 0.1
_PAGE: Final = 1_000


class Compared(msgspec.Struct):
    """The result of a comparison."""

    replicas: int = 0
    documents: int = 0
    """Of all shards, each counted once."""
    rows: int = 0
    """Rows of mirrors that were compared."""
    differences: list[str] = []

    def add(self, other: "Compared") -> None:
        """Count another comparison, too."""
        self.replicas += other.replicas
        self.documents += other.documents
        self.rows += other.rows
        self.differences = self.differences + other.differences


class Inspected:
    """A replica, asked over the socket that the processes of its node use."""

    def __init__(self, member: Member, shard: int) -> None:
        identity = DataDir(member.data).identity()
        assert identity is not None, "the node has a data directory"
        self.name: Final = f"shard-{shard} of {member.name}"
        self.identity: Final[Identity] = identity
        self._shard = shard
        self._socket = UnixAddress(DataDir(member.data).sockets(identity.shards)[shard])

    @asynccontextmanager
    async def _linked(self, role: str) -> AsyncIterator[Link]:
        hello = wire.make_hello(self.identity, role, shard=self._shard)
        async with dial(self._socket, hello) as link:
            yield link

    async def numbers(self) -> Numbers:
        """The replica at this moment. Raises `LinkLost`."""
        async with self._linked(wire.ROUTER) as link, open_client(link) as client:
            return processes.result(await processes.ask(client, GetNumbers()), Numbers)

    async def documents(self, applied: int) -> dict[bytes, bytes] | None:
        """All documents as of that index; None if the replica has applied more since."""
        found: dict[bytes, bytes] = {}
        after = b""
        async with self._linked(wire.FOLLOWER) as link:
            while True:
                page = await told(link, wire.Scan(1, after, _PAGE))
                assert isinstance(page, wire.Scanned)
                if page.through != applied:
                    return None
                found |= {key: data for key, data in page.pairs if data is not None}
                if not (after := page.last):
                    return found


async def numbers_of(member: Member, shard: int) -> Numbers | None:
    """The replica of a shard at this moment; None if it cannot be asked now."""
    try:
        return await Inspected(member, shard).numbers()
    except LinkLost:
        return None


def digest_of(documents: dict[bytes, bytes]) -> str:
    """A digest of keys and documents in the order of their keys."""
    summed = hashlib.sha256()
    for key in sorted(documents):
        for part in (key, documents[key]):
            summed.update(len(part).to_bytes(4, "big") + part)
    return summed.hexdigest()[:16]


async def compare(members: Sequence[Member], shards: int) -> Compared:
    """Compare everything that these nodes have. They run, and no client changes anything."""
    compared = Compared(differences=[])
    for shard in range(shards):
        with trio.move_on_after(PATIENCE_S) as scope:
            while not await _compare_shard(members, shard, compared):  # noqa: ASYNC110 -- processes
                await trio.sleep(_LOOK_S)
        if scope.cancelled_caught:
            seen = [await numbers_of(member, shard) for member in members]
            at = [None if each is None else (each.replica, each.applied) for each in seen]
            compared.differences.append(f"shard {shard}: not at one index in time: {at}")
    return compared


async def _compare_shard(members: Sequence[Member], shard: int, compared: Compared) -> bool:
    """Compare one shard; False if its replicas or a mirror were at different indexes."""
    having = [each for each in members if (each.data / f"shard-{shard}").exists()]
    seen = [await numbers_of(member, shard) for member in having]
    numbers = [each for each in seen if each is not None]
    applied = {each.applied for each in numbers}
    if len(numbers) < len(having) or len(applied) > 1:
        return False
    [index] = applied
    if any(each.last_index != index for each in numbers):
        return False
    found: dict[str, list[str]] = {}
    documents: dict[bytes, bytes] | None = {}
    for member, each in zip(having, numbers, strict=True):
        replica = Inspected(member, shard)
        documents = await replica.documents(index)
        if documents is None:
            return False
        found.setdefault(f"{each.digest:08x} {digest_of(documents)}", []).append(replica.name)
    assert documents is not None
    rows, differences = await _compare_mirrors(members, shard, index, documents)
    if rows is None:
        return False
    compared.replicas += len(having)
    compared.documents += len(documents)
    compared.rows += rows
    compared.differences += differences
    if len(found) > 1:
        compared.differences.append(f"index {index}: {found}")
    return True


async def _compare_mirrors(
    members: Sequence[Member], shard: int, index: int, documents: dict[bytes, bytes]
) -> tuple[int | None, list[str]]:
    """The rows compared, None if a mirror is at another index; and what is different."""
    expected = tables_of({shard: documents})
    rows, differences = 0, []
    for member in members:
        await _ask_mirror(member, GetStanding(min_seq={shard: index}))
        file = member.data / "mirror" / "mirror.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN")
            cursor = "SELECT idx, through, pass_key IS NULL FROM cursors WHERE shard = ?"
            [(at, through, is_whole)] = connection.execute(cursor, (shard,)).fetchall()
            if at != index or through > at or not is_whole:
                return None, []
            tables = tables_of_connection(connection, shard=shard)
        for table in KEYS:
            rows += len(tables[table])
            if tables[table] != expected[table]:
                differences.append(
                    f"mirror of {member.name}: {difference(tables, expected, table)}"
                )
    return rows, differences


async def _ask_mirror(member: Member, question: Question) -> None:
    """Ask until the mirror answers."""
    identity = DataDir(member.data).identity()
    assert identity is not None
    socket = mirror_socket(DataDir(member.data).sockets(identity.shards))
    hello = wire.make_hello(identity, wire.ROUTER, shard=wire.ALL_SHARDS)
    body = msgspec.json.encode(question)
    while True:
        with suppress(LinkLost):  # it was too slow
            async with dial(UnixAddress(socket), hello) as link, open_client(link) as client:
                answer = await _answer(client, question, body)
            if isinstance(answer, wire.Reply) and not answer.code:
                return
        await trio.sleep(_LOOK_S)


async def _answer(client: LinkClient, question: Question, body: bytes) -> wire.Answer:
    return await client.ask(NUMBERS[type(question)], body)
