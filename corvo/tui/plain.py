"""`corvo top` without a screen: tables as text, and documents in JSON, once or at intervals."""

from typing import Final

import msgspec
from rich.text import Text

from corvo.client.dashboard import Cluster, Queue, Summary
from corvo.client_commands.tables import plain, table
from corvo.tui.looks import Look
from corvo.tui.model import Data, Rate
from corvo.tui.pages import Page, ordered
from corvo.tui.places import Place, Seen
from corvo.tui.views import page_of, queue_state


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Events a second; null before the second sample."""

    enqueued: float | None
    completed: float | None
    failed: float | None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `--json`: the summary of the server, and the rates that follow from two of them."""

    summary: Summary
    rates: Rates
    queue_rates: dict[str, Rates]


_NONE: Final = Rates(enqueued=None, completed=None, failed=None)


def document(data: Data) -> bytes:
    """The data as JSON, on one line."""
    assert data.summary is not None, "the server has answered"
    whole = Document(
        summary=data.summary,
        rates=_rates(data.total_rate),
        queue_rates={name: _rates(own) for name, own in data.rates.items()},
    )
    return msgspec.json.encode(whole)


def _rates(own: Rate | None) -> Rates:
    if own is None:
        return _NONE
    return Rates(
        enqueued=round(own.enqueued, 3),
        completed=round(own.completed, 3),
        failed=round(own.failed, 3),
    )


def text(data: Data, place: Place, look: Look, wanted: str, sort: str, *, is_reversed: bool) -> str:
    """All rows of a view, without borders; numbers are exact, and nothing is cut off."""
    assert data.summary is not None, "the server has answered"
    shown = _first(data.summary, data.total_rate)
    page = page_of(data, place, Seen(look))
    if place.view == "queues":
        return shown + _queues(data, page, wanted, sort, is_reversed=is_reversed)
    shown += "".join(f"{plain(head.plain)}\n" for head in page.heads)
    rows = ordered(page, wanted, sort, is_reversed=is_reversed)
    if rows:
        titles = [column.title or column.key.upper() for column in page.columns]
        shown += table(
            titles,
            [[_plain(row.written.get(each.key, "")) for each in page.columns] for row in rows],
        )
    else:
        shown += f"{page.empty}\n"
    return shown + "".join(f"{plain(tail.plain)}\n" for tail in page.tails)


def _plain(cell: Text | str) -> str:
    return (cell.plain if isinstance(cell, Text) else cell).strip()


def _first(summary: Summary, total: Rate | None) -> str:
    """One line about everything."""
    led = sum(shard.status == "up" for shard in summary.shards)
    parts = ["corvo", summary.at]
    if isinstance(summary.cluster, Cluster):
        nodes = summary.cluster.nodes
        up = sum(node.is_reachable is not False for node in nodes)
        parts += [f"nodes={up}/{len(nodes)}", f"can_lose={summary.cluster.can_lose}"]
    parts.append(f"shards={led}/{len(summary.shards)}")
    if total is not None:
        parts += [
            f"in={total.enqueued:.1f}/s",
            f"out={total.completed:.1f}/s",
            f"fail={total.failed:.1f}/s",
        ]
    parts.append(f"workers={summary.workers.alive}")
    return " ".join(parts) + "\n"


_TITLES: Final = (
    "QUEUE",
    "STATE",
    "PENDING",
    "ACTIVE",
    "SCHED",
    "RETRY",
    "HELD",
    "DEAD",
    "IN/S",
    "OUT/S",
    "ERR%",
    "OLDEST",
)
_STATES: Final = ("pending", "active", "scheduled", "retrying", "held", "dead")


def _queues(data: Data, page: Page, wanted: str, sort: str, *, is_reversed: bool) -> str:
    assert data.summary is not None, "the server has answered"
    known = {queue.name: queue for queue in data.summary.queues}
    rows = [
        _queue(known[row.key], data) for row in ordered(page, wanted, sort, is_reversed=is_reversed)
    ]
    return table(_TITLES, rows) if rows else f"{page.empty}\n"


def _queue(queue: Queue, data: Data) -> list[str]:
    own = data.rates.get(queue.name)
    age_s = data.age_s(queue.oldest_pending_at)
    word = queue_state(queue)[1]
    return [
        queue.name,
        {"no wrk": "no_workers", "drain": "draining"}.get(word, word),
        *(str(queue.counts.get(state, 0)) for state in _STATES),
        f"{own.enqueued:.1f}" if own else "",
        f"{own.completed:.1f}" if own else "",
        f"{own.error_share * 100:.1f}" if own else "",
        f"{age_s:.0f}s" if age_s is not None else "",
    ]
