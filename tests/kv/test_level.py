"""LevelDB's own habits: damage, failure, and what a flush is worth."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import plyvel
import pytest

from corvo.errors import StoreDamaged, StoreError, StoreFailed, StoreFull, StoreRefused
from corvo.kv.framing import is_whole
from corvo.kv.level import LevelStore, opening_error, store_error
from corvo.kv.store import Store
from tests.kv.stores import END, EVERYTHING

ROWS = {b"k%05d" % number: b"v%d" % (number * 7919) * 9 for number in range(3_000)}


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database whose rows are all in one table."""
    directory = tmp_path_factory.mktemp("level") / "db"
    store = LevelStore(str(directory))
    store.write(ROWS)
    store.sync()
    store.close()
    return directory


def questions(reader: Store) -> list[tuple[Callable[[], object], object]]:
    """Every way to read, and what it should answer."""
    rows = list(ROWS.items())
    middle, late = b"k01500", b"k02990"
    return [
        (partial(reader.scan, b"", END, limit=EVERYTHING), rows),
        (partial(reader.scan, b"", END, limit=EVERYTHING, reverse=True), rows[::-1]),
        (partial(reader.keys, b"", END, limit=EVERYTHING), list(ROWS)),
        (partial(reader.scan, middle, late, limit=9), rows[1500:1509]),
        (partial(reader.scan, middle, late, limit=9, reverse=True), rows[2989:2980:-1]),
        (partial(reader.scan, late, END, limit=20), rows[2990:]),
        (partial(reader.keys, late, END, limit=20), list(ROWS)[2990:]),
        (partial(reader.scan, b"k02999", END, limit=20, reverse=True), rows[2999:]),
        (partial(reader.scan, b"", b"k00003", limit=20, reverse=True), rows[2::-1]),
        (lambda: [reader.get(key) for key in list(ROWS)[::50]], list(ROWS.values())[::50]),
    ]


