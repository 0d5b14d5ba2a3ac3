"""A frame: all lines of the screen, out of data, the state of the keys, and the size.

No line is wider than the screen, and there are never more lines than it has.
"""

from functools import partial
from typing import Final

from rich.text import Text

from corvo.client.dashboard import Cluster, Summary
from corvo.tui import keys
from corvo.tui.keys import BINDINGS, bindings_of
from corvo.tui.looks import Look, Ranked, chosen, cut, fit, flow, number, rate, span
from corvo.tui.model import Data, Rate, warnings
from corvo.tui.pages import SELECTED, Page, Row, fitting, heading, line, longest_in
from corvo.tui.places import PARTS
from corvo.tui.ui import COMMAND, FILTER, Prompt, Ui

WIDTH_MIN: Final = 60
HEIGHT_MIN: Final = 12
_WIDE: Final = (100, 30)
_TALL: Final = 20
_PANEL_ROWS: Final = 5
_ROWS_LEAST: Final = 5
"""Lines of a table, with its titles, before it has lines above it."""
_BARS: Final = 8
_ADDRESS_MAX: Final = 30
_BAD_SHARE: Final = 0.01


def frame(ui: Ui, width: int, height: int) -> list[Text]:
    """The lines of the screen."""
    data, look = ui.data, ui.look
    ui.width = width
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        return [cut(_totals(data, look), width)][:height]
    if ui.help_top is not None:
        lines = _help(ui, width, height)
    elif ui.chosen is not None:
        lines = _columns(ui, ui.chosen, height)
    else:
        lines = _screen(ui, width, height)
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
    lines = [_title(ui, width), _rates(ui, width)]
    if data.error:
        what = "refused" if data.is_refused else "no answer"
        waited = f"{what} for {span(data.silent_s)}, retrying: " if data.summary else ""
        lines.append(Text(f" {waited}{look.safe(data.error)}", style="bold reverse"))
    lines += _warnings(data, look, width, height)
    lines.append(_tabs(ui, width))
    panel = _panel(ui, width, height)
    page = ui.page()
    room = height - 1 - len(lines) - len(panel)
    lines += _table(ui, page, width, room, len(lines))
    lines += [Text("")] * (height - 1 - len(lines) - len(panel))
    return [*lines, *panel]


def _warnings(data: Data, look: Look, width: int, height: int) -> list[Text]:
    """What is not well, as many sentences on a line as it has room for."""
    room = 3 if height >= _WIDE[1] else 2 if height >= _TALL else 1
    told = [cut(Text(f"! {look.safe(each)}"), width - 2) for each in warnings(data)]
    for count in range(len(told), 0, -1):
        more = [Text(f"(and {len(told) - count} more)")] if count < len(told) else []
        lines = flow([*told[:count], *more], "  ", width - 2)
        if len(lines) <= room or count == 1:
            return [Text.assemble(" ", (each.plain, "bold yellow")) for each in lines[:room]]
    return []


def _table(ui: Ui, page: Page, width: int, room: int, above: int) -> list[Text]:
    tab, look = ui.tab, ui.look
    rows = ui.rows(page)
    heads = [Text(" ").append_text(each) for each in page.heads][: max(1, room - _ROWS_LEAST)]
    tails = [Text(" ").append_text(each) for each in page.tails]
    lines = list(heads)
    if not rows:
        ui.settle(page, rows, 1)
        wanted = ui.filter_text
        empty = f"no row matches {look.safe(wanted)!r}" if wanted and page.rows else page.empty
        return [*lines, Text(f" {empty}"), *tails][:room]
    sizes = fitting(page.columns, width - 2, partial(longest_in, page.rows, look))
    sort = (tab.sort or page.sort) if page.is_list else ""
    lines.append(Text(" ").append_text(heading(sizes, look, sort, is_reversed=tab.is_reversed)))
    tails = tails[: max(0, room - len(lines) - 3)]
    space = max(1, room - len(lines) - len(tails))
    ui.settle(page, rows, space)
    ui.first_line = above + len(lines)
    for row in rows[tab.top : tab.top + space]:
        is_selected = page.is_list and row.key == tab.selected
        shown = Text(_gutter(row, tab.marked, is_selected=is_selected))
        shown.append_text(line(row, sizes))
        if is_selected:
            shown = _selected(fit(shown, width))
        elif row.key in tab.marked:
            shown.stylize("bold")
        lines.append(shown)
    return [*lines, *tails]


