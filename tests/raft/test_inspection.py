"""The inspection of a log finds what opening it refuses, changes nothing, and names all of it."""

import msgspec
import pytest

from corvo.raft.disk import inspection
from corvo.raft.disk.envelope import seal
from corvo.raft.disk.hard_state import HARD_STATE
from corvo.raft.disk.identity import IDENTITY
from corvo.raft.disk.inspection import Finding, inspect
from corvo.raft.disk.manifest import MANIFEST, read_manifest, write_manifest
from corvo.raft.disk.marks import BLOCK_BYTES
from corvo.raft.disk.recovery import quarantine
from corvo.raft.disk.snapshot_files import INCOMING
from corvo.raft.errors import LogDamaged, LogFailed
from tests.raft.test_wal_damage import (
    FIRST,
    INTACT,
    LAST,
    MANIFESTED,
    NAMES,
    bytes_read,
    judge,
)
from tests.support.files import MemoryFiles
from tests.support.logs import append, entries, open_log, vote


def found_in(files: MemoryFiles) -> list[Finding]:
    """The findings, of files that the inspection leaves as they are."""
    before = files.contents()
    found = inspect(files).findings
    assert files.contents() == before
    return found


def damage_in(files: MemoryFiles) -> list[Finding]:
    return [finding for finding in found_in(files) if not finding.is_harmless]


def flip(files: MemoryFiles, name: str, offset: int, mask: int = 1) -> MemoryFiles:
    [byte] = files.read(name, offset, 1)
    files.write(name, offset, bytes([byte ^ mask]))
    return files


def test_an_intact_log_has_no_finding_and_all_of_its_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = INTACT.copy()
    inspected = inspect(files)

    assert inspected.findings == []
    assert inspected.is_whole
    assert (inspected.first_index, inspected.last_index) == (1, 9)
    assert inspected.files == len(NAMES)
    assert inspected.bytes == sum(map(len, INTACT.contents().values()))
    storage = open_log(INTACT.copy())
    wanted = storage.entries(3, 9, 1 << 20)
    assert [entry for page in inspected.pages(3, 9) for entry in page] == wanted
    assert list(inspected.pages(99, 100)) == []
    monkeypatch.setattr(inspection, "PAGE_BYTES", 7)
    assert [len(page) for page in inspected.pages(1, 9)] == [2, 2, 1, 1, 2, 1]


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_each_byte_that_opening_refuses_and_no_other(name: str) -> None:
    for offset in bytes_read(name):
        is_refused = judge(flip(INTACT.copy(), name, offset))
        found = damage_in(flip(INTACT.copy(), name, offset))

        assert bool(found) is is_refused, (offset, found)
        assert all(finding.file in NAMES for finding in found)


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_each_file_that_is_missing(name: str) -> None:
    files, other = INTACT.copy(), INTACT.copy()
    files.unlink(name)
    other.unlink(name)

    assert bool(damage_in(files)) is judge(other)


def test_it_names_all_damage_and_not_the_first_alone() -> None:
    files = INTACT.copy()
    for name in (HARD_STATE, LAST, FIRST):
        flip(files, name, 20)
    flip(files, HARD_STATE, BLOCK_BYTES + 20)

    assert {finding.file for finding in damage_in(files)} == {HARD_STATE, LAST, FIRST}


def test_a_segment_after_a_damaged_one_must_continue_it() -> None:
    files = INTACT.copy()
    manifest = read_manifest(files)
    first, *others = manifest.segments
    assert others, "there are several"
    wrong = msgspec.structs.replace(first, chain=first.chain ^ 1)
    flip(files, first.name, 20)
    write_manifest(files, msgspec.structs.replace(manifest, segments=(wrong, *others)))

    problems = [finding.problem for finding in damage_in(files)]

    assert "it does not follow the one before it" in problems


