"""A frame: all lines of the screen, out of data, the state of the keys, and the size.

No line is wider than the screen, and there are never more lines than it has.
"""

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from corvo.client.dashboard import Cluster, Summary
from corvo.tui import keys
from corvo.tui.keys import BINDINGS, bindings_of
from corvo.tui.looks import Look, cut, fit, joined, number, rate, span
from corvo.tui.model import Data, Rate, warnings
from corvo.tui.pages import SELECTED, Page, fitting, heading, line
from corvo.tui.ui import Ui

WIDTH_MIN: Final = 60
HEIGHT_MIN: Final = 12
_WIDE: Final = (100, 30)
_PANEL_ROWS: Final = 5
_BARS: Final = 8
_LATE_S: Final = 3.0


def frame(ui: Ui, width: int, height: int) -> list[Text]:
    """The lines of the screen."""
    data, look = ui.data, ui.look
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        return [cut(_totals(data, look), width)][:height]
    lines = _help(ui, height) if ui.is_help else _screen(ui, width, height)
    foot = _foot(ui, width)
    lines = lines[: height - 1]
    lines += [Text("")] * (height - 1 - len(lines))
    shown = [cut(each, width) for each in [*lines, foot]]
    if ui.frozen is None and data.error and data.summary is not None:
        for each in shown[:-1]:
            each.stylize("dim")
    return shown


def _screen(ui: Ui, width: int, height: int) -> list[Text]:
    data, look = ui.data, ui.look
    lines = [_title(ui, width), _rates(data, look, width)]
    if data.error:
        waited = f"no answer for {span(data.silent_s)}, retrying: " if data.summary else ""
        lines.append(Text(f" {waited}{look.safe(data.error)}", style="bold reverse"))
    told = warnings(data)
    room = 3 if height >= _WIDE[1] else 1
    lines += [Text(f" ! {look.safe(each)}", style="bold") for each in told[:room]]
    if len(told) > room:
        lines[-1].append(f" (and {len(told) - room} more)")
    lines.append(_tabs(ui, width))
    panel = _panel(ui, width, height)
    page = ui.page()
    room = height - 1 - len(lines) - len(panel)
    lines += _table(ui, page, width, room)
    lines += [Text("")] * (height - 1 - len(lines) - len(panel))
    return [*lines, *panel]


def _table(ui: Ui, page: Page, width: int, room: int) -> list[Text]:
    tab, look = ui.tab, ui.look
    rows = ui.rows(page)
    heads = [Text(" ").append_text(each) for each in page.heads][: max(0, room - 2)]
    tails = [Text(" ").append_text(each) for each in page.tails]
    lines = list(heads)
    if not rows:
        ui.settle(page, rows, 1)
        empty = f"no row matches {tab.wanted!r}" if tab.wanted and page.rows else page.empty
        return [*lines, Text(f" {empty}"), *tails][:room]
    sizes = fitting(page.columns, width - 2)
    sort = tab.sort or page.sort
    lines.append(Text(" ").append_text(heading(sizes, look, sort, is_reversed=tab.is_reversed)))
    tails = tails[: max(0, room - len(lines) - 3)]
    space = max(1, room - len(lines) - len(tails))
    ui.settle(page, rows, space)
    for row in rows[tab.top : tab.top + space]:
        is_selected = page.is_list and row.key == tab.selected
        shown = Text(">" if is_selected else " ").append_text(line(row, sizes))
        if is_selected:
            shown = fit(shown, width)
            shown.stylize(SELECTED)
        lines.append(shown)
    return [*lines, *tails]


# Lines that every view has.


def _title(ui: Ui, width: int) -> Text:
    data, look = ui.data, ui.look
    summary = data.summary
    parts: list[Text | str] = [Text("corvo top", style="bold")]
    right: list[Text | str] = []
    if summary is not None:
        parts += _health(summary, data)
        right.append(summary.at.partition("T")[2][:8] + " UTC")
    right.append(f"every {ui.delay_s:g} s")
    if ui.frozen is not None:
        right.append(Text("paused", style="bold reverse"))
    elif data.error:
        right.append(Text("no answer", style="bold"))
    else:
        right.append("live" if summary is not None else "connecting")
    left = Text(" ").append_text(joined(parts, f" {look.dot} "))
    end = joined(right, "  ")
    return fit(cut(left, width - end.cell_len - 2), width - end.cell_len - 1).append_text(end)


