"""How each command is tried: what it needs, how it succeeds alone and in a pipe, and how it fails.

In the words, `{queue}` is a queue of the case alone, and `{id}` and `{ids}` what it was given.
"""

from typing import Final, NamedTuple

import msgspec

from corvo.client import bulk, keys, schedules, work
from corvo.client import jobs as api
from corvo.client.calls import Client, read
from corvo.client.jobs import EnqueuedMany
from tests.client_commands.running import Server


class Case(NamedTuple):
    """How one command is tried."""

    words: str
    """Succeeds, in a table and in JSON."""
    needs: str = ""
    """State of the jobs of the queue, or another thing that has an id."""
    piped: str = ""
    """Succeeds in a pipe; the same words unless these are given."""
    given: str = ""
    """Input of the pipe."""
    wrong: str = ""
    """Fails; empty if only the server can fail."""
    code: int = 0
    told: str = ""
    """Part of the error."""
    has_output: bool = True


_NONE: Final = "find its id:   corvo search --queue QUEUE"
_USAGE: Final = "all options:   corvo {name} --help"
_PIPE: Final = "list some:   corvo search -o id"


def _deed(needs: str, extra: str = "") -> Case:
    """An action on jobs."""
    words = f"{{id}}{extra}"
    return Case(words, needs, f"-{extra} --yes", "{ids}", f"nope~1{extra}", 3, _NONE)


def _bulk(needs: str, extra: str = "") -> Case:
    words = f"{extra} --queue {{queue}} --yes"
    return Case(words, needs, f"{extra} - --yes", "{ids}", f"{extra} -", 2, _PIPE)


def _on_queue(extra: str = "") -> Case:
    near = "did you mean:   {queue}"
    return Case(f"{{queue}}{extra}", "pending", wrong="{queue}x", code=3, told=near)


def _schedule(extra: str = "", piped: str = "") -> Case:
    wrong, told = f"{{id}}x{extra}", "did you mean:   {id}"
    return Case(f"{{id}}{extra}", "schedule", piped, "{ids}", wrong, 3, told)


def _usage(words: str, wrong: str, needs: str = "") -> Case:
    return Case(words, needs, wrong=wrong, code=2, told=_USAGE)


