"""The terminal: the only module that reads keys, takes signals, and writes to the screen.

    with Terminal() as terminal:
        keys = terminal.wait(0.5)

While it is open, keys arrive at once and are not shown, the alternate screen is on and the cursor
is hidden. All of that is undone when the block ends, also by an exception, and while the program is
suspended.
"""

import os
import select
import shutil
import signal
import sys
import termios
import tty
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final, Self, TypeAlias

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from corvo.tui.keys import Keys

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_MOUSE_ON: Final = "\x1b[?1000h\x1b[?1006h"
_MOUSE_OFF: Final = "\x1b[?1006l\x1b[?1000l"
_ESCAPE_S: Final = 0.025
"""An escape sequence arrives whole within this time; a key alone is followed by nothing."""
_READ_BYTES: Final = 1_024

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class Terminal:
    """The screen and the keyboard."""

    def __init__(self, *, has_colour: bool, has_dim: bool, encoding: str) -> None:
        self._has_colour = has_colour
        self._has_dim = has_dim
        self._encoding = encoding
        self._console = Console(force_terminal=True, color_system="standard", file=sys.stdout)
        self._input: Final = sys.stdin.fileno()
        self._output: Final = sys.stdout.fileno()
        self._settings = termios.tcgetattr(self._input)
        self._keys = Keys()
        self._shown: list[str] = []
        """The lines that are on the screen."""
        self._has_mouse = False
        self._handlers: dict[int, Handler] = {}
        self._signals: list[int] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._note)
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # The ends of the pipe stay open: the thread of the server may still write to it.

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        found = shutil.get_terminal_size()
        with suppress(OSError):
            found = os.get_terminal_size(self._output)
        return found.columns, found.lines

    def wake(self) -> None:
        """End `wait`. May be called by another thread."""
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def wait(self, timeout_s: float | None) -> list[str]:
        """The keys that arrive until something happens. Raises `KeyboardInterrupt`."""
        if self._keys.is_open:
            timeout_s = _ESCAPE_S
        ready, _, _ = select.select([self._input, self._wake_read], [], [], timeout_s)
        found: list[str] = []
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, _READ_BYTES)
        if self._input in ready:
            data = b""
            with suppress(OSError):
                data = os.read(self._input, _READ_BYTES)
            if not data:
                raise KeyboardInterrupt  # the terminal is gone
            found = self._keys.feed(data)
        elif self._keys.is_open:
            found = self._keys.close()
        self._handle()
        return found

    def draw(self, lines: Sequence[Text]) -> None:
        """Show lines; those that are there already are not written again."""
        written = [self._written(line) for line in lines]
        parts = []
        columns, _ = self.size
        for place, line in enumerate(written):
            if place >= len(self._shown) or self._shown[place] != line:
                # After a line that fills the screen, this would clear its last letter.
                rest = "\x1b[K" if lines[place].cell_len < columns else ""
                parts.append(f"\x1b[{place + 1};1H{line}{rest}")
        if len(written) < len(self._shown):
            parts.append(f"\x1b[{len(written) + 1};1H\x1b[J")
        self._shown = written
        self._write("".join(parts))

    @property
    def is_drawn(self) -> bool:
        """Whether the screen has the last lines, and was neither resized nor left meanwhile."""
        return bool(self._shown)

    def forget(self) -> None:
        """Draw all lines again the next time."""
        self._shown = []
        self._write("\x1b[2J")

    def copy(self, text: str) -> None:
        """Put a text into the clipboard, of terminals that allow it (OSC 52)."""
        self._write(f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07")

    def mouse(self, *, is_on: bool) -> None:
        """Take reports of clicks and the wheel, or leave them to the terminal."""
        self._has_mouse = is_on
        self._write(_MOUSE_ON if is_on else _MOUSE_OFF)

    # Inside.

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)
        self.wake()

    def _handle(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGTSTP:
                self._suspend()
            elif number in {signal.SIGWINCH, signal.SIGCONT}:
                self.forget()
            elif number == signal.SIGINT:
                raise KeyboardInterrupt
            else:
                raise SystemExit(128 + number)

    def _suspend(self) -> None:
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the program is continued
        signal.signal(signal.SIGTSTP, self._note)
        self._settings = termios.tcgetattr(self._input)
        self._begin()

    def _begin(self) -> None:
        tty.setcbreak(self._input, termios.TCSADRAIN)
        self._write(_ENTER + (_MOUSE_ON if self._has_mouse else ""))
        self._shown = []

    def _end(self) -> None:
        with suppress(OSError):
            self._write(f"\x1b[0m{_MOUSE_OFF if self._has_mouse else ''}{_LEAVE}")
        with suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._settings)

    def _written(self, line: Text) -> str:
        """A line with the sequences of its styles."""
        parts = []
        for segment in line.render(self._console):
            style = segment.style
            if style is None or not style:
                parts.append(segment.text)
                continue
            if not self._has_colour:
                style = style.without_color
            if style.dim and not self._has_dim:
                style += Style(dim=False)
            parts.append(style.render(segment.text, color_system=ColorSystem.STANDARD))
        return "".join(parts)

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            data = data[os.write(self._output, data) :]


_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)
