"""Shards and their mirror are killed and hurt under load, and the mirror has what they have.

Each round works for a while, hurts somebody in the midst of it, and goes on. Then the mirror is
compared, row by row, with the projection of all documents: at places in the logs, and not after
some time, so that it does not matter how fast anything is.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import trio

from corvo.connections import UnixAddress, dial
from corvo.link import LinkClient, LinkLost, open_client
from corvo.mirror.config import MirrorConfig
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.questions import NUMBERS, GetStanding, MirrorAnswer, Question, Rebuild, Standing
from corvo.shard.config import ShardConfig
from tests.mirror.errands import QUEUES, Errands
from tests.mirror.pages import tables_of_connection, words_are_right
from tests.mirror.projection import KEYS, Tables, tables_of
from tests.shard.followers import Follower, catch_up, following
from tests.shard.processes import Child, calling, config_in, launch, wait_until_leading

SHARDS: Final = 2
_ERRANDS: Final = 40
"""Of each shard, before somebody is hurt, and again after it."""
_MIRROR: Final = ("-m", "corvo", "mirror")

DEEDS: Final = (
    "mirror killed",
    "shard killed",
    "all killed",
    "mirror away",
    "file removed",
    "file cut",
    "file overwritten",
    "log removed",
    "file removed under it",
    "rebuild",
    "shards restored",
)


class Seen(msgspec.Struct):
    """What came of it."""

    deeds: Counter[str]
    compared: int = 0
    """Comparisons of all rows."""
    rows: int = 0
    """Rows compared, all in all."""
    errands: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    resets: int = 0
    made_anew: int = 0


class Rookery:
    """Two shards and a mirror, as processes of their own."""

    def __init__(self, directory: Path, dice: Random) -> None:
        self.directory: Final = directory
        self.shards: Final = [self._shard(number) for number in range(SHARDS)]
        self.mirror: Final = MirrorConfig(
            cluster="rookery",
            node=1,
            shards=SHARDS,
            sockets=dict(enumerate([config.socket for config in self.shards])),
            data_dir=str(directory / "mirror"),
            socket=str(directory / "m"),
            pause_ms=5,
            keys_max=40,
            scan_keys_max=25,
            checkpoint_pages=40,
            room_bytes_min=0,
            niceness=0,
        )
        self.file: Final = directory / "mirror" / "mirror.db"
        self.children: dict[str, Child] = {}
        self.words: list[str] = []
        """What mirrors said."""
        self._dice = dice
        self._copy: Path | None = None

    def _shard(self, number: int) -> ShardConfig:
        sockets = [str(self.directory / f"s{other}") for other in range(SHARDS)]
        return config_in(
            self.directory,
            shard=number,
            shards=SHARDS,
            data_dir=str(self.directory / f"shard-{number}"),
            sockets=dict(enumerate(sockets)),
            feed_bytes=40_000,
            retention_ms=4_000,
        )

    # Their lives.

    async def start(self, *names: str) -> None:
        """Start some, and wait until they can be asked."""
        for name in names:
            config = self._config(name)
            command = _MIRROR if name == "mirror" else ("-m", "corvo", "shard")
            self.children[name] = await launch(msgspec.json.encode(config), command)
        for name in names:
            assert await self.children[name].wait_until_ready(), name
            config = self._config(name)
            if isinstance(config, ShardConfig):
                async with calling(config) as client:
                    await wait_until_leading(client)

    async def kill(self, *names: str) -> None:
        """Kill some, and hear what they said."""
        for name in names:
            child = self.children.pop(name)
            await child.kill()
            said = await child.last_words()
            if name == "mirror":
                self.words.append(said)
            else:
                # Links between shards are lost with the shards, and come back.
                unusual = [line for line in said.splitlines() if '"event":"link.' not in line]
                assert not unusual, said

    def _config(self, name: str) -> ShardConfig | MirrorConfig:
        return self.mirror if name == "mirror" else self.shards[int(name[-1])]

    @property
    def names(self) -> list[str]:
        """Of the shards."""
        return [f"shard-{number}" for number in range(SHARDS)]

    # What befalls them.

    async def suffer(self, deed: str) -> None:
        """Be hurt, and be there again."""
        match deed:
            case "mirror killed":
                await self.kill("mirror")
                await self.start("mirror")
            case "shard killed":
                victim = self._dice.choice(self.names)
                await self.kill(victim)
                await self.start(victim)
            case "all killed":
                await self.kill("mirror", *self.names)
                await self.start("mirror", *self.names)
            case "mirror away":
                await self.kill("mirror")  # and started again when the feed is cut behind it
            case "file removed under it":
                self.file.unlink()
                await self.children["mirror"].process.wait()
                await self.kill("mirror")
                await self.start("mirror")
            case "rebuild":
                await self.ask(Rebuild())
            case "shards restored":
                await self._restore()
            case _:
                await self.kill("mirror")
                self._hurt(deed)
                await self.start("mirror")

    def _hurt(self, deed: str) -> None:
        if deed == "file removed":
            shutil.rmtree(self.file.parent)
            return
        self.file.with_name("mirror.db-wal").unlink(missing_ok=True)
        if deed == "log removed":
            return  # what was not checkpointed is gone
        size = self.file.stat().st_size
        with self.file.open("r+b") as opened:
            if deed == "file cut":
                opened.truncate(self._dice.randrange(size))
            else:
                opened.write(self._dice.randbytes(self._dice.randrange(30, size)))

    async def _restore(self) -> None:
        """All shards go back to what they were once; without a copy, one is made."""
        await self.kill(*self.names)
        if self._copy is None:
            self._copy = self.directory / "copy"
            for name in self.names:
                shutil.copytree(self.directory / name, self._copy / name)
        else:
            for name in self.names:
                shutil.rmtree(self.directory / name)
                shutil.move(self._copy / name, self.directory / name)
            self._copy = None
        await self.start(*self.names)

    # Questions.

    @asynccontextmanager
    async def calling_mirror(self) -> AsyncIterator[LinkClient]:
        hello = wire.make_hello(self.mirror, wire.ROUTER, shard=wire.ALL_SHARDS)
        address = UnixAddress(self.mirror.socket)
        async with dial(address, hello) as link, open_client(link) as client:
            yield client

    async def ask(self, question: Question) -> bytes:
        """Ask the mirror until it answers. One that found its file damaged is started again."""
        body = msgspec.json.encode(question)
        while True:
            if "mirror" not in self.children:
                await self.start("mirror")
            try:
                async with self.calling_mirror() as client:
                    answer = await client.ask(NUMBERS[type(question)], body)
            except LinkLost:
                await self.revive()
                continue
            if isinstance(answer, wire.Reply) and not answer.code:
                return msgspec.msgpack.decode(answer.body, type=MirrorAnswer).body
            is_late = isinstance(answer, wire.Reply) and answer.code == "not_caught_up"
            assert is_late or isinstance(answer, wire.Busy), answer

    async def revive(self) -> None:
        """A mirror that found damage has ended, as it should: start it as a node would."""
        child = self.children["mirror"]
        if await child.process.wait() == 70:
            await self.kill("mirror")
            await self.start("mirror")

    async def documents(self) -> tuple[dict[int, dict[bytes, bytes]], dict[int, int]]:
        """What the shards have, and at which places in their logs."""
        documents, places = {}, {}
        for number, config in enumerate(self.shards):
            follower = Follower()
            follower.passed = b""
            async with following(config) as link:
                await catch_up(link, follower, until=0)
            documents[number], places[number] = follower.documents, follower.index
        return documents, places

    def tables(self) -> tuple[Tables, dict[int, int], bool]:
        """What the mirror has, at which places, and whether all of it is exact there."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN")
            cursors = connection.execute(
                "SELECT shard, idx, through, pass_key IS NULL FROM cursors"
            ).fetchall()
            tables = tables_of_connection(connection)
        is_exact = all(is_whole and through <= index for _, index, through, is_whole in cursors)
        return tables, {shard: index for shard, index, _, _ in cursors}, is_exact