def _selected(text: Text) -> Text:
    """A line without colours and dim letters, which are hard to read when reversed."""
    spans = [span for span in text.spans if span.style in _KEPT]
    return Text(text.plain, SELECTED, spans=spans)


_KEPT: Final = frozenset({"bold", "underline"})


def _gutter(row: Row, marked: set[str], *, is_selected: bool) -> str:
    if row.key in marked:
        return "X" if is_selected else "x"
    return ">" if is_selected else " "


# Lines that every view has.


def _title(ui: Ui, width: int) -> Text:
    data, look = ui.data, ui.look
    summary = data.summary
    left: list[Ranked] = [(7, Text("corvo top", style="bold"))]
    right: list[Ranked] = []
    if summary is not None:
        left += _health(summary, data, look, is_short=width < _WIDE[0])
        right.append((5, Text(summary.at.partition("T")[2][:8] + " UTC")))
    right.append((6, Text(f"every {ui.delay_s:g} s")))
    if ui.frozen is not None:
        frozen_s = (ui.latest.at_ns - ui.frozen.at_ns) / 1e9
        right.append((0, Text(f"paused {span(frozen_s)}", style="bold reverse")))
    elif data.error:
        right.append((0, Text("refused" if data.is_refused else "no answer", style="bold")))
    else:
        right.append((0, Text("live" if summary is not None else "connecting")))
    # Both sides give way together: the clock goes before the address, and health stays longest.
    least = 7
    start, end = chosen(left, f" {look.dot} ", least), chosen(right, "  ", least)
    while start.cell_len + end.cell_len + 4 > width and least:
        least -= 1
        start, end = chosen(left, f" {look.dot} ", least), chosen(right, "  ", least)
    return fit(Text(" ").append_text(start), width - end.cell_len - 1).append_text(end)


def _health(summary: Summary, data: Data, look: Look, *, is_short: bool) -> list[Ranked]:
    led = sum(shard.status == "up" for shard in summary.shards)
    count = len(summary.shards)
    word = "shards" if is_short else "shards lead"
    address = cut(Text(look.safe(data.server)), _ADDRESS_MAX)
    shown = Text(f"{led}/{count} {word}", style="" if led == count else "bold")
    cluster = summary.cluster
    if not count:
        return [(4, address)]  # a server of an older version
    if not isinstance(cluster, Cluster):
        return [(4, address), (1, shown)]
    up = sum(node.is_reachable is not False for node in cluster.nodes)
    lost = "1 loss" if cluster.can_lose == 1 else f"{cluster.can_lose} losses"
    survives = f"can lose {cluster.can_lose}" if is_short else f"survives {lost}"
    nodes = Text(f"{up}/{len(cluster.nodes)} nodes")
    nodes.style = "" if up == len(cluster.nodes) else "bold"
    return [
        (4, address),
        (0, nodes),
        (1, shown),
        (2, Text(survives, style="" if cluster.can_lose else "bold")),
    ]


