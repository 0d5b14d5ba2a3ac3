"""The log: events with fields, as text on a terminal and as JSON lines elsewhere.

    with open_log("router", form="auto", level="info") as log:
        log.info("router.started", address="127.0.0.1:8080")

An event's name says what happened, its fields to whom; nothing is put together into sentences, so
that it can be searched. Lines go to stderr, one write each, by a thread: whoever logs never waits,
also when nobody reads what is written. What then does not fit is dropped, and that is logged.
Fields that hold secrets are blotted out by their name, and API keys wherever they stand.
"""

import os
import re
import select
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from corvo import clock
from corvo.times import format_ms

Value: TypeAlias = str | int | float | bool | Sequence[str] | None
Put: TypeAlias = Callable[[bytes], None]

PENDING_BYTES_MAX: Final = 1 << 20
"""Of lines that wait to be written."""
_VALUE_MAX: Final = 4_096
"""Letters of one value: a message that embeds somebody's input does not fill the disk."""
_TRACE_LINES_MAX: Final = 40
_CLOSE_S: Final = 1.0
"""How long the end of a process waits for a reader who does not read."""
_SECRET: Final = frozenset({"key", "token", "password", "authorization", "secret", "cookie"})
_API_KEY: Final = re.compile(r"\bsk_[A-Za-z0-9]{8,}")
_BLOT: Final = "***"
_OWN_FIELDS: Final = frozenset({"time", "level", "process", "event"})


class Level(IntEnum):
    """How much somebody has to care."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


_COLOURS: Final = {
    Level.DEBUG: "\x1b[2m",
    Level.INFO: "\x1b[32m",
    Level.WARNING: "\x1b[33m",
    Level.ERROR: "\x1b[31m",
}
_DIM: Final = "\x1b[2m"
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


class Style(msgspec.Struct, frozen=True):
    """What lines look like."""

    is_text: bool
    is_coloured: bool = False


class Log:
    """Takes events; made by `open_log`."""

    def __init__(self, put: Put, process: str, style: Style, level: Level) -> None:
        self._put = put
        self._process = process
        self._level = level
        self.style: Final = style

    def debug(self, event: str, **fields: Value) -> None:
        """For whoever looks for a fault."""
        self._take(Level.DEBUG, event, fields)

    def info(self, event: str, **fields: Value) -> None:
        """Part of a day without trouble."""
        self._take(Level.INFO, event, fields)

    def warning(self, event: str, **fields: Value) -> None:
        """Somebody should look at it in time."""
        self._take(Level.WARNING, event, fields)

    def error(self, event: str, **fields: Value) -> None:
        """Somebody has to do something."""
        self._take(Level.ERROR, event, fields)

    def bug(self, event: str, error: BaseException, **fields: Value) -> None:
        """An exception that nothing expected, with the end of its trace."""
        trace = "".join(traceback.format_exception(error)[-_TRACE_LINES_MAX:])
        self.error(event, **fields, error=repr(error), trace=trace)

    def say(self, text: str) -> None:
        """Plain lines for a person; nothing where programs read."""
        if self.style.is_text and self._level <= Level.INFO:
            self._put(f"{text}\n".encode(errors="backslashreplace"))

    def _take(self, level: Level, event: str, fields: Mapping[str, Value]) -> None:
        if level >= self._level:
            self._put(render(self.style, clock.now_ns(), level, self._process, event, fields))


SILENT: Final = Log(lambda _: None, "", Style(is_text=False), Level.ERROR)
"""A log that keeps nothing."""


# How a line looks.


def render(
    style: Style, now_ns: int, level: Level, process: str, event: str, fields: Mapping[str, Value]
) -> bytes:
    """One line, with its end."""
    assert not _OWN_FIELDS & fields.keys(), f"{event}: a field has a name of ours"
    shown = {name: clean(name, value) for name, value in fields.items()}
    if style.is_text:
        line = _as_text(style, now_ns, level, process, event, shown)
        return f"{line}\n".encode(errors="backslashreplace")
    head = {
        "time": format_ms(now_ns),
        "level": level.name.lower(),
        "process": process,
        "event": event,
    }
    return msgspec.json.encode({**head, **shown}) + b"\n"


def clean(name: str, value: Value) -> Value:
    """A value without secrets, no longer than it may be, and with nothing that JSON cannot hold."""
    if name.rpartition("_")[2].lower() in _SECRET and value:
        return _BLOT
    if isinstance(value, str):
        text = _API_KEY.sub(f"sk_{_BLOT}", value.encode(errors="backslashreplace").decode())
        return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"
    if isinstance(value, Sequence):
        return [str(clean("", one)) for one in value]
    return value


def _as_text(
    style: Style, now_ns: int, level: Level, process: str, event: str, fields: Mapping[str, Value]
) -> str:
    local = datetime.fromtimestamp(now_ns // 1_000_000 / 1_000, UTC).astimezone()
    moment = local.strftime("%H:%M:%S.") + f"{local.microsecond // 1_000:03d}"
    told = "  ".join(f"{name}={_word(value)}" for name, value in fields.items())
    if not style.is_coloured:
        return f"{moment} {level.name:<7} {process:<8} {event:<22} {told}".rstrip()
    return (
        f"{_DIM}{moment}{_PLAIN} {_COLOURS[level]}{level.name:<7}{_PLAIN} {process:<8}"
        f" {_BOLD}{event:<22}{_PLAIN} {told}"
    ).rstrip()


def _word(value: Value) -> str:
    """A value as one word: nothing in it can look like another field, line or command."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _word(",".join(value))
    text = str(value)
    if text and text.isprintable() and not re.search(r"[\s\"'=]", text):
        return text
    escaped = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'