CASES: Final = {
    "enqueue": Case(
        "{queue} 1", "", "{queue} -", "1\n2\n", "{queue} {{oops", 2, "quote it for the shell"
    ),
    "inspect": Case("{id}", "pending", "-", "{ids}", "nope~1", 3, _NONE),
    "search": Case("--queue {queue}", "pending", wrong="--sate dead", code=2, told="--state"),
    "retry": _deed("cancelled"),
    "requeue": _deed("dead"),
    "cancel": _deed("pending"),
    "move": _deed("pending", " {queue}-2"),
    "delete": _deed("pending"),
    "hold": _deed("pending"),
    "approve": _deed("held"),
    "reject": _deed("held"),
    "expedite": _deed("scheduled"),
    "priority": _deed("pending", " high"),
    "release": _deed("active"),
    "snooze": _deed("active", " --delay 1h"),
    "dead": _usage("{queue}", "{queue} --limit 0", "dead"),
    "batches": Case("{id}", "batch", wrong="{id}x", code=3, told="list them:   corvo batches"),
    "events": _usage("--queue {queue}", "--queue", "pending"),
    "wait": Case("{id}", "completed", "-", "{ids}", "nope~1", 3, _NONE),
    "explain": Case("{id}", "scheduled", wrong="nope~1", code=3, told=_NONE),
    "bulk retry": _bulk("cancelled"),
    "bulk requeue": _bulk("dead"),
    "bulk cancel": _bulk("pending"),
    "bulk delete": _bulk("pending"),
    "bulk move": _bulk("pending", "{queue}-2"),
    "bulk priority": _bulk("pending", "high"),
    "bulk hold": _bulk("pending"),
    "bulk approve": _bulk("held"),
    "bulk reject": _bulk("held"),
    "bulk list": _usage("", "--limit 0", "bulk"),
    "bulk show": Case("{id}", "bulk", wrong="nope", code=3, told="list them:   corvo bulk list"),
    "bulk watch": Case("{id}", "bulk", wrong="nope", code=3, told="list them:   corvo bulk list"),
    "bulk stop": Case(
        "{id}", "slow bulk", wrong="nope", code=3, told="list them:   corvo bulk list"
    ),
    "queues": _on_queue(),
    "pause": _on_queue(),
    "resume": _on_queue(),
    "drain": _on_queue(),
    "clear": _on_queue(" --yes"),
    "destroy": _on_queue(" --yes"),
    "schedules list": Case("{id}", "schedule", wrong="{id}x", code=3, told="did you mean:   {id}"),
    "schedules show": _schedule(),
    "schedules create": Case(
        "{queue} {queue} '0 3 1 1 *'",
        "",
        "{queue} {queue} '0 3 1 1 *' -",
        '{{"n": 1}}',
        "{queue} {queue} '0 3 1 1 *' {{oops",
        2,
        "quote it for the shell",
    ),
    "schedules change": _schedule(" --jitter 1m"),
    "schedules pause": _schedule(piped="-"),
    "schedules resume": _schedule(piped="-"),
    "schedules run": _schedule(piped="-"),
    "schedules delete": _schedule(" --yes", piped="- --yes"),
    "schedules next": _schedule(),
    "schedules backfill": _schedule(" 2026-01-01 2026-01-02 --yes"),
    "schedules import": Case(
        "/dev/stdin --queue {queue}",
        "",
        "- --queue {queue}",
        "0 3 1 1 * true\n",
        "- --queue",
        2,
        _USAGE,
    ),
    "schedules explain": _usage("'0 3 * * *'", ""),
    "worker": Case(
        "{queue} --exec true --until-empty",
        "pending",
        wrong="{queue} --exec ''",
        code=2,
        told="pass a command, such as --exec './send {{id}}'",
        has_output=False,
    ),
    "fetch": Case("{queue}", "pending", wrong="{queue}-2", code=8, told="no job is available"),
    "ack": Case("{id}", "active", "-", "{ids}", "nope~1", 3, _NONE),
    "fail": Case("{id}", "active", "-", "{ids}", "nope~1", 3, _NONE),
    "heartbeat": Case("{id}", "active", wrong="nope~1", code=9, told="stop working on these jobs"),
    "workers": Case(""),
    "status": Case(""),
    "keys list": Case("", "key"),
    "keys create": _usage("{queue} --role worker", ""),
    "keys delete": Case(
        "{id} --yes", "key", wrong="{id}x", code=3, told="list them:   corvo keys list"
    ),
    "keys status": Case(""),
    "cluster status": Case(""),
    "cluster nodes": Case(""),
    "cluster node": Case("node-1", wrong="node-2", code=3, told="list them:   corvo cluster nodes"),
    "cluster events": _usage("", "--limit x"),
    "profile list": Case("", "profile"),
    "profile add": Case(
        "{queue} 127.0.0.1:1", wrong="a ftp://h", code=2, told="expected HOST:PORT"
    ),
    "profile use": Case("{id}", "profile", wrong="{id}x", code=2, told="did you mean:   {id}"),
    "profile remove": Case("{id}", "profile", wrong="{id}x", code=2, told="did you mean:   {id}"),
    "profile show": Case(""),
}
ELSEWHERE: Final = {
    "cluster drain": "cluster/test_commands.py",
    "cluster undrain": "cluster/test_commands.py",
    "cluster remove": "cluster/test_commands.py",
    "cluster replicas": "cluster/test_commands.py",
    "top": "tui/terminals.py",
    "completion": "client_commands/test_profiles.py",
    "dev": "client_commands/test_dev.py",
    "server": "test_cli.py",
    "config": "test_cli.py",
    "openapi": "test_cli.py",
    "version": "test_cli.py",
    "verify": "verify/test_command.py",
    "backup": "backup/test_commands.py",
    "restore": "backup/test_commands.py",
}
"""Commands that need several nodes, a terminal or no server, and the module with their tests."""

