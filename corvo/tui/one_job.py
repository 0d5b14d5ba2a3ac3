"""The view of one job: its facts, and one of its parts, such as the history or the payload."""

from collections.abc import Iterator
from typing import Final, TypeGuard

import msgspec
from rich.cells import cell_len
from rich.text import Text

from corvo.client.dashboard import Job, Moment, Timeline
from corvo.client.jobs import Failure
from corvo.times import S, parse_time
from corvo.tui.looks import Look, flow, span
from corvo.tui.model import Data
from corvo.tui.pages import Column, Page, Row
from corvo.tui.places import ERRORS, EVENTS, PAYLOAD, PROGRESS, RESULT, Seen

_BAD: Final = frozenset({"failed", "dead", "crashed", "error"})
_LINES_MAX: Final = 5_000


def job_page(own: Job, timeline: Timeline, data: Data, seen: Seen) -> Page:
    """A job, and the part of it that is open."""
    heads = _facts(own, data, seen)
    if seen.part == EVENTS:
        rows = [_moment(place, moment, seen.look) for place, moment in enumerate(timeline.moments)]
        return Page(
            columns=_MOMENTS,
            rows=rows,
            heads=[*heads, *_previews(own, seen.look)],
            is_list=False,
            empty="no events",
        )
    lines = [line for text in _texts(own, seen.part) for line in _wrapped(text, seen)]
    return Page(
        columns=(Column("text", seen.part.upper(), 20, is_right=False, grows=True),),
        rows=[Row(f"{n}", {"text": line}, {"text": line}) for n, line in enumerate(lines)],
        heads=heads,
        is_list=False,
        empty=f"no {seen.part}",
    )


def clock(at: str) -> str:
    """The time of day of a moment, with milliseconds."""
    time = at.partition("T")[2].rstrip("Z")
    return time[:12] if "." in time else f"{time}.000"


_MOMENTS: Final = (
    Column("at", "TIME", 12, 0, is_right=False),
    Column("what", "EVENT", 14, 0, is_right=False),
    Column("took", "TOOK", 7, 1),
    Column("by", "BY", 10, 2, is_right=False, grows=True),
    Column("why", "WHY", 10, 1, is_right=False, grows=True),
)


def _facts(own: Job, data: Data, seen: Seen) -> list[Text]:
    look = seen.look
    tries = f"try {own.attempt}/{own.max_retries}" if own.max_retries else ""
    lease_s = None
    expires_ns = parse_time(own.lease_expires_at) if own.lease_expires_at else None
    if expires_ns is not None:
        lease_s = (expires_ns - data.at_ns) / S
    told = [
        f"type {own.kind}" if own.kind else "",
        f"worker {own.worker_id}" if own.worker_id else "",
        f"on {own.hostname}" if own.hostname else "",
        *(f"{name}={value}" for name, value in sorted(own.tags.items())),
        f"batch {own.batch_id}" if own.batch_id else "",
        f"unique {own.unique_key}" if own.unique_key else "",
    ]
    parts: list[Text | str] = [
        Text(look.safe(own.id), style="bold"),
        look.safe(own.queue),
        look.state(own.state, is_loud=own.state in {"dead", "held"}),
        tries,
        f"lease {span(lease_s)}" if lease_s is not None and lease_s > 0 else "",
        look.safe(f"held: {own.hold_reason}") if own.hold_reason else "",
        *map(look.safe, told),
    ]
    return flow(parts, "  ", seen.width - 1)


def _previews(own: Job, look: Look) -> list[Text]:
    """A line of each part that there is."""
    lines = [
        Text(f"{title} {look.safe(bytes(raw).decode(errors='replace'))}")
        for title, raw in ((PAYLOAD, own.payload), (PROGRESS, own.progress), (RESULT, own.result))
        if _is_there(raw)
    ]
    if own.errors:
        lines.append(Text(f"error {look.safe(own.errors[-1].error)}", style="bold"))
    return lines


def _is_there(raw: msgspec.Raw | None) -> TypeGuard[msgspec.Raw]:
    return raw is not None and bytes(raw) != b"null"


def _texts(own: Job, part: str) -> Iterator[str]:
    """The lines of a part."""
    if part == ERRORS:
        for failure in reversed(own.errors):
            yield from _failure(failure)
        return
    raws = {
        PAYLOAD: (("", own.payload),),
        RESULT: (("", own.result),),
        PROGRESS: (("", own.progress), ("checkpoint", own.checkpoint)),
    }
    for title, raw in raws[part]:
        if _is_there(raw):
            yield from [title] if title else []
            yield from (
                msgspec.json.format(bytes(raw), indent=2).decode(errors="replace").split("\n")
            )


def _failure(failure: Failure) -> Iterator[str]:
    worker = f"worker {failure.worker_id}" if failure.worker_id else ""
    yield ", ".join(filter(None, (f"attempt {failure.attempt}", failure.created_at, worker)))
    for text in (failure.error, failure.backtrace):
        yield from (f"  {line}" for line in text.splitlines())


def _wrapped(text: str, seen: Seen) -> Iterator[str]:
    """A text in lines that the screen has room for."""
    width, cells = max(20, seen.width - 2), 0
    line: list[str] = []
    for letter in text[: _LINES_MAX * width].replace("\t", "    "):
        shown = seen.look.safe(letter)
        size = cell_len(shown)
        if cells + size > width:
            yield "".join(line)
            line, cells = [], 0
        line.append(shown)
        cells += size
    yield "".join(line)


def _moment(place: int, moment: Moment, look: Look) -> Row:
    by, why = look.safe(moment.by), look.safe(moment.why)
    return Row(
        str(place),
        {"by": by, "why": why},
        {
            "at": clock(moment.at),
            "what": Text(look.safe(moment.what), style="bold" if moment.what in _BAD else ""),
            "took": span(moment.ms / 1_000) if moment.ms is not None else "",
            "by": by,
            "why": why,
        },
    )
