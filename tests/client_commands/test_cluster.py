"""`corvo cluster` as a program: output, questions, exit codes, and the requests that it sends."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.client_commands.cluster import VERBS
from tests.client.scripted import CLOSE, Scripted, answer, problem, scripted

ROOT: Final = Path(__file__).parents[2]
NODE: Final = {
    "number": 4,
    "name": "d",
    "state": "active",
    "is_reachable": True,
    "leads": [1],
    "replicas": [0, 1, 2],
}
OTHERS: Final = [{"number": n, "name": f"n{n}", "state": "active"} for n in (1, 2, 3)]
NODES: Final = {"nodes": [*OTHERS, NODE], "replicas": 3, "removed": [], "map_version": 7}
DONE: Final = {"status": "draining", "node": "d", "map_version": 8}
DRAINED: Final = {**NODE, "state": "draining", "leads": [], "replicas": []}


def corvo(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `corvo cluster`, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "corvo", "cluster", *words],
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment},
        check=False,
        capture_output=True,
        text=True,
    )


def asked(server: Scripted) -> list[str]:
    return [f"{one.method} {one.path}" for one in server.asked]


def drain_on_a_terminal(server: Scripted, typed: bytes) -> tuple[int, str]:
    """`corvo cluster drain d` in a pseudo-terminal, with an answer to its question."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, typed)
        done = subprocess.run(
            [sys.executable, "-m", "corvo", "cluster", "drain", "d", "--server", server.url],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            check=False,
        )
        return done.returncode, os.read(ours, 1 << 16).decode() + done.stdout.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_drain_asks_with_counts_and_says_what_is_now_true() -> None:
    with scripted(answer(200, NODE), answer(200, NODES), answer(200, DONE)) as server:
        code, said = drain_on_a_terminal(server, b"y\n")

    assert code == 0
    assert "Node 4 (d) has 3 replicas, and leads 1 shard. They move to other nodes" in said
    assert "Drain node 4 (d)? [y/N] " in said
    assert "node 4 (d) is draining: 3 replicas to move\n" in said
    assert "see how many are left: corvo cluster node d\n" in said
    assert asked(server) == [
        "GET /api/v1/cluster/nodes/d",
        "GET /api/v1/cluster/nodes",
        "POST /api/v1/cluster/nodes/d/drain",
    ]
    assert server.asked[2].headers["idempotency-key"]


@pytest.mark.parametrize("typed", [b"\n", b"n\n", b"yeah\n", b"\x04"])
def test_without_a_yes_nothing_is_changed(typed: bytes) -> None:
    with scripted(answer(200, NODE), answer(200, NODES)) as server:
        code, said = drain_on_a_terminal(server, typed)

    assert code == 2
    assert "error: nothing was changed" in said
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("words", "known", "about"),
    [
        (["drain", "d"], [NODE, NODES], "node 4 (d) has 3 replicas, and leads 1 shard"),
        (["remove", "d", "--reason", "its rack"], [NODE], "the other nodes refuse it for good"),
        (
            ["remove", "d", "--reason", "x"],
            [{**NODE, "is_reachable": False}],
            "cannot be reached; it may still be alive",
        ),
        (["replicas", "1"], [NODES], "each shard is to have 3 replicas now"),
    ],
)
def test_without_a_terminal_dangerous_commands_need_yes(
    words: list[str], known: list[object], about: str
) -> None:
    with scripted(*(answer(200, one) for one in known)) as server:
        done = corvo(*words, "--server", server.url)

    assert done.returncode == 2
    assert done.stdout == ""
    assert about in done.stderr
    assert f"confirm it:   corvo cluster {words[0]} {words[1]}" in done.stderr
    assert "--yes\n  [NOT_CONFIRMED, exit 2]\n" in done.stderr
    assert all(one.method == "GET" for one in server.asked)


def test_drain_says_when_the_replicas_have_no_room_elsewhere() -> None:
    few = {**NODES, "nodes": [OTHERS[0], OTHERS[1], NODE]}
    with scripted(answer(200, NODE), answer(200, few)) as server:
        done = corvo("drain", "d", "--server", server.url)

    assert "Only 2 other nodes can have replicas, and each shard is to have 3" in done.stderr


def test_drain_waits_until_the_node_has_no_replicas() -> None:
    partly = {**NODE, "state": "draining", "replicas": [2]}
    steps = (NODE, DONE, partly, DRAINED)
    with scripted(*(answer(200, one) for one in steps)) as server:
        done = corvo("drain", "d", "--yes", "--wait", "10s", "--server", server.url)

    assert (done.returncode, done.stderr) == (0, "node 4 (d): 1 replica left\n")
    assert done.stdout == (
        "node 4 (d) is drained: it has no replicas\n"
        "stop it, or remove it: corvo cluster remove d --reason TEXT\n"
    )


