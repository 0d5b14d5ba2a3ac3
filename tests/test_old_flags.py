"""Flags and routes of corvo-go: each is understood or rejected, and each is on the page."""

import re
from pathlib import Path
from typing import Final

import pytest

from corvo.commands import _FLAGS as FLAGS
from corvo.config import KEYS, ConfigRefused
from corvo.old_flags import REJECTED, RENAMED, SWITCHES, translate
from corvo.router.table import ROUTES

PAGE: Final = (Path(__file__).parents[1] / "docs" / "coming-from-corvo-go.md").read_text()
SAME: Final = frozenset(
    {"--bind", "--data-dir", "--retention", "--log-level", "--node-id", "--join", "--discover"}
    | {"--discover-dns-name"}
)

ORIGINAL: Final = [
    "--bind",
    "--data-dir",
    "--raft-bind",
    "--raft-advertise",
    "--node-id",
    "--bootstrap",
    "--join",
    "--discover",
    "--discover-dns-name",
    "--durable",
    "--raft-store",
    "--raft-shards",
    "--raft-max-pending",
    "--raft-max-fetch-inflight",
    "--apply-multi-mode",
    "--snapshot-threshold",
    "--shutdown-timeout",
    "--retention",
    "--retention-interval",
    "--rate-limit-enabled",
    "--rate-limit-read-rps",
    "--rate-limit-read-burst",
    "--rate-limit-write-rps",
    "--rate-limit-write-burst",
    "--stream-max-inflight",
    "--stream-max-open",
    "--stream-max-fps",
    "--fetch-poll-interval",
    "--idle-fetch-sleep",
    "--no-compression",
    "--max-payload-size",
    "--docs-enabled",
    "--admin-password",
    "--license-key",
    "--license-public-key",
    "--oidc-issuer-url",
    "--oidc-client-id",
    "--saml-header-auth",
    "--otel-enabled",
    "--otel-endpoint",
    "--log-level",
]


def test_every_flag_of_the_original_is_known_and_on_the_page() -> None:
    assert set(ORIGINAL) == SAME | RENAMED.keys() | SWITCHES.keys() | REJECTED.keys()
    assert not [flag for flag in ORIGINAL if f"`{flag}`" not in PAGE]
    assert set(FLAGS) >= SAME


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--raft-shards", "2", "--bind", ":80"], ["--shards=2", "--bind", ":80"]),
        (["--raft-shards=2"], ["--shards=2"]),
        (["--admin-password=a=b"], ["--admin-key=a=b"]),
        (["--durable"], ["--durability=sync"]),
        (["--durable=FALSE"], ["--durability=relaxed"]),
        (["--docs-enabled=true", "--otel-enabled=false", "--bootstrap=false"], []),
        (["--bootstrap", "--raft-bind", ":1"], ["--set=cluster.bootstrap=on", "--peer-bind=:1"]),
        (["--raft-advertise=a:1", "--join", "b:1"], ["--advertise=a:1", "--join", "b:1"]),
        (
            ["--rate-limit-enabled=false"],
            ["--set=limits.read_rate=0", "--set=limits.write_rate=0"],
        ),
        (["--max-payload-size", "9"], ["--set=limits.payload_bytes_max=9"]),
    ],
)
def test_a_flag_with_a_successor_is_understood(given: list[str], wanted: list[str]) -> None:
    assert translate(given) == wanted


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (
            ["--license-key", "a:1", "--raft-store=bolt"],
            ["--license-key: there are no", "--raft-store: each shard"],
        ),
        (["--durable=maybe"], ["--durable: expected true or false, got 'maybe'"]),
        (["--admin-password"], ["--admin-password: a value is missing"]),
        (["--snapshot-threshold=4096"], ["--snapshot-threshold: use --set shard.checkpoint"]),
    ],
)
def test_a_flag_without_a_successor_is_rejected_with_the_reason(
    given: list[str], problems: list[str]
) -> None:
    with pytest.raises(ConfigRefused) as refused:
        translate(given)

    assert len(refused.value.problems) == len(problems)
    for problem, beginning in zip(refused.value.problems, problems, strict=True):
        assert problem.startswith(beginning)


def test_what_a_flag_became_exists() -> None:
    meanings = [*RENAMED.values(), *REJECTED.values()]
    meanings += [meaning for switch in SWITCHES.values() for meaning in switch.values()]
    named = {name for text in meanings for name in re.findall(r"\b[a-z]+\.[a-z_]+\b", text)}

    assert named <= KEYS.keys()
    assert "limits.payload_bytes_max" in named


def test_a_route_that_the_page_calls_the_same_exists() -> None:
    ours = {f"{row.method} {row.path.removeprefix('/api/v1')}" for row in ROUTES.rows}
    ours = {re.sub(r"\{\w+\}", "{}", name) for name in ours}
    method, wrong, seen = "", [], 0
    for line in PAGE.partition("## Routes")[2].partition("## Statuses")[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or cells[2] not in {"the same", "not available"}:
            continue
        path = ""
        for name in re.findall(r"`([^`]+)`", cells[1]):
            if " " in name:
                method, path = name.split(" ")
            elif not name.startswith("/"):  # the last part of the path before
                path = f"{path.rpartition('/')[0]}/{name}"
            else:
                continue
            seen += 1
            exists = f"{method} {re.sub(r'{[^}]+}', '{}', path)}" in ours
            if exists != (cells[2] == "the same"):
                wrong.append(f"{method} {path}: {cells[2]}")

    assert not wrong
    assert seen > 80
