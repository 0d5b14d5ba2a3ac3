"""The pictures of docs/top.md, from a real node with work: `python -m tests.tui.pictures`.

With a folder as its argument, they are written there instead.
"""

import sys
from pathlib import Path
from threading import Event
from typing import Final

from corvo.client.calls import Client
from corvo.tui import keys
from corvo.tui.fetching import Collector
from corvo.tui.frame import frame
from corvo.tui.pictures import picture
from corvo.tui.ui import Ask, Ui
from tests.tui.demo import demo

DOCS: Final = Path(__file__).parents[2] / "docs"
_WARMING_S: Final = 75.0
"""A node knows all of its workers after a minute, and the first whole minute has ended."""
_SAMPLE_S: Final = 1.0
_SCENES: Final = (
    ("queues", 120, 30, ("w", "w")),
    ("queue", 100, 24, ("/", *"emails.send", "enter", "enter")),
    ("errors", 100, 24, ("4",)),
)


def main(folder: Path) -> None:
    """Make them."""
    pause = Event()
    with demo() as url, Client([url]) as client:
        collector = Collector(client)
        for _ in range(round(_WARMING_S / _SAMPLE_S)):
            collector.collect(None)
            pause.wait(_SAMPLE_S)
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
