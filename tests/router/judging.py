"""The HTTP API judged by its own document: `python -m tests.router.judging --minutes N`.

Schemathesis reads `/openapi.json` of a node that runs, asks whatever the document allows and a good
deal that it does not, follows the links from answer to request, and looks at each answer: no 5xx,
no status, header, type of content or field that is not declared, and nothing without its key.
"""

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.plans import Programs
from tests.support.nodes import running

CONFIG: Final = Path(__file__).with_name("schemathesis.toml")
ROOT: Final = Path(__file__).parents[2]
JOBS: Final = "jobs.json"
KEY: Final = "the-key-of-the-house"


class Cases(msgspec.Struct):
    generated: int
    with_failures: int
    errored: int


class Phase(msgspec.Struct):
    status: str


class Operations(msgspec.Struct):
    total: int
    selected: int
    tested: int


class Report(msgspec.Struct):
    """What schemathesis says at its end."""

    exit_code: int
    complete: bool
    running_time: float
    test_cases: Cases
    phases: dict[str, Phase]
    operations: Operations
    text: str = ""


class Given(msgspec.Struct):
    """The parts of answers that name jobs."""

    job_ids: list[str] = []
    jobs: list["Given"] = []
    job_id: str | None = None


def settle(address: tuple[str, int], directory: Path) -> None:
    """Have jobs of many kinds there, and say which: schemathesis would hardly guess an id.

    The hooks read it: those that are being worked on, and those that are not.
    """
    connection = http.client.HTTPConnection(*address)

    def post(path: str, body: object) -> Given:
        data = msgspec.json.encode(body)
        connection.request("POST", f"/api/v1/{path}", data, {"X-API-Key": KEY})
        answer = connection.getresponse()
        read = answer.read()
        assert answer.status in {200, 201}, (path, read)
        return msgspec.json.decode(read, type=Given)

    post("enqueue/batch", {"jobs": [{"queue": "mail"}] * 200})
    fetch = {"queues": ["mail"], "count": 200, "lease_seconds": 3_600, "wait_seconds": 0}
    given = [str(job.job_id) for job in post("fetch/batch", fetch).jobs]
    dead, given = given[:20], given[20:]
    post("fail/batch", {"fails": [{"job_id": each, "retryable": False} for each in dead]})
    held = post("enqueue/batch", {"jobs": [{"queue": "sms"}] * 20}).job_ids
    for each in held:
        post(f"jobs/{each}/hold", {})
    later = post("enqueue/batch", {"jobs": [{"queue": "sms", "delay": "2h"}] * 20}).job_ids
    waiting = post("enqueue/batch", {"jobs": [{"queue": "sms"}] * 20}).job_ids
    connection.close()
    mixed = [each for four in zip(dead, held, later, waiting, strict=True) for each in four]
    (directory / JOBS).write_bytes(msgspec.json.encode({"given": given, "made": mixed}))


async def judge(directory: Path, *options: str, is_open: bool) -> Report:
    """Run a node, and schemathesis against it."""
    door = {"auth": "off"} if is_open else {"admin_key": KEY}
    settings = {"data_dir": str(directory / "data"), "limits.fetch_wait_s_max": "1s", **door}
    # Each answer of 503 counts as a fault.
    settings |= {"mirror.niceness": "0", "limits.search_ms_max": "20s"}
    async with running(settings, Programs()) as node:
        host, port = await node.url()
        await trio.to_thread.run_sync(settle, (host, port), directory)
        report = await _ask(f"http://{host}:{port}/openapi.json", directory, options)
    bugs = [text for text in node.texts if text.strip()]
    assert not bugs, bugs
    return report


async def _ask(url: str, directory: Path, options: tuple[str, ...]) -> Report:
    written = directory / "report.json"
    ran = await trio.run_process(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
            *("run", url, "--header", f"X-API-Key: {KEY}", "--request-timeout", "20"),
            *("--continue-on-failure", "--no-color", "--report", "json"),
            *("--exclude-path", "/api/v1/events"),  # it has no end
            *("--report-json-path", str(written), *options),
        ],
        check=False,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        cwd=directory,  # it keeps what it has found there, and must not find it again
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    text = ran.stdout.decode(errors="replace")
    assert written.exists(), text
    report = msgspec.json.decode(written.read_bytes(), type=Report)
    report.text = text
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=None)
    told = parser.parse_args()
    seeded = [] if told.seed is None else ["--seed", str(told.seed)]
    options = ["--generation-database", "none", "--max-time", f"{told.minutes * 30:.0f}", *seeded]
    failed = False
    for is_open in (True, False):
        with tempfile.TemporaryDirectory() as directory:

            async def run(is_open: bool = is_open, directory: str = directory) -> Report:
                return await judge(Path(directory), *options, is_open=is_open)

            report = trio.run(run)
        print(report.text)
        print(f"{'open' if is_open else 'with a key'}: {report.test_cases} {report.phases}\n")
        failed |= report.exit_code != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