def test_remove_sends_the_reason_and_force() -> None:
    with scripted(answer(200, NODE), answer(200, DONE)) as server:
        done = corvo("remove", "d", "--reason", "dead", "--force", "--yes", "--server", server.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "node 4 (d) was removed; its 3 replicas are replaced on other nodes\n"
    assert asked(server)[1] == "POST /api/v1/cluster/nodes/d/remove"
    assert msgspec.json.decode(server.asked[1].body) == {"reason": "dead", "force": True}


def test_a_single_replica_is_replaced() -> None:
    with scripted(answer(200, {**NODE, "replicas": [2]}), answer(200, DONE)) as server:
        done = corvo("remove", "d", "--reason", "dead", "--yes", "--server", server.url)

    assert done.stdout == "node 4 (d) was removed; its 1 replica is replaced on other nodes\n"


def test_more_replicas_need_no_question() -> None:
    with scripted(answer(200, NODES), answer(200, {"status": "set"})) as server:
        done = corvo("replicas", "5", "--server", server.url)

    assert done.stdout == "each shard is to have 5 replicas; nodes that can have one: 4\n"
    assert asked(server)[1] == "PUT /api/v1/cluster/replicas"


def test_json_is_the_answer_of_the_server() -> None:
    with scripted(answer(200, {**NODES, "new_field": 1})) as server:
        done = corvo("nodes", "--output", "json", "--server", server.url)
    with scripted(answer(200, NODES)) as server:
        by_variable = corvo("nodes", CORVO_OUTPUT="json", CORVO_SERVER=server.url)

    assert msgspec.json.decode(done.stdout) == {**NODES, "new_field": 1}
    assert msgspec.json.decode(by_variable.stdout) == NODES


def test_events_are_the_latest_ones_of_one_node() -> None:
    first = [
        {"seq": seq, "type": "t", "at": "2026-02-20T10:00:05Z", "text": f"event {seq}"}
        for seq in range(1, 1_001)
    ]
    last = [{"seq": 1_001, "type": "t", "at": "2026-02-20T10:00:06Z", "text": "event 1001"}]
    pages = [
        answer(200, {"events": one, "node": 1, "since": "2026-02-20T09:00:00Z"})
        for one in (first, last)
    ]
    with scripted(*pages) as server:
        done = corvo("events", "--limit", "2", "--server", server.url)

    assert [line.split("  ")[-1].strip() for line in done.stdout.splitlines()] == [
        "EVENT",
        "event 1000",
        "event 1001",
    ]
    assert asked(server)[1].endswith("after_seq=1000&limit=1000")


@pytest.mark.parametrize(
    ("status", "code"), [("healthy", 0), ("degraded", 10), ("unavailable", 10)]
)
def test_the_exit_code_of_the_status_says_whether_it_is_healthy(status: str, code: int) -> None:
    with scripted(answer(200, {"status": status})) as server:
        assert corvo("status", "--server", server.url).returncode == code


def test_the_status_waits_for_a_healthy_cluster() -> None:
    degraded = answer(200, {"status": "degraded"})
    with scripted(degraded, degraded, answer(200, {"status": "healthy"})) as server:
        done = corvo("status", "--wait", "10s", "--server", server.url)
    with scripted(*[degraded] * 3) as server:
        late = corvo("status", "--wait", "600ms", "--server", server.url)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "status: healthy")
    assert late.returncode == 8
    assert late.stdout.startswith("status: degraded\n")
    assert "error: after 0.6 s, the cluster is degraded\n" in late.stderr


