"""The views of `corvo top`: from the data to a page, one function for each."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec
from rich.text import Text

from corvo.client.cluster import ClusterState, Events, Replica, Status
from corvo.client.dashboard import Job, Jobs, Minutes, Queue
from corvo.tui import keys
from corvo.tui.looks import Look, flow, joined, number, rate, span
from corvo.tui.model import BARS, NO_MINUTES, Data, Detail
from corvo.tui.one_job import clock, job_page
from corvo.tui.pages import Cells, Column, Page, Row
from corvo.tui.places import Place, Seen

ERRORS_READ: Final = 500
"""Failed jobs that the view of errors groups."""
JOBS_READ: Final = 200
_OLD_S: Final = 300.0
"""Age of the oldest pending job from which it is marked."""
_NEW_S: Final = 60.0


View: TypeAlias = Callable[[Data, Place, Seen], Page]


# Queues.


def queues(data: Data, _: Place, seen: Seen) -> Page:
    """All queues with counts and rates."""
    look, found = seen.look, data.summary.queues if data.summary is not None else []
    *columns, last = QUEUE_COLUMNS
    return Page(
        columns=(*columns, last._replace(title=f"LAST {seen.span.upper()}")),
        rows=[_queue_row(queue, data, seen) for queue in found],
        sort="pending",
        empty=(
            f"no queue matches {look.safe(data.pattern)}"
            if data.pattern
            else "no queues yet, or none that this API key may see"
        ),
    )


QUEUE_COLUMNS: Final = (
    Column("name", "QUEUE", 16, 0, is_right=False, is_descending=False, grows=True),
    Column("state", "STATE", 8, 3, is_right=False),
    Column("pending", "PENDING", 8, 0),
    Column("active", "ACTIVE", 7, 0),
    Column("scheduled", "SCHED", 6, 7),
    Column("retrying", "RETRY", 6, 4),
    Column("held", "HELD", 6, 8),
    Column("dead", "DEAD", 6, 1),
    Column("in", "IN/s", 6, 3),
    Column("out", "OUT/s", 6, 3),
    Column("errors", "ERR%", 6, 6),
    Column("oldest", "OLDEST", 7, 2),
    Column("minutes", "LAST 15 M", BARS, 5, is_right=False),
)


def queue_state(queue: Queue) -> tuple[str, str]:
    """The glyph's state, and the word."""
    if queue.draining:
        return "paused", "drain"
    if queue.paused:
        return "paused", "paused"
    if queue.workers == 0 and queue.counts.get("pending", 0):
        return "warning", "no wrk"
    return ("active", "run") if queue.counts.get("active", 0) else ("pending", "idle")


def _queue_row(queue: Queue, data: Data, seen: Seen) -> Row:
    counts = queue.counts
    word = queue_state(queue)[1]
    own = data.rates.get(queue.name)
    minutes = data.minutes.get(queue.name, NO_MINUTES)
    return Row(
        queue.name,
        {
            "name": queue.name,
            "state": word,
            "active": counts.get("active", 0),
            "in": own.enqueued if own else 0.0,
            "out": own.completed if own else 0.0,
            "errors": own.error_share if own else 0.0,
            "oldest": data.age_s(queue.oldest_pending_at) or 0.0,
            "minutes": sum(minutes.enqueued),
            **{state: counts.get(state, 0) for state in _COUNTED},
        },
        partial(_queue_cells, queue, data, seen),
        word,
    )


def _queue_cells(queue: Queue, data: Data, seen: Seen) -> Cells:
    counts, look = queue.counts, seen.look
    glyph, word = queue_state(queue)
    own = data.rates.get(queue.name)
    bars = data.bars(queue.name, seen.span)
    share = own.error_share * 100 if own is not None else 0.0
    return {
        "name": look.safe(queue.name),
        "state": look.state(glyph, word, is_loud=glyph == "warning"),
        "active": _of(counts.get("active", 0), queue.max_concurrency),
        "in": rate(own.enqueued if own else None, look.unknown),
        "out": rate(own.completed if own else None, look.unknown),
        "errors": _marked(f"{share:.1f}", share >= 1) if own else look.unknown,
        "oldest": _age(data.age_s(queue.oldest_pending_at), _OLD_S),
        "minutes": look.bars(bars.enqueued, BARS, bars.failed),
        **{state: _count(state, counts.get(state, 0)) for state in _COUNTED},
    }


