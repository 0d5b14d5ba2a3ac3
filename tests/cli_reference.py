"""The command list of docs/cli.md, made from the parsers."""

import argparse
import importlib
from collections.abc import Iterator, Mapping

from corvo.client_commands.options import Verb, parser_of
from corvo.command_table import COMMANDS, GROUPS

COMMON = "options of all commands"


def reference() -> str:
    """Every command with its usage, arguments, options and examples."""
    parts = []
    for group in GROUPS:
        parts.append(f"### {group}\n")
        for name, command in COMMANDS.items():
            if command.group == group:
                parts += described(name)
    return "\n".join(parts)


def common() -> str:
    """The options that every command of a client has."""
    verbs = dict(verbs_of("queues"))
    parser = parser_of("queues", verbs["queues"])
    return table(group for group in parser._action_groups if group.title == COMMON)


def verbs_of(name: str) -> Iterator[tuple[str, Verb]]:
    """The commands of a client behind a word; none of one that asks no server."""
    module = COMMANDS[name].place.partition(":")[0]
    verbs: Mapping[str, Verb] = getattr(importlib.import_module(module), "VERBS", {})
    if ":" not in COMMANDS[name].place and verbs:
        yield name, verbs[name]
    else:
        yield from ((f"{name} {verb}", verbs[verb]) for verb in verbs)


def described(name: str) -> Iterator[str]:
    """A command as sections of a page."""
    summary = COMMANDS[name].summary
    yield f"#### `corvo {name}`\n\n{summary[0].upper()}{summary[1:]}.\n"
    verbs = dict(verbs_of(name))
    if len(verbs) > 1:
        rows = "".join(f"| `corvo {each}` | {verb.summary} |\n" for each, verb in verbs.items())
        yield f"| command | |\n|---|---|\n{rows}"
    if len(verbs) == 1:
        for each, verb in verbs.items():
            yield from details(each, verb)
        return
    examples = [verb.examples[0] for verb in verbs.values() if verb.examples]
    if examples:
        yield "```\n" + "\n".join(examples) + "\n```\n"


def details(name: str, verb: Verb) -> Iterator[str]:
    """Usage, arguments and options of one command."""
    parser = parser_of(name, verb)
    rows = table(group for group in parser._action_groups if group.title != COMMON)
    if verb.examples:
        yield "```\n" + "\n".join(verb.examples) + "\n```\n"
    if rows:
        yield rows


def table(groups: Iterator[argparse._ArgumentGroup]) -> str:
    """Arguments and options as a table."""
    rows = [
        f"| {shown(action)} | {(action.help or '').replace('|', chr(92) + '|')} |\n"
        for group in groups
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction)
    ]
    return f"| argument | meaning |\n|---|---|\n{''.join(rows)}" if rows else ""


def shown(action: argparse.Action) -> str:
    """An argument or option as it is typed."""
    metavar = action.metavar
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if metavar is None and action.choices is not None:
        metavar = ",".join(map(str, action.choices))
    value = (metavar or "").replace("|", "\\|")
    if not action.option_strings:
        return f"`{value}`"
    takes = value if action.nargs != 0 else ""
    if action.nargs == "?":
        takes = f"[{value}]"
    return f"`{', '.join(action.option_strings)}{f' {takes}' if takes else ''}`"
