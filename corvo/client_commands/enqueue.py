"""`corvo enqueue`: one job from arguments, or many from the lines of a pipe."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from corvo.client import jobs as api
from corvo.client.calls import read
from corvo.client.errors import BadClientOption, ClientError
from corvo.client_commands.failures import INTERRUPTED, OK, CommandFailed
from corvo.client_commands.filters import tags_of
from corvo.client_commands.interrupts import first_interrupt
from corvo.client_commands.lines import Line, batches
from corvo.client_commands.options import Verb, natural, own, seconds
from corvo.client_commands.progress import Progress
from corvo.client_commands.records import DEEDS, IDS, JSON, JSONL, one_line
from corvo.client_commands.session import Session
from corvo.client_commands.tables import grouped
from corvo.client_commands.waiting import check_completed, wait_for
from corvo.command_table import COMMANDS
from corvo.times import parse_duration

STDIN: Final = "-"
BATCH: Final = 500
"""Jobs of one request."""
_BATCH_BYTES: Final = 4 << 20
_BACKOFFS: Final = ("none", "fixed", "linear", "exponential")
_SHORT: Final = {"exp": "exponential"}


class Options(argparse.Namespace):
    """What the parser has read."""

    queue: str
    payload: str | None
    set: list[str]
    jobs: bool
    priority: str | None
    delay: str | None
    at: str | None
    unique: str | None
    unique_for: str | None
    retries: int | None
    backoff: str | None
    expire: str | None
    max_run_time: str | None
    tag: list[str]
    tags: str | None
    depends_on: list[str]
    id: str | None
    batch: str | None
    kind: str | None
    parent: str | None
    chain: str | None
    agent_max_iterations: int | None
    agent_max_cost_usd: float | None
    agent_iteration_timeout: str | None
    wait: float | None


def enqueue(session: Session, options: argparse.Namespace) -> int:
    """`corvo enqueue QUEUE [JSON|@FILE|-]`."""
    got = own(Options, options)
    fields = fields_of(got)
    if got.payload == STDIN:
        if got.id is not None or got.wait is not None or got.set:
            raise BadClientOption("--id, --wait and --set are for one job, and not for - (stdin)")
        return _enqueue_lines(session, got, fields)
    if got.jobs:
        raise BadClientOption("--jobs needs jobs from stdin: pass - after the queue")
    payload = with_set(payload_of(got.payload), got.set)
    if payload is not None:
        fields["payload"] = payload
    if got.id is not None:
        fields["id"] = got.id
    answer = api.enqueue(session.client, {"queue": got.queue, **fields})
    made = read(answer, api.Enqueued)
    assert made.job_id, "a server answers with the id"
    if got.wait is not None:
        return _wait(session, made.job_id, got.wait)
    if made.unique_existing:
        text = f"{made.job_id} exists already ({made.status}): nothing was created\n"
    else:
        text = f"{made.job_id} was enqueued in {got.queue} ({made.status})\n"
    session.show(answer, text, (made.job_id,))
    if session.is_terminal and session.output not in {JSON, JSONL, IDS}:
        session.note(f"  next:   corvo inspect {made.job_id}")
    return OK


def _wait(session: Session, job_id: str, wait_s: float) -> int:
    """Wait for the end of the job, and show its result."""
    session.note(f"{job_id} was enqueued")
    ended: list[tuple[msgspec.Raw, api.Job]] = []
    wait_for(session, [job_id], wait_s, lambda raw, job: ended.append((raw, job)))
    [(raw, job)] = ended
    text = one_line(job.result) + "\n" if job.state == "completed" else ""
    session.show(bytes(raw), text, (job_id,))
    check_completed([job])
    return OK


# Many jobs.


def _enqueue_lines(session: Session, got: Options, fields: dict[str, object]) -> int:
    """Each line is a job; a batch is sent as soon as it is full, or the input pauses."""
    progress = Progress("jobs", is_quiet=session.is_quiet)
    enqueued, existing, last = 0, 0, 0
    with first_interrupt() as interrupted:
        try:
            for lines in batches(BATCH, _BATCH_BYTES, interrupted.is_set):
                jobs = [job_of(line, got, fields) for line in lines]
                made = _send(session, jobs, lines)
                enqueued += len(made)
                existing += sum(one.unique_existing for one in made)
                last = lines[-1].number
                progress.show(enqueued, None)
        except ClientError as error:
            progress.clear()
            told = f"lines up to {last} were enqueued: {grouped(enqueued)} jobs"
            error.hints = (*error.hints, told, _rest(last))
            raise
        finally:
            progress.clear()
    said = f"{grouped(enqueued)} jobs"
    if existing:
        said = f"{said}, of which {grouped(existing)} existed already"
    if interrupted.is_set():
        session.say(f"interrupted: lines up to {last} were enqueued: {said}\n{_rest(last)}")
        return INTERRUPTED
    if session.output in DEEDS[:1]:
        session.show(b"{}", f"enqueued {said}\n")
    else:
        session.note(f"enqueued {said}")
    return OK


def _rest(last: int) -> str:
    return f"continue with the next line:   tail -n +{last + 1} FILE | corvo enqueue ... -"


def _send(
    session: Session, jobs: Sequence[dict[str, object]], lines: Sequence[Line]
) -> list[api.Enqueued]:
    try:
        answer = api.enqueue_many(session.client, jobs)
    except ClientError as error:
        span = f"{lines[0].number} to {lines[-1].number}"
        error.hints = (*error.hints, f"this concerns lines {span} of stdin; jobs[0] is the first")
        raise
    raws = read(answer, api.EnqueuedMany).jobs
    made = [msgspec.json.decode(raw, type=api.Enqueued) for raw in raws]
    if session.output == IDS:
        sys.stdout.write("".join(f"{one.job_id}\n" for one in made))
    elif session.output in {JSON, JSONL}:
        sys.stdout.write("".join(f"{one_line(raw)}\n" for raw in raws))
    sys.stdout.flush()
    return made


def job_of(line: Line, got: Options, fields: dict[str, object]) -> dict[str, object]:
    """The job of a line: its payload, or with `--jobs` all of its fields."""
    try:
        if not got.jobs:
            msgspec.json.decode(line)
            return {"queue": got.queue, **fields, "payload": msgspec.Raw(line)}
        own_fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise CommandFailed(
            "BAD_INPUT",
            f"line {line.number} of stdin is not JSON: {error}",
            hints=['expected a payload on each line, such as {"to": "ada"}'],
        ) from error
    return {"queue": got.queue, **fields, **own_fields}


# One job.


def payload_of(text: str | None) -> msgspec.Raw | None:
    """JSON of an argument, or of the file behind `@`. Raises `BadClientOption`."""
    if text is None:
        return None
    where = "the payload"
    data = text.encode()
    if text.startswith("@"):
        where = f"the payload in {text[1:]}"
        data = read_input(text[1:], where)
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BadClientOption(
            f"{where} is not JSON: {error}", 'quote it for the shell:   \'{"to": "ada"}\''
        ) from error
    return msgspec.Raw(data.strip())


def read_input(name: str, where: str) -> bytes:
    """A file, or with the name `-` all of stdin. Raises `BadClientOption`."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise BadClientOption(f"{where} cannot be read: {error}") from error