_COUNTED: Final = ("pending", "scheduled", "retrying", "held", "dead")


def _count(state: str, value: int) -> Text | str:
    if state == "dead" and value:
        return Text(number(value), style="bold")
    return number(value) if value else Text("0", style="dim")


def _of(active: int, limit: int) -> Text | str:
    if not limit:
        return number(active)
    shown = f"{number(active)}/{number(limit)}"
    return Text(shown, style="bold") if active >= limit else shown


def _marked(shown: str, is_bad: bool) -> Text | str:
    return Text(f"{shown}!", style="bold") if is_bad else shown


def _age(age_s: float | None, bad_s: float) -> Text | str:
    return "" if age_s is None else _marked(span(age_s), age_s >= bad_s)


# One queue.


def queue(data: Data, place: Place, seen: Seen) -> Page:
    """A queue: its counts, rates and limits, and the jobs in it that are active or failed."""
    look = seen.look
    found = data.summary.queues if data.summary is not None else []
    own = next((each for each in found if each.name == place.about), None)
    if own is None:
        return Page(columns=(), rows=(), empty=f"queue {look.safe(place.about)} has no jobs now")
    glyph, word = queue_state(own)
    speed = data.rates.get(own.name)
    counts = own.counts
    shown = [
        joined(
            [
                Text(look.safe(own.name), style="bold"),
                look.state(glyph, word),
                f"workers {own.workers}" if isinstance(own.workers, int) else "",
                f"limit {number(own.max_concurrency)}" if own.max_concurrency else "",
            ],
            "   ",
        )
    ]
    why = _not_fetched(own)
    if why:
        shown.append(Text(f"not fetched now: {why}", style="bold"))
    counted = [
        look.state(state, f"{state} {number(counts.get(state, 0))}")
        for state in _STATES
        if counts.get(state, 0) or state in {"pending", "active"}
    ]
    shown += flow(counted, "  ", seen.width - 1)
    shown.append(
        _speeds(
            speed.enqueued if speed else None,
            speed.completed if speed else None,
            speed.failed if speed else None,
            data.bars(own.name, seen.span),
            look,
        )
    )
    jobs_page = jobs(data, place, seen)
    return msgspec.structs.replace(
        jobs_page, heads=[*shown, *jobs_page.heads], empty="no active, retrying or dead jobs"
    )


def _not_fetched(own: Queue) -> str:
    """Why no worker gets a job of a queue now; empty if that is not known."""
    if own.paused:
        return "the queue is paused"
    if own.max_concurrency and own.counts.get("active", 0) >= own.max_concurrency:
        limit = number(own.max_concurrency)
        return f"{limit} of {limit} active jobs"
    if own.workers == 0 and own.counts.get("pending", 0):
        return "no worker fetches from this queue"
    return ""


_STATES: Final = ("pending", "active", "scheduled", "retrying", "held", "dead", "completed")


def _speeds(
    came: float | None, done: float | None, lost: float | None, minutes: Minutes, look: Look
) -> Text:
    text = Text(f"in {rate(came, look.unknown)}/s ")
    text.append_text(look.bars(minutes.enqueued, 8))
    text.append(f"  done {rate(done, look.unknown)}/s ")
    text.append_text(look.bars(minutes.completed, 8))
    text.append(f"  fail {rate(lost, look.unknown)}/s ", "bold" if lost else "")
    text.append_text(look.bars(minutes.failed, 8))
    return text


# Jobs.

JOB_COLUMNS: Final = (
    Column("id", "JOB", 20, 0, is_right=False, is_descending=False, keeps_end=True, grows=True),
    Column("queue", "QUEUE", 16, 3, is_right=False, is_descending=False, grows=True),
    Column("state", "STATE", 11, 0, is_right=False, is_descending=False),
    Column("try", "TRY", 7, 4),
    Column("age", "AGE", 7, 1),
    Column("worker", "WORKER", 10, 5, is_right=False, is_descending=False, grows=True),
    Column("error", "LAST ERROR", 12, 2, is_right=False, is_descending=False, grows=True),
)


