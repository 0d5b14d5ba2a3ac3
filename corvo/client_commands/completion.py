"""`corvo completion`: scripts for bash, zsh and fish, and the words that they offer.

A script asks `corvo completion words` for each word, so it knows every command and option without
being made again.
"""

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from corvo.command_table import ALIASES, COMMANDS

_QUEUES_S: Final = 0.3
"""Time limit for names that a server has to be asked for."""
_SHOWN_MAX: Final = 200

_BASH: Final = """\
_corvo() {
    local IFS=$'\\n'
    COMPREPLY=($(corvo completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _corvo corvo
"""
_ZSH: Final = """\
#compdef corvo
_corvo() {
    local -a found
    found=("${(@f)$(corvo completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _corvo corvo
"""
_FISH: Final = """\
function __corvo_words
    set -l words (commandline -opc)[2..] (commandline -ct)
    corvo completion words $words 2>/dev/null
end
complete -c corvo -f -a '(__corvo_words)'
"""
SCRIPTS: Final[Mapping[str, tuple[str, str]]] = {
    "bash": (_BASH, 'eval "$(corvo completion bash)"   in ~/.bashrc'),
    "zsh": (_ZSH, 'eval "$(corvo completion zsh)"   in ~/.zshrc, after compinit'),
    "fish": (_FISH, "corvo completion fish > ~/.config/fish/completions/corvo.fish"),
}
_USAGE: Final = "usage: corvo completion bash|zsh|fish\n\n" + "".join(
    f"  {shell:<6} {how}\n" for shell, (_, how) in SCRIPTS.items()
)


def main(arguments: Sequence[str]) -> int:
    """`corvo completion SHELL`."""
    if arguments[:1] == ["words"]:
        for word in words(arguments[1:]):
            sys.stdout.write(f"{word}\n")
        return 0
    if len(arguments) == 1 and arguments[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[arguments[0]][0])
        return 0
    if arguments and arguments[0] in {"-h", "--help"}:
        sys.stdout.write(_USAGE)
        return 0
    sys.stderr.write(_USAGE)
    return 2


def words(typed: Sequence[str]) -> list[str]:
    """The words that can stand in the last place of those that are typed."""
    *before, start = typed or [""]
    # A completion is silent: neither a wrong option nor a server that does not answer is an error.
    with contextlib.redirect_stderr(io.StringIO()):
        found = sorted({word for word in _candidates(before, start) if word.startswith(start)})
    return found[:_SHOWN_MAX]


def _candidates(before: Sequence[str], start: str) -> Iterator[str]:
    if not before:
        yield from (*COMMANDS, *ALIASES, "help")
        return
    name, *rest = before
    if name in ALIASES:
        name, *rest = [*ALIASES[name], *rest]
    if name == "completion":
        yield from SCRIPTS
    if name == "help":
        yield from COMMANDS
    command = COMMANDS.get(name)
    if command is None or "client_commands" not in command.place:
        return
    module, colon, _ = command.place.partition(":")
    verbs = getattr(importlib.import_module(module), "VERBS", {})
    if colon and not rest:
        yield from verbs
        return
    verb = verbs.get(rest.pop(0) if colon else name)
    if verb is None:
        return
    from corvo.client_commands.options import parser_of  # noqa: PLC0415 -- 0.1 s, not for `words`

    yield from _of_parser(parser_of(name, verb), rest, start)


def _of_parser(parser: argparse.ArgumentParser, rest: Sequence[str], start: str) -> Iterator[str]:
    last = rest[-1] if rest else ""
    for action in parser._actions:  # noqa: SLF001 -- argparse has no other list of its options
        if last in action.option_strings and action.nargs != 0:
            yield from _values(action, rest)
            return
    if start.startswith("-"):
        for action in parser._actions:  # noqa: SLF001 -- as above
            yield from (flag for flag in action.option_strings if flag.startswith("--"))
        return
    for action in parser._actions:  # noqa: SLF001 -- as above
        if not action.option_strings:
            yield from _values(action, rest)


def _values(action: argparse.Action, rest: Sequence[str]) -> Iterator[str]:
    if action.choices is not None:
        yield from map(str, action.choices)
    elif action.metavar == "QUEUE":
        yield from _queues(rest)
    elif action.metavar == "PROFILE":
        from corvo.client_commands import profiles  # noqa: PLC0415 -- only for these

        yield from profiles.load(profiles.path_of(os.environ)).profile
    elif action.metavar == "STATE[,...]":
        yield from _STATES
    elif action.metavar == "LEVEL":
        yield from ("critical", "high", "normal")


_STATES: Final = (
    "pending",
    "active",
    "held",
    "completed",
    "retrying",
    "dead",
    "cancelled",
    "scheduled",
)


def _queues(rest: Sequence[str]) -> list[str]:
    """Names of queues, of the server that the words name, if it answers at once."""
    import msgspec  # noqa: PLC0415 -- only for these

    from corvo.client import queues  # noqa: PLC0415 -- only for these
    from corvo.client.errors import ClientError  # noqa: PLC0415 -- only for these
    from corvo.client_commands.options import client_of_words  # noqa: PLC0415 -- only for these

    try:
        with client_of_words(rest, _QUEUES_S) as client:
            page = next(queues.pages(client))
    except ClientError:
        return []
    return [msgspec.json.decode(raw, type=queues.Queue).name for raw in page]
