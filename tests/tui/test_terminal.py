"""`corvo top` as a program: in a pseudo-terminal with a shell, and with pipes."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.server import Server, serving
from corvo.client.calls import Client
from corvo.tui import plain
from tests.tui.documents import SUMMARY
from tests.tui.terminals import ENTER, LEAVE, Fake, corvo, faking, shell, top


@pytest.fixture
def fake() -> Iterator[Fake]:
    with faking() as server:
        yield server


# On a terminal.


def test_a_node_is_shown_and_changed_with_keys(tmp_path: Path) -> None:
    def prepare(server: Server) -> None:
        jobs = [{"queue": "mail", "payload": {}}, {"queue": "sms", "payload": {}}]
        with Client([server.url]) as client:
            client.change("POST", "/api/v1/enqueue/batch", {"jobs": jobs * 3})

    with serving(tmp_path) as server, shell() as terminal:
        prepare(server)
        terminal.run(*top(server.url))
        assert ENTER in terminal.wait(r"mail .*idle +3 ")
        terminal.type("2")
        terminal.wait("no worker has sent a request")
        terminal.type("3")
        terminal.wait(r"up\x1b.* node 1")
        terminal.type("1")
        terminal.wait(r">mail")
        terminal.type("p")
        terminal.wait(r"Pause mail\? 3 pending stay, 0 active finish\.")
        terminal.wait(r"\[y/N\]")
        terminal.type("y")
        terminal.wait("mail is paused")
        terminal.wait(r"mail .*‖ paused")
        terminal.type("\x1b[B\r")
        terminal.wait("> .*sms")
        terminal.type("\x1b")
        terminal.wait(r">sms")
        terminal.resize(50, 10)
        terminal.wait(r"pend 6 dead 0 act 0 in")
        terminal.resize(120, 40)
        terminal.wait("failing now")
        terminal.type("q")
        terminal.wait(re.escape(LEAVE))
        terminal.wait("rc=0")
        terminal.is_plain()


def test_a_suspended_program_leaves_the_terminal_and_comes_back(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("emails.send")
        terminal.type("\x1a")
        terminal.wait(re.escape(LEAVE))
        terminal.wait(r"\$ ")
        terminal.is_plain()
        terminal.type("fg\n")
        terminal.wait(re.escape(ENTER))
        terminal.wait("emails.send")
        terminal.type("j")
        terminal.wait(r">emails.bulk")
        terminal.type("q")
        terminal.wait("\\$ ")
        terminal.is_plain()


@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("q", 0)])
def test_the_end_restores_the_terminal_once(typed: str, code: int, fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("emails.send")
        terminal.type(typed)
        until = terminal.wait(f"rc={code}")
        assert until.count(LEAVE) == 1
        assert "Traceback" not in until
        terminal.is_plain()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_and_restores_the_terminal(number: int, code: int, fake: Fake) -> None:
    with shell() as terminal:
        process = terminal.run_with_id(*top(fake.url))
        terminal.wait("emails.send")
        os.kill(process, number)
        until = terminal.wait(f"rc={code}")
        assert until.count(LEAVE) == 1
        assert "Traceback" not in until
        terminal.is_plain()


def test_a_crash_restores_the_terminal_before_it_is_shown(fake: Fake) -> None:
    code = (
        "import corvo.cli, corvo.tui.command as c; c.frame = lambda *_: 1 / 0;"
        f"corvo.cli.main(['top', '--server', '{fake.url}'])"
    )
    with shell() as terminal:
        terminal.run("-c", f'"{code}"')
        until = terminal.wait("rc=1")
        assert until.index(LEAVE) < until.index("ZeroDivisionError")
        terminal.is_plain()


def test_a_server_that_is_gone_is_reported_and_one_that_is_back_is_shown(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("live")
        fake.stop()
        terminal.wait("no answer for .*, retrying: no answer from http")
        terminal.type("j")
        terminal.wait(">emails.bulk")
        fake.start()
        terminal.wait("live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_of_several_nodes_another_one_answers_and_the_lost_one_is_named(fake: Fake) -> None:
    assert SUMMARY.cluster
    whole = [msgspec.structs.replace(node, is_reachable=True) for node in SUMMARY.cluster.nodes]
    cluster = msgspec.structs.replace(SUMMARY.cluster, nodes=whole, can_lose=1)
    well = msgspec.structs.replace(SUMMARY, cluster=cluster)
    lost = fake.body
    fake.body = msgspec.json.encode(well)
    with faking() as other, shell() as terminal:
        terminal.resize(120, 40)
        first, second = (url.partition("://")[2] for url in (fake.url, other.url))
        terminal.run(*top(f"{first},{second}"))
        assert "cannot be reached" not in terminal.wait(rf"{first} .*3/3 nodes.*live")
        fake.stop()
        assert "no answer for" not in terminal.wait(rf"{second} .*2/3 nodes")
        terminal.wait("node corvo-2 cannot be reached")
        other.stop()
        terminal.wait("no answer for .*, retrying: no answer from")
        fake.body = lost
        fake.start()
        terminal.wait(rf"{first} .*2/3 nodes.*live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_a_server_that_does_not_answer_stops_no_keys_and_is_reported(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait("live")
        fake.answers.clear()
        terminal.wait("no answer for .*, retrying: .* has not answered yet")
        terminal.type("j")
        terminal.wait(">emails.bulk")
        fake.answers.set()
        terminal.wait("live")
        terminal.type("q")
        terminal.wait("rc=0")


def test_ids_are_copied_by_the_terminal_and_the_mouse_is_given_back(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url))
        terminal.wait(">発注")
        terminal.type("jy")
        terminal.wait(re.escape("\x1b]52;c;ZW1haWxzLmJ1bGs=\x07"))
        terminal.type("M")
        terminal.wait(re.escape("\x1b[?1000h\x1b[?1006h"))
        terminal.type("\x1b[<0;5;9M")
        terminal.wait(">sync.users")
        terminal.type("\x1a")
        assert "\x1b[?1006l\x1b[?1000l" in terminal.wait(re.escape(LEAVE))
        terminal.type("fg\n")
        terminal.wait(re.escape("\x1b[?1000h\x1b[?1006h"))
        terminal.type("q")
        assert "\x1b[?1006l\x1b[?1000l" in terminal.wait("\\$ ")


def test_a_picture_is_saved_as_svg_and_text(fake: Fake, tmp_path: Path) -> None:
    with shell() as terminal:
        terminal.type(f"cd {tmp_path}\n")
        terminal.run(*top(fake.url))
        terminal.wait("emails.send")
        terminal.type("S")
        terminal.wait(r"saved corvo-top-20261118T104207Z\.svg and ")
        terminal.type("q")
        terminal.wait("rc=0")

    text = (tmp_path / "corvo-top-20261118T104207Z.txt").read_text()
    assert text.splitlines()[6].startswith(">発注.確認")
    assert "emails.send" in (tmp_path / "corvo-top-20261118T104207Z.svg").read_text()


def test_a_terminal_that_cannot_move_its_cursor_gets_all_rows_once(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run_with_id(*top(fake.url), environment="TERM=dumb")
        shown = terminal.wait("rc=0")
        assert re.search(r"emails.send +run", shown)
        assert "\x1b" not in shown.partition("corvo 2026")[2]


def test_a_tiny_terminal_has_a_line_and_keys_work_there(fake: Fake) -> None:
    with shell() as terminal:
        terminal.resize(20, 5)
        terminal.run(*top(fake.url))
        terminal.wait("pend 1.2M dead 316 ~")
        terminal.type("?jpx:")
        terminal.type("\x1b")
        terminal.resize(80, 24)
        terminal.wait(re.escape("\x1b[2J"))
        terminal.wait("emails.send")
        terminal.type("q")
        terminal.wait("rc=0")


def test_a_count_ends_the_program(fake: Fake) -> None:
    with shell() as terminal:
        terminal.run(*top(fake.url, "-n", "2"))
        terminal.wait("rc=0")


def test_colours_can_be_switched_off(fake: Fake) -> None:
    coloured = re.compile("\x1b\\[[0-9;]*3[0-7]m")
    with shell() as terminal:
        terminal.run(*top(fake.url, "-n", "1"))
        assert coloured.search(terminal.wait("rc=0"))
        for words in (["--no-color"], ["--theme", "mono", "--ascii"]):
            terminal.run(*top(fake.url, "-n", "1", *words))
            shown = terminal.wait("rc=0")
            assert not coloured.search(shown)
            assert ("--ascii" not in words) or shown.partition(ENTER)[2].isascii()
            assert "\x1b[2m" in shown
        terminal.run_with_id(*top(fake.url, "-n", "1"), environment="CORVO_THEME=high-contrast")
        assert "\x1b[2m" not in terminal.wait("rc=0")
        terminal.run_with_id(*top(fake.url), environment="CORVO_THEME=pink")
        terminal.wait("CORVO_THEME=pink is invalid: expected one of auto, dark, light, mono")


# With pipes.


def test_without_a_terminal_all_rows_are_printed_once(fake: Fake) -> None:
    done = corvo("--server", fake.url, "--once=instant")

    first, titles, *rows = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith("corvo 2026-11-18T10:42:07.25Z nodes=2/3 can_lose=0 shards=2/3")
    assert titles.split() == [
        *("QUEUE", "STATE", "PENDING", "ACTIVE", "SCHED", "RETRY", "HELD", "DEAD", "OLDEST")
    ]
    assert len(rows) == len(SUMMARY.queues)
    assert "1234567" in rows[0]
    assert "\x1b" not in done.stdout


def test_rows_can_be_filtered_and_sorted(fake: Fake) -> None:
    done = corvo("--server", fake.url, "--once=instant", "--sort", "name:desc", "emails")

    assert [row.split()[0] for row in done.stdout.splitlines()[2:]] == [
        "emails.send",
        "emails.bulk",
    ]


def test_json_is_a_document_and_jsonl_one_on_each_line(fake: Fake) -> None:
    once = corvo("--server", fake.url, "--json", "--once=instant")
    stream = corvo("--server", fake.url, "--jsonl", "-d", "1ms", "-n", "3")

    assert len(once.stdout.splitlines()) == 1
    document = msgspec.json.decode(once.stdout, type=plain.Document)
    assert document.summary == SUMMARY
    assert document.rates.enqueued is None
    assert len(stream.stdout.splitlines()) == 3


@pytest.mark.parametrize("words", [["--once"], ["--json"], ["--jsonl"], []])
def test_a_server_that_cannot_be_reached_ends_it_with_6(words: list[str]) -> None:
    done = corvo("--server", "127.0.0.1:1", *words)

    assert done.returncode == 6
    assert "UNREACHABLE" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words", [["--sort", "nothing"], ["--sort", "name:up"], ["--view", "x"], ["-n", "-1"]]
)
def test_invalid_options_are_refused(words: list[str]) -> None:
    assert corvo("--server", "127.0.0.1:1", *words).returncode == 2
