"""`corvo top`: its options, and the loop between keys, server and screen."""

import argparse
import locale
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.options import Verb, positive, seconds
from corvo.client_commands.records import JSON, JSONL, TABLE
from corvo.client_commands.session import Session
from corvo.tui import keys, plain
from corvo.tui.fetching import Collector, Fetcher
from corvo.tui.frame import frame
from corvo.tui.looks import Look
from corvo.tui.pictures import save
from corvo.tui.places import Place
from corvo.tui.terminal import Terminal
from corvo.tui.ui import Ask, Change, Copy, Mouse, Quit, Redraw, Save, Ui, Wish
from corvo.tui.views import QUEUE_COLUMNS

SUMMARY: Final = "show queues, workers, shards and failing jobs live in the terminal"
AUTO, MONO, HIGH_CONTRAST = "auto", "mono", "high-contrast"
THEMES: Final = (AUTO, "dark", "light", MONO, HIGH_CONTRAST)
_THEME: Final = "CORVO_THEME"
_INSTANT: Final = "instant"
_SAMPLE_S: Final = 1.0
"""Between the two samples of `--once`, so that rates are real."""
_AGE_S: Final = 1.0
"""Ages on the screen are not older than this, with any delay."""


class Options(argparse.Namespace):
    """The options that are read."""

    filter: str
    delay: float
    count: int
    view: str
    queue: str
    sort: str
    once: str | None
    json: bool
    jsonl: bool
    plain: bool
    no_color: bool
    theme: str | None
    ascii: bool
    read_only: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `corvo top`."""
    parser.add_argument(
        "filter", nargs="?", default="", help="rows that have this text; !TEXT: that have not"
    )
    parser.add_argument(
        "-d",
        "--delay",
        type=seconds,
        default=2.0,
        metavar="TIME",
        help="time between two refreshes (default: 2s)",
    )
    parser.add_argument(
        "-n",
        "--count",
        type=positive,
        default=0,
        metavar="N",
        help="end after N refreshes (default: no end)",
    )
    parser.add_argument(
        "--view", choices=keys.TABS, default=keys.QUEUES, help="the first view (default: queues)"
    )
    parser.add_argument(
        "--queue",
        default="",
        metavar="PATTERN",
        help="show only queues whose names match, such as emails.*",
    )
    parser.add_argument(
        "--sort",
        default="",
        metavar="COLUMN[:asc|:desc]",
        help=f"order of the queues, by one of {', '.join(each.key for each in QUEUE_COLUMNS)}",
    )
    parser.add_argument(
        "--once",
        nargs="?",
        const="",
        choices=("", _INSTANT),
        help="print all rows and end, after two samples within a second;"
        " --once=instant takes one sample, and has no rates",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and end")
    parser.add_argument(
        "--jsonl", action="store_true", help="print a JSON document on a line at each refresh"
    )
    parser.add_argument(
        "--plain", action="store_true", help="print all rows at each refresh, without a screen"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours, as with NO_COLOR")
    parser.add_argument(
        "--theme",
        choices=THEMES,
        default=None,
        help="mono: no colours; high-contrast: no dim letters; auto, dark and light: the colours of"
        " the terminal (default: CORVO_THEME, or auto)",
    )
    parser.add_argument("--ascii", action="store_true", help="use ASCII only")
    parser.add_argument("--read-only", action="store_true", help="refuse all changes")


def top(session: Session, options: argparse.Namespace) -> int:
    """Run it as the options say."""
    own = Options(**vars(options))
    sort, is_reversed = read_sort(own.sort)
    collector = Collector(session.client, queues=own.queue)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and has_screen(os.environ)
    own.json = own.json or session.output == JSON
    own.jsonl = own.jsonl or session.output == JSONL
    if own.json or own.jsonl or own.plain or own.once is not None or not is_terminal:
        return _print(collector, own, sort, is_reversed=is_reversed)
    collector.collect(None)  # an address without a server ends the program before the screen opens
    ui = Ui(
        view=own.view,
        delay_s=own.delay,
        look=Look(is_ascii(own.ascii, locale.getencoding())),
        sort=sort,
        is_reversed=is_reversed,
        wanted=own.filter,
        is_read_only=own.read_only,
    )
    encoding = "ascii" if ui.look.is_ascii else "utf-8"
    theme = read_theme(own.theme, os.environ)
    colours = has_colour(own.no_color or theme == MONO, os.environ)
    with Terminal(
        has_colour=colours, has_dim=theme != HIGH_CONTRAST, encoding=encoding
    ) as terminal:
        return _loop(terminal, ui, collector, own.count)


def read_theme(wanted: str | None, environment: Mapping[str, str]) -> str:
    """The theme of an option or of the environment. Raises `CommandFailed`."""
    found = wanted or environment.get(_THEME) or AUTO
    if found not in THEMES:
        raise CommandFailed(
            "BAD_USAGE", f"{_THEME}={found} is invalid: expected one of {', '.join(THEMES)}"
        )
    return found


def is_ascii(is_wanted: bool, encoding: str) -> bool:
    """Whether only ASCII can be shown."""
    return is_wanted or encoding.lower().replace("-", "") != "utf8"


def has_screen(environment: Mapping[str, str]) -> bool:
    """Whether a terminal can move its cursor."""
    return environment.get("TERM") != "dumb"


def has_colour(is_off: bool, environment: Mapping[str, str]) -> bool:
    """Whether colours are used."""
    return not (is_off or environment.get("NO_COLOR"))


def read_sort(text: str) -> tuple[str, bool]:
    """A column, and whether its order is reversed. Raises `CommandFailed`."""
    if not text:
        return "", False
    name, _, order = text.partition(":")
    column = next((each for each in QUEUE_COLUMNS if each.key == name), None)
    if column is None or order not in {"", "asc", "desc"}:
        names = ", ".join(each.key for each in QUEUE_COLUMNS)
        raise CommandFailed(
            "BAD_USAGE", f"--sort {text!r} is invalid: expected COLUMN[:asc|:desc], one of {names}"
        )
    return name, bool(order) and (order == "desc") is not column.is_descending


# On a terminal.


def _loop(terminal: Terminal, ui: Ui, collector: Collector, count: int) -> int:
    fetcher = Fetcher(collector, terminal.wake)
    fetcher.want(ui.wanted, ui.delay_s)
    fetcher.start()
    refreshes = 1
    last, is_pressed = collector.data, True
    try:
        while True:
            data, said = fetcher.take()
            if data.summary is not last.summary:
                refreshes += 1
            has_news, last = data is not last or bool(said), data
            if said:
                ui.message = said[-1]
            ui.show(data)
            if has_news or is_pressed or not terminal.is_drawn:
                terminal.draw(frame(ui, *terminal.size))
            if count and refreshes > count:
                return OK
            is_pressed = False
            for key in terminal.wait(_AGE_S):
                is_pressed = True
                for wish in ui.press(key):
                    if isinstance(wish, Quit):
                        return OK
                    _grant(wish, terminal, ui, fetcher)
                fetcher.want(ui.wanted, ui.delay_s, ui.span)
    finally:
        fetcher.stop()


def _grant(wish: Wish, terminal: Terminal, ui: Ui, fetcher: Fetcher) -> None:
    """Do what a key asked for."""
    match wish:
        case Redraw():
            terminal.forget()
        case Change():
            fetcher.do(wish)
        case Ask():
            fetcher.want(ui.wanted, ui.delay_s, ui.span, now=True)
        case Copy():
            terminal.copy(wish.text)
        case Mouse():
            terminal.mouse(is_on=wish.is_on)
            ui.message = f"mouse {'on' if wish.is_on else 'off'}"
        case Save():
            columns, lines = terminal.size
            summary = ui.data.summary
            at = summary.at if summary is not None else ""
            ui.message = save(frame(ui, columns, lines), columns, at)


# Without one.


def _print(collector: Collector, own: Options, sort: str, *, is_reversed: bool) -> int:
    place = Place(own.view)
    look = Look(is_ascii(own.ascii, sys.stdout.encoding))
    is_stream = own.jsonl or (own.plain and own.once is None)
    left = own.count or (0 if is_stream else 1)
    if own.once != _INSTANT:
        collector.collect(None)
        time.sleep(min(_SAMPLE_S, own.delay))
    while True:
        collector.collect(place if place.wanted and not own.json else None)
        if own.jsonl or own.json:
            sys.stdout.write(plain.document(collector.data).decode() + "\n")
        else:
            sys.stdout.write(
                plain.text(collector.data, place, look, own.filter, sort, is_reversed=is_reversed)
            )
        sys.stdout.flush()
        if left == 1:
            return OK
        left = max(0, left - 1)
        time.sleep(own.delay)


VERBS: Final = {
    "top": Verb(
        SUMMARY,
        top,
        add_options,
        (TABLE, JSON, JSONL),
        (
            "corvo top",
            "corvo top --view errors --server q1.example.net:8080,q2.example.net:8080",
            "corvo top --once --sort dead",
            "corvo top --jsonl -d 5s -n 12",
        ),
    )
}
