"""The log: what a line looks like, what it never shows, and that nobody waits for it."""

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.telemetry import (
    Level,
    Log,
    Style,
    Value,
    Writer,
    clean,
    open_log,
    render,
    style_of,
    write_all,
)

JSON: Final = Style(is_text=False)
TEXT: Final = Style(is_text=True)
COLOURED: Final = Style(is_text=True, is_coloured=True)
NOON: Final = 1_795_003_200_123_456_789
ROOT: Final = Path(__file__).parent.parent


def line(style: Style, **fields: Value) -> str:
    return render(style, NOON, Level.WARNING, "router", "link.lost", fields).decode()


# ---- Lines.


def test_a_line_for_programs_is_json() -> None:
    said = line(JSON, shard=3, reason='it\'s "gone"\n', others=["a", "b"], after=None)

    assert said.endswith("\n")
    assert msgspec.json.decode(said) == {
        "time": "2026-11-18T12:00:00.123Z",
        "level": "warning",
        "process": "router",
        "event": "link.lost",
        "shard": 3,
        "reason": 'it\'s "gone"\n',
        "others": ["a", "b"],
        "after": None,
    }


def test_a_line_for_people_has_columns_and_the_time_of_the_place() -> None:
    # Where the tests run is anywhere, so a process of its own has a place.
    script = (
        "from tests.test_telemetry import *; "
        "sys.stdout.write(line(TEXT, shard=3, reason='the peer left', others=['a', 'b']))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={"TZ": "Asia/Kolkata", "PATH": "/usr/bin"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    assert said == (
        '17:30:00.123 WARNING router   link.lost              shard=3  reason="the peer left"'
        "  others=a,b\n"
    )


def test_a_line_without_fields_has_no_blanks_at_its_end() -> None:
    assert line(TEXT).endswith("link.lost\n")


def test_colours_change_nothing_but_the_colour() -> None:
    coloured = line(COLOURED, shard=3)

    plain = coloured
    for code in ("\x1b[2m", "\x1b[33m", "\x1b[1m", "\x1b[0m"):
        plain = plain.replace(code, "")

    assert plain == line(TEXT, shard=3)
    assert coloured != plain


@given(st.text())
def test_no_value_can_begin_a_line_or_a_field_of_its_own(value: str) -> None:
    told = line(TEXT, reason=value).removesuffix("\n")
    said = line(JSON, reason=value)

    assert "\n" not in told
    assert told.isprintable()
    assert said.count("\n") == 1
    told_of_it = told.partition("reason=")[2]
    assert told_of_it.startswith('"') or not set(' "=') & set(told_of_it)


def test_a_value_that_never_ends_is_cut() -> None:
    assert len(line(JSON, reason="a" * 1_000_000)) < 5_000


def test_a_field_may_not_pass_for_a_part_of_every_line() -> None:
    with pytest.raises(AssertionError, match="a field has a name of ours"):
        line(JSON, time="yesterday")


# ---- Secrets.


@pytest.mark.parametrize(
    "name", ["key", "admin_key", "token", "lease_token", "password", "Authorization", "cookie"]
)
@pytest.mark.parametrize("style", [JSON, TEXT])
def test_a_field_with_the_name_of_a_secret_is_blotted_out(name: str, style: Style) -> None:
    said = line(style, **{name: "rook-and-raven"})

    assert "rook" not in said
    assert "***" in said


def test_an_api_key_is_blotted_out_wherever_it_stands() -> None:
    said = line(JSON, path="/x?k=sk_01HF7YAT00000000000380", tried=["Bearer sk_01HF7YAT000000"])

    assert "01HF7" not in said


def test_what_only_sounds_like_a_secret_is_shown() -> None:
    assert clean("keys", "3") == "3"
    assert clean("monkey", "ape") == "ape"


# ---- Levels and styles.


def test_what_is_below_the_level_is_not_logged() -> None:
    lines: list[bytes] = []
    log = Log(lines.append, "node", JSON, Level.WARNING)

    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    log.say("for people")

    events = [msgspec.json.decode(each)["event"] for each in lines]
    assert events == ["c", "d"]


def test_plain_words_are_for_people_only() -> None:
    lines: list[bytes] = []

    Log(lines.append, "node", TEXT, Level.INFO).say("hello")
    Log(lines.append, "node", JSON, Level.INFO).say("hello")

    assert lines == [b"hello\n"]


def test_text_is_for_terminals_and_colour_for_those_who_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.openpty()
    reading, writing = os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    on_terminal, in_pipe = style_of("auto", theirs), style_of("auto", writing)
    forced = style_of("text", writing)
    as_json = style_of("json", theirs)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = style_of("auto", theirs)
    for descriptor in (ours, theirs, reading, writing):
        os.close(descriptor)

    assert (on_terminal, in_pipe, forced, as_json, plain) == (COLOURED, JSON, TEXT, JSON, TEXT)


# ---- Writing.


def read_all(descriptor: int) -> bytes:
    said = b""
    while data := os.read(descriptor, 65_536):
        said += data
    return said


def test_lines_arrive_in_order_and_whole() -> None:
    reading, writing = os.pipe()

    with open_log("node", form="json", level="debug", descriptor=writing) as log:
        for number in range(200):
            log.info("counted", number=number)
    os.close(writing)
    said = read_all(reading)
    os.close(reading)

    numbers = [msgspec.json.decode(each)["number"] for each in said.splitlines()]
    assert numbers == list(range(200))


def fill(pipe: int) -> int:
    """Fill a pipe that nobody reads; the bytes it took."""
    os.set_blocking(pipe, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(pipe, b"x" * 4_096)
    os.set_blocking(pipe, True)
    return filled


def test_nobody_waits_for_a_reader_and_what_was_dropped_is_counted() -> None:
    reading, writing = os.pipe()
    filled = fill(writing)
    writer = Writer(writing, pending_bytes_max=1_000)

    writer.start()
    for number in range(1_000):
        writer.put(b"%9d\n" % number)
    is_written = writer.close(timeout_s=0)
    data = b""
    while not data.endswith(b"dropped\n"):  # now somebody reads, and the thread goes on
        data += os.read(reading, 65_536)
    is_done = writer.close(timeout_s=60)
    os.close(writing)
    os.close(reading)

    assert not is_written
    assert data[filled:] == b"".join(b"%9d\n" % number for number in range(100)) + (
        b"900 lines were dropped\n"
    )
    assert is_done


def test_a_reader_who_is_gone_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    with open_log("node", form="json", level="info", descriptor=writing) as log:
        log.info("said.to.nobody")
        log.info("said.to.nobody")
    os.close(writing)


def test_what_was_written_makes_room_for_more() -> None:
    reading, writing = os.pipe()
    put = b"x" * 3_999 + b"\n"

    writer = Writer(writing, pending_bytes_max=8_000)
    writer.start()
    for _ in range(100):
        writer.put(put)
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(reading, 65_536)
        assert data == put
    is_done = writer.close(timeout_s=60)
    os.close(writing)
    os.close(reading)

    assert is_done


def test_a_terminal_that_somebody_made_non_blocking_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    fill(writing)
    os.set_blocking(writing, False)
    data = b""

    def somebody_reads(_: list[int], waited_for: list[int], __: list[int]) -> None:
        nonlocal data
        assert waited_for == [writing]
        data += os.read(reading, 65_536)

    monkeypatch.setattr(select, "select", somebody_reads)
    write_all(writing, b"y" * 100_000 + b"\n")
    data += os.read(reading, 1 << 20)
    os.close(writing)
    os.close(reading)

    assert data.lstrip(b"x") == b"y" * 100_000 + b"\n"
