"""Filters of a search as flags, for `search` and `bulk` alike: one table says which there are."""

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from corvo.client.errors import BadClientOption
from corvo.client_commands.options import natural
from corvo.times import format_time, parse_duration


class Filter(NamedTuple):
    """A filter whose value is a text."""

    field: str
    metavar: str
    meaning: str

    @property
    def flag(self) -> str:
        """The flag, named like the field."""
        return f"--{self.field.replace('_', '-')}"


TEXTS: Final = (
    Filter("queue", "QUEUE", "jobs of this queue"),
    Filter("state", "STATE[,...]", "jobs in one of these states, such as dead,held"),
    Filter("kind", "KIND", "jobs of this kind"),
    Filter("priority", "LEVEL", "jobs with this priority: critical, high or normal"),
    Filter("payload_contains", "TEXT", "jobs whose payload contains this text"),
    Filter("payload_jq", "CONDITION", "jobs for whose payload this is true: '.amount > 100'"),
    Filter("error_contains", "TEXT", "jobs with an error that contains this text"),
    Filter("dlq_reason", "REASON", "dead jobs that ended for this reason, such as expired"),
    Filter("unique_key", "TEXT", "the job with this unique key"),
    Filter("batch_id", "ID", "jobs of this batch"),
    Filter("worker_id", "ID", "jobs that this worker has, had or failed"),
    Filter("parent_id", "ID", "jobs that this job created"),
    Filter("chain_id", "ID", "steps of this chain"),
    Filter("job_id_prefix", "ID", "jobs whose id begins like this"),
)
MOMENTS: Final = ("created", "scheduled", "started", "completed", "expire")
_TIME: Final = "2026-02-20, 2026-02-20T10:00:00Z, or 15m for 15 minutes ago"


class Filters(argparse.Namespace):
    """The filters that a parser has read."""

    tag: list[str]
    has_errors: str | None
    attempt_min: int | None
    attempt_max: int | None
    filter: str | None


def add_filters(parser: argparse.ArgumentParser) -> None:
    """All flags of filters."""
    group = parser.add_argument_group("filters", "a job must match all of them")
    for each in TEXTS:
        group.add_argument(
            each.flag, dest=f"by_{each.field}", metavar=each.metavar, help=each.meaning
        )
    group.add_argument(
        "--tag", action="append", default=[], metavar="NAME=VALUE", help="jobs with this tag"
    )
    group.add_argument(
        "--has-errors", choices=("true", "false"), help="jobs with a failed attempt, or without"
    )
    for name in MOMENTS:
        for side in ("after", "before"):
            group.add_argument(
                f"--{name}-{side}",
                dest=f"by_{name}_{side}",
                metavar="TIME",
                help=f"jobs with this time {side} TIME: {_TIME}",
            )
    group.add_argument(
        "--attempt-min", type=natural, metavar="N", help="jobs with at least N attempts"
    )
    group.add_argument(
        "--attempt-max", type=natural, metavar="N", help="jobs with at most N attempts"
    )
    group.add_argument(
        "--filter", metavar="JSON", help="all filters as one object, as in the HTTP API"
    )


def chosen(read: argparse.Namespace, now_ns: int) -> dict[str, object]:
    """The body of a search with these filters. Raises `BadClientOption`."""
    got = Filters(**vars(read))
    texts: dict[str, str | None] = vars(read)
    body: dict[str, object] = _object(got.filter) if got.filter is not None else {}
    for each in TEXTS:
        text = texts[f"by_{each.field}"]
        if text is not None:
            body[each.field] = text
    if got.tag:
        body["tags"] = tags_of(got.tag)
    if got.has_errors is not None:
        body["has_errors"] = got.has_errors == "true"
    for name in (f"{moment}_{side}" for moment in MOMENTS for side in ("after", "before")):
        text = texts[f"by_{name}"]
        if text is not None:
            body[name] = moment_of(text, now_ns, ahead=name.startswith(("scheduled", "expire")))
    if got.attempt_min is not None:
        body["attempt_min"] = got.attempt_min
    if got.attempt_max is not None:
        body["attempt_max"] = got.attempt_max
    return body


def typed(read: argparse.Namespace) -> list[str]:
    """The filters as words of a command, as they were typed."""
    texts: dict[str, object] = vars(read)
    words = []
    for name, value in texts.items():
        if name.startswith("by_") and value is not None:
            words += [f"--{name[3:].replace('_', '-')}", str(value)]
    got = Filters(**vars(read))
    for tag in got.tag:
        words += ["--tag", tag]
    for flag, value in (
        ("--has-errors", got.has_errors),
        ("--attempt-min", got.attempt_min),
        ("--attempt-max", got.attempt_max),
        ("--filter", got.filter),
    ):
        if value is not None:
            words += [flag, str(value)]
    return words


def moment_of(text: str, now_ns: int, *, ahead: bool = False) -> str:
    """A time; a duration counts back from now, or forward where times are ahead."""
    span_ns = parse_duration(text)
    if span_ns is None:
        return text
    return format_time(now_ns + span_ns if ahead else now_ns - span_ns)


def tags_of(words: Sequence[str]) -> dict[str, str]:
    """Tags out of `NAME=VALUE`. Raises `BadClientOption`."""
    tags = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadClientOption(f"--tag {word!r} is invalid: expected NAME=VALUE")
        tags[name] = value
    return tags


def _object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise BadClientOption(f"--filter is not a JSON object: {error}") from error
