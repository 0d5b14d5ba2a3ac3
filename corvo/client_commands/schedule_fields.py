"""The definition of a schedule as arguments: for `corvo schedules create` and `change` alike."""

import argparse
from typing import Final

import msgspec

from corvo.client.errors import BadClientOption
from corvo.client_commands.enqueue import backoff_of, payload_of, read_input
from corvo.client_commands.filters import moment_of, tags_of
from corvo.client_commands.options import natural, positive

STDIN: Final = "-"
_NAME: Final = "name"
_KEPT: Final = frozenset(
    {
        _NAME,
        "queue",
        "cron",
        "timezone",
        "overlap",
        "missed",
        "missed_max",
        "missed_after_ms",
        "jitter_ms",
        "starts_at",
        "ends_at",
        "paused",
        "changes",
        "payload",
        "kind",
        "priority",
        "max_retries",
        "retry_backoff",
        "retry_base_delay_ms",
        "retry_max_delay_ms",
        "retry_jitter",
        "max_run_time_ms",
        "max_crashes",
        "unique_key",
        "unique_period_ms",
        "expire_after_ms",
        "expire_active",
        "tags",
        "chain",
        "agent",
    }
)
"""Fields of a schedule that are sent back when another one of them is changed."""


class Fields(argparse.Namespace):
    """The options of a definition that a parser has read."""

    queue: str | None
    cron: str | None
    payload: str | None
    tz: str | None
    overlap: str | None
    missed: str | None
    missed_max: int | None
    missed_after: str | None
    jitter: str | None
    starts: str | None
    ends: str | None
    priority: str | None
    kind: str | None
    retries: int | None
    backoff: str | None
    max_run_time: str | None
    expire: str | None
    unique: str | None
    chain: str | None
    tag: list[str]
    tags: str | None


def fields_of(got: Fields, now_ns: int) -> dict[str, object]:
    """The fields that were passed, without tags. Raises `BadClientOption`."""
    payload = got.payload
    if payload == STDIN:
        payload = read_input(STDIN, "the payload").decode(errors="replace")
    fields: dict[str, object] = {
        "queue": got.queue,
        "cron": got.cron,
        "payload": payload_of(payload),
        "timezone": got.tz,
        "overlap": got.overlap,
        "missed": got.missed,
        "missed_max": got.missed_max,
        "missed_after": got.missed_after,
        "jitter": got.jitter,
        "starts_at": None if got.starts is None else moment_of(got.starts, now_ns, ahead=True),
        "ends_at": None if got.ends is None else moment_of(got.ends, now_ns, ahead=True),
        "priority": got.priority,
        "kind": got.kind,
        "max_retries": got.retries,
        "max_run_time": got.max_run_time,
        "expire_after": got.expire,
        "unique_key": got.unique,
        "chain": payload_of(got.chain),
        **backoff_of(got.backoff),
    }
    return {name: value for name, value in fields.items() if value is not None}


def tags_after(got: Fields, before: dict[str, str]) -> dict[str, str]:
    """Tags with those that were passed. Raises `BadClientOption`."""
    if got.tags is not None:
        try:
            before = msgspec.json.decode(got.tags, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise BadClientOption(f"--tags is not a JSON object of texts: {error}") from error
    return before | tags_of(got.tag)


def changed(view: bytes, got: Fields, now_ns: int) -> dict[str, object]:
    """The definition of a schedule with the fields that were passed. Raises `BadClientOption`.

    It has the number of changes of the schedule that was read, so that a change by another client
    meanwhile is not overwritten.
    """
    given = fields_of(got, now_ns)
    has_tags = bool(got.tag) or got.tags is not None
    if not given and not has_tags:
        raise BadClientOption("nothing to change: pass an option, such as --cron '0 9 * * *'")
    seen = msgspec.json.decode(view, type=dict[str, msgspec.Raw])
    body: dict[str, object] = {name: raw for name, raw in seen.items() if name in _KEPT}
    for name in given:
        body.pop(f"{name}_ms", None)
    body |= given
    if has_tags:
        before = msgspec.json.decode(seen.get("tags", b"{}"), type=dict[str, str])
        body["tags"] = tags_after(got, before)
    if "queue" in given and "chain" in seen and "chain" not in given:
        body["chain"] = _begun_in(seen["chain"], got.queue)
    return body


def _begun_in(chain: msgspec.Raw, queue: str | None) -> dict[str, object]:
    """A chain whose first step is in the queue of its job."""
    whole = msgspec.json.decode(chain, type=dict[str, msgspec.Raw])
    first, *others = msgspec.json.decode(whole["steps"], type=list[dict[str, msgspec.Raw]])
    return {**whole, "steps": [{**first, "queue": queue}, *others]}


def add_fields(parser: argparse.ArgumentParser) -> None:
    """The options of a definition."""
    add = parser.add_argument
    add(
        "--tz", "--timezone", metavar="ZONE", help="time zone, such as Europe/Berlin (default: UTC)"
    )
    add(
        "--overlap",
        metavar="RULE",
        help="while an earlier job has not ended: allow (default), skip, queue or cancel",
    )
    add("--missed", metavar="RULE", help="for missed due times: skip, one (default) or all")
    add("--missed-max", type=positive, metavar="N", help="most jobs of --missed all (default: 100)")
    add("--missed-after", metavar="TIME", help="delay that makes a due time missed (default: 1m)")
    add("--jitter", metavar="TIME", help="longest random delay of each job (default: 0s)")
    add("--starts", metavar="TIME", help="first possible due time: 2026-03-01, or 7d from now")
    add("--ends", metavar="TIME", help="last possible due time: 2026-04-01, or 30d from now")
    add("--priority", metavar="LEVEL", help="critical, high or normal (default)")
    add("--kind", metavar="TEXT", help="kind of the jobs, for workers and searches")
    add("--retries", type=natural, metavar="N", help="number of attempts of a job (default: 3)")
    add(
        "--backoff",
        metavar="KIND[:FIRST[..LONGEST]]",
        help="delays between attempts (default: exponential:5s..10m)",
    )
    add("--max-run-time", metavar="TIME", help="longest time of one attempt")
    add("--expire", metavar="TIME", help="a job is dead if not started within this time")
    add("--unique", metavar="TEXT", help="at most one unfinished job with this text")
    add("--chain", metavar="JSON|@FILE", help="steps that follow each job, as in docs/work.md")
    add(
        "--tag",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="tag of the jobs; other tags of the schedule stay",
    )
    add("--tags", metavar="JSON", help="tags of the jobs as an object; others are removed")
