"""`corvo worker --exec` while its server is killed again and again, and it is asked to stop itself.

    python -m tests.client_commands.killing --kills 20 --stops 5
    python -m tests.client_commands.killing --lease 1s --grace 1ms    # many leases expire

The effects of commands go through a ledger, which stands for the database of a user. It knows the
largest lease token of each job, and refuses an effect under a smaller one, or a second effect.
"""

import argparse
import shlex
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tests.client_commands.nodes import Node
from tests.client_commands.running import ROOT, Server

QUEUE: Final = "killing"
_SLOTS: Final = "8"
_COMMAND: Final = """
import json, os, socket, sys, time
ledger, work_s = sys.argv[1:]
job, token = os.environ["CORVO_JOB_ID"], os.environ["CORVO_LEASE_TOKEN"]
with socket.socket(socket.AF_UNIX) as opened:
    opened.connect(ledger)
    with opened.makefile("rw") as file:
        for word in ("begin", "do"):
            print(word, job, token, file=file, flush=True)
            assert file.readline()
            time.sleep(float(work_s) if word == "begin" else 0)
print(json.dumps({"token": int(token)}))
"""
"""The work of a job. After a refused effect it ends well all the same: then the server must see
that the lease is lost."""


class Ledger:
    """The effects of commands, under a fence."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.begun: Counter[str] = Counter()
        """Commands that were started, by job."""
        self.effects: Counter[str] = Counter()
        self.refused = 0
        self._tokens: dict[str, int] = {}

    def take(self, word: str, job: str, token: int) -> None:
        """A command begins, or has its effect."""
        with self._changed:
            if word == "begin":
                self.begun[job] += 1
                self._tokens[job] = max(token, self._tokens.get(job, 0))
            elif token == self._tokens[job] and not self.effects[job]:
                self.effects[job] += 1
            else:
                self.refused += 1
            self._changed.notify_all()

    def wait_for(self, effects: int) -> None:
        """Wait until so many jobs have had their effect."""
        with self._changed:
            self._changed.wait_for(lambda: self.effects.total() >= effects)


class Seen(msgspec.Struct):
    """What came of a run."""

    jobs: int
    kills: int
    stops: int
    wrongs: list[str]
    commands: int
    """Commands that were started."""
    refused: int
    """Effects that the fence has refused."""
    ack_refusals: int
    """Ends of commands that the server has refused, because the lease was lost."""
    seconds: float


class _Job(msgspec.Struct):
    id: str
    state: str
    result: dict[str, int] = {}


class _Event(msgspec.Struct):
    job_id: str = ""


def run(
    directory: Path,
    *,
    kills: int,
    stops: int,
    jobs: int,
    work_s: float,
    lease: str = "5s",
    grace: str = "",
) -> Seen:
    """Enqueue jobs and kill the server, again and again; `stops` times the worker is stopped.

    `jobs` are enqueued before each kill, and half of them have had their effect by then. After a
    start, the server waits for `grace` before leases expire.
    """
    ledger, place = Ledger(), directory / "ledger"

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                word, job, token = line.decode().split()
                ledger.take(word, job, int(token))
                self.wfile.write(b"ok\n")

    began = time.monotonic()
    node = Node(directory, *([f"shard.grace_ms={grace}"] if grace else []))
    with socketserver.ThreadingUnixStreamServer(str(place), Handler) as taking:
        thread = threading.Thread(target=taking.serve_forever)
        thread.start()
        try:
            run = _Run(node, ledger, directory, f"{place} {work_s}", lease)
            run.run(kills, stops, jobs)
        finally:
            node.stop()
            taking.shutdown()
            thread.join()
    return Seen(
        len(run.ids),
        kills,
        run.stops,
        run.wrongs,
        ledger.begun.total(),
        ledger.refused,
        run.said.count("was refused"),
        time.monotonic() - began,
    )


class _Run:
    def __init__(
        self, node: Node, ledger: Ledger, directory: Path, arguments: str, lease: str
    ) -> None:
        self._node = node
        self._ledger = ledger
        script = directory / "command.py"
        script.write_text(_COMMAND)
        python = shlex.quote(sys.executable)
        self._exec = f"{python} -I -S {shlex.quote(str(script))} {arguments}"
        self._lease = lease
        self._log = directory / "worker.log"
        self.ids: list[str] = []
        self.stops = 0
        self.wrongs: list[str] = []

    @property
    def said(self) -> str:
        """All that workers have written."""
        return self._log.read_text()

    def run(self, kills: int, stops: int, jobs: int) -> None:
        """The whole run."""
        server = self._node.start()
        worker = self._worker(server)
        try:
            for number in range(kills):
                self.ids += server.enqueue(QUEUE, jobs, "--retries", "100")
                self._ledger.wait_for(len(self.ids) - jobs // 2)
                is_stop = stops * (number + 1) // kills > self.stops
                # Half of the stops come while there is no server to report an end to.
                if is_stop and number % 2:
                    worker.send_signal(signal.SIGTERM)
                self._node.kill()
                if is_stop and not number % 2:
                    worker.send_signal(signal.SIGTERM)
                server = self._node.start()
                if is_stop:
                    self.stops += 1
                    self._ended(worker)
                    worker = self._worker(server)
            waited = server.corvo("wait", "-", "-o", "id", given="\n".join(self.ids))
            if waited.code:
                self.wrongs.append(f"corvo wait ended with {waited.code}: {waited.err}")
        finally:
            worker.send_signal(signal.SIGTERM)
            self._ended(worker)
        self._judge(server)

    def _judge(self, server: Server) -> None:
        found = server.corvo("inspect", "-", "-o", "jsonl", given="\n".join(self.ids)).lines(_Job)
        events = server.corvo("events", "--queue", QUEUE, "--types", "completed").lines(_Event)
        completed = Counter(event.job_id for event in events)
        if [job.id for job in found] != self.ids:
            self.wrongs.append(f"{len(found)} of {len(self.ids)} jobs are there")
        for job in found:
            if job.state != "completed":
                self.wrongs.append(f"{job.id} is {job.state}")
            if not job.result.get("token"):
                self.wrongs.append(f"{job.id} has no result")
            if completed[job.id] != 1:
                self.wrongs.append(f"{job.id} was completed {completed[job.id]} times")
            if self._ledger.effects[job.id] != 1:
                self.wrongs.append(f"{job.id} had {self._ledger.effects[job.id]} effects")

    def _worker(self, server: Server) -> "subprocess.Popen[bytes]":
        words = ("worker", QUEUE, "--exec", self._exec, "--lease", self._lease)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "corvo", *words, "--concurrency", _SLOTS],
                cwd=ROOT,
                env=server.environment(),
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def _ended(self, worker: "subprocess.Popen[bytes]") -> None:
        if code := worker.wait():
            self.wrongs.append(f"a worker ended with exit code {code}")


def main() -> int:
    """One long run."""
    parser = argparse.ArgumentParser(prog="python -m tests.client_commands.killing")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=60, help="enqueued before each kill")
    parser.add_argument("--lease", default="5s")
    parser.add_argument("--grace", default="", help="of leases, after a start of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seen = run(
            Path(directory),
            kills=options.kills,
            stops=options.stops,
            jobs=options.jobs,
            work_s=0.2,
            lease=options.lease,
            grace=options.grace,
        )
    print(
        f"{seen.jobs} jobs in {seen.seconds:.0f} s; the server was killed {seen.kills} times, the"
        f" worker stopped {seen.stops} times\n"
        f"{seen.commands} commands were started; the ledger refused {seen.refused} effects, the"
        f" server {seen.ack_refusals} ends of commands"
    )
    print("\n".join(seen.wrongs) or "nothing is wrong")
    return bool(seen.wrongs)


if __name__ == "__main__":
    sys.exit(main())
