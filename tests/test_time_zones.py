"""Time zones, held to the tables of changes in the files of the package tzdata."""

import pkgutil
import struct
from importlib import metadata, resources
from itertools import pairwise

import pytest
from hypothesis import settings

from corvo import time_zones
from corvo.time_zones import END_S, spans, tz_version, zone_names

FIRST, LAST = 0, 2_145_916_800  # 1970 to 2038, where the oldest files end their tables
EVERY = 1 if settings.default and settings.default.max_examples > 1_000 else 12
"""The deep profile of hypothesis compares all zones; one zone takes 30 ms."""


def table(name: str) -> list[tuple[int, int]]:
    """The changes that the file of a zone lists: instant and new offset (RFC 9636, 3.2)."""
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    form = ">4sc15x6l"
    _, _, *counts = struct.unpack_from(form, data)
    utc, standard, leaps, times, types, letters = counts
    second = 44 + times * 5 + types * 6 + letters + leaps * 8 + standard + utc
    _, _, *counts = struct.unpack_from(form, data, second)
    utc, standard, leaps, times, types, letters = counts
    begin = second + 44
    instants = struct.unpack_from(f">{times}q", data, begin)
    indexes = struct.unpack_from(f">{times}B", data, begin + 8 * times)
    offsets = [
        struct.unpack_from(">l", data, begin + 9 * times + 6 * index)[0] for index in range(types)
    ]
    return [(at, offsets[index]) for at, index in zip(instants, indexes, strict=True)]


def listed(name: str) -> list[tuple[int, int, int]]:
    """Instant, offset before and after of each change that a file lists."""
    changes = [(at, before, after) for (_, before), (at, after) in pairwise(table(name))]
    return [one for one in changes if FIRST < one[0] < LAST and one[1] != one[2]]


def found(name: str, until: int) -> list[tuple[int, int, int]]:
    """The same, out of spans."""
    changes = []
    for one, other in pairwise(spans(name, FIRST)):
        assert one.end == other.begin
        assert one.begin < one.end
        if other.begin >= until:
            break
        if one.offset != other.offset:
            changes.append((other.begin, one.offset, other.offset))
    return [one for one in changes if one[0] > FIRST]


@pytest.mark.parametrize("name", zone_names()[::EVERY])
def test_the_spans_of_a_zone_change_where_its_file_says(name: str) -> None:
    expected = listed(name)
    if not expected:
        return

    # After its table a file has a rule, which is compared with a walk in test_cron_twins.py.
    assert found(name, expected[-1][0] + 1) == expected


def test_spans_begin_with_the_one_that_contains_the_instant() -> None:
    for start in (0, 1_774_745_999, 1_774_746_000, (1 << 25) * 52, (1 << 25) * 52 - 1):
        first = next(spans("Europe/Berlin", start))
        assert first.begin <= start < first.end


def test_no_offset_is_in_force_for_less_than_the_distance_of_samples() -> None:
    lengths = [
        after[0] - before[0] for name in zone_names() for before, after in pairwise(listed(name))
    ]

    assert len(lengths) > 10_000
    assert min(lengths) > time_zones.SAMPLE_S


@pytest.mark.parametrize("low", [0, -1, -86_399, -86_400])
def test_a_change_is_found_wherever_it_lies_between_two_samples(low: int) -> None:
    """Berlin set its clocks forward at this instant."""
    change = 1_774_746_000
    zone = time_zones._zone("Europe/Berlin")

    found = time_zones._change(zone, change + low, change + low + 86_400, 3_600)

    assert found == change


def test_spans_end() -> None:
    *_, last = spans("Europe/Berlin", END_S - 10**9)

    assert last.end >= END_S
    assert list(spans("Europe/Berlin", END_S + (1 << 26))) == []


def test_utc_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(package: str, name: str) -> bytes:
        raise FileNotFoundError(name)

    monkeypatch.setattr(pkgutil, "get_data", refuse)

    assert list(spans("UTC", 7)) == [(0, END_S, 0)]


def test_the_names_are_those_of_the_package() -> None:
    names = zone_names()

    assert list(names) == sorted(names)
    assert {"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"} <= set(names)
    assert all(resources.files("tzdata").joinpath("zoneinfo", name).is_file() for name in names)


def test_a_name_that_is_not_in_the_list_reads_no_file() -> None:
    with pytest.raises(AssertionError):
        next(spans("../zones", 0))


def test_the_version_is_that_of_the_package() -> None:
    assert tz_version() == metadata.version("tzdata")
