"""The entry that ends the process: blamed when it is its fault, and refused after two deaths."""

from collections.abc import Callable
from pathlib import Path

import pytest

from corvo.errors import Poisoned, StoreFailed
from corvo.shard.driver.poison import Poison
from corvo.shard.replica import Standing


class Applier:
    """Applies entries up to `commit`, and comes to grief where it is told to."""

    def __init__(self, *, applied: int = 10, commit: int = 15) -> None:
        self.applied = applied
        self.commit = commit
        self.applying: int | None = None

    def standing(self) -> Standing:
        return Standing(self.applied, self.commit)

    def work(self, *, dies_at: int = 0, of: Callable[[], BaseException] = ValueError) -> None:
        while self.applied < self.commit:
            self.applying = self.applied + 1
            if self.applying == dies_at:
                raise of()
            self.applied, self.applying = self.applying, None


class Killed(BaseException):
    """An end that no code sees."""


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "poison"


def die(note: Path, applier: Applier, at: int, of: Callable[[], BaseException]) -> None:
    poison = Poison(note)
    poison.refuse(applied=applier.applied)
    with poison.watching(applier):
        applier.work(dies_at=at, of=of)


def test_the_second_death_at_an_entry_is_the_last(note: Path) -> None:
    with pytest.raises(ValueError, match=r"^wrong$"):
        die(note, Applier(), 13, lambda: ValueError("wrong"))

    with pytest.raises(Poisoned, match=r"entry 13 ended this replica 2 times: ValueError: wrong"):
        die(note, Applier(applied=12), 13, lambda: ValueError("wrong"))
    with pytest.raises(Poisoned, match="entry 13 ended this replica 2 times"):
        Poison(note).refuse(applied=12)


def test_the_entry_that_failed_is_blamed_and_not_the_first_of_its_page(note: Path) -> None:
    with pytest.raises(ValueError):
        die(note, Applier(applied=10), 13, ValueError)

    with pytest.raises(Poisoned, match="entry 13 "):
        die(note, Applier(applied=10), 13, ValueError)


def test_a_suspect_that_was_got_over_is_forgotten(note: Path) -> None:
    with pytest.raises(ValueError):
        die(note, Applier(applied=10), 13, ValueError)
    poison = Poison(note)

    for commit in (12, 14):
        with poison.watching(applier := Applier(applied=commit - 2, commit=commit)):
            applier.work()

    assert not note.exists()


@pytest.mark.parametrize("is_wary", [False, True])
def test_what_is_noted_outlives_a_block_behind_the_failure(note: Path, is_wary: bool) -> None:
    poison = Poison(note)
    if is_wary:
        poison.be_wary()
    applier = Applier()
    with pytest.raises(ValueError), poison.watching(applier):
        applier.work(dies_at=11)

    with poison.watching(applier):
        pass
    with pytest.raises(ZeroDivisionError), poison.watching(applier):
        raise ZeroDivisionError

    with pytest.raises(Poisoned, match="entry 11 ended this replica 2 times: ValueError"):
        die(note, Applier(), 11, ValueError)


def test_another_entry_is_counted_from_the_beginning(note: Path) -> None:
    with pytest.raises(ValueError):
        die(note, Applier(), 13, ValueError)

    with pytest.raises(ValueError):
        die(note, Applier(applied=12), 14, ValueError)

    Poison(note).refuse(applied=13)


def test_an_entry_that_a_new_version_can_apply_is_forgotten(note: Path) -> None:
    for _ in range(2):
        with pytest.raises((ValueError, Poisoned)):
            die(note, Applier(applied=12), 13, ValueError)
    note.unlink()

    die(note, Applier(applied=12), 0, ValueError)

    assert not note.exists()


def test_the_operator_who_removes_the_note_has_it_tried_once_more(note: Path) -> None:
    for _ in range(2):
        with pytest.raises((ValueError, Poisoned)):
            die(note, Applier(applied=12), 13, ValueError)

    note.unlink()

    Poison(note).refuse(applied=12)


def test_after_a_death_without_a_word_the_first_entry_is_noted(note: Path) -> None:
    for _ in range(2):
        poison, applier = Poison(note), Applier(applied=12)
        poison.refuse(applied=12)
        poison.be_wary()
        with pytest.raises(Killed), poison.watching(applier):
            applier.work(dies_at=13, of=Killed)

    with pytest.raises(Poisoned, match=r"entry 13 .*without a word"):
        Poison(note).refuse(applied=12)


def test_a_bug_is_not_counted_twice_when_it_was_expected(note: Path) -> None:
    poison, applier = Poison(note), Applier(applied=12)
    poison.be_wary()

    with pytest.raises(ValueError), poison.watching(applier):
        applier.work(dies_at=13)

    Poison(note).refuse(applied=12)


def test_a_block_that_applies_nothing_keeps_the_note_and_counts_no_death(note: Path) -> None:
    """A turn of the replica may only begin a write, and apply what is committed in the next one."""
    for _ in range(2):
        poison, applier = Poison(note), Applier(applied=12)
        poison.refuse(applied=12)
        poison.be_wary()
        for _ in range(2):
            with poison.watching(applier):
                pass
        with pytest.raises((ValueError, Poisoned)), poison.watching(applier):
            applier.work(dies_at=13)

    with pytest.raises(Poisoned, match="entry 13 ended this replica 2 times"):
        Poison(note).refuse(applied=12)


def test_a_note_that_waited_for_its_entry_goes_when_that_is_applied(note: Path) -> None:
    poison, applier = Poison(note), Applier(applied=12)
    poison.be_wary()

    with poison.watching(applier):
        pass
    was_noted = note.exists()
    with poison.watching(applier):
        applier.work()

    assert was_noted
    assert not note.exists()


def test_nothing_is_noted_once_an_entry_went_well(note: Path) -> None:
    poison, applier = Poison(note), Applier()
    poison.be_wary()

    with poison.watching(applier):
        applier.work()
    applier.commit += 1
    with poison.watching(applier):
        assert not note.exists()

    assert not note.exists()


def test_nothing_is_noted_while_there_is_nothing_to_apply(note: Path) -> None:
    poison = Poison(note)
    poison.be_wary()

    with poison.watching(Applier(applied=5, commit=5)):
        assert not note.exists()


def test_a_bug_beside_the_entries_blames_none(note: Path) -> None:
    poison, applier = Poison(note), Applier()

    for _ in range(3):
        with pytest.raises(ZeroDivisionError), poison.watching(applier):
            raise ZeroDivisionError

    assert not note.exists()


@pytest.mark.parametrize("is_wary", [False, True])
def test_a_disk_that_fails_blames_no_entry(note: Path, is_wary: bool) -> None:
    for _ in range(3):
        poison, applier = Poison(note), Applier(applied=12)
        poison.refuse(applied=12)
        if is_wary:
            poison.be_wary()

        with pytest.raises(StoreFailed), poison.watching(applier):
            applier.work(dies_at=13, of=lambda: StoreFailed("no disk"))

    assert not note.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"index":13}', b"[]"])
def test_a_note_that_cannot_be_read_names_nobody(note: Path, content: bytes) -> None:
    note.write_bytes(content)

    Poison(note).refuse(applied=12)

    with pytest.raises(ValueError):
        die(note, Applier(applied=12), 13, ValueError)
