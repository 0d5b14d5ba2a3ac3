"""`corvo top` with servers and queues that are not as usual."""

import re
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from corvo.client.dashboard import Queue
from tests.tui.documents import SUMMARY
from tests.tui.terminals import ENVIRONMENT, Fake, corvo, faking, shell, top, without_styles


@pytest.fixture
def fake() -> Iterator[Fake]:
    with faking() as server:
        yield server


def summary_of(*names: str) -> bytes:
    queues = [Queue(name=name, counts={"pending": place}) for place, name in enumerate(names)]
    return msgspec.json.encode(replace(SUMMARY, queues=queues))


def test_ten_thousand_queues_are_moved_through_filtered_and_sorted(fake: Fake) -> None:
    fake.body = summary_of(*(f"queue-{number:05}" for number in range(10_000)))
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait(">queue-09999")
        terminal.type("G")
        terminal.wait(">queue-00000")
        terminal.type("/777\r")
        terminal.wait(">queue-09777")
        terminal.type("q")
        terminal.wait("rc=0")


def test_long_and_wide_names_leave_the_columns_where_they_are(fake: Fake) -> None:
    long = ["x" * 200, "発" * 66, "🦜" * 50, "e\u0301" * 60, "\u202e" + "a" * 90]
    fake.body = summary_of(*long)
    with shell() as terminal:
        terminal.run(*top(fake.url))
        shown = without_styles(terminal.wait("xxxx~  ○ idle"))
        for line in (
            r"発発発発発発発発発発~   ○ idle          1 ",
            r"🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜~   ○ idle          2 ",
            r"e\\u0301e\\u0301e\\u0301~  ○ idle          3 ",
            r"\\u202eaaaaaaaaaaaaaaa~  ○ idle          4 ",
        ):
            assert re.search(line, shown), line
        terminal.type("q")
        terminal.wait("rc=0")


def test_without_queues_the_screen_says_so(fake: Fake) -> None:
    fake.body = summary_of()
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("no queues yet, or none that this API key may see")
        terminal.type("jkGgpxary\rLs<Rcjj \r")
        terminal.type("q")
        terminal.wait("rc=0")


def test_an_older_server_that_tells_less_is_shown(fake: Fake) -> None:
    fake.body = b'{"at": "2026-11-18T10:42:07Z", "queues": [{"name": "mail"}], "new": {"x": 1}}'
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait(r">mail .*idle")
        for view in "23456":
            terminal.type(view)
            terminal.wait(rf";7m{view} ")
        terminal.type("1w")
        terminal.wait(r">mail .*idle")
        terminal.type("q")
        terminal.wait("rc=0")


def test_only_queues_of_a_pattern_are_shown_and_counted(fake: Fake) -> None:
    shown = corvo("--server", fake.url, "--once=instant", "--queue", "emails.*").stdout
    document = corvo("--server", fake.url, "--json", "--once=instant", "--queue", "emails.*").stdout
    nothing = corvo("--server", fake.url, "--once=instant", "--queue", "x*").stdout

    assert [row.split()[0] for row in shown.splitlines()[2:]] == ["emails.bulk", "emails.send"]
    assert msgspec.json.decode(document)["summary"]["totals"]["pending"] == 1_245
    assert "no queue matches x*" in nothing


def test_an_hour_is_asked_for_when_it_is_wanted(fake: Fake) -> None:
    with shell() as terminal:
        terminal.resize(140, 40)
        terminal.run(*top(fake.url))
        terminal.wait("LAST 15 M")
        assert not any("minutes=60" in path for path in fake.paths)
        terminal.type("w")
        terminal.wait("LAST 1 H")
        while not any("minutes=60" in path for path in fake.paths):
            terminal.type("\x0c")
            terminal.wait("live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_an_older_server_without_an_hour_is_asked_for_a_quarter(fake: Fake) -> None:
    fake.refused = "minutes=60"
    with shell() as terminal:
        terminal.resize(140, 40)
        terminal.run(*top(fake.url))
        terminal.wait("LAST 15 M")
        terminal.type("w")
        shown = terminal.wait("LAST 1 H")
        count = len(fake.paths)
        while len(fake.paths) < count + 4:
            terminal.type("\x0c")
            shown += terminal.wait("live|refused for")
        terminal.type("q")
        shown += terminal.wait("rc=0")

    assert "refused for" not in shown
    asked = [path for path in fake.paths if "minutes=" in path]
    assert ["60" in path for path in asked] == [False, True, False]


def test_a_key_that_is_refused_ends_it_at_the_start_and_is_shown_later(fake: Fake) -> None:
    good = fake.body
    refusal = b'{"error": "invalid API key", "code": "UNAUTHORIZED"}'
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("live")
        fake.status, fake.body = 401, refusal
        terminal.wait("refused for .*, retrying: invalid API key")
        fake.status, fake.body = 200, good
        terminal.wait("live")
        fake.status, fake.body = 401, refusal
        terminal.type("q")
        terminal.wait("rc=0")

    done = corvo("--server", fake.url, "--once")
    assert done.returncode == 4
    assert "invalid API key" in done.stderr
    assert "CORVO_API_KEY" in done.stderr


@pytest.mark.parametrize("form", ["--jsonl", "--plain"])
def test_a_reader_that_has_enough_ends_it_without_a_word(form: str, fake: Fake) -> None:
    command = [sys.executable, "-m", "corvo", "top", "--server", fake.url, form, "-d", "1ms"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout as lines:
        first = lines.readline()
        lines.close()
        said = process.stderr.read()

    assert first
    assert said == b""
    assert process.returncode == 0


def test_what_is_no_corvo_server_is_named(fake: Fake) -> None:
    fake.body = b"<html>it works</html>"

    done = corvo("--server", fake.url, "--once")

    assert done.returncode == 1
    assert "the answer of the server cannot be read" in done.stderr
