"""The pictures of docs/top.md, from a real node with work: `python -m tests.tui.pictures`.

With a folder as its argument, they are written there instead.
"""

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from corvo.client.calls import Client
from corvo.tui import keys
from corvo.tui.fetching import Collector
from corvo.tui.frame import frame
from corvo.tui.ui import Ask, Ui
from tests.tui.demo import demo

DOCS: Final = Path(__file__).parents[2] / "docs"
_WARMING_S: Final = 75.0
"""A node knows all of its workers after a minute, and the first whole minute has ended."""
_SAMPLE_S: Final = 1.0
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
_SCENES: Final = (
    ("queues", 140, 30, ()),
    ("queue", 100, 24, ("/", *"emails.send", "enter", "enter")),
    ("errors", 100, 24, ("4",)),
)


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


def main(folder: Path) -> None:
    """Make them."""
    pause = Event()
    with demo() as url, Client([url]) as client:
        collector = Collector(client)
        pause.wait(_WARMING_S)
        for name, width, height, pressed in _SCENES:
            ui = Ui(view=keys.QUEUES)
            for _ in range(3):
                collector.collect(None)
                ui.show(collector.data)
                pause.wait(_SAMPLE_S)
            for key in pressed:
                ui.show(collector.data)
                frame(ui, width, height)
                if Ask() in ui.press(key):
                    collector.collect(ui.wanted)
            ui.show(collector.data)
            lines = frame(ui, width, height)
            (folder / f"top-{name}.svg").write_text(
                picture(lines, width, f"corvo-top-{name}"), encoding="utf-8"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