def jobs(data: Data, place: Place, seen: Seen) -> Page:
    """Jobs that are active, waiting to be retried, or dead; the latest first."""
    look = seen.look
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if place.worker:
        heads.append(Text(f"jobs of worker {look.safe(place.worker)}"))
    columns = [each for each in JOB_COLUMNS if each.key != "queue" or place.view != keys.QUEUE]
    if not isinstance(found, Jobs):
        return _unread(detail, look)
    if len(found.jobs) < found.total:
        at_least = "" if found.total_is_exact else "at least "
        heads.append(
            Text(f"the latest {len(found.jobs)} of {at_least}{number(found.total)}", style="dim")
        )
    return Page(
        columns=tuple(columns),
        rows=[_job_row(job, data, look) for job in found.jobs],
        heads=heads,
        empty="no active, retrying or dead jobs",
    )


def _job_row(job: Job, data: Data, look: Look) -> Row:
    since = job.started_at if job.state == "active" else job.finished_at or job.failed_at
    age_s = data.age_s(since or job.created_at)
    tries = f"{job.attempt}/{job.max_retries}" if job.max_retries else f"{job.attempt}"
    error = look.safe(job.last_error)
    return Row(
        job.id,
        {
            "id": job.id,
            "queue": job.queue,
            "state": job.state,
            "try": job.attempt,
            "age": age_s or 0.0,
            "worker": job.worker_id,
            "error": error,
        },
        {
            "id": look.safe(job.id),
            "queue": look.safe(job.queue),
            "state": look.state(job.state),
            "try": tries,
            "age": span(age_s) if age_s is not None else "",
            "worker": look.safe(job.worker_id),
            "error": error,
        },
        f"{job.queue} {job.state} {job.worker_id} {error}",
    )


# One job.


def job(data: Data, place: Place, seen: Seen) -> Page:
    """A job: its facts, and its history by the server's log of events."""
    detail = data.details.get(place.wanted, _NOTHING)
    heads = _failed(detail, seen.look)
    if not isinstance(detail.document, tuple):
        return _unread(detail, seen.look)
    page = job_page(*detail.document, data, seen)
    return msgspec.structs.replace(page, heads=[*heads, *page.heads])


# Workers.


def workers(data: Data, place: Place, seen: Seen) -> Page:
    """Workers, and the queues without any."""
    look = seen.look
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, list):
        return _unread(detail, look)
    states = Counter(worker.state for worker in found)
    words = {"not_fetching": "not fetching"}
    shown = [f"{words.get(state, state)} {count}" for state, count in sorted(states.items())]
    if shown:
        heads.append(Text(look.safe("   ".join(shown))))
    rows = []
    for worker in found:
        beat_s, up_s = data.age_s(worker.last_heartbeat), data.age_s(worker.started_at)
        names = ", ".join(worker.queue_names)
        active = worker.active if isinstance(worker.active, int) else None
        state = _WORKER_STATES.get(worker.state, "none")
        rows.append(
            Row(
                worker.id,
                {
                    "id": worker.id,
                    "host": worker.hostname,
                    "state": worker.state,
                    "active": active or 0,
                    "queues": names,
                    "beat": beat_s or 0.0,
                    "up": up_s or 0.0,
                },
                {
                    "id": look.safe(worker.id),
                    "host": look.safe(worker.hostname),
                    "state": look.state(state, words.get(worker.state, worker.state)),
                    "active": look.unknown if active is None else number(active),
                    "queues": look.safe(names),
                    "beat": "now" if worker.waiting else _age(beat_s, _NEW_S),
                    "up": span(up_s) if up_s is not None else "",
                },
                f"{worker.hostname} {worker.state} {names}",
            )
        )
    uncovered = _uncovered(data)
    tails = (
        [Text(f"no worker fetches from {look.safe(uncovered)}", style="bold")] if uncovered else []
    )
    return Page(
        columns=WORKER_COLUMNS,
        rows=rows,
        heads=heads,
        tails=tails,
        empty="no worker has sent a request in the last 24 hours",
    )


WORKER_COLUMNS: Final = (
    Column("id", "WORKER", 12, 0, is_right=False, is_descending=False, grows=True),
    Column("host", "HOST", 10, 4, is_right=False, is_descending=False, grows=True),
    Column("state", "STATE", 14, 0, is_right=False, is_descending=False),
    Column("active", "BUSY", 6, 0),
    Column("beat", "SEEN", 7, 1),
    Column("up", "UP", 7, 3),
    Column("queues", "QUEUES", 10, 2, is_right=False, is_descending=False, grows=True),
)
_WORKER_STATES: Final = {"alive": "active", "not_fetching": "warning", "gone": "cancelled"}


