"""A part of the crash sweep, as much as fits; `python -m tests.shard.crash_sweep` does all of it.

And proof that it sees what it looks for: processes that forget to sync are found out.
"""

import shutil
from collections.abc import Iterator
from typing import Final

import pytest

from corvo.shard.driver import disk
from tests.shard.crash_sweep import (
    Scene,
    Verdict,
    Zygote,
    count_steps,
    points,
    scratch,
    sweep,
    zygote,
)

PARTS: Final = 8
"""Tests of each kind, so that workers can share them."""
POINTS: Final = 5
"""Of each test."""


@pytest.fixture(scope="module")
def server() -> Iterator[Zygote]:
    with zygote() as started:
        yield started


@pytest.fixture(scope="module")
def counted(server: Zygote) -> list[list[str]]:
    with scratch() as place:
        return count_steps(server, place / "count")


def test_the_script_takes_every_kind_of_step(counted: list[list[str]]) -> None:
    steps = {step for life in counted for step in life}

    assert steps >= {
        "log create",
        "log rename",
        "log sync",
        "log sync_names",
        "log unlink",
        "state link",
        "state make",
        "state remove_file",
        "state rename",
        "state sync",
        "state write",
        "store sync",
    }


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_nothing_is_lost_wherever_it_ends(
    server: Zygote, counted: list[list[str]], power: bool, part: int
) -> None:
    every = points(counted, power=power)
    apart = len(every) // (PARTS * POINTS)
    chosen = every[part * apart :: apart * PARTS][:POINTS]

    with scratch() as place:
        ended = [killed for _, killed in sweep(server, place, chosen)]

    assert len(ended) == POINTS
    # Threads do not always take the same steps: a life may be over before the last of them.
    assert sum(ended) > POINTS // 2


FORGETFUL: Final = """
from corvo.raft.disk.wal import DiskStorage
from corvo.kv import directories
{forget}
from tests.shard import crashing
crashing.serve()
"""
"""A process with a bug."""


@pytest.mark.parametrize(
    "forget",
    [
        "DiskStorage.sync = lambda self: None",
        "directories.sync_all = lambda directory: None",
        "directories.sync_names = lambda directory: None",
    ],
)
def test_a_process_that_forgets_to_sync_is_found_out(
    monkeypatch: pytest.MonkeyPatch, counted: list[list[str]], forget: str
) -> None:
    monkeypatch.setattr(Zygote, "command", ("-c", FORGETFUL.format(forget=forget)))
    chosen = points(counted, power=True)[::40]

    with zygote() as forgetful, scratch() as place, pytest.raises(Verdict):
        for _ in sweep(forgetful, place, chosen):
            pass


# ---- LevelDB's own calls, which only the kernel sees.


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not here: kills amid LevelDB's own calls"
)
@pytest.mark.parametrize("call", ["fdatasync", "fsync", "rename", "unlink"])
def test_nothing_is_lost_when_the_kernel_ends_it(server: Zygote, call: str) -> None:
    with scratch() as place:
        ended = []
        for kill_at in (1, 3, 8):
            (place / f"{kill_at}").mkdir()
            scene = Scene(server, place / f"{kill_at}")
            scene.boot = disk.Disk().boot_id()
            scene.live_traced(call, kill_at)
            scene.judge()
            ended.append(scene.killed)

    assert ended[0] == 1
