"""The picture of a first session, from a real one: `python -m tests.pages.pictures`.

With a folder as its argument, it is written there instead.
"""

import shlex
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.text import Text

from bench.server import serving
from corvo.tui.pictures import picture
from tests.client_commands.running import Server
from tests.support.pages import ROOT

NAME: Final = "first-session.svg"
COMMANDS: Final = (
    ("enqueue", "mail", '{"to": "ada"}', "--id", "letter-1"),
    ("enqueue", "mail", '{"to": "bob"}', "--delay", "5m"),
    ("worker", "mail", "--exec", "echo a letter to {payload.to}", "--until-empty"),
    ("inspect", "mail~letter-1"),
    ("queues",),
)
_WIDTH: Final = 100


def session(url: str) -> list[Text]:
    """The commands with what they print on a terminal."""
    server, lines = Server(url), []
    for words in COMMANDS:
        done = server.on_terminal(*words, COLUMNS=str(_WIDTH))
        assert done.code == 0, done
        # A tilde within a word needs no quotes.
        typed = shlex.join(["corvo", *words]).replace("'mail~letter-1'", "mail~letter-1")
        lines.append(Text.assemble(("$ ", "green"), (typed, "bold")))
        # The name of a worker begins with that of its machine.
        printed = done.out.replace(socket.gethostname(), "laptop")
        lines += [Text(line) for line in printed.splitlines()]
        lines.append(Text())
    return lines[:-1]


def drawn(url: str) -> str:
    """The picture of a session with this server, as SVG."""
    return picture(session(url), _WIDTH, "corvo-first-session")


def main(folder: Path) -> None:
    """Draw it."""
    with tempfile.TemporaryDirectory() as data, serving(Path(data)) as server:
        svg = drawn(server.url)
    (folder / NAME).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