def test_slots_and_marks_of_which_one_is_bad_are_harmless() -> None:
    for name, offset, words in (
        (HARD_STATE, 20, "slot 0 is bad"),
        (LAST, BLOCK_BYTES + 3, "mark 0 is bad"),
        (LAST, 2 * BLOCK_BYTES + 3, "mark 1 is bad"),
    ):
        [finding] = found_in(flip(INTACT.copy(), name, offset))

        assert finding.is_harmless
        assert words in finding.problem


def test_a_torn_tail_is_harmless() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    storage.put(append(*entries(1, 3)))
    storage.sync()
    storage.put(append(*entries(4, 5)))
    files.process_crash()
    [name] = [name for name in files.names() if name.endswith(".seg")]
    written = files.read(name, 0, files.size(name)).rstrip(b"\0")
    flip(files, name, len(written) - 1)

    inspected = inspect(files)

    assert inspected.torn is not None
    [finding] = inspected.findings
    assert finding.is_harmless
    assert "were never synced" in finding.problem


def test_remains_of_a_crash_and_of_repairs_are_harmless() -> None:
    files = INTACT.copy()
    for name in ("manifest.new", "log-00000000000000aa-000000bb.seg", "notes", f"{LAST}.damaged"):
        files.create(name)

    found = found_in(files)

    assert all(finding.is_harmless for finding in found)
    assert len(found) == 4


def test_a_replica_under_repair_is_told() -> None:
    files = INTACT.copy()
    files.close()
    quarantine(files)

    found = found_in(files)

    assert all(finding.is_harmless for finding in found), found
    assert any("under repair" in finding.problem for finding in found)
    assert any("was set aside" in finding.problem for finding in found)


def test_a_base_that_the_entries_do_not_continue_is_damage() -> None:
    for index, term, words in ((99, 1, "do not continue the base"), (2, 7, "another term")):
        files = INTACT.copy()
        base = msgspec.structs.replace(MANIFESTED.base, index=index, term=term)
        write_manifest(files, msgspec.structs.replace(MANIFESTED, base=base))

        assert any(words in finding.problem for finding in damage_in(files)), words


def test_a_committed_entry_that_is_missing_is_damage() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    storage.put(vote(2, 3, commit=9))
    storage.sync()
    files.process_crash()
    manifest = read_manifest(files)
    write_manifest(files, msgspec.structs.replace(manifest, segments=manifest.segments[:1]))

    assert any("was committed" in finding.problem for finding in damage_in(files))


def test_a_log_without_segments_has_its_base() -> None:
    files = MemoryFiles()
    open_log(files).close()

    inspected = inspect(files)

    assert (inspected.findings, inspected.first_index, inspected.last_index) == ([], 1, 0)


def test_an_empty_directory_and_one_of_a_newer_version() -> None:
    [finding] = found_in(MemoryFiles())
    assert (finding.file, finding.is_harmless) == (IDENTITY, False)

    for name, magic in ((MANIFEST, b"corvo-mf"), (INCOMING, b"corvosnp")):
        files = INTACT.copy()
        newer = seal(magic, MANIFESTED, version=2)
        files.write(name, 0, newer)
        files.truncate(name, len(newer))
        [finding] = [each for each in damage_in(files) if each.file == name]
        assert "has format 2" in finding.problem


class Unreadable(MemoryFiles):
    """Files of which one cannot be looked at."""

    name = ""

    def size(self, name: str) -> int:
        if name == self.name:
            raise LogFailed(f"cannot look at {name}: Permission denied")
        return super().size(name)


def test_a_file_that_cannot_be_read_is_told_once() -> None:
    files = Unreadable()
    storage = open_log(files)
    storage.put(append(*entries(1, 3)))
    storage.sync()
    storage.close()
    for name in files.names():
        files.name = name
        found = [each for each in found_in(files) if "Permission denied" in each.problem]
        assert [each.file for each in found] == [name]


def test_a_finding_of_damage_is_an_error_that_was_raised() -> None:
    with pytest.raises(LogDamaged):
        open_log(flip(INTACT.copy(), FIRST, 20))
    [finding] = damage_in(flip(INTACT.copy(), FIRST, 20))
    assert finding.problem == "the header's checksum does not match"