# Where the lines go.


class Writer:
    """Writes lines to a descriptor, by a thread of its own."""

    def __init__(self, descriptor: int, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._pending_bytes_max = pending_bytes_max
        self._changed = threading.Condition()
        # Held by whoever has the condition.
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # of the lines, and of the one that is being written
        self._writing = 0  # of that one alone
        self._dropped = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self.on_drop: Callable[[int], bytes] = lambda count: b"%d lines were dropped\n" % count

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have a line written, or dropped and counted when too much waits. Never waits itself."""
        with self._changed:
            if self._is_closed or self._bytes + len(line) > self._pending_bytes_max:
                self._dropped += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify()

    def close(self, timeout_s: float = _CLOSE_S) -> bool:
        """Write what waits; false when nobody read it in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (line := self._next()) is not None:
            try:
                write_all(self._descriptor, line)
            except OSError:
                self._give_up()
                return

    def _next(self) -> bytes | None:
        with self._changed:
            self._bytes -= self._writing
            self._writing = 0
            while not (self._lines or self._dropped or self._is_closed):
                self._changed.wait()
            if self._lines:
                line = self._lines.popleft()
                self._writing = len(line)
                return line
            if self._dropped:
                count, self._dropped = self._dropped, 0
                return self.on_drop(count)
            return None

    def _give_up(self) -> None:
        """Nobody will ever read: a log that cannot be written ends no process."""
        with self._changed:
            self._is_closed = True
            self._lines.clear()


def write_all(descriptor: int, line: bytes) -> None:
    """Write a line; in one call unless the system takes less."""
    while line:
        try:
            line = line[os.write(descriptor, line) :]
        except BlockingIOError:  # somebody made the terminal we share non-blocking
            select.select([], [descriptor], [])


# Opening.


@contextmanager
def open_log(process: str, *, form: str, level: str, descriptor: int = 2) -> Iterator[Log]:
    """A log for a process, named as its lines name it. `form` is `auto`, `text` or `json`."""
    style = style_of(form, descriptor)
    writer = Writer(descriptor)
    log = Log(writer.put, process, style, Level[level.upper()])

    def on_drop(count: int) -> bytes:
        fields: dict[str, Value] = {"lines": count}
        return render(style, clock.now_ns(), Level.WARNING, process, "log.dropped", fields)

    writer.on_drop = on_drop
    writer.start()
    try:
        yield log
    finally:
        writer.close()


def style_of(form: str, descriptor: int = 2) -> Style:
    """What lines look like on a descriptor. Colours are for terminals whose user wants them."""
    is_terminal = os.isatty(descriptor)
    is_text = form == "text" or (form == "auto" and is_terminal)
    refused = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
    return Style(is_text=is_text, is_coloured=is_text and is_terminal and not refused)
