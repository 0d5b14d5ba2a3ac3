"""The workers and producers of examples/, against a real server."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec
import pytest
import trio

from tests.cluster.nodes import PATIENCE_S
from tests.node.http import Client
from tests.pages.languages import EXAMPLES, missing
from tests.support.links import on_sockets

LANGUAGES: Final = ("python", "node", "go")
_LOOK_S: Final = 0.05


class Error(msgspec.Struct):
    error: str
    error_class: str = ""


class Job(msgspec.Struct):
    """The part of a job that the tests look at."""

    state: str
    attempt: int
    lease_expires_at: str = ""
    result: dict[str, bool] = {}
    errors: list[Error] = []


class Example(NamedTuple):
    """The programs of a language."""

    language: str
    folder: Path

    def command(self, name: str) -> list[str]:
        """What runs the worker, or the producer."""
        if self.language == "python":
            # Isolated: without the packages of the checkout.
            return [sys.executable, "-I", "-u", str(self.folder / f"{name}.py")]
        if self.language == "node":
            return ["node", str(self.folder / f"{name}.mjs")]
        return [str(self.folder / name)]


@pytest.fixture(params=LANGUAGES)
def example(request: pytest.FixtureRequest) -> Example:
    """The programs of each language, ready to be run."""
    language = str(request.param)
    if missing(language):
        pytest.skip(f"its example is not run: {missing(language)}")
    if language == "go":
        return Example(language, request.getfixturevalue("built"))
    return Example(language, EXAMPLES / language)


class Server:
    """The server as the tests ask it."""

    def __init__(self, port: str) -> None:
        self.url: Final = f"http://127.0.0.1:{port}"
        self._client: Final = Client(("127.0.0.1", int(port)))

    async def send(self, path: str, body: object = {}) -> None:
        """Change something."""
        answer = await self._client.ask("POST", f"/api/v1/{path}", msgspec.json.encode(body))
        assert answer.status in {200, 201}, answer

    async def job(self, job_id: str) -> Job:
        """A job as it is now."""
        return (await self._client.ask("GET", f"/api/v1/jobs/{job_id}")).read(Job)

    async def job_in(self, job_id: str, *states: str) -> Job:
        """A job, once it is in one of the states."""
        with trio.fail_after(PATIENCE_S):
            while True:
                job = await self.job(job_id)
                if job.state in states:
                    return job
                await trio.sleep(_LOOK_S)

    async def renewed(self, job_id: str, earlier: str) -> None:
        """Return when the lease of a job has another end than before."""
        with trio.fail_after(PATIENCE_S):
            while True:
                if (await self.job(job_id)).lease_expires_at != earlier:
                    return
                await trio.sleep(_LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @asynccontextmanager
    async def worker(
        self, command: Sequence[str], queue: str, **environment: str
    ) -> AsyncIterator[trio.Process]:
        """A worker that runs until the block ends."""
        process = await trio.lowlevel.open_process(
            [*command, queue],
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "CORVO_SERVER": self.url, **environment},
        )
        try:
            yield process
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


@on_sockets
async def test_a_worker_completes_fails_renews_and_stops_jobs(example: Example, port: str) -> None:
    queue, command = f"letters-{example.language}", example.command("worker")
    long = {"queue": queue, "id": "long", "payload": {"to": "eve", "seconds": 86_400}}

    with Server(port) as server:
        for name, payload in (("good", {"to": "ada"}), ("bad", {})):
            job = {"queue": queue, "id": name, "payload": payload, "max_retries": 1}
            await server.send("enqueue", job)
        async with server.worker(command, queue, LEASE_SECONDS="12"):
            good = await server.job_in(f"{queue}~good", "completed")
            bad = await server.job_in(f"{queue}~bad", "dead")
            await server.send("enqueue", long)
            first = await server.job_in(f"{queue}~long", "active")
            await server.renewed(f"{queue}~long", first.lease_expires_at)
            await server.send(f"jobs/{queue}~long/cancel")
            stopped = await server.job_in(f"{queue}~long", "cancelled")

    assert (good.attempt, good.result) == (1, {"sent": True})
    assert [each.error for each in bad.errors] == ["the letter has no address"]
    assert any(each.error == "stopped because of a cancel" for each in stopped.errors)


@on_sockets
async def test_a_worker_that_is_asked_to_stop_finishes_its_job_first(
    example: Example, port: str
) -> None:
    queue, command = f"last-{example.language}", example.command("worker")

    with Server(port) as server:
        for name in ("present", "next"):
            job = {"queue": queue, "id": name, "payload": {"to": "ada", "seconds": 1}}
            await server.send("enqueue", job)
        async with server.worker(command, queue) as process:
            await server.job_in(f"{queue}~present", "active", "completed")
            process.send_signal(signal.SIGTERM)
            code = await process.wait()
        present = await server.job(f"{queue}~present")
        following = await server.job(f"{queue}~next")

    assert code == 0
    assert (present.state, present.attempt) == ("completed", 1)
    # On a busy machine, the signal may come during the second job: it is finished as well.
    assert following.state in {"pending", "completed"}


@on_sockets
async def test_a_producer_that_repeats_its_request_creates_one_job(
    example: Example, port: str
) -> None:
    command = [*example.command("producer"), f"made-{example.language}", "letter-1"]
    environment = {"PATH": os.environ["PATH"], "CORVO_SERVER": f"http://127.0.0.1:{port}"}

    said = [
        (await trio.run_process([*command, '{"to": "ada"}'], capture_stdout=True, env=environment))
        .stdout.decode()
        .strip()
        for _ in range(2)
    ]

    job_id = f"made-{example.language}~letter-1"
    assert said == [f"{job_id} was created", f"{job_id} existed"]


def test_the_examples_use_the_standard_library_alone() -> None:
    imported = {
        line.split()[1].partition(".")[0]
        for path in (EXAMPLES / "python").glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }

    assert imported < sys.stdlib_module_names
    assert "require" not in (EXAMPLES / "go" / "go.mod").read_text()
    assert not any("import " in path.read_text() for path in (EXAMPLES / "node").glob("*.mjs"))
