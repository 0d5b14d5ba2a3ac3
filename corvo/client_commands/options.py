"""Options of commands that ask a server, from flags and environment."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Never, TypeAlias, TypeVar

from corvo.client.calls import Client
from corvo.client.errors import BadClientOption, ClientError
from corvo.client.servers import DEFAULT
from corvo.client_commands.failures import BAD_USAGE, OK, as_json, as_text, exit_code
from corvo.client_commands.profiles import (
    NO_PROFILE,
    PROFILE,
    Profile,
    api_key_of,
    choose,
    load,
    path_of,
    read_api_key,
)
from corvo.client_commands.records import (
    FORMS,
    JSON,
    JSONL,
    TABLE,
    TEXTS,
    WIDE,
    parse_fields,
)
from corvo.client_commands.session import Session, Style
from corvo.nearest import nearest
from corvo.times import S, parse_duration
from corvo.trace_context import context_of

SERVER: Final = "CORVO_SERVER"
API_KEY: Final = "CORVO_API_KEY"
OUTPUT: Final = "CORVO_OUTPUT"
NO_SOURCE: Final = "not set"
_EXITS: Final = (
    "Exit codes: 0 done, 2 usage or not confirmed, 3 not found, 4 not allowed, 5 conflict, 6 no"
    " answer, 7 partly done, 8 waited too long, 9 dead or cancelled, 10 not healthy, 1 other"
    " errors."
)

_ELSEWHERE: Final = {
    "--jq": "filter with the program jq:   ... -o json | jq EXPRESSION",
    "--namespace": "this server has no namespaces; a profile names a server:   corvo profile add",
}
"""Options that are looked for, and what to use."""


class Read(argparse.Namespace):
    """What all parsers have read."""

    profile: str | None
    server: list[str]
    api_key: str | None
    output: str | None
    output_json: bool
    fields: str | None
    no_headers: bool
    quiet: bool
    timeout: float
    yes: bool = False


Run: TypeAlias = Callable[[Session, argparse.Namespace], int]
Own = TypeVar("Own", bound=argparse.Namespace)


class Verb(NamedTuple):
    """A command, such as `corvo search`, or one below a noun, such as `corvo cluster drain`."""

    summary: str
    run: Run
    add: Callable[[argparse.ArgumentParser], None]
    """Adds its own arguments to a parser."""
    outputs: tuple[str, ...] = TEXTS
    examples: tuple[str, ...] = ()
    needs_server: bool = True


class Target(NamedTuple):
    """The server of a command, and where each value comes from."""

    servers: list[str]
    server_source: str
    api_key: str | None
    """None for that of the profile."""
    api_key_source: str
    profile_name: str
    profile: Profile
    is_explicit: bool
    """Whether the profile was named for this command."""

    def connect(self, timeout_s: float) -> Client:
        """A client of the server. Raises `BadClientOption`."""
        api_key = self.api_key
        if api_key is None:
            api_key = api_key_of(self.profile, os.environ)
        elif api_key.startswith("@"):
            api_key = read_api_key(api_key[1:])
        trace = context_of(os.environ.get("TRACEPARENT", ""), os.environ.get("TRACESTATE", ""))
        return Client(self.servers, api_key=api_key, timeout_s=timeout_s, trace=trace)

    def sources(self) -> list[tuple[str, str, str]]:
        """Name, value and source of each setting; an API key is not shown."""
        has_key = self.api_key_source != NO_SOURCE
        return [
            ("profile", self.profile_name, "named" if self.is_explicit else "default"),
            ("server", ",".join(self.servers), self.server_source),
            ("api_key", "***" if has_key else "", self.api_key_source),
        ]


def own(kind: type[Own], read: argparse.Namespace) -> Own:
    """What a command has read, with its types."""
    return kind(**vars(read))


def seconds(text: str) -> float:
    """A time such as `30s` or `5m`, in seconds."""
    ns = parse_duration(text)
    if ns is None or ns <= 0:
        raise argparse.ArgumentTypeError(f"expected a time above 0, such as 30s or 5m: {text!r}")
    return ns / S


def natural(text: str) -> int:
    """A whole number, or 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a number: {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not natural(text):
        raise argparse.ArgumentTypeError("expected a number above 0")
    return int(text)


def add_nothing(_: argparse.ArgumentParser) -> None:
    """Only the options of all commands."""


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The option that answers a question in advance."""
    parser.add_argument("-y", "--yes", action="store_true", help="do it without a question")


def usage(noun: str, summary: str, verbs: Mapping[str, Verb]) -> str:
    """What `corvo NOUN --help` prints."""
    width = max(map(len, verbs))
    lines = [f"  {name:<{width}}   {verb.summary}\n" for name, verb in verbs.items()]
    return (
        f"{summary}\n\nusage: corvo {noun} COMMAND [OPTION ...]\n\n{''.join(lines)}\n"
        f"`corvo {noun} COMMAND --help` shows the options of a command.\n"
    )


def dispatch(noun: str, summary: str, verbs: Mapping[str, Verb], words: Sequence[str]) -> int:
    """Run the command that the words name; returns the exit code."""
    if not words:
        sys.stderr.write(usage(noun, summary, verbs))
        return BAD_USAGE
    name, *rest = words
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(usage(noun, summary, verbs))
        return OK
    if name not in verbs:
        near = nearest(name, tuple(verbs))
        hint = f"did you mean `corvo {noun} {near}`?" if near else f"`corvo {noun} --help`"
        sys.stderr.write(f"corvo: unknown command {f'{noun} {name}'!r}; {hint}\n")
        return BAD_USAGE
    return run(f"{noun} {name}", verbs[name], rest)


def run(name: str, verb: Verb, words: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    options = Read(**vars(parser_of(name, verb).parse_intermixed_args(words)))
    # A reason or name of the server may have letters that this terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    output = TABLE
    session = None
    try:
        target = target_of(options) if verb.needs_server else None
        profile = target.profile if target is not None else NO_PROFILE
        output = _output(options, verb, profile)
        is_protected = profile.protected and target is not None and not target.is_explicit
        style = Style(
            output,
            parse_fields(options.fields) if options.fields else (),
            has_headers=not options.no_headers,
            is_confirmed=options.yes and not is_protected,
            is_quiet=options.quiet,
            protected=target.profile_name if target is not None and is_protected else "",
        )
        session = Session(lambda: target_of(options).connect(options.timeout), style)
        return verb.run(session, options)
    except ClientError as error:
        is_json = output in {JSON, JSONL}
        sys.stdout.flush()
        sys.stderr.write(as_json(error) if is_json else as_text(error))
        return exit_code(error)
    finally:
        if session is not None:
            session.close()


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest option to an unknown one."""

    def error(self, message: str) -> Never:
        """Say what is wrong with the arguments, and exit."""
        text, _, unknown = message.partition("unrecognized arguments: ")
        lines = [message]
        if unknown and not text:
            word = unknown.split()[0].partition("=")[0]
            lines = [f"unknown {'option' if word.startswith('-') else 'argument'}: {unknown}"]
            long = tuple(each for each in self._option_string_actions if each.startswith("--"))
            near = nearest(word, long)
            if word in _ELSEWHERE:
                lines.append(f"  {_ELSEWHERE[word]}")
            elif word.startswith("--") and near:
                lines.append(f"  did you mean:   {near}")
        told = "\n".join(lines)
        self.exit(
            BAD_USAGE, f"error: {told}\n  all options:   {self.prog} --help\n  [exit {BAD_USAGE}]\n"
        )


def parser_of(name: str, verb: Verb) -> Parser:
    """The parser of a command."""
    examples = "".join(f"  {line}\n" for line in verb.examples)
    parser = Parser(
        f"corvo {name}",
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        epilog=(f"examples:\n{examples}\n" if examples else "") + _EXITS,
        allow_abbrev=False,
        formatter_class=_Help,
    )
    verb.add(parser)
    _add_common(parser, verb)
    return parser


class _Help(argparse.HelpFormatter):
    """Help whose examples keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kept, _, rest = text.rpartition("\n\n")
        filled = super()._fill_text(rest, width, indent)
        return f"{kept}\n\n{filled}" if kept else filled


def _add_common(parser: argparse.ArgumentParser, verb: Verb) -> None:
    group = parser.add_argument_group("options of all commands")
    group.add_argument(
        "-P",
        "--profile",
        metavar="PROFILE",
        help=f"server and API key of this profile (default: {PROFILE}, or corvo profile use)",
    )
    group.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="URL[,URL...]",
        help="address of a server, or of several nodes of one cluster, which are tried in turn"
        f" (default: {SERVER}, the profile, or {DEFAULT})",
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"API key, or @FILE with the API key; prefer the variable {API_KEY}",
    )
    piped = f"{TABLE} on a terminal, {JSONL} in a pipe" if verb.outputs == FORMS else TABLE
    group.add_argument(
        "-o",
        "--output",
        choices=verb.outputs,
        help=f"form of the result (default: {OUTPUT}, or {piped})",
    )
    group.add_argument("--output-json", action="store_true", help="the same as -o json")
    group.add_argument(
        "--fields",
        metavar="A,B.C",
        help="show only these fields, by their names in JSON, such as id,payload.to",
    )
    group.add_argument("--no-headers", action="store_true", help="no headers of tables and CSV")
    group.add_argument("-q", "--quiet", action="store_true", help="no remarks and no progress")
    group.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="TIME",
        help="time limit of a request with its repeats (default: 30s)",
    )


def _output(options: Read, verb: Verb, profile: Profile) -> str:
    """The form of the result. Raises `BadClientOption`."""
    if options.output:
        return options.output
    if options.output_json:
        return JSON
    wanted = os.environ.get(OUTPUT, "")
    if wanted and wanted not in FORMS:
        raise BadClientOption(f"{OUTPUT} is {wanted!r}: expected {', '.join(FORMS)}")
    if not wanted and sys.stdout.isatty():
        wanted = profile.output
    if wanted in verb.outputs:
        return wanted
    # A list in a pipe is for a program. Answers about one thing are for people, everywhere.
    is_list = verb.outputs == FORMS
    return JSONL if is_list and wanted != WIDE and not sys.stdout.isatty() else TABLE


def target_of(options: Read) -> Target:
    """The server and API key: flag, variable, profile, default. Raises `BadClientOption`.

    An API key of a profile is never sent to a server that is named beside it.
    """
    named = options.profile or os.environ.get(PROFILE, "")
    variable = os.environ.get(SERVER, "")
    servers = options.server or ([variable] if variable else [])
    source = "--server" if options.server else SERVER
    name, profile = "", NO_PROFILE
    if named or not servers:
        name, profile = choose(load(path_of(os.environ)), named)
    if options.profile and not options.server:
        servers = []  # a profile that is named for this command goes before a variable
    if not servers and profile.servers != [""]:
        servers, source = profile.servers, f"profile {name}"
    if not servers:
        servers, source = [DEFAULT], "default"
    is_of_profile = source == f"profile {name}"
    key, key_source = options.api_key, "--api-key"
    if key is None and not (is_of_profile and options.profile):
        # A Secret that was made of a file has the end of its line, too.
        key, key_source = os.environ.get(API_KEY, "").strip() or None, API_KEY
    if key is None:
        key_source = f"profile {name}"
        if not is_of_profile or not (
            profile.api_key or profile.api_key_env or profile.api_key_file
        ):
            key, key_source = "", NO_SOURCE
    return Target(servers, source, key, key_source, name, profile, bool(named))


def client_of_words(words: Sequence[str], timeout_s: float) -> Client:
    """A client for the completion of words. Raises `BadClientOption`."""
    parser = Parser(allow_abbrev=False, add_help=False)
    _add_common(parser, Verb("", lambda *_: OK, add_nothing, FORMS))
    known, _ = parser.parse_known_args(list(words))
    return target_of(Read(**vars(known))).connect(timeout_s)
