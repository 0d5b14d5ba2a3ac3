"""The command line: finds the command by its first word, and passes the rest to it.

Nothing is imported before it is known to be needed: `corvo version` answers at once.
"""

import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TextIO, TypeAlias

from corvo import __version__
from corvo.command_table import ABSENT, ALIASES, COMMANDS, GROUPS
from corvo.container_init import is_first, run_below
from corvo.nearest import nearest

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
MISCONFIGURED: Final = 72
_INTERRUPTED: Final = 130
_OUTPUT_FAILS: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG})
Run: TypeAlias = Callable[[Sequence[str]], int]


_PROCESSES: Final = {
    "shard": "corvo.shard.driver.process",
    "router": "corvo.router.process",
    "mirror": "corvo.mirror.process",
}
"""What a node starts; their config comes as a line of JSON on a pipe."""


def usage() -> str:
    """What `corvo --help` prints."""
    width = max(len(name) for name in COMMANDS)
    parts = []
    for group in GROUPS:
        lines = [
            f"  {name:<{width}}   {command.summary}\n"
            for name, command in COMMANDS.items()
            if command.group == group
        ]
        parts.append(f"{group}:\n{''.join(lines)}\n")
    return (
        "Corvo, a job queue server with no database and no broker.\n"
        "\n"
        "usage: corvo COMMAND [OPTION ...]\n"
        "\n" + "".join(parts) + "`corvo COMMAND --help` shows the options of a command."
        " To try it: `corvo dev`.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; returns the exit code."""
    if not __debug__:
        sys.stderr.write(
            "corvo: refused: assertions are switched off (python -O or PYTHONOPTIMIZE), and Corvo"
            " needs them to stop on an invalid state: start it without this option\n"
        )
        return MISCONFIGURED
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_below(partial(_run_all, words)) if is_first() else _run_all(words)


def _run_all(words: list[str]) -> int:
    # A closed output is one that is not wanted.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has seen enough, as `head` has.
        _drop_output()
        return OK
    except OSError as error:
        if error.errno not in _OUTPUT_FAILS or error.filename is not None:
            raise
        _drop_output()
        sys.stderr.write(f"corvo: the output cannot be written: {error.strerror}\n")
        return FAILED
    return code


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _drop_output() -> None:
    """Write what is left of the output nowhere, or Python would complain of it at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    if not words:
        sys.stderr.write(usage())
        return BAD_USAGE
    if words[0] == "help" and words[1:]:
        words = [*words[1:], "--help"]
    name, *rest = words
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(usage())
        return OK
    if name in {"-V", "--version"}:
        name = "version"
    if name in ALIASES:
        name, *rest = [*ALIASES[name], *rest]
    if name not in COMMANDS and name not in _PROCESSES:
        return unknown(name)
    return run_process(name) if name in _PROCESSES else resolve(name)(rest)


def resolve(name: str) -> Run:
    """The function of a command."""
    module, _, function = COMMANDS[name].place.partition(":")
    room = importlib.import_module(module)
    if function:
        run: Run = getattr(room, function)
        return run
    run_verb = importlib.import_module("corvo.client_commands.options").run
    return partial(run_verb, name, room.VERBS[name])


def run_process(name: str) -> int:
    """Be a process of a node; returns its exit code."""
    code: int = importlib.import_module(_PROCESSES[name]).main()
    return code


def unknown(name: str) -> int:
    """Say what may have been meant."""
    if name in ABSENT:
        sys.stderr.write(f"corvo: {name!r} is not available; {ABSENT[name]}\n")
        return BAD_USAGE
    near = nearest(name, (*COMMANDS, *ALIASES))
    hint = f"did you mean `corvo {near}`?" if near else "`corvo --help` lists all commands"
    sys.stderr.write(f"corvo: unknown command {name!r}; {hint}\n")
    return BAD_USAGE


def version(arguments: Sequence[str]) -> int:
    """`corvo version`."""
    if arguments:
        sys.stderr.write("usage: corvo version\n")
        return OK if arguments[0] in {"-h", "--help"} else BAD_USAGE
    sys.stdout.write(f"corvo {__version__}\n")
    return OK
