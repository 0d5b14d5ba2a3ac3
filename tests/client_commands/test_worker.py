"""`corvo worker`, against a real server: commands, leases, signals, and servers that restart."""

import shlex
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.client.work import Fetched
from corvo.client_commands.worker_commands import ended_by, environment_of, words_of
from tests.client.scripted import CLOSE, answer, scripted
from tests.client_commands.running import Done, Server

JOB = Fetched(
    job_id="mail~1",
    queue="mail",
    payload=msgspec.Raw(b'{"to": "a b; rm", "n": 1.50}'),
    lease_token=7,
)


class Job(msgspec.Struct):
    id: str
    state: str
    attempt: int
    payload: msgspec.Raw
    result: msgspec.Raw = msgspec.Raw(b"null")
    checkpoint: msgspec.Raw = msgspec.Raw(b"null")
    last_error: str = ""


PYTHON: Final = shlex.quote(sys.executable)


def jobs(server: Server, ids: list[str]) -> list[Job]:
    return server.corvo("inspect", "-", "-o", "jsonl", given="\n".join(ids)).lines(Job)


def work(server: Server, queue: str, command: str, *words: str) -> Done:
    return server.corvo("worker", queue, "--exec", command, "--until-empty", *words)


def script(directory: Path, code: str) -> str:
    """A command that runs code of Python."""
    file = directory / "command.py"
    file.write_text(code)
    return f"{PYTHON} {file}"


def test_the_payload_is_on_stdin_and_the_output_is_the_result(server: Server) -> None:
    ids = server.enqueue("wk-result", 3)

    done = work(server, "wk-result", "cat", "--concurrency", "2")

    found = jobs(server, ids)
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("stopped: 3 completed, 0 failed\n")
    assert {job.state for job in found} == {"completed"}
    assert all(bytes(job.result) == bytes(job.payload) for job in found)


def test_values_are_words_and_variables(server: Server, tmp_path: Path) -> None:
    job_id = server.corvo("enqueue", "wk-words", '{"to": "a b", "at": {"n": 5}}', "-o", "id").out
    code = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.environ['CORVO_ATTEMPT']]))"

    work(server, "wk-words", script(tmp_path, code) + " {id} x{payload.to} {payload.at.n} {queue}")

    [job] = jobs(server, job_id.split())
    wanted = [job_id.strip(), "xa b", "5", "wk-words", "1"]
    assert msgspec.json.decode(job.result) == wanted


def test_an_exit_code_fails_the_attempt_with_its_stderr(server: Server, tmp_path: Path) -> None:
    ids = server.enqueue("wk-fail")
    code = "import sys; sys.stderr.write('no such mailbox'); sys.exit(3)"

    done = work(server, "wk-fail", script(tmp_path, code), "--limit", "1")

    [job] = jobs(server, ids)
    assert (done.code, job.state) == (7, "retrying")
    assert job.last_error == "the command ended with exit code 3: no such mailbox"
    assert "stopped: 0 completed, 1 failed\n" in done.err


def test_a_command_that_cannot_start_fails_the_attempt(server: Server) -> None:
    ids = server.enqueue("wk-absent")

    work(server, "wk-absent", "./absent-command", "--limit", "1")

    assert jobs(server, ids)[0].last_error.startswith("the command cannot be started: ")


def test_a_checkpoint_is_kept_for_the_next_attempt(server: Server, tmp_path: Path) -> None:
    ids = server.enqueue("wk-check", 1, "--backoff", "none")
    code = (
        "import os, sys; file = os.environ['CORVO_CHECKPOINT_FILE']\n"
        "if os.path.exists(file): print(open(file).read()); sys.exit(0)\n"
        "open(file, 'w').write('{\"page\": 4}')\n"
        "sys.stdin.read(); print('x', flush=True); import threading; threading.Event().wait()\n"
    )
    command = script(tmp_path, code)

    words = ("worker", "wk-check", "--exec", command, "--lease", "1s")
    with server.start(*words) as first:
        while not bytes(jobs(server, ids)[0].checkpoint).startswith(b"{"):
            pass
        first.send_signal(signal.SIGTERM)
        first.send_signal(signal.SIGINT)
        first.communicate()
    work(server, "wk-check", command, "--limit", "1")

    [job] = jobs(server, ids)
    assert (job.state, msgspec.json.decode(job.result)) == ("completed", {"page": 4})


