"""What the kernel says of this process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corvo import clock, process_stats
from corvo.process_stats import ProcessStatsReader


@pytest.fixture(name="reader")
def make_reader() -> Iterator[ProcessStatsReader]:
    reader = ProcessStatsReader()
    yield reader
    reader.close()


def test_they_are_those_of_a_process_that_lives(reader: ProcessStatsReader) -> None:
    stats = reader.read()

    assert stats.cpu_user_s > 0
    assert stats.cpu_system_s >= 0
    assert stats.resident_bytes > 1 << 20
    assert stats.threads >= 1
    assert 0 < stats.descriptors < stats.descriptors_max
    assert clock.now_ns() / 1e9 - 86_400 < stats.started_s <= clock.now_ns() / 1e9


def test_processor_time_that_is_spent_is_seen(reader: ProcessStatsReader) -> None:
    before = reader.read()
    until_s = before.cpu_user_s + before.cpu_system_s + 0.05

    while sum(os.times()[:2]) < until_s:
        sum(range(10_000))

    after = reader.read()
    assert after.cpu_user_s + after.cpu_system_s >= until_s - 0.02  # the clocks' grain


def test_a_descriptor_that_is_opened_is_counted(reader: ProcessStatsReader, tmp_path: Path) -> None:
    before = reader.read().descriptors

    with (tmp_path / "a").open("w"):
        during = reader.read().descriptors

    assert (during, reader.read().descriptors) == (before + 1, before)


def test_without_a_descriptor_to_spare_the_rest_is_told_all_the_same(
    reader: ProcessStatsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = reader.read()

    def refuse() -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(process_stats, "_count_descriptors", refuse)
    during = reader.read()

    assert during.descriptors == before.descriptors
    assert during.resident_bytes > 0


def test_a_kernel_that_does_not_tell_how_many_are_open_has_them_counted(
    reader: ProcessStatsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = reader.read().descriptors
    silent = os.stat_result([0] * 10)
    monkeypatch.setattr(os, "stat", lambda _: silent)

    counted = reader.read().descriptors

    assert counted == told
