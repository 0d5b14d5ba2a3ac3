"""Crontabs: entries, time zones, variables, and a problem for each line that cannot be used."""

import re
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.cron import CRON_LENGTH_MAX, timetable
from corvo.crontab import (
    CRONTAB_BYTES_MAX,
    LINES_MAX,
    PROBLEMS_MAX,
    Crontab,
    CrontabProblem,
    Entry,
    Variable,
    parse_crontab,
)


def entry(line: int, cron: str, command: str, name: str, timezone: str = "UTC") -> Entry:
    return Entry(line=line, cron=cron, command=command, name=name, timezone=timezone)


def only_problem(text: str, *, has_users: bool = False) -> CrontabProblem:
    read = parse_crontab(text, has_users=has_users)
    assert read.entries == ()
    [problem] = read.problems
    return problem


def test_a_crontab_with_all_kinds_of_lines() -> None:
    text = """\
# Reports of the night.
SHELL=/bin/bash
MAILTO = "ops@example.com"

0 3 * * * /usr/local/bin/backup.sh --all
  */15\t9-17 * * mon-fri   sync  --fast
CRON_TZ=Europe/Berlin
@daily report
@every 90s probe
 CRON_TZ = 'UTC'
30 2 1 JAN ? backup.sh
"""

    read = parse_crontab(text)

    assert read == Crontab(
        entries=(
            entry(5, "0 3 * * *", "/usr/local/bin/backup.sh --all", "backup"),
            entry(6, "*/15 9-17 * * MON-FRI", "sync  --fast", "sync"),
            entry(8, "@daily", "report", "report", "Europe/Berlin"),
            entry(9, "@every 1m30s", "probe", "probe", "Europe/Berlin"),
            entry(11, "30 2 1 JAN *", "backup.sh", "backup-2"),
        ),
        variables=(
            Variable(line=2, name="SHELL", value="/bin/bash"),
            Variable(line=3, name="MAILTO", value="ops@example.com"),
        ),
    )


def test_a_system_crontab_has_users() -> None:
    [read] = parse_crontab("17 * * * *\troot    cd / && run-parts /etc\n", has_users=True).entries

    assert (read.user, read.command, read.name) == ("root", "cd / && run-parts /etc", "cd")


def test_a_time_zone_is_that_of_the_lines_after_it() -> None:
    text = "0 1 * * * a\nTZ=Asia/Tokyo\n0 1 * * * b\nCRON_TZ=:Europe/Paris\n0 1 * * * c"

    read = parse_crontab(text, timezone="America/New_York")

    assert [one.timezone for one in read.entries] == [
        "America/New_York",
        "Asia/Tokyo",
        "Europe/Paris",
    ]


def test_lines_after_an_unknown_time_zone_are_not_read_in_another_one() -> None:
    text = "CRON_TZ=Europe/Berlinn\n0 1 * * * a\n61 * * * * b\nCRON_TZ=Europe/Berlin\n0 1 * * * c"

    read = parse_crontab(text)

    assert [(one.line, one.timezone) for one in read.entries] == [(5, "Europe/Berlin")]
    [problem] = read.problems
    assert problem.line == 1
    assert problem.message.startswith("lines after this one are not read: ")
    assert problem.message.endswith('did you mean Europe/Berlin?; for example "Europe/Berlin"')


@pytest.mark.parametrize(
    ("written", "command"),
    [
        ("date +\\%F", "date +%F"),
        ("mail bob%Hello%Bob", "mail bob\nHello\nBob"),
        ("echo 100\\% % done", "echo 100% \n done"),
        ("echo 'a = b'", "echo 'a = b'"),
        ("a\x0cb", "a\x0cb"),
    ],
)
def test_a_percent_sign_ends_a_line_of_a_command(written: str, command: str) -> None:
    [read] = parse_crontab(f"0 1 * * * {written}  \r\n").entries

    assert read.command == command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/jobs/rotate-logs.py >/dev/null 2>&1", "rotate-logs"),
        ("LANG=C PATH=/bin:/sbin sync", "sync"),
        ("$HOME/bin/send_mail.rb", "send_mail"),
        ("[ -x /usr/bin/x ] && x", "command"),
        ("/", "command"),
        ("ünïcode", "n-code"),
        ("x" * 300, "x" * 56),
    ],
)
def test_a_name_out_of_a_command(command: str, name: str) -> None:
    [read] = parse_crontab(f"@daily {command}").entries

    assert read.name == name


