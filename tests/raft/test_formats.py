"""The bytes on disk are those of docs/formats.md, so that a later version can read them."""

import re
from pathlib import Path
from typing import Final

import pytest

from corvo.raft.disk.hard_state import HARD_STATE, SLOT_BYTES
from corvo.raft.disk.identity import IDENTITY, Identity
from corvo.raft.disk.manifest import MANIFEST
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START
from corvo.raft.disk.snapshot_files import INCOMING
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import Entry, HardState, Kind, Membership, Partial, Snapshot
from tests.support.files import MemoryFiles
from tests.support.logs import append, chunk

PAGE: Final = Path(__file__).parents[2] / "docs" / "formats.md"
WHO: Final = Identity("rookery", 2, 77)
VOTERS: Final = Membership((1, 2, 3))
ARRIVING: Final = Snapshot(
    9,
    4,
    VOTERS,
    3,
    bytes.fromhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
)
ENTRIES: Final = (Entry(1, 4, Kind.NOOP, b""), Entry(2, 4, Kind.NORMAL, b"caw"))
SEGMENT: Final = "log-0000000000000001-00000001.seg"

PLACES: Final = {
    "identity": (IDENTITY, 0),
    "hard-state": (HARD_STATE, SLOT_BYTES),
    "manifest": (MANIFEST, 0),
    "segment": (SEGMENT, 0),
    "segment mark": (SEGMENT, BLOCK_BYTES),
    "segment records": (SEGMENT, DATA_START),
    "incoming": (INCOMING, 0),
    "incoming mark": (INCOMING, BLOCK_BYTES),
}
"""Where each example of the page stands in the directory that the page is about."""


def examples() -> dict[str, bytes]:
    """The hexadecimal blocks of the page, by name."""
    found = re.findall(r"<!-- example: (.*?) -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {
        name: b"".join(bytes.fromhex(line.partition("|")[0]) for line in block.splitlines())
        for name, block in found
    }


def written() -> MemoryFiles:
    files = MemoryFiles()
    storage = DiskStorage.open(files, WHO, VOTERS)
    storage.put(append(*ENTRIES, state=HardState(4, 2, 1)))
    storage.sync()
    storage.put(chunk(ARRIVING, b"ab", 0, 2))
    storage.sync()
    return files


def test_the_page_shows_every_layout() -> None:
    assert set(examples()) == set(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_written_is_what_the_page_shows(name: str) -> None:
    file, offset = PLACES[name]
    example = examples()[name]

    content = written().contents()[file]

    assert content[offset : offset + len(example)] == example
    assert not content[offset + len(example) : offset + BLOCK_BYTES].strip(b"\0")


def test_a_directory_made_of_the_page_is_read() -> None:
    shown = examples()
    blocks = {name: data.ljust(BLOCK_BYTES, b"\0") for name, data in shown.items()}
    files = MemoryFiles()
    files.put(IDENTITY, shown["identity"])
    files.put(MANIFEST, shown["manifest"])
    files.put(HARD_STATE, bytes(BLOCK_BYTES) + shown["hard-state"])
    files.put(
        SEGMENT,
        blocks["segment"] + blocks["segment mark"] + bytes(4096) + shown["segment records"],
    )

    storage = DiskStorage.open(files, WHO)

    assert storage.identity == WHO
    assert storage.base == Snapshot(0, 0, VOTERS)
    assert tuple(storage.entries(1, 2, 100)) == ENTRIES
    assert storage.hard_state == HardState(4, 2, 1)


def test_what_is_on_arrival_is_read_from_its_newer_mark() -> None:
    files = written()
    files.process_crash()

    assert DiskStorage.open(files, WHO).partial == Partial(ARRIVING, 2)