class Killing:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._dice = Random(seed)
        self.rookery: Final = Rookery(directory, self._dice)
        self.seen: Final = Seen(Counter())
        self._errands = [
            Errands(self._dice, tuple(q for q in QUEUES if shard_of_queue(q, SHARDS) == number))
            for number in range(SHARDS)
        ]

    async def run(self, rounds: int) -> Seen:
        """So many rounds, every deed in its turn."""
        rookery = self.rookery
        await rookery.start(*rookery.names, "mirror")
        deeds: list[str] = []
        try:
            for number in range(rounds):
                if not deeds:
                    deeds = self._dice.sample(DEEDS, k=len(DEEDS))
                deed = deeds.pop()
                self.seen.deeds[deed] += 1
                await self._work(deed)
                await self.compare()
                if number % 10 == 9:
                    await self._compare_with_rebuilt()
            self._check_words_of_all_jobs(await self._end())
        finally:
            with trio.CancelScope(shield=True):
                for child in rookery.children.values():
                    await child.kill()
        for errands in self._errands:
            self.seen.errands += errands.done
            self.seen.refused.update(errands.refused)
        for said in rookery.words:
            self.seen.resets += said.count('"mirror.reset"')
            self.seen.made_anew += said.count('"mirror.made_anew"')
            assert "Traceback" not in said, said
        return self.seen

    async def _work(self, deed: str) -> None:
        await self._run_errands()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.rookery.suffer, deed)
            if deed not in {"shard killed", "all killed", "shards restored"}:
                nursery.start_soon(self._run_errands)
        await self._run_errands()
        if deed == "mirror away":
            await self.rookery.start("mirror")

    async def _run_errands(self) -> None:
        async with trio.open_nursery() as nursery:
            for config, errands in zip(self.rookery.shards, self._errands, strict=True):
                nursery.start_soon(self._run_errands_of, config, errands)

    async def _run_errands_of(self, config: ShardConfig, errands: Errands) -> None:
        async with calling(config) as client:
            for _ in range(_ERRANDS):
                await errands.run(client)

    async def compare(self) -> Tables:
        """Compare every row, once both sides stand at the same places."""
        while True:
            documents, places = await self.rookery.documents()
            await self.rookery.ask(GetStanding(min_seq=places))
            try:
                tables, at, is_exact = self.rookery.tables()
            except sqlite3.DatabaseError:
                await self.rookery.revive()
                continue
            if at == places and is_exact:
                break
        expected = tables_of(documents)
        for table in KEYS:
            assert tables[table] == expected[table], difference(tables, expected, table)
            self.seen.rows += len(tables[table])
        self.seen.compared += 1
        return tables

    async def _compare_with_rebuilt(self) -> None:
        """The same, after every document was looked at again."""
        await self.rookery.ask(Rebuild())
        is_whole = False
        while not is_whole:
            standing = msgspec.json.decode(await self.rookery.ask(GetStanding()), type=Standing)
            is_whole = all(shard.is_whole and shard.passes for shard in standing.shards)
        await self.compare()

    async def _end(self) -> Path:
        await self.rookery.kill("mirror", *self.rookery.names)
        return self.rookery.file

    @staticmethod
    def _check_words_of_all_jobs(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            words_are_right(connection)


def difference(tables: Tables, expected: Tables, table: str) -> str:
    """What is different in the rows of a table, and in how many."""
    ours, theirs = tables[table], expected[table]
    lines = [f"{table}: {len(ours)} rows, and {len(theirs)} are expected"]
    lines += [
        f"{key}: {ours.get(key)}\n    expected {theirs.get(key)}"
        for key in sorted({*ours, *theirs}, key=repr)
        if ours.get(key) != theirs.get(key)
    ]
    return "\n".join(lines[:12])


async def run(directory: Path, *, rounds: int, seed: int = 0) -> Seen:
    """Kill and hurt everybody in turn."""
    return await Killing(directory, seed).run(rounds)
