"""The report of a run: one page of HTML with drawings in SVG, and nothing from elsewhere."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from chaos import history
from chaos.history import Event, Fault, Op, Phase, Run

LEADERS: Final = "leaders.json"
_WIDTH: Final = 1_000
_LEFT: Final = 150
_ROW: Final = 18
_CHART: Final = 110
_SECOND_NS: Final = 1_000_000_000
_SHOWN: Final = 200
_COLOURS: Final = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d")
_OK: Final = "#54a24b"
_FAIL: Final = "#f2b701"
_UNKNOWN: Final = "#e45756"


class Lead(msgspec.Struct, frozen=True):
    """A node leads a shard from a time on; no node if the name is empty."""

    t: int
    shard: int
    node: str


class Second(msgspec.Struct):
    """The answers of one second."""

    types: Counter[str] = msgspec.field(default_factory=Counter)
    latencies_ns: list[int] = []

    def late(self, share: float) -> float:
        """The milliseconds that so large a share of the answers needed at most."""
        if not self.latencies_ns:
            return 0.0
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


class Story(msgspec.Struct):
    """All of a history that the page shows."""

    run: Run | None = None
    phases: list[Phase] = []
    faults: list[Fault] = []
    leads: list[Lead] = []
    seconds: dict[int, Second] = {}
    codes: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    """Answers by op, type and code."""
    operations: int = 0
    """Acknowledged operations: one for each job of an answer, and at least one."""
    unknown: list[Op] = []
    """The first calls whose outcome is unknown."""
    events: int = 0
    start: int = 0
    end: int = 0

    def x(self, t: int) -> float:
        """The place of a time in a drawing."""
        width = _WIDTH - _LEFT - 10
        return _LEFT + width * (t - self.start) / max(1, self.end - self.start)


def gather(directory: Path) -> Story:
    """Read a history."""
    story = Story(faults=[], phases=[], leads=[], seconds={}, unknown=[])
    for record in history.read(directory):
        if isinstance(record, Op):
            _add(story, record)
        elif isinstance(record, Event):
            story.events += 1
        elif isinstance(record, Run):
            story.run = record
        elif isinstance(record, Phase):
            story.phases.append(record)
        elif isinstance(record, Fault):
            story.faults.append(record)
    leaders = directory / LEADERS
    if leaders.exists():
        story.leads = msgspec.json.decode(leaders.read_bytes(), type=list[Lead])
    times = [phase.t for phase in story.phases] + [fault.t_end for fault in story.faults]
    times += [second * _SECOND_NS for second in story.seconds]
    story.start = min(times, default=0)
    story.end = max(times, default=1)
    return story


def _add(story: Story, op: Op) -> None:
    second = story.seconds.setdefault(op.t_inv // _SECOND_NS, Second())
    second.types[op.type] += 1
    story.codes[op.f, op.type, op.code] += 1
    # A fetch that waits for a job is slow because the queue is empty.
    if op.type == "ok" and op.t_ret is not None and not op.args.wait_ms:
        second.latencies_ns.append(op.t_ret - op.t_inv)
    if op.type == "ok":
        res = op.res
        done = sum(not item.code for item in res.items)
        story.operations += max(1, len(res.created) + len(res.delivered) + done)
    if op.type == "info" and len(story.unknown) < _SHOWN:
        story.unknown.append(op)


# ---- the page


def html(story: Story, verdict: Sequence[str]) -> str:
    """The page."""
    run = story.run
    title = f"Chaos run with seed {run.seed}" if run is not None else "Chaos run"
    verified = sum(fault.verified for fault in story.faults)
    total = sum(story.codes.values())
    faults = f"{len(story.faults)} faults, {verified} of them verified"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{_about(run)} {total:,} attempts, {faults}.</p>",
        "<h2>Verdict</h2>",
        f"<pre>{escape(chr(10).join(verdict))}</pre>",
        "<h2>Timeline</h2>",
        _timeline(story),
        "<h2>Answers in each second</h2>",
        _answers(story),
        "<h2>Time to an answer</h2>",
        "<p>Milliseconds: median (blue) and 99 % (orange) of each second.</p>",
        _latencies(story),
        "<h2>Faults</h2>",
        _faults(story),
        "<h2>Answers by operation</h2>",
        _codes(story),
        f"<h2>Calls with an unknown outcome</h2><p>The first {_SHOWN}.</p>",
        _unknown(story),
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{chr(10).join(body)}</body></html>\n"
    )


_STYLE: Final = (
    "body{font:14px/1.4 system-ui,sans-serif;max-width:1040px;margin:2em auto;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{border:1px solid #ddd;padding:2px 6px;"
    "text-align:left;vertical-align:top}pre{background:#f6f6f6;padding:1em;overflow:auto}"
    "svg text{font:11px system-ui,sans-serif}.no{color:#b00}"
)


def _about(run: Run | None) -> str:
    if run is None:
        return ""
    nodes = ", ".join(node.name for node in run.nodes)
    return f"Corvo {escape(run.version)}, nodes {escape(nodes)}, {run.shards} shards."


def _svg(height: float, parts: Iterable[str]) -> str:
    return (
        f"<svg viewBox='0 0 {_WIDTH} {height:.0f}' width='{_WIDTH}' height='{height:.0f}'"
        f" role='img'>{''.join(parts)}</svg>"
    )


def _bar(story: Story, row: int, start: int, end: int, colour: str, tip: str) -> str:
    x = story.x(start)
    width = max(2.0, story.x(end) - x)
    return (
        f"<rect x='{x:.1f}' y='{row * _ROW + 3}' width='{width:.1f}' height='{_ROW - 5}'"
        f" fill='{colour}'><title>{escape(tip)}</title></rect>"
    )


def _name(row: int, text: str) -> str:
    return f"<text x='0' y='{row * _ROW + 13}'>{escape(text)}</text>"


def _timeline(story: Story) -> str:
    """A row for the phases, for each shard's leader, and for each kind of fault."""
    parts = [_name(0, "phase")]
    ends = [*[phase.t for phase in story.phases[1:]], story.end]
    for phase, end in zip(story.phases, ends, strict=False):
        parts.append(_bar(story, 0, phase.t, end, "#ddd", phase.name))
        parts.append(f"<text x='{story.x(phase.t) + 3:.1f}' y='13'>{escape(phase.name)}</text>")
    row = 1
    for shard in sorted({lead.shard for lead in story.leads}):
        parts += _leaders(story, row, shard)
        row += 1
    for name in sorted({fault.name for fault in story.faults}):
        parts.append(_name(row, name))
        for fault in story.faults:
            if fault.name == name:
                colour = "#d62728" if fault.verified else "#ccc"
                tip = f"{fault.n}: {name} of {fault.target}; {fault.proof or 'not verified'}"
                parts.append(_bar(story, row, fault.t, fault.t_end, colour, tip))
        row += 1
    return _svg(row * _ROW + 4, parts)


