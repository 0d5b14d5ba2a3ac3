"""The views of `corvo top`: from the data to a page, one function for each."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec
from rich.text import Text

from corvo.client.cluster import ClusterState, Events, Replica, Status
from corvo.client.dashboard import Job, Jobs, Minutes, Moment, Queue
from corvo.times import S, parse_time
from corvo.tui import keys
from corvo.tui.looks import Look, joined, number, rate, span
from corvo.tui.model import Data, Detail
from corvo.tui.pages import Cells, Column, Page, Row

ERRORS_READ: Final = 500
"""Failed jobs that the view of errors groups."""
JOBS_READ: Final = 200
_BARS: Final = 15
_OLD_S: Final = 300.0
"""Age of the oldest pending job from which it is marked."""
_NEW_S: Final = 60.0


class Place(msgspec.Struct, frozen=True):
    """A view, and what it is about: a queue, a job, or a filter of jobs."""

    view: str
    about: str = ""
    worker: str = ""

    @property
    def wanted(self) -> str:
        """The document beside the summary that it needs; empty if none."""
        if self.view == keys.QUEUES:
            return ""
        return f"{self.view}:{self.about}:{self.worker}"


View: TypeAlias = Callable[[Data, Place, Look], Page]


# Queues.


def queues(data: Data, _: Place, look: Look) -> Page:
    """All queues with counts and rates."""
    found = data.summary.queues if data.summary is not None else []
    return Page(
        columns=QUEUE_COLUMNS,
        rows=[_queue_row(queue, data, look) for queue in found],
        sort="pending",
        empty="no queues yet: the first job creates one",
    )


QUEUE_COLUMNS: Final = (
    Column("name", "QUEUE", 0, 0, is_right=False, is_descending=False),
    Column("state", "STATE", 9, 3, is_right=False),
    Column("pending", "PENDING", 8, 0),
    Column("active", "ACTIVE", 8, 0),
    Column("scheduled", "SCHED", 6, 6),
    Column("retrying", "RETRY", 6, 4),
    Column("held", "HELD", 6, 7),
    Column("dead", "DEAD", 6, 2),
    Column("in", "IN/s", 7, 3),
    Column("out", "OUT/s", 7, 3),
    Column("errors", "ERR%", 6, 5),
    Column("oldest", "OLDEST", 7, 1),
    Column("minutes", "LAST 15 M", _BARS, 8, is_right=False),
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


def _queue_row(queue: Queue, data: Data, look: Look) -> Row:
    counts = queue.counts
    word = queue_state(queue)[1]
    own = data.rates.get(queue.name)
    minutes = data.minutes.get(queue.name, _NO_MINUTES)
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
        partial(_queue_cells, queue, data, look),
        word,
    )


def _queue_cells(queue: Queue, data: Data, look: Look) -> Cells:
    counts = queue.counts
    glyph, word = queue_state(queue)
    own = data.rates.get(queue.name)
    minutes = data.minutes.get(queue.name, _NO_MINUTES)
    share = own.error_share * 100 if own is not None else 0.0
    return {
        "name": look.safe(queue.name),
        "state": look.state(glyph, word, is_loud=glyph == "warning"),
        "active": _of(counts.get("active", 0), queue.max_concurrency),
        "in": rate(own.enqueued if own else None, look.unknown),
        "out": rate(own.completed if own else None, look.unknown),
        "errors": _marked(f"{share:.1f}", share >= 1) if own else look.unknown,
        "oldest": _age(data.age_s(queue.oldest_pending_at), _OLD_S),
        "minutes": look.bars(minutes.enqueued, _BARS, minutes.failed),
        **{state: _count(state, counts.get(state, 0)) for state in _COUNTED},
    }


_COUNTED: Final = ("pending", "scheduled", "retrying", "held", "dead")
_NO_MINUTES: Final = Minutes(enqueued=[], completed=[], failed=[])


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


def queue(data: Data, place: Place, look: Look) -> Page:
    """A queue: its counts, rates and limits, and the jobs in it that are active or failed."""
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
            ],
            "   ",
        ),
        joined(
            [
                *(
                    look.state(state, f"{state} {number(counts.get(state, 0))}")
                    for state in _STATES
                    if counts.get(state, 0) or state in {"pending", "active"}
                ),
                f"limit {own.max_concurrency}" if own.max_concurrency else "",
            ],
            "  ",
        ),
        _speeds(speed.enqueued if speed else None, speed.completed if speed else None,
                speed.failed if speed else None, data.minutes.get(own.name, _NO_MINUTES), look),
    ]  # fmt: skip
    full = own.max_concurrency and counts.get("active", 0) >= own.max_concurrency
    if own.paused:
        shown.append(Text("not fetched now: the queue is paused", style="bold"))
    elif full:
        limit = own.max_concurrency
        shown.append(Text(f"not fetched now: {limit} of {limit} active jobs", style="bold"))
    elif own.workers == 0 and counts.get("pending", 0):
        shown.append(Text("not fetched now: no worker fetches from this queue", style="bold"))
    jobs_page = jobs(data, place, look)
    return msgspec.structs.replace(
        jobs_page, heads=[*shown, *jobs_page.heads], empty="no active, retrying or dead jobs"
    )


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
    Column("id", "JOB", 20, 0, is_right=False, is_descending=False, keeps_end=True),
    Column("queue", "QUEUE", 16, 3, is_right=False, is_descending=False),
    Column("state", "STATE", 11, 0, is_right=False, is_descending=False),
    Column("try", "TRY", 7, 2),
    Column("age", "AGE", 7, 1),
    Column("worker", "WORKER", 16, 5, is_right=False, is_descending=False),
    Column("error", "LAST ERROR", 0, 4, is_right=False, is_descending=False),
)


def jobs(data: Data, place: Place, look: Look) -> Page:
    """Jobs that are active, waiting to be retried, or dead; the latest first."""
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if place.worker:
        heads.append(Text(f"jobs of worker {look.safe(place.worker)}"))
    columns = [each for each in JOB_COLUMNS if each.key != "queue" or place.view != keys.QUEUE]
    if not isinstance(found, Jobs):
        return Page(columns=(), rows=(), heads=heads, empty="" if heads else "reading …")
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


def job(data: Data, place: Place, look: Look) -> Page:
    """A job: its facts, and its history by the server's log of events."""
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, tuple):
        empty = "" if heads else "reading …"
        return Page(columns=(), rows=(), heads=heads, empty=empty, is_list=False)
    own, timeline = found
    heads += _facts(own, data, look)
    columns = (
        Column("at", "TIME", 12, 0, is_right=False),
        Column("what", "EVENT", 14, 0, is_right=False),
        Column("took", "TOOK", 7, 1),
        Column("by", "BY", 16, 2, is_right=False),
        Column("why", "WHY", 0, 1, is_right=False),
    )
    rows = [_moment(place, moment, look) for place, moment in enumerate(timeline.moments)]
    return Page(columns=columns, rows=rows, heads=heads, is_list=False, empty="no events")