def _rates(ui: Ui, width: int) -> Text:
    data, look = ui.data, ui.look
    total, bars = data.total_rate, data.total_bars(ui.span)
    own = total or Rate()
    is_bad = own.error_share >= _BAD_SHARE
    parts: list[Ranked] = []
    for rank, title, value, numbers in (
        (2, "in", own.enqueued, bars.enqueued),
        (3, "done", own.completed, bars.completed),
        (0, "fail", own.failed, bars.failed),
    ):
        text = Text(f"{title} {rate(value if total else None, look.unknown)}/s")
        if title == "fail" and is_bad:
            text = Text(f"{text.plain}!", style="bold")
        if width >= _WIDE[0]:
            text = Text.assemble(text, " ", look.bars(numbers, _BARS))
        parts.append((rank, text))
    totals = data.summary.totals if data.summary is not None else {}
    dead = totals.get("dead", 0)
    parts += [
        (0, Text(f"pend {number(totals.get('pending', 0))}")),
        (5, Text(f"act {number(totals.get('active', 0))}")),
        (1, Text(f"dead {number(dead)}", style="bold" if dead else "")),
    ]
    if data.summary is not None:
        told = data.summary.workers
        parts.append((6, Text(f"workers {told.alive}")))
        if told.not_fetching:
            parts.append((4, Text(f"not fetching {told.not_fetching}!", style="bold")))
    least = 6
    while chosen(parts, "  ", least).cell_len + 1 > width and least:
        least -= 1
    return Text(" ").append_text(chosen(parts, "  ", least))


def _tabs(ui: Ui, width: int) -> Text:
    look, place = ui.look, ui.tab.place
    base = ui.stack[0].place.view
    gap = f" {look.rule} " if width >= 80 else " "
    text = Text(f"{look.rule} ")
    if place.view == keys.JOB:
        names = [(base, False), *((each, each == ui.tab.part) for each in PARTS)]
        shown = [name if not n else f"{n} {name}" for n, (name, _) in enumerate(names)]
        shown[0] = f"{base} > job"
    else:
        names = [(view, view == base) for view in keys.TABS]
        shown = [f"{n} {view}" for n, view in enumerate(keys.TABS, start=1)]
    for label, (_, is_open) in zip(shown, names, strict=True):
        text.append(label, "bold reverse" if is_open else "")
        if is_open and len(ui.stack) > 1 and place.view != keys.JOB:
            named = place.about or place.worker
            text.append(" > ").append_text(cut(Text(look.safe(named), style="bold"), 40))
        text.append(gap)
    if ui.filter_text:
        text.append(f"/{look.safe(ui.filter_text)} ", "bold")
    if ui.tab.marked:
        text.append(f"marked {len(ui.tab.marked)} ", "bold")
    text = cut(text, width)
    return text.append(look.rule * (width - text.cell_len))


def _foot(ui: Ui, width: int) -> Text:
    look = ui.look
    if ui.question is not None:
        return _asking(ui.question.text, width)
    if ui.prompt is not None:
        return _typing(ui.prompt, look, width)
    if ui.message:
        return Text(f" {look.safe(ui.message)}", style="bold")
    if ui.help_top is not None:
        return Text(" j k scroll  any other key closes the help")
    if ui.chosen is not None:
        return Text(" j k move  space show or hide  enter done")
    end = Text.assemble(("?", "bold"), " help  ", ("q", "bold"), " quit ")
    if ui.count and ui.tab.selected:
        at = f"row {number(ui.tab.index + 1)} of {number(ui.count)}   "
        end = Text(at).append_text(end) if width >= 80 else end
    text = Text(" ")
    is_inside = len(ui.stack) > 1 or ui.tab.wanted or ui.tab.marked
    for binding in bindings_of(ui.tab.place.view):
        if not binding.short or (binding.action == "back" and not is_inside):
            continue
        part = Text.assemble((binding.keys[0], "bold"), f" {binding.short}  ")
        if text.cell_len + part.cell_len + end.cell_len <= width:
            text.append_text(part)
    return fit(text, width - end.cell_len).append_text(end)


def _typing(prompt: Prompt, look: Look, width: int) -> Text:
    """A prompt whose end is always in sight."""
    about = "" if prompt.kind == COMMAND else f"{prompt.label}: "
    sign = ":" if prompt.kind == COMMAND else ""
    keys_of = "enter keep  esc drop" if prompt.kind == FILTER else "enter run  esc drop"
    typed = Text(f" {about}{sign}{look.safe(prompt.text)}_", style="bold")
    if typed.cell_len + len(keys_of) + 3 <= width:
        return typed.append(f"   {keys_of}")
    plain = typed.plain
    while Text(plain).cell_len > width - 1:
        plain = plain[1:]
    return Text(f"~{plain}", style="bold")


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
        f"{lost}pend {number(totals.get('pending', 0))} dead {number(totals.get('dead', 0))}"
        f" act {number(totals.get('active', 0))} in {came}/s done {done}/s"
    )


