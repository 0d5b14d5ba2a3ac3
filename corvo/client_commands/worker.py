"""`corvo worker`: runs a command for each job, in slots, until it is told to stop.

The main thread fetches. A thread for each slot runs the command and finishes the job. One more
thread renews all leases. The server decides: a finish has the lease token of its fetch, so the end
of a job that another worker has by now is refused, and nothing is done twice.
"""

import argparse
import os
import shlex
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from corvo.client import work
from corvo.client.calls import Client, read
from corvo.client.errors import BadClientOption, ClientError, RequestFailed, Unreachable
from corvo.client_commands.failures import OK, PARTLY
from corvo.client_commands.options import Verb, own, positive, seconds
from corvo.client_commands.records import TEXTS
from corvo.client_commands.session import Session
from corvo.client_commands.tables import counted, plain
from corvo.client_commands.worker_commands import Ended, Running
from corvo.command_table import COMMANDS

_WAIT_S: Final = 10.0
"""Longest wait of a fetch. A stop does not wait for its end: the server takes the jobs back."""
_PAUSE_S: Final = 1.0
"""Before the next request after a server did not answer."""
_LOOK_S: Final = 0.05
_FINAL: Final = frozenset({401, 403})


class Options(argparse.Namespace):
    """What the parser has read."""

    queues: list[str]
    exec: str
    shell: bool
    concurrency: int
    lease: float
    worker_id: str | None
    limit: int | None
    until_empty: bool


class Stop:
    """Whether the worker is to end: first its fetches, then its commands."""

    def __init__(self) -> None:
        self.fetching: Final = threading.Event()
        """Set when no more job is fetched."""
        self.commands: Final = threading.Event()
        """Set when running commands are ended, too."""

    def ask(self, number: int, _: FrameType | None) -> None:
        """A signal: the first waits for running commands, the second ends them."""
        del number
        if self.fetching.is_set():
            self.commands.set()
        self.fetching.set()


@contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """SIGTERM and SIGINT ask to stop, within the block."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop.ask) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def worker(session: Session, options: argparse.Namespace) -> int:
    """`corvo worker QUEUE… --exec COMMAND`."""
    got = own(Options, options)
    try:
        words = ["/bin/sh", "-c", got.exec] if got.shell else shlex.split(got.exec)
    except ValueError as error:
        raise BadClientOption(f"--exec {got.exec!r} is invalid: {error}") from error
    if not words:
        raise BadClientOption("--exec is empty: pass a command, such as --exec './send {id}'")
    if got.shell and "{payload}" in got.exec:
        raise BadClientOption(
            "with --shell, {payload} would be read as shell code",
            "read the payload from stdin, or from the variable CORVO_PAYLOAD",
        )
    stop = Stop()
    with signals(stop):
        return Worker(session, got, words, stop).run()


class Worker:
    """A worker with its slots."""

    def __init__(self, session: Session, got: Options, words: list[str], stop: Stop) -> None:
        self._session = session
        self._got = got
        self._words = words
        self._stop = stop
        self._host = socket.gethostname()
        self._name = got.worker_id or f"{self._host}-{os.getpid()}"
        self._free = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._changed = threading.Condition(self._lock)
        self._completed = self._failed = self._fetched = 0
        self._error: ClientError | None = None

    def run(self) -> int:
        """Work until a signal, a limit or a refusal; returns the exit code."""
        self._say(
            f"{self._name} waits for jobs of {', '.join(self._got.queues)}, in"
            f" {counted(self._got.concurrency, 'slot')}; Ctrl-C stops it"
        )
        heartbeat = threading.Thread(target=self._renew, name="heartbeat", daemon=True)
        heartbeat.start()
        client = self._session.another_client()
        try:
            self._fetch_all(client)
            self._drain()
        finally:
            self._stop.fetching.set()
            self._stop.commands.set()
            client.close()
        self._say(f"stopped: {self._completed} completed, {self._failed} failed")
        if self._error is not None:
            raise self._error
        return PARTLY if self._failed and self._got.limit is not None else OK

    def _say(self, text: str) -> None:
        self._session.note(plain(text))

    # Fetching.

    def _fetch_all(self, client: Client) -> None:
        away = False
        while not self._stop.fetching.is_set():
            room = self._room()
            if room == 0:
                return
            if room < 0:
                with self._changed:
                    self._changed.wait(_PAUSE_S)
                continue
            try:
                jobs = self._fetch(client, room)
            except Unreachable as error:
                if not away:
                    self._say(f"{error.message}; the worker tries again")
                away = True
                self._pause(_PAUSE_S)
                continue
            except RequestFailed as error:
                if error.status < 500 and error.status != 429:
                    self._error = error
                    return
                self._pause(max(error.retry_after_ms / 1_000, _PAUSE_S))
                continue
            if away:
                self._say("the server answers again")
            away = False
            if self._stop.fetching.is_set():
                self._give_back(client, jobs)
                return
            for job in jobs:
                self._start(job)
            if not jobs and self._got.until_empty and not self._running:
                return

    def _room(self) -> int:
        """Free slots; -1 if there are none now, and 0 if no job is to be fetched any more."""
        with self._lock:
            room = self._got.concurrency - len(self._running)
        if self._got.limit is not None:
            left = self._got.limit - self._fetched
            if left <= 0:
                return 0
            room = min(room, left)
        return room or -1

    def _pause(self, pause_s: float) -> None:
        """Wait, or less if a signal arrives.

        The main thread must not wait for an event that its signal handler sets: their lock is one.
        """
        ends_at = time.monotonic() + pause_s
        while time.monotonic() < ends_at and not self._stop.fetching.is_set():
            # A signal handler only sets an event, and must not wait for a lock.
            time.sleep(_LOOK_S)

    def _give_back(self, client: Client, jobs: Sequence[work.Fetched]) -> None:
        """Release jobs that have arrived together with a signal."""
        items = [{"job_id": job.job_id, "lease_token": job.lease_token} for job in jobs]
        if items:
            try:
                work.finish_many(client, "release", items)
            except ClientError as error:
                self._say(f"{counted(len(items), 'job')} stay leased: {error.message}")

    def _fetch(self, client: Client, count: int) -> list[work.Fetched]:
        """Wait for jobs in a thread of its own, so that a signal does not wait for the answer."""
        box: list[list[work.Fetched] | ClientError] = []

        def ask() -> None:
            try:
                answer = work.fetch_many(
                    client,
                    self._got.queues,
                    count=min(count, work.ITEMS_MAX),
                    worker_id=self._name,
                    hostname=self._host,
                    wait_ms=0 if self._got.until_empty else round(_WAIT_S * 1_000),
                    lease_ms=round(self._got.lease * 1_000),
                )
                box.append(work.fetched(answer))
            except ClientError as error:
                box.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        while asking.is_alive():
            asking.join(_LOOK_S)
            if self._stop.fetching.is_set():
                client.abort()  # the server sees the end of the connection, and gives no job away
                asking.join(_PAUSE_S)
                break
        if not box:
            return []
        if isinstance(box[0], ClientError):
            if self._stop.fetching.is_set():
                return []
            raise box[0]
        return box[0]

    # Slots.

    def _start(self, leased: work.Fetched) -> None:
        running = Running(leased, self._words)
        with self._lock:
            self._fetched += 1
            self._running[leased.job_id] = running
        threading.Thread(target=self._work, args=(running,), name=leased.job_id).start()

    def _work(self, running: Running) -> None:
        """One job, in a slot."""
        leased = running.job
        try:
            ended = running.run()
            self._finish(running, ended)
        finally:
            with self._changed:
                self._running.pop(leased.job_id, None)
                self._changed.notify_all()

    def _finish(self, running: Running, ended: Ended) -> None:
        """Report the end with the lease token, until a server answers or the lease is lost."""
        leased = running.job
        verb, body = ended.verb, {**ended.body, "lease_token": leased.lease_token}
        client = self._session.another_client()
        try:
            while True:
                try:
                    work.finish(client, verb, leased.job_id, body)
                except Unreachable:
                    if self._stop.commands.wait(_PAUSE_S):
                        self._say(f"{leased.job_id}: no server took its end ({verb})")
                        return
                    continue
                except RequestFailed as error:
                    if error.status >= 500 or error.status == 429:
                        self._stop.commands.wait(_PAUSE_S)
                        continue
                    self._say(f"{leased.job_id}: {verb} was refused: {error.message}")
                    return
                break
        finally:
            client.close()
        with self._lock:
            if verb == "ack":
                self._completed += 1
            else:
                self._failed += 1
        if verb != "ack":
            self._say(f"{leased.job_id}: {ended.body.get('error')}")

    def _drain(self) -> None:
        """Wait for running commands; a second signal ends them."""
        with self._lock:
            left = len(self._running)
        if left and self._stop.fetching.is_set():
            self._say(f"stopping: {counted(left, 'command')} still running; Ctrl-C again ends them")
        ended = False
        while True:
            with self._changed:
                if not self._running:
                    return
                if self._stop.commands.is_set() and not ended:
                    ended = True
                    for running in self._running.values():
                        running.end("the worker was stopped")
                self._changed.wait(0.2)

    # Leases.

    def _renew(self) -> None:
        """Renew all leases, three times within the shortest."""
        client = self._session.another_client()
        pause_s = max(self._got.lease / 3, 0.2)
        while not self._stop.commands.wait(pause_s) or self._running:
            with self._lock:
                running = dict(self._running)
            if not running:
                continue
            jobs: dict[str, Mapping[str, object]] = {
                job_id: each.heartbeat() for job_id, each in running.items()
            }
            try:
                answers = read(work.heartbeat(client, jobs), work.Heartbeat).jobs
            except ClientError as error:
                if isinstance(error, RequestFailed) and error.status in _FINAL:
                    self._error = error
                    self._stop.fetching.set()
                self._say(f"leases were not renewed: {error.message}")
                continue
            for job_id, one in answers.items():
                if one.status == "cancel" and job_id in running:
                    running[job_id].end("cancelled, or the lease is lost")
            if self._stop.commands.is_set():
                pause_s = min(pause_s, _PAUSE_S)
        client.close()


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queues", nargs="+", metavar="QUEUE", help="queues, served in this order")
    parser.add_argument(
        "--exec",
        required=True,
        metavar="COMMAND",
        help="command of a job, split like a shell does and run without one. {id}, {queue},"
        " {attempt}, {payload} and {payload.NAME} stand for values of the job, each in one word",
    )
    parser.add_argument(
        "--shell", action="store_true", help="run the command by /bin/sh; values are in variables"
    )
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=1,
        metavar="N",
        help="commands that run at the same time (default: 1)",
    )
    parser.add_argument(
        "--lease",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="lease of a job, renewed while its command runs (default: 60s)",
    )
    parser.add_argument("--worker-id", metavar="NAME", help="default: host and process id")
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="end after N jobs; exit code 7 if one failed"
    )
    parser.add_argument("--until-empty", action="store_true", help="end when no job is available")


VERBS: Final = {
    "worker": Verb(
        COMMANDS["worker"].summary,
        worker,
        _add,
        TEXTS,
        (
            "corvo worker mail --exec './send-mail' --concurrency 4",
            "corvo worker images --exec 'convert {payload.from} {payload.to}'",
            """corvo worker mail --shell --exec 'jq -r .to | mail -s "Hello" "$(cat)"'""",
        ),
    )
}