def _facts(own: Job, data: Data, look: Look) -> list[Text]:
    tries = f"try {own.attempt}/{own.max_retries}" if own.max_retries else ""
    lease_s = None
    if own.lease_expires_at:
        lease_s = -(_since(data, own.lease_expires_at) or 0.0)
    lines = [
        joined(
            [
                Text(look.safe(own.id), style="bold"),
                look.safe(own.queue),
                look.state(own.state, is_loud=own.state in {"dead", "held"}),
                tries,
                f"lease {span(lease_s)}" if lease_s is not None and lease_s > 0 else "",
            ],
            "  ",
        )
    ]
    told = [
        f"type {own.kind}" if own.kind else "",
        f"worker {own.worker_id}" if own.worker_id else "",
        f"on {own.hostname}" if own.hostname else "",
        *(f"{name}={value}" for name, value in sorted(own.tags.items())),
        f"batch {own.batch_id}" if own.batch_id else "",
        f"unique {own.unique_key}" if own.unique_key else "",
    ]
    if any(told):
        lines.append(joined(map(look.safe, told), "  "))
    for title, raw in (
        ("payload", own.payload),
        ("progress", own.progress),
        ("result", own.result),
    ):
        if raw is not None and bytes(raw) != b"null":
            lines.append(Text(f"{title} {look.safe(bytes(raw).decode(errors='replace'))}"))
    if own.errors:
        lines.append(Text(f"error {look.safe(own.errors[-1].error)}", style="bold"))
    return lines