def _health(summary: Summary, data: Data) -> list[Text | str]:
    led = sum(shard.status == "up" for shard in summary.shards)
    count = len(summary.shards)
    is_led = led == count
    shown = Text(f"{led}/{count} shards lead", style="" if is_led else "bold")
    cluster = summary.cluster
    if not isinstance(cluster, Cluster):
        return [data.server, shown]
    up = sum(node.is_reachable is not False for node in cluster.nodes)
    lost = "1 loss" if cluster.can_lose == 1 else f"{cluster.can_lose} losses"
    return [
        data.server,
        Text(f"{up}/{len(cluster.nodes)} nodes", style="" if up == len(cluster.nodes) else "bold"),
        shown,
        Text(f"survives {lost}", style="" if cluster.can_lose else "bold"),
    ]


def _rates(data: Data, look: Look, width: int) -> Text:
    total, minutes = data.total_rate, data.total_minutes
    unknown = look.unknown
    own = total or Rate()
    text = Text(" in ")
    for title, value, bars in (
        ("", own.enqueued, minutes.enqueued),
        ("  done ", own.completed, minutes.completed),
        ("  fail ", own.failed, minutes.failed),
    ):
        text.append(f"{title}{rate(value if total else None, unknown)}/s ")
        if width >= _WIDE[0]:
            text.append_text(look.bars(bars, _BARS))
    totals = data.summary.totals if data.summary is not None else {}
    text.append(f"  pend {number(totals.get('pending', 0))}  act {number(totals.get('active', 0))}")
    dead = totals.get("dead", 0)
    text.append(f"  dead {number(dead)}", "bold" if dead else "")
    if data.summary is not None and width >= 110:
        told = data.summary.workers
        text.append(f"  workers {told.alive}")
        if told.not_fetching:
            text.append(f"  not fetching {told.not_fetching}!", "bold")
    return text


def _tabs(ui: Ui, width: int) -> Text:
    look, place = ui.look, ui.tab.place
    base = ui.stack[0].place.view
    text = Text(look.rule)
    for number_of, view in enumerate(keys.TABS, start=1):
        text.append(" ")
        is_open = view == base
        text.append(f"{number_of} {view}", "bold reverse" if is_open else "")
        if is_open and len(ui.stack) > 1:
            named = look.safe(place.about or place.worker)
            text.append(f" > {named[:40]}", "bold")
        text.append(f" {look.rule}" if width >= 80 else "")
    if ui.tab.wanted or ui.typed is not None:
        shown = ui.typed if ui.typed is not None else ui.tab.wanted
        text.append(f" /{look.safe(shown)}", "bold")
    text.append(" ")
    text = cut(text, width)
    return text.append(look.rule * (width - text.cell_len))


def _foot(ui: Ui, width: int) -> Text:
    look = ui.look
    if ui.question is not None:
        return _asking(ui.question.text, width)
    if ui.typed is not None:
        return Text(f" filter: {look.safe(ui.typed)}_   enter keep  esc drop", style="bold")
    if ui.message:
        return Text(f" {look.safe(ui.message)}", style="bold")
    if ui.is_help:
        return Text(" any key closes the help")
    text = Text(" ")
    for binding in bindings_of(ui.tab.place.view):
        if binding.short:
            text.append(binding.keys[0], "bold")
            text.append(f" {binding.short}  ")
    return text


def _asking(text: str, width: int) -> Text:
    """A question whose end, with the keys that answer it, is always in sight."""
    end = " [y/N] "
    shown = cut(Text(f" {text}", style="bold reverse"), width - len(end))
    return shown.append(end, "bold reverse")


def _totals(data: Data, look: Look) -> Text:
    if data.summary is None:
        return Text(look.safe(data.error or "connecting"))
    totals = data.summary.totals
    total = data.total_rate
    came = rate(total.enqueued if total else None, look.unknown)
    done = rate(total.completed if total else None, look.unknown)
    lost = "no answer " if data.error else ""
    return Text(
        f"{lost}pend {number(totals.get('pending', 0))} act {number(totals.get('active', 0))}"
        f" dead {number(totals.get('dead', 0))} in {came}/s done {done}/s"
    )


