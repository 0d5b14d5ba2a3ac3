"""`corvo profile` and `corvo completion`: servers by name, and the words that a shell offers."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.scripted import answer, scripted
from tests.client_commands.running import ROOT, Done, Server


def corvo(home: Path, *words: str, **environment: str) -> Done:
    """A command of a user who has profiles, and no variables."""
    bare = {"CORVO_SERVER": "", "CORVO_API_KEY": "", "XDG_CONFIG_HOME": str(home)}
    return Server("").corvo(*words, **{**bare, **environment})


def stored(home: Path) -> Path:
    return home / "corvo" / "config.toml"


def test_a_profile_names_a_server_and_its_key(tmp_path: Path) -> None:
    with scripted(answer(200, []), answer(200, []), answer(200, [])) as server:
        added = corvo(tmp_path, "profile", "add", "dev", server.url, "--api-key", "rook")
        other = corvo(tmp_path, "profile", "add", "prod", "127.0.0.1:1", "--key-env", "PROD")
        by_default = corvo(tmp_path, "workers")
        corvo(tmp_path, "profile", "use", "prod")
        by_flag = corvo(tmp_path, "workers", "-P", "dev", CORVO_API_KEY="other")
        by_variable = corvo(tmp_path, "workers", CORVO_PROFILE="dev")
        away = corvo(tmp_path, "workers", PROD="raven")

    assert (added.code, other.code) == (0, 0), added.err
    assert "make it the default:   corvo profile use prod" in other.err
    assert (by_default.code, by_flag.code, by_variable.code) == (0, 0, 0)
    assert [one.headers["x-api-key"] for one in server.asked] == ["rook"] * 3
    assert away.code == 6
    assert stored(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_key_of_a_profile_is_not_sent_to_another_server(tmp_path: Path) -> None:
    corvo(tmp_path, "profile", "add", "prod", "127.0.0.1:1", "--api-key", "rook")

    with scripted(answer(200, []), answer(200, [])) as server:
        corvo(tmp_path, "workers", "--server", server.url)
        corvo(tmp_path, "workers", "--server", server.url, "--profile", "prod")
        shown = corvo(tmp_path, "profile", "show", "--server", server.url)

        assert f"server   {server.url}  (--server)\n" in shown.out
    assert ["x-api-key" in one.headers for one in server.asked] == [False, False]
    assert "api_key  -  (not set)\n" in shown.out


def test_the_end_of_a_line_is_not_part_of_a_key(tmp_path: Path) -> None:
    with scripted(answer(200, []), answer(200, [])) as server:
        by_variable = corvo(tmp_path, "workers", "--server", server.url, CORVO_API_KEY="rook\n")
        corvo(tmp_path, "profile", "add", "prod", server.url, "--key-env", "PROD")
        by_profile = corvo(tmp_path, "workers", PROD="raven\n")

    assert (by_variable.code, by_profile.code) == (0, 0), by_variable.err
    assert [one.headers["x-api-key"] for one in server.asked] == ["rook", "raven"]


def test_a_list_hides_keys(tmp_path: Path) -> None:
    corvo(tmp_path, "profile", "add", "a", "h1:1,h2:2", "--api-key", "rook", "--protected")
    corvo(tmp_path, "profile", "add", "b", "https://b", "--key-file", "/k")
    listed = corvo(tmp_path, "profile", "list", "-o", "csv").out.splitlines()
    removed = corvo(tmp_path, "profile", "remove", "a")

    assert listed == [
        "name,default,server,api_key,protected",
        'a,*,"http://h1:1,http://h2:2",***,yes',
        "b,,https://b:443,file /k,",
    ]
    assert removed.out == "profile a is removed\n"
    assert "rook" not in stored(tmp_path).read_text()


def test_a_protected_profile_needs_its_name(tmp_path: Path) -> None:
    queue = answer(200, {"name": "mail", "pending": 3})
    with scripted(queue, queue, answer(200, {"status": "deleted"})) as server:
        corvo(tmp_path, "profile", "add", "prod", server.url, "--protected")
        refused = corvo(tmp_path, "destroy", "mail", "--yes")
        done = corvo(tmp_path, "destroy", "mail", "--yes", "--profile", "prod")

    assert (refused.code, done.code) == (2, 0)
    assert "this needs --yes and --profile" in refused.err
    assert "confirm it:   corvo destroy mail --yes --profile prod" in refused.err


def test_a_file_with_keys_that_others_can_read_is_refused(tmp_path: Path) -> None:
    corvo(tmp_path, "profile", "add", "a", "127.0.0.1:1", "--api-key", "rook")
    stored(tmp_path).chmod(0o644)

    done = corvo(tmp_path, "queues", "-o", "table")

    assert done.code == 2
    assert "has API keys, and other users can read it\n  chmod 600 '" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queues", "-P", "porud"], "profile 'porud' does not exist\n  did you mean:   prod"),
        (["profile", "use", "nope"], "list them:   corvo profile list"),
        (["profile", "add", "a b", "h"], "the name 'a b' is invalid"),
        (["profile", "add", "a", "ftp://h"], "server 'ftp://h' is invalid"),
    ],
)
def test_each_failure_has_its_text(tmp_path: Path, words: list[str], told: str) -> None:
    corvo(tmp_path, "profile", "add", "prod", "127.0.0.1:1")

    done = corvo(tmp_path, *words, CORVO_OUTPUT="table")

    assert done.code == 2
    assert told in done.err


def test_an_invalid_file_says_so(tmp_path: Path) -> None:
    stored(tmp_path).parent.mkdir()
    stored(tmp_path).write_text("[profile.a]\nsrever = 'x'\n")

    done = corvo(tmp_path, "queues", "-o", "table")

    assert done.code == 2
    assert "config.toml is invalid: Object contains unknown field `srever`" in done.err


# Completion.


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["sea"], ["search"]),
        (["cluster", "un"], ["undrain"]),
        (["bulk", "re"], ["reject", "requeue", "retry"]),
        (["search", "--payload-"], ["--payload-contains", "--payload-jq"]),
        (["queues", "-o", "j"], ["json", "jsonl"]),
        (["held", "--sor"], ["--sort"]),
        (["search", "--state", "d"], ["dead"]),
        (["completion", "f"], ["fish"]),
        (["nope", ""], []),
        (["server", "--"], []),
        (["keys", "nope", ""], []),
    ],
)
def test_words_are_offered(server: Server, words: list[str], wanted: list[str]) -> None:
    done = server.corvo("completion", "words", *words)

    assert (done.code, done.err) == (0, "")
    assert done.out.split() == wanted


def test_queues_and_profiles_are_offered(server: Server, tmp_path: Path) -> None:
    server.enqueue("co-queue")
    corvo(tmp_path, "profile", "add", "staging", "127.0.0.1:1")

    queues = server.corvo("completion", "words", "pause", "co-q")
    flag = server.corvo("completion", "words", "search", "--queue", "co-q")
    away = server.corvo("completion", "words", "pause", "--server", "127.0.0.1:1", "co-q")
    profiles = corvo(tmp_path, "completion", "words", "queues", "-P", "st")

    assert queues.out.split() == flag.out.split() == ["co-queue"]
    assert (away.code, away.out, away.err) == (0, "", "")
    assert profiles.out.split() == ["staging"]


def test_the_script_of_bash_completes(server: Server, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = server.corvo("completion", "bash").out
    program = tmp_path / "corvo"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m corvo "$@"\n')
    program.chmod(0o755)
    code = (
        f'{script}\nCOMP_WORDS=(corvo cluster dra); COMP_CWORD=2; _corvo; echo "${{COMPREPLY[@]}}"'
    )

    done = subprocess.run(
        [bash, "-c", code],
        env={"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "drain\n"


def test_each_shell_has_a_script(server: Server) -> None:
    assert server.corvo("completion", "zsh").out.startswith("#compdef corvo\n")
    assert "complete -c corvo" in server.corvo("completion", "fish").out
    assert server.corvo("completion", "tcsh").code == 2
    assert "~/.bashrc" in server.corvo("completion", "--help").out
