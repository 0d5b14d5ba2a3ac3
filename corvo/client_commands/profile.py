"""`corvo profile`: names for servers and their API keys."""

import argparse
import os
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.client.errors import BadClientOption
from corvo.client.servers import parse_servers
from corvo.client_commands import profiles as stored
from corvo.client_commands.failures import OK
from corvo.client_commands.options import Read, Verb, add_nothing, dispatch, own, target_of
from corvo.client_commands.profiles import Profile, Profiles
from corvo.client_commands.records import DEEDS, FORMS, TEXTS, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import pairs

SUMMARY: Final = "Name servers and their API keys, and choose one of them."


class _Row(msgspec.Struct, frozen=True):
    """A profile in a list; its API key is not shown."""

    name: str
    servers: list[str]
    api_key: str
    is_default: bool
    protected: bool = False


PROFILES: Final = Listing(
    "profiles",
    _Row,
    lambda row: row.name,
    (
        Column[_Row]("name", lambda row, _: row.name),
        Column[_Row]("default", lambda row, _: "*" if row.is_default else ""),
        Column[_Row]("server", lambda row, _: ",".join(row.servers)),
        Column[_Row]("api_key", lambda row, _: row.api_key),
        Column[_Row]("protected", lambda row, _: "yes" if row.protected else ""),
    ),
)


class Options(argparse.Namespace):
    """What the parsers have read, each its own part."""

    name: str
    url: str
    key_file: str | None
    key_env: str | None
    api_key: str | None
    form: str | None
    protected: bool


def main(arguments: Sequence[str]) -> int:
    """`corvo profile`."""
    return dispatch("profile", SUMMARY, VERBS, arguments)


def _row(found: Profiles, name: str) -> _Row:
    profile = found.profile[name]
    place = profile.api_key_file and f"file {profile.api_key_file}"
    place = place or (profile.api_key_env and f"variable {profile.api_key_env}")
    return _Row(
        name,
        profile.servers,
        place or ("***" if profile.api_key else ""),
        is_default=name == found.default,
        protected=profile.protected,
    )


def list_profiles(session: Session, _: argparse.Namespace) -> int:
    """`corvo profile list`."""
    found = stored.load(stored.path_of(os.environ))
    with session.listing(PROFILES) as records:
        records.add(
            [msgspec.Raw(msgspec.json.encode(_row(found, name))) for name in sorted(found.profile)]
        )
    if not found.profile and session.is_terminal:
        session.note("no profiles. Add one:   corvo profile add prod https://queue.example.net")
    return OK


def add(session: Session, options: argparse.Namespace) -> int:
    """`corvo profile add NAME URL`."""
    got = own(Options, options)
    if not got.name.isprintable() or not got.name or " " in got.name:
        raise BadClientOption(f"the name {got.name!r} is invalid: use letters without spaces")
    servers = [server.url for server in parse_servers([got.url])]
    path = stored.path_of(os.environ)
    found = stored.load(path)
    profile = Profile(
        server=servers[0] if len(servers) == 1 else servers,
        api_key=got.api_key or "",
        api_key_file=got.key_file or "",
        api_key_env=got.key_env or "",
        output=got.form or "",
        protected=got.protected,
    )
    default = found.default or got.name
    found = Profiles(default, {**found.profile, got.name: profile})
    stored.save(path, found)
    text = f"profile {got.name} is {', '.join(servers)}, in {path}\n"
    session.show(msgspec.json.encode(_row(found, got.name)), text, (got.name,))
    if default != got.name:
        session.note(f"  make it the default:   corvo profile use {got.name}")
    return OK


def use(session: Session, options: argparse.Namespace) -> int:
    """`corvo profile use NAME`."""
    name = own(Options, options).name
    path = stored.path_of(os.environ)
    found = stored.load(path)
    stored.choose(found, name)
    found = replace(found, default=name)
    stored.save(path, found)
    session.show(msgspec.json.encode(_row(found, name)), f"{name} is the default\n", (name,))
    return OK


def remove(session: Session, options: argparse.Namespace) -> int:
    """`corvo profile remove NAME`."""
    name = own(Options, options).name
    path = stored.path_of(os.environ)
    found = stored.load(path)
    stored.choose(found, name)
    left = {each: found.profile[each] for each in found.profile if each != name}
    stored.save(path, Profiles("" if found.default == name else found.default, left))
    session.show(b"{}", f"profile {name} is removed\n", (name,))
    return OK


def show(session: Session, options: argparse.Namespace) -> int:
    """`corvo profile show`: the values that commands use now, and their sources."""
    rows = target_of(own(Read, options)).sources()
    told = {name: {"value": value, "source": source} for name, value, source in rows}
    text = pairs((name, f"{value or '-'}  ({source})") for name, value, source in rows)
    session.show(msgspec.json.encode(told), text)
    return OK


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="PROFILE", help="name of the profile")


def _add_add(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "url", metavar="URL[,URL...]", help="address of a server, or of several nodes of a cluster"
    )
    parser.add_argument("--key-file", metavar="FILE", help="file with the API key")
    parser.add_argument("--key-env", metavar="NAME", help="variable with the API key")
    parser.add_argument("--form", metavar="FORM", help="form of output, as of -o")
    parser.add_argument(
        "--protected",
        action="store_true",
        help="--yes works only together with --profile, so that no script acts on it by default",
    )


_VERBS: Final = {
    "list": Verb("list profiles", list_profiles, add_nothing, FORMS),
    "add": Verb(
        "add or replace a profile; --api-key is stored in it",
        add,
        _add_add,
        DEEDS,
        (
            "corvo profile add prod https://q1.example.net,https://q2.example.net --key-file ~/key",
            "corvo profile add dev 127.0.0.1:8080",
        ),
    ),
    "use": Verb("make a profile the default", use, _add_name, DEEDS),
    "remove": Verb("remove a profile", remove, _add_name, DEEDS),
    "show": Verb("show the server and API key that commands use", show, add_nothing, TEXTS),
}
VERBS: Final = {name: verb._replace(needs_server=False) for name, verb in _VERBS.items()}