# The panels below the queues.


def _panel(ui: Ui, width: int, height: int) -> list[Text]:
    is_wide = width >= _WIDE[0] and height >= _WIDE[1]
    if not is_wide or ui.is_zoomed or ui.tab.place.view != keys.QUEUES:
        return []
    half = width // 2
    left, right = _shards(ui.data, ui.look), _failing(ui.data, ui.look)
    gap = "|" if ui.look.is_ascii else "│"
    lines = [
        _rule(ui.look, "shards", half).append_text(_rule(ui.look, "failing now", width - half))
    ]
    for place in range(_PANEL_ROWS):
        one = left[place] if place < len(left) else Text("")
        other = right[place] if place < len(right) else Text("")
        lines.append(Text.assemble(fit(one, half - 1), gap, fit(other, width - half)))
    return lines


def _rule(look: Look, title: str, width: int) -> Text:
    text = Text(f"{look.rule} {title} ")
    return text.append(look.rule * (width - text.cell_len))


def _shards(data: Data, look: Look) -> list[Text]:
    if data.summary is None:
        return []
    nodes = {}
    if isinstance(data.summary.cluster, Cluster):
        nodes = {node.number: look.safe(node.name) for node in data.summary.cluster.nodes}
    lines = []
    for shard in data.summary.shards:
        leader = look.unknown
        if shard.leader is not None:
            leader = nodes.get(shard.leader, f"node {shard.leader}")
        is_up = shard.status == "up"
        lines.append(
            joined(
                [
                    f" {shard.shard}",
                    look.state("leader", fit(Text(leader), 16).plain) if is_up else "",
                    "" if is_up else look.state("dead", "no leader", is_loud=True),
                    f"term {shard.term}" if shard.term else "",
                    f"mirror {shard.mirror}",
                ],
                "  ",
            )
        )
    # Shards that are not well come first: the panel has few lines.
    order = sorted(range(len(lines)), key=lambda place: data_is_well(data.summary, place))
    return [lines[place] for place in order]


def data_is_well(summary: Summary | None, place: int) -> bool:
    """Whether a shard has a leader, and the mirror follows it."""
    if summary is None:
        return True
    shard = summary.shards[place]
    return shard.status == "up" and shard.mirror == "following"


def _failing(data: Data, look: Look) -> list[Text]:
    found = sorted(
        ((own.failed, name) for name, own in data.rates.items() if own.failed),
        key=lambda each: (-each[0], each[1]),
    )
    lines = []
    for value, name in found[:_PANEL_ROWS]:
        share = data.rates[name].error_share * 100
        text = Text(f" {rate(value, look.unknown):>7}/s ")
        text.append_text(fit(Text(look.safe(name)), 24))
        text.append(f" {share:5.1f}% of runs", "bold" if share >= 1 else "")
        lines.append(text)
    return lines or [Text(" no failed run in the last seconds" if data.rates else "")]


def _help(ui: Ui, height: int) -> list[Text]:
    here = bindings_of(ui.tab.place.view)
    lines = [Text(f" keys in {ui.tab.place.view}", style="bold"), Text("")]
    cells = []
    for binding in BINDINGS:
        if binding in here:
            name = " ".join(binding.keys)
            cells.append(
                Text.assemble(
                    (f" {name if binding.action != 'tab' else '1-6':<14}", "bold"),
                    binding.about + " (asks first)" * binding.changes,
                )
            )
    rows = max(1, height - 4)
    columns = [cells[start : start + rows] for start in range(0, len(cells), rows)]
    width = max(cell.cell_len for cell in cells) + 2
    for place in range(len(columns[0])):
        text = Text("")
        for column in columns:
            if place < len(column):
                text.append_text(fit(column[place], width))
        lines.append(text)
    return lines


def lines_text(lines: Sequence[Text]) -> str:
    """A frame without styles, as a file has it."""
    return "".join(f"{each.plain.rstrip()}\n" for each in lines)
