"""The command of one job: its words, its environment, its end, and what the end means.

The payload is on stdin, and in `CORVO_PAYLOAD` if it is short. Exit code 0 completes the job; JSON
on stdout is its result. Every other code fails the attempt, with the end of stderr as the error.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from corvo.client.work import Fetched
from corvo.client_commands.records import pick, text_of

_VARIABLE: Final = re.compile(r"\{(id|queue|attempt|kind|payload(?:\.[^{}\s]+)?)\}")
_ENVIRONMENT_BYTES: Final = 64 << 10
"""A longer payload is only on stdin: Linux limits a variable to 128 KiB."""
_STDERR_BYTES: Final = 8 << 10
_RESULT_BYTES: Final = 1 << 20
_END_S: Final = 5.0
"""Between SIGTERM and SIGKILL."""
DEAD: Final = 65
"""Exit code of a command that cannot ever do this job (EX_DATAERR)."""


class Ended(NamedTuple):
    """The end of a command as a request to the server."""

    verb: str
    body: dict[str, object]


def words_of(words: Sequence[str], job: Fetched) -> list[str]:
    """The words of a command, with the values of a job. A value never becomes a second word."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name == "payload":
            return bytes(job.payload).decode()
        if name.startswith("payload."):
            return text_of(pick(job.payload, name.removeprefix("payload.")))
        values = {"id": job.job_id, "queue": job.queue, "kind": job.kind}
        return values.get(name, str(job.attempt))

    return [_VARIABLE.sub(value, word) for word in words]


def environment_of(job: Fetched, checkpoint: str) -> dict[str, str]:
    """Variables of a command beside those of the worker."""
    found = {
        "CORVO_JOB_ID": job.job_id,
        "CORVO_QUEUE": job.queue,
        "CORVO_KIND": job.kind,
        "CORVO_ATTEMPT": str(job.attempt),
        "CORVO_MAX_RETRIES": str(job.max_retries),
        "CORVO_LEASE_TOKEN": str(job.lease_token),
        "CORVO_CHECKPOINT_FILE": checkpoint,
        # Empty without a trace: the worker may run in one of its own.
        "TRACEPARENT": job.traceparent,
        "TRACESTATE": job.tracestate,
    }
    payload = bytes(job.payload)
    if len(payload) <= _ENVIRONMENT_BYTES:
        found["CORVO_PAYLOAD"] = payload.decode()
    return found


def ended_by(code: int, out: bytes, err: bytes, why: str) -> Ended:
    """The meaning of an exit code and of the output."""
    if code == 0 and not why:
        return Ended("ack", {"result": result_of(out)} if out.strip() else {})
    said = err.decode(errors="replace").strip()
    if why:
        cause = why
    elif code < 0:
        cause = f"the command was killed by {signal.Signals(-code).name}"
    else:
        cause = f"the command ended with exit code {code}"
    body: dict[str, object] = {"error": f"{cause}: {said}" if said else cause}
    if code == DEAD and not why:
        body["retryable"] = False
    return Ended("fail", body)


def result_of(out: bytes) -> msgspec.Raw:
    """What a command has printed: JSON as it is, other text as a JSON text."""
    data = out.strip()
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return msgspec.Raw(msgspec.json.encode(data.decode(errors="replace")))
    return msgspec.Raw(data)


class Running:
    """A command that runs for a job."""

    def __init__(self, job: Fetched, words: Sequence[str]) -> None:
        self.job: Final = job
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._why = ""
        self._checkpoint = ""
        self._sent = b""

    def run(self) -> Ended:
        """Run the command to its end."""
        leased = self.job
        with tempfile.TemporaryDirectory(prefix="corvo-job-") as directory:
            file = Path(directory, "checkpoint.json")
            if bytes(leased.checkpoint) != b"null":
                file.write_bytes(bytes(leased.checkpoint))
                self._sent = bytes(leased.checkpoint)
            self._checkpoint = str(file)
            environment = {**os.environ, **environment_of(leased, str(file))}
            try:
                code, out, err = self._run(environment)
            except (OSError, ValueError) as error:
                return Ended("fail", {"error": f"the command cannot be started: {error}"})
            ended = ended_by(code, out, err, self._why)
            last = self.checkpoint()
            if last is not None and ended.verb == "ack":
                ended.body["checkpoint"] = last
            self._checkpoint = ""
        return ended

    def _run(self, environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        leased = self.job
        with self._lock:
            if self._why:
                return 1, b"", b""
            self._process = subprocess.Popen(  # noqa: S603 -- the command is the worker's purpose
                words_of(self._words, leased),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                # A group of its own: Ctrl-C reaches the worker alone, and an end the whole group.
                start_new_session=True,
            )
        out, err = self._process.communicate(bytes(leased.payload))
        if len(out) > _RESULT_BYTES:
            out = b""
        return self._process.returncode, out, err[-_STDERR_BYTES:]

    def end(self, why: str) -> None:
        """End the command: SIGTERM, and SIGKILL five seconds later."""
        with self._lock:
            self._why = self._why or why
            process = self._process
        if process is None or process.poll() is not None:
            return
        _signal(process, signal.SIGTERM)
        timer = threading.Timer(_END_S, lambda: _signal(process, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def heartbeat(self) -> dict[str, object]:
        """The item of a heartbeat: the lease token, and the checkpoint if it has changed."""
        item: dict[str, object] = {"lease_token": self.job.lease_token}
        checkpoint = self.checkpoint()
        if checkpoint is not None:
            item["checkpoint"] = checkpoint
        return item

    def checkpoint(self) -> msgspec.Raw | None:
        """The checkpoint that the command has written since the last time."""
        if not self._checkpoint:
            return None
        try:
            data = Path(self._checkpoint).read_bytes().strip()
            msgspec.json.decode(data)
        except (OSError, msgspec.DecodeError):
            return None  # not written, or in the middle of it
        if data == self._sent:
            return None
        self._sent = data
        return msgspec.Raw(data)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """A signal to the whole group of a command."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return  # it has ended meanwhile
