"""`corvo keys`: lists, creates and deletes API keys."""

import argparse
from collections.abc import Sequence
from typing import Final

import msgspec

from corvo.client import keys as api
from corvo.client.calls import read
from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.filters import moment_of
from corvo.client_commands.options import Verb, add_nothing, add_yes, dispatch, own
from corvo.client_commands.records import DEEDS, FORMS, TEXTS, Column, Listing
from corvo.client_commands.session import Session
from corvo.nearest import nearest

SUMMARY: Final = "List, create and delete API keys."
_HASH_SHOWN: Final = 12

KEYS: Final = Listing(
    "keys",
    api.Key,
    lambda key: key.key_hash,
    (
        Column[api.Key]("name", lambda key, _: key.name),
        Column[api.Key]("role", lambda key, _: key.role),
        Column[api.Key]("queues", lambda key, _: ",".join(key.queue_scope)),
        Column[api.Key]("enabled", lambda key, _: "yes" if key.enabled else "no"),
        Column[api.Key]("expires", lambda key, _: key.expires_at or ""),
        Column[api.Key]("created", lambda key, _: key.created_at, is_wide=True),
        Column[api.Key]("hash", lambda key, _: key.key_hash[:_HASH_SHOWN]),
        Column[api.Key]("whole_hash", lambda key, _: key.key_hash, is_wide=True),
    ),
)


class Options(argparse.Namespace):
    """What the parsers have read, each its own part."""

    name: str
    role: str | None
    queues: str | None
    expires: str | None
    secret: str | None


def main(arguments: Sequence[str]) -> int:
    """`corvo keys`."""
    return dispatch("keys", SUMMARY, VERBS, arguments)


def list_keys(session: Session, _: argparse.Namespace) -> int:
    """`corvo keys list`."""
    with session.listing(KEYS) as records:
        records.add(api.get_keys(session.client))
    if not records.count and session.is_terminal:
        session.note("no API keys. Create one:   corvo keys create NAME --role worker")
    return OK


def create(session: Session, options: argparse.Namespace) -> int:
    """`corvo keys create NAME`."""
    got = own(Options, options)
    body: dict[str, object] = {"name": got.name}
    if got.role is not None:
        body["role"] = got.role
    if got.queues is not None:
        body["queue_scope"] = [each for each in got.queues.split(",") if each]
    if got.expires is not None:
        body["expires_at"] = moment_of(got.expires, session.now_ns(), ahead=True)
    answer = api.create(session.client, body)
    made = read(answer, api.Created)
    session.show(answer, f"{made.api_key}\n", (made.api_key,))
    session.note(f"the API key of {got.name} ({made.role}) is shown only this once")
    if made.warning:
        session.note(made.warning)
    return OK


def delete(session: Session, options: argparse.Namespace) -> int:
    """`corvo keys delete NAME|HASH`."""
    wanted = own(Options, options).name
    known = [msgspec.json.decode(raw, type=api.Key) for raw in api.get_keys(session.client)]
    found = [key for key in known if wanted == key.name or key.key_hash.startswith(wanted)]
    if not found:
        near = nearest(wanted, tuple(key.name for key in known))
        hints = [f"did you mean:   {near}"] if near else []
        raise CommandFailed(
            "NOT_FOUND",
            f"no API key has the name or hash {wanted!r}",
            hints=[*hints, "list them:   corvo keys list"],
        )
    if len(found) > 1:
        raise CommandFailed(
            "AMBIGUOUS",
            f"{len(found)} API keys match {wanted!r}",
            hints=[f"name one by its hash:   {key.key_hash[:_HASH_SHOWN]}" for key in found[:5]],
        )
    [key] = found
    session.confirm(
        lambda: f"clients with the API key {key.name} ({key.role}) will be rejected",
        f"Delete {key.name}?",
        f"corvo keys delete {wanted}",
    )
    answer = api.delete(session.client, key.key_hash)
    session.show(answer, f"the API key {key.name} was deleted\n", (key.key_hash,))
    return OK


def status(session: Session, _: argparse.Namespace) -> int:
    """`corvo keys status`."""
    answer = api.get_status(session.client)
    found = read(answer, api.AuthStatus)
    needed = "an API key is needed" if found.keys_required else "no API key is needed"
    caller = found.caller
    who = f"this request: {caller.name} ({caller.role})" if caller else "no API key was sent"
    session.show(answer, f"{needed}\n{who}\n")
    return OK


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the API key, for lists and histories")
    parser.add_argument(
        "--role", metavar="ROLE", help="readonly, producer, worker, operator or admin"
    )
    parser.add_argument(
        "--queues", metavar="QUEUE[,...]", help="only these queues; mail* is all with this prefix"
    )
    parser.add_argument("--expires", metavar="TIME", help="90d, or 2026-02-20T10:00:00Z")


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the API key, or its hash")
    add_yes(parser)


VERBS: Final = {
    "list": Verb("list API keys", list_keys, add_nothing, FORMS),
    "create": Verb(
        "create an API key, and print its secret",
        create,
        _add_create,
        DEEDS,
        ("corvo keys create mailer --role worker --queues 'mail*' --expires 90d",),
    ),
    "delete": Verb("delete an API key", delete, _add_delete, DEEDS),
    "status": Verb(
        "show whether an API key is needed, and which one is sent", status, add_nothing, TEXTS
    ),
}
