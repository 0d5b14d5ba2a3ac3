"""`corvo status` and `corvo workers`: the server at a glance."""

import argparse
from typing import Final

import msgspec

from corvo.client import cluster, overview
from corvo.client.calls import read
from corvo.client_commands.failures import OK, UNHEALTHY
from corvo.client_commands.options import Verb, add_nothing
from corvo.client_commands.records import FORMS, TEXTS, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import age, counted, grouped, plain, table
from corvo.command_table import COMMANDS

_QUEUES_MAX: Final = 20
"""Queues that the status shows, those with the most waiting jobs."""
_COUNTS: Final = ("pending", "active", "scheduled", "retrying", "held", "dead")


def _active(worker: overview.Worker) -> str:
    return grouped(worker.active) if isinstance(worker.active, int) else ""


WORKERS: Final = Listing(
    "workers",
    overview.Worker,
    lambda worker: worker.id,
    (
        Column[overview.Worker]("worker", lambda worker, _: worker.id),
        Column[overview.Worker]("state", lambda worker, _: worker.state),
        Column[overview.Worker]("active", lambda worker, _: _active(worker)),
        Column[overview.Worker]("host", lambda worker, _: worker.hostname),
        Column[overview.Worker]("seen", lambda worker, now: age(worker.last_heartbeat, now)),
        Column[overview.Worker](
            "fetched", lambda worker, now: age(worker.last_asked_at, now), is_wide=True
        ),
        Column[overview.Worker](
            "started", lambda worker, now: age(worker.started_at, now), is_wide=True
        ),
        Column[overview.Worker]("queues", lambda worker, _: ",".join(worker.queue_names)),
    ),
)


def workers(session: Session, _: argparse.Namespace) -> int:
    """`corvo workers`."""
    with session.listing(WORKERS) as records:
        records.add(overview.get_workers(session.client))
    if not records.count and session.is_terminal:
        session.note("no workers. Start one:   corvo worker QUEUE --exec COMMAND")
    return OK


def status(session: Session, _: argparse.Namespace) -> int:
    """`corvo status`."""
    state_answer = cluster.get_status(session.client)
    summary_answer = overview.get_summary(session.client)
    state = read(state_answer, cluster.Status)
    summary = read(summary_answer, overview.Summary)
    whole = {
        "cluster": msgspec.Raw(state_answer.body),
        "summary": msgspec.Raw(summary_answer.body),
    }
    session.show(msgspec.json.encode(whole), _text(state, summary, session.now_ns()))
    return OK if state.status == "healthy" else UNHEALTHY


def _text(state: cluster.Status, summary: overview.Summary, now_ns: int) -> str:
    nodes = ""
    if isinstance(state.cluster, cluster.ClusterState):
        nodes = f"{counted(len(state.cluster.nodes), 'node')}, "
    alive = summary.workers.get("alive", 0)
    idle = summary.workers.get("not_fetching", 0)
    lines = [
        f"status: {plain(state.status)}",
        f"{nodes}{counted(len(summary.shards), 'shard')}, {counted(alive, 'worker')}"
        + (f", and {grouped(idle)} that do not fetch" if idle else ""),
        "jobs: " + ", ".join(f"{grouped(summary.totals.get(name, 0))} {name}" for name in _COUNTS),
    ]
    if summary.source != "mirror":
        lines.append("the mirror is unavailable: there are no searches and no rates")
    busiest = sorted(
        summary.queues,
        key=lambda queue: (-sum(queue.counts.get(name, 0) for name in _COUNTS), queue.name),
    )
    rows = [
        (
            queue.name,
            "paused" if queue.paused else "running",
            *(grouped(queue.counts.get(name, 0)) for name in _COUNTS),
            age(queue.oldest_pending_at, now_ns),
        )
        for queue in busiest[:_QUEUES_MAX]
    ]
    headers = ("QUEUE", "STATE", *(name.upper() for name in _COUNTS), "OLDEST")
    text = "".join(f"{line}\n" for line in lines)
    if rows:
        text += "\n" + table(headers, rows)
    if len(busiest) > _QUEUES_MAX:
        text += f"… and {grouped(len(busiest) - _QUEUES_MAX)} more:   corvo queues\n"
    return text


VERBS: Final = {
    "status": Verb(COMMANDS["status"].summary, status, add_nothing, TEXTS, ("corvo status",)),
    "workers": Verb(COMMANDS["workers"].summary, workers, add_nothing, FORMS, ("corvo workers",)),
}