def test_the_status_waits_for_nodes_and_for_their_places() -> None:
    state = {"replicas": 3, "shards": [], "reasons": [], "status": "healthy"}
    steps = [
        {**state, "nodes": OTHERS[:2]},
        {**state, "nodes": OTHERS, "is_placed": False},
        {**state, "nodes": OTHERS},
    ]
    answers = [answer(200, {"status": "healthy", "cluster": step}) for step in steps]
    with scripted(*answers) as server:
        done = corvo("status", "--nodes", "3", "--wait", "10s", "--server", server.url)
    with scripted(answers[0]) as server:
        few = corvo("status", "--nodes", "3", "--server", server.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert (few.returncode, few.stderr) == (10, "the cluster has 2 nodes, and not 3\n")


def test_the_status_waits_for_a_server_that_starts() -> None:
    healthy = answer(200, {"status": "healthy"})
    with scripted(CLOSE, CLOSE, CLOSE, healthy) as server:
        done = corvo("status", "--wait", "10s", "--server", server.url)
    absent = corvo("status", "--wait", "1ms", "--server", "127.0.0.1:1")

    assert done.returncode == 0
    assert (absent.returncode, absent.stdout) == (8, "")
    assert "after 0.001 s, no answer from http://127.0.0.1:1 (connection refused)" in absent.stderr


@pytest.mark.parametrize(
    ("step", "code", "hint"),
    [
        (problem(400, "VALIDATION_ERROR"), 2, ""),
        (problem(401, "UNAUTHORIZED"), 4, "CORVO_API_KEY, or --api-key @FILE"),
        (problem(403, "FORBIDDEN"), 4, "docs/security.md"),
        (problem(404, "NOT_FOUND"), 3, ""),
        (problem(409, "NO_CLUSTER"), 5, "docs/cluster.md"),
        (problem(500, "INTERNAL_ERROR"), 1, ""),
        (problem(503, "NOT_READY"), 6, ""),
        (answer(200, b"<html>"), 1, "the address is not that of a Corvo server"),
    ],
)
def test_each_error_has_its_exit_code_and_hint(step: bytes, code: int, hint: str) -> None:
    with scripted(step) as server:
        done = corvo("node", "d", "--server", server.url)

    assert done.returncode == code
    assert f"exit {code}" in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""


def test_an_unknown_node_is_answered_with_the_nearest_name() -> None:
    known = {**NODES, "nodes": [{**NODE, "name": "corvo-4"}]}
    missing = problem(404, "NOT_FOUND", reason="node_not_found")
    with scripted(missing, answer(200, known)) as server:
        done = corvo("node", "corvo4", "--server", server.url)

    assert done.returncode == 3
    assert "  did you mean:   corvo-4\n  list them:   corvo cluster nodes\n" in done.stderr


def test_a_refused_removal_says_how_to_drain() -> None:
    with scripted(answer(200, NODE), problem(409, "NODE_NOT_DRAINED")) as server:
        done = corvo("remove", "d", "--reason", "x", "--yes", "--server", server.url)

    assert done.returncode == 5
    assert "drain it:   corvo cluster drain d --wait 10m" in done.stderr


def test_errors_are_json_where_results_are() -> None:
    with scripted(problem(403, "FORBIDDEN", request_id="r-1")) as server:
        done = corvo("nodes", "-o", "json", "--server", server.url)

    told = msgspec.json.decode(done.stderr, type=dict[str, dict[str, object]])["error"]
    assert told == {
        "code": "FORBIDDEN",
        "message": "forbidden",
        "outcome": "not_applied",
        "hints": [
            "see the role of the API key:   corvo keys status",
            "the rights of each role:   docs/security.md",
        ],
        "request_id": "r-1",
        "exit": 4,
    }


def test_no_answer_has_an_exit_code_of_its_own() -> None:
    with scripted(CLOSE, CLOSE, CLOSE) as server:
        done = corvo("nodes", "--server", server.url)

    assert done.returncode == 6
    assert "error: no answer from http://127.0.0.1:" in done.stderr
    assert "(the server closed the connection)" in done.stderr


def test_the_api_key_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("of-a-file\n")
    with scripted(answer(200, NODES), answer(200, NODES)) as server:
        corvo("nodes", "--api-key", f"@{file}", "--server", server.url)
        corvo("nodes", "--server", server.url, CORVO_API_KEY="of-the-environment")
    absent = corvo("nodes", "--api-key", f"@{tmp_path / 'absent'}")

    assert [one.headers["x-api-key"] for one in server.asked] == ["of-a-file", "of-the-environment"]
    assert absent.returncode == 2
    assert "error: the file with the API key cannot be read" in absent.stderr


def test_an_unknown_output_is_bad_usage() -> None:
    by_flag, by_variable = corvo("nodes", "-o", "yaml"), corvo("nodes", CORVO_OUTPUT="yaml")

    assert (by_flag.returncode, by_variable.returncode) == (2, 2)
    assert (
        "error: CORVO_OUTPUT is 'yaml': expected table, wide, json, jsonl, id, csv\n"
        in by_variable.stderr
    )


def test_unknown_commands_and_options_are_bad_usage() -> None:
    none, near, far = corvo(), corvo("stauts"), corvo("xyzzy")
    listed = corvo("--help").stdout

    assert none.stderr == listed
    assert all(f"\n  {verb} " in listed for verb in VERBS)
    assert (none.returncode, near.returncode, far.returncode) == (2, 2, 2)
    assert near.stderr == (
        "corvo: unknown command 'cluster stauts'; did you mean `corvo cluster status`?\n"
    )
    assert "`corvo cluster --help`" in far.stderr
    assert corvo("remove", "d").returncode == 2  # a reason is needed
    assert corvo("drain", "d", "--wait", "0").returncode == 2
    assert corvo("events", "--limit", "0").returncode == 2


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(verb: str) -> None:
    done = corvo(verb, "--help")

    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--server", "--api-key", "--output", "-h"))


def test_a_command_imports_none_of_the_server() -> None:
    script = (
        "import sys; from corvo.client_commands.cluster import main; main(['--help']);"
        " print(*sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )

    loaded = {*done.stdout.split()}
    assert "corvo.client.calls" in loaded
    assert not {"trio", "plyvel", "h11", "corvo.config", "corvo.router"} & loaded
