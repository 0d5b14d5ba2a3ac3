"""The crash sweep: a scripted workload on the real process, ended at every step in turn.

    python -m tests.shard.crash_sweep [kill|power] [every]

Each run starts a process, has a client do its script until the process is gone, starts another on
what is left, and judges by the client's history alone: what was acknowledged is there, what was
completed is never given out again, what has an unknown outcome happened once or not at all, lease
tokens rise, and the log says the same as the state.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import IO, Final

import msgspec
import trio

from corvo.errors import WireError
from corvo.kv.checkpoints import LevelStates
from corvo.kv.tables import read_meta
from corvo.link import LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.work import Ack, AckItem, Claim, Claims, Fail, FailItem, Fetch
from corvo.protocol.queries import GetJobs, GetQueue, Jobs, QueueView
from corvo.raft import Kind
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.wal import DiskStorage
from corvo.shard.config import ShardConfig
from corvo.shard.machine import Machine
from tests.shard.crashing import Plan, When, rebuild
from tests.shard.processes import (
    ROOT,
    ask,
    calling,
    config_in,
    result,
    submit,
    wait_until_leading,
)

ROUNDS: Final = 5
"""Of the script: several checkpoints, and the log is cut behind each."""
KILLED: Final = -9


class Verdict(AssertionError):
    """Something was lost, or happened twice."""


class History:
    """What a client asked for, and what it was told."""

    def __init__(self) -> None:
        self.made: dict[str, bool] = {}
        """Jobs by the ids that the client chose; whether that was acknowledged."""
        self.nameless = [0, 0]
        """Jobs without an id: acknowledged, and of unknown outcome."""
        self.acked: dict[str, bool] = {}
        self.failed: dict[str, bool] = {}
        self.tokens: dict[str, int] = {}

    def given(self, claims: list[Claim]) -> None:
        """Jobs were given out: none that was completed, and each with a greater token."""
        for claim in claims:
            if self.acked.get(claim.job_id):
                raise Verdict(f"{claim.job_id} was completed and is given out again")
            if claim.lease_token <= self.tokens.get(claim.job_id, 0):
                raise Verdict(f"{claim.job_id} has token {claim.lease_token} after a greater one")
            self.tokens[claim.job_id] = claim.lease_token


class Zygote:
    """Starts processes quickly; see `crashing.serve`."""

    command: tuple[str, ...] = ("-m", "tests.shard.crashing")

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def close(self) -> None:
        for pipe in (self._server.stdin, self._server.stdout):
            assert pipe is not None
            pipe.close()
        self._server.wait()

    def start(self, place: Path, config: ShardConfig, plan: Plan) -> "Life":
        """Start a process at `place`, which names its pipes."""
        for suffix in ("in", "out"):
            with suppress(FileNotFoundError):
                os.unlink(f"{place}.{suffix}")  # noqa: PTH108 -- a name, not a path
            os.mkfifo(f"{place}.{suffix}")
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{place} ".encode() + msgspec.json.encode(plan) + b"\n")
        self._server.stdin.flush()
        stdin = Path(f"{place}.in").open("wb", buffering=0)  # noqa: SIM115 -- kept by the life
        ready = Path(f"{place}.out").open("rb")  # noqa: SIM115
        stdin.write(msgspec.json.encode(config) + b"\n")
        ends = self._server.stdout
        return Life(stdin, ready, lambda: int(ends.readline()), Path(f"{place}.err"))


class Life:
    """One process, from its start to its end."""

    def __init__(
        self, stdin: IO[bytes], ready: IO[bytes], ends: Callable[[], int], errors: Path
    ) -> None:
        self._stdin = stdin
        self._ready = ready
        self._ends = ends
        self._errors = errors

    def is_ready(self) -> bool:
        """Wait until it can be reached, or has ended."""
        return self._ready.readline() == b"ready\n"

    def end(self) -> int:
        """Have it leave, if it is there; how it ended."""
        self._stdin.close()
        code = self._ends()
        self._ready.close()
        return code

    @property
    def said(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""


@contextmanager
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    try:
        yield server
    finally:
        server.close()


def scripted(directory: Path) -> ShardConfig:
    """A process that makes checkpoints, fills segments and cuts its log all the time."""
    return config_in(
        directory,
        checkpoint_entries=10,
        keep_entries=2,
        segment_bytes=12_800,  # a few entries, and room behind some of them
        tick_ms=1_000,
        room_bytes_min=0,
        known=str(directory / "data" / "known.json"),  # where a loss of power is seen
    )


# The script.


async def perform(client: LinkClient, history: History, life: int) -> None:
    """Do everything once; ends with `LinkLost` where the process does."""
    await wait_until_leading(client)
    for number in range(ROUNDS):
        ids = [f"job-{life}-{number}-{each}" for each in range(3)]
        await _enqueue(client, history, ids)
        await _enqueue_nameless(client, history)
        claims = result(await submit(client, _fetch(2)), Claims).jobs
        history.given(claims)
        for at, claim in enumerate(claims):
            await (_ack if at % 2 == 0 else _fail)(client, history, claim)


def _fetch(count: int) -> Fetch:
    return Fetch(queues=["mail"], worker_id="w1", count=count, lease_ms=3_600_000)


async def _enqueue(client: LinkClient, history: History, ids: list[str]) -> None:
    jobs = [NewJob(queue="mail", id=each, max_retries=50) for each in ids]
    history.made |= dict.fromkeys(ids, False)
    result(await submit(client, Enqueue(jobs=jobs)), EnqueueResults)
    history.made |= dict.fromkeys(ids, True)


async def _enqueue_nameless(client: LinkClient, history: History) -> None:
    history.nameless[1] += 1
    new = NewJob(queue="other", payload=msgspec.Raw(b"1" * 200))
    result(await submit(client, Enqueue(jobs=[new])), EnqueueResults)
    history.nameless[1] -= 1
    history.nameless[0] += 1


async def _ack(client: LinkClient, history: History, claim: Claim) -> None:
    history.acked.setdefault(claim.job_id, False)
    item = AckItem(job_id=claim.job_id, lease_token=claim.lease_token)
    await _settle(client, Ack(acks=[item]))
    history.acked[claim.job_id] = True


async def _fail(client: LinkClient, history: History, claim: Claim) -> None:
    history.failed.setdefault(claim.job_id, False)
    item = FailItem(
        job_id=claim.job_id, lease_token=claim.lease_token, error="no", retry_after_ms=3_600_000
    )
    await _settle(client, Fail(fails=[item]))
    history.failed[claim.job_id] = True


async def _settle(client: LinkClient, op: Op) -> None:
    answer = await submit(client, op)
    assert isinstance(answer, wire.Reply)
    if answer.code or b'"code"' in answer.body:
        raise Verdict(f"{op} was refused: {answer.body!r}")


# The judgement.


async def judge(client: LinkClient, history: History) -> None:
    """Hold what is there against the history."""
    await wait_until_leading(client)
    found = result(await ask(client, GetJobs(job_ids=list(history.made))), Jobs).jobs
    states = {job.id: job.state.value for job in found}
    for job_id, was_told in history.made.items():
        if was_told and job_id not in states:
            raise Verdict(f"{job_id} was acknowledged and is lost")
    for job_id, was_told in history.acked.items():
        if was_told and states.get(job_id) != "completed":
            raise Verdict(f"{job_id} was completed and is {states.get(job_id)}")
    for job_id, was_told in history.failed.items():
        if was_told and states.get(job_id) != "retrying":
            raise Verdict(f"{job_id} was failed and is {states.get(job_id)}")
    mail = result(await ask(client, GetQueue(queue="mail")), QueueView)
    if sum(mail.counts.values()) != len(states):
        raise Verdict(f"{sum(mail.counts.values())} jobs are counted, {len(states)} are there")
    other = result(await ask(client, GetQueue(queue="other")), QueueView)
    told_of, unknown = history.nameless
    if not told_of <= other.counts["pending"] <= told_of + unknown:
        raise Verdict(f"{other.counts['pending']} of {told_of} to {told_of + unknown} are there")
    pending = mail.counts["pending"]
    claims = result(await submit(client, _fetch(512)), Claims).jobs
    history.given(claims)
    if len(claims) != pending:
        raise Verdict(f"{pending} are pending, and {len(claims)} are given out")


def compare_with_log(config: ShardConfig, scratch: Path) -> None:
    """What a stop left: the state is the newest checkpoint and the log behind it."""
    shutil.copytree(config.data_dir, scratch)
    live = _states(scratch, boot="this")
    goal = read_meta(live.store)
    live.close()
    (scratch / "state" / "running").write_text("another")
    states = _states(scratch, boot="this")
    identity = Identity(f"{config.cluster}/{config.shard}/{config.shards}", config.node, 0)
    storage = DiskStorage.open(RealFiles(scratch / "log"), identity)
    machine = Machine(states.store, shard=config.shard, shards=config.shards)
    begun = machine.applied
    while machine.applied < goal.applied:
        for entry in storage.entries(machine.applied + 1, goal.applied, 1 << 20):
            if entry.kind is Kind.NORMAL and entry.data:
                machine.apply(index=entry.index, term=entry.term, data=entry.data)
            else:
                machine.skip(index=entry.index, term=entry.term)
    storage.close()
    states.close()
    if machine.digest != goal.digest:
        raise Verdict(f"the log says {machine.digest} behind {begun}, the state {goal.digest}")


def _states(directory: Path, *, boot: str) -> LevelStates:
    return LevelStates(
        directory / "state", boot_id=boot, applied=lambda store: read_meta(store).applied
    )


# The sweep.


class Scene:
    """One run in a directory of its own: lives that end early, and one that is judged."""

    def __init__(self, server: Zygote, directory: Path, seed: int | None = None) -> None:
        self.config = scripted(directory)
        self.history = History()
        self.boot = "boot"
        """Of the machine, as long as it keeps its power."""
        self.killed = 0
        """Lives that were ended at their step."""
        self._server = server
        self._directory = directory
        self._root = Path(self.config.data_dir)
        self._random = Random(seed) if seed is not None else None
        self._lives = 0
        self._is_unplugged = False  # once it was, every life is in a boot of its own

    def live(self, kill_at: int = 0, when: When = "before", *, power: bool = False) -> None:
        """A life that does the script, and is killed at a step or stops when it is done."""
        life, shadow = self._start(kill_at, when, power=power)
        self._is_unplugged = self._is_unplugged or power
        self._lead(life)
        if power:
            rebuild(self._root, shadow, self._random)
            self._tamper()

    def live_traced(self, call: str, kill_at: int) -> None:
        """A life of the real process that the kernel ends at a system call."""
        strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "-e", f"trace={call}"]
        inject = ["-e", f"inject={call}:signal=SIGKILL:when={kill_at}"]
        command = [*strace, *inject, sys.executable, "-m", "corvo", "shard"]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(self.config) + b"\n")
            self._lives += 1
            self._lead(Life(process.stdin, process.stdout, process.wait, self._root / "no"))

    def _lead(self, life: Life) -> None:
        """Do the script in a life that may end at any time."""
        try:
            if life.is_ready():
                with suppress(LinkLost, WireError):
                    trio.run(self._perform)
        finally:
            code = life.end()
        if code not in (0, KILLED):
            raise Verdict(f"it ended with {code}: {life.said}")
        self.killed += code == KILLED

    def judge(self) -> None:
        """One more life: all is as it was told, work goes on, and the log says the same."""
        life, _ = self._start(0, "before")
        if not life.is_ready():
            raise Verdict(f"it does not start: {life.end()}: {life.said}")
        try:
            trio.run(self._judge)
            trio.run(self._perform)
        finally:
            code = life.end()
        if code != 0:
            raise Verdict(f"it ended with {code}: {life.said}")
        compare_with_log(self.config, self._directory / "copy")

    def _start(self, kill_at: int, when: When, *, power: bool = False) -> tuple[Life, Path]:
        self._lives += 1
        shadow = self._directory / f"shadow-{self._lives}"
        plan = Plan(
            root=str(self._root),
            shadow=str(shadow) if power else "",
            boot=f"{self.boot}-{self._lives}" if self._is_unplugged else self.boot,
            kill_at=kill_at,
            when=when,
            counted=str(self._directory / f"steps-{self._lives}"),
        )
        return self._server.start(self._directory / "pipe", self.config, plan), shadow

    def steps(self, life: int) -> list[str]:
        """What a life did."""
        return (self._directory / f"steps-{life}").read_text().split("\n")[:-1]

    async def _perform(self) -> None:
        async with calling(self.config) as client:
            await perform(client, self.history, self._lives)

    async def _judge(self) -> None:
        async with calling(self.config) as client:
            await judge(client, self.history)

    def _tamper(self) -> None:
        """What LevelDB left is not to be trusted, so it may be anything."""
        live = self._root / "state" / "live"
        if self._random is None or not live.is_dir():
            return
        match self._random.randrange(4):
            case 0:
                shutil.rmtree(live)
                live.mkdir()
            case 1:
                for path in live.iterdir():
                    path.write_bytes(self._random.randbytes(100))
            case 2:
                for path in live.iterdir():
                    path.write_bytes(path.read_bytes()[: self._random.randrange(200)])
            case _:
                pass


class Point(msgspec.Struct, frozen=True):
    """Where to end which life, and how."""

    life: int
    step: int
    when: When
    power: bool
    seed: int | None = None

    def run(self, server: Zygote, directory: Path) -> int:
        """How many lives were ended. Raises `Verdict`."""
        directory.mkdir()
        scene = Scene(server, directory, self.seed)
        for _ in range(1, self.life):
            scene.live(power=self.power)
        scene.live(self.step, self.when, power=self.power)
        scene.judge()
        shutil.rmtree(directory)
        return scene.killed


def count_steps(server: Zygote, directory: Path) -> list[list[str]]:
    """The steps of a first life and of a second."""
    directory.mkdir()
    scene = Scene(server, directory)
    scene.live()
    scene.live()
    return [scene.steps(1), scene.steps(2)]


def points(counted: list[list[str]], *, power: bool) -> list[Point]:
    """Every step of both lives, before and after it.

    A loss of power leaves the least that there can be left, and twice something more.
    """
    seeds: list[int | None] = [None, 1, 2] if power else [None]
    whens: tuple[When, ...] = ("before", "after")
    return [
        Point(life, step, when, power, seed)
        for life, steps in enumerate(counted, 1)
        for step in range(1, len(steps) + 1)
        for when in whens
        for seed in seeds
    ]


def sweep(server: Zygote, place: Path, chosen: list[Point]) -> Iterator[tuple[Point, int]]:
    """Run some; each with how many lives were ended at it. Raises `Verdict`, naming the point."""
    for number, point in enumerate(chosen):
        try:
            yield point, point.run(server, place / f"run-{number}")
        except Verdict as error:
            error.add_note(f"at {point}")
            raise


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory where there is one: what is durable is kept account of here."""
    memory = Path("/dev/shm")  # noqa: S108 -- the directory made in it has a name of its own
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        yield Path(place)


def main(arguments: list[str]) -> int:
    """Sweep everything, or every nth point of one kind."""
    kinds = [kind for kind in ("kill", "power") if kind in arguments] or ["kill", "power"]
    every = next((int(each) for each in arguments if each.isdecimal()), 1)
    with scratch() as place, zygote() as server:
        counted = count_steps(server, place / "count")
        print(f"{len(counted[0])} steps in a first life, {len(counted[1])} in a second")
        print(Counter(step for steps in counted for step in steps))
        for kind in kinds:
            chosen = points(counted, power=kind == "power")[::every]
            ended = 0
            for done, (_, killed) in enumerate(sweep(server, place, chosen), 1):
                ended += killed
                if done % 50 == 0:
                    print(f"{kind}: {done} of {len(chosen)}", flush=True)
            print(f"{kind}: {len(chosen)} points, {ended} ended there, all recovered and judged")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
