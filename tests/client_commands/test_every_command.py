"""Every command of the table, against a real server: in a table, in JSON, in a pipe, and failing.

The commands run in this process: as programs they would take a minute. `cases.py` has the words.
"""

import io
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
import pytest

from corvo import cli
from corvo.client import repeats
from corvo.client_commands.records import FORMS
from corvo.command_table import COMMANDS
from tests.cli_reference import verbs_of
from tests.client_commands.cases import CASES, ELSEWHERE, FAILURES, Case, prepare
from tests.client_commands.running import ROOT, Server

VERBS: Final = {name: verb for word in COMMANDS for name, verb in verbs_of(word)}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Error(msgspec.Struct):
    code: str
    message: str
    hints: list[str]
    exit: int


class Run(Protocol):
    """Runs a command with a text as stdin."""

    def __call__(self, words: str, given: str = "") -> Done: ...


@pytest.fixture
def corvo(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Run]:
    """A function that runs a command with a text as stdin."""
    for name, value in server.environment(XDG_CONFIG_HOME=str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    stdin = os.dup(0)

    def run(words: str, given: str = "") -> Done:
        file = tmp_path / "stdin"
        file.write_text(given)
        with file.open() as opened:
            os.dup2(opened.fileno(), 0)
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.FileIO(0, closefd=False)))
            try:
                code = cli.main(shlex.split(words))
            except SystemExit as ended:
                code = int(str(ended.code))
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    yield run
    os.dup2(stdin, 0)
    os.close(stdin)


class Trial(NamedTuple):
    """A case with things of its own."""

    name: str
    case: Case
    queue: str
    ids: list[str]

    def words(self, words: str) -> str:
        """The words with the values of this trial."""
        some = self.ids or [self.queue]
        return words.format(
            name=self.name, queue=self.queue, id=some[0], ids="\n".join(some), ids2=" ".join(some)
        )


def trial(server: Server, name: str, form: str) -> Trial:
    queue = f"ev-{name.replace(' ', '-')}-{form}"
    case = CASES[name]
    ids = prepare(server, queue, case.needs)
    return Trial(name, case, queue, ids or [queue])


def prepared(corvo: Run, server: Server, name: str, form: str) -> Trial:
    made = trial(server, name, form)
    if made.case.needs == "profile":
        assert corvo(f"profile add {made.queue} {server.url}").code == 0
    return made


def test_every_command_has_a_case() -> None:
    alone = {word for word in COMMANDS if not {*verbs_of(word)}}
    modules = {name: (ROOT / "tests" / file).read_text() for name, file in ELSEWHERE.items()}

    assert {*CASES} | {*ELSEWHERE} == {*VERBS} | alone
    assert not {*CASES} & {*ELSEWHERE}
    assert [name for name, text in modules.items() if f'"{name.split()[-1]}"' not in text] == []


@pytest.mark.parametrize("name", CASES)
def test_a_command_has_a_text_for_people(corvo: Run, server: Server, name: str) -> None:
    made = prepared(corvo, server, name, "table")

    done = corvo(f"{name} {made.words(made.case.words)} -o table", made.words(made.case.given))
    while name.endswith("status") and done.code == 10:  # a shard has answered too late
        done = corvo(f"{name} -o table", "")

    assert done.code == 0, done
    assert bool(done.out) is made.case.has_output
    assert not done.out.startswith("{")
    assert all(letter.isprintable() or letter == "\n" for letter in done.out)


@pytest.mark.parametrize("name", CASES)
def test_a_command_has_json_for_programs(corvo: Run, server: Server, name: str) -> None:
    made = prepared(corvo, server, name, "json")

    done = corvo(f"{name} {made.words(made.case.words)} -o json", made.words(made.case.given))
    while name.endswith("status") and done.code == 10:  # a shard has answered too late
        done = corvo(f"{name} -o json", "")

    assert done.code == 0, done
    if made.case.has_output:
        assert msgspec.json.decode(done.out) is not None


@pytest.mark.parametrize("name", [name for name in CASES if "id" in VERBS[name].outputs])
def test_a_command_works_in_a_pipe(corvo: Run, server: Server, name: str) -> None:
    made = prepared(corvo, server, name, "pipe")
    is_list = VERBS[name].outputs == FORMS
    words = made.words(made.case.piped or made.case.words)

    done = corvo(f"{name} {words}{'' if is_list else ' -o id'}", made.words(made.case.given))

    assert done.code == 0, done
    assert done.out
    for line in done.out.splitlines():
        if is_list:
            assert line.startswith("{")
            assert msgspec.json.decode(line)
        else:
            assert " " not in line


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].told])
def test_a_failure_has_an_exit_code_and_says_what_to_do(
    corvo: Run, server: Server, name: str
) -> None:
    made = prepared(corvo, server, name, "wrong")
    case = made.case

    done = corvo(f"{name} {made.words(case.wrong)} -o table")

    assert done.code == case.code, done
    assert made.words(case.told) in done.err, done.err


@pytest.mark.parametrize(("words", "code", "told"), FAILURES)
def test_each_failure_has_its_exit_code_and_text(
    corvo: Run, words: list[str], code: int, told: str
) -> None:
    done = corvo(f"{shlex.join(words)} --output table" if words[0] in COMMANDS else words[0])

    assert done.code == code
    assert told in done.err


ASKING: Final = [name for name in CASES if VERBS[name].needs_server and name != "worker"]
"""A worker waits for its server."""


@pytest.mark.parametrize("name", ASKING)
def test_no_server_is_an_exit_code_with_hints(
    corvo: Run, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "PAUSE_MS", 0)
    made = Trial(name, CASES[name], "ev-away", [])
    words, given = made.words(made.case.words), made.words(made.case.given)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"

        done = corvo(f"{name} {words} -o json --server {address}", given)

    error = msgspec.json.decode(done.err.splitlines()[-1], type=dict[str, Error])["error"]
    assert (done.code, error.exit, error.code) == (6, 6, "UNREACHABLE"), done
    assert error.hints[0].startswith("is a server running there?   corvo server")


@pytest.mark.parametrize("name", VERBS)
def test_a_misspelled_option_is_answered_with_the_nearest(corvo: Run, name: str) -> None:
    done = corvo(f"{name} --ouptut=json")

    assert done.code == 2
    assert "did you mean:   --output" in done.err or "are required" in done.err
    assert f"all options:   corvo {name} --help" in done.err
