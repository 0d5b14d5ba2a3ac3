"""One log, one state: whatever a process's hash seed, and wherever it begins."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.shard.replaying import Log, record

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
