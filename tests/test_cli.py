"""The command line, as somebody at a terminal meets it."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo import __version__, cli
from corvo.command_table import COMMANDS

ROOT: Final = Path(__file__).parent.parent
HEAVY: Final = {"trio", "msgspec", "plyvel", "hypercorn", "quart", "argparse"}


def corvo(
    *words: str, cwd: Path = ROOT, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `corvo` from another place than its own."""
    return subprocess.run(
        [sys.executable, *options, "-m", "corvo", *words],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment},
        check=False,
        capture_output=True,
        text=True,
    )


def test_help_lists_every_command() -> None:
    done = corvo("--help")

    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert done.stderr == ""


def test_no_word_at_all_is_bad_usage_with_the_same_help() -> None:
    done = corvo()

    assert done.returncode == 2
    assert done.stderr == cli.usage()


def test_a_word_that_is_not_there_is_refused_with_the_nearest() -> None:
    near, far = corvo("sever"), corvo("xyzzy")

    assert (near.returncode, far.returncode) == (2, 2)
    assert near.stderr == "corvo: unknown command 'sever'; did you mean `corvo server`?\n"
    assert far.stderr == "corvo: unknown command 'xyzzy'; `corvo --help` lists all commands\n"


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_it_tells_its_version(word: str) -> None:
    assert corvo(word).stdout == f"corvo {__version__}\n"


def test_the_version_costs_no_import_that_is_not_needed() -> None:
    script = "import sys; from corvo.cli import main; main(['version']); print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert not HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("name", ["server", "config"])
def test_a_command_explains_its_options(name: str) -> None:
    done = corvo(name, "--help")

    assert done.returncode == 0
    assert "--data-dir DIR" in done.stdout
    assert "--set KEY=VALUE" in done.stdout


def test_an_option_that_is_not_there_is_bad_usage() -> None:
    assert corvo("server", "--lasting").returncode == 2
    assert corvo("server", "--bin", ":80").returncode == 2  # no guessing what was meant


def test_every_command_and_every_process_is_there() -> None:
    for name in COMMANDS:
        assert callable(cli.resolve(name)), name
    for module in cli._PROCESSES.values():
        assert callable(importlib.import_module(module).main), module


@pytest.mark.parametrize("name", ["shard", "router"])
def test_a_process_that_is_told_nothing_says_so(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corvo", name],
        cwd=ROOT,
        input="",
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 72
    assert done.stderr.startswith(f"corvo {name}: config: ")


def test_without_assertions_nothing_runs() -> None:
    done = corvo("version", options=("-O",))

    assert done.returncode == 72
    assert "assertions are switched off" in done.stderr


def test_it_prints_what_can_be_asked_for_as_json() -> None:
    done = corvo("openapi")

    told = msgspec.json.decode(done.stdout, type=dict[str, msgspec.Raw])
    assert done.returncode == 0
    assert b"/api/v1/enqueue" in bytes(told["paths"])


# ---- The config's doors.


def test_config_shows_each_key_with_its_value_and_source(tmp_path: Path) -> None:
    (tmp_path / "corvo.toml").write_text('durability = "relaxed"\n[limits]\nidle_ms = "90s"\n')

    done = corvo("config", "--bind", "127.0.0.1:1", cwd=tmp_path, CORVO_ADMIN_KEY="rook-and-raven")

    lines = {line[2:].split()[0]: line.split()[-2:] for line in done.stdout.splitlines()}
    assert done.returncode == 0
    assert lines["bind"] == ["127.0.0.1:1", "--bind"]
    assert lines["durability"] == ["relaxed", "corvo.toml"]
    assert lines["limits.idle_ms"] == ["90s", "corvo.toml"]
    assert lines["admin_key"] == ["***", "CORVO_ADMIN_KEY"]
    assert lines["shards"] == ["4", "default"]
    assert "rook" not in done.stdout


def test_config_says_the_same_to_programs(tmp_path: Path) -> None:
    done = corvo("config", "--json", "--retention", "1h", "--admin-key", "rook", cwd=tmp_path)

    told = msgspec.json.decode(done.stdout, type=dict[str, dict[str, object]])
    assert told["retention"]["value"] == 3_600_000
    assert told["retention"]["shown"] == "1h"
    assert told["admin_key"]["value"] == "***"


def test_a_file_is_named_by_a_flag_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("shards = 7\n")

    by_flag = corvo("config", "--config", str(file), cwd=tmp_path)
    by_variable = corvo("config", cwd=tmp_path, CORVO_CONFIG=str(file))

    for done in (by_flag, by_variable):
        rows = [line.split() for line in done.stdout.splitlines()]
        assert ["*", "shards", "7", str(file)] in rows


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    done = corvo("server", "--config", "none.toml", cwd=tmp_path)

    assert done.returncode == 72
    assert done.stderr.startswith("corvo server: refused: none.toml: no such file")
    assert list(tmp_path.iterdir()) == []


def test_set_reaches_every_key_and_the_flag_of_its_own_beats_it(tmp_path: Path) -> None:
    words = ["--set", "limits.idle_ms=9s", "--set", "shards=3", "--bind", "127.0.0.1:2"]

    done = corvo("config", *words, "--set", "bind=127.0.0.1:1", cwd=tmp_path)

    assert " 9s " in done.stdout
    assert "--set shards" in done.stdout
    assert "127.0.0.1:2" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "limits.idle"], "expected --set KEY=VALUE"),
        (
            ["--set", "limits.idle=1"],
            "unknown setting limits.idle (--set limits.idle); did you mean limits.idle_ms?",
        ),
        (["--shards", "0"], "shards is '0' (--shards): expected a number of at least 1"),
        (["--bind", ":8080"], "set CORVO_ADMIN_KEY (or --admin-key)"),
        (["--tls-cert", "a.pem"], "tls_cert (--tls-cert) is set and tls_key is not"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_made(
    tmp_path: Path, words: list[str], told: str
) -> None:
    done = corvo("server", *words, cwd=tmp_path)

    assert done.returncode == 72
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_whoever_has_seen_enough_of_the_output_may_leave(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "corvo", "config", "--json"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()

    assert process.returncode == 0
    assert said == b""


@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        (">&-", 0, ""),
        (">/dev/full", 1, "corvo: the output cannot be written: No space left on device\n"),
    ],
)
@pytest.mark.parametrize("word", ["version", "--help"])
def test_an_output_that_cannot_be_written_ends_without_a_trace(
    word: str, redirected: str, code: int, told: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m corvo {word} {redirected}', sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (code, told)
