"""`corvo verify` as a command: what it prints, its exit codes, and each refusal with what to do."""

import shlex
from pathlib import Path

import msgspec
import pytest

from corvo import cli
from corvo.command_table import COMMANDS
from corvo.verify.report import DAMAGED, WHOLE, Report
from tests.client_commands.running import Done
from tests.verify.conftest import Work
from tests.verify.looking import flip


@pytest.fixture
def corvo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> "Corvo":
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CORVO_SERVER", "CORVO_API_KEY", "CORVO_PROFILE", "CORVO_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    return Corvo(capfd)


class Corvo:
    """Runs commands in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str) -> Done:
        try:
            code = cli.main([*shlex.split(words[0]), *words[1:]])
        except SystemExit as ended:
            code = int(str(ended.code))
        said = self._capfd.readouterr()
        return Done(code, said.out, said.err)


def test_it_is_a_command() -> None:
    assert COMMANDS["verify"].place == "corvo.verify.command"


def test_a_whole_directory_ends_with_0(corvo: Corvo, whole: Path) -> None:
    done = corvo("verify -o table", str(whole))

    assert (done.code, done.err) == (0, "")
    assert "shard 1" in done.out
    assert f"{whole} is whole; checked in " in done.out


def test_damage_ends_with_1_and_is_named_with_what_to_do(corvo: Corvo, copy: Path) -> None:
    flip(copy / "shard-0/log/manifest", 30)

    done = corvo("verify", str(copy))

    assert done.code == 1
    assert "damaged: shard 0: shard-0/log/manifest: the header's checksum" in done.out
    assert "with other replicas: start the node, which gets the shard from them again" in done.out
    assert f"{copy} is damaged: " in done.out


def test_json_has_each_finding(corvo: Corvo, copy: Path) -> None:
    flip(copy / "node.json", 0)

    done = corvo("verify -o json", str(copy))

    assert done.code == 1
    report = done.json(Report)
    assert (report.verified, report.status) == (str(copy), DAMAGED)
    assert [finding.where for finding in report.parts[0].damage] == ["node.json"]


def test_what_could_not_be_checked_ends_with_10(corvo: Corvo, copy: Path) -> None:
    (copy / "release.json").write_text('{"op_version": 999, "release": "9.0.0"}')

    done = corvo("verify", str(copy))

    assert done.code == 10
    assert "no damage was found" in done.out
    assert "not checked: node: release.json" in done.out


def test_a_path_that_is_no_data_directory_is_refused_with_a_hint(
    corvo: Corvo, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("x")
    for place, words in (
        (tmp_path / "nowhere", "does not exist"),
        (empty, "is empty"),
        (other / "file", "is not a directory"),
        (other, "is not a data directory of Corvo"),
    ):
        done = corvo("verify", str(place))

        assert (done.code, done.out) == (2, "")
        assert f"error: {place} {words}" in done.err
        assert "data directory" in done.err
    assert corvo("verify --scratch /nowhere", str(other)).code == 2


def test_a_directory_that_a_server_uses_is_refused(corvo: Corvo, work: Work) -> None:
    root = work.root

    done = corvo("verify", str(root))

    assert (done.code, done.out) == (5, "")
    assert f"a server uses {root}: process " in done.err
    assert "stop the server first" in done.err
    assert "[IN_USE, exit 5]" in done.err


# A running server.


def test_a_whole_server_ends_with_0(corvo: Corvo, work: Work) -> None:
    done = corvo(f"verify {work.server.url} --api-key {work.server.api_key} -o json")

    assert (done.code, done.err) == (0, "")
    report = done.json(Report)
    assert report.status == WHOLE
    [part] = [part for part in report.parts if part.name == "queues and mirror"]
    assert part.checked[0].startswith("11 queues and 43 jobs at s0=")
    assert "corvo verify DIR" in report.not_visible[0]


def test_a_server_needs_a_key(corvo: Corvo, work: Work) -> None:
    done = corvo(f"verify {work.server.url}")

    assert (done.code, done.out) == (4, "")
    assert "CORVO_API_KEY" in done.err


def test_no_server_is_an_exit_code_with_hints(
    corvo: Corvo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corvo.client.calls.ROUNDS", 1)

    done = corvo("verify 127.0.0.1:9")

    assert (done.code, done.out) == (6, "")
    assert "is a server running there?" in done.err


def test_an_address_that_does_not_answer_is_told_and_the_others_are_checked(
    corvo: Corvo, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corvo.client.calls.ROUNDS", 1)

    done = corvo(f"verify {work.server.url},127.0.0.1:9 --api-key {work.server.api_key}")

    assert done.code == 10
    assert "not checked: nodes: 127.0.0.1:9: no answer from" in done.out
    assert "11 queues and 43 jobs" in done.out


def test_the_report_is_json_that_stays() -> None:
    fields = {field.name for field in msgspec.structs.fields(Report)}

    assert fields == {"verified", "status", "parts", "not_visible", "seconds"}