def _uncovered(data: Data) -> str:
    found = data.summary.queues if data.summary is not None else []
    idle = [
        f"{each.name} ({number(each.counts.get('pending', 0))} pending)"
        for each in found
        if each.workers == 0 and each.counts.get("pending", 0)
    ]
    more = f" and {len(idle) - 3} more" if len(idle) > 3 else ""
    return ", ".join(idle[:3]) + more


# Shards.


def shards(data: Data, place: Place, seen: Seen) -> Page:
    """Nodes and shards: which node leads each shard, and how far the others are behind."""
    look = seen.look
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if isinstance(found, Status) and isinstance(found.cluster, ClusterState):
        return _matrix(found.cluster, data, heads, look)
    rows = [
        Row(
            f"shard {shard.shard}",
            {"shard": shard.shard},
            {
                "shard": str(shard.shard),
                "state": look.state("active" if shard.status == "up" else "dead", shard.status),
                "leader": look.unknown if shard.leader is None else f"node {shard.leader}",
                "term": str(shard.term),
                "mirror": shard.mirror,
            },
        )
        for shard in (data.summary.shards if data.summary is not None else ())
    ]
    columns = (
        Column("shard", "SHARD", 6, 0),
        Column("state", "STATE", 8, 0, is_right=False),
        Column("leader", "LEADER", 10, 1, is_right=False),
        Column("term", "TERM", 6, 2),
        Column("mirror", "MIRROR", 20, 1, is_right=False),
    )
    return Page(columns=columns, rows=rows, heads=heads, is_list=False)


def _matrix(state: ClusterState, data: Data, heads: list[Text], look: Look) -> Page:
    up = sum(node.is_reachable is not False for node in state.nodes)
    led = sum(shard.status != "unavailable" for shard in state.shards)
    can_lose = 0
    if data.summary is not None and data.summary.cluster:
        can_lose = data.summary.cluster.can_lose
    heads = [
        *heads,
        joined(
            [
                Text(f"cluster {state.status}", style="" if state.status == "healthy" else "bold"),
                f"{up} of {len(state.nodes)} nodes",
                f"{led}/{len(state.shards)} shards lead",
                f"{state.replicas} replicas each",
                f"may lose {can_lose} more",
            ],
            "   ",
        ),
    ]
    columns = [Column("node", "NODE", 12, 0, is_right=False, grows=True)]
    columns += [
        Column(f"s{shard.shard}", f"SHARD {shard.shard}", 12, 1 + shard.shard, is_right=False)
        for shard in state.shards
    ]
    columns.append(Column("version", "VERSION", 12, 200, is_right=False))
    rows = []
    for node in state.nodes:
        name = look.safe(node.name or str(node.number))
        is_away = node.is_reachable is False
        cells: Cells = {
            "node": Text(f"{name} away" if is_away else name, style="bold" if is_away else ""),
            "version": look.safe(node.version),
        }
        for shard in state.shards:
            own = next((each for each in shard.replicas if each.node == node.number), None)
            is_leader = shard.leader == node.number
            cells[f"s{shard.shard}"] = _replica(own, shard.term, look, is_leader=is_leader)
        rows.append(Row(name, {"node": name}, cells))
    tails = [Text(look.safe(reason), style="bold") for reason in state.reasons]
    return Page(columns=tuple(columns), rows=rows, heads=heads, tails=tails, is_list=False)


def _replica(own: Replica | None, term: int, look: Look, *, is_leader: bool) -> Text:
    if own is None:
        return look.state("none", " ")
    if is_leader:
        return look.state("leader", f"t{term}")
    if not own.is_reachable:
        return look.state("dead", "away")
    lag = f"+{number(own.lag)}" if isinstance(own.lag, int) else ""
    if own.is_repairing:
        return look.state("warning", "repair")
    word = "" if own.is_voter else "copy"
    return look.state("active" if own.is_voter else "pending", f"{word} {lag}".strip() or "?")


# Errors.

_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*|\d+")


def fingerprint(error: str) -> str:
    """An error without its numbers and ids, so that equal causes are one group."""
    return _NUMBERS.sub("N", error.strip().partition("\n")[0])[:200]