# The panels below the queues.


def _panel(ui: Ui, width: int, height: int) -> list[Text]:
    is_wide = width >= _WIDE[0] and height >= _WIDE[1]
    if not is_wide or ui.zoom == 2 or ui.tab.place.view != keys.QUEUES:
        return []
    count = _PANEL_ROWS if ui.zoom == 0 else height // 2 - 2
    half = width // 2
    left, right = _shards(ui.data, ui.look), _failing(ui.data, ui.look, count)
    gap = "|" if ui.look.is_ascii else "│"
    lines = [
        _rule(ui.look, "shards", half).append_text(_rule(ui.look, "failing now", width - half))
    ]
    for place in range(min(count, max(_PANEL_ROWS, len(left), len(right)))):
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
        state = look.state("leader", leader) if is_up else look.state("dead", "no leader")
        state.stylize("" if is_up else "bold")
        mirror = "" if shard.mirror == "following" else f"mirror {shard.mirror}"
        lines.append(
            Text.assemble(
                f" {shard.shard:>3}  ",
                fit(state, 18),
                fit(Text(f"  term {shard.term}" if shard.term else ""), 12),
                (f"  {mirror}", "bold"),
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


def _failing(data: Data, look: Look, count: int) -> list[Text]:
    found = sorted(
        ((own.failed, name) for name, own in data.rates.items() if own.failed),
        key=lambda each: (-each[0], each[1]),
    )
    lines = []
    for value, name in found[:count]:
        share = data.rates[name].error_share * 100
        text = Text(f" {rate(value, look.unknown):>7}/s ")
        text.append_text(fit(Text(look.safe(name)), 24))
        text.append(f" {share:5.1f}% of runs", "bold" if share >= 1 else "")
        lines.append(text)
    return lines or [Text(" no failed run in the last seconds" if data.rates else "")]


def _help(ui: Ui, width: int, height: int) -> list[Text]:
    """The keys of a view, in as many columns as fit; what does not fit is scrolled to."""
    here = bindings_of(ui.tab.place.view)
    cells = []
    for binding in BINDINGS:
        if binding in here:
            name = " ".join(binding.keys)
            if binding.action in {"tab", "part"}:
                name = f"{binding.keys[0]}-{binding.keys[-1]}"
            cells.append(
                Text.assemble(
                    (f" {name:<14}", "bold"), binding.about + " (asks first)" * binding.changes
                )
            )
    widest = max(cell.cell_len for cell in cells) + 2
    room, across = height - 3, max(1, width // widest)
    rows = -(-len(cells) // across)
    assert ui.help_top is not None, "the help is open"
    ui.help_top = max(0, min(ui.help_top, rows - room))
    lines = [Text(f" keys in {ui.tab.place.view}", style="bold")]
    for place in range(ui.help_top, min(rows, ui.help_top + room)):
        there = [cells[at] for at in range(place, len(cells), rows)]
        if across == 1:
            lines += there
        else:
            lines.append(Text.assemble(*(fit(cell, widest) for cell in there)))
    left = rows - ui.help_top - room
    if left > 0:
        lines.append(Text(f" {left} more", style="dim"))
    return lines


def _columns(ui: Ui, chosen_at: int, height: int) -> list[Text]:
    """The columns to choose from."""
    lines = [Text(f" columns of {ui.tab.place.view}", style="bold")]
    for place, (_, title, is_shown) in enumerate(ui.columns()):
        text = Text(f"{'>' if place == chosen_at else ' '}[{'x' if is_shown else ' '}] {title}")
        if place == chosen_at:
            text.stylize(SELECTED)
        lines.append(text)
    top = max(0, chosen_at + 2 - (height - 1))
    return lines[top:]
