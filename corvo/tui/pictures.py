"""Pictures of a frame as SVG, and the files of the key that saves them."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

_THEME: Final = TerminalTheme(
    (20, 22, 26),
    (216, 220, 228),
    [
        (20, 22, 26),
        (255, 122, 102),
        (79, 224, 184),
        (255, 194, 71),
        (90, 162, 255),
        (226, 184, 255),
        (79, 224, 224),
        (216, 220, 228),
    ],
)
_MOMENT: Final = re.compile(r"\.[0-9]+|[^0-9TZ]")


def picture(lines: Sequence[Text], width: int, title: str) -> str:
    """Lines as SVG, without anything that is loaded from elsewhere."""
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    for line in lines:
        console.print(line, no_wrap=True, crop=True)
    plain = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    written = console.export_svg(title=title, theme=_THEME, code_format=plain, unique_id=title)
    # Lines of a file end without blanks; and that font has every glyph of a frame.
    lines_of_file = (f"{each.rstrip()}\n" for each in written.splitlines())
    drawn = "".join(lines_of_file).replace("Fira Code", "DejaVu Sans Mono")
    return drawn.replace("<svg class", '<svg xml:space="preserve" class')


def lines_text(lines: Sequence[Text]) -> str:
    """A frame without styles, as a file has it."""
    return "".join(f"{each.plain.rstrip()}\n" for each in lines)


def save(lines: Sequence[Text], width: int, at: str) -> str:
    """Write a frame as SVG and as text; returns a sentence about it."""
    folder = Path.cwd()
    name = f"corvo-top-{_MOMENT.sub('', at)}" if at else "corvo-top"
    try:
        for ending, text in (
            ("svg", picture(lines, width, name)),
            ("txt", lines_text(lines)),
        ):
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    except OSError as error:
        return f"not saved: {error.strerror or error} ({folder})"
    return f"saved {name}.svg and .txt in {folder}"