def errors(data: Data, place: Place, seen: Seen) -> Page:
    """The latest failed jobs, grouped by their error."""
    look = seen.look
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, Jobs):
        return _unread(detail, look)
    groups: dict[str, list[Job]] = {}
    for each in found.jobs:
        groups.setdefault(fingerprint(each.last_error) or "(no error text)", []).append(each)
    if found.jobs:
        heads.append(
            Text(
                f"the latest {len(found.jobs)} of {number(found.total)} retrying and dead jobs",
                style="dim",
            )
        )
    rows = []
    for text, members in groups.items():
        names = Counter(each.queue for each in members)
        most = names.most_common(1)[0][0]
        more = f" +{len(names) - 1}" if len(names) > 1 else ""
        ages = [
            data.age_s(each.failed_at or each.finished_at or each.changed_at) for each in members
        ]
        known = [age for age in ages if age is not None]
        last_s = min(known, default=None)
        dead = sum(each.state == "dead" for each in members)
        rows.append(
            Row(
                text,
                {
                    "count": len(members),
                    "dead": dead,
                    "error": text,
                    "queue": most + more,
                    "last": -(last_s or 0.0),
                },
                {
                    "count": number(len(members)),
                    "dead": _count("dead", dead),
                    "error": look.safe(text),
                    "queue": look.safe(most) + more,
                    "last": span(last_s) if last_s is not None else "",
                },
                " ".join(names),
            )
        )
    return Page(
        columns=(
            Column("count", "JOBS", 6, 0),
            Column("dead", "DEAD", 6, 2),
            Column("last", "LAST", 7, 1),
            Column("queue", "QUEUE", 16, 3, is_right=False, is_descending=False, grows=True),
            Column("error", "ERROR", 16, 0, is_right=False, is_descending=False, grows=True),
        ),
        rows=rows,
        heads=heads,
        sort="count",
        empty="no job has failed",
    )


def members_of(data: Data, place: Place, key: str) -> list[Job]:
    """The jobs of a group of errors."""
    found = data.details.get(place.wanted, _NOTHING).document
    if not isinstance(found, Jobs):
        return []
    return [
        each for each in found.jobs if (fingerprint(each.last_error) or "(no error text)") == key
    ]


# Events.


def events(data: Data, place: Place, seen: Seen) -> Page:
    """Changes of the cluster, the latest first."""
    look = seen.look
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, Events):
        return _unread(detail, look)
    if found.missing_nodes:
        names = ", ".join(map(str, found.missing_nodes))
        heads.append(Text(f"without the events of node {names}, which did not answer"))
    return Page(
        columns=(
            Column("at", "TIME", 12, 0, is_right=False),
            Column("type", "EVENT", 18, 1, is_right=False),
            Column("text", "", 10, 0, is_right=False, grows=True),
        ),
        rows=[
            Row(
                str(event.seq),
                {"at": event.seq, "type": event.type, "text": look.safe(event.text)},
                {
                    "at": clock(event.at),
                    "type": look.safe(event.type),
                    "text": look.safe(event.text),
                },
                f"{event.type} {event.text}",
            )
            for event in found.events
        ],
        heads=heads,
        sort="at",
        empty="no changes of nodes, leaders or replicas yet",
    )


# All.

_NOTHING: Final = Detail()


def _unread(detail: Detail, look: Look) -> Page:
    """The page while its document has not come, or could not be read."""
    heads = _failed(detail, look)
    empty = "" if heads else f"reading {'...' if look.is_ascii else '…'}"
    return Page(columns=(), rows=(), heads=heads, empty=empty, is_list=False)


def _failed(detail: Detail, look: Look) -> list[Text]:
    return [Text(look.safe(detail.error), style="bold")] if detail.error else []


VIEWS: Final[Mapping[str, View]] = {
    keys.QUEUES: queues,
    keys.QUEUE: queue,
    keys.WORKERS: workers,
    keys.SHARDS: shards,
    keys.ERRORS: errors,
    keys.JOBS: jobs,
    keys.JOB: job,
    keys.EVENTS: events,
}


def page_of(data: Data, place: Place, seen: Seen) -> Page:
    """The page of a place."""
    return VIEWS[place.view](data, place, seen)