FAILURES: Final[list[tuple[list[str], int, str]]] = [
    (["enqueue", "en-x", "{oops"], 2, "the payload is not JSON"),
    (["enqueue", "en-x", "--priority", "urgent"], 2, "VALIDATION_ERROR, exit 2"),
    (["enqueue", "en-x", "--backoff", "soon"], 2, "expected KIND[:FIRST[..LONGEST]]"),
    (["enqueue", "en-x", "--prioritty", "1"], 2, "did you mean:   --priority"),
    (["enqueue", "en-x", "--wait", "1ms"], 8, "1 job has not ended"),
    (["enqueue", "en-x", "-", "--id", "a"], 2, "--id, --wait and --set are for one job"),
    (["inspect", "en-none~1"], 3, "NOT_FOUND, exit 3"),
    (["inspect", "en-none~1", "en-none~2"], 3, "2 jobs not found: en-none~1, en-none~2"),
    (["search", "--payload-jq", ".a >"], 2, "VALIDATION_ERROR, exit 2"),
    (["search", "--tag", "a"], 2, "--tag 'a' is invalid: expected NAME=VALUE"),
    (["search", "--quue", "a"], 2, "did you mean:   --queue"),
    (["search", "--fields", ".."], 2, "--fields '..' is invalid"),
    (["serch"], 2, "did you mean `corvo search`?"),
    (["iterations", "x"], 2, "'iterations' is not available; GET /api/v1/jobs"),
    (["retry", "se-none~1"], 3, "NOT_FOUND, exit 3"),
    (["retry", "se-none~1", "se-none~2", "--yes"], 3, "skipped se-none~1"),
    (["retry", "a", "b"], 2, "confirm it:   corvo retry a b --yes"),
    (["retry", "-"], 2, "no job ids on stdin"),
    (["retry", "-", "a"], 2, "and not both"),
    (["dev", "--port", "x"], 2, "argument --port: expected a number: 'x'"),
    (
        ["bulk", "move", "b c", "--queue", "se-none", "--tag", "a=b", "--rate", "3"],
        2,
        "corvo bulk move 'b c' --queue se-none --tag a=b --rate 3 --yes",
    ),
    (["bulk", "retry", "--queue", "se-none"], 2, "bulk retry: 0 jobs match"),
    (["bulk", "move"], 2, "bulk move needs a word"),
    (["bulk", "retry", "-", "--queue", "a"], 2, "and not both"),
    (["bulk", "rety"], 2, "did you mean `corvo bulk retry`?"),
    (["bulk", "show", "nope"], 3, "NOT_FOUND, exit 3"),
    (["events", "--types", "nope"], 2, "VALIDATION_ERROR"),
    (["events", "--since", "soon"], 2, "--since 'soon' is invalid"),
    (["events", "--from", "x"], 2, "VALIDATION_ERROR"),
    (["batches", "s00_batch_x"], 3, "NOT_FOUND, exit 3"),
    (["keys", "delete", "nope"], 3, "no API key has the name or hash 'nope'"),
    (["keys", "create", "a", "--role", "king"], 2, "VALIDATION_ERROR"),
    (["keys", "lst"], 2, "did you mean `corvo keys list`?"),
]
"""More failures: words, exit code, and part of the error."""


# What commands need.


def prepare(server: Server, queue: str, needs: str) -> list[str]:
    """Make what a case needs, in a queue; ids."""
    with Client([server.url], api_key=server.api_key) as client:
        match needs:
            case "" | "profile":
                return []
            case "schedule":
                body = {"name": "s", "queue": queue, "cron": "0 3 1 1 *"}
                schedules.create(client, body)
                return [f"{queue}~s"]
            case "key":
                keys.create(client, {"name": queue, "role": "worker"})
                return [queue]
            case "batch":
                made = api.enqueue_many(client, [{"queue": queue}], batch={"callback_queue": "cb"})
                return [read(made, EnqueuedMany).batch_id]
            case "bulk" | "slow bulk":
                _jobs(client, queue, "pending", 40)
                rate = {"rate": 1} if needs == "slow bulk" else {}
                action = {"action": "hold", "filter": {"queue": queue}, "async": True, **rate}
                return [bulk.start(client, action, request_key=queue).id]
            case _:
                return _jobs(client, queue, needs, 2)


class _Made(msgspec.Struct):
    job_id: str


def _jobs(client: Client, queue: str, state: str, count: int) -> list[str]:
    """Jobs in a state."""
    delay = {"delay": "1h"} if state == "scheduled" else {}
    made = read(api.enqueue_many(client, [{"queue": queue, **delay}] * count), EnqueuedMany)
    ids = [msgspec.json.decode(raw, type=_Made).job_id for raw in made.jobs]
    if state in {"active", "completed", "dead"}:
        work.fetch_many(client, [queue], count=count, worker_id="w")
    items = [{"job_id": job_id} for job_id in ids]
    if state == "completed":
        work.finish_many(client, "ack", items)
    if state == "dead":
        work.finish_many(
            client, "fail", [{**item, "error": "x", "retryable": False} for item in items]
        )
    if state in {"held", "cancelled"}:
        for job_id in ids:
            api.act(client, job_id, {"held": "hold", "cancelled": "cancel"}[state])
    return ids
