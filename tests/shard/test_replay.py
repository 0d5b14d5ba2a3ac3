"""One log, one state: whatever a process's hash seed, and wherever it begins."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from corvo.kv.feed import Row, row_key
from corvo.model import EventType
from corvo.protocol.ops.cluster import HOME
from corvo.protocol.wire import Happening
from corvo.shard.machine import Machine
from corvo.shard.ops import OPS
from corvo.shard.state.entry import Stamp, encode
from tests.shard.replaying import Log, record
from tests.support.memory import MemoryStore

ENTRIES = 400


@pytest.fixture(scope="module")
def log() -> Log:
    recorded, shard = record(seed=20, entries=ENTRIES)
    shard.check()
    return recorded


@pytest.fixture
def log_file(log: Log, tmp_path: Path) -> Path:
    file = tmp_path / "log"
    file.write_bytes(msgspec.msgpack.encode(log))
    return file


def replay(log_file: Path, directory: Path, *, until: int, boot: str, hash_seed: str) -> list[int]:
    """Where a process of its own began, and the digest that it came to."""
    directory.mkdir(exist_ok=True)
    command = (sys.executable, "-m", "tests.shard.replaying")
    done = subprocess.run(
        [*command, str(log_file), str(directory), str(until), boot],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


def test_two_interpreters_with_different_hash_seeds_come_to_one_digest(
    log: Log, log_file: Path, tmp_path: Path
) -> None:
    seen = [
        replay(log_file, tmp_path / seed, until=ENTRIES, boot="one", hash_seed=seed)
        for seed in ("0", "1", "4242")
    ]

    assert seen == [[0, log.digest]] * 3


def test_a_shard_with_the_cluster_map_comes_to_one_digest_too(tmp_path: Path) -> None:
    recorded, shard = record(seed=22, entries=ENTRIES, number=HOME)
    known = shard.tx.cluster_map
    assert known is not None
    assert known.removed
    log_file = tmp_path / "log"
    log_file.write_bytes(msgspec.msgpack.encode(recorded))

    half = [
        replay(log_file, tmp_path / seed, until=ENTRIES // 2, boot="one", hash_seed=seed)
        for seed in ("1", "4242")
    ]
    whole = [
        replay(log_file, tmp_path / seed, until=ENTRIES, boot="two", hash_seed=seed)
        for seed in ("4242", "1")
    ]

    assert half[0] == half[1]
    assert whole == [[ENTRIES // 2, recorded.digest]] * 2


def test_a_fresh_process_comes_to_it_from_a_checkpoint(
    log: Log, log_file: Path, tmp_path: Path
) -> None:
    half = ENTRIES // 2
    replay(log_file, tmp_path / "state", until=half, boot="one", hash_seed="7")

    after_a_crash_of_the_machine = replay(
        log_file, tmp_path / "state", until=ENTRIES, boot="two", hash_seed="8"
    )

    assert after_a_crash_of_the_machine == [half, log.digest]


def test_another_log_comes_to_another_digest(log: Log) -> None:
    other, _ = record(seed=21, entries=ENTRIES)

    assert other.digest != log.digest


# What an earlier version wrote.


def old_logs() -> list[str]:
    return (Path(__file__).parent / "logs_version_1.txt").read_text().split("\n\n")


@pytest.mark.parametrize("log", old_logs(), ids=lambda log: log.partition("\n")[0])
def test_a_log_of_an_earlier_version_comes_to_the_digest_that_it_came_to_then(log: str) -> None:
    """Logs are added to the file, and never changed.

    Replicas of two versions apply the same entries. A change that needs another digest is a change
    of the format of the log.
    """
    machine = applied(log)

    assert machine.digest == int(log.partition("\n")[0].rpartition(" ")[2])


def test_the_logs_of_an_earlier_version_have_every_op_and_every_event() -> None:
    ops = {int(number) for number in re.findall(r"^  (\d+) ", "\n".join(old_logs()), re.MULTILINE)}
    events = {word for log in old_logs() for word in words_of(applied(log))}

    assert ops == set(OPS)
    assert events == {each.stored for each in EventType}


def applied(log: str) -> Machine:
    """A machine that has applied a log.

    The first line has the shard, the number of shards and the digest. An entry is a line with
    index, term and stamp, and a line for each op. An entry of Raft's own has no stamp and no ops.
    """
    header, *lines = log.splitlines()
    shard, shards, _ = map(int, re.findall(r"\d+", header))
    machine = Machine(MemoryStore(), shard=shard, shards=shards)
    begins = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in pairwise([*begins, len(lines)]):
        index, term, *stamp = map(int, lines[begin].split())
        ops = [line.split(maxsplit=1) for line in lines[begin + 1 : end]]
        if stamp:
            data = encode(Stamp(*stamp), [(int(number), body.encode()) for number, body in ops])
            machine.apply(index=index, term=term, data=data)
        else:
            machine.skip(index=index, term=term)
    return machine


def words_of(machine: Machine) -> Iterator[str]:
    """The stored words of the events in the feed."""
    for index in range(1, machine.applied + 1):
        data = machine.store.get(row_key(index))
        assert data is not None
        row = msgspec.msgpack.decode(data, type=Row)
        for event in msgspec.msgpack.decode(row.events, type=list[Happening]):
            yield event.what