def _since(data: Data, text: str) -> float | None:
    at_ns = parse_time(text)
    return None if at_ns is None else (data.at_ns - at_ns) / S


def _moment(place: int, moment: Moment, look: Look) -> Row:
    bad = moment.what in {"failed", "dead", "crashed", "error"}
    return Row(
        str(place),
        {},
        {
            "at": _clock(moment.at),
            "what": Text(moment.what, style="bold" if bad else ""),
            "took": span(moment.ms / 1_000) if moment.ms is not None else "",
            "by": look.safe(moment.by),
            "why": look.safe(moment.why),
        },
    )


def _clock(at: str) -> str:
    """The time of day of a moment, with milliseconds."""
    time = at.partition("T")[2].rstrip("Z")
    return time[:12] if "." in time else f"{time}.000"


# Workers.


def workers(data: Data, place: Place, look: Look) -> Page:
    """Workers, and the queues without any."""
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, list):
        return Page(columns=(), rows=(), heads=heads, empty="" if heads else "reading …")
    states = Counter(worker.state for worker in found)
    words = {"not_fetching": "not fetching"}
    heads.append(
        Text(
            "   ".join(
                f"{words.get(state, state)} {count}" for state, count in sorted(states.items())
            )
        )
    )
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
    Column("id", "WORKER", 0, 0, is_right=False, is_descending=False),
    Column("host", "HOST", 14, 4, is_right=False, is_descending=False),
    Column("state", "STATE", 14, 0, is_right=False, is_descending=False),
    Column("active", "BUSY", 6, 0),
    Column("queues", "QUEUES", 0, 2, is_right=False, is_descending=False),
    Column("beat", "SEEN", 7, 1),
    Column("up", "UP", 7, 3),
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


def shards(data: Data, place: Place, look: Look) -> Page:
    """Nodes and shards: which node leads each shard, and how far the others are behind."""
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
        Column("mirror", "MIRROR", 0, 1, is_right=False),
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
    columns = [Column("node", "NODE", 0, 0, is_right=False)]
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
        rows.append(Row(name, {}, cells))
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
    word = "repair" if own.is_repairing else "voter" if own.is_voter else "copy"
    return look.state("active" if own.is_voter else "pending", f"{word} {lag}".strip())


# Errors.

_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*|\d+")


def fingerprint(error: str) -> str:
    """An error without its numbers and ids, so that equal causes are one group."""
    return _NUMBERS.sub("N", error.strip().partition("\n")[0])[:200]


def errors(data: Data, place: Place, look: Look) -> Page:
    """The latest failed jobs, grouped by their error."""
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, Jobs):
        return Page(columns=(), rows=(), heads=heads, empty="" if heads else "reading …")
    groups: dict[str, list[Job]] = {}
    for each in found.jobs:
        groups.setdefault(fingerprint(each.last_error) or "(no error text)", []).append(each)
    heads.append(
        Text(
            f"{len(found.jobs)} of {number(found.total)} retrying and dead jobs, the latest first",
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
                    "queue": most,
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
            Column("error", "ERROR", 0, 0, is_right=False, is_descending=False),
            Column("queue", "QUEUE", 22, 3, is_right=False, is_descending=False),
            Column("last", "LAST", 7, 1),
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


def events(data: Data, place: Place, look: Look) -> Page:
    """Changes of the cluster, the latest first."""
    detail = data.details.get(place.wanted, _NOTHING)
    found = detail.document
    heads = _failed(detail, look)
    if not isinstance(found, Events):
        return Page(columns=(), rows=(), heads=heads, empty="" if heads else "reading …")
    if found.missing_nodes:
        names = ", ".join(map(str, found.missing_nodes))
        heads.append(Text(f"without the events of node {names}, which did not answer"))
    return Page(
        columns=(
            Column("at", "TIME", 12, 0, is_right=False),
            Column("type", "EVENT", 18, 1, is_right=False),
            Column("text", "", 0, 0, is_right=False),
        ),
        rows=[
            Row(
                str(event.seq),
                {"at": event.seq},
                {"at": _clock(event.at), "type": event.type, "text": look.safe(event.text)},
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


def page_of(data: Data, place: Place, look: Look) -> Page:
    """The page of a place."""
    return VIEWS[place.view](data, place, look)
