"""Data directories of all releases: this one opens them, and `corvo verify` finds them whole."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from tests.node.storing import BYTES_MAX, STORED, Json, answers, common, stored_house
from tests.support.links import on_sockets
from tests.support.pages import ROOT

ARCHIVES: Final = sorted(STORED.glob("*.tar.xz"))
EARLIER: Final = sorted(STORED.parent.glob("directory_version_*.tar.xz"))
"""From before there were releases; tests/node/test_earlier_versions.py compares their answers."""

EARLIER_MIRROR: Final = "not checked: mirror: mirror/mirror.db: it has schema "
"""The file of the mirror is made again by a server with another schema, and checked then."""


def unpack(archive: Path, directory: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / "data"


async def verify(directory: Path) -> tuple[int, str]:
    """What `corvo verify` says of a stopped directory."""
    done = await trio.run_process(
        [sys.executable, "-P", "-m", "corvo", "verify", str(directory)],
        check=False,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
    )
    return done.returncode, done.stdout.decode()


def test_a_directory_is_stored() -> None:
    assert ARCHIVES
    assert all(archive.stat().st_size < BYTES_MAX for archive in ARCHIVES)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
@on_sockets
async def test_a_directory_of_a_release_opens_with_all_that_it_had(
    tmp_path: Path, archive: Path
) -> None:
    data = unpack(archive, tmp_path)
    told: dict[str, Json] = msgspec.json.decode((tmp_path / "told.json").read_bytes())
    before = await verify(data)

    house = await stored_house(tmp_path)
    async with house.open() as node:
        now = await answers(house, [*told])
        code = await node.end()
    after = await verify(data)

    assert {path: common(told[path], now[path]) for path in told} == told
    assert code == 0
    assert before[0] == (10 if EARLIER_MIRROR in before[1] else 0), before[1]
    assert before[1].count("not checked: ") == before[1].count(EARLIER_MIRROR) <= 1
    assert after[0] == 0, after[1]


@pytest.mark.parametrize("archive", EARLIER, ids=lambda path: path.name)
@on_sockets
async def test_a_directory_from_before_the_releases_is_whole_once_opened(
    tmp_path: Path, archive: Path
) -> None:
    data = unpack(archive, tmp_path)
    house = await stored_house(tmp_path)
    async with house.open() as node:
        code = await node.end()

    assert code == 0
    after = await verify(data)
    assert after[0] == 0, after[1]


def test_a_change_of_an_answer_is_found() -> None:
    told: dict[str, Json] = {"state": "dead", "errors": [{"error": "no"}], "rates": {"x": 1}}

    assert common(told, {"state": "dead", "errors": [{"error": "no"}], "rates": {"x": 2}}) != told
    assert common(told, {**told, "new": 1}) == told
    assert common(told, {"state": "pending"}) != told
    assert common([1, 2], [1, 3]) == [1, 3]
    assert common([1, 2], [1]) == [1]