def _leaders(story: Story, row: int, shard: int) -> Iterator[str]:
    yield _name(row, f"leader of shard {shard}")
    leads = [lead for lead in story.leads if lead.shard == shard]
    nodes = sorted({lead.node for lead in story.leads if lead.node})
    ends = [*[lead.t for lead in leads[1:]], story.end]
    for lead, end in zip(leads, ends, strict=True):
        if lead.node:
            colour = _COLOURS[nodes.index(lead.node) % len(_COLOURS)]
            yield _bar(story, row, max(lead.t, story.start), end, colour, lead.node)
            x = story.x(max(lead.t, story.start)) + 2
            yield f"<text x='{x:.1f}' y='{row * _ROW + 13}'>{escape(lead.node)}</text>"


def _answers(story: Story) -> str:
    most = max((second.types.total() for second in story.seconds.values()), default=1)
    parts = _frame(f"{most}")
    width = max(1.0, story.x(story.start + _SECOND_NS) - _LEFT)
    for number, second in sorted(story.seconds.items()):
        y = float(_CHART)
        for kind, colour in (("ok", _OK), ("fail", _FAIL), ("info", _UNKNOWN)):
            height = _CHART * second.types[kind] / most
            y -= height
            if height:
                parts.append(
                    f"<rect x='{story.x(number * _SECOND_NS):.1f}' y='{y:.1f}'"
                    f" width='{width:.1f}' height='{height:.1f}' fill='{colour}'/>"
                )
    legend = "<p>Green: ok. Yellow: refused, nothing was changed. Red: the outcome is unknown.</p>"
    return legend + _svg(_CHART + 4, parts)


def _latencies(story: Story) -> str:
    most = max((second.late(0.99) for second in story.seconds.values()), default=1.0) or 1.0
    parts = _frame(f"{most:.0f} ms")
    for share, colour in ((0.5, _COLOURS[0]), (0.99, _COLOURS[1])):
        points = " ".join(
            f"{story.x(number * _SECOND_NS):.1f},{_CHART * (1 - second.late(share) / most):.1f}"
            for number, second in sorted(story.seconds.items())
            if second.latencies_ns
        )
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}'/>")
    return _svg(_CHART + 4, parts)


def _frame(top: str) -> list[str]:
    return [
        f"<line x1='{_LEFT}' y1='{_CHART}' x2='{_WIDTH}' y2='{_CHART}' stroke='#999'/>",
        f"<text x='0' y='11'>{escape(top)}</text><text x='0' y='{_CHART}'>0</text>",
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(each)}</th>" for each in head) + "</tr>"]
    lines += [
        "<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows
    ]
    return f"<table>{''.join(lines)}</table>"


def _faults(story: Story) -> str:
    rows = [
        (
            str(fault.n),
            f"{(fault.t - story.start) / _SECOND_NS:.1f} s",
            f"{(fault.t_end - fault.t) / _SECOND_NS:.1f} s",
            fault.name,
            fault.target,
            fault.proof if fault.verified else "not verified",
        )
        for fault in sorted(story.faults, key=lambda fault: fault.t)
    ]
    return _table(("n", "at", "lasted", "fault", "target", "proof"), rows)


def _codes(story: Story) -> str:
    rows = [
        (name, kind.replace("info", "unknown"), code, f"{count:,}")
        for (name, kind, code), count in sorted(story.codes.items())
    ]
    return _table(("op", "outcome", "code", "attempts"), rows)


def _unknown(story: Story) -> str:
    rows = [
        (
            str(op.n),
            f"{(op.t_inv - story.start) / _SECOND_NS:.2f} s",
            op.f,
            op.client,
            op.node,
            str(op.try_),
            op.code or "no answer",
        )
        for op in story.unknown
    ]
    return _table(("n", "at", "op", "client", "node", "try", "code"), rows)
