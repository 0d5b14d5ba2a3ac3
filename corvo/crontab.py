"""Crontabs: the lines of a file in the format of `crontab(5)`, as entries for schedules.

A line is empty, a comment, a variable (`NAME=value`), or an entry: an expression and a command. The
variables `CRON_TZ` and `TZ` are the time zone of the lines that follow. Other variables were for a
shell, which Corvo does not start; they are kept, and reported as ignored.

The file comes from outside: every line that cannot be used is a problem with its number, and
nothing is raised.
"""

import re
from typing import Final

import msgspec

from corvo.cron import BadTimetable, timetable

CRONTAB_BYTES_MAX: Final = 256 << 10
"""The crontab of a large machine has some hundred lines."""
LINES_MAX: Final = 2_000
"""Some 0.1 s of work for expressions that were not read before."""
PROBLEMS_MAX: Final = 100
"""More problems mean that the text is no crontab."""
_NAME_LENGTH_MAX: Final = 56  # and a number after it
_SHOWN_MAX: Final = 80

_VARIABLE: Final = re.compile(
    r"""([A-Za-z_]\w*|"[^"]*"|'[^']*')[ \t]*=[ \t]*(.*)""", re.ASCII | re.DOTALL
)
_ENTRY_EXAMPLE: Final = "0 9 * * MON-FRI /usr/bin/report"
_USER_EXAMPLE: Final = "0 9 * * MON-FRI root /usr/bin/report"
_FIELDS: Final = 5


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of a crontab."""

    line: int
    """From 1."""
    cron: str
    timezone: str
    command: str
    """The first line is for a shell. Further ones, which begin at a `%`, are its standard input."""
    user: str = ""
    """Of a system crontab."""
    name: str
    """A name for the schedule, out of the command. No two entries have the same one."""


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the environment, which is ignored."""

    line: int
    name: str
    value: str


class CrontabProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that cannot be used."""

    line: int
    message: str


class Crontab(msgspec.Struct, frozen=True, kw_only=True):
    """A crontab that was read."""

    entries: tuple[Entry, ...] = ()
    variables: tuple[Variable, ...] = ()
    problems: tuple[CrontabProblem, ...] = ()


def parse_crontab(text: str, *, has_users: bool = False, timezone: str = "UTC") -> Crontab:
    """The entries, variables and problems of a crontab.

    A system crontab, such as `/etc/crontab`, has a user before each command: `has_users`. The time
    zone is that of lines before the first `CRON_TZ`.
    """
    reader = _Reader(has_users=has_users, timezone=timezone)
    if len(text) > CRONTAB_BYTES_MAX or len(text.encode(errors="replace")) > CRONTAB_BYTES_MAX:
        reader.refuse(1, f"the text is larger than {CRONTAB_BYTES_MAX >> 10} KiB: split it")
        return reader.crontab()
    # Only a line feed ends a line: `splitlines` would also split at a form feed in a command.
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if number > LINES_MAX:
            reader.refuse(number, f"the text has more than {LINES_MAX} lines: split it")
            break
        if len(reader.problems) >= PROBLEMS_MAX:
            reader.refuse(number, "more lines were not read: correct the problems before this one")
            break
        reader.read(number, line.strip(" \t"))
    return reader.crontab()


class _Reader:
    """The state between the lines of a crontab."""

    def __init__(self, *, has_users: bool, timezone: str) -> None:
        self.has_users: Final = has_users
        self.timezone = timezone
        self.entries: list[Entry] = []
        self.variables: list[Variable] = []
        self.problems: list[CrontabProblem] = []
        self.names: dict[str, int] = {}

    def crontab(self) -> Crontab:
        return Crontab(
            entries=tuple(self.entries),
            variables=tuple(self.variables),
            problems=tuple(self.problems),
        )

    def refuse(self, line: int, message: str) -> None:
        self.problems.append(CrontabProblem(line=line, message=message))

    def read(self, number: int, line: str) -> None:
        """One line, without blanks around it."""
        if not line or line.startswith("#"):
            return
        variable = _VARIABLE.fullmatch(line)
        if variable is not None:
            self.read_variable(number, _unquoted(variable[1]), _unquoted(variable[2]))
        else:
            self.read_entry(number, line)

    def read_variable(self, number: int, name: str, value: str) -> None:
        if name not in ("CRON_TZ", "TZ"):
            self.variables.append(Variable(line=number, name=name, value=value))
            return
        # An unknown zone stays in force: lines after it must not be read in another one.
        self.timezone = value.removeprefix(":")
        try:
            timetable("@hourly", self.timezone)
        except BadTimetable as refused:
            self.refuse(number, f"lines after this one are not read: {refused.message}")

    def read_entry(self, number: int, line: str) -> None:
        """A line with an expression and a command."""
        cron, rest = _expression(line)
        user = ""
        if self.has_users:
            user, rest = _first_word(rest)
        command = _command(rest)
        if not command:
            missing = "user or command" if self.has_users else "command"
            example = _USER_EXAMPLE if self.has_users else _ENTRY_EXAMPLE
            shown = line[:_SHOWN_MAX]
            self.refuse(number, f'"{shown}": the {missing} is missing; for example "{example}"')
            return
        try:
            times = timetable(cron, self.timezone)
        except BadTimetable as refused:
            if refused.field == "cron":  # a zone is reported once, at its own line
                self.refuse(number, refused.message)
            return
        self.entries.append(
            Entry(
                line=number,
                cron=times.cron,
                timezone=times.timezone,
                command=command,
                user=user,
                name=self.new_name(command),
            )
        )

    def new_name(self, command: str) -> str:
        """A name that no other entry has."""
        wanted = _name(command)
        name = wanted
        while name in self.names:
            self.names[wanted] += 1
            name = f"{wanted}-{self.names[wanted]}"
        self.names[name] = 1
        return name


def _expression(line: str) -> tuple[str, str]:
    """The expression at the beginning of a line, and the text after it."""
    words = 1 if line.startswith("@") else _FIELDS
    if line[:6].lower() == "@every":
        words = 2
    parts, rest = [], line
    for _ in range(words):
        word, rest = _first_word(rest)
        parts.append(word)
    return " ".join(parts), rest


def _first_word(text: str) -> tuple[str, str]:
    parts = re.split(r"[ \t]+", text, maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _command(text: str) -> str:
    """A command, as cron reads it: `%` ends a line, and after a backslash it is a percent sign."""
    return re.sub(r"\\%|%", lambda found: "%" if found[0] == r"\%" else "\n", text).strip(" \t")


def _name(command: str) -> str:
    """A name for a command: `/usr/bin/backup.sh --all` is `backup`."""
    words = [word for word in command.split() if "=" not in word.partition("/")[0]]
    program = words[0].rstrip("/").rpartition("/")[2] if words else ""
    plain = re.sub(r"\.(?:sh|py|pl|rb|php|js)$", "", program)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-")[:_NAME_LENGTH_MAX]
    return name or "command"


def _unquoted(text: str) -> str:
    text = text.strip(" \t")
    is_quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
    return text[1:-1] if is_quoted else text
