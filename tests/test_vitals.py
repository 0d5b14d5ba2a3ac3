"""What the kernel says of this process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corvo import clock, vitals
from corvo.vitals import Pulse


@pytest.fixture(name="pulse")
def make_pulse() -> Iterator[Pulse]:
    pulse = Pulse()
    yield pulse
    pulse.close()


def test_they_are_those_of_a_process_that_lives(pulse: Pulse) -> None:
    felt = pulse.feel()

    assert felt.cpu_user_s > 0
    assert felt.cpu_system_s >= 0
    assert felt.resident_bytes > 1 << 20
    assert felt.threads >= 1
    assert 0 < felt.descriptors < felt.descriptors_max
    assert clock.now_ns() / 1e9 - 86_400 < felt.started_s <= clock.now_ns() / 1e9


def test_processor_time_that_is_spent_is_seen(pulse: Pulse) -> None:
    before = pulse.feel()
    until_s = before.cpu_user_s + before.cpu_system_s + 0.05

    while sum(os.times()[:2]) < until_s:
        sum(range(10_000))

    after = pulse.feel()
    assert after.cpu_user_s + after.cpu_system_s >= until_s - 0.02  # the clocks' grain


def test_a_descriptor_that_is_opened_is_counted(pulse: Pulse, tmp_path: Path) -> None:
    before = pulse.feel().descriptors

    with (tmp_path / "a").open("w"):
        during = pulse.feel().descriptors

    assert (during, pulse.feel().descriptors) == (before + 1, before)


def test_without_a_descriptor_to_spare_the_rest_is_told_all_the_same(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pulse.feel()

    def refuse() -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(vitals, "_count_descriptors", refuse)
    during = pulse.feel()

    assert during.descriptors == before.descriptors
    assert during.resident_bytes > 0


def test_a_kernel_that_does_not_tell_how_many_are_open_has_them_counted(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = pulse.feel().descriptors
    silent = os.stat_result([0] * 10)
    monkeypatch.setattr(os, "stat", lambda _: silent)

    counted = pulse.feel().descriptors

    assert counted == told