def with_set(payload: msgspec.Raw | None, words: Sequence[str]) -> msgspec.Raw | None:
    """A payload with fields of `--set`: `a.b=text` is a text, `a.b:=1` is JSON."""
    if not words:
        return payload
    try:
        whole = msgspec.json.decode(payload or b"{}", type=dict[str, object])
    except msgspec.DecodeError as error:
        raise BadClientOption("--set needs a payload that is a JSON object") from error
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise BadClientOption(f"--set {word!r} is invalid: expected NAME=TEXT or NAME:=JSON")
        value: object = text
        if path.endswith(":"):
            path = path[:-1]
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise BadClientOption(f"--set {word!r}: the value is not JSON: {error}") from error
        _put(whole, path.split("."), value, word)
    return msgspec.Raw(msgspec.json.encode(whole))


def _put(whole: dict[str, object], path: Sequence[str], value: object, word: str) -> None:
    at = whole
    for name in path[:-1]:
        inner = at.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadClientOption(f"--set {word!r}: {name} is not an object")
        at = inner
    at[path[-1]] = value


def fields_of(got: Options) -> dict[str, object]:
    """The fields of a job that flags set. Raises `BadClientOption`."""
    agent = {
        "max_iterations": got.agent_max_iterations,
        "max_cost_usd": got.agent_max_cost_usd,
        "iteration_timeout": got.agent_iteration_timeout,
    }
    agent_set = {name: value for name, value in agent.items() if value is not None}
    tags: dict[str, object] = dict(_json_object(got.tags, "--tags")) if got.tags else {}
    tags |= tags_of(got.tag)
    depends_on = [one for word in got.depends_on for one in word.split(",") if one]
    fields: dict[str, object] = {
        "priority": got.priority,
        "delay": got.delay,
        "scheduled_at": got.at,
        "unique_key": got.unique,
        "unique_period": _unique_period(got.unique_for),
        "max_retries": got.retries,
        "expire_after": got.expire,
        "max_run_time": got.max_run_time,
        "batch_id": got.batch,
        "kind": got.kind,
        "parent_id": got.parent,
        "tags": tags or None,
        "depends_on": depends_on or None,
        "chain": payload_of(got.chain),
        "agent": agent_set or None,
        **backoff_of(got.backoff),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _unique_period(text: str | None) -> str | int | None:
    """A duration; a number alone is seconds, as corvo-go's."""
    return int(text) if text is not None and text.isdigit() else text


def backoff_of(text: str | None) -> dict[str, str]:
    """`exponential`, `exp:5s` or `linear:5s..10m` as fields. Raises `BadClientOption`."""
    if text is None:
        return {}
    kind, colon, delays = text.partition(":")
    kind = _SHORT.get(kind, kind)
    base, dots, most = delays.partition("..")
    spans = [*([base] if colon else []), *([most] if dots else [])]
    if kind not in _BACKOFFS or any(parse_duration(span) is None for span in spans):
        raise BadClientOption(
            f"--backoff {text!r} is invalid: expected KIND[:FIRST[..LONGEST]], such as"
            f" exponential:5s..10m; kinds are {', '.join(_BACKOFFS)}"
        )
    fields = {"retry_backoff": kind}
    if colon:
        fields["retry_base_delay"] = base
    if dots:
        fields["retry_max_delay"] = most
    return fields


def _json_object(text: str, flag: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise BadClientOption(f"{flag} is not a JSON object: {error}") from error


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", metavar="QUEUE", help="queue of the job; it is created by its first job")
    add(
        "payload",
        nargs="?",
        metavar="JSON|@FILE|-",
        help="payload (default: {}), a file with it, or - for a payload on each line of stdin",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="set a field of the payload; NAME:=JSON for another type than text",
    )
    add("--jobs", action="store_true", help="each line of stdin is a whole job with its fields")
    add("--priority", metavar="LEVEL", help="critical, high or normal (default)")
    add("--delay", metavar="TIME", help="start after this time, such as 5m")
    add("--at", "--scheduled-at", metavar="TIME", help="start at this time: 2026-02-20T10:00:00Z")
    add(
        "--unique", "--unique-key", metavar="TEXT", help="at most one unfinished job with this text"
    )
    add(
        "--unique-for",
        "--unique-period",
        metavar="TIME",
        help="time that duplicates are blocked at most (default: 1h)",
    )
    add(
        "--retries",
        "--max-retries",
        type=natural,
        metavar="N",
        help="number of attempts, the first included (default: 3)",
    )
    add(
        "--backoff",
        metavar="KIND[:FIRST[..LONGEST]]",
        help="delays between attempts (default: exponential:5s..10m)",
    )
    add("--expire", "--expire-after", metavar="TIME", help="dead if not started within this time")
    add("--max-run-time", metavar="TIME", help="longest time of one attempt")
    add("--tag", action="append", default=[], metavar="NAME=VALUE", help="tag, for searches")
    add("--tags", metavar="JSON", help="tags as an object")
    add(
        "--depends-on",
        action="append",
        default=[],
        metavar="ID[,...]",
        help="start when these jobs are completed",
    )
    add("--id", metavar="ID", help="id of your choice: the same job is not enqueued twice")
    add("--batch", "--batch-id", metavar="ID", help="batch that the job joins")
    add("--kind", metavar="TEXT", help="kind of the job, for workers and searches")
    add("--parent", "--parent-id", metavar="ID", help="job that creates this one")
    add("--chain", metavar="JSON|@FILE", help="steps that follow, as in docs/work.md")
    add("--agent-max-iterations", type=natural, metavar="N", help="most iterations of an agent")
    add("--agent-max-cost-usd", type=float, metavar="USD", help="most cost of an agent's job")
    add("--agent-iteration-timeout", metavar="TIME", help="longest time of one iteration")
    add("--wait", type=seconds, metavar="TIME", help="wait at most this long for the result")


VERBS: Final = {
    "enqueue": Verb(
        COMMANDS["enqueue"].summary,
        enqueue,
        _add,
        DEEDS,
        (
            """corvo enqueue mail '{"to": "ada"}' --delay 5m --retries 5""",
            "corvo enqueue reports --set customer=acme --set rows:=500 --wait 1m",
            "corvo enqueue mail - < payloads.jsonl",
        ),
    )
}
