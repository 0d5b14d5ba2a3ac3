"""One suite for every `States`: the fake has to pass what the real one passes."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from corvo.errors import StoreDamaged, StoreFull
from corvo.kv import directories
from corvo.kv.checkpoints import LevelStates
from corvo.kv.store import States
from tests.kv.stores import applied, commit, commit_all, content, content_at
from tests.support.memory import MemoryStates


class Life(Protocol):
    """States that end and start again."""

    states: States

    def process_crash(self) -> None: ...
    def machine_crash(self) -> None: ...
    def fill_disk(self) -> None: ...
    def close(self) -> None: ...


class MemoryLife:
    def __init__(self) -> None:
        self.memory = MemoryStates(applied=applied)
        self.states: States = self.memory

    def process_crash(self) -> None:
        self.memory.crash(power_loss=False)

    def machine_crash(self) -> None:
        self.memory.crash(power_loss=True)

    def fill_disk(self) -> None:
        self.memory.is_full = not self.memory.is_full

    def close(self) -> None:
        pass


class LevelLife:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        self._root = root
        self._monkeypatch = monkeypatch
        self._boot = 1
        self._is_full = False
        self._start()

    def _start(self) -> None:
        self.level = LevelStates(self._root, boot_id=f"boot {self._boot}", applied=applied)
        self.states: States = self.level

    def process_crash(self) -> None:
        self.close()
        self._start()

    def machine_crash(self) -> None:
        self._boot += 1
        self.process_crash()

    def fill_disk(self) -> None:
        self._is_full = not self._is_full
        room = 0 if self._is_full else 1 << 40
        self._monkeypatch.setattr(directories, "room", lambda directory: room)

    def close(self) -> None:
        end(self.level)


def end(states: LevelStates) -> None:
    """End the process that has it, as far as one can without ending the test."""
    states.store.close()
    if (states._root / "running").exists() and not states._is_distrusted:
        directories.unlock(states._lock)  # else it was closed, and the lock given up


@pytest.fixture(params=["memory", "level"])
def begin(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Life]]:
    lives: list[Life] = []

    def make() -> Life:
        if request.param == "memory":
            lives.append(MemoryLife())
        else:
            lives.append(LevelLife(tmp_path / str(len(lives)), monkeypatch))
        return lives[-1]

    yield make
    for life in lives:
        life.close()


Begin = Callable[[], Life]


def test_states_begin_with_nothing(begin: Begin) -> None:
    life = begin()

    assert content(life.states.store) == {}
    assert life.states.checkpointed == 0


def test_a_process_crash_loses_nothing_that_was_written(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()
    commit_all(life.states.store, 6, 8)

    life.process_crash()

    assert content(life.states.store) == content_at(8)
    assert life.states.checkpointed == 5


def test_a_machine_crash_goes_back_to_the_newest_checkpoint(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    assert life.states.checkpoint() == 5
    commit_all(life.states.store, 6, 7)
    assert life.states.checkpoint() == 7
    commit_all(life.states.store, 8, 9)

    life.machine_crash()

    assert content(life.states.store) == content_at(7)
    assert life.states.checkpointed == 7


def test_a_machine_crash_without_a_checkpoint_leaves_nothing(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)

    life.machine_crash()

    assert content(life.states.store) == {}
    assert life.states.checkpointed == 0


def test_after_a_machine_crash_life_goes_on(begin: Begin) -> None:
    life = begin()
    for index in range(1, 30, 3):
        commit_all(life.states.store, index, index + 2)
        life.states.checkpoint()
        commit(life.states.store, index + 3, {b"lost": b"x"})

        life.machine_crash()

        assert content(life.states.store) == content_at(index + 2)


def test_a_clean_stop_keeps_everything_whatever_comes_then(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()
    commit_all(life.states.store, 6, 8)

    life.states.close()
    life.machine_crash()

    assert content(life.states.store) == content_at(8)
    assert life.states.checkpointed == 5


def test_a_clean_stop_is_worth_nothing_to_the_crash_after_the_next_start(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()
    commit_all(life.states.store, 6, 8)
    life.states.close()
    life.process_crash()

    life.machine_crash()

    assert content(life.states.store) == content_at(5)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_distrusted_live_store_gives_way_to_the_checkpoint(begin: Begin, is_closed: bool) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()
    commit_all(life.states.store, 6, 8)

    life.states.distrust()
    if is_closed or isinstance(life, LevelLife):
        life.states.close()
    life.process_crash()

    assert content(life.states.store) == content_at(5)
    life.process_crash()
    assert content(life.states.store) == content_at(5)


def test_a_checkpoint_of_the_same_state_is_the_one_there_is(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()

    assert life.states.checkpoint() == 5

    life.machine_crash()
    assert content(life.states.store) == content_at(5)


def test_a_checkpoint_of_nothing_is_a_bug(begin: Begin) -> None:
    life = begin()

    with pytest.raises(AssertionError):
        life.states.checkpoint()
    with pytest.raises(AssertionError):
        life.states.stream()


def test_a_checkpoint_that_finds_no_room_changes_nothing(begin: Begin) -> None:
    life = begin()
    commit_all(life.states.store, 1, 5)
    life.states.checkpoint()
    commit_all(life.states.store, 6, 8)

    life.fill_disk()
    with pytest.raises(StoreFull):
        life.states.checkpoint()

    assert life.states.checkpointed == 5
    assert content(life.states.store) == content_at(8)
    life.fill_disk()
    assert life.states.checkpoint() == 8


@pytest.mark.parametrize("indexes", [(20, 0), (20, 8), (20, 20), (3, 8)])
def test_an_installed_stream_is_the_new_state_and_its_checkpoint(
    begin: Begin, indexes: tuple[int, int]
) -> None:
    source, target = begin(), begin()
    commit_all(source.states.store, 1, indexes[0])
    source.states.checkpoint()
    commit(source.states.store, indexes[0] + 1)
    if indexes[1]:
        commit_all(target.states.store, 1, indexes[1])
        target.states.checkpoint()
        commit(target.states.store, indexes[1] + 1, {b"old": b"x"})

    target.states.install(source.states.stream())

    assert content(target.states.store) == content_at(indexes[0])
    assert target.states.checkpointed == indexes[0]
    commit(target.states.store, indexes[0] + 1)
    target.machine_crash()
    assert content(target.states.store) == content_at(indexes[0])
    assert target.states.checkpointed == indexes[0]


def test_a_stream_may_be_passed_on(begin: Begin) -> None:
    first, second, third = begin(), begin(), begin()
    commit_all(first.states.store, 1, 9)
    first.states.checkpoint()

    second.states.install(bytewise(first.states.stream()))
    third.states.install(second.states.stream())

    assert content(third.states.store) == content_at(9)


def bytewise(stream: Iterable[bytes]) -> Iterator[bytes]:
    for piece in stream:
        for byte in piece:
            yield bytes([byte])


def test_a_checkpoint_is_kept_while_it_is_streamed(begin: Begin) -> None:
    source, target = begin(), begin()
    commit_all(source.states.store, 1, 5)
    source.states.checkpoint()
    stream = source.states.stream()
    head = [next(stream)]
    commit_all(source.states.store, 6, 9)
    source.states.checkpoint()

    target.states.install([*head, *stream])

    assert content(target.states.store) == content_at(5)
    assert source.states.checkpointed == 9


def test_a_stream_that_is_cut_short_changes_nothing(begin: Begin) -> None:
    source, target = begin(), begin()
    commit_all(source.states.store, 1, 20)
    source.states.checkpoint()
    whole = b"".join(source.states.stream())
    commit_all(target.states.store, 1, 5)
    target.states.checkpoint()
    commit_all(target.states.store, 6, 8)

    for size in range(0, len(whole), len(whole) // 20):
        with pytest.raises(StoreDamaged):
            target.states.install([whole[:size]])

    assert content(target.states.store) == content_at(8)
    target.machine_crash()
    assert content(target.states.store) == content_at(5)


def test_a_stream_that_changed_on_its_way_changes_nothing(begin: Begin) -> None:
    source, target = begin(), begin()
    commit_all(source.states.store, 1, 20)
    source.states.checkpoint()
    whole = b"".join(source.states.stream())
    commit_all(target.states.store, 1, 5)

    for at in range(0, len(whole), len(whole) // 40):
        changed = bytearray(whole)
        changed[at] ^= 1
        with pytest.raises(StoreDamaged):
            target.states.install([bytes(changed)])

    assert content(target.states.store) == content_at(5)
    target.states.install([whole])
    assert content(target.states.store) == content_at(20)


class Gone(Exception):
    """The peer went away."""


def test_a_stream_that_breaks_off_changes_nothing(begin: Begin) -> None:
    source, target = begin(), begin()
    commit_all(source.states.store, 1, 20)
    source.states.checkpoint()
    commit_all(target.states.store, 1, 5)

    def breaking() -> Iterator[bytes]:
        yield from list(source.states.stream())[:-1]
        raise Gone

    with pytest.raises(Gone):
        target.states.install(breaking())

    assert content(target.states.store) == content_at(5)
    target.states.install(source.states.stream())
    assert content(target.states.store) == content_at(20)
