"""Shard processes for tests: started, spoken to, and brought to their end."""

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import trio

from corvo.child import LEAVE
from corvo.connections import UnixAddress, dial
from corvo.link import LinkClient, open_client
from corvo.protocol import wire
from corvo.protocol.numbers import Numbers
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.work import Ack, AckItem, Claim, Claims, Fetch
from corvo.protocol.queries import QUERIES, GetNumbers, Query
from corvo.shard.config import ShardConfig
from corvo.shard.ops import NUMBERS

ROOT: Final = Path(__file__).parents[2]
SHARD: Final = ("-m", "corvo", "shard")
D = TypeVar("D", bound=msgspec.Struct)


def config_in(directory: Path, **changed: object) -> ShardConfig:
    """One replica, alone, whose times are short."""
    told = {
        "cluster": "rookery",
        "node": 1,
        "shard": 0,
        "shards": 1,
        "data_dir": str(directory / "data"),
        "sockets": {changed.get("shard", 0): str(directory / "s")},
        "tick_ms": 20,
        "election_ticks": 40,
        "grace_ms": 0,
        **changed,
    }
    return msgspec.convert(told, type=ShardConfig)


class Child:
    """A process that was started and may have ended."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process

    async def last_words(self) -> str:
        """Everything on its stderr, once it has ended."""
        assert self.process.stderr is not None
        said = b""
        while data := await self.process.stderr.receive_some():
            said += data
        return said.decode()

    async def wait_until_ready(self) -> bool:
        """Whether it can be reached; else it has ended."""
        assert self.process.stdout is not None
        heard = b""
        while not heard.endswith(b"\n"):
            data = await self.process.stdout.receive_some()
            if not data:
                await self.process.wait()
                return False
            heard += data
        assert heard == b"ready\n"
        return True

    async def stop(self) -> int:
        """Close its stdin; returns the exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.process.wait()

    async def stop_in_order(self) -> int:
        """Ask it to leave, and close its stdin; returns the exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(LEAVE)
        return await self.stop()

    async def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        with trio.CancelScope(shield=True):
            await self.process.wait()


async def launch(config: ShardConfig | bytes, command: Sequence[str] = SHARD) -> Child:
    """Start a process and tell it what it is."""
    line = config if isinstance(config, bytes) else msgspec.json.encode(config)
    process = await trio.lowlevel.open_process(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    with suppress(trio.BrokenResourceError):
        await process.stdin.send_all(line + b"\n")
    return Child(process)


@asynccontextmanager
async def running(config: ShardConfig, command: Sequence[str] = SHARD) -> AsyncIterator[Child]:
    """A process, alone in its group, that leads. Whatever happens, it ends with the block."""
    child = await launch(config, command)
    try:
        assert await child.wait_until_ready(), await child.last_words()
        async with calling(config) as client:
            await wait_until_leading(client)
        yield child
    finally:
        await child.kill()


@asynccontextmanager
async def calling(
    config: ShardConfig, news: list[wire.Push] | None = None
) -> AsyncIterator[LinkClient]:
    """A client on the process's own socket."""
    hello = wire.make_hello(config, wire.ROUTER, shard=config.shard)
    on_push = news.append if news is not None else (lambda _: None)
    async with (
        dial(UnixAddress(config.socket), hello) as link,
        open_client(link, on_push) as client,
    ):
        yield client


async def submit(client: LinkClient, op: Op) -> wire.Answer:
    return await client.submit(NUMBERS[type(op)], msgspec.json.encode(op))


async def ask(client: LinkClient, query: Query) -> wire.Answer:
    [number] = [number for number, known in QUERIES.items() if known is type(query)]
    return await client.ask(number, msgspec.json.encode(query))


def result(answer: wire.Answer, kind: type[D]) -> D:
    """What was answered when all is well."""
    assert isinstance(answer, wire.Reply), answer
    assert not answer.code, answer.body
    return msgspec.json.decode(answer.body, type=kind)


async def put(client: LinkClient, *jobs: NewJob) -> list[str]:
    """Enqueue jobs; their ids."""
    made = result(await submit(client, Enqueue(jobs=list(jobs))), EnqueueResults)
    return [job.job_id for job in made.jobs]


async def fetch(client: LinkClient, count: int = 1) -> list[Claim]:
    """Fetch from `mail`."""
    fetched = await submit(client, Fetch(queues=["mail"], count=count))
    return result(fetched, Claims).jobs


async def ack(client: LinkClient, claim: Claim) -> None:
    """Complete a job."""
    item = AckItem(job_id=claim.job_id, lease_token=claim.lease_token)
    answer = await submit(client, Ack(acks=[item]))
    assert isinstance(answer, wire.Reply)
    assert b'"completed"' in answer.body, answer.body


async def wait_until_leading(client: LinkClient) -> None:
    """Ask until it leads and has applied what came before."""
    seen = await status(client)
    while seen.role != "leader" or seen.applied < seen.last_index:
        seen = await status(client)


async def status(client: LinkClient) -> Numbers:
    return result(await ask(client, GetNumbers()), Numbers)
