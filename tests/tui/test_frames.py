"""Frames of `corvo top` as text: every view in four sizes and two encodings, from fixed documents.

`python -m tests.tui.test_frames --rewrite` writes tests/tui/frames/ again.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from corvo.client.dashboard import Summary
from corvo.tui.frame import frame
from corvo.tui.looks import Look
from corvo.tui.model import NO_MINUTES, Data, Detail
from corvo.tui.pictures import lines_text
from corvo.tui.ui import Tab, Ui
from tests.tui.documents import DATA, PLACES, QUEUES, SUMMARY

FRAMES: Final = Path(__file__).parent / "frames"
SIZES: Final = ((160, 50), (100, 30), (80, 24), (60, 12))


def ui_of(view: str, look: Look, data: Data = DATA) -> Ui:
    ui = Ui(look=look)
    ui.stack = [Tab(PLACES["queues" if view == "queue" else "jobs" if view == "job" else view])]
    if view in {"queue", "job"}:
        ui.stack.append(Tab(PLACES[view]))
    ui.show(data)
    return ui


def _pressed(*pressed: str) -> Callable[[Look], Ui]:
    def made(look: Look) -> Ui:
        ui = ui_of("queues", look)
        for key in pressed:
            ui.press(key)
        return ui

    return made


def _of_job(part: str) -> Callable[[Look], Ui]:
    def made(look: Look) -> Ui:
        ui = ui_of("job", look)
        ui.press(part)
        return ui

    return made


def _lost(look: Look) -> Ui:
    error = "no answer from http://127.0.0.1:8080 (connection refused)"
    return ui_of("queues", look, replace(DATA, error=error, silent_s=12.0))


def _paused(look: Look) -> Ui:
    ui = ui_of("queues", look)
    ui.press(" ")
    ui.show(replace(DATA, summary=replace(SUMMARY, at="2026-11-18T10:43:07.25Z")))
    return ui


def _first(look: Look) -> Ui:
    return ui_of("queues", look, replace(DATA, rates={}, minutes={}, all_minutes=NO_MINUTES))


def _no_mirror(look: Look) -> Ui:
    summary = replace(SUMMARY, source="shards", minute="")
    data = replace(DATA, summary=summary, rates={}, minutes={}, all_minutes=NO_MINUTES, details={})
    return ui_of("queues", look, data)


SCENES: Final[dict[str, Callable[[Look], Ui]]] = {
    **{view: partial(ui_of, view) for view in PLACES},
    "help": _pressed("?"),
    "question": _pressed("j", "p"),
    "marked": _pressed("x", "x", "k"),
    "limits": _pressed("j", "L", "5"),
    "command": _pressed(":", *"queue emails.*"),
    "columns": _pressed("c", "j", " ", "j"),
    "last_minute": _pressed("w", "w"),
    "large_panel": _pressed("z"),
    "payload": _of_job("2"),
    "job_errors": _of_job("4"),
    "filter": _pressed("/", *"emails"),
    "sorted": _pressed("s", "R", "G"),
    "paused": _paused,
    "lost": _lost,
    "first": _first,
    "no_mirror": _no_mirror,
    "empty": lambda look: ui_of(
        "queues", look, Data(summary=replace(SUMMARY, queues=[], totals={}))
    ),
    "connecting": lambda look: ui_of("queues", look, Data()),
}


def scene(name: str, *, is_ascii: bool) -> str:
    """A scene in all sizes."""
    parts = []
    for width, height in SIZES:
        lines = frame(SCENES[name](Look(is_ascii)), width, height)
        parts.append(f"===== {width} x {height}\n{lines_text(lines)}")
    return "".join(parts)


def _file(name: str, *, is_ascii: bool) -> Path:
    return FRAMES / f"{name}{'-ascii' * is_ascii}.txt"


CASES: Final = [*product(SCENES, (False, True))]


@pytest.mark.parametrize(("name", "is_ascii"), CASES)
def test_frames_are_as_they_were_reviewed(name: str, *, is_ascii: bool) -> None:
    expected = _file(name, is_ascii=is_ascii).read_text(encoding="utf-8")

    assert scene(name, is_ascii=is_ascii) == expected, "see it; then: -m tests.tui.test_frames"


def test_no_frame_is_left_over() -> None:
    known = {_file(name, is_ascii=is_ascii).name for name, is_ascii in CASES}

    assert {file.name for file in FRAMES.iterdir()} == known


def _lines() -> Iterator[tuple[int, int, list[Text], bool]]:
    for (name, is_ascii), (width, height) in product(CASES, (*SIZES, (200, 12), (59, 40), (1, 1))):
        yield width, height, frame(SCENES[name](Look(is_ascii)), width, height), is_ascii


def test_no_line_is_wider_than_the_screen_and_none_acts_on_the_terminal() -> None:
    for width, height, lines, is_ascii in _lines():
        assert len(lines) <= height
        for line in lines:
            assert line.cell_len <= width, line.plain
            assert line.plain.isprintable(), ascii(line.plain)
            assert not is_ascii or line.plain.isascii(), line.plain


@settings(max_examples=200, deadline=None)
@given(
    name=st.text(min_size=1, max_size=40),
    error=st.text(max_size=80),
    width=st.integers(1, 170),
    height=st.integers(1, 50),
    view=st.sampled_from(sorted(PLACES)),
    is_ascii=st.booleans(),
)
def test_no_name_or_error_breaks_a_frame(
    name: str, error: str, width: int, height: int, view: str, *, is_ascii: bool
) -> None:
    queue = replace(SUMMARY.queues[0], name=name)
    place = PLACES[view]
    data = replace(
        DATA,
        summary=replace(SUMMARY, queues=[queue]),
        details={**DATA.details, place.wanted: Detail(None, error)},
        error=error,
    )

    for line in frame(ui_of(view, Look(is_ascii), data), width, height):
        assert cell_len(line.plain) <= width
        assert line.plain.isprintable()


def test_below_the_least_size_there_is_one_line_of_totals() -> None:
    [line] = frame(ui_of("queues", Look()), 50, 10)

    assert line.plain.startswith("pend 1.2M dead 316 act 24 in ")


def test_a_thousand_queues_are_on_the_screen_as_far_as_there_is_room() -> None:
    many = [{**QUEUES[0], "name": f"queue-{number:04}"} for number in range(1_000)]
    summary = Summary(at=SUMMARY.at, queues=[])
    summary = replace(
        summary, queues=[replace(SUMMARY.queues[0], name=f"{each['name']}") for each in many]
    )
    ui = ui_of("queues", Look(), Data(summary=summary))
    ui.press("G")

    shown = lines_text(frame(ui, 80, 24))

    assert ">queue-0999" in shown
    assert "queue-0500" not in shown


def rewrite() -> None:
    """Write all frames again."""
    FRAMES.mkdir(exist_ok=True)
    for file in FRAMES.glob("*.txt"):
        file.unlink()
    for name, is_ascii in CASES:
        _file(name, is_ascii=is_ascii).write_text(scene(name, is_ascii=is_ascii), encoding="utf-8")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--rewrite"], "usage: python -m tests.tui.test_frames --rewrite"
    rewrite()