def test_no_read_of_a_damaged_table_ever_gives_a_wrong_answer(
    flushed: Path, tmp_path: Path
) -> None:
    (table,) = flushed.glob("*.ldb")
    intact = table.read_bytes()
    noticed = 0

    for at in range(0, len(intact), len(intact) // 60):
        changed = bytearray(intact)
        changed[at] ^= 0x40
        directory = shutil.copytree(flushed, tmp_path / str(at))
        (directory / table.name).write_bytes(changed)
        store = LevelStore(str(directory), must_exist=True)
        for ask, expected in questions(store):
            try:
                answer = ask()
            except StoreDamaged:
                noticed += 1
            else:
                assert answer == expected, f"byte {at} changed"
        store.close()

    assert noticed > 100


def test_a_table_that_is_gone_is_damage(flushed: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(flushed, tmp_path / "db")
    store = LevelStore(str(directory), must_exist=True)
    for table in directory.glob("*.ldb"):
        table.unlink()

    for use in (store.scan, store.keys):
        with pytest.raises(StoreDamaged):
            use(b"", END, limit=1)

    store.close()
    with pytest.raises(StoreDamaged):
        LevelStore(str(directory), must_exist=True)


@pytest.mark.parametrize("kind", ["CURRENT", "MANIFEST-*"])
def test_a_damaged_list_of_tables_is_found_before_or_when_it_is_opened(
    flushed: Path, tmp_path: Path, kind: str
) -> None:
    (listed,) = flushed.glob(kind)
    intact = listed.read_bytes()
    assert kind == "CURRENT" or is_whole(intact)

    for at in range(len(intact)):
        for bit in range(8):
            changed = bytearray(intact)
            changed[at] ^= 1 << bit
            if kind != "CURRENT" and not is_whole(changed):
                continue
            directory = shutil.copytree(flushed, tmp_path / f"{at}-{bit}")
            (directory / listed.name).write_bytes(changed)
            with pytest.raises(StoreDamaged):
                LevelStore(str(directory), must_exist=True)


@pytest.mark.parametrize("value_bytes", [10, 700, 32_741, 40_000, 100_000])
def test_a_damaged_log_is_found_before_or_when_it_is_opened(
    tmp_path: Path, value_bytes: int
) -> None:
    store = LevelStore(str(tmp_path / "db"))
    for number in range(5):
        store.write({b"k%d" % number: b"v" * value_bytes})
    store.close()
    (log,) = (tmp_path / "db").glob("*.log")
    intact = log.read_bytes()
    assert is_whole(intact)

    for at in {
        *range(0, len(intact), len(intact) // 50 + 1),
        *range(len(intact) - 60, len(intact)),
    }:
        changed = bytearray(intact)
        changed[at] ^= 0x10
        if is_whole(changed):
            directory = shutil.copytree(tmp_path / "db", tmp_path / str(at))
            (directory / log.name).write_bytes(changed)
            with pytest.raises(StoreDamaged):
                LevelStore(str(directory), must_exist=True)


def test_a_log_that_ends_between_two_records_is_whole_and_no_other_end_is(tmp_path: Path) -> None:
    store = LevelStore(str(tmp_path / "db"))
    (log,) = (tmp_path / "db").glob("*.log")
    sizes = [0]
    for number in range(5):
        store.write({b"k%d" % number: b"v" * 30_000})
        sizes.append(log.stat().st_size)
    store.close()
    data = log.read_bytes()

    blocks = range(0, len(data), 32 << 10)  # within a record that goes on in the next block
    ends = sorted({*range(0, len(data), 997), *blocks, *sizes})

    assert [size for size in ends if is_whole(data[:size])] == sizes


def test_a_log_that_goes_on_with_zeros_is_not_whole(flushed: Path) -> None:
    (manifest,) = flushed.glob("MANIFEST-*")
    data = manifest.read_bytes()
    assert is_whole(data)

    assert not is_whole(data + bytes(7))


def test_a_sync_puts_everything_into_tables(tmp_path: Path) -> None:
    store = LevelStore(str(tmp_path / "db"))
    store.write({b"early": b"1"})
    store.sync()
    store.write({b"late": b"2", b"early": None})
    store.sync()
    copied = shutil.copytree(
        tmp_path / "db", tmp_path / "copy", ignore=shutil.ignore_patterns("*.log", "LOCK", "LOG")
    )

    copy = LevelStore(str(copied), must_exist=True)

    assert copy.scan(b"", END, limit=5) == [(b"late", b"2")]
    assert copy.tables() == store.tables()
    assert {path.name for path in copied.glob("*.ldb")} >= set(store.tables())
    copy.close()
    store.close()


def test_what_must_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreDamaged):
        LevelStore(str(tmp_path / "db"), must_exist=True)


def test_a_database_is_opened_by_one_only(tmp_path: Path) -> None:
    store = LevelStore(str(tmp_path / "db"))

    with pytest.raises(StoreRefused):
        LevelStore(str(tmp_path / "db"))

    store.close()


class FailingBatch:
    """A batch that meets an error of the disk."""

    def put(self, key: bytes, value: bytes) -> None:
        pass

    delete = put

    def write(self) -> None:
        raise plyvel.IOError(b"IO error: 000003.log: No space left on device")


class FailingDatabase:
    """As much of a database as a write needs."""

    def write_batch(self, *, sync: bool = False) -> FailingBatch:
        return FailingBatch()

    def compact_range(self, *, start: bytes, stop: bytes) -> None:
        pass


@pytest.mark.parametrize("what", ["write", "sync"])
def test_after_a_write_that_failed_the_store_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = LevelStore(str(tmp_path / "db"))
    store.write({b"a": b"1"})
    with monkeypatch.context() as patched:
        patched.setattr(store, "_database", FailingDatabase())
        with pytest.raises(StoreFailed, match=f"cannot {what}.*No space"):
            store.write({b"b": b"2"}) if what == "write" else store.sync()

    uses: list[Callable[[], object]] = [
        lambda: store.get(b"a"),
        lambda: store.keys(b"", END, limit=1),
        lambda: store.scan(b"", END, limit=1),
        lambda: store.scan(b"", END, limit=1, reverse=True),
        lambda: store.write({b"c": b"3"}),
        store.sync,
    ]
    for use in uses:
        with pytest.raises(StoreFailed, match="no more use"):
            use()
    store.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (plyvel.CorruptionError(b"Corruption: 1 missing files; e.g.: 000005.ldb"), StoreDamaged),
        (plyvel.IOError(b"IO error: db/000007.dbtmp: No space left on device"), StoreFull),
        (plyvel.IOError(b"IO error: db/000007.dbtmp: Disk quota exceeded"), StoreFull),
        (plyvel.IOError(b"IO error: db/000007.dbtmp: Input/output error"), StoreFailed),
        (plyvel.IOError(b"IO error: lock db/LOCK: Resource unavailable"), StoreRefused),
        (plyvel.Error(b"Invalid argument: db: does not exist"), StoreDamaged),
    ],
)
def test_each_way_in_which_opening_fails_has_its_error(
    error: plyvel.Error, expected: type[StoreError]
) -> None:
    assert type(opening_error("db", error)) is expected


def test_a_read_that_fails_is_not_taken_for_damage() -> None:
    error = plyvel.IOError(b"IO error: 000005.ldb: Input/output error")

    assert type(store_error("read", error)) is StoreFailed
