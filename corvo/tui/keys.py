"""Keys: one table of bindings, from which help and docs are made; and keys out of bytes.

A dangerous action is upper case, or asks. `q` and Ctrl-C always end the program.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

ESCAPE: Final = "esc"
ENTER: Final = "enter"
BACKSPACE: Final = "backspace"
CLICK: Final = "click:"

_SEQUENCES: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "pgup",
    b"\x1b[6~": "pgdn",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b"\x1b[Z": "shift-tab",
}
_WHEEL: Final = {64: "wheel-up", 65: "wheel-down"}
_CLICK: Final = 0
_CONTROLS: Final = {
    0x09: "tab",
    0x0A: ENTER,
    0x0D: ENTER,
    0x08: BACKSPACE,
    0x7F: BACKSPACE,
    0x0C: "ctrl-l",
}
_SEQUENCE_MAX: Final = 20


class Keys:
    """Keys out of bytes, which may arrive in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_open(self) -> bool:
        """Whether an escape character waits for the rest of its sequence."""
        return self._rest[:1] == b"\x1b"

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete."""
        self._rest += data
        return list(self._take())

    def close(self) -> list[str]:
        """The keys, when nothing follows: an escape character was the key of that name."""
        rest, self._rest = self._rest, b""
        return [ESCAPE] if rest[:1] == b"\x1b" else []

    def _take(self) -> Iterator[str]:
        while self._rest:
            taken = _first(self._rest)
            if taken is None:
                return
            key, length = taken
            self._rest = self._rest[length:]
            if key:
                yield key


def _first(data: bytes) -> tuple[str, int] | None:
    """The first key and its length; the key is empty if it has no meaning."""
    first = data[0]
    if first == 0x1B:
        return _escaped(data)
    if first in _CONTROLS:
        return _CONTROLS[first], 1
    if first < 0x20:
        return "", 1
    if first < 0x80:
        return chr(first), 1
    length = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    if len(data) < length:
        return None
    letter = data[:length].decode(errors="replace")
    return (letter, length) if len(letter) == 1 and letter.isprintable() else ("", 1)


def _escaped(data: bytes) -> tuple[str, int] | None:
    if len(data) == 1:
        return None
    if data[1:2] not in {b"[", b"O"}:
        return ESCAPE, 1
    for end in range(2, min(len(data), _SEQUENCE_MAX)):
        if 0x40 <= data[end] <= 0x7E:
            if data[2:3] == b"<":
                return _mouse(data[3:end], is_press=data[end] == ord("M")), end + 1
            return _SEQUENCES.get(data[: end + 1], ""), end + 1
    return ("", len(data)) if len(data) >= _SEQUENCE_MAX else None


def _mouse(report: bytes, *, is_press: bool) -> str:
    """The key of a report of the mouse: a wheel, or `click:` with the line, from 0."""
    fields = report.split(b";")
    if not is_press or len(fields) != 3 or not all(field.isdigit() for field in fields):
        return ""
    button, _, line = map(int, fields)
    return f"{CLICK}{line - 1}" if button == _CLICK else _WHEEL.get(button, "")


class Binding(NamedTuple):
    """Keys of one action."""

    keys: tuple[str, ...]
    action: str
    about: str
    views: frozenset[str] = frozenset()
    """The views that have it; empty: all."""
    short: str = ""
    """A word for the last line of the screen; empty: it is not there."""
    changes: bool = False
    """Whether it changes something on the server."""


QUEUES, QUEUE, WORKERS, SHARDS, ERRORS, JOBS, JOB, EVENTS = (
    "queues",
    "queue",
    "workers",
    "shards",
    "errors",
    "jobs",
    "job",
    "events",
)
TABS: Final = (QUEUES, WORKERS, SHARDS, ERRORS, JOBS, EVENTS)
"""The views of the keys 1 to 6."""
_OF_QUEUES: Final = frozenset({QUEUES, QUEUE})
_OF_JOBS: Final = frozenset({QUEUE, JOBS, JOB})
_OPEN: Final = frozenset({QUEUES, QUEUE, WORKERS, ERRORS, JOBS})

_LISTS: Final = frozenset({QUEUES, QUEUE, WORKERS, ERRORS, JOBS, EVENTS})
_CHANGED: Final = frozenset({QUEUES, QUEUE, ERRORS, JOBS})
"""Views with rows that can be changed."""
_IDS: Final = frozenset({QUEUES, QUEUE, WORKERS, ERRORS, JOBS, JOB})

BINDINGS: Final = (
    Binding(("enter",), "open", "open the row", _OPEN, "open"),
    Binding(("esc", "backspace"), "back", "go back; clear the filter", short="back"),
    Binding(
        tuple("123456"),
        "tab",
        "show a view by its number",
        frozenset({*TABS, QUEUE}),
    ),
    Binding(
        tuple("12345"),
        "part",
        "show a part of the job by its number",
        frozenset({JOB}),
    ),
    Binding(("tab",), "next_tab", "next view"),
    Binding(("shift-tab",), "previous_tab", "previous view"),
    Binding(("j", "down"), "down", "next row"),
    Binding(("k", "up"), "up", "previous row"),
    Binding(("pgdn",), "page_down", "next page"),
    Binding(("pgup",), "page_up", "previous page"),
    Binding(("g", "home"), "first", "first row"),
    Binding(("G", "end"), "last", "last row"),
    Binding(("p",), "pause_queue", "pause or resume the queue", _OF_QUEUES, "pause queue", True),
    Binding(
        ("r",),
        "retry",
        "retry the job, or all jobs of the error",
        _OF_JOBS | {ERRORS},
        "retry",
        True,
    ),
    Binding(("C",), "cancel", "cancel the job", _OF_JOBS, "cancel", True),
    Binding(("D",), "delete", "delete the job", _OF_JOBS, "", True),
    Binding(("L",), "limits", "set the limits of the queue", _OF_QUEUES, "", True),
    Binding(("x",), "mark", "mark the row, to change many rows at once", _CHANGED),
    Binding(("a",), "mark_all", "mark all rows, or none", _CHANGED),
    Binding(("/",), "filter", "show rows with a text; !text: without it", _LISTS, "filter"),
    Binding((":",), "command", "type a command, such as queue NAME or job ID"),
    Binding(("s", ">"), "sort_next", "sort by the next column", _LISTS, "sort"),
    Binding(("<",), "sort_previous", "sort by the previous column", _LISTS),
    Binding(("R",), "reverse", "reverse the order", _LISTS),
    Binding(("c",), "columns", "choose columns", _LISTS),
    Binding(("w",), "span", "bars of 15 minutes, an hour, or a minute", _OF_QUEUES),
    Binding(("z",), "zoom", "lower panels: small, large, none"),
    Binding(("space",), "freeze", "stop or continue the picture"),
    Binding(("+", "="), "faster", "refresh more often"),
    Binding(("-",), "slower", "refresh less often"),
    Binding(("y",), "copy", "copy the name or id (OSC 52)", _IDS),
    Binding(("Y",), "copy_command", "copy a command that shows it", _IDS),
    Binding(("S",), "save", "save the picture as SVG and text"),
    Binding(("M",), "mouse", "use the mouse, or leave it to the terminal"),
    Binding(("ctrl-l",), "redraw", "draw the screen again"),
    Binding(("?",), "help", "show these keys"),
    Binding(("q",), "quit", "end"),
)

SHOWN: Final = {"down": "↓", "up": "↑"}
"""Keys that have a symbol, where there is more than ASCII."""


def bindings_of(view: str) -> list[Binding]:
    """The bindings of a view."""
    return [each for each in BINDINGS if not each.views or view in each.views]


def action_of(key: str, view: str) -> Binding | None:
    """The binding of a key in a view."""
    name = "space" if key == " " else key
    for binding in bindings_of(view):
        if name in binding.keys:
            return binding
    return None


def key_table() -> str:
    """The table of all keys, in Markdown."""
    lines = ["| keys | action | views |", "|---|---|---|"]
    every = {*TABS, QUEUE, JOB}
    for each in BINDINGS:
        keys = " ".join(f"`{key}`" for key in each.keys)
        missing = every - each.views if each.views else set()
        views = ", ".join(sorted(each.views)) or "all"
        if 0 < len(missing) <= 3:
            views = f"all but {', '.join(sorted(missing))}"
        lines.append(f"| {keys} | {each.about}{' (asks first)' * each.changes} | {views} |")
    return "\n".join(lines) + "\n"
