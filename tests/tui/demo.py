"""A node with some of everything: queues, workers, failures, limits; for pictures and to look at.

`python -m tests.tui.demo` runs it until Ctrl-C, and prints its address.
"""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.server import serving
from corvo.client.calls import Client
from corvo.client.errors import ClientError

QUEUES: Final = {
    "emails.send": (12, 0.03, 8),
    "emails.bulk": (5, 0.004, 0),
    "images.resize": (3, 0.0, 4),
    "agents.research": (1, 0.1, 0),
    "sync.users": (2, 0.0, 0),
    "webhooks.deliver": (8, 0.15, 0),
    "発注.確認": (1, 0.0, 0),
}
"""By queue: jobs each tick, share of failures, limit of active jobs."""
_ERRORS: Final = (
    "SMTPServerDisconnected: connection closed by 10.2.0.{n}",
    "TimeoutError: no answer within {n} s",
    "ValueError: bad address\n  in line {n}",
)
_TICK_S: Final = 0.25


class _Job(msgspec.Struct):
    job_id: str
    lease_token: int


class _Fetched(msgspec.Struct):
    jobs: list[_Job]


class Demo:
    """Producers and workers of a node."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._produce, daemon=True)]
        for name, (_, share, _) in QUEUES.items():
            if name != "sync.users":
                for number in range(2):
                    told = (name, share, f"w-{number}{name[:3]}", number)
                    self._threads.append(
                        threading.Thread(target=self._work, args=told, daemon=True)
                    )

    def start(self) -> None:
        """Begin."""
        client = Client([self._url])
        for name, (_, _, limit) in QUEUES.items():
            if limit:
                client.change("POST", f"/api/v1/queues/{name}/concurrency", {"max": limit})
        jobs = [{"queue": "reports.gen", "payload": {"customer": n}} for n in range(88)]
        client.change("POST", "/api/v1/enqueue/batch", {"jobs": jobs})
        jobs = [
            {"queue": "sync.users", "payload": {}, "scheduled_at": "2099-01-01T00:00:00Z"}
            for _ in range(12)
        ]
        client.change("POST", "/api/v1/enqueue/batch", {"jobs": jobs})
        client.change("POST", "/api/v1/queues/sync.users/pause")
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        client, random = Client([self._url]), Random(1)
        while not self._stop.wait(_TICK_S):
            jobs = []
            for name, (count, _, _) in QUEUES.items():
                for _ in range(random.randint(0, 2 * count)):
                    job = {"queue": name, "payload": {"n": random.randint(1, 999)}}
                    jobs.append({**job, "max_retries": 2, "tags": {"tenant": "acme"}})
            if jobs:
                _quietly(client, "/api/v1/enqueue/batch", {"jobs": jobs})

    def _work(self, queue: str, share: float, worker: str, seed: int) -> None:
        client, random = Client([self._url]), Random(seed)
        body = {
            "queues": [queue],
            "worker_id": worker,
            "hostname": f"pod-{seed}",
            "count": 6,
            "timeout": 1,
        }
        while not self._stop.is_set():
            try:
                answer = client.change("POST", "/api/v1/fetch/batch", body)
            except ClientError:
                continue
            found = msgspec.json.decode(answer.body, type=_Fetched).jobs
            self._stop.wait(random.uniform(0.05, 0.3))
            done, failed = [], []
            for job in found:
                claim = {"job_id": job.job_id, "lease_token": job.lease_token}
                if random.random() < share:
                    text = random.choice(_ERRORS).format(n=random.randint(1, 99))
                    failed.append({**claim, "error": text})
                else:
                    done.append(claim)
            if done:
                _quietly(client, "/api/v1/ack/batch", {"acks": done})
            for each in failed:
                token = {"lease_token": each["lease_token"], "error": each["error"]}
                _quietly(client, f"/api/v1/fail/{each['job_id']}", token)


def _quietly(client: Client, path: str, body: object) -> None:
    with suppress(ClientError):
        client.change("POST", path, body)


@contextmanager
def demo() -> Iterator[str]:
    """A node with work; gives its URL."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        running = Demo(server.url)
        running.start()
        try:
            yield server.url
        finally:
            running.stop()


if __name__ == "__main__":
    with demo() as url:
        print(url, flush=True)
        threading.Event().wait()