def test_the_first_signal_waits_for_commands_and_the_second_ends_them(server: Server) -> None:
    ids = server.enqueue("wk-signal", 2)
    waits = "import sys, threading; sys.stdin.read(); threading.Event().wait()"

    with server.start("worker", "wk-signal", "--exec", f'{PYTHON} -c "{waits}"') as process:
        assert process.stderr is not None
        process.stderr.readline()
        while {job.state for job in jobs(server, ids)} != {"active", "pending"}:
            pass
        process.send_signal(signal.SIGTERM)
        stopping = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()

    states = {job.state: job for job in jobs(server, ids)}
    assert stopping == "stopping: 1 command still running; Ctrl-C again ends them\n"
    assert process.returncode == 0
    assert "stopped: 0 completed, 1 failed\n" in said
    assert {*states} == {"retrying", "pending"}
    assert states["retrying"].last_error == "the worker was stopped"


def test_an_idle_worker_stops_at_once(server: Server) -> None:
    with server.start("worker", "wk-idle", "--exec", "cat") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert process.returncode == 0


def test_a_cancelled_job_ends_its_command(server: Server) -> None:
    ids = server.enqueue("wk-cancel")
    waits = "import threading; threading.Event().wait()"
    command = f'{PYTHON} -c "{waits}"'

    words = ("worker", "wk-cancel", "--exec", command, "--lease", "10s", "--limit", "1")
    with server.start(*words) as process:
        while jobs(server, ids)[0].state != "active":
            pass
        server.corvo("cancel", ids[0])
        process.communicate()

    assert jobs(server, ids)[0].state == "cancelled"


def test_a_worker_survives_servers_that_do_not_answer() -> None:
    leased = {"job_id": "a~1", "queue": "a", "payload": {}, "lease_token": 7}
    steps = (CLOSE, answer(503, {"code": "LEADER_UNAVAILABLE", "error": "x"}), CLOSE)
    fetched, acked = answer(200, {"jobs": [leased]}, closes=True), answer(200, {"status": "ok"})
    with scripted(*steps, fetched, CLOSE, acked) as server:
        done = Server(server.url).corvo("worker", "a", "--exec", "true", "--limit", "1")

    asked = [one for one in server.asked if one.path.endswith("/ack/a~1")]
    assert done.code == 0
    assert "the server answers again" in done.err
    assert [msgspec.json.decode(one.body) for one in asked] == [{"lease_token": 7}] * 2
    assert len({one.headers["idempotency-key"] for one in asked}) == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["a", "--exec", "'"], 2, '--exec "\'" is invalid'),
        (["a", "--exec", ""], 2, "--exec is empty"),
        (["a", "--exec", "x {payload}", "--shell"], 2, "would be read as shell code"),
        (["a"], 2, "required: --exec"),
    ],
)
def test_each_wrong_usage_has_its_text(
    server: Server, words: list[str], code: int, told: str
) -> None:
    done = server.corvo("worker", *words)

    assert done.code == code
    assert told in done.err


def test_a_worker_that_is_not_allowed_ends() -> None:
    with scripted(answer(403, {"code": "FORBIDDEN", "error": "no"})) as server:
        done = Server(server.url).corvo("worker", "a", "--exec", "cat")

    assert done.code == 4


# Parts.


def test_a_value_never_becomes_a_second_word() -> None:
    words = words_of(["x", "{payload.to}", "{payload.n}", "{other}", "{id}-{attempt}"], JOB)

    assert words == ["x", "a b; rm", "1.50", "{other}", "mail~1-1"]


def test_a_long_payload_is_only_on_stdin() -> None:
    long = msgspec.structs.replace(JOB, payload=msgspec.Raw(b'"' + b"x" * 70_000 + b'"'))

    assert "CORVO_PAYLOAD" in environment_of(JOB, "f")
    assert "CORVO_PAYLOAD" not in environment_of(long, "f")


def test_a_command_runs_in_the_trace_of_its_job_and_in_no_other() -> None:
    traced = msgspec.structs.replace(JOB, traceparent="00-7-1-01", tracestate="a=b")

    found = environment_of(traced, "f")
    without = environment_of(JOB, "f")

    assert (found["TRACEPARENT"], found["TRACESTATE"]) == ("00-7-1-01", "a=b")
    assert (without["TRACEPARENT"], without["TRACESTATE"]) == ("", "")


def test_the_end_of_a_command_as_a_request() -> None:
    assert ended_by(0, b"", b"", "").body == {}
    assert ended_by(0, b"done\n", b"", "").body == {"result": msgspec.Raw(b'"done"')}
    assert ended_by(-9, b"", b"", "").body == {"error": "the command was killed by SIGKILL"}
    assert ended_by(65, b"", b"bad", "").body["retryable"] is False
    assert ended_by(0, b"", b"", "stopped").verb == "fail"