def test_no_two_entries_have_one_name() -> None:
    commands = ("a", "a", "a-2", "a", "a-3", "A")

    read = parse_crontab("".join(f"@daily {command}\n" for command in commands))

    assert [one.name for one in read.entries] == ["a", "a-2", "a-2-2", "a-3", "a-3-2", "A"]


# ---- Problems.

PROBLEMS: Final = [
    ("61 * * * * a", 'minute "61": 61 is not in 0 to 59'),
    ("* * * * MNO a", 'weekday "MNO": values are'),
    ("0 9 * * MON#1,TUE a", 'weekday "MON#1,TUE"'),
    ("@reboot a", '"@reboot" is not supported'),
    ("@dayly a", '"@dayly" is unknown'),
    ("@every 1ms a", '"@every 1ms": the duration is'),
    ("@every a", '"@every a": the command is missing'),
    ("@daily", '"@daily": the command is missing'),
    ("@daily  ", '"@daily": the command is missing'),
    ("0 9 * * *", '"0 9 * * *": the command is missing'),
    ("0 9 * *", '"0 9 * *": the command is missing'),
    ("hello", '"hello": the command is missing'),
    ("0 0 31 2 * a", 'day of month "31" does not occur in month "2"'),
    ("0 9 * * " + "1," * CRON_LENGTH_MAX + "1 a", "the expression has 521 characters"),
]


@pytest.mark.parametrize(("line", "message"), PROBLEMS)
def test_a_line_that_cannot_be_used_has_a_problem_with_a_right_example(
    line: str, message: str
) -> None:
    problem = only_problem(f"# A comment.\n{line}\n")

    assert problem.line == 2
    assert problem.message.startswith(message)
    written = re.search(r'; for example "([^"]+)"$', problem.message)
    assert written is not None
    if "missing" in message:
        assert len(parse_crontab(written[1]).entries) == 1
    else:
        timetable(written[1])


def test_a_user_is_missing() -> None:
    problem = only_problem("0 9 * * * root", has_users=True)

    assert problem.message.startswith('"0 9 * * * root": the user or command is missing')
    written = re.search(r'; for example "([^"]+)"$', problem.message)
    assert written is not None
    assert parse_crontab(written[1], has_users=True).entries[0].user == "root"


# ---- Limits.


def test_a_large_text_is_not_read() -> None:
    assert only_problem("é" * (CRONTAB_BYTES_MAX // 2 + 1)).message.startswith("the text is larger")
    assert only_problem("#" * (CRONTAB_BYTES_MAX + 1)).message.startswith("the text is larger")
    assert parse_crontab("#" * CRONTAB_BYTES_MAX) == Crontab()


def test_a_text_with_many_lines_is_read_to_the_limit() -> None:
    read = parse_crontab("@daily a\n" * (LINES_MAX + 1))

    assert len(read.entries) == LINES_MAX
    assert len({one.name for one in read.entries}) == LINES_MAX
    assert [one.line for one in read.problems] == [LINES_MAX + 1]


def test_a_text_with_many_problems_is_read_to_the_limit() -> None:
    read = parse_crontab("hello\n" * 1_000 + "@daily a\n")

    assert len(read.problems) == PROBLEMS_MAX + 1
    assert read.problems[-1].message.startswith("more lines were not read")


words = st.sampled_from(
    (
        *("*", "0", "9-17", "*/5", "MON", "@daily", "@every", "90s", "CRON_TZ=", "TZ=Asia/Tokyo"),
        *("=", "#", "%", "\\%", "\n", "\r\n", "\t", " ", "a", "'", '"', "\x00", "\ud800", "é"),
    )
)


@given(text=st.lists(words, max_size=60).map(" ".join) | st.text(max_size=300), users=st.booleans())
@example(text="=", users=True)
@example(text="@every", users=False)
def test_no_text_raises(text: str, users: bool) -> None:
    read = parse_crontab(text, has_users=users)

    lines = text.count("\n") + 1
    assert all(1 <= one.line <= lines for one in read.entries)
    assert all(1 <= one.line <= lines for one in read.problems)
    for one in read.entries:
        assert timetable(one.cron, one.timezone).cron == one.cron
        assert one.command.strip()
        assert one.name
