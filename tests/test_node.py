"""A whole node of real processes, as somebody meets it who follows the README."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.child import OK
from corvo.plans import Programs
from tests.support.links import on_sockets
from tests.support.nodes import running

README: Final = Path(__file__).parent.parent / "README.md"
REAL: Final = Programs()


class Answer(msgspec.Struct):
    """The part of any answer that the examples use."""

    job_id: str = ""
    state: str = ""


async def ask(address: tuple[str, int], path: str, body: str = "") -> tuple[int, bytes]:
    """Status and body of an answer, on a connection of its own."""
    method = "POST" if body else "GET"
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {address[0]}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body.encode())}\r\n\r\n"
    )
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all((head + body).encode())
        said = b""
        while data := await stream.receive_some():
            said += data
    first, _, answer = said.partition(b"\r\n\r\n")
    return int(first.split()[1]), answer


def worker() -> str:
    """The code of the worker in the README."""
    [code] = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_worker_of_the_readme_needs_ten_lines_and_the_standard_library() -> None:
    lines = [line for line in worker().splitlines() if line.strip()]
    imports = {line.split()[1].partition(".")[0] for line in lines if "import" in line}

    assert len(lines) <= 10
    assert imports == {"json", "urllib"} < sys.stdlib_module_names


@on_sockets
async def test_the_worker_of_the_readme_completes_jobs(tmp_path: Path) -> None:
    async with running({"data_dir": str(tmp_path / "d")}, REAL) as it:
        host, port = await it.url()
        code = worker().replace("127.0.0.1:8080", f"{host}:{port}")
        assert f"{host}:{port}" in code
        for job_id, to in (("mail~letter-1", "ada"), ("mail~letter-2", "bob")):
            body = {"id": job_id, "queue": "mail", "payload": {"to": to}}
            await ask((host, port), "/api/v1/enqueue", msgspec.json.encode(body).decode())

        process = await trio.lowlevel.open_process(
            [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        printed = b""
        while printed.count(b"\n") < 2:  # it fetches the second when it has completed the first
            data = await process.stdout.receive_some()
            assert data, "the worker ended"
            printed += data
        process.kill()
        await process.wait()
        _, answer = await ask((host, port), "/api/v1/jobs/mail~letter-1")
        await it.end()

    assert printed == b"sending a letter to ada\nsending a letter to bob\n"
    assert msgspec.json.decode(answer, type=Answer).state == "completed"


@on_sockets
async def test_jobs_are_there_after_every_process_was_killed(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path / "d"), "shards": "3"}
    ids = []

    async with running(settings, REAL) as it:
        address = await it.url()
        for number in range(20):
            body = msgspec.json.encode({"queue": f"q{number}", "payload": number}).decode()
            _, answer = await ask(address, "/api/v1/enqueue", body)
            ids.append(msgspec.json.decode(answer, type=Answer).job_id)
        for event in it.find("process.ready"):
            os.kill(int(str(event["pid"])), signal.SIGKILL)
        await it.hear("process.ready", 10)  # and every one of them is started again
        within = [(await ask(address, f"/api/v1/jobs/{job_id}"))[0] for job_id in ids]
        await it.end(signal.SIGKILL)
    async with running(settings, REAL) as it:
        address = await it.url()
        after = [(await ask(address, f"/api/v1/jobs/{job_id}"))[0] for job_id in ids]
        code = await it.end()

    assert within == [200] * 20
    assert after == [200] * 20
    assert code == OK


@on_sockets
async def test_a_node_with_a_key_asks_for_it(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path / "d"), "shards": "1", "admin_key": "rook-and-raven"}

    async with running(settings, REAL) as it:
        status, _ = await ask(await it.url(), "/api/v1/queues")
        await it.end()

    assert status == 401
