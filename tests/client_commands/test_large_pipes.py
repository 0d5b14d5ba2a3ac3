"""Pipes of many ids: used as they arrive, in bounded memory, and continued after Ctrl-C."""

import shlex
import subprocess
import sys
from contextlib import closing

import msgspec
import pytest

from corvo.client_commands.bulk_runs import BATCH
from corvo.client_commands.progress import progress_text
from tests.client.scripted import answer, scripted
from tests.client_commands.running import ROOT, Server, Terminal

CORVO = f"{shlex.quote(sys.executable)} -m corvo"
MEMORY = """
import sys
from pathlib import Path
from corvo.cli import main

assert main(sys.argv[1:]) == 0
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(peak.split()[1])
"""
"""Runs a command, and prints the most memory that it has used, in KiB."""


class Job(msgspec.Struct):
    id: str
    state: str


def states(server: Server, ids: list[str]) -> list[str]:
    found = server.corvo("inspect", "-", "-o", "jsonl", given="\n".join(ids)).lines(Job)
    return [job.state for job in found]


def test_ids_are_used_as_they_arrive(server: Server) -> None:
    first, last = server.enqueue("lp-arrive", 2)

    with server.start("bulk", "cancel", "-", "--yes") as process:
        assert process.stdin is not None
        process.stdin.write(f"{first}\n")
        process.stdin.flush()
        while states(server, [first]) != ["cancelled"]:
            pass
        before = states(server, [last])
        out, _ = process.communicate(f"{last}\n")

    assert before == ["pending"]
    assert out == "cancelled 2, skipped 0, errors 0\n"


def peak_kib(batches: int) -> int:
    """Memory of `corvo bulk cancel` for so many full batches of ids."""
    done = answer(200, {"status": "completed", "affected": BATCH, "processed": BATCH})
    ids = "".join(f"s00_job_01M7TKEQAV{number:016}\n" for number in range(batches * BATCH))
    with scripted(*[done] * batches) as server:
        ran = subprocess.run(
            [sys.executable, "-c", MEMORY, "bulk", "cancel", "-", "--yes", "-o", "id"],
            cwd=ROOT,
            env=Server(server.url).environment(),
            input=ids,
            check=True,
            capture_output=True,
            text=True,
        )
        counts = [one.body.count(b"s00_job_") for one in server.asked]
    assert counts == [BATCH] * batches
    return int(ran.stdout)


def test_memory_does_not_grow_with_the_number_of_ids() -> None:
    few, many = peak_kib(2), peak_kib(40)

    # A list of 190,000 more ids would need 17,000 KiB.
    assert many - few < 4_000


def test_ctrl_c_says_what_is_done_and_the_same_command_does_the_rest(server: Server) -> None:
    ids = server.enqueue("lp-stop", 60)
    pipe = f"{CORVO} search --queue lp-stop --state pending -o id | {CORVO} bulk cancel - --yes"

    with closing(Terminal(f"{pipe} --rate 1", server.environment())) as terminal:
        terminal.read_to("] ")
        terminal.type(b"\x03")
        terminal.read_all()
    said = terminal.said
    bulk_id = said.split("stop it:   corvo bulk stop ")[1].split()[0]
    stopped = server.corvo("bulk", "stop", bulk_id)
    changed = states(server, ids).count("cancelled")
    with closing(Terminal(pipe, server.environment())) as terminal:
        code = terminal.read_all()

    assert f"corvo bulk watch {bulk_id}\n" in said
    assert "continue: repeat the whole command; jobs that were changed are skipped\n" in said
    assert (
        "or, with the ids in a file:   tail -n +1 FILE | corvo bulk cancel - --rate 1 --yes\n"
        in said
    )
    assert stopped.out.startswith(f"{bulk_id} is ")
    assert changed < 60
    assert code == 0
    # The operation that was stopped may have been at one more job.
    left = 60 - changed
    results = (f"cancelled {left}, skipped 0,", f"cancelled {left - 1}, skipped 1 (bad_state 1),")
    assert any(f"{result} errors 0\n" in terminal.said for result in results), terminal.said
    assert {*states(server, ids)} == {"cancelled"}


@pytest.mark.parametrize(
    ("done", "total", "is_moving", "told"),
    [
        (500, 1_000, True, "[############............] 500/1,000 jobs  250/s  2s left"),
        (500, None, True, "[................####....] 500 jobs  250/s"),
        (500, None, False, "500 jobs  250/s"),
        (9, 9, False, "[########################] 9/9 jobs  4/s"),
        (0, 0, False, "[########################] 0/0 jobs  0/s"),
    ],
)
def test_progress_has_a_bar(done: int, total: int | None, told: str, *, is_moving: bool) -> None:
    assert progress_text("jobs", done, total, 2.0, is_moving=is_moving) == told
