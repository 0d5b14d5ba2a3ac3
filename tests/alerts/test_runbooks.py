"""The runbooks: one for each alert, whose metrics, commands and paths there are."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from corvo.client_commands.options import parser_of
from corvo.command_table import COMMANDS
from corvo.router.node.families import FAMILIES
from corvo.router.table import ROUTES
from tests import cli_reference
from tests.alerts import runbooks
from tests.alerts.firing import Enqueued, secure, three_in
from tests.alerts.rules import RUNBOOKS, alerts
from tests.cluster.nodes import PATIENCE_S, cluster_of
from tests.support.certificates import needs_openssl
from tests.support.links import on_sockets
from tests.support.pages import shell_in

PAGES: Final = sorted(RUNBOOKS.glob("Corvo*.md"))
INDEX: Final = RUNBOOKS / "README.md"


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    names = [rule.alert for rule in alerts()]

    assert [page.stem for page in PAGES] == sorted(names)
    assert [line for line in INDEX.read_text().splitlines() if line.startswith("- ")] == [
        f"- [{name}]({name}.md)" for name in names
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_has_its_three_parts(page: Path) -> None:
    lines = page.read_text().splitlines()

    assert lines[0] == f"# {page.stem}"
    assert [line for line in lines if line.startswith("## ")] == ["## Meaning", "## Look", "## Do"]
    assert len(lines) <= 40
    assert len(runbooks.blocks_in(page.read_text())) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_metrics_that_there_are(page: Path) -> None:
    text = page.read_text()

    searched = {*runbooks.searched_in(text)}
    plain = re.sub(r"grep -E '[^']*'", "", text)

    assert {*runbooks.metrics_in(plain), *searched} <= {*FAMILIES}


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: page.stem)
def test_a_page_names_commands_that_there_are(page: Path) -> None:
    commands = [*runbooks.commands_in(page.read_text())]

    assert commands
    for words in commands:
        if words[0] == "corvo":
            check_command(words[1:])
        for path in paths_in(words):
            assert path in {route.path for route in ROUTES.rows}, path


def check_command(words: list[str]) -> None:
    """Fail if the command, or an option of it, is unknown."""
    assert words[0] in COMMANDS, words
    verbs = dict(cli_reference.verbs_of(words[0]))
    name = words[0] if words[0] in verbs else " ".join(words[:2])
    if name in verbs:
        known = options_of(parser_of(name, verbs[name]))
        used = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert used <= known, f"{name}: {used - known}"


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options that a command has."""
    return {option for action in parser._actions for option in action.option_strings}


def paths_in(words: list[str]) -> Iterator[str]:
    """The paths of the HTTP API in a command."""
    for word in words:
        _, found, path = word.partition("127.0.0.1:8080")
        if found:
            yield path.partition("?")[0]


def test_a_wrong_command_is_found() -> None:
    check_command(["cluster", "status", "--wait", "1m"])
    for wrong in (["shards"], ["cluster", "status", "--nosuch"]):
        with pytest.raises(AssertionError):
            check_command(wrong)


# ---- The commands, typed.

NOTHING_SHOWN: Final = {
    "corvo_shard_effects_": "no effect waits in a healthy cluster",
    "corvo_cluster_clock_offset_seconds": "clocks are compared some time after the start",
    "corvo_shard_clock_offset_seconds": "of three nodes, one leads none of the two shards",
    "shard_replica_lag_entries": "the same",
    "corvo_queue_workers": "a router that has just started does not know all workers",
}
"""Searches that may find no line on a healthy cluster, and why."""


@needs_openssl
@on_sockets
async def test_the_commands_of_all_pages_work(tmp_path: Path) -> None:
    members = await three_in(tmp_path)
    secure(tmp_path, members)
    pages = [page.read_text() for page in PAGES]
    lines = [
        line for page in pages for block in runbooks.blocks_in(page) for line in block.splitlines()
    ]
    commands = sorted({line for line in lines if line.startswith(("corvo ", "curl "))})
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        answer = await cluster.until(members[0], "POST", "/api/v1/enqueue", {"queue": "mail"})
        await cluster.ask(members[0], "GET", "/api/v1/jobs/mail~none")  # a problem, to be counted
        names = {"QUEUE": "mail", "NODE": "a", "WORKER": "w-1", "ID": answer.read(Enqueued).job_id}
        address = f"127.0.0.1:{members[0].address[1]}"
        async with shell_in(tmp_path, CORVO_SERVER=f"http://{address}") as shell:
            assert (await shell.run("corvo cluster status --wait 50s"))[0] == 0
            for command in commands:
                typed = re.sub(
                    r"\b(QUEUE|ID|NODE|WORKER)\b", lambda found: names[found[1]], command
                )
                typed = typed.replace("127.0.0.1:8080", address)
                allowed = {0, 1} if any(name in command for name in NOTHING_SHOWN) else {0}
                code, output = await shell.run(typed)
                # A shard that answers a moment late is missing in what is shown.
                with trio.move_on_after(PATIENCE_S):
                    while code not in allowed:
                        code, output = await shell.run(typed)
                assert code in allowed, f"{command}\n{output}"
