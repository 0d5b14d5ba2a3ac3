"""Progress on stderr: one line that is redrawn on a terminal, a line now and then elsewhere."""

import shutil
import sys
import time
from typing import Final

from corvo.client_commands.tables import grouped, span

_REDRAW_S: Final = 0.1
_LINE_S: Final = 5.0
_BAR: Final = 24
_BLOCK: Final = 4
_STEPS_PER_S: Final = 8


class Progress:
    """The progress of one task."""

    def __init__(self, noun: str, *, is_quiet: bool) -> None:
        self._noun = noun
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown_at = self._began
        self._is_drawn = False

    def show(self, done: int, total: int | None) -> None:
        """Draw how far it is, if the last drawing is old enough."""
        now = time.monotonic()
        if self._is_quiet or now - self._shown_at < (_REDRAW_S if self._is_terminal else _LINE_S):
            return
        self._shown_at = now
        elapsed_s = now - self._began
        text = progress_text(self._noun, done, total, elapsed_s, is_moving=self._is_terminal)
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            self._is_drawn = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False


def progress_text(
    noun: str, done: int, total: int | None, elapsed_s: float, *, is_moving: bool
) -> str:
    """One line: a bar, the count, the speed, and the time left if the total is known.

    Without a total, as of a pipe, a block moves to and fro in the bar, where it can be redrawn.
    """
    speed = done / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{grouped(round(speed))}/s"]
    if total is None and not is_moving:
        return "  ".join([f"{grouped(done)} {noun}", *parts])
    if total is None:
        last = _BAR - _BLOCK
        step = int(elapsed_s * _STEPS_PER_S) % (2 * last)
        before = min(step, 2 * last - step)
        bar = "." * before + "#" * _BLOCK + "." * (last - before)
        return "  ".join([f"[{bar}] {grouped(done)} {noun}", *parts])
    filled = _BAR if done >= total else _BAR * done // total
    if speed and done < total:
        parts.append(f"{span(int((total - done) / speed))} left")
    bar = "#" * filled + "." * (_BAR - filled)
    return "  ".join([f"[{bar}] {grouped(done)}/{grouped(total)} {noun}", *parts])
